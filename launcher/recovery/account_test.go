package recovery_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// checks is a checker that answers as it is told.
type checks struct {
	w      *world
	answer accountcheck.Answer
	err    error
	says   string // what sites pick out of their answers
	later  string // and a moment later; empty: the same
	asked  []accountcheck.Request
}

func (c *checks) Run(_ context.Context, r accountcheck.Request) (accountcheck.Found, error) {
	c.w.note("check")
	c.asked = append(c.asked, r)
	f := accountcheck.Found{Session: accountcheck.Result{Answer: c.answer, Status: 200, How: "as the test says"}}
	f.Answers = answersTo(r.Questions, c.says)
	f.Again = answersTo(r.Again(f.Answers), cmp.Or(c.later, c.says))
	return f, c.err
}

func answersTo(questions []site.Question, says string) (all []site.Answer) {
	for _, q := range questions {
		all = append(all, site.Answer{Question: q, State: site.Told, Picked: site.Picked{Values: says, Whole: true, Text: says}})
	}
	return all
}

// TestTheSessionCheckDecides: it is made once the worker's browser is gone, only where the
// profile would be let go, and whatever is not a yes goes to a person.
func TestTheSessionCheckDecides(t *testing.T) {
	t.Parallel()
	one := lease.SessionCheck{URL: "https://shop.example/api/me"}
	for _, tt := range []struct {
		name    string
		change  func(*world, *checks, *Case)
		fact    table.Answer
		outcome string
		asked   int
	}{
		{"signed in", func(_ *world, c *checks, _ *Case) { c.answer = accountcheck.SignedIn }, table.No, table.Release, 1},
		{"signed out", func(_ *world, c *checks, _ *Case) { c.answer = accountcheck.SignedOut }, table.Yes, table.ManualReview, 1},
		{"not known", func(_ *world, c *checks, _ *Case) { c.answer = accountcheck.Unknown }, table.Unknown, table.ManualReview, 1},
		{"signed in, and left running", func(w *world, c *checks, _ *Case) {
			c.answer, c.err = accountcheck.SignedIn, errors.New("it did not end")
			w.process()
		}, table.Unknown, table.ManualReview, 0}, // a process is there already: nobody would let go
		{"nobody can", func(w *world, _ *checks, _ *Case) { w.r = w.recoverer(func(*Options) {}) }, table.Unknown, table.ManualReview, 0},
		{"a person decides anyway", func(_ *world, c *checks, k *Case) {
			c.answer = accountcheck.SignedIn
			k.Journal = func() []checkpoint.Entry {
				return []checkpoint.Entry{{Kind: checkpoint.KindRequest, Method: "POST", URL: cart}}
			}
		}, table.Unknown, table.ManualReview, 0},
		{"no check", func(w *world, _ *checks, _ *Case) {
			w.restate(func(r lease.Record) (lease.Record, error) { r.SessionCheck = nil; return r, nil })
		}, table.No, table.Release, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.tidy()
			w.restate(func(r lease.Record) (lease.Record, error) { r.SessionCheck = &one; r.ProxyID = "p0"; return r, nil })
			c := &checks{w: w}
			w.r = w.recoverer(func(o *Options) { o.Checker = witness.Account{AccountChecker: c} })
			k := w.caseOf(Recover)
			headless := true
			k.File.Manifest = api.Manifest{Headless: &headless, ChromeArgs: []string{"--lang=tr"}, SessionCookies: api.CookiesDrop}
			tt.change(w, c, &k)
			if _, err := w.r.Run(k); err != nil {
				t.Fatal(err)
			}
			i, err := w.r.Inspection(w.leases.record())
			w.must(err)
			answer := table.Answer("")
			for _, f := range i.Facts {
				if f.Name == table.SessionCheckFailed {
					answer = table.Answer(f.Answer)
				}
			}
			if answer != tt.fact || i.Decision != tt.outcome || len(c.asked) != tt.asked {
				t.Errorf("%s, decided %s because of %q, after %d checks; want %s, %s, %d", answer, i.Decision, i.Reasons, len(c.asked), tt.fact, tt.outcome, tt.asked)
			}
			for _, r := range c.asked {
				if *r.Check != one || r.ProxyID != "p0" || r.Path != w.path || r.Lock != w.lock || !*r.Headless || len(r.Args) != 1 || r.KeepCookies || r.Token != token+1 {
					t.Errorf("asked for %+v", r)
				}
			}
		})
	}
}

// TestTheWorkersBrowserIsGoneBeforeTheCheck: and the evidence is stored.
func TestTheWorkersBrowserIsGoneBeforeTheCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.restate(func(r lease.Record) (lease.Record, error) {
		r.SessionCheck = &lease.SessionCheck{URL: cart}
		return r, nil
	})
	c := &checks{w: w, answer: accountcheck.SignedIn}
	w.r = w.recoverer(func(o *Options) { o.Checker = witness.Account{AccountChecker: c} })
	w.open(fakechrome.Script{})
	w.traced()
	if _, err := w.r.Run(w.caseOf(Recover)); err != nil {
		t.Fatal(err)
	}
	trace := w.traced()
	before, _, checked := strings.Cut(trace, "check/gone")
	if !checked || !strings.Contains(before, "evidence") || !strings.Contains(before, "close") {
		t.Errorf("done: %s", trace)
	}
}

