package bubble

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/test/fakechrome"
)

// link is the pipe between a browser and the one launcher that has it: two pairs of real
// sockets, which the real cdpproxy.Mux writes and reads. It implements cdpproxy.Waiting: who
// waits for a socket waits for the channel changed, which every write closes, since a bubble
// cannot wait in the kernel.
type link struct {
	c *fakeChrome
	l *life
	// Of each pair the first end is the launcher's, who closes it.
	commands, events [2]int

	mu      sync.Mutex
	changed chan struct{}
	hung    bool
}

// linkTo gives the pipe to a launcher. Nothing of who had it before reaches the browser.
func (c *fakeChrome) linkTo(l *life) (commands, events int, err error) {
	l.step()
	n := &link{c: c, l: l, changed: make(chan struct{})}
	for _, pair := range []*[2]int{&n.commands, &n.events} {
		if *pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return -1, -1, err
		}
	}
	c.mu.Lock()
	before, ended := c.link, c.ended
	c.link = n
	c.mu.Unlock()
	if before != nil {
		before.hangUp()
	}
	c.w.mu.Lock()
	c.w.links = append(c.w.links, n)
	c.w.mu.Unlock()
	c.w.late.Go(n.serve)
	if ended {
		n.hangUp()
	}
	return n.commands[0], n.events[0], nil
}

// linked is the link of a launcher that has just taken the pipe.
func (c *fakeChrome) linked(l *life) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil || c.link.l != l {
		panic("a pipe that nobody took")
	}
	return c.link
}

// unlink ends the link of a launcher that lets go of the pipe.
func (c *fakeChrome) unlink(l *life) {
	c.mu.Lock()
	n := c.link
	if n != nil && n.l == l {
		c.link = nil
	}
	c.mu.Unlock()
	if n != nil && n.l == l {
		n.hangUp()
	}
}

// hangUp ends the link on the browser's side.
func (n *link) hangUp() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = true
	n.tell()
}

// tell wakes who waits. n.mu is held.
func (n *link) tell() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// Wrote is part of cdpproxy.Waiting.
func (n *link) Wrote() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tell()
}

// next is what the next write closes.
func (n *link) next() (changed <-chan struct{}, hung bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed, n.hung
}

// Poll is part of cdpproxy.Waiting. That of a launcher that is dead returns when the world
// is over.
func (n *link) Poll(fds []unix.PollFd, timeout time.Duration) error {
	var due <-chan time.Time
	if timeout >= 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		due = timer.C
	}
	for {
		n.l.rests()
		changed, _ := n.next()
		found, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if found > 0 || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-due:
			return nil
		}
	}
}

// serve answers until the link ends.
func (n *link) serve() {
	defer func() {
		_ = unix.Close(n.commands[1])
		_ = unix.Close(n.events[1])
		n.Wrote()
	}()
	var in []byte
	buffer := make([]byte, 64<<10)
	for {
		changed, hung := n.next()
		if hung {
			return
		}
		switch got, err := unix.Read(n.commands[1], buffer); {
		case errors.Is(err, unix.EAGAIN):
			<-changed
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || got == 0:
			return
		default:
			in = append(in, buffer[:got]...)
		}
		for {
			end := bytes.IndexByte(in, 0)
			if end < 0 {
				break
			}
			if end > 0 {
				n.handle(in[:end])
			}
			in = in[end+1:]
		}
	}
}

// say writes one message to the launcher, who may not read for a while.
func (n *link) say(format string, args ...any) {
	rest := fmt.Appendf(nil, format+"\x00", args...)
	for len(rest) > 0 {
		written, err := unix.Write(n.events[1], rest)
		switch {
		case errors.Is(err, unix.EAGAIN):
			time.Sleep(10 * time.Millisecond)
			if _, hung := n.next(); hung {
				return
			}
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return
		default:
			rest = rest[written:]
		}
	}
	n.Wrote()
}

type command struct {
	ID        int64
	Method    string
	SessionID string
	Params    struct {
		TargetID, URL, SessionID, Expression string
		AutoAttach                           bool
	}
}

// written is how a worker's message begins that tells its token: the target that it asks for.
const written = "token "

