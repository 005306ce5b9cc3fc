package natskv

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"leasehold/internal/natsd"
)

// frame is one unit of the protocol between nats.go and its server.
type frame struct {
	op, subject string
	reply       string
	raw         []byte
}

// readFrame reads one frame of either direction. A line that it does not know is an error.
func readFrame(r *bufio.Reader) (frame, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return frame{}, err
	}
	fields := strings.Fields(string(line))
	if len(fields) == 0 {
		return frame{}, fmt.Errorf("empty protocol line")
	}
	f := frame{op: strings.ToUpper(fields[0]), raw: line}
	size := -1
	last := func() error {
		size, err = strconv.Atoi(fields[len(fields)-1])
		return err
	}
	switch f.op {
	case "INFO", "CONNECT", "PING", "PONG", "+OK", "-ERR", "SUB", "UNSUB":
		return f, nil
	case "PUB": // subject [reply] size
		f.subject, f.reply = fields[1], strings.Join(fields[2:len(fields)-1], "")
		err = last()
	case "HPUB": // subject [reply] header-size size
		f.subject, f.reply = fields[1], strings.Join(fields[2:len(fields)-2], "")
		err = last()
	case "MSG", "HMSG": // subject sid [reply] [header-size] size
		f.subject = fields[1]
		err = last()
	default:
		return frame{}, fmt.Errorf("unknown protocol line %q", line)
	}
	if err != nil {
		return frame{}, fmt.Errorf("protocol line %q: %w", line, err)
	}
	body := make([]byte, size+2)
	if _, err := io.ReadFull(r, body); err != nil {
		return frame{}, err
	}
	if !bytes.HasSuffix(body, []byte("\r\n")) {
		return frame{}, fmt.Errorf("payload of %q does not end a line", line)
	}
	f.raw = append(f.raw, body...)
	return f, nil
}

// delayed is a request that the proxy has not passed on to the server yet.
type delayed struct {
	to net.Conn
	f  frame
}

// proxy stands between nats.go and a server. It loses, delays and forges the messages that
// its functions choose.
type proxy struct {
	t *testing.T
	l net.Listener

	mu    sync.Mutex
	srv   *natsd.Server
	conns []net.Conn
	down  bool
	// loseRequest and loseAnswer choose requests by their subjects. onLost, if set, is
	// called when an answer is lost: the request was carried out by then.
	loseRequest, loseAnswer func(subject string) bool
	onLost                  func()
	lost                    int
	pending                 map[string]bool // reply subjects whose answers are to be lost
	// delay chooses requests that are kept until deliver is called, even if their
	// client has disconnected. answered has a channel for each reply subject that
	// deliver waits for, which is closed when the answer comes.
	delay    func(subject string) bool
	delayed  []delayed
	answered map[string]chan struct{}
	// forge returns the answer to a request, which the server then does not get: a
	// status line with headers, or a body. If it is empty, the server answers.
	forge  func(subject string) string
	forged map[string]string

	wg sync.WaitGroup
}

func startProxy(t *testing.T, srv *natsd.Server) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	never := func(string) bool { return false }
	p := &proxy{t: t, l: l, srv: srv, loseRequest: never, loseAnswer: never, delay: never, pending: map[string]bool{}, answered: map[string]chan struct{}{}, forge: func(string) string { return "" }, forged: map[string]string{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.l.Addr().String() }

func (p *proxy) server() *natsd.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.srv
}

// serve has new connections lead to the server.
func (p *proxy) serve(srv *natsd.Server) { p.set(func(p *proxy) { p.srv = srv }) }

