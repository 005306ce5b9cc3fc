package adopt

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// exchange puts a copy in the place of a profile's directory.
func (h *host) exchange(profile string) {
	h.Helper()
	path := filepath.Join(h.root.Dir(), profile)
	h.must(os.Rename(path, path+".was"), os.CopyFS(path, os.DirFS(path+".was")))
}

// abandon gives a profile to a person, as other launchers do when its home is gone.
func (h *host) abandon(profile, evidenceID string) lease.Record {
	h.Helper()
	return h.change(profile, func(r lease.Record) (lease.Record, error) {
		r, err := r.Suspect(api.ReasonObserved, lease.Sealed{}, time.Now())
		h.must(err)
		r, err = r.Quarantine(0, time.Now())
		h.must(err)
		return r.Abandon([]string{"its home did not come back"}, lease.Sealed{EvidenceID: evidenceID, SHA256: "ab"}, time.Now())
	})
}

// approve is a person's decision about a profile.
func (h *host) approve(profile string) lease.Record {
	h.Helper()
	return h.change(profile, func(r lease.Record) (lease.Record, error) {
		return r.Reviewed(lease.Review{Decision: lease.ReviewApprove, Reviewer: "ana", TokenSeen: r.Token}, 0, time.Now())
	})
}

// told checks that a person has the profile, and is told why what its browser wrote is not there.
func (l *launcher) told(profile, why string) {
	h := l.h
	h.Helper()
	got := h.record(profile)
	if got.State != lease.ManualReview || got.Reason != lease.ReasonRolledBack {
		h.Errorf("%s is %s, %s; want it with a person, %s", profile, got.State, got.Reason, lease.ReasonRolledBack)
	}
	i, err := l.o.Recoverer.Inspection(got)
	h.must(err)
	said := map[string]api.Fact{}
	for _, fact := range i.Facts {
		said[fact.Name] = fact
	}
	for _, name := range []string{table.ClosedCleanly, table.CookiesWhole} {
		if f := said[name]; f.Answer != string(table.No) || f.How != why {
			h.Errorf("%s: the person is told %q, %q; want no, %q", name, f.Answer, f.How, why)
		}
	}
	if again := l.adopts(profile); again.Nonce != got.Nonce {
		h.Errorf("then it is %+v: asked twice", again)
	}
}

const exchanged = "another directory is in the place of the one on which its browser was started"

// A profile was decided about while its home was away. When the browser there is closed, what it wrote is not
// all in the directory: then a person decides again, and knows that.
func TestWhatABrowserWroteIsGoneWhenItOutlivedItsLease(t *testing.T) {
	t.Parallel()
	for name, approved := range map[string]bool{"a person has approved it": true, "a person has still to decide": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStoredHost(t)
			id := h.browser(h.serves("p"))
			decided := h.abandon("p", "ev_1")
			if approved {
				decided = h.approve("p")
			}
			h.exchange("p")
			l := h.launch(nil)
			if got := l.adopts("p"); got.State != decided.State || h.lives(id) {
				t.Errorf("%+v, the browser lives: %v", got, h.lives(id))
			}
			l.adopts("p") // as the patrol has it looked after: the store knows less than this host
			l.told("p", exchanged)
		})
	}
}

// The guard closes a browser, and what it wrote is not all in the directory: the session's file says so, and a
// person is told, whatever became of the profile meanwhile.
func TestWhatABrowserWroteIsGoneWhenTheGuardEndsIt(t *testing.T) {
	t.Parallel()
	for name, approved := range map[string]bool{"the home is back in time": false, "a person has approved it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStoredHost(t)
			h.browser(h.serves("p"))
			h.exchange("p")
			gone := make(chan struct{})
			close(gone)
			h.must(Guard(t.Context(), GuardOptions{ID: "here", DataDir: h.dir, Root: h.root, Key: testkey.Key, Gone: gone, Archive: h.archive, Log: h.log()}))
			f := h.file("ses_p")
			if f.NotStored != exchanged {
				t.Errorf("its file says %q", f.NotStored)
			}
			if approved {
				h.abandon("p", "ev_1")
				h.approve("p")
			}
			l := h.launch(nil)
			l.adopts("p")
			l.told("p", exchanged)
			if got := h.record("p"); got.EvidenceID != f.Evidence.EvidenceID {
				t.Errorf("the person is shown %s; the guard sealed %s", got.EvidenceID, f.Evidence.EvidenceID)
			}
		})
	}
}
