package launcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// refuseShared has a launcher find at its nth look that another host could have the directory
// open, and at no other one. It returns the paths that were looked at.
func refuseShared(l *Launcher, nth int) *[]string {
	var asked []string
	l.host.SharedReady = func(path string) error {
		asked = append(asked, path)
		if len(asked) == nth {
			return api.Refuse(api.CodeStoreUnavailable, "the profile's directory may be open on another host")
		}
		return nil
	}
	return &asked
}

// TestASharedDirectoryIsLookedAtThroughoutAGrant: the store may be lost before the grant, after
// it, and while the browser starts.
func TestASharedDirectoryIsLookedAtThroughoutAGrant(t *testing.T) {
	for nth, tt := range map[int]struct {
		name             string
		granted, started bool
	}{
		1: {name: "before the grant"},
		2: {name: "after the grant", granted: true},
		3: {name: "while the browser starts", granted: true, started: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, store := startLauncher(t)
			path, err := l.o.Root.Create("p")
			if err != nil {
				t.Fatal(err)
			}
			granted := false
			store.set(hooks{swap: func(next lease.Record) error {
				granted = granted || next.ProfileID == "p" && next.State == lease.Held
				return nil
			}})
			refuseShared(l, nth)
			var p *api.Problem
			s, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "p"})
			if !errors.As(err, &p) || p.Code != api.CodeStoreUnavailable {
				t.Errorf("session %q, or refused otherwise: %v", s.SessionID, err)
			}
			if granted != tt.granted {
				t.Errorf("granted: %t", granted)
			}
			if _, err := os.Stat(filepath.Join(path, "Variations")); (err == nil) != tt.started {
				t.Errorf("whether a browser was started: %v", err)
			}
			if living := l.Sessions(); len(living) > 0 {
				t.Errorf("living: %+v", living)
			}
		})
	}
}

// TestASharedDirectoryIsLookedAtBeforeItIsUsed otherwise than for a task: to check, copy, archive
// and remove it.
func TestASharedDirectoryIsLookedAtBeforeItIsUsed(t *testing.T) {
	l, _ := startLauncher(t)
	nothingIsDone(t, l, func() { refuseShared(l, 1) })
}

// TestTheSessionThatWaitsIsShown: of two on one profile the newer one waits for a person. The list says so,
// and a sign-in link gives that one once the other is over: it would show and drive the other's pages, too. While
// the link is in use, no further task shares the browser.
func TestTheSessionThatWaitsIsShown(t *testing.T) {
	l, _ := startLauncher(t)
	must, runs := mustIn(t), 2
	_, err := l.PutProfile(t.Context(), "p", api.ProfileSettings{MaxActiveRuns: &runs})
	must(err)
	ann := principal.In(t.Context(), principal.Principal{Name: "ann"})
	older, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "p", WorkerID: "w", TaskID: "one", RequiresExclusiveProfileLock: new(false)})
	must(err)
	newer, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "p", WorkerID: "w", TaskID: "two", RequiresExclusiveProfileLock: new(false)})
	must(err)
	var work sync.WaitGroup
	ctx, withdraw := context.WithCancel(t.Context())
	defer work.Wait()
	defer withdraw()
	work.Go(func() {
		_, _ = l.Ask(ctx, newer.SessionID, api.AskPerson{Write: api.Write{Token: newer.Token}, Reason: "the code"})
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if s, err := l.Session(newer.SessionID); err == nil && s.Ask != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody asks")
		}
	}
	_, err = l.TakeOver(ann, older.SessionID, api.TakeOver{Write: api.Write{Token: older.Token}})
	must(err)
	for range 100 { // sessions are kept in no order
		page, err := l.ListProfiles(t.Context(), api.ProfileQuery{Limit: 10})
		must(err)
		if hands := page.Hands["p"]; hands.SessionID != newer.SessionID || hands.Ask == nil {
			t.Fatalf("the list says %+v of the profile, want that %s asks", hands, newer.SessionID)
		}
	}
	link := principal.In(t.Context(), principal.OfLink("lnk_1"))
	s, err := l.BeginSignIn(link, "p", api.SignInStart{LinkID: "lnk_1", By: "ann"})
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != 409 || p.Code != api.CodeConflict {
		t.Errorf("while two tasks share the browser, the link gives %s, %v", s.SessionID, err)
	}
	_, err = l.HandBack(ann, older.SessionID, api.HandBack{Write: api.Write{Token: older.Token}})
	must(err)
	_, err = l.Release(t.Context(), older.SessionID, api.Release{Write: api.Write{Token: older.Token}, Outcome: "succeeded"})
	must(err)
	s, err = l.BeginSignIn(link, "p", api.SignInStart{LinkID: "lnk_1", By: "ann"})
	if err != nil || s.SessionID != newer.SessionID {
		t.Errorf("the link gives %s, %v, want %s", s.SessionID, err, newer.SessionID)
	}
	third := api.Manifest{ProfileID: "p", WorkerID: "w", TaskID: "three", RequiresExclusiveProfileLock: new(false)}
	if s, err := l.Acquire(t.Context(), third); !errors.As(err, &p) || p.Code != api.CodeConflict {
		t.Errorf("while the link is in use, a task gets %s, %v", s.SessionID, err)
	}
	_, err = l.HandBack(link, newer.SessionID, api.HandBack{Write: api.Write{Token: newer.Token}})
	must(err)
	if _, err := l.Acquire(t.Context(), third); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestWhoDropsSessionCookiesSharesNoBrowser: of several tasks in one browser, the one that ends last would drop
