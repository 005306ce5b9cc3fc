package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy/methods"
	"leasehold/checkpoint"
	"leasehold/checkpoint/wording"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

var (
	ann = principal.Principal{Name: "ann", Role: principal.Reviewer, Profiles: principal.EveryProfile}
	bob = principal.Principal{Name: "bob", Role: principal.Reviewer, Profiles: principal.EveryProfile}
)

// does is a person's act that is one command.
func (r *room) does(s *Session, p principal.Principal, kind ActKind, url, method string) error {
	return s.People().ByPerson(p, Act{Kind: kind, URL: url, Target: "T"}, func(f *lease.Fence) error {
		return s.Browser().Monitor().Observer().CallFenced(r.t.Context(), f, "", method, map[string]string{"text": "hunter2"}, nil)
	})
}

// typed is how often the browser got the command by which the tests' persons type.
func (r *room) typed() (n int) {
	for _, c := range r.chromium.all() {
		if c.Method == "Input.insertText" {
			n++
		}
	}
	return n
}

// persons are the entries of a session's journal about persons, in short.
func (r *room) persons(s *Session) []string {
	r.t.Helper()
	entries, err := checkpoint.Read(r.files.Journal(s.ID()))
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if e.Kind == checkpoint.KindPerson || e.Kind == checkpoint.KindCheckpoint {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s(%s) x%d %s %s", e.Name, e.Person, e.Principal, e.Times(), e.URL, e.Text)))
		}
	}
	return all
}

// TestWhoTypedIsNamed: what is seen of typing is the person's while they have the session.
func TestWhoTypedIsNamed(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	password := checkpoint.Entry{Kind: checkpoint.KindTyped, Name: string(checkpoint.FieldPassword), URL: "http://shop.example/?q=pl4nted"}
	s.Note(password)
	if err := s.People().TakeOver(ann, api.TakeOver{Person: "Ann"}); err != nil {
		t.Fatal(err)
	}
	s.Note(password)
	if err := s.People().HandBack(ann, api.HandBack{}); err != nil {
		t.Fatal(err)
	}
	s.Note(password)
	entries, err := checkpoint.Read(r.files.Journal(s.ID()))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, e := range entries {
		if e.Kind == checkpoint.KindTyped {
			told = append(told, wording.Typed(e))
		}
	}
	const words = "a password on http://shop.example/?q=REDACTED"
	if want := []string{words, "Ann (" + ann.Name + "): " + words, words}; !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}

