package session

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// TestAPersonWhoIsGone: a session is handed back when its person shows no sign for a while,
// and not while a view of theirs is open. A worker that waits goes on waiting for another
// one.
func TestAPersonWhoIsGone(t *testing.T) {
	t.Parallel()
	r := newRoom(t, roomOptions{person: short})
	s := r.begin(task("one"))
	got := r.asked(t.Context(), s, api.AskPerson{Reason: "r", Wait: api.Duration(time.Hour)})
	left := s.People().Present(ann)
	s.People().Present(bob)() // somebody else's does not count
	if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * short)
	if s.Show().Person == nil {
		t.Fatal("handed back while its person looks at it")
	}
	left()
	r.await("handed back", func() bool {
		_, err := s.People().Driving()
		return s.Show().Person == nil && err == nil
	})
	if s.Show().Ask == nil {
		t.Error("the worker waits no more")
	}
	if err := s.People().PersonIs(ann); problem(err) != api.CodeNotTakenOver {
		t.Errorf("error %v, want %s", err, api.CodeNotTakenOver)
	}
	left = s.People().Present(bob) // who is not may be gone before the hand-back, on a busy machine
	if err := errors.Join(s.People().TakeOver(bob, api.TakeOver{}), s.People().HandBack(bob, api.HandBack{})); err != nil {
		t.Fatal(err)
	}
	left()
	if a := r.receive(got); !a.answer.Answered || a.answer.By != "bob" {
		t.Errorf("%+v", a)
	}
	want := []string{"asked () x1  r", "taken ann(ann) x1", "handed_back ann(ann) x1  not there any more", "taken bob(bob) x1", "handed_back bob(bob) x1"}
	if got := r.persons(s); !slices.Equal(got, want) {
		t.Errorf("the journal has\n%s", strings.Join(got, "\n"))
	}
}

// TestWhenAPersonIsLookedAtAgain: a grace after the last sign of the one who took the session over,
// and not while a view of theirs is open; a view of somebody else is no sign.
func TestWhenAPersonIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newAlone(t, task("one"))
		ps := newPeople(p.host, p.terms, p.life, p.file, p.asks, nil)
		grace := p.host.o.PersonGrace
		look := func(what string, want time.Duration) {
			t.Helper()
			next := ps.handBackIfGone(time.Now())
			if want == 0 && !next.IsZero() || want != 0 && time.Until(next) != want {
				t.Errorf("%s: after %v, want %v", what, time.Until(next), want)
			}
		}
		look("nobody has it", 0)
		ps.takeover = &takeover{Person: api.Person{Name: "Ann", Principal: ann.Name}, seenAt: time.Now()}
		look("just taken over", grace)
		time.Sleep(grace / 2)
		look("no sign for a while", grace/2)
		others, first := ps.Present(bob), ps.Present(ann)
		look("a view is open", 0)
		time.Sleep(2 * grace)
		look("it stays open", 0)
		second := ps.Present(ann)
		first()
		look("one of two is closed", 0)
		second()
		look("all are closed", grace)
		time.Sleep(grace / 4)
		others()
		look("somebody else leaves", grace*3/4)
	})
}

// TestALinksPersonHasNoMoreThanItsTime: they have a worker's session for as long as a sign-in link is good,
// also while they look at it; others have it for as long as they are there.
func TestALinksPersonHasNoMoreThanItsTime(t *testing.T) {
	t.Parallel()
	for _, who := range []principal.Principal{ann, principal.OfLink("lnk_1")} {
		r, s := begun(t, task("one"))
		defer s.People().Present(who)()
		if err := s.People().TakeOver(who, api.TakeOver{Person: "Ann"}); err != nil {
			t.Fatal(err)
		}
		at := s.People().handBackIfGone(time.Now())
		if !who.Link {
			if !at.IsZero() {
				t.Errorf("%s, who looks at it, is looked at again at %v", who.Name, at)
			}
			continue
		}
		if left := time.Until(at); left > api.SignInTime || left < api.SignInTime-time.Minute {
			t.Errorf("who has a link is looked at again in %v, want %v", left, api.SignInTime)
		}
		s.People().mu.Lock()
		s.People().takeover.until = time.Now()
		s.People().mu.Unlock()
		s.life.wake()
		r.await("handed back", func() bool { return s.Show().Person == nil })
		if got := r.persons(s); !strings.HasPrefix(got[len(got)-1], "handed_back Ann(link:lnk_1) x1  "+noteOver) {
			t.Errorf("the journal has %q", got)
		}
	}
}
