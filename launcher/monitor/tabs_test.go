package monitor

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/target"
	"golang.org/x/sys/unix"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/boottime"
	"leasehold/launcher/recovery/findings"
	"leasehold/lease"
)

// pipe is the browser's end of a pipe. It answers every command with {}, and keeps the
// commands. What an expression gives, evaluate says; nil: nothing. private answers createTarget and
// getTargets by the URL of the page that was opened last.
type pipe struct {
	evaluate func(expression string) string
	private  func(method, opened string) string
	opened   string

	mu    sync.Mutex
	asked []string
}

// attached returns a monitor on such a pipe.
func attached(t *testing.T) (*Monitor, *pipe) {
	t.Helper()
	p := &pipe{}
	return p.attach(t, func(checkpoint.Entry) {}), p
}

// attach returns a monitor on the pipe.
func (p *pipe) attach(t *testing.T, report func(checkpoint.Entry)) *Monitor {
	t.Helper()
	var commands, events [2]int
	for _, p := range []*[2]int{&commands, &events} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
	}
	in, out := os.NewFile(uintptr(commands[0]), "in"), os.NewFile(uintptr(events[1]), "out")
	m := direct(report)
	mux, err := cdpproxy.New(cdpproxy.Pipe{Commands: commands[1], Events: events[0]}, findings.CommandEffect, m.Traffic)
	if err != nil {
		t.Fatal(err)
	}
	var answering sync.WaitGroup
	answering.Go(func() { p.answer(t, in, out) })
	t.Cleanup(func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
		answering.Wait()
		<-mux.Done()
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := m.Attach(t.Context(), mux); err != nil {
		t.Fatal(err)
	}
	return m
}

func (p *pipe) answer(t *testing.T, in, out *os.File) {
	for r := bufio.NewReader(in); ; {
		msg, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var c struct {
			ID                int64
			Method, SessionID string
			Params            struct{ Expression, URL string }
		}
		if err := json.Unmarshal(msg[:len(msg)-1], &c); err != nil {
			t.Error(err)
			return
		}
		p.mu.Lock()
		p.asked = append(p.asked, c.Method)
		p.mu.Unlock()
		result, session := "{}", fmt.Sprintf(`,"sessionId":%q`, c.SessionID)
		if c.Method == "Target.attachToBrowserTarget" {
			result, session = `{"sessionId":"B"}`, ""
		}
		if c.Method == "Target.createTarget" || c.Method == "Target.getTargets" {
			if p.opened = cmp.Or(c.Params.URL, p.opened); p.private != nil {
				result = p.private(c.Method, p.opened)
			}
		}
		if c.Method == "Runtime.evaluate" && p.evaluate != nil {
			result = fmt.Sprintf(`{"result":{"value":%s}}`, p.evaluate(c.Params.Expression))
		}
		if _, err := fmt.Fprintf(out, `{"id":%d,"result":%s%s}`+"\x00", c.ID, result, session); err != nil {
			t.Error(err)
		}
	}
}

// TestTabsGoThroughTheFence: a request for a tab whose session ends between the
// caller's check and the call does not reach the browser, which another session may
// have by then.
func TestTabsGoThroughTheFence(t *testing.T) {
	calls := map[string]func(context.Context, *Monitor, *lease.Fence) error{
		"Target.createTarget": func(ctx context.Context, m *Monitor, f *lease.Fence) error {
			_, err := m.tabs.Open(ctx, f, "")
			return err
		},
		"Target.activateTarget": func(ctx context.Context, m *Monitor, f *lease.Fence) error { return m.tabs.Activate(ctx, f, "T") },
		"Target.closeTarget":    func(ctx context.Context, m *Monitor, f *lease.Fence) error { return m.tabs.Close(ctx, f, "T") },
	}
	over := errors.New("the session is over")
	for method, call := range calls {
		m, p := attached(t)
		fence := lease.Begin(lease.PresenceEntry{}, boottime.Now(), lease.Timing{TTL: time.Hour}, boottime.Now).Fence(1)
		if err := call(t.Context(), m, fence); err != nil {
			t.Errorf("%s with an open fence: %v", method, err)
		}
		if err := fence.Check(); err != nil { // as the caller does
			t.Fatal(err)
		}
		fence.Shut(over)
		if err := call(t.Context(), m, fence); !errors.Is(err, over) {
			t.Errorf("%s after the session's end: %v", method, err)
		}
		if err := m.tabs.OpenBehind(t.Context(), fence); !errors.Is(err, over) {
			t.Errorf("a tab behind after the session's end: %v", err)
		}
		p.mu.Lock()
		sent := slices.DeleteFunc(p.asked, func(m string) bool { return m != method })
		p.mu.Unlock()
		if len(sent) != 1 {
			t.Errorf("%s reached the browser %d times, want once", method, len(sent))
		}
	}
}

// TestNoClientIsShownAPrivatePage in the list of targets over HTTP, nor what such a page opened. Whoever
// closes the browser's pages finds it.
func TestNoClientIsShownAPrivatePage(t *testing.T) {
	p := &pipe{private: func(method, opened string) string {
		if method == "Target.createTarget" {
			return `{"targetId":"H"}`
		}
		return fmt.Sprintf(`{"targetInfos":[{"targetId":"P","type":"page","url":"http://a.test/"},
			{"targetId":"H","type":"other","url":%[1]q},{"targetId":"T","type":"tab","url":%[1]q},
			{"targetId":"O","type":"page","url":"http://a.test/?code=1","openerId":"H"},{"targetId":"F","type":"iframe","url":"http://b.test/","parentFrameId":"H"}]}`, opened)
	}}
	m := p.attach(t, func(checkpoint.Entry) {})
	names := func(list []*target.Info, err error) (all string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list {
			all += string(one.TargetID)
		}
		return all
	}
	if _, err := m.chrome.CreateHidden(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := names(m.tabs.ByUse(t.Context())); got != "P" {
		t.Errorf("a client is shown %s", got)
	}
	if got := names(m.tabs.Targets(t.Context())); got != "PHOF" {
		t.Errorf("open are %s", got)
	}
}
