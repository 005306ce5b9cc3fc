package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold/cdpproxy/methods"
	"leasehold/checkpoint"
	"leasehold/launcher/api"
)

// TestTheManifestsActionsBind: over REST and by the Lease domain; what is refused is noted.
func TestTheManifestsActionsBind(t *testing.T) {
	t.Parallel()
	m := task("one")
	m.AllowedActions = []string{"inspect_login", "read_dashboard"}
	_, s := begun(t, m)
	step := func(action string) error {
		return s.Reports().Step(api.Step{Write: api.Write{Token: s.token}, Name: "n", Action: action})
	}
	allowed := func(says string, want ...string) {
		t.Helper()
		for _, action := range []string{"inspect_login", "read_dashboard", "pay", "inspect", "Inspect_login", ""} {
			err := step(action)
			var p *api.Problem
			switch {
			case action == "" || slices.Contains(want, action):
				if err != nil {
					t.Errorf("%s: %q: %v", says, action, err)
				}
			case !errors.As(err, &p) || p.Code != api.CodeActionNotAllowed || p.Status != 403 || p.More["action"] != action:
				t.Errorf("%s: %q: %v, want it refused", says, action, err)
			}
		}
	}
	allowed("as granted", "inspect_login", "read_dashboard")
	_, err := leaseDomain{s}.Lease(t.Context(), "Lease.step", json.RawMessage(`{"name":"n","action":"pay"}`))
	if err == nil || err.Code != serverError || !strings.HasPrefix(err.Message, "action_not_allowed: ") || !strings.Contains(err.Message, "inspect_login, read_dashboard") {
		t.Errorf("Lease.step: %v", err)
	}
	last := s.recording.entries()[len(s.recording.entries())-1]
	if last.Kind != checkpoint.KindEvent || last.Name != "action_not_allowed" || last.Action != "pay" || last.Text != "n" {
		t.Errorf("the journal's last entry is %+v", last)
	}
	for _, e := range s.recording.entries() {
		if e.Kind == checkpoint.KindStep && e.Action == "pay" {
			t.Error("a step that was refused counts as one")
		}
	}

	join := func(actions ...string) error {
		later := m
		later.AllowedActions = actions
		return s.Limits().Narrow(later)
	}
	if err := join(); err != nil {
		t.Error(err)
	}
	allowed("joined by one that says nothing", "inspect_login", "read_dashboard")
	var p *api.Problem
	if err := join("read_dashboard", "pay"); !errors.As(err, &p) || p.Code != api.CodeActionNotAllowed {
		t.Errorf("widened: %v", err)
	}
	allowed("joined by one that would widen it", "inspect_login", "read_dashboard")
	if err := join("read_dashboard"); err != nil {
		t.Error(err)
	}
	allowed("narrowed", "read_dashboard")
	if err := join("inspect_login"); !errors.As(err, &p) {
		t.Errorf("widened to what was allowed once: %v", err)
	}
	kept, readErr := s.h.o.Files.Read(s.id)
	if readErr != nil || !slices.Equal(kept.Manifest.AllowedActions, []string{"read_dashboard"}) {
		t.Errorf("the next launcher would allow %v, %v", kept.Manifest.AllowedActions, readErr)
	}
}

// TestActionsCanBeForbiddenLater: a session that allows any can be narrowed, too.
func TestActionsCanBeForbiddenLater(t *testing.T) {
	t.Parallel()
	_, s := begun(t, task("one"))
	if err := s.Reports().Step(api.Step{Name: "n", Action: "pay"}); err != nil {
		t.Error(err)
	}
	later := task("one")
	later.AllowedActions = []string{"read"}
	if err := s.Limits().Narrow(later); err != nil {
		t.Fatal(err)
	}
	var p *api.Problem
	if err := s.Reports().Step(api.Step{Name: "n", Action: "pay"}); !errors.As(err, &p) || p.Code != api.CodeActionNotAllowed {
		t.Errorf("narrowed: %v", err)
	}
}

// TestANarrowingThatCannotBeKeptIsNone: the next launcher would not know of it, and the request
// may be made again.
func TestANarrowingThatCannotBeKeptIsNone(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	file := filepath.Join(r.dir, "sessions", s.ID()+".json")
	if err := errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	later := task("one")
	later.AllowedActions = []string{"read"}
	if err := s.Limits().Narrow(later); err == nil {
		t.Error("narrowed")
	}
	if err := errors.Join(os.RemoveAll(file), s.Limits().Narrow(later)); err != nil {
		t.Fatal(err)
	}
	if kept, err := r.files.Read(s.ID()); err != nil || !slices.Equal(kept.Manifest.AllowedActions, later.AllowedActions) {
		t.Errorf("the next launcher would allow %v, %v", kept.Manifest.AllowedActions, err)
	}
}

// TestEachDeniedCommandIsCountedOnce: the journal has the first of a method and reason, and then
// what came since, each time that there are ten times as many. Of names that a worker makes up
// there is one count.
func TestEachDeniedCommandIsCountedOnce(t *testing.T) {
	t.Parallel()
	p := newAlone(t, task("one"))
	l := newLimits(p.host, p.terms, p.file, p.note)
	for i := range 1000 {
		l.Denied("Browser.crash", &methods.Refusal{Reason: methods.ReasonMethod})
		if i < 10 {
			l.Denied(fmt.Sprint("Made.up", i), &methods.Refusal{Reason: methods.ReasonUnknown})
		}
	}
	l.Denied("Page.navigate", &methods.Refusal{Reason: methods.ReasonURL, What: "file:///etc/passwd?token=s3cret"})
	got := map[string][]uint64{}
	for _, e := range p.noted {
		got[e.Name+" "+e.Action] = append(got[e.Name+" "+e.Action], e.Count)
		if strings.Contains(e.Text, "s3cret") {
			t.Errorf("what was refused is kept as it was: %s", e.Text)
		}
	}
	want := map[string][]uint64{
		"Browser.crash " + methods.ReasonMethod: {1, 9, 90, 900}, " " + methods.ReasonUnknown: {1, 9}, "Page.navigate " + methods.ReasonURL: {1},
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, want %v", got, want)
	}
}
