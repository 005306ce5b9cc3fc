package bubble

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"
	"golang.org/x/sys/unix"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// request is what somebody asks for, and how he behaves.
type request struct {
	manifest api.Manifest
	byHand   bool
	worksFor time.Duration
	connects bool // by a websocket; otherwise he only sends heartbeats
	drops    bool // his connection breaks off on the way, and he comes back
	lost     bool // he does not end in order
	stubborn bool // he goes on writing when his session is over
}

// worker is somebody with a session, at a launcher of his host.
type worker struct {
	w    *world
	host *host
	q    request
	s    api.Session
	p    *process // that he speaks with
	conn *socket  // nil: none
	sent int64
}

// of is a context in which a principal asks.
func of(p *process) context.Context {
	return principal.In(context.Background(), principal.Principal{Name: "uid:0", Role: principal.Admin})
}

// ask asks a launcher for a profile, works, and ends.
func (p *process) ask(q request) error {
	ctx, cancel := context.WithTimeout(of(p), 2*time.Minute)
	defer cancel()
	w := &worker{w: p.w, host: p.host, q: q, p: p}
	var err error
	w.s, err = rpc(p, func() (api.Session, error) {
		if !q.byHand {
			return p.launcher.Acquire(ctx, q.manifest)
		}
		r, err := p.launcher.Profile(ctx, q.manifest.ProfileID)
		if err != nil {
			return api.Session{}, err
		}
		return p.launcher.Hold(ctx, q.manifest.ProfileID, api.HoldRequest{Write: api.Write{Token: r.Token}, Holder: "ann", LockTimeoutSeconds: 30})
	})
	if err != nil {
		p.w.refused(err)
		return err
	}
	p.w.check.granted(p, w.s, q)
	w.works()
	return nil
}

// errGone says that a launcher died before it answered.
var errGone = errors.New("the launcher is gone")

// rpc asks a launcher, and gives up when that is dead.
func rpc[T any](p *process, ask func() (T, error)) (answer T, err error) {
	answered := make(chan struct{})
	err = errGone
	p.w.late.Go(func() {
		defer close(answered)
		p.step()
		got, problem := ask()
		p.step()
		answer, err = got, problem
	})
	select {
	case <-answered:
		return answer, err
	case <-p.gone:
		var none T
		return none, errGone
	}
}

// refused counts what a caller was told.
func (w *world) refused(err error) {
	var p *api.Problem
	if errors.As(err, &p) {
		w.count("refused: " + p.Code)
	}
}

// works is the worker at work, until he ends or his session does.
func (w *worker) works() {
	defer func() { w.hangUp() }()
	over := w.w.now() + w.q.worksFor
	drop := time.Duration(0)
	if w.q.drops {
		drop = w.w.now() + w.q.worksFor/2
	}
	for n := 0; ; n++ {
		if w.p.dead.Load() && !w.comesBack() {
			return
		}
		if w.q.connects && w.conn == nil && !w.connect() {
			break
		}
		if n == 2 && w.q.manifest.Resumable {
			w.writesBy(func() error {
				return w.p.launcher.Checkpoint(of(w.p), w.s.SessionID, api.Checkpoint{Write: api.Write{Token: w.s.Token}, Name: "listed"})
			})
		}
		if n%3 == 0 && !w.beats() {
			break
		}
		w.writes()
		if !w.sleep(700 * time.Millisecond) {
			return
		}
		if drop != 0 && w.w.now() >= drop && w.conn != nil && !w.conn.over.Load() {
			w.w.count("connections dropped")
			drop = 0
			w.hangUp()
			if !w.isGone(w.w.between(0, 8*time.Second)) {
				return
			}
		}
		if w.w.now() >= over {
			break
		}
	}
	switch {
	case w.q.stubborn:
		for range 12 {
			w.beats()
			w.writes()
			if !w.sleep(2 * time.Second) {
				return
			}
		}
	case w.q.lost || w.p.dead.Load():
		if w.s.ProfileID == roams { // those who have it on a copy may write until its worker counts as lost
			for _, h := range w.w.hosts {
				w.w.asksToRead(h.living())
			}
		}
	default:
		ctx, cancel := context.WithTimeout(of(w.p), time.Minute)
		defer cancel()
		_, err := rpc(w.p, func() (api.Session, error) {
			return w.p.launcher.Release(ctx, w.s.SessionID, api.Release{Write: api.Write{Token: w.s.Token}, Outcome: "succeeded"})
		})
		if err == nil {
			w.w.check.over(w.s)
		}
	}
}

