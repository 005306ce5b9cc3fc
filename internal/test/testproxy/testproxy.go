// Package testproxy has proxies for tests: HTTP, with and without TLS, and SOCKS5, each
// with and without credentials. They connect every host name to one site, so that names
// that cannot be resolved work through the proxy and in no other way.
package testproxy

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// Proxy is a proxy that runs until the test ends, or until Stop.
type Proxy struct {
	// URL is scheme://host:port.
	URL string
	// Server is the HTTP server of the proxy, nil for SOCKS5. With HTTPS it has the
	// certificate.
	Server *httptest.Server

	site string // host:port
	user string
	stop func()

	mu       sync.Mutex
	password string
	targets  []string
	refused  int
}

// Stop ends the proxy and cuts its connections.
func (p *Proxy) Stop() { p.stop() }

// Targets lists the hosts and ports that were requested so far with the right
// credentials.
func (p *Proxy) Targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.targets)
}

// Refused counts the requests with wrong or missing credentials.
func (p *Proxy) Refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// SetPassword changes what new connections have to show.
func (p *Proxy) SetPassword(password string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.password = password
}

func (p *Proxy) wanted() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.password
}

func (p *Proxy) admit(target string, ok bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ok {
		p.targets = append(p.targets, target)
	} else {
		p.refused++
	}
	return ok
}

// HTTP starts an HTTP proxy in front of site (host:port). It requires Basic credentials
// unless user is empty.
func HTTP(t testing.TB, site, user, password string) *Proxy {
	t.Helper()
	return serveHTTP(t, site, user, password, (*httptest.Server).Start)
}

// HTTPS is HTTP over TLS.
func HTTPS(t testing.TB, site, user, password string) *Proxy {
	t.Helper()
	return serveHTTP(t, site, user, password, (*httptest.Server).StartTLS)
}

func serveHTTP(t testing.TB, site, user, password string, start func(*httptest.Server)) *Proxy {
	t.Helper()
	p := &Proxy{site: site, user: user, password: password}
	p.Server = httptest.NewUnstartedServer(p)
	start(p.Server)
	p.URL = p.Server.URL
	p.stop = sync.OnceFunc(func() { p.Server.CloseClientConnections(); p.Server.Close() })
	t.Cleanup(p.Stop)
	return p
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(p.user+":"+p.wanted()))
	target := r.Host
	if !p.admit(target, p.user == "" || r.Header.Get("Proxy-Authorization") == want) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		w.Header()["Content-Type"] = nil // otherwise this server guesses one if the site sends none
		(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: p.site})
			r.Out.URL.Path, r.Out.URL.RawQuery = r.In.URL.Path, r.In.URL.RawQuery
			r.Out.Host = r.In.Host
		}, FlushInterval: -1}).ServeHTTP(w, r)
		return
	}
	up, err := net.Dial("tcp", p.site)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n") // join notices a client that is gone
	join(client, buffered.Reader, up)
}

// join copies both ways until either side ends.
func join(client net.Conn, from *bufio.Reader, up net.Conn) {
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(up, from); done <- struct{}{} }()
	go func() { _, _ = io.Copy(client, up); done <- struct{}{} }()
	<-done
	_, _ = client.Close(), up.Close()
	<-done
}

// SOCKS5 starts a SOCKS5 proxy in front of site (host:port). It requires a user name
// and a password unless user is empty.
func SOCKS5(t testing.TB, site, user, password string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{URL: "socks5://" + l.Addr().String(), site: site, user: user, password: password}
	var work sync.WaitGroup
	var mu sync.Mutex
	open, stopped := map[net.Conn]bool{}, false
	p.stop = sync.OnceFunc(func() {
		_ = l.Close()
		mu.Lock()
		stopped = true
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		work.Wait()
	})
	t.Cleanup(p.Stop)
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if open[c] = true; stopped {
				_ = c.Close()
			}
			mu.Unlock()
			work.Go(func() {
				_ = p.serveSOCKS5(c) // the client sees the error
				_ = c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	return p
}

func (p *Proxy) serveSOCKS5(c net.Conn) error {
	r := bufio.NewReader(c)
	read := func(n int) ([]byte, error) {
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		return b, err
	}
	sized := func() ([]byte, error) { // reads a length and as many bytes
		n, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		return read(int(n))
	}
	if v, err := r.ReadByte(); err != nil || v != 5 {
		return fmt.Errorf("version %d: %w", v, err)
	}
	methods, err := sized()
	if err != nil {
		return err
	}
	method := byte(0)
	if p.user != "" {
		method = 2
	}
	if !slices.Contains(methods, method) {
		p.admit("", false)
		_, err := c.Write([]byte{5, 0xff})
		return err
	}
	if _, err := c.Write([]byte{5, method}); err != nil {
		return err
	}
	ok := true
	if method == 2 {
		if _, err := r.ReadByte(); err != nil {
			return err
		}
		user, err := sized()
		if err != nil {
			return err
		}
		password, err := sized()
		if err != nil {
			return err
		}
		if ok = string(user) == p.user && string(password) == p.wanted(); !ok {
			p.admit("", false)
			_, err := c.Write([]byte{1, 1})
			return err
		}
		if _, err := c.Write([]byte{1, 0}); err != nil {
			return err
		}
	}
	head, err := read(4)
	if err != nil {
		return err
	}
	var host string
	switch head[3] {
	case 1, 4:
		n := 4
		if head[3] == 4 {
			n = 16
		}
		ip, err := read(n)
		if err != nil {
			return err
		}
		host = net.IP(ip).String()
	case 3:
		name, err := sized()
		if err != nil {
			return err
		}
		host = string(name)
	default:
		return errors.New("address type")
	}
	port, err := read(2)
	if err != nil {
		return err
	}
	p.admit(net.JoinHostPort(host, fmt.Sprint(binary.BigEndian.Uint16(port))), ok)
	up, err := net.Dial("tcp", p.site)
	if err != nil {
		_, _ = c.Write([]byte{5, 1, 0, 1, 0, 0, 0, 0, 0, 0})
		return err
	}
	if _, err := c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}); err != nil {
		return errors.Join(err, up.Close())
	}
	join(c, r, up)
	return nil
}
