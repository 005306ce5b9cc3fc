package session

import (
	"slices"
	"sync/atomic"
	"testing"

	"leasehold/cdpproxy"
	"leasehold/launcher/api"
)

// TestAnEndWaitsForWhoWatches: who uses the browser beside the worker has left it before
// anything is captured, and nobody may begin to after that.
func TestAnEndWaitsForWhoWatches(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("t1"))
	var stopped, early atomic.Int32
	for range 2 {
		if _, err := s.Attend(func() {
			if len(r.spooled())+len(r.bundles()) > 0 {
				early.Add(1)
			}
			stopped.Add(1)
		}); err != nil {
			t.Fatal(err)
		}
	}
	leave, err := s.Attend(func() { t.Error("who left is asked to leave") })
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if _, err := s.Release(t.Context(), api.Release{Outcome: "succeeded"}); err != nil {
		t.Fatal(err)
	}
	if stopped.Load() != 2 || early.Load() != 0 {
		t.Errorf("%d of 2 were asked to leave, %d after the evidence was begun", stopped.Load(), early.Load())
	}
	if _, err := s.Attend(func() {}); problem(err) != api.CodeSessionEnded {
		t.Errorf("a session that is over: %v", err)
	}
}

// TestWhatAWorkerSendsCanBeFollowed: from now on, once, and without taking it from the evidence.
func TestWhatAWorkerSendsCanBeFollowed(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{})
	s := r.begin(task("t1"))
	first := r.connect(s)
	first.call("Target.getTargets", "", nil)
	follow := s.FollowCommands()
	methods := func() (all []string) {
		for _, c := range follow() {
			all = append(all, c.Method+" "+c.Target)
		}
		return all
	}
	if got := methods(); len(got) != 0 {
		t.Errorf("what was sent before: %v", got)
	}
	page := first.attach()
	first.call("Page.enable", page, nil)
	second := r.connect(s)
	second.call("Browser.getVersion", "", nil)
	want := []string{"Target.attachToTarget ", "Page.enable T0", "Browser.getVersion "}
	if got := methods(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := methods(); len(got) != 0 {
		t.Errorf("again: %q", got)
	}
	second.close()
	first.call("Page.enable", page, nil)
	if got := methods(); !slices.Equal(got, []string{"Page.enable T0"}) {
		t.Errorf("%q", got)
	}
	kept := slices.IndexFunc(s.clients.connected(), func(c *cdpproxy.Conn) bool {
		commands, _ := c.ClientSession().Commands()
		return len(commands) == 4
	})
	if kept < 0 {
		t.Error("the evidence has not what was followed")
	}
	if err := s.Reports().Step(api.Step{Name: "open_list"}); err != nil {
		t.Fatal(err)
	}
	if step, _ := s.Doing(); step != "open_list" {
		t.Errorf("step %q", step)
	}
}
