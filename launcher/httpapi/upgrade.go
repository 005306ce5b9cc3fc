package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// upgradeRoutes are the websockets of both forms.
func upgradeRoutes() []route {
	return []route{
		upgradeRoute("/devtools/browser/{profile}", onProfile(principal.Open), connectOneShot),
		upgradeRoute("/profiles/{profile}", onProfile(principal.Open), connectOneShot),
		upgradeRoute("/any/devtools/browser", forRole(principal.Open), connectOneShot),
		upgradeRoute("/any", forRole(principal.Open), connectOneShot),
		upgradeRoute("/profiles/{profile}/devtools/browser/{id}", onProfile(principal.Open), connectOneShot),
		upgradeRoute("/profiles/{profile}/devtools/page/{target}", onProfile(principal.Use), inSession(byIdentity, connectTarget)),
		upgradeRoute("/s/{capability}/devtools/browser/{profile}", forCapability, connectByCapability),
		upgradeRoute("/s/{capability}/devtools/page/{target}", forCapability, inSession(byCapability, connectTarget)),
	}
}

func upgradeRoute(pattern string, a access, serve handler) route {
	return route{method: http.MethodGet, pattern: pattern, access: a, websocket: true, serve: serve}
}

func connectOneShot(c *call) error {
	m, err := c.manifest()
	if err != nil {
		return err
	}
	return c.acquire(m, func(string) {})
}

// acquire takes the lease of a one-shot URL, connects, and serves until the connection ends.
// opened is called with the session's id.
func (c *call) acquire(m api.Manifest, opened func(sessionID string)) error {
	if err := c.toOpen(&m); err != nil {
		return err
	}
	session, err := c.svc.Acquire(c.o.Tracer.Follow(c.r.Context(), c.r.Header), m)
	if err != nil {
		return err
	}
	opened(session.SessionID)
	if c.gone() {
		// A session to which nobody connects ends in order by itself. To connect and then
		// cancel would look like a lost worker.
		return errGone
	}
	return c.connect(session.SessionID, "")
}

// connectByCapability connects to the browser of the session whose capability is in the path.
// If the path has a ticket, it does what the one-shot URL does for which the ticket was made.
func connectByCapability(c *call) error {
	t, ok, err := c.useTicket()
	switch {
	case err != nil:
		return err
	case !ok:
		return inSession(byCapability, connectBrowser)(c)
	case c.param("profile") != ticketProfile(t.manifest):
		return wrongProfile(c.param("profile"))
	}
	secret := c.param("capability")
	return c.acquire(t.manifest, func(sessionID string) { c.tickets.opened(secret, sessionID) })
}

func wrongProfile(named string) error {
	return api.Invalid("profile_id", "the URL names profile %s, its session is on another", clip(named))
}

func connectBrowser(c *call, e endpoint) error {
	if profile := c.param("profile"); profile != e.session.ProfileID {
		return wrongProfile(profile)
	}
	return c.connect(e.session.SessionID, "")
}

// connectTarget connects to the target that the path names or, if it names none, to the
// session's browser.
func connectTarget(c *call, e endpoint) error {
	return c.connect(e.session.SessionID, c.param("target"))
}

const (
	// connectTimeout bounds how long a browser may take to open a session.
	connectTimeout = 30 * time.Second
	// handshakeTimeout bounds the writing of the 101.
	handshakeTimeout = 10 * time.Second
)

// connect opens a connection to a session, answers the upgrade and serves until
// the connection ends. The first byte after the 101 is the client's.
func (c *call) connect(sessionID, target string) error {
	// Not the request's context: if that ended while the connection is being opened, what was
	// opened so far would stay open in the browser.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), connectTimeout)
	conn, err := c.svc.Connect(ctx, sessionID, target, takesCloseFrames(c.r))
	cancel()
	if err != nil {
		return err
	}
	if c.gone() {
		conn.Cancel()
		return errGone
	}
	return c.serveOn(conn, sessionHeader(conn.Session()))
}

