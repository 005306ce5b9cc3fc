package adopt

import (
	"maps"
	"os"
	"slices"
	"testing"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// bundle seals a small one of a session on the profile.
func (h *host) bundle(profile, sessionID string) lease.Sealed {
	h.Helper()
	a, err := h.archive()
	h.must(err)
	b, err := a.New(evidence.Manifest{ProfileID: profile, SessionID: sessionID, LeaseToken: 1})
	h.must(err)
	m, sum, err := a.Save(h.Context(), b)
	h.must(err)
	return lease.Sealed{EvidenceID: m.EvidenceID, SHA256: sum}
}

// While the home was away it sealed a bundle and closed the browser, and the others gave the profile to a person,
// with a bundle that has nothing. When the home is back, the review names the bundle that shows what was done.
func TestTheHomesBundleComesIntoTheReview(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files    func(h *host, r lease.Record) (want lease.Sealed)
		approved bool
		written  bool
	}{
		"its launcher ended the session": {written: true, files: func(h *host, r lease.Record) lease.Sealed {
			f := fileOf(r)
			f.Reason, f.Evidence, f.CloseMethod, f.Ended = api.ReasonLeaseLost, h.bundle("p", "ses_p"), "cdp", "ended, and its recovery goes on: lease_lost"
			h.must(h.files.Save(f))
			return f.Evidence
		}},
		"something was sealed after it that no session's file names": {written: true, files: func(h *host, r lease.Record) lease.Sealed {
			f := fileOf(r)
			f.Reason, f.Evidence, f.CloseMethod = api.ReasonLeaseLost, h.bundle("p", "ses_p"), "cdp"
			h.must(h.files.Save(f))
			h.bundle("p", "ses_p")
			return f.Evidence
		}},
		"nothing was sealed": {files: func(*host, lease.Record) lease.Sealed { return lease.Sealed{EvidenceID: "ev_nothing", SHA256: "ab"} }},
		"two runs shared the browser": {written: true, files: func(h *host, r lease.Record) lease.Sealed {
			f, first := fileOf(r), fileOf(r)
			f.Reason, f.Evidence, f.CloseMethod = api.ReasonLeaseLost, h.bundle("p", "ses_p"), "cdp"
			first.SessionID, first.Evidence = "ses_first", h.bundle("p", "ses_first") // it ended last
			h.must(h.files.Save(f), h.files.Save(first))
			h.change("p", func(r lease.Record) (lease.Record, error) {
				r.LostRuns = []lease.Run{{SessionID: "ses_p", Token: 1}, {SessionID: "ses_first", Token: 1}}
				return r, nil
			})
			return first.Evidence
		}},
		"a person has decided": {approved: true, files: func(h *host, r lease.Record) lease.Sealed {
			f := fileOf(r)
			f.Evidence = h.bundle("p", "ses_p")
			h.must(h.files.Save(f))
			return lease.Sealed{EvidenceID: "ev_nothing", SHA256: "ab"} // the profile's next bundle names it
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStoredHost(t)
			r := h.serves("p")
			want := tt.files(h, r)
			decided := h.abandon("p", "ev_nothing")
			if tt.approved {
				decided = h.approve("p")
			}
			l := h.launch(nil)
			unnamed := func(r lease.Record) bool { return l.o.Recoverer.Unnamed(r, l.o.Sessions.Sealed(r)) }
			if got := unnamed(decided); got != (tt.written || tt.approved) {
				t.Errorf("before: it lacks a bundle: %v", got)
			}
			got := l.adopts("p")
			if got.State != decided.State || got.Token != decided.Token || got.Reason != decided.Reason || got.EvidenceID != want.EvidenceID || got.EvidenceSHA256 != want.SHA256 {
				t.Errorf("%s, token %d, %s, names %s; want %s", got.State, got.Token, got.Reason, got.EvidenceID, want.EvidenceID)
			}
			if (got.Nonce != decided.Nonce) != tt.written {
				t.Errorf("written: %v", !tt.written)
			}
			if again := l.adopts("p"); again.Nonce != got.Nonce || tt.written && unnamed(got) {
				t.Errorf("written twice: %v; it lacks a bundle still: %v", again.Nonce != got.Nonce, unnamed(got))
			}
			if tt.written { // what the others sealed does not get lost
				next := h.bundle("p", "ses_next")
				m := l.manifest(next.EvidenceID)
				named := []string{m.PreviousEvidenceID}
				for _, link := range m.AlsoFollows {
					named = append(named, link.EvidenceID)
				}
				if !slices.Contains(named, "ev_nothing") {
					t.Errorf("the next bundle follows %v", named)
				}
			}
		})
	}
}

