package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// asked begins to ask as a REST request does.
func (r *room) asked(ctx context.Context, s *Session, a api.AskPerson) <-chan askAnswer {
	r.t.Helper()
	before := len(r.persons(s))
	got := make(chan askAnswer, 1)
	go func() {
		answer, err := s.Asks().Ask(ctx, a)
		got <- askAnswer{answer, err}
	}()
	r.await("the session waits for a person", func() bool { return s.Show().Ask != nil && len(r.persons(s)) > before })
	return got
}

func (r *room) receive(from <-chan askAnswer) askAnswer {
	r.t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		r.t.Fatal("no answer")
	}
	return askAnswer{}
}

// TestAPersonAnswers: by the Lease domain, while the connection goes on; the data is the
// worker's alone.
func TestAPersonAnswers(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	w := r.connect(s)
	page := w.attach()
	w.send("Lease.askPerson", page, map[string]any{"reason": "code for shop.example", "wait": "5m"})
	id := w.LastID
	r.await("it waits", func() bool { return s.Show().Ask != nil })
	if a := s.Show().Ask; a.Reason != "code for shop.example" || a.Until.Sub(a.At) != 5*time.Minute {
		t.Errorf("%+v", a)
	}
	if m := w.call("Runtime.evaluate", page, map[string]string{"expression": "1"}); m.Error != nil {
		t.Errorf("the connection goes on: %+v", m.Error)
	}
	if m := w.call("Lease.askPerson", page, map[string]any{"reason": "another"}); m.Error == nil || !strings.Contains(m.Error.Message, "session_asks_already: ") || !strings.Contains(m.Error.Message, "code for shop.example") {
		t.Errorf("a second one: %+v", m)
	}
	if err := s.People().TakeOver(ann, api.TakeOver{Person: "Ann"}); err != nil {
		t.Fatal(err)
	}
	if err := s.People().HandBack(ann, api.HandBack{Note: "done", Data: json.RawMessage(`{"code":"s3cret"}`)}); err != nil {
		t.Fatal(err)
	}
	for m := range w.Got {
		if m.ID == id {
			if string(m.Result) != `{"answered":true,"by":"Ann","principal":"ann","note":"done","data":{"code":"s3cret"}}` {
				t.Errorf("%s %+v", m.Result, m.Error)
			}
			break
		}
	}
	want := []string{"asked () x1  code for shop.example", "taken Ann(ann) x1", "handed_back Ann(ann) x1  done"}
	if got := r.persons(s); !slices.Equal(got, want) {
		t.Errorf("the journal has\n%s", strings.Join(got, "\n"))
	}
	raw, _ := json.Marshal(s.recording.entries())
	if strings.Contains(string(raw)+r.log.String(), "s3cret") {
		t.Error("what the person gave the worker is kept")
	}
	var told []string
	for _, name := range []string{lease.EventAsked, lease.EventTaken, lease.EventHandedBack} {
		for _, e := range r.memory.Named(name) {
			answered := ""
			if e.Answered != nil {
				answered = fmt.Sprint(*e.Answered)
			}
			told = append(told, strings.TrimSpace(fmt.Sprintf("%s %d %s %s %s|%s %s", e.Subject(), e.Token, e.Principal, e.Person, e.Reason, e.Note, answered)))
		}
	}
	if want := []string{"leasehold.person.p.asked 7   code for shop.example|", "leasehold.person.p.taken 7 ann Ann |", "leasehold.person.p.handed_back 7 ann Ann |done true"}; !slices.Equal(told, want) {
		t.Errorf("events:\n%s", strings.Join(told, "\n"))
	}
	if s.Show().Ask != nil || r.counted("leasehold_asks_waiting") != 0 || r.counted("leasehold_asks_total", "answered") != 1 {
		t.Error("it waits still")
	}
	w.close()
}