// isGone is the worker without a connection for a while. His browser stands still meanwhile.
func (w *worker) isGone(d time.Duration) bool {
	const most = 3 * time.Second // less than the grace, and than it takes to lose a lease
	p, h := w.p, w.host
	calm := func() bool {
		return !p.dead.Load() && int64(w.w.now()) > p.pausedTill.Load() && !h.cut() && h.bad.Load() == 0 && !w.w.server.away.Load()
	}
	if d <= time.Second {
		return w.sleep(d)
	}
	if before := calm(); !w.sleep(min(d, most)) {
		return false
	} else if s, err := p.launcher.Session(w.s.SessionID); before && err == nil && s.State == api.SessionServing && s.Connections == 0 && calm() && !w.q.byHand && !s.Ephemeral && w.w.sharedBy(w.s.ProfileID) == 1 {
		w.w.check.stands(p, w.s, true)
	}
	return w.sleep(max(d-most, 0))
}

// sleep is false when the world is over.
func (w *worker) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.w.over:
		return false
	}
}

// comesBack waits for the next launcher, and tells whether his session went on there.
func (w *worker) comesBack() bool {
	w.hangUp()
	for range 60 {
		if p := w.host.living(); p != nil {
			s, err := rpc(p, func() (api.Session, error) { return p.launcher.SessionByCapability(w.s.Capability) })
			var known *api.Problem
			switch {
			case err == nil:
				w.w.count("sessions that went on")
				w.w.check.wentOn(w.p, p, w.s, s)
				w.p = p
				return true
			case errors.As(err, &known) && known.Code == api.CodeSessionEnded:
				return false
			}
		}
		if !w.sleep(500 * time.Millisecond) {
			return false
		}
	}
	return false
}

// writesBy makes a write through REST, and checks it if it is accepted. One that takes time
// may have been accepted before that.
func (w *worker) writesBy(write func() error) bool {
	_, err := rpc(w.p, func() (struct{}, error) {
		begun := w.w.now()
		err := write()
		if err == nil && w.w.now() == begun && !w.p.dead.Load() && !w.s.Ephemeral {
			w.w.check.write(w.p, w.s.ProfileID, w.s.Token)
		}
		return struct{}{}, err
	})
	return err == nil
}

func (w *worker) beats() bool {
	return w.writesBy(func() error {
		_, err := w.p.launcher.Heartbeat(of(w.p), w.s.SessionID, api.Heartbeat{Write: api.Write{Token: w.s.Token}})
		return err
	})
}

// connect opens a websocket, as package httpapi does after the upgrade.
func (w *worker) connect() bool {
	c, err := rpc(w.p, func() (api.Connection, error) { return w.p.launcher.Connect(of(w.p), w.s.SessionID, "", true) })
	if err != nil {
		return false
	}
	near, far, err := socketpair()
	if err != nil {
		w.w.broken("the world", "%v", err)
		c.Cancel()
		return false
	}
	w.conn = near
	w.w.late.Go(func() {
		defer near.over.Store(true)
		c.Serve(far, bufio.NewReader(strings.NewReader("")))
	})
	return true
}

// writes sends one message that tells its token to the browser, if it gets there.
func (w *worker) writes() {
	if w.conn == nil {
		return
	}
	if w.conn.over.Load() {
		w.hangUp()
		return
	}
	w.sent++
	text := fmt.Appendf(nil, `{"id":%d,"method":"Target.getTargetInfo","params":{"targetId":"%s%d"}}`, w.sent, written, w.s.Token)
	frame, err := ws.CompileFrame(ws.MaskFrame(ws.NewTextFrame(text)))
	if err == nil {
		_, err = unix.Write(w.conn.fd, frame)
	}
	if err != nil {
		w.hangUp()
		return
	}
	w.w.touched(w.s.ProfileID)
	drained := make([]byte, 64<<10)
	for {
		if n, err := unix.Read(w.conn.fd, drained); n <= 0 || err != nil {
			return
		}
	}
}

// hangUp ends the connection without a close handshake.
func (w *worker) hangUp() {
	if w.conn != nil {
		_ = unix.Close(w.conn.fd)
		w.conn = nil
		w.w.touched(w.s.ProfileID)
	}
}

// touched wakes whoever waits, or waited, for the sockets of a profile's browsers.
func (w *world) touched(profile string) {
	w.mu.Lock()
	links := slices.Clone(w.links)
	w.mu.Unlock()
	for _, n := range links {
		if n.c.profile == profile {
			n.Wrote()
		}
	}
}

// socket is the worker's end of a connection.
type socket struct {
	fd   int
	over atomic.Bool // the launcher has ended it
}

func socketpair() (*socket, net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(pair[1]), "connection")
	far, err := net.FileConn(f)
	return &socket{fd: pair[0]}, far, errors.Join(err, f.Close())
}