// The guard closes a browser after the next launcher has read the session's file, and that has no store until
// others have given the profile to a person.
func TestTheGuardsBundleComesIntoTheReview(t *testing.T) {
	t.Parallel()
	h := newStoredHost(t)
	h.browser(h.serves("p"))
	l := h.launch(nil)
	gone := make(chan struct{})
	close(gone)
	h.must(Guard(t.Context(), GuardOptions{ID: "here", DataDir: h.dir, Root: h.root, Key: testkey.Key, Gone: gone, Archive: h.archive, Log: h.log()}))
	h.abandon("p", "ev_nothing")
	if got, sealed := l.adopts("p"), h.file("ses_p").Evidence; sealed.EvidenceID == "" || got.EvidenceID != sealed.EvidenceID {
		t.Errorf("the review names %s, the guard sealed %s", got.EvidenceID, sealed.EvidenceID)
	}
}

// A host lost its power, and comes back after the others have given its profile to a person. Its browser is gone, and
// nothing was sealed: the journal of each session comes into a bundle, which the review names.
func TestTheJournalOfAHostThatComesBackLate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change   func(h *host)
		approved bool
		sealed   []string // sessions
	}{
		"one run": {func(*host) {}, false, []string{"ses_p"}},
		"two runs": {func(h *host) {
			h.change("p", func(r lease.Record) (lease.Record, error) {
				r.Runs = append(r.Runs, lease.Run{SessionID: "ses_other", Token: 1})
				return r, nil
			})
			other := fileOf(h.record("p"))
			other.SessionID = "ses_other"
			h.must(h.files.Save(other))
			h.journal("ses_other", checkpoint.Entry{Kind: checkpoint.KindStart}, checkpoint.Entry{Kind: checkpoint.KindStep, Name: "pay"})
		}, false, []string{"ses_p", "ses_other"}},
		"its bundle was sealed": {func(h *host) {
			f := h.file("ses_p")
			f.Evidence = h.bundle("p", "ses_p")
			h.must(h.files.Save(f))
		}, false, []string{"ses_p"}},
		"its journal cannot be read": {func(h *host) {
			h.must(os.Remove(h.files.Journal("ses_p")), os.Mkdir(h.files.Journal("ses_p"), 0o700))
		}, false, []string{"ses_p"}},
		"a person has decided": {func(*host) {}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStoredHost(t)
			h.serves("p")
			h.started("p", func(r *profiledir.Running) { r.PID, r.BootID = 1<<30, "of another boot" })
			tt.change(h)
			decided := h.abandon("p", "ev_nothing")
			if tt.approved {
				decided = h.approve("p")
			}
			l := h.launch(nil)
			l.adopts("p")
			got := l.adopts("p") // a bundle that was sealed already is named by the next look
			made := map[string]string{}
			for _, m := range l.bundles("p") {
				if made[m.SessionID] != "" {
					t.Errorf("session %s has two bundles", m.SessionID)
				}
				made[m.SessionID] = m.EvidenceID
			}
			if len(made) != len(tt.sealed) {
				t.Errorf("bundles of %v, want those of %v", made, tt.sealed)
			}
			for _, id := range tt.sealed {
				if sealed := h.file(id).Evidence.EvidenceID; sealed == "" || sealed != made[id] {
					t.Errorf("the file of %s names %q, its bundle is %q", id, sealed, made[id])
				}
			}
			if !tt.approved && !slices.Contains(slices.Collect(maps.Values(made)), got.EvidenceID) || tt.approved && got.Nonce != decided.Nonce {
				t.Errorf("the review names %s; sealed are %v", got.EvidenceID, made)
			}
			if got.State != decided.State || got.Token != decided.Token || got.Reason != decided.Reason {
				t.Errorf("%+v", got)
			}
			if again := l.adopts("p"); again.Nonce != got.Nonce {
				t.Error("written again")
			}
			h.given("p")
			if name == "one run" || name == "two runs" {
				for id, step := range map[string]int{"ses_p": 3, "ses_other": 2} {
					if made[id] != "" && len(l.entries(made[id])) != step {
						t.Errorf("the bundle of %s has %v of its journal", id, l.entries(made[id]))
					}
				}
			}
		})
	}
}

// The bundle of a browser that outlived its lease is sealed and the browser is closed, and the store does not
// take its name: it is in the review once the store does.
func TestABundleWhoseNameWasNotStored(t *testing.T) {
	t.Parallel()
	h := newStoredHost(t)
	id := h.browser(h.serves("p"))
	h.abandon("p", "ev_nothing")
	l := h.launch(nil)
	h.store.getting = func(string) error {
		if !h.lives(id) {
			return lease.ErrUnavailable
		}
		return nil
	}
	if got := l.adopts("p"); got.EvidenceID != "ev_nothing" || h.lives(id) {
		t.Fatalf("it names %s, the browser lives: %v", got.EvidenceID, h.lives(id))
	}
	h.store.getting = nil
	if got, all := l.adopts("p"), l.bundles("p"); len(all) != 1 || got.EvidenceID != all[0].EvidenceID {
		t.Errorf("the review names %s, and there are %+v", got.EvidenceID, all)
	}
}