// shopAsked is what is known of a shop with one probe, of which this is more.
func shopAsked(t *testing.T, more string) *site.Book {
	t.Helper()
	file, err := site.Parse([]byte("name: shop\norigins: [\"https://shop.example\"]\nprobes: [{name: orders, get: /o, take: [\"$.n\"]" + more + "}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	book, _ := site.NewBook([]site.File{file})
	return book
}

// TestSitesAreAskedWhereThatMayDecide: what they say is compared with what they said at rest, and is
// remembered in its place.
func TestSitesAreAskedWhereThatMayDecide(t *testing.T) {
	t.Parallel()
	book := shopAsked(t, `, covers: ["POST /cart"]`)
	for _, tt := range []struct {
		name        string
		rest        string // what was said at rest; empty: nothing is remembered
		says, later string
		since       lease.Token // how often the profile was granted, or recovered, after that
		whole       bool
		outcome     string
		changed     table.Answer
		asked       int
	}{
		{"as before", "14", "14", "", 0, true, table.Release, table.No, 1},
		{"another", "14", "15", "", 0, true, table.ManualReview, table.Yes, 1},
		{"another a moment later", "14", "14", "15", 0, true, table.ManualReview, table.Yes, 1},
		{"as before, but somebody used it meanwhile", "14", "14", "", 1, true, table.ManualReview, table.No, 1},
		{"another, but somebody used it meanwhile", "14", "15", "", 1, true, table.ManualReview, table.Yes, 1},
		{"for the first time", "", "14", "", 0, true, table.ManualReview, table.Unknown, 1},
		{"somebody may be on the profile", "14", "14", "", 0, false, table.ManualReview, table.Unknown, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.tidy()
			c := &checks{w: w, says: tt.says, later: tt.later}
			memory := accountcheck.NewMemory(w.data, testkey.Key)
			if tt.rest != "" {
				w.must(memory.Keep(profile, token-1-tt.since, answersTo(book.Questions(nil, []string{"shop.example"}), tt.rest), time.Now()))
			}
			w.r = w.recoverer(func(o *Options) {
				o.Checker, o.Sites = witness.Account{AccountChecker: c, Memory: memory}, func() *site.Book { return book }
			})
			k := w.caseOf(Recover)
			k.Journal = func() []checkpoint.Entry {
				return []checkpoint.Entry{{Kind: checkpoint.KindRequest, Method: "POST", URL: cart, Shape: "POST " + cart + " form(id)", Plain: true, Status: 200}}
			}
			if !tt.whole {
				w.process()
			}
			if _, err := w.r.Run(k); err != nil {
				t.Fatal(err)
			}
			i, err := w.r.Inspection(w.leases.record())
			w.must(err)
			var changed table.Answer
			for _, f := range i.Facts {
				if f.Name == table.ProbeChanged {
					changed = table.Answer(f.Answer)
				}
			}
			if i.Decision != tt.outcome || changed != tt.changed || len(c.asked) != tt.asked {
				t.Errorf("%s because of %q, changed: %s, asked %d times; want %s, %s, %d", i.Decision, i.Reasons, changed, len(c.asked), tt.outcome, tt.changed, tt.asked)
			}
			kept, err := memory.Load(profile)
			w.must(err)
			last, want := "", tt.rest
			if tt.asked > 0 {
				want = cmp.Or(tt.later, tt.says)
			}
			if one, ok := kept["shop/orders"]; ok {
				last = one.Text
				if moved := tt.rest != "" && want != tt.rest; one.Moved != moved || one.Digest != memory.Digest(profile)("shop/orders", want) {
					t.Errorf("remembered is %+v", one)
				}
			}
			if last != want {
				t.Errorf("remembered is %q, want %q", last, want)
			}
		})
	}
}

// TestWhatASiteSaidWhileTheSessionLived is what its answers are compared with, also in the next launcher: if
// this host wrote it, and if no other run had the browser.
func TestWhatASiteSaidWhileTheSessionLived(t *testing.T) {
	t.Parallel()
	book := shopAsked(t, ``)
	orders := book.Questions(nil, []string{"shop.example"})
	for _, tt := range []struct {
		name              string
		grant, checkpoint string // what the site said then; empty: nothing is kept
		change            func(*world, *Case)
		changed, since    table.Answer
		outcome           string
	}{
		{"nothing is kept", "", "", func(*world, *Case) {}, table.Yes, table.Yes, table.ManualReview},
		{"since the grant", "15", "", func(*world, *Case) {}, table.No, table.No, table.Resume},
		{"since the checkpoint", "14", "15", func(*world, *Case) {}, table.Yes, table.No, table.Resume},
		{"after the checkpoint", "15", "14", func(*world, *Case) {}, table.Yes, table.Yes, table.ManualReview},
		{"somebody else wrote it", "15", "15", func(w *world, _ *Case) {
			path := filepath.Join(w.files.Path(), session+".baselines")
			b, err := os.ReadFile(path)
			w.must(err)
			w.must(os.WriteFile(path, append(b, ' '), 0o600))
		}, table.Yes, table.Yes, table.ManualReview},
		{"another run was lost, too", "15", "15", func(_ *world, k *Case) { k.Lost = []sessionfile.LostRun{{}} }, table.Yes, table.Yes, table.ManualReview},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.tidy()
			memory := accountcheck.NewMemory(w.data, testkey.Key)
			w.must(memory.Keep(profile, token-1, answersTo(orders, "14"), time.Now()))
			var kept []site.Baseline
			for at, says := range map[uint64]string{0: tt.grant, 2: tt.checkpoint} {
				if says != "" {
					kept = append(kept, site.Baseline{Checkpoint: at, Name: "listed", Told: map[string]site.Kept{"shop/orders": memory.Baseline(profile, answersTo(orders, says)[0], time.Now())}})
				}
			}
			slices.SortFunc(kept, func(a, b site.Baseline) int { return cmp.Compare(a.Checkpoint, b.Checkpoint) })
			w.must(w.files.SaveBaselines(session, kept))
			w.r = w.recoverer(func(o *Options) {
				o.Checker = witness.Account{AccountChecker: &checks{w: w, says: "15"}, Memory: memory, Files: w.files}
				o.Sites = func() *site.Book { return book }
			})
			k := w.caseOf(Recover)
			k.File.Manifest.Resumable = true
			k.Journal = func() []checkpoint.Entry {
				return []checkpoint.Entry{{Seq: 1, Kind: checkpoint.KindURL, URL: cart}, {Seq: 2, Kind: checkpoint.KindCheckpoint, Name: "listed", Safe: true}}
			}
			tt.change(w, &k)
			if _, err := w.r.Run(k); err != nil {
				t.Fatal(err)
			}
			i, err := w.r.Inspection(w.leases.record())
			w.must(err)
			found := map[string]string{}
			for _, f := range i.Facts {
				found[f.Name] = f.Answer
			}
			if found[table.ProbeChanged] != string(tt.changed) || found[table.ProbeChangedSinceSafe] != string(tt.since) || i.Decision != tt.outcome {
				t.Errorf("changed: %s, since the checkpoint: %s, decided %s because of %q; %q", found[table.ProbeChanged], found[table.ProbeChangedSinceSafe], i.Decision, i.Reasons, i.Account)
			}
		})
	}
}

