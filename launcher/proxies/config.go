// Package proxies has the proxy servers that profiles name by their proxy_id. They come from a
// configuration file. Chrome cannot be given credentials, so if a server needs them, a relay on
// the loopback interface adds them.
//
// Credentials stay in this package: nothing that it returns or logs contains them.
package proxies

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goccy/go-yaml"
)

// The schemes that a server may have.
const (
	schemeHTTP   = "http"
	schemeHTTPS  = "https"
	schemeSOCKS5 = "socks5"
)

var defaultPorts = map[string]string{schemeHTTP: "80", schemeHTTPS: "443", schemeSOCKS5: "1080"}

// Proxy is one proxy server. Its credentials may change while it is in use; its address never
// does.
type Proxy struct {
	id       string
	scheme   string
	address  string // host:port
	username string
	relayed  bool // see NeedsRelay
	// credentials are used for connections that are opened from now on.
	credentials atomic.Pointer[credentials]
}

// credentials are what proves the two sides of a Proxy to each other.
type credentials struct {
	password secret         // empty if the server needs none
	roots    *x509.CertPool // the authorities for the server's certificate; nil: the host's
	sum      [sha256.Size]byte
}

// Format implements fmt.Formatter. It prints nothing secret.
func (*credentials) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "***") }

// newCredentials makes credentials. ca is the text from which roots was made.
func newCredentials(password string, roots *x509.CertPool, ca []byte) *credentials {
	c := &credentials{password: secret(password), roots: roots}
	of := sha256.Sum256([]byte(password))
	c.sum = sha256.Sum256(append(of[:], ca...))
	return c
}

// secret is text that no format verb prints.
type secret string

// Format implements fmt.Formatter.
func (secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "***") }

// ID returns the proxy_id.
func (p *Proxy) ID() string { return p.id }

// Server returns scheme://host:port.
func (p *Proxy) Server() string { return p.scheme + "://" + p.address }

// String is the id and the server, for messages.
func (p *Proxy) String() string { return p.id + " (" + p.Server() + ")" }

// GoString returns what String does. Without it %#v would print the fields.
func (p *Proxy) GoString() string { return p.String() }

// Sum is the same for two proxies if they are the same server with the same user name,
// whatever the passwords. It is the SHA-256 of both, in hexadecimal.
func (p *Proxy) Sum() string {
	sum := sha256.Sum256([]byte(p.Server() + "\x00" + p.username))
	return hex.EncodeToString(sum[:])
}

// NeedsRelay tells whether Chrome cannot use the server by itself, because the server
// wants credentials or has a certificate that Chrome does not trust.
func (p *Proxy) NeedsRelay() bool { return p.relayed }

// Check connects to the server, and returns the error if that fails. It sends no credentials:
// an HTTP proxy asks for them only with a request for a target.
func (p *Proxy) Check(ctx context.Context) error {
	c, err := p.connect(ctx, &net.Dialer{})
	if err != nil {
		return fmt.Errorf("proxy %s does not answer: %w", p, err)
	}
	return c.Close()
}

// entry is a proxy as it is written in the file.
type entry struct {
	Server       string `yaml:"server"`
	Username     string `yaml:"username"`
	Password     string `yaml:"password"`
	PasswordFile string `yaml:"password_file"`
	CAFile       string `yaml:"ca_file"`
}

// read reads the file for Load. paths are all files that belong to the configuration, as far as
// they are known: the file itself, and those that it names.
func read(path string) (byID map[string]*Proxy, paths []string, err error) {
	paths = []string{path}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, paths, err
	}
	var file map[string]entry
	if err := yaml.UnmarshalWithOptions(b, &file, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		// The first line of the error names the place. The lines after it quote the
		// file, and may contain a password.
		first, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
		return nil, paths, fmt.Errorf("%s: want ids, each with server, and if needed username, password or password_file, ca_file: %s", path, first)
	}
	dir := filepath.Dir(path)
	for _, e := range file {
		for _, named := range []string{e.PasswordFile, e.CAFile} {
			if named != "" {
				paths = append(paths, relativeTo(dir, named))
			}
		}
	}
	byID = map[string]*Proxy{}
	for _, id := range slices.Sorted(maps.Keys(file)) {
		e := file[id]
		if e.Password != "" {
			if err := checkPrivate(path); err != nil {
				return nil, paths, err
			}
		}
		if byID[id], err = e.proxy(id, dir); err != nil {
			return nil, paths, fmt.Errorf("%s: proxy %q: %w", path, id, err)
		}
	}
	return byID, paths, nil
}