// TestAPersonTakesOver and hands back: meanwhile the worker may not act, what the person
// does reaches the browser under the lease, and stands in the journal as theirs.
func TestAPersonTakesOver(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	w := r.connect(s)
	page := w.attach()
	if err := s.People().PersonIs(ann); problem(err) != api.CodeNotTakenOver {
		t.Errorf("before: %v", err)
	}
	if err := r.does(s, ann, ActText, "http://shop.example/", "Input.insertText"); problem(err) != api.CodeNotTakenOver {
		t.Errorf("an act before: %v", err)
	}
	if s.Show().Person != nil {
		t.Errorf("the person %v is shown, want none", s.Show().Person)
	}
	if err := s.People().TakeOver(ann, api.TakeOver{Person: "Ann", Note: "captcha"}); err != nil {
		t.Fatal(err)
	}
	if p := s.Show().Person; p == nil || p.Name != "Ann" || p.Principal != "ann" || time.Since(p.Since) > time.Minute {
		t.Errorf("shown: %+v", p)
	}
	if m := w.call("Input.insertText", page, map[string]string{"text": "x"}); m.Error == nil || !strings.Contains(m.Error.Message, "Ann has taken over") {
		t.Errorf("the worker's input: %+v", m)
	}
	if m := w.call("Runtime.evaluate", page, map[string]string{"expression": "1"}); m.Error != nil {
		t.Errorf("the worker reads: %+v", m.Error)
	}
	if _, err := s.People().Driving(); problem(err) != api.CodeTakenOver {
		t.Errorf("/json/new: %v", err)
	}
	var p *api.Problem
	if err := s.People().PersonIs(bob); !errors.As(err, &p) || p.Code != api.CodeTakenOver || !strings.Contains(p.Detail, "Ann (ann) has session") {
		t.Errorf("another one: %v", err)
	}
	if err := r.does(s, bob, ActText, "", "Input.insertText"); problem(err) != api.CodeTakenOver {
		t.Errorf("another one's act: %v", err)
	}
	for range 5 {
		if err := r.does(s, ann, ActText, "http://shop.example/login?token=s3cret#x", "Input.insertText"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Reports().Checkpoint(api.Checkpoint{Name: "c", Safe: new(false)}); err != nil {
		t.Fatal(err)
	}
	if err := r.does(s, ann, ActClick, "http://shop.example/login", "Input.dispatchMouseEvent"); err != nil {
		t.Fatal(err)
	}
	if n := r.typed(); n != 5 {
		t.Errorf("%d of the person's 5 reached the browser", n)
	}
	if s.Browser().Mux().Acts().Last() == 0 {
		t.Error("what a person does is no input to who judges requests")
	}
	if err := s.People().HandBack(bob, api.HandBack{}); problem(err) != api.CodeTakenOver {
		t.Errorf("another one hands back: %v", err)
	}
	if err := s.People().HandBack(ann, api.HandBack{Note: "solved"}); err != nil {
		t.Fatal(err)
	}
	if err := s.People().HandBack(ann, api.HandBack{}); problem(err) != api.CodeNotTakenOver {
		t.Errorf("twice: %v", err)
	}
	if m := w.call("Input.insertText", page, map[string]string{"text": "x"}); m.Error != nil {
		t.Errorf("the worker's input afterwards: %+v", m.Error)
	}
	if _, err := s.People().Driving(); s.Show().Person != nil || err != nil {
		t.Errorf("the person %v is shown, driving: %v; want none, and no error", s.Show().Person, err)
	}
	want := []string{
		"taken Ann(ann) x1  captcha", "text Ann(ann) x1 http://shop.example/login", "text Ann(ann) x4 http://shop.example/login", "c () x1",
		"click Ann(ann) x1 http://shop.example/login", "handed_back Ann(ann) x1  solved",
	}
	if got := r.persons(s); !slices.Equal(got, want) {
		t.Errorf("the journal has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	raw, err := json.Marshal(s.recording.entries())
	if err != nil || strings.Contains(string(raw), "hunter2") || strings.Contains(string(raw), "s3cret") {
		t.Errorf("the journal tells what was typed: %s, %v", raw, err)
	}
	w.close()
}

// TestTwoPersons: the second is refused by name unless they ask to take it from the first,
// who can do nothing from then on.
func TestTwoPersons(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	take := func(p principal.Principal, name, from string) error {
		return s.People().TakeOver(p, api.TakeOver{Person: name, TakeFrom: from})
	}
	for i, c := range []struct {
		p          principal.Principal
		name, from string
		code       string
		has        string
	}{
		{ann, "Ann", "", "<nil>", "Ann"},
		{ann, "Ann", "", "<nil>", "Ann"},
		{ann, "", "", "<nil>", "Ann"},
		{bob, "Bob", "", api.CodeTakenOver, "Ann"},
		{bob, "Bob", "Cid", api.CodeTakenOver, "Ann"},
		{ann, "Zoe", "", api.CodeTakenOver, "Ann"},
		{bob, "Bob", "Ann", "<nil>", "Bob"},
		{ann, "Ann", "", api.CodeTakenOver, "Bob"},
	} {
		if err := take(c.p, c.name, c.from); problem(err) != c.code || s.Show().Person.Name != c.has {
			t.Errorf("%d: %v, %+v", i, err, s.Show().Person)
		}
	}
	if err := r.does(s, ann, ActKey, "", "Input.dispatchKeyEvent"); problem(err) != api.CodeTakenOver {
		t.Errorf("the first one: %v", err)
	}
	if err := r.does(s, bob, ActKey, "", "Input.dispatchKeyEvent"); err != nil {
		t.Errorf("the second one: %v", err)
	}
	want := []string{"taken Ann(ann) x1", "handed_back Ann(ann) x1  taken by Bob", "taken Bob(bob) x1", "key Bob(bob) x1"}
	if got := r.persons(s); !slices.Equal(got, want) {
		t.Errorf("the journal has\n%s", strings.Join(got, "\n"))
	}
}

// TestTwoPersonsOfOnePrincipal are told apart by their names, as at the take-over: what one of them does is not
// journalled as the other's, and a view of theirs does not keep the other's take-over alive.
func TestTwoPersonsOfOnePrincipal(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	shared := principal.Principal{Name: "token"}
	as := func(name string) principal.Principal {
		p := shared
		p.Person = name
		return p
	}
	may := func(who string, want ...string) {
		t.Helper()
		for _, name := range []string{"Ann", "Bob", ""} {
			code := api.CodeTakenOver
			if slices.Contains(want, name) {
				code = "<nil>"
			}
			if err := r.does(s, as(name), ActKey, "", "Input.dispatchKeyEvent"); problem(err) != code {
				t.Errorf("%s has it, and %q acts: %v, want %s", who, name, err, code)
			}
		}
	}
	if err := s.People().TakeOver(shared, api.TakeOver{Person: "Ann"}); err != nil {
		t.Fatal(err)
	}
	may("Ann", "Ann", "")
	defer s.People().Present(as("Bob"))()
	if at := s.People().handBackIfGone(time.Now()); at.IsZero() {
		t.Error("Ann counts as there while Bob looks")
	}
	leave := s.People().Present(as("Ann"))
	if at := s.People().handBackIfGone(time.Now()); !at.IsZero() {
		t.Error("Ann counts as gone while she looks")
	}
	leave()
	if err := s.People().TakeOver(shared, api.TakeOver{Person: "Bob", TakeFrom: "Ann"}); err != nil {
		t.Fatal(err)
	}
	may("Bob", "Bob", "")
}

// TestAPersonsCommandThatComesTooLate: one that passed ByPerson and was delayed reaches the
// browser neither after the hand-back nor after the end of the lease.
func TestAPersonsCommandThatComesTooLate(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	late := func(before func()) error {
		if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
			t.Fatal(err)
		}
		return s.People().ByPerson(ann, Act{Kind: ActText}, func(f *lease.Fence) error {
			before()
			return s.Browser().Monitor().Observer().CallFenced(context.WithoutCancel(t.Context()), f, "", "Input.insertText", nil, nil)
		})
	}
	if err := late(func() {
		if err := s.People().HandBack(ann, api.HandBack{}); err != nil {
			t.Error(err)
		}
	}); !errors.Is(err, errHandedBack) {
		t.Errorf("after the hand-back: %v", err)
	}
	superseded := errors.New("superseded")
	if err := late(func() { s.Fence().Shut(superseded) }); !errors.Is(err, superseded) {
		t.Errorf("after the lease: %v", err)
	}
	if n := r.typed(); n > 0 {
		t.Errorf("the browser got %d", n)
	}
	if err := s.People().PersonIs(ann); problem(err) != api.CodeSessionEnded {
		t.Errorf("who has it: %v", err)
	}
}

// TestNothingIsDoneWhileTheSessionStandsStill: a person acts no more once the worker is lost.
func TestNothingIsDoneWhileTheSessionStandsStill(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	w := r.connect(s)
	if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
		t.Fatal(err)
	}
	w.drop()
	r.await("the loss is noted", func() bool { return slices.Contains(r.journal(s), "connection "+connectionDropped) })
	r.await("acts are refused", func() bool {
		return problem(r.does(s, ann, ActText, "", "Input.insertText")) == api.CodeStandsStill
	})
	again := r.connect(s)
	r.await("the worker is back", func() bool { return r.does(s, ann, ActText, "", "Input.insertText") == nil })
	if m := again.call("Page.reload", again.attach(), nil); m.Error == nil {
		t.Error("a connection that came later may act")
	}
	again.close()
}

// TestAHoldIsInItsPersonsHands: by its opener, and nobody takes it over.
func TestAHoldIsInItsPersonsHands(t *testing.T) {
	t.Parallel()
	m := task("one", byHand)
	m.Opener = api.Opener{Name: "ann"}
	r, s := begun(t, m)
	if p := s.Show().Person; p == nil || p.Name != "ann" || p.Principal != "ann" {
		t.Errorf("%+v", p)
	}
	if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
		t.Error(err)
	}
	if err := r.does(s, ann, ActText, "http://a/", "Input.insertText"); err != nil {
		t.Error(err)
	}
	if err := s.People().TakeOver(bob, api.TakeOver{TakeFrom: "ann"}); problem(err) != api.CodeTakenOver {
		t.Errorf("error %v, want %s", err, api.CodeTakenOver)
	}
	if err := s.People().HandBack(ann, api.HandBack{}); problem(err) != api.CodeNotTakenOver {
		t.Errorf("error %v, want %s", err, api.CodeNotTakenOver)
	}
	if _, err := s.People().Driving(); err != nil {
		t.Error("a person's own DevTools may not act")
	}
}

// TestNobodyOpensATabDuringASignIn: what a worker does beside its connections is refused like what it
// sends on them.
func TestNobodyOpensATabDuringASignIn(t *testing.T) {
	t.Parallel()
	_, s := begun(t, task("one"))
	open, err := s.Mux().KeepPrivate(methods.RefuseSignIn())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.People().Driving(); problem(err) != api.CodeAsksAlready {
		t.Errorf("error %v, want %s", err, api.CodeAsksAlready)
	}
	if err := open(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.People().Driving(); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestTheNextLauncherKnowsThePerson: it keeps the worker from acting, and the person goes on.
func TestTheNextLauncherKnowsThePerson(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{leave: true})
	s := r.begin(task("one"))
	if err := s.People().TakeOver(ann, api.TakeOver{Person: "Ann"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := r.does(s, ann, ActText, "http://a/", "Input.insertText"); err != nil {
			t.Fatal(err)
		}
	}
	r.restart(roomOptions{leave: true})
	s, err := r.adopt(func(*Resumption) {})
	if err != nil {
		t.Fatal(err)
	}
	s.Resumed()
	if p := s.Show().Person; p == nil || p.Name != "Ann" || p.Principal != "ann" {
		t.Fatalf("%+v", p)
	}
	w := r.connect(s)
	if m := w.call("Page.reload", w.attach(), nil); m.Error == nil || !strings.Contains(m.Error.Message, "Ann has taken over") {
		t.Errorf("%+v", m)
	}
	if err := r.does(s, ann, ActText, "http://a/", "Input.insertText"); err != nil {
		t.Error(err)
	}
	if err := s.People().HandBack(ann, api.HandBack{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"taken Ann(ann) x1", "text Ann(ann) x1 http://a/", "text Ann(ann) x2 http://a/", "text Ann(ann) x1 http://a/", "handed_back Ann(ann) x1"}
	if got := r.persons(s); !slices.Equal(got, want) {
		t.Errorf("the journal has\n%s", strings.Join(got, "\n"))
	}
	if f, err := r.files.Read(s.ID()); err != nil || f.Person != nil {
		t.Errorf("the one after it would know %+v, %v", f.Person, err)
	}
	w.close()
}

// TestATabThatWaitsWhileAPersonTakesOver: the worker's request was let through before, and
// still must not reach the browser, then or after the hand-back.
func TestATabThatWaitsWhileAPersonTakesOver(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	m, err := s.Monitor()
	if err != nil {
		t.Fatal(err)
	}
	open := func(fence *lease.Fence) error {
		_, err := m.Tabs().Open(t.Context(), fence, "")
		return err
	}
	driving := func() *lease.Fence {
		t.Helper()
		fence, err := s.People().Driving()
		if err != nil {
			t.Fatal(err)
		}
		return fence
	}
	opened := func() (n int) {
		for _, c := range r.chromium.all() {
			if c.Method == "Target.createTarget" {
				n++
			}
		}
		return n
	}
	before, atFirst := driving(), opened()
	if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
		t.Fatal(err)
	}
	if err := open(before); problem(err) != api.CodeTakenOver {
		t.Errorf("a tab of the worker while a person has the session: %v", err)
	}
	if err := s.People().HandBack(ann, api.HandBack{}); err != nil {
		t.Fatal(err)
	}
	if err := open(before); problem(err) != api.CodeTakenOver {
		t.Errorf("one that was asked for before: %v", err)
	}
	if err := open(driving()); err != nil {
		t.Errorf("one that is asked for after the hand-back: %v", err)
	}
	if n := opened() - atFirst; n != 1 {
		t.Errorf("the browser was asked for %d tabs, want 1", n)
	}
}

// TestATakeOverThatCannotBeKept is none, since the next launcher would not know of it: the
// worker goes on, and a person who has the session keeps it.
func TestATakeOverThatCannotBeKept(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	w := r.connect(s)
	file := filepath.Join(r.dir, "sessions", s.ID()+".json")
	spoil := func() {
		t.Helper()
		if err := errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "in the way"), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	repair := func() {
		t.Helper()
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
	}
	spoil()
	if err := s.People().TakeOver(ann, api.TakeOver{}); err == nil {
		t.Error("taken over")
	}
	repair()
	if s.Show().Person != nil || s.People().PersonIs(ann) == nil {
		t.Errorf("the person is %v, and ann is asked for: %v; want none, and an error", s.Show().Person, s.People().PersonIs(ann))
	}
	page := w.attach()
	if m := w.call("Page.reload", page, nil); m.Error != nil {
		t.Errorf("the worker may not go on: %+v", m.Error)
	}
	if err := s.People().TakeOver(ann, api.TakeOver{Person: "Ann"}); err != nil {
		t.Fatal(err)
	}
	spoil()
	if err := s.People().TakeOver(bob, api.TakeOver{TakeFrom: "Ann"}); err == nil {
		t.Error("taken over from Ann")
	}
	repair()
	if err := s.People().PersonIs(ann); err != nil {
		t.Errorf("Ann has it no more: %v", err)
	}
	if m := w.call("Page.reload", page, nil); m.Error == nil || !strings.Contains(m.Error.Message, "Ann") {
		t.Errorf("the worker may go on: %+v", m.Error)
	}
	w.close()
}

// TestNoCheckpointIsSafeThatAPersonOvertakes: a person takes over while the launcher still hears what the pages
// did before a checkpoint. What the person does then would stand before the checkpoint, as if the worker
// vouched for it.
func TestNoCheckpointIsSafeThatAPersonOvertakes(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	reports := *s.Reports()
	reports.browser = func() *browser.Browser { // it is asked for when the pages are to be heard
		if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
			t.Error(err)
		}
		return s.Browser()
	}
	if err := reports.Checkpoint(api.Checkpoint{Name: "a"}); problem(err) != api.CodeTakenOver {
		t.Errorf("%v, and the journal has %q", err, r.journal(s))
	}
}

// TestNoCheckpointIsSafeWhileAPersonHasTheSession: the worker cannot vouch for what the
// person is at.
func TestNoCheckpointIsSafeWhileAPersonHasTheSession(t *testing.T) {
	t.Parallel()
	_, s := begun(t, task("one"))
	if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Reports().Checkpoint(api.Checkpoint{Name: "a"}); problem(err) != api.CodeTakenOver {
		t.Errorf("a safe one: %v", err)
	}
	if err := s.Reports().Checkpoint(api.Checkpoint{Name: "b", Safe: new(false)}); err != nil {
		t.Errorf("one that is not safe: %v", err)
	}
	if err := s.People().HandBack(ann, api.HandBack{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Reports().Checkpoint(api.Checkpoint{Name: "c"}); err != nil {
		t.Errorf("after the hand-back: %v", err)
	}
}
