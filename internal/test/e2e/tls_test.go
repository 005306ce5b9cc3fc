package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"leasehold/internal/test/otheruser"
	"leasehold/launcher/api"
)

// certified makes a certificate that signs itself, for 127.0.0.1 and for a client of this
// name, and writes it and its key (PEM) into the directory.
func certified(t *testing.T, dir, name string) (cert tls.Certificate, path, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	path, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	write(t, path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, path, key
}

// TestClientsWithCertificates: another user of the host has a certificate, and with it a
// worker's role, on all that the sidecar serves over TLS.
func TestClientsWithCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, serverPath, serverKey := certified(t, dir, "sidecar")
	runner, runnerPath, _ := certified(t, dir, "runner")
	stranger, _, _ := certified(t, dir, "stranger")
	tokens := filepath.Join(dir, "tokens.yaml")
	write(t, tokens, []byte("certificates: [{name: ci, subject: runner, role: worker, profiles: [\"shop_*\"]}]\n"))
	leaf, err := x509.ParseCertificate(server.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	by := func(uid uint32, own ...tls.Certificate) (*http.Client, *tls.Config) {
		client, config := otheruser.Client(uid), &tls.Config{RootCAs: roots, Certificates: own}
		client.Transport.(*http.Transport).TLSClientConfig = config
		return client, config
	}
	owner, _ := by(0)
	s := startFor(t, owner, append(fakeBrowsers(t), "--tls-cert", serverPath, "--tls-key", serverKey, "--client-ca", runnerPath, "--tokens", tokens)...)
	if !strings.HasPrefix(s.URL, "https://") {
		t.Fatalf("it is ready at %s, want https", s.URL)
	}
	// The profile is there: a worker makes none.
	s.used(t, "shop_1", 1)

	ci, config := by(otheruser.UID, runner)
	nobody, _ := by(otheruser.UID)
	unknown, _ := by(otheruser.UID, stranger)
	get := func(client *http.Client, url string) (int, string) {
		r, err := client.Get(url)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = r.Body.Close() }()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
	if status, body := get(nobody, s.URL+"/v1/profiles/shop_1"); status != 401 {
		t.Errorf("without a certificate: %d %s, want 401", status, body)
	}
	if status, body := get(unknown, s.URL+"/v1/profiles/shop_1"); status == 200 {
		t.Errorf("with a certificate of another authority: %d %s", status, body)
	}
	if status, body := get(ci, s.URL+"/v1/profiles/bank_1"); status != 403 {
		t.Errorf("a profile that its patterns do not name: %d %s, want 403", status, body)
	}

	s.client = ci
	var ses api.Session
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "shop_1", "worker_id": "w", "task_id": "t", "dedicated_port": true}, &ses); code != 201 || ses.Principal != "ci" {
		t.Fatalf("a session by certificate: %d, of %q", code, ses.Principal)
	}
	if !strings.HasPrefix(ses.CDPURL, "wss://") || ses.DedicatedURL == nil || !strings.HasPrefix(*ses.DedicatedURL, "https://") {
		t.Fatalf("served at %v, want wss and https", ses.DedicatedURL)
	}
	if status, body := get(ci, *ses.DedicatedURL+"/json/version"); status != 200 || !strings.Contains(body, `"wss://`) {
		t.Errorf("the dedicated port: %d %s, want a URL with wss", status, body)
	}
	if status, body := get(nobody, strings.Replace(*ses.DedicatedURL, "https://", "http://", 1)+"/json/version"); status == 200 {
		t.Errorf("the dedicated port without TLS: %d %s", status, body)
	}
	c := dialBy(t, ws.Dialer{TLSConfig: config, NetDial: func(_ context.Context, _, address string) (net.Conn, error) {
		return otheruser.Dial(otheruser.UID, address)
	}}, ses.CDPURL)
	c.call(t, "", "Browser.getVersion", nil, nil)
	if code := s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil); code != 200 {
		t.Errorf("it ends its session: %d", code)
	}
	s.client = owner
	s.until(t, "shop_1", "available")
}