func (p *proxy) set(change func(*proxy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// cut closes all connections, and refuses new ones until the function that it returns is
// called.
func (p *proxy) cut() (mend func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	return func() { p.set(func(p *proxy) { p.down = false }) }
}

// leave closes all connections to clients. The server does not learn that where a request
// is delayed.
func (p *proxy) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; i < len(p.conns); i += 2 {
		_ = p.conns[i].Close()
	}
}

// deliver passes the delayed requests on, and waits for their answers.
func (p *proxy) deliver() {
	p.mu.Lock()
	all := p.delayed
	p.delayed = nil
	p.mu.Unlock()
	if len(all) == 0 {
		p.t.Error("proxy: no request is delayed")
	}
	for _, d := range all {
		p.mu.Lock()
		answered := make(chan struct{})
		p.answered[d.f.reply] = answered
		p.mu.Unlock()
		if _, err := d.to.Write(d.f.raw); err != nil {
			p.t.Errorf("proxy: deliver late: %v", err)
			return
		}
		<-answered
	}
}

// delays tells whether a request to the connection is delayed.
func (p *proxy) delays(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.delayed, func(d delayed) bool { return d.to == c })
}

// admit adds a pair of connections to those of the proxy, or closes it while the proxy is
// cut.
func (p *proxy) admit(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		_, _ = client.Close(), server.Close()
		return false
	}
	p.conns = append(p.conns, client, server)
	return true
}

func (p *proxy) lostCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		server, err := p.server().InProcessConn()
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.admit(client, server) {
			continue
		}
		p.wg.Go(func() { p.pump(client, server, p.fromClient) })
		p.wg.Go(func() { p.pump(server, client, p.fromServer) })
	}
}

func (p *proxy) pump(from, to net.Conn, keep func(*frame, net.Conn) bool) {
	defer func() {
		for _, c := range []net.Conn{from, to} {
			if !p.delays(c) {
				_ = c.Close()
			}
		}
	}()
	r := bufio.NewReader(from)
	for {
		f, err := readFrame(r)
		if err != nil {
			if strings.Contains(err.Error(), "protocol") {
				p.t.Errorf("proxy: %v", err)
			}
			return
		}
		if !keep(&f, to) {
			continue
		}
		if _, err := to.Write(f.raw); err != nil {
			return
		}
	}
}

func (p *proxy) fromClient(f *frame, to net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case f.op != "PUB" && f.op != "HPUB":
		return true
	case p.delay(f.subject):
		p.delayed = append(p.delayed, delayed{to, *f})
		return false
	case p.loseRequest(f.subject):
		p.lost++
		return false
	case p.loseAnswer(f.subject):
		if f.reply == "" {
			p.t.Errorf("proxy: told to lose the answer to %s, which wants none", f.subject)
		}
		p.pending[f.reply] = true
	}
	if answer := p.forge(f.subject); answer != "" {
		p.forged[f.reply] = answer
		f.raw = fmt.Appendf(nil, "PUB $JS.API.INFO %s 0\r\n\r\n", f.reply)
	}
	return true
}

func (p *proxy) fromServer(f *frame, _ net.Conn) bool {
	p.mu.Lock()
	if answered, ok := p.answered[f.subject]; ok {
		close(answered)
		delete(p.answered, f.subject)
	}
	if answer, ok := p.forged[f.subject]; ok && (f.op == "MSG" || f.op == "HMSG") {
		delete(p.forged, f.subject)
		f.raw = forgery(*f, answer)
	}
	lose := (f.op == "MSG" || f.op == "HMSG") && p.pending[f.subject]
	var then func()
	if lose {
		delete(p.pending, f.subject)
		p.lost++
		then = p.onLost
	}
	p.mu.Unlock()
	if then != nil {
		then()
	}
	return !lose
}

// forgery returns the message with another content.
func forgery(f frame, answer string) []byte {
	fields := strings.Fields(string(f.raw[:bytes.IndexByte(f.raw, '\n')]))
	if strings.HasPrefix(answer, "NATS/1.0") {
		return fmt.Appendf(nil, "HMSG %s %s %d %d\r\n%s\r\n", fields[1], fields[2], len(answer), len(answer), answer)
	}
	return fmt.Appendf(nil, "MSG %s %s %d\r\n%s\r\n", fields[1], fields[2], len(answer), answer)
}

// times returns a function that chooses the first n requests on subjects with the prefix;
// all of them if n is negative.
func times(n int, prefix string) func(string) bool {
	return func(subject string) bool {
		if !strings.HasPrefix(subject, prefix) || n == 0 {
			return false
		}
		n--
		return true
	}
}
