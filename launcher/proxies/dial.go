package proxies

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/proxy"
)

// errCredentials says that the server did not accept the credentials.
var errCredentials = errors.New("the proxy refused the credentials that the configuration has for it")

// dial opens a connection to the target (host:port) through the server, which also
// resolves the target's name.
func (p *Proxy) dial(ctx context.Context, d dialer, target string) (net.Conn, error) {
	if p.scheme == schemeSOCKS5 {
		return p.dialSOCKS5(ctx, d, target)
	}
	c, err := p.connect(ctx, d)
	if err != nil {
		return nil, err
	}
	opened, err := p.openTunnel(ctx, c, target)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return opened, nil
}

func (p *Proxy) dialSOCKS5(ctx context.Context, d dialer, target string) (net.Conn, error) {
	var auth *proxy.Auth
	if p.username != "" {
		auth = &proxy.Auth{User: p.username, Password: string(p.credentials.Load().password)}
	}
	// raw is the connection to the server, which the library's own connection hides.
	var raw net.Conn
	socks, err := proxy.SOCKS5("tcp", p.address, auth, dialFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		raw = c
		return c, err
	}))
	if err != nil {
		return nil, err
	}
	if _, err := socks.(proxy.ContextDialer).DialContext(ctx, "tcp", target); err != nil {
		return nil, err
	}
	return raw, nil
}

// dialFunc makes a function a proxy.ContextDialer.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func (f dialFunc) Dial(network, address string) (net.Conn, error) {
	return f(context.Background(), network, address)
}

func (f dialFunc) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return f(ctx, network, address)
}

func (p *Proxy) authorization() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(p.username+":"+string(p.credentials.Load().password)))
}

// openTunnel asks the server, by CONNECT, for a tunnel to the target. The returned connection
// replaces c.
func (p *Proxy) openTunnel(ctx context.Context, c net.Conn, target string) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{}}
	if p.username != "" {
		req.Header.Set("Proxy-Authorization", p.authorization())
	}
	if err := req.Write(c); err != nil {
		return nil, err
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, req) //nolint:bodyclose // what follows is the tunnel's, or the connection is closed
	if err != nil {
		return nil, fmt.Errorf("the proxy's answer to CONNECT: %w", err)
	}
	switch {
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return nil, errCredentials
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("the proxy answered CONNECT with %s", resp.Status)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return &tunnel{Conn: c, r: r}, nil
}

// tunnel is a connection after the answer to CONNECT was read. The reader may already have read
// more than the answer, so further reads go through it.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

func (t *tunnel) Read(b []byte) (int, error) { return t.r.Read(b) }

// CloseWrite ends our side of the tunnel; the other side may go on sending.
func (t *tunnel) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return t.Conn.Close()
}

// CloseRead does nothing. goproxy requires it, and closes the tunnel when both directions have
// ended.
func (t *tunnel) CloseRead() error { return nil }