// TestEveryEndOfAnAskHasAnAnswer says how each other one ends.
func TestEveryEndOfAnAskHasAnAnswer(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	no := false
	ask := api.AskPerson{Reason: "r", Wait: api.Duration(time.Hour)}

	got := r.asked(t.Context(), s, ask)
	if _, err := s.Asks().Ask(t.Context(), ask); problem(err) != api.CodeAsksAlready {
		t.Errorf("a second one: %v", err)
	}
	if err := errors.Join(s.People().TakeOver(ann, api.TakeOver{}), s.People().HandBack(ann, api.HandBack{Answered: &no, Note: "cannot"})); err != nil {
		t.Fatal(err)
	}
	if a := r.receive(got); a.err != nil || a.answer.Answered || a.answer.Reason != api.AskDeclined || a.answer.By != "ann" || a.answer.Note != "cannot" {
		t.Errorf("declined: %+v", a)
	}

	if a, err := s.Asks().Ask(t.Context(), api.AskPerson{Reason: "r", Wait: api.Duration(time.Millisecond)}); err != nil || a.Answered || a.Reason != api.AskWaitOver {
		t.Errorf("nobody came: %+v, %v", a, err)
	}

	ctx, withdraw := context.WithCancel(t.Context())
	got = r.asked(ctx, s, ask)
	withdraw()
	if a := r.receive(got); !errors.Is(a.err, context.Canceled) || s.Show().Ask != nil {
		t.Errorf("its connection ended: %+v, %+v", a, s.Show().Ask)
	}

	for name, a := range map[string]api.AskPerson{"reason": {}, "wait": {Reason: "r", Wait: api.Duration(api.MaxAsk + 1)}} {
		var p *api.Problem
		if _, err := s.Asks().Ask(t.Context(), a); !errors.As(err, &p) || p.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}

	w := r.connect(s)
	w.send("Lease.askPerson", "", map[string]any{"reason": "r"})
	r.await("it waits", func() bool { return s.Show().Ask != nil })
	w.close()
	r.await("an ask on a connection that ended is withdrawn", func() bool { return s.Show().Ask == nil })

	got = r.asked(t.Context(), s, ask)
	last := r.connect(s)
	go func() { _, _ = s.Release(context.Background(), api.Release{Outcome: "succeeded"}) }()
	if a := r.receive(got); problem(a.err) != api.CodeSessionEnded {
		t.Errorf("the session ended: %+v", a)
	}
	last.end()
	r.over(s)
	if _, err := s.Asks().Ask(t.Context(), ask); problem(err) != api.CodeSessionEnded {
		t.Errorf("after its end: %v", err)
	}
	for how, n := range map[string]float64{"declined": 1, "wait_over": 1, "withdrawn": 2, "session_ended": 1} {
		if c := r.counted("leasehold_asks_total", how); c != n {
			t.Errorf("%s: %v", how, c)
		}
	}
}

// TestAnAnswerIsForTheRequestThatThePersonSaw: a hand-back answers the request that it names or, if it names
// none, the one that waited at the take-over. Another request goes on waiting: it may ask for something that
// the person never read.
func TestAnAnswerIsForTheRequestThatThePersonSaw(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what            string
		before, after   bool   // a request waits at the take-over; another one is made after it, in the place of that
		names, answered string // "first", "second", or none
	}{
		{"the one that waited", true, false, "", "first"},
		{"the one that waited, by its id", true, false, "first", "first"},
		{"one that was over, and another waits", true, true, "first", ""},
		{"none, and another waits than at the take-over", true, true, "", ""},
		{"none, and one came after the take-over", false, true, "", ""},
		{"one that came after the take-over", false, true, "second", "second"},
		{"one in the place of which another waits", true, true, "second", "second"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			r, s := begun(t, task("one"))
			ids, got := map[string]string{}, map[string]<-chan askAnswer{}
			asks := func(name string) (withdraw func()) {
				ctx, withdraw := context.WithCancel(t.Context())
				got[name] = r.asked(ctx, s, api.AskPerson{Reason: "the " + name, Wait: api.Duration(time.Hour)})
				ids[name] = s.Show().Ask.ID
				return withdraw
			}
			withdraw := func() {}
			if tt.before {
				withdraw = asks("first")
			}
			if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
				t.Fatal(err)
			}
			if tt.after {
				if withdraw(); tt.before {
					r.receive(got["first"])
				}
				withdraw = asks("second")
			}
			defer withdraw()
			if err := s.People().HandBack(ann, api.HandBack{AskID: ids[tt.names]}); err != nil {
				t.Fatal(err)
			}
			waits := s.Show().Ask
			if tt.answered != "" {
				if a := r.receive(got[tt.answered]); !a.answer.Answered || waits != nil {
					t.Errorf("the %s: %+v; %+v waits", tt.answered, a, waits)
				}
			} else if waits == nil || waits.ID != ids["second"] {
				t.Errorf("%+v waits, want the second", waits)
			}
			e := r.memory.Named(lease.EventHandedBack)
			if answered := len(e) == 1 && e[0].Answered != nil; answered != (tt.answered != "") {
				t.Errorf("the event: %+v", e)
			}
		})
	}
}

