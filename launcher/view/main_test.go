package view

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/boottime"
	"leasehold/internal/test/testchrome"
	"leasehold/internal/test/testlog"
	"leasehold/launcher/api"
	"leasehold/launcher/monitor"
	"leasehold/launcher/principal"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/session"
	"leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits that end sooner unless something is broken.
const patience = time.Minute

// stage is a real Chromium with a monitor, and a worker that drives it.
type stage struct {
	*testing.T
	mux     *cdpproxy.Mux
	monitor *monitor.Monitor
	worker  *cdpproxy.Observer
	work    sync.WaitGroup
	gallery *Gallery
	log     testlog.Buffer
}

func newStage(t *testing.T) *stage {
	t.Helper()
	o := testchrome.Options(t)
	o.ExtraArgs = []string{"--disable-gpu", "--window-size=800,600"}
	chromium := testchrome.Start(t, o)
	commands, events, err := chromium.TakePipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, monitor: monitor.New(func(checkpoint.Entry) {})}
	if s.mux, err = cdpproxy.New(cdpproxy.Pipe{Commands: commands, Events: events}, findings.CommandEffect, s.monitor.Traffic); err != nil {
		t.Fatal(err)
	}
	if err := s.monitor.Attach(t.Context(), s.mux); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { s.monitor.Watch(context.Background()) })
	s.gallery = New(ctx, &s.work, Options{
		Ended: func(string) string { return "released" }, Log: zerolog.New(&s.log), Metrics: prometheus.NewRegistry(),
	})
	t.Cleanup(func() {
		cancel()
		s.work.Wait()
		closing, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		_ = s.mux.Call(closing, "Browser.close", nil, nil) // the reply may be lost with the pipe
		watching.Wait()
		<-s.mux.Done()
	})
	if s.worker, err = s.mux.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// play is a session on the stage.
type play struct {
	*stage
	id       string
	mu       sync.Mutex
	stops    []func()
	ending   bool
	done     chan struct{}
	sent     []cdpproxy.Command
	step     string
	person   *api.Person
	fence    *lease.Fence
	acts     []session.Act // of the person
	exchange string
	closes   int // pages that were about to close
}

func (s *stage) play(id string) *play {
	fence := lease.Begin(lease.PresenceEntry{}, boottime.Now(), lease.Timing{TTL: time.Hour}, boottime.Now).Fence(1)
	return &play{stage: s, id: id, done: make(chan struct{}), fence: fence}
}

func (p *play) ID() string         { return p.id }
func (p *play) Mux() *cdpproxy.Mux { return p.mux }
func (p *play) Show() api.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return api.Session{SessionID: p.id, ProfileID: "shop_018", WorkerID: "worker-7", TaskID: "task_101", Person: p.person, ExchangeDir: p.exchange, State: map[bool]string{false: api.SessionServing, true: api.SessionRecovering}[p.ending]}
}
func (p *play) Monitor() (*monitor.Monitor, error) { return p.monitor, nil }
func (p *play) Done() <-chan struct{}              { return p.done }
func (p *play) Doing() (step, checkpoint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step, ""
}

// takes has somebody take the session over; nobody with "".
// exchanges puts files into the session's exchange directory.
func (p *play) exchanges(t *testing.T, names ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exchange = t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(p.exchange, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *play) takes(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.person = nil; name != "" {
		p.person = &api.Person{Name: name, Principal: name}
	}
}

// takesAs has a person take the session over who shares a principal with others.
func (p *play) takesAs(name, principal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.person = &api.Person{Name: name, Principal: principal}
}

func (p *play) PersonIs(who principal.Principal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.person == nil:
		return api.Refuse(api.CodeNotTakenOver, "nobody has session %s by hand", p.id)
	case p.person.Principal != who.Name, !who.ActsAs(p.person.Name):
		return api.Refuse(api.CodeTakenOver, "%s has session %s", p.person.Name, p.id)
	}
	return nil
}

func (p *play) ByPerson(who principal.Principal, act session.Act, do func(*lease.Fence) error) error {
	if err := p.PersonIs(who); err != nil {
		return err
	}
	p.mu.Lock()
	p.acts = append(p.acts, act)
	p.mu.Unlock()
	return do(p.fence)
}

func (p *play) Present(principal.Principal) (left func()) { return func() {} }

func (p *play) Manifest() api.Manifest { return api.Manifest{} }

func (p *play) Readable(path string) error {
	if strings.HasSuffix(path, "forbidden.txt") {
		return errors.New("it may not be read")
	}
	return nil
}

func (p *play) PageCloses(string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closes++
}

// kinds are what the person did since this was asked before, without what goes on with an act.
func (p *play) kinds() (kinds []session.ActKind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.acts {
		if !a.GoesOn {
			kinds = append(kinds, a.Kind)
		}
	}
	p.acts = nil
	return kinds
}

func (p *play) Attend(stop func()) (func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending {
		return nil, api.Refuse(api.CodeSessionEnded, "it ends")
	}
	p.stops = append(p.stops, stop)
	return func() {}, nil
}

