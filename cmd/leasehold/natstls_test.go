package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
)

// TestSubscribersSeeARenewedCertificate: it is read again, as that of --listen is.
func TestSubscribersSeeARenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	c := soundConfig()
	c.DataDir, c.NATSListen = dir, "0.0.0.0:4333"
	c.TLSCert, c.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	c.Token, c.TokenFile = "the-token-of-this-test", "token"
	putCertificate(t, c, 1)
	gate, err := c.gate(zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.embeddedNATS(gate, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	o.Listen = "127.0.0.1:0"
	server, err := natsd.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	for serial := range int64(3) {
		putCertificate(t, c, serial+1)
		if got := certificateOf(t, server); got != serial+1 {
			t.Errorf("subscribers see certificate %d, want %d", got, serial+1)
		}
	}
}

// putCertificate puts a certificate with the serial number, and its key, in the place of those that are there.
func putCertificate(t *testing.T, c RunConfig, serial int64) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
	certificate, err1 := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	key, err2 := x509.MarshalPKCS8PrivateKey(private)
	err = errors.Join(err1, err2)
	for path, block := range map[string]*pem.Block{c.TLSCert: {Type: "CERTIFICATE", Bytes: certificate}, c.TLSKey: {Type: "PRIVATE KEY", Bytes: key}} {
		err = errors.Join(err, os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600), os.Rename(path+".new", path))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// certificateOf is the serial number of the certificate that a subscriber is shown.
func certificateOf(t *testing.T, server *natsd.Server) int64 {
	t.Helper()
	conn, err := net.Dial("tcp", natsAddress(server))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, greetErr := bufio.NewReader(conn).ReadString('\n') // nothing follows before the handshake
	over := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	if err := errors.Join(conn.SetDeadline(time.Now().Add(time.Minute)), greetErr, over.Handshake()); err != nil {
		t.Fatal(err)
	}
	return over.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// natsAddress is where subscribers connect.
func natsAddress(server *natsd.Server) string {
	_, address, _ := strings.Cut(server.ClientURL(), "://")
	return address
}
