package view

import (
	"bufio"
	"context"
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

// TestATouchOnAnotherPageLetsNoTextOvertake: a page that is busy has not answered a touch, and the person
// touches another page meanwhile. What they then type into the first one still waits for its touch.
func TestATouchOnAnotherPageLetsNoTextOvertake(t *testing.T) {
	var commands, events [2]int
	for _, p := range []*[2]int{&commands, &events} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
	}
	in, out := os.NewFile(uintptr(commands[0]), "in"), os.NewFile(uintptr(events[1]), "out")
	var mu sync.Mutex
	var typed []string // the sessions on which text came
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
			case c.Method == "Input.insertText":
				mu.Lock()
				typed = append(typed, c.SessionID)
				mu.Unlock()
			}
			fmt.Fprintf(out, `{"id":%d,"result":{},"sessionId":%q}`+"\x00", c.ID, c.SessionID)
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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	v := newViewer(&watch{ctx: ctx, session: inHands{fence: fence}}, principal.Principal{})
	v.hangs = "busy" // so that what waits for it gives up soon
	on := func(page string, m up) *hand {
		return &hand{v: v, m: m, mon: mon, scale: 1, page: capture.Page{TargetID: page, SessionID: page}}
	}
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
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(typed, []string{"other"}) {
		t.Errorf("text came on %v", typed)
	}
}