// TestTheGrantStandsForTheCheckpointFromWhichATaskResumed: only what the site said then proves that the session that
// went on from there did nothing after it.
func TestTheGrantStandsForTheCheckpointFromWhichATaskResumed(t *testing.T) {
	t.Parallel()
	book := shopAsked(t, `, covers: ["POST /cart"]`)
	orders := book.Questions(nil, []string{"shop.example"})
	for _, tt := range []struct {
		name    string
		asked   bool // at the grant
		outcome string
		resumed bool // the checkpoint is that of an earlier session
		says    string
	}{
		{"the grant was answered", true, table.Resume, true, ""},
		{"it was not", false, table.ManualReview, true, "so that it covers nothing"},
		{"the session named the checkpoint itself", true, table.ManualReview, false, "so that it covers nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.tidy()
			memory := accountcheck.NewMemory(w.data, testkey.Key)
			w.must(memory.Keep(profile, token-1, answersTo(orders, "15"), time.Now()))
			if tt.asked {
				w.must(w.files.SaveBaselines(session, []site.Baseline{{Told: map[string]site.Kept{"shop/orders": memory.Baseline(profile, answersTo(orders, "15")[0], time.Now())}}}))
			}
			w.r = w.recoverer(func(o *Options) {
				o.Checker = witness.Account{AccountChecker: &checks{w: w, says: "15"}, Memory: memory, Files: w.files}
				o.Sites = func() *site.Book { return book }
			})
			k := w.caseOf(Recover)
			k.File.Manifest.Resumable = true
			named := checkpoint.Entry{Seq: 2, Kind: checkpoint.KindCheckpoint, Name: "listed", Safe: true}
			if tt.resumed {
				named.ResumeFrom = "listing"
			}
			k.Journal = func() []checkpoint.Entry {
				return []checkpoint.Entry{{Seq: 1, Kind: checkpoint.KindURL, URL: cart}, named,
					{Seq: 3, Kind: checkpoint.KindRequest, Method: "POST", URL: cart, Shape: "POST " + cart + " form(id)", Plain: true, Status: 200}}
			}
			if _, err := w.r.Run(k); err != nil {
				t.Fatal(err)
			}
			i, err := w.r.Inspection(w.leases.record())
			w.must(err)
			if i.Decision != tt.outcome || !strings.Contains(strings.Join(i.Account, "\n"), tt.says) {
				t.Errorf("decided %s because of %q; %q; want %s, %q", i.Decision, i.Reasons, i.Account, tt.outcome, tt.says)
			}
		})
	}
}