// the cookies of all.
func TestWhoDropsSessionCookiesSharesNoBrowser(t *testing.T) {
	for _, first := range []string{"", api.CookiesDrop} {
		t.Run("after "+first, func(t *testing.T) {
			l, _ := startLauncher(t)
			must, runs := mustIn(t), 2
			_, err := l.PutProfile(t.Context(), "p", api.ProfileSettings{MaxActiveRuns: &runs})
			must(err)
			path, err := l.host.Root.Path("p")
			must(err)
			fakechrome.Direct(t, path, fakechrome.Script{Cookies: []fakechrome.Cookie{{Name: "sid", Value: "1", Domain: "shop.example", Path: "/", Session: true}}})
			ask := func(task, cookies string) (api.Session, error) {
				return l.Acquire(t.Context(), api.Manifest{ProfileID: "p", WorkerID: "w", TaskID: task, SessionCookies: cookies, RequiresExclusiveProfileLock: new(false)})
			}
			end := func(s api.Session) {
				t.Helper()
				_, err := l.Release(t.Context(), s.SessionID, api.Release{Write: api.Write{Token: s.Token}, Outcome: "ok"})
				must(err)
			}
			a, err := ask("a", first)
			must(err)
			for _, cookies := range []string{api.CookiesDrop, ""} {
				if first != "" || cookies != "" {
					if s, err := ask("b", cookies); codeOf(err) != api.CodeConflict {
						t.Fatalf("a task with session_cookies=%q beside one with %q: %s, %v", cookies, first, s.SessionID, err)
					}
				}
			}
			end(a)
			kept, err := l.host.Jar.Export("p")
			if must(err); (len(kept) > 0) != (first == "") {
				t.Errorf("%d files of cookies are kept", len(kept))
			}
			b, err := ask("b", api.CookiesDrop) // the browser is its own now
			must(err)
			end(b)
		})
	}
}

// TestASharedBrowserNeedsNoPlace: where a host has no place, who asks for any that fits gets a free run in a
// browser that others have open.
func TestASharedBrowserNeedsNoPlace(t *testing.T) {
	must := mustIn(t)
	o := optionsIn(t, t.TempDir(), evidence.Keys{})
	o.Chrome, o.MaxBrowsers = fakechrome.Binary(t), 1
	l := runIn(t, o)
	labels, runs := lease.Labels{"region": "eu"}, 2
	for _, profile := range []string{"used", "unused"} {
		_, err := l.PutProfile(t.Context(), profile, api.ProfileSettings{Labels: &labels, MaxActiveRuns: &runs})
		must(err)
	}
	ctx := principal.In(t.Context(), principal.Principal{Name: "ann", Role: principal.Admin, Profiles: principal.EveryProfile})
	_, err := l.Acquire(ctx, api.Manifest{ProfileID: "used", WorkerID: "w", TaskID: "a", RequiresExclusiveProfileLock: new(false)})
	must(err)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if r, known := l.host.Catalog.Record("used"); known && r.State == lease.Held {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the launcher does not see its own lease")
		}
	}
	m := api.Manifest{Labels: labels, WorkerID: "w", TaskID: "b", RequiresExclusiveProfileLock: new(false)}
	s, err := l.Acquire(ctx, m)
	if err != nil || s.ProfileID != "used" {
		t.Errorf("one that shares it: %s, %v", s.ProfileID, err)
	}
	m.TaskID = "c"
	if _, err := l.Acquire(ctx, m); codeOf(err) != api.CodeHostFull {
		t.Errorf("once all runs are taken: %v", err)
	}
}