// end ends the session: over says that it is closed, too.
func (p *play) end() {
	p.mu.Lock()
	p.ending = true
	stops := p.stops
	p.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

func (p *play) FollowCommands() func() []cdpproxy.Command {
	return func() []cdpproxy.Command {
		p.mu.Lock()
		defer p.mu.Unlock()
		sent := p.sent
		p.sent = nil
		return sent
	}
}

// works says that the worker sent commands to a page, one right after the other.
func (p *play) works(target string, commands ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, method := range commands {
		p.sent = append(p.sent, cdpproxy.Command{At: time.Now(), Target: target, Method: method})
	}
}

func (s *stage) call(session, method string, params, result any) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if err := s.worker.Call(ctx, session, method, params, result); err != nil {
		s.Fatalf("%s: %v", method, err)
	}
}

// open opens a page with a document.
func (s *stage) open(html string) (target, session string) {
	s.Helper()
	var r struct{ TargetID, SessionID string }
	s.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &r)
	s.call("", "Target.attachToTarget", map[string]any{"targetId": r.TargetID, "flatten": true}, &r)
	s.call(r.SessionID, "Page.enable", nil, nil)
	s.load(r.SessionID, html)
	return r.TargetID, r.SessionID
}

// load has a page show a document.
func (s *stage) load(session, html string) {
	s.Helper()
	s.call(session, "Page.navigate", map[string]any{"url": "about:blank"}, nil) // an earlier document's scripts end
	var tree struct {
		FrameTree struct{ Frame struct{ ID string } }
	}
	s.call(session, "Page.getFrameTree", nil, &tree)
	s.call(session, "Page.setDocumentContent", map[string]any{"frameId": tree.FrameTree.Frame.ID, "html": html}, nil)
}

func (s *stage) closePage(target string) {
	s.Helper()
	s.call("", "Target.closeTarget", map[string]any{"targetId": target}, nil)
}

// eval is the value of an expression in a page, as text, or what it threw.
func (s *stage) eval(session, expression string) string {
	s.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	s.call(session, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		return string(r.ExceptionDetails)
	}
	return fmt.Sprint(r.Result.Value)
}

// seat is a viewer, as its own end sees it.
type seat struct {
	*testing.T
	conn net.Conn
	tabs []tabNow
	last map[string]map[string]any // the last message of each type
}

// picture is a frame as a viewer got it.
type picture struct {
	frameHead
	image []byte
}