// checkPrivate refuses a file that every user of the host can access. The file contains
// a password.
func checkPrivate(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if fi.Mode().Perm()&0o007 != 0 {
		return fmt.Errorf("%s has passwords, and mode %#o lets every user read it: chmod o-rwx %s", path, fi.Mode().Perm(), path)
	}
	return nil
}

// maxCredential is the greatest length, in bytes, that SOCKS5 allows for a user name and
// for a password.
const maxCredential = 255

// proxy checks the entry and makes the Proxy of it. File names are relative to dir.
func (e entry) proxy(id, dir string) (*Proxy, error) {
	if id == "" || len(id) > 256 || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, errors.New("want an id of at most 256 bytes without control characters")
	}
	scheme, address, err := parseServer(e.Server)
	if err != nil {
		return nil, err
	}
	password := e.Password
	if e.PasswordFile != "" {
		if e.Password != "" {
			return nil, errors.New("password and password_file: want one")
		}
		if password, err = readPassword(relativeTo(dir, e.PasswordFile)); err != nil {
			return nil, fmt.Errorf("password_file: %w", err)
		}
	}
	switch {
	case (e.Username == "") != (password == ""):
		return nil, errors.New("username and password go together: one is missing or empty")
	case len(e.Username) > maxCredential || len(password) > maxCredential:
		return nil, fmt.Errorf("want at most %d bytes of username and of password", maxCredential)
	case scheme != schemeSOCKS5 && strings.Contains(e.Username, ":"):
		return nil, errors.New("username: Basic authentication allows no colon in it")
	}
	var roots *x509.CertPool
	var ca []byte
	if e.CAFile != "" {
		if scheme != schemeHTTPS {
			return nil, fmt.Errorf("ca_file is for an https server, this one is %s", scheme)
		}
		if ca, err = os.ReadFile(relativeTo(dir, e.CAFile)); err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("ca_file %s: want certificates in PEM", e.CAFile)
		}
	}
	p := &Proxy{id: id, scheme: scheme, address: address, username: e.Username, relayed: e.Username != "" || roots != nil}
	p.credentials.Store(newCredentials(password, roots, ca))
	return p, nil
}

// readPassword reads a file that has a password in its only line.
func readPassword(path string) (string, error) {
	if err := checkPrivate(path); err != nil {
		return "", err
	}
	b, err := os.ReadFile(path)
	return strings.TrimRight(string(b), "\r\n"), err
}

func relativeTo(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// parseServer reads scheme://host[:port]. Its errors do not quote the text, which may
// contain a password.
func parseServer(server string) (scheme, address string, err error) {
	const want = "server: want http://host:port, https://host:port or socks5://host:port"
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return "", "", errors.New(want)
	case u.User != nil:
		return "", "", errors.New("server: want the credentials in username and password, not in the URL")
	case defaultPorts[u.Scheme] == "":
		return "", "", fmt.Errorf("%s, not %q", want, u.Scheme)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", "", errors.New(want + ", and nothing behind the port")
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = defaultPorts[u.Scheme]
	}
	// The port becomes part of an argument of Chrome, which would read separators in it as
	// those of a list of proxies.
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(";,=@/\\", r) }) {
		return "", "", errors.New(want)
	}
	return u.Scheme, net.JoinHostPort(host, port), nil
}

// connectTimeout limits how long it may take to connect to a server, up to the moment
// when the connection can be used.
const connectTimeout = 30 * time.Second

// dialer is the part of net.Dialer that this package uses.
type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// connect opens a connection to the server itself, encrypted if the scheme is https.
func (p *Proxy) connect(ctx context.Context, d dialer) (net.Conn, error) {
	c, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil || p.scheme != schemeHTTPS {
		return c, err
	}
	encrypted := tls.Client(c, p.tlsConfig())
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return encrypted, nil
}

func (p *Proxy) tlsConfig() *tls.Config {
	host, _, err := net.SplitHostPort(p.address)
	if err != nil {
		host = p.address
	}
	return &tls.Config{ServerName: host, RootCAs: p.credentials.Load().roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}
