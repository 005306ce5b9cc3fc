// Package proxies is what a profile's proxy_id stands for: the servers that the
// configuration names, and for those that want credentials, which Chrome cannot be
// given, a relay on the loopback interface that knows them.
//
// Credentials stay in this package: nothing that it returns or logs has them.
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
	"time"

	"github.com/goccy/go-yaml"
)

// The schemes of servers.
const (
	schemeHTTP   = "http"
	schemeHTTPS  = "https"
	schemeSOCKS5 = "socks5"
)

var defaultPorts = map[string]string{schemeHTTP: "80", schemeHTTPS: "443", schemeSOCKS5: "1080"}

// Proxy is one server.
type Proxy struct {
	id       string
	scheme   string
	address  string // host:port
	username string
	password secret
	roots    *x509.CertPool // nil: the host's
}

// secret is text that no format verb shows.
type secret string

// Format implements fmt.Formatter.
func (secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "***") }

// ID returns the proxy_id.
func (p *Proxy) ID() string { return p.id }

// Server returns scheme://host:port.
func (p *Proxy) Server() string { return p.scheme + "://" + p.address }

// String is the id and the server, for messages.
func (p *Proxy) String() string { return p.id + " (" + p.Server() + ")" }

// GoString is String: formats look into structs for themselves.
func (p *Proxy) GoString() string { return p.String() }

// Sum tells whether two proxies are the same server under the same user name. The
// password is not in it.
func (p *Proxy) Sum() string {
	sum := sha256.Sum256([]byte(p.Server() + "\x00" + p.username))
	return hex.EncodeToString(sum[:])
}

// NeedsRelay tells whether Chrome cannot use the server by itself: it has
// credentials, or a certificate that Chrome does not know.
func (p *Proxy) NeedsRelay() bool { return p.username != "" || p.roots != nil }

// Check connects to the server, and says what is wrong where that fails. It
// shows no credentials: an HTTP proxy asks for them with a target only.
func (p *Proxy) Check(ctx context.Context) error {
	c, err := p.connect(ctx, &net.Dialer{})
	if err != nil {
		return fmt.Errorf("proxy %s does not answer: %w", p, err)
	}
	return c.Close()
}

// Set is the proxies of a configuration; the nil Set has none.
type Set struct{ byID map[string]*Proxy }

// Find returns the proxy of an id, or nil.
func (s *Set) Find(id string) *Proxy {
	if s == nil {
		return nil
	}
	return s.byID[id]
}

// IDs lists the ids, sorted.
func (s *Set) IDs() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.byID))
}

// entry is a proxy as the file has it.
type entry struct {
	Server       string `yaml:"server"`
	Username     string `yaml:"username"`
	Password     string `yaml:"password"`
	PasswordFile string `yaml:"password_file"`
	CAFile       string `yaml:"ca_file"`
}

// Load reads a YAML (or JSON) map of proxy ids to servers. Files that it names are
// relative to it. A file with passwords must not be readable by everybody. The
// error names the file and the id; it never quotes a line.
func Load(path string) (*Set, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file map[string]entry
	if err := yaml.UnmarshalWithOptions(b, &file, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		// The library draws the place, which may be a password: the first line
		// names it.
		first, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
		return nil, fmt.Errorf("%s: want ids, each with server, and if needed username, password or password_file, ca_file: %s", path, first)
	}
	s := &Set{byID: map[string]*Proxy{}}
	for _, id := range slices.Sorted(maps.Keys(file)) {
		e := file[id]
		if e.Password != "" {
			if err := checkPrivate(path); err != nil {
				return nil, err
			}
		}
		p, err := e.proxy(id, filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("%s: proxy %q: %w", path, id, err)
		}
		s.byID[id] = p
	}
	return s, nil
}

// checkPrivate refuses a file with a password that every user of the host reads.
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

// maxCredential is what SOCKS5 allows, in bytes.
const maxCredential = 255

func (e entry) proxy(id, dir string) (*Proxy, error) {
	if id == "" || len(id) > 256 || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, errors.New("want an id of at most 256 bytes without control characters")
	}
	scheme, address, err := parseServer(e.Server)
	if err != nil {
		return nil, err
	}
	p := &Proxy{id: id, scheme: scheme, address: address, username: e.Username, password: secret(e.Password)}
	if e.PasswordFile != "" {
		if e.Password != "" {
			return nil, errors.New("password and password_file: want one")
		}
		path := within(dir, e.PasswordFile)
		if err := checkPrivate(path); err != nil {
			return nil, fmt.Errorf("password_file: %w", err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("password_file: %w", err)
		}
		p.password = secret(strings.TrimRight(string(b), "\r\n"))
	}
	switch {
	case (p.username == "") != (p.password == ""):
		return nil, errors.New("username and password go together: one is missing or empty")
	case len(p.username) > maxCredential || len(p.password) > maxCredential:
		return nil, fmt.Errorf("want at most %d bytes of username and of password", maxCredential)
	case scheme != schemeSOCKS5 && strings.Contains(p.username, ":"):
		return nil, errors.New("username: Basic authentication allows no colon in it")
	}
	if e.CAFile == "" {
		return p, nil
	}
	if scheme != schemeHTTPS {
		return nil, fmt.Errorf("ca_file is for an https server, this one is %s", scheme)
	}
	pem, err := os.ReadFile(within(dir, e.CAFile))
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	p.roots = x509.NewCertPool()
	if !p.roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file %s: want certificates in PEM", e.CAFile)
	}
	return p, nil
}

func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// parseServer reads scheme://host[:port]. Its errors do not quote what may hold a
// password.
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
	// It becomes an argument of Chrome, whose list of proxies has separators.
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(";,=@/\\", r) }) {
		return "", "", errors.New(want)
	}
	return u.Scheme, net.JoinHostPort(host, port), nil
}

// connectTimeout bounds one connection to a server, up to where it takes requests.
const connectTimeout = 30 * time.Second

// dialer is the part of net.Dialer that is used.
type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// connect opens a connection to the server itself, with TLS if it is https.
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
	return &tls.Config{ServerName: host, RootCAs: p.roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}