// watchAs lets somebody watch a session. It reads nothing before receive.
func (p *play) watchAs(t *testing.T, name string) *seat {
	t.Helper()
	c, err := p.gallery.Open(p, principal.Principal{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		c.Serve(far, bufio.NewReader(far))
	}()
	t.Cleanup(func() {
		_ = near.Close()
		<-served
	})
	return &seat{T: t, conn: near, last: map[string]map[string]any{}}
}

// says sends a message.
func (s *seat) says(format string, args ...any) {
	s.Helper()
	if err := wsutil.WriteClientText(s.conn, fmt.Appendf(nil, format, args...)); err != nil {
		s.Fatal(err)
	}
}

// one is the next message: a picture, a map of JSON, or why the connection was closed.
func (s *seat) one(within time.Duration) (any, error) {
	_ = s.conn.SetReadDeadline(time.Now().Add(within))
	head, err := ws.ReadHeader(s.conn)
	if err != nil {
		return nil, err
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(patience))
	body := make([]byte, head.Length)
	if _, err := readFull(s.conn, body); err != nil {
		return nil, err
	}
	switch head.OpCode {
	case ws.OpBinary:
		n := binary.BigEndian.Uint16(body)
		var p picture
		if err := json.Unmarshal(body[2:2+n], &p.frameHead); err != nil {
			s.Fatal(err)
		}
		p.image = body[2+n:]
		return p, nil
	case ws.OpClose:
		code, reason := ws.ParseCloseFrameData(body)
		return nil, wsutil.ClosedError{Code: code, Reason: reason}
	case ws.OpText:
		var m map[string]any
		if err := json.Unmarshal(body, &m); err != nil {
			s.Fatal(err)
		}
		kind, _ := m["type"].(string)
		s.last[kind] = m
		if kind == "tabs" {
			var tabs tabsMessage
			_ = json.Unmarshal(body, &tabs)
			s.tabs = tabs.Tabs
		}
		return m, nil
	}
	return body, nil // a pong
}

func readFull(c net.Conn, b []byte) (n int, err error) {
	for n < len(b) {
		m, err := c.Read(b[n:])
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// takes confirms a picture. The launcher may have ended the connection behind it: why is read next.
func (s *seat) takes(p picture) {
	_ = wsutil.WriteClientText(s.conn, fmt.Appendf(nil, `{"type":"ack","sequence":%d}`, p.Sequence))
}

// picture is the next picture, which the viewer takes.
func (s *seat) picture() picture {
	s.Helper()
	for {
		m, err := s.one(patience)
		if err != nil {
			s.Fatalf("no picture: %v", err)
		}
		if p, ok := m.(picture); ok {
			s.takes(p)
			return p
		}
	}
}

// pictureOf is the next picture of a page.
func (s *seat) pictureOf(target string) picture {
	s.Helper()
	for {
		if p := s.picture(); p.Target == target {
			return p
		}
	}
}

// settled is the last picture of a page, and how many came, from the next one on until the page
// could have drawn as many frames as given. The page tells by its title.
func (s *seat) settled(st *stage, target, session string, frames int) (last picture, pictures int) {
	s.Helper()
	last, pictures = s.pictureOf(target), 1
	st.worker.Post(session, "Runtime.evaluate", map[string]any{"expression": fmt.Sprintf(
		`{ let left = %d; (function next() { left-- > 0 ? requestAnimationFrame(next) : document.title = 'drawn' })() }`, frames)})
	for tabOf(s.tabs, target).Title != "drawn" {
		m, err := s.one(patience)
		if err != nil {
			s.Fatalf("while the page draws %d frames: %v", frames, err)
		}
		if p, ok := m.(picture); ok {
			s.takes(p)
			last, pictures = p, pictures+1
		}
	}
	return last, pictures
}

// message is the next message of a type that fits. Pictures that come meanwhile are taken.
func (s *seat) message(kind string, fits func(map[string]any) bool) map[string]any {
	s.Helper()
	for {
		m, err := s.one(patience)
		if err != nil {
			s.Fatalf("no message %s: %v", kind, err)
		}
		switch m := m.(type) {
		case picture:
			s.takes(m)
		case map[string]any:
			if m["type"] == kind && (fits == nil || fits(m)) {
				return m
			}
		}
	}
}

// closed is why the launcher ended the connection. Pictures that come before are not taken: nobody
// sends anything after a close frame.
func (s *seat) closed() wsutil.ClosedError {
	s.Helper()
	for {
		_, err := s.one(patience)
		if closed, ok := err.(wsutil.ClosedError); ok {
			return closed
		}
		if err != nil {
			s.Fatalf("not closed in order: %v", err)
		}
	}
}

// until takes what comes until a fact holds.
func (s *seat) until(fact func() bool) {
	s.Helper()
	for !fact() {
		m, err := s.one(patience)
		if err != nil {
			s.Fatalf("it did not come to it: %v; the last messages were %v", err, s.last)
		}
		if p, ok := m.(picture); ok {
			s.takes(p)
		}
	}
}

// messageOf is the last message of a type, or the next if there was none.
func (s *seat) messageOf(kind string) map[string]any {
	s.Helper()
	s.until(func() bool { return s.last[kind] != nil })
	return s.last[kind]
}

// ponged waits for the answer to a ping.
func (s *seat) ponged(want string) {
	s.Helper()
	for {
		m, err := s.one(patience)
		if err != nil {
			s.Fatalf("no pong: %v", err)
		}
		if body, ok := m.([]byte); ok {
			if string(body) != want {
				s.Errorf("the pong has %q", body)
			}
			return
		}
	}
}

// until waits until a fact holds.
func (s *stage) until(fact func() bool) {
	s.Helper()
	for late := time.Now().Add(patience); !fact(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			s.Fatal("it did not come to it")
		}
	}
}

// casts counts the casts of the session that have a CDP session on their page.
func (p *play) casts() int {
	casts, _ := p.attached()
	return casts
}

// attached counts the CDP sessions of the watch: those of casts on their pages, and those on frames
// of other processes.
func (p *play) attached() (casts, frames int) {
	p.gallery.mu.Lock()
	w := p.gallery.watches[p.id]
	p.gallery.mu.Unlock()
	if w == nil {
		return 0, 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.bySession), len(w.byFrame)
}

// paused has viewers want no pictures, and waits until none are drawn for them.
func (p *play) paused(t *testing.T, seats ...*seat) {
	t.Helper()
	for _, s := range seats {
		s.says(`{"type":"pause"}`)
	}
	p.until(func() bool { return p.casts() == 0 })
	for _, s := range seats {
		s.says(`{"type":"resume"}`)
	}
	p.until(func() bool { return p.casts() == 1 })
}

// watchUnread lets somebody watch who reads nothing, on a connection that has room for nothing.
// The function that it returns waits until they are cut off.
func (p *play) watchUnread(t *testing.T) (cutOff func()) {
	t.Helper()
	c, err := p.gallery.Open(p, principal.Principal{Name: "idle"})
	if err != nil {
		t.Fatal(err)
	}
	c.(*viewer).patience = 200 * time.Millisecond
	near, far := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		c.Serve(far, bufio.NewReader(far))
	}()
	t.Cleanup(func() { _ = near.Close() })
	return func() {
		t.Helper()
		select {
		case <-served:
		case <-time.After(patience):
			t.Error("who never reads is not cut off")
		}
	}
}
