package tlsfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/internal/test/nofiles"
	"leasehold/internal/test/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a certificate that signs itself, and its key, in PEM.
func pair(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	// As tools that renew certificates do it: the file is never half there.
	if err := errors.Join(os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// serve echoes over TLS, each connection after the name of its client's certificate.
func serve(t *testing.T, config *tls.Config) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				conn := c.(*tls.Conn)
				if conn.Handshake() != nil {
					return
				}
				name := "nobody"
				if chains := conn.ConnectionState().VerifiedChains; len(chains) > 0 {
					name = chains[0][0].Subject.CommonName
				}
				_, _ = io.WriteString(c, name+"\n")
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// connect returns the connection, and the names of both ends; err is the handshake's.
func connect(t *testing.T, addr string, client ...tls.Certificate) (c *tls.Conn, server, name string, err error) {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	if err := raw.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	c = tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: client})
	if err := c.Handshake(); err != nil {
		return nil, "", "", err
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	return c, c.ConnectionState().PeerCertificates[0].Subject.CommonName, strings.TrimSpace(string(b[:n])), err
}

func TestCertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	paths := Paths{filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "ca")}
	set := func(name string) {
		certificate, key := pair(t, name)
		put(t, paths.Certificate, certificate)
		put(t, paths.Key, key)
	}
	set("first")
	authority, clientKey := pair(t, "runner")
	put(t, paths.ClientCA, authority)
	client, err := tls.X509KeyPair(authority, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	log := &testlog.Buffer{}
	config, err := Config(paths, zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	addr := serve(t, config)
	old, server, name, err := connect(t, addr)
	if err != nil || server != "first" || name != "nobody" {
		t.Fatalf("%s, %s, %v", server, name, err)
	}
	if _, _, name, err := connect(t, addr, client); err != nil || name != "runner" {
		t.Errorf("a client's certificate: %s, %v", name, err)
	}
	set("second")
	if _, server, _, err := connect(t, addr); err != nil || server != "second" {
		t.Errorf("after the change: %s, %v", server, err)
	}
	if _, err := io.WriteString(old, "still here"); err != nil {
		t.Errorf("the old connection: %v", err)
	}
	b := make([]byte, 10)
	if _, err := io.ReadFull(old, b); err != nil || string(b) != "still here" {
		t.Errorf("the old connection: %q, %v", b, err)
	}
	put(t, paths.Key, []byte("broken"))
	for range 3 {
		if _, server, _, err := connect(t, addr); err != nil || server != "second" {
			t.Errorf("with a broken key: %s, %v", server, err)
		}
	}
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, log)
	}
	set("third")
	other, _ := pair(t, "somebody else")
	put(t, paths.ClientCA, other)
	if _, server, _, err := connect(t, addr); err != nil || server != "third" {
		t.Errorf("after the third: %s, %v", server, err)
	}
	if _, _, name, err := connect(t, addr, client); err == nil && name == "runner" {
		t.Error("a client of an authority that was taken out is let in")
	}
}

// TestAFileThatCouldNotBeOpenedIsReadLater: without another edit.
func TestAFileThatCouldNotBeOpenedIsReadLater(t *testing.T) {
	dir := t.TempDir()
	paths := Paths{filepath.Join(dir, "cert"), filepath.Join(dir, "key"), ""}
	set := func(name string) {
		certificate, key := pair(t, name)
		put(t, paths.Certificate, certificate)
		put(t, paths.Key, key)
	}
	set("first")
	log := &testlog.Buffer{}
	config, err := Config(paths, zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	served := func() string {
		c, err := config.GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.Subject.CommonName
	}
	set("second")
	nofiles.During(t, func() {
		if a, b := served(), served(); a != "first" || b != "first" {
			t.Errorf("while files cannot be opened: %s, %s", a, b)
		}
	})
	if name := served(); name != "second" {
		t.Errorf("the certificate %s stays, since its files could not be opened once", name)
	}
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, log)
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	good := Paths{Certificate: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	certificate, key := pair(t, "a")
	put(t, good.Certificate, certificate)
	put(t, good.Key, key)
	open := filepath.Join(dir, "open")
	if err := os.WriteFile(open, key, 0o644); err != nil {
		t.Fatal(err)
	}
	for says, p := range map[string]Paths{
		"no such file": {good.Certificate, good.Key + "x", ""}, "chmod 600": {good.Certificate, open, ""},
		"authorities": {good.Certificate, good.Key, good.Key}, "PEM": {good.Key, good.Key, ""},
	} {
		if _, err := Config(p, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", p, err, says)
		}
	}
	if _, err := Config(good, zerolog.Nop()); err != nil {
		t.Error(err)
	}
}
