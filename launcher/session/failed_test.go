package session

import (
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// failed is how a worker's session is released that may have failed before it did anything.
var failed = api.Release{Outcome: "failed", Reason: "exit status 3", Recover: api.RecoverTouched}

// first calls do when the browser is first asked for something by the method.
func (c *chromium) first(method string, do func()) {
	var once sync.Once
	c.set(func() { c.at[method] = func() { once.Do(do) } })
}

// posts has the browser report that its page has sent n orders.
func (c *chromium) posts(n int) {
	for i := range n {
		c.say(`{"method":"Network.requestWillBeSent","params":{"requestId":"order-%d","loaderId":"L","documentURL":"https://shop.example/","frameId":"T0","type":"Fetch","timestamp":1,`+
			`"request":{"url":"https://shop.example/orders","method":"POST","headers":{},"postData":"x"},"initiator":{"type":"script"}},"sessionId":"B1-T0"}`, i)
	}
}

// TestAFailedWorkerIsJudgedOnceItsBrowserIsGone: its pages may send something, and it may get known that they
// did, as long as the browser is there.
func TestAFailedWorkerIsJudgedOnceItsBrowserIsGone(t *testing.T) {
	t.Parallel()
	release := func(how api.Release) func(*room, *Session) {
		return func(r *room, s *Session) {
			r.connect(s)
			if _, err := s.Release(r.t.Context(), how); err != nil {
				r.t.Error(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		end    func(*room, *Session)
		change func(*api.Manifest)
		judged bool
	}{
		"its worker failed": {release(failed), func(*api.Manifest) {}, true},
		"nobody connected": {func(_ *room, s *Session) {
			s.life.update(func(f *facts) { f.startedAt, f.seenAt = f.startedAt.Add(-time.Hour), f.seenAt.Add(-time.Hour) })
		}, oneShot, true},
		"a person had it": {func(r *room, s *Session) {
			w := r.connect(s)
			if err := s.People().TakeOver(ann, api.TakeOver{}); err != nil {
				r.t.Fatal(err)
			}
			w.close()
		}, oneShot, true},
		"its worker says that all is done": {release(api.Release{Outcome: "succeeded"}), func(*api.Manifest) {}, false},
	} {
		for _, at := range []string{"", "Page.captureScreenshot", "Browser.close"} {
			t.Run(name+", a request at "+at, func(t *testing.T) {
				t.Parallel()
				r := newRoom(t, roomOptions{warm: tt.judged, keep: new(tt.judged)})
				s := r.begin(task("one", tt.change))
				if at != "" {
					r.chromium.first(at, func() { r.chromium.posts(1) })
				}
				tt.end(r, s)
				f, rec := r.over(s), r.record()
				switch {
				case at == "" || !tt.judged:
					if !strings.HasPrefix(f.Ended, "released: ") || !f.InOrder || !f.Released || rec.State != lease.Available {
						t.Errorf("it ended: %s; in order: %t, the profile is %s", f.Ended, f.InOrder, rec.State)
					}
				case f.Ended != "lost (worker_failed), recovered: manual_review" || f.InOrder || f.Released || rec.State != lease.ManualReview:
					t.Errorf("it ended: %s; in order: %t, the profile is %s, its journal %q", f.Ended, f.InOrder, rec.State, r.journal(s))
				}
				if !r.table.WarmSince(profile).IsZero() {
					t.Error("the next task may get the browser of a worker that nobody vouches for")
				}
			})
		}
	}
}

// TestAFailedWorkerWhosePagesGoOn is lost: what they send in the browser of others is in no journal of its
// own. One that did nothing has none.
func TestAFailedWorkerWhosePagesGoOn(t *testing.T) {
	t.Parallel()
	shared := func(m *api.Manifest) { m.RequiresExclusiveProfileLock = new(false) }
	for name, tt := range map[string]struct {
		do  func(*room, *Session)
		how string
	}{
		"it connected": {func(r *room, s *Session) { r.connect(s) }, "lost (worker_failed): inspected when the other runs of the profile end"},
		"it opened a tab over HTTP": {func(r *room, s *Session) {
			if _, err := s.People().Driving(); err != nil {
				r.t.Error(err)
			}
		}, "lost (worker_failed): inspected when the other runs of the profile end"},
		"it did nothing": {func(*room, *Session) {}, "released: exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{runs: 2})
			one := r.begin(task("one", shared))
			two, err := r.join(task("two", shared))
			if err != nil {
				t.Fatal(err)
			}
			tt.do(r, one)
			if _, err := one.Release(t.Context(), failed); err != nil {
				t.Error(err)
			}
			if f := r.over(one); f.Ended != tt.how {
				t.Errorf("%s, want %s", f.Ended, tt.how)
			}
			two.Note(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example/orders"})
			if _, err := two.Release(t.Context(), api.Release{Outcome: "succeeded"}); err != nil {
				t.Error(err)
			}
			r.over(two)
			want := map[bool]lease.State{true: lease.ManualReview, false: lease.Available}[strings.HasPrefix(tt.how, "lost")]
			if rec := r.record(); rec.State != want {
				t.Errorf("the profile is %s after both, want %s", rec.State, want)
			}
		})
	}
}

// TestALaterReleaseTakesNothingBack: whoever says that the worker died is believed, also if somebody releases
// the session, before or after, while it is busy.
func TestALaterReleaseTakesNothingBack(t *testing.T) {
	t.Parallel()
	plain, dead := api.Release{Outcome: "succeeded", Reason: "done"}, api.Release{Outcome: "failed", Recover: api.RecoverAlways}
	for name, tt := range map[string]struct {
		said []api.Release
		how  string
	}{
		"died, then released":   {[]api.Release{dead, plain}, "lost (worker_died), recovered: release"},
		"released, then died":   {[]api.Release{plain, dead}, "lost (worker_died), recovered: release"},
		"died, then failed":     {[]api.Release{dead, failed}, "lost (worker_died), recovered: release"},
		"failed, then released": {[]api.Release{failed, plain}, "released: exit status 3"},
		"released, then failed": {[]api.Release{plain, failed}, "released: exit status 3"},
		"released twice":        {[]api.Release{plain, {Outcome: "failed", Reason: "cleanup"}}, "released: done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := begun(t, task("one"))
			w := r.connect(s)
			capturing, captured := make(chan struct{}), make(chan struct{})
			r.chromium.first("Page.captureScreenshot", func() { close(capturing); <-captured })
			w.drop()
			<-capturing
			for _, one := range tt.said {
				s.release(one)
			}
			close(captured)
			if f := r.over(s); f.Ended != tt.how {
				t.Errorf("%s, want %s", f.Ended, tt.how)
			}
		})
	}
}

// TestAFailedWorkersSitesAreNotAsked: its browser stands still. So what they said before it is kept only if it
// did nothing by then, or the next session would be compared with an account that was not as it says.
func TestAFailedWorkersSitesAreNotAsked(t *testing.T) {
	t.Parallel()
	f, err := site.Parse([]byte(`{name: shop, origins: ["https://shop.example"], probes: [{name: orders, get: "/api/orders", take: ["$.count"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	book, wrong := site.NewBook([]site.File{f})
	if len(wrong) > 0 {
		t.Fatal("the file about the site is refused:", wrong)
	}
	for name, ordered := range map[string]bool{"it ordered": true, "it only looked": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{sites: book})
			questions := book.Questions([]string{"https://shop.example/"}, nil)
			if len(questions) != 1 {
				t.Fatalf("%d questions", len(questions))
			}
			answers := r.host.o.Answers
			if err := answers.Keep(profile, 1, []site.Answer{{Question: questions[0], State: site.Told, Picked: site.Picked{Values: "14", Whole: true}}}, time.Now()); err != nil {
				t.Fatal(err)
			}
			s := r.begin(task("one"))
			s.Note(checkpoint.Entry{Kind: checkpoint.KindURL, URL: "https://shop.example/", Target: "T0", Committed: true})
			if ordered {
				s.Note(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example/orders", Request: "1"})
				s.Note(checkpoint.Entry{Kind: checkpoint.KindAnswer, Status: 200, Request: "1"})
				s.Note(checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "ordered", Safe: true})
			}
			if shown, err := s.Release(t.Context(), failed); err != nil || !shown.Released {
				t.Errorf("%+v, %v", shown, err)
			}
			r.over(s)
			kept, err := answers.Load(profile)
			if _, has := kept[questions[0].ID()]; err != nil || has == ordered {
				t.Errorf("the answer before it is kept: %t, %v", has, err)
			}
		})
	}
}