// TestAWorkerThatAsksIsAlive: until it has its answer, and no longer than the session may
// live; afterwards it has to show that it lives. TestRule has what follows.
func TestAWorkerThatAsksIsAlive(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one", func(m *api.Manifest) { m.Heartbeat, m.LockTimeoutSeconds = api.HeartbeatExplicit, 1000 }))
	known := s.life.known
	before := known()
	ctx, withdraw := context.WithCancel(t.Context())
	got := r.asked(ctx, s, api.AskPerson{Reason: "r", Wait: api.Duration(time.Hour)})
	if f := known(); !f.asksUntil.Equal(before.startedAt.Add(1000*time.Second)) || !s.Show().Ask.Until.Equal(f.asksUntil) {
		t.Errorf("it waits until %v, and the session lives until %v", f.asksUntil, before.startedAt.Add(1000*time.Second))
	}
	withdraw()
	r.receive(got)
	if f := known(); !f.asksUntil.IsZero() || !f.seenAt.After(before.seenAt) {
		t.Errorf("it waits no more: %+v, before %+v", f, before)
	}
}

// TestNoAskOutlivesTheBeginningOfTheEnd: one that is made while the end begins is refused, or has
// its answer from the end.
func TestNoAskOutlivesTheBeginningOfTheEnd(t *testing.T) {
	t.Parallel()
	for range 200 {
		p := newAlone(t, task("one"))
		got := make(chan error, 1)
		var both sync.WaitGroup
		p.life.mu.Lock() // both wait here, and go on in any order
		both.Go(func() {
			_, err := p.asks.Ask(t.Context(), api.AskPerson{Reason: "r", Wait: api.Duration(time.Hour)})
			got <- err
		})
		both.Go(func() { // as run does
			p.life.beginEnd(false)
			p.asks.sessionEnds()
		})
		runtime.Gosched()
		p.life.mu.Unlock()
		select {
		case err := <-got:
			if problem(err) != api.CodeSessionEnded {
				t.Fatalf("error %v, want %s", err, api.CodeSessionEnded)
			}
		case <-time.After(patience):
			t.Fatal("it waits")
		}
		both.Wait()
		if f := p.life.known(); p.asks.shown() != nil || !f.asksUntil.IsZero() {
			t.Fatalf("it still counts as waiting: %+v", f)
		}
	}
}

// TestAnAskThatNobodyAnswers ends when its time is over, and the worker has to show from then on
// that it lives.
func TestAnAskThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newAlone(t, task("one", func(m *api.Manifest) { m.Heartbeat = api.HeartbeatExplicit }))
		begun := time.Now()
		answer, err := p.asks.Ask(t.Context(), api.AskPerson{Reason: "r", Wait: api.Duration(time.Hour)})
		if took := time.Since(begun); err != nil || answer.Answered || answer.Reason != api.AskWaitOver || took != time.Hour {
			t.Errorf("%+v, %v after %v", answer, err, took)
		}
		for _, c := range []struct {
			after time.Duration
			want  verdict
		}{{0, stay}, {29 * time.Second, stay}, {30 * time.Second, lose}} {
			if r := p.life.ruling(time.Now().Add(c.after)); r.verdict != c.want {
				t.Errorf("%v later: %+v", c.after, r)
			}
		}
		var names []string
		for _, e := range p.noted {
			names = append(names, e.Name+" "+e.Text)
		}
		if want := []string{"asked r", "unanswered wait_over"}; !slices.Equal(names, want) {
			t.Errorf("%q", names)
		}
	})
}