// handle answers one command as Chrome does.
func (n *link) handle(msg []byte) {
	c := n.c
	var m command
	if err := json.Unmarshal(msg, &m); err != nil {
		c.w.broken("the world", "a browser got %.100q: %v", msg, err)
		return
	}
	result := "{}"
	c.mu.Lock()
	d := &c.cdp
	var told []string
	attach := func(session string, p page, waiting bool) {
		told = append(told, fmt.Sprintf(`{"method":"Target.attachedToTarget","params":{"sessionId":"%s-%s","targetInfo":{"targetId":%q,"type":"page","url":%q,"browserContextId":"C"},"waitingForDebugger":%t},"sessionId":%q}`,
			session, p.target, p.target, p.url, waiting, session))
	}
	closes := false
	switch m.Method {
	case "Target.attachToBrowserTarget":
		d.sessions++
		result = fmt.Sprintf(`{"sessionId":"B%d"}`, d.sessions)
	case "Target.setAutoAttach":
		if m.Params.AutoAttach && m.SessionID != "" && !strings.Contains(m.SessionID, "-") {
			d.watching = append(d.watching, m.SessionID)
			for _, p := range d.pages {
				attach(m.SessionID, p, false)
			}
		}
	case "Target.detachFromTarget":
		gone := m.Params.SessionID
		for i := 0; i < len(d.watching); i++ {
			if d.watching[i] == gone {
				d.watching = append(d.watching[:i:i], d.watching[i+1:]...)
			}
		}
	case "Target.createTarget":
		d.made++
		p := page{fmt.Sprint("T", d.made), m.Params.URL}
		d.pages = append(d.pages, p)
		for _, s := range d.watching {
			attach(s, p, true)
		}
		result = fmt.Sprintf(`{"targetId":%q}`, p.target)
	case "Target.closeTarget":
		d.drops(m.Params.TargetID)
		for _, s := range d.watching {
			told = append(told, fmt.Sprintf(`{"method":"Target.detachedFromTarget","params":{"sessionId":"%s-%s","targetId":%q},"sessionId":%q}`, s, m.Params.TargetID, m.Params.TargetID, s))
		}
		result = `{"success":true}`
	case "Target.getTargets":
		var infos []string
		for _, p := range d.pages {
			infos = append(infos, fmt.Sprintf(`{"targetId":%q,"type":"page","url":%q,"browserContextId":"C"}`, p.target, p.url))
		}
		result = `{"targetInfos":[` + strings.Join(infos, ",") + `]}`
	case "Target.getTargetInfo":
		if token, ok := strings.CutPrefix(m.Params.TargetID, written); ok {
			c.mu.Unlock()
			c.w.check.message(n, c, token)
			c.mu.Lock()
		}
		result = `{"targetInfo":{"targetId":"T0","type":"page","url":"about:blank"}}`
	case "Storage.getCookies":
		result = `{"cookies":[]}`
	case "Page.captureScreenshot":
		result = `{"data":"aGk="}`
	case "Browser.close":
		closes = true
	default:
		if of, ok := fakechrome.EmptyPage(m.Method, m.Params.Expression); ok {
			result = of
		}
		if strings.Contains(m.Params.Expression, "getRegistrations") { // it has no service workers
			result = `{"result":{"value":0}}`
		}
	}
	c.mu.Unlock()
	for _, t := range told {
		n.say("%s", t)
	}
	if m.SessionID == "" {
		n.say(`{"id":%d,"result":%s}`, m.ID, result)
	} else {
		n.say(`{"id":%d,"result":%s,"sessionId":%q}`, m.ID, result, m.SessionID)
	}
	if closes {
		c.end(true)
	}
}

// stirs has something happen in the browser that nobody asked for: a page opens.
func (c *fakeChrome) stirs() {
	c.mu.Lock()
	d, n := &c.cdp, c.link
	if !c.idle {
		c.mu.Unlock()
		return
	}
	c.w.count("warm browsers disturbed")
	d.made++
	d.happened = true
	p := page{fmt.Sprint("T", d.made), "https://shop.example/popup"}
	d.pages = append(d.pages, p)
	watching := d.watching
	c.mu.Unlock()
	if n == nil {
		return
	}
	for _, s := range watching {
		n.say(`{"method":"Target.attachedToTarget","params":{"sessionId":"%s-%s","targetInfo":{"targetId":%q,"type":"page","url":%q,"browserContextId":"C"},"waitingForDebugger":true},"sessionId":%q}`,
			s, p.target, p.target, p.url, s)
	}
}
