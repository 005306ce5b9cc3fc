package view

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence/capture"
	"leasehold/internal/boottime"
	"leasehold/launcher/monitor"
	"leasehold/launcher/principal"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// inHands is a session that a person has. Nothing else is asked of it.
type inHands struct {
	Session
	fence *lease.Fence
}

func (s inHands) ByPerson(_ principal.Principal, _ session.Act, do func(*lease.Fence) error) error {
	return do(s.fence)
}

// busyPage is a browser with the pages busy and other. Page busy answers no touch, and all else. on is a
// person's input on a page; typed are the commands that came for the field with the focus, with their pages.
func busyPage(t *testing.T) (on func(page string, m up) *hand, typed func() []string) {
	t.Helper()
	var commands, events [2]int
	for _, p := range []*[2]int{&commands, &events} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
	}
	in, out := os.NewFile(uintptr(commands[0]), "in"), os.NewFile(uintptr(events[1]), "out")
	var mu sync.Mutex
	var came []string
	results := map[string]string{
		"Page.createIsolatedWorld": `{"executionContextId":1}`,
		"Runtime.evaluate":         `{"result":{"objectId":"1"}}`,
		"Runtime.callFunctionOn":   `{"result":{"value":"selected"}}`,
	}
	answer := func() {
		for r := bufio.NewReader(in); ; {
			msg, err := r.ReadBytes(0)
			if err != nil {
				return
			}
			var c struct {
				ID                int64
				Method, SessionID string
			}
			if err := json.Unmarshal(msg[:len(msg)-1], &c); err != nil {
				t.Error(err)
				return
			}
			switch {
			case c.Method == "Target.attachToBrowserTarget":
				fmt.Fprintf(out, `{"id":%d,"result":{"sessionId":"S"}}`+"\x00", c.ID)
				continue
			case c.Method == "Target.setAutoAttach" && c.SessionID == "S": // not before somebody listens there
				for _, page := range []string{"busy", "other"} {
					fmt.Fprintf(out, `{"method":"Target.attachedToTarget","params":{"sessionId":%q,"targetInfo":{"targetId":%q,"type":"page"},"waitingForDebugger":false},"sessionId":"S"}`+"\x00", page, page)
				}
			case c.Method == "Input.dispatchTouchEvent" && c.SessionID == "busy":
				continue
			case c.Method == "Input.insertText", c.Method == "Input.dispatchKeyEvent":
				mu.Lock()
				came = append(came, c.Method+" "+c.SessionID)
				mu.Unlock()
			}
			fmt.Fprintf(out, `{"id":%d,"result":%s,"sessionId":%q}`+"\x00", c.ID, cmp.Or(results[c.Method], "{}"), c.SessionID)
		}
	}
	mon := monitor.New(func(checkpoint.Entry) {})
	mux, err := cdpproxy.New(cdpproxy.Pipe{Commands: commands[1], Events: events[0]}, findings.CommandEffect, mon.Traffic)
	if err != nil {
		t.Fatal(err)
	}
	var answering sync.WaitGroup
	answering.Go(answer)
	t.Cleanup(func() {
		mux.Stop()
		<-mux.Done()
		answering.Wait()
		_, _ = in.Close(), out.Close()
	})
	if err := mon.Attach(t.Context(), mux); err != nil {
		t.Fatal(err)
	}
	fence := lease.Begin(lease.PresenceEntry{}, boottime.Now(), lease.Timing{TTL: time.Hour}, boottime.Now).Fence(1)
	v := newViewer(&watch{ctx: t.Context(), session: inHands{fence: fence}}, principal.Principal{})
	v.hangs = "busy" // so that what waits for it gives up soon
	on = func(page string, m up) *hand {
		return &hand{v: v, m: m, mon: mon, scale: 1, page: capture.Page{TargetID: page, SessionID: page}}
	}
	return on, func() []string {
		// The answer to this comes after all that was sent before.
		if err := mon.Observer().Call(t.Context(), "other", "Page.getFrameTree", nil, nil); err != nil {
			t.Errorf("the browser answers: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(came)
	}
}

// TestATouchOnAnotherPageLetsNoTextOvertake: a page that is busy has not answered a touch, and the person
// touches another page meanwhile. What they then type into the first one still waits for its touch.
func TestATouchOnAnotherPageLetsNoTextOvertake(t *testing.T) {
	on, typed := busyPage(t)
	for _, page := range []string{"busy", "other"} {
		if err := on(page, up{Kind: "end"}).touch(); err != nil {
			t.Fatalf("%s is touched: %v", page, err)
		}
	}
	if err := on("other", up{Text: "a"}).text(); err != nil {
		t.Error(err)
	}
	if err := on("busy", up{Text: "b"}).text(); err == nil {
		t.Error("nobody is told that the page has not answered the touch")
	}
	if typed := typed(); !slices.Equal(typed, []string{"Input.insertText other"}) {
		t.Errorf("typed: %v", typed)
	}
}

// TestACutWaitsForTheTouchBefore: what was selected before it is neither copied nor removed.
func TestACutWaitsForTheTouchBefore(t *testing.T) {
	on, typed := busyPage(t)
	for _, page := range []string{"other", "busy"} {
		h := on(page, up{Kind: "end"})
		if err := h.touch(); err != nil {
			t.Fatal(err)
		}
		err, answered := h.cut(), page == "other"
		if copied := len(h.v.replies) > 0; (err == nil) != answered || copied != answered {
			t.Errorf("%s, which has answered its touch: %v: copied %v, %v", page, answered, copied, err)
		}
		h.v.replies = nil
	}
	if typed := typed(); !slices.Equal(typed, []string{"Input.dispatchKeyEvent other", "Input.dispatchKeyEvent other"}) {
		t.Errorf("typed: %v", typed)
	}
}
