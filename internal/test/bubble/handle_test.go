package bubble

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"leasehold/cdpproxy"
	"leasehold/internal/cgroup"
	"leasehold/internal/procfs"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
)

// kernel is what a launcher, or a guard, does with processes. It implements browser.Processes.
type kernel struct{ *life }

var _ browser.Processes = kernel{}

// Version is part of browser.Processes.
func (kernel) Version(context.Context, string) (string, error) { return "Chromium 140.0.7000.1", nil }

// Start is part of browser.Processes. Its launcher may be killed before it notes the browser.
func (k kernel) Start(_ context.Context, o chrome.Options) (browser.Process, error) {
	k.step()
	if k.w.mishap(15) {
		return nil, &chrome.StartError{Binary: o.Binary, Err: errors.New("it does not start")}
	}
	c, err := k.spawn(o)
	if err != nil {
		return nil, &chrome.StartError{Binary: o.Binary, Err: err}
	}
	if k.w.mishap(15) {
		k.w.count("launchers killed between start and note")
		k.die()
	}
	k.step()
	return &handle{c, k.life}, nil
}

// find is the living process of that name; nil: there is none.
func (k kernel) find(id chrome.Identity) *fakeChrome {
	k.step()
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	if c := k.w.chromes[id.PID]; c != nil && c.identity() == id {
		return c
	}
	return nil
}

// Adopt is part of browser.Processes.
func (k kernel) Adopt(id chrome.Identity, _ chrome.AdoptOptions) (browser.Process, error) {
	c := k.find(id)
	if c == nil {
		return nil, &chrome.NotSameError{Identity: id, Proof: "alive", Detail: "there is no such process"}
	}
	if k.w.mishap(6) {
		return nil, errors.New("its pipe cannot be had")
	}
	return k.adopted(c), nil
}

func (k kernel) adopted(c *fakeChrome) browser.Process {
	if c.reader {
		k.w.count("copies left" + map[bool]string{true: " to the guard", false: " to the next launcher"}[k.as != ""])
	}
	k.w.count("browsers adopted" + map[bool]string{true: " by the guard"}[k.as != ""])
	k.w.check.adopted(k.life, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by, c.bySince = k.life, k.w.now()
	return &handle{c, k.life}
}

// Attach is part of browser.Processes.
func (k kernel) Attach(id chrome.Identity, _ chrome.AdoptOptions) (browser.Process, error) {
	if c := k.find(id); c != nil {
		return k.adopted(c), nil
	}
	return nil, &chrome.NotSameError{Identity: id, Proof: "alive", Detail: "there is no such process"}
}

// Lives is part of browser.Processes.
func (k kernel) Lives(id chrome.Identity) bool { return k.find(id) != nil }

// handle is a launcher's view of a browser. It implements browser.Process.
type handle struct {
	*fakeChrome
	l *life
}

var _ browser.Process = (*handle)(nil)

func (h *handle) Identity() chrome.Identity                   { return h.identity() }
func (h *handle) TempDir() string                             { return "" }
func (h *handle) Warnings() []string                          { return nil }
func (h *handle) Group() *cgroup.Group                        { return nil }
func (h *handle) Processes() ([]procfs.Process, error)        { return nil, nil }
func (h *handle) Among([]procfs.Process) []procfs.Process     { return nil }
func (h *handle) Exited() <-chan struct{}                     { return h.exited }
func (h *handle) OutputTail(int) string                       { return "" }
func (h *handle) StopRenderers() error                        { h.l.step(); return nil }
func (h *handle) ContinueRenderers() error                    { h.l.step(); return nil }
func (h *handle) KillRenderers(context.Context) error         { h.l.step(); return nil }
func (h *handle) AwaitStored(context.Context) error           { h.l.step(); return nil }
func (h *handle) Detach() error                               { h.l.step(); h.unlink(h.l); return nil }
func (h *handle) StartFailure(cause error) *chrome.StartError { return &chrome.StartError{Err: cause} }
func (h *handle) TakePipe() (commands, events int, err error) { return h.linkTo(h.l) }
func (h *handle) TakeNetLog() io.ReadCloser                   { return io.NopCloser(strings.NewReader("")) }
func (h *handle) Waiting() cdpproxy.Waiting                   { return h.linked(h.l) }

func (h *handle) ExitStatus() string {
	select {
	case <-h.exited:
		return "signal killed"
	default:
		return ""
	}
}

// NetworkService is part of browser.Process.
func (h *handle) NetworkService() (browser.NetworkService, error) {
	h.l.step()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil, chrome.ErrNoZygote
	}
	return &seen{networkService: h.network, l: h.l, closed: make(chan struct{})}, nil
}

// Close ends the browser as package chrome does: it is asked, and then by SIGINT and by
// SIGKILL.
func (h *handle) Close(ctx context.Context, ask func(context.Context) error, bounds chrome.CloseTimeouts) (chrome.CloseMethod, error) {
	h.l.step()
	if h.ExitStatus() != "" {
		return chrome.AlreadyExited, nil
	}
	h.w.check.closes(h)
	if bounds.AtOnce {
		h.end(false)
		return chrome.ClosedByKill, nil
	}
	if ask != nil && h.asks(ctx, ask) {
		return chrome.ClosedByCDP, nil
	}
	if bounds.BeforeSignal != nil {
		if err := bounds.BeforeSignal(); err != nil {
			return "", &chrome.NotSignalledError{Err: err}
		}
	}
	h.w.check.signals(h)
	if !sleep(ctx, closing) {
		return chrome.ClosedByInterrupt, context.Cause(ctx)
	}
	h.l.step()
	h.end(!h.stubborn)
	if h.stubborn {
		return chrome.ClosedByKill, nil
	}
	return chrome.ClosedByInterrupt, nil
}

// asks asks the browser to end, and tells whether it did.
func (h *handle) asks(ctx context.Context, ask func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	wait := 10 * time.Second
	if err := ask(ctx); err != nil {
		wait = time.Second
	}
	select {
	case <-h.exited:
		return true
	case <-time.After(wait):
		return false
	}
}