// serveOn answers the upgrade with the header, and serves until the connection ends.
func (c *call) serveOn(conn api.Connection, header http.Header) error {
	sessionID := conn.Session().SessionID
	netConn, buffered, err := c.switchProtocols(header)
	if err != nil {
		conn.Cancel()
		c.w.status = statusClientGone
		if netConn != nil {
			_ = netConn.Close() // serving has failed already
		}
		c.o.Log.Debug().Err(err).Str("session", sessionID).Msg("upgrade not answered")
		return nil
	}
	c.w.status = http.StatusSwitchingProtocols
	if err := watchPeer(netConn); err != nil {
		c.o.Log.Warn().Err(err).Str("session", sessionID).Msg("a client that vanishes may be noticed late")
	}
	c.w.beforeServe()
	conn.Serve(netConn, buffered)
	return nil
}

// sessionHeader is what the 101 says about the session.
func sessionHeader(s api.Session) http.Header {
	token := strconv.FormatUint(uint64(s.Token), 10)
	header := http.Header{}
	header.Set("Leasehold-Session", s.SessionID)
	header.Set("Leasehold-Token", token)
	header.Set("Leasehold-Expires-At", s.ExpiresAt.UTC().Format(time.RFC3339))
	if s.ExchangeDir != "" {
		header.Set("Leasehold-Exchange", s.ExchangeDir)
	}
	header.Set("X-Playwright-Debug-Log", "leasehold session="+s.SessionID+" profile="+s.ProfileID+" token="+token)
	return header
}

// switchProtocols answers the upgrade. It chooses no extension and no subprotocol: on
// loopback, compression costs both sides more than it saves.
//
// Any key is accepted, as Chrome does: go-rod sends "nil", which websocket libraries
// refuse, and expects the answer to that.
func (c *call) switchProtocols(header http.Header) (net.Conn, *bufio.Reader, error) {
	conn, buffered, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	accept := sha1.Sum([]byte(c.r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	header.Set("Upgrade", "websocket")
	header.Set("Connection", "Upgrade")
	header.Set("Sec-WebSocket-Accept", base64.StdEncoding.EncodeToString(accept[:]))
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = header.Write(&b) // a bytes.Buffer takes everything
	b.WriteString("\r\n")
	// The server's deadlines are meant for requests, and end here.
	err = errors.Join(conn.SetDeadline(time.Time{}), conn.SetWriteDeadline(time.Now().Add(handshakeTimeout)))
	if err == nil {
		_, err = conn.Write(b.Bytes())
	}
	return conn, buffered.Reader, errors.Join(err, conn.SetWriteDeadline(time.Time{}))
}

// TCP finds out whether a worker is gone. Websocket pings would too, but some clients crash on
// one.
const (
	keepAliveIdle     = 10 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveCount    = 3
	userTimeout       = 20 * time.Second
)

// watchPeer makes the kernel end a connection whose peer no longer answers.
func watchPeer(conn net.Conn) error {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = over.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
	}); err != nil {
		return err
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	}); err != nil {
		return err
	}
	return set
}

// takesCloseFrames reports whether the client's key is a valid one of the websocket protocol:
// 16 bytes in base64. A client with another key was written for Chrome, which sends only
// messages and ends a connection by closing the socket: go-rod takes every frame for a message,
// and panics on a close frame.
func takesCloseFrames(r *http.Request) bool {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	return err == nil && len(key) == 16
}

// wantsUpgrade reports whether the client asks for a websocket, whether or not its handshake is
// valid.
func wantsUpgrade(r *http.Request) bool { return headerHas(r.Header.Values("Upgrade"), "websocket") }

// headerHas reports whether a word is in headers whose values are comma-separated lists.
func headerHas(values []string, word string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), word) {
				return true
			}
		}
	}
	return false
}

// checkHandshake refuses an upgrade that could not be answered, before anything is acquired for
// it.
func (c *call) checkHandshake() error {
	h := c.r.Header
	switch {
	case !c.upgrade:
		return api.Invalid("", "want a websocket upgrade here; clients that ask over HTTP first start below, at json/version")
	case !headerHas(h.Values("Connection"), "upgrade"):
		return api.Invalid("", "the header Connection: Upgrade is missing: does a proxy in between drop it?")
	case !c.r.ProtoAtLeast(1, 1):
		return api.Invalid("", "want HTTP/1.1, got %s: does a proxy in between speak an old version?", c.r.Proto)
	case h.Get("Sec-WebSocket-Version") != "13":
		c.w.Header().Set("Sec-WebSocket-Version", "13")
		p := api.Invalid("", "want Sec-WebSocket-Version 13, got %q", clip(h.Get("Sec-WebSocket-Version")))
		p.Status = http.StatusUpgradeRequired
		return p
	}
	return nil
}
