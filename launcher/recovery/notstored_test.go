package recovery_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// lossy is a browser with a cookie that does not come to the disk.
var lossy = fakechrome.Script{Cookies: []fakechrome.Cookie{{Name: "sid", Domain: "shop.example", Path: "/", Expires: 4e9}}}

// What a browser wrote may be lost, and its launcher cannot reach the store: others give the profile to a
// person, who approves it without knowing that. Nobody gets it before a person has decided who is told.
func TestWhatMayBeLostIsKnownWhoeverDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open(lossy)
	w.leases.Write = w.refusing(func(lease.Record) bool { return true })
	e, err := w.r.Run(w.caseOf(Recover))
	if err == nil || e.File.NotStored == "" {
		t.Fatalf("%+v, %v; want the close alone, and a cookie lost", e, err)
	}
	w.leases.Write = w.store
	w.restate(
		func(r lease.Record) (lease.Record, error) {
			return r.Suspect(api.ReasonObserved, lease.Sealed{}, time.Now())
		},
		func(r lease.Record) (lease.Record, error) { return r.Quarantine(0, time.Now()) },
		func(r lease.Record) (lease.Record, error) {
			return r.Abandon(nil, lease.Sealed{EvidenceID: "ev_1", SHA256: "ab"}, time.Now())
		},
		func(r lease.Record) (lease.Record, error) {
			return r.Reviewed(lease.Review{Decision: lease.ReviewApprove, Reviewer: "ana", TokenSeen: r.Token}, 0, time.Now())
		},
	)
	healed, forgot := w.r.Forgotten(w.leases.record())
	if !forgot || healed.State != lease.Quarantined || healed.Reason != lease.ReasonRolledBack {
		t.Errorf("it is %s, %s, %v; want it distrusted", healed.State, healed.Reason, forgot)
	}
	_, err = w.r.Heal(t.Context(), profile)
	w.must(err)
	c := w.caseOf(Recover)
	c.Browser, c.File = nil, e.File
	_, err = w.r.Run(c)
	w.must(err)
	i, err := w.r.Inspection(w.leases.record())
	w.must(err)
	said := slices.ContainsFunc(i.Facts, func(f api.Fact) bool { return f.Name == table.ClosedCleanly && f.How == e.File.NotStored })
	if r := w.leases.record(); r.State != lease.ManualReview || !said {
		t.Errorf("%s, and the person is told %+v; want that %q", r.State, i.Facts, e.File.NotStored)
	}
	if forgot, _, err := w.r.Forgot(w.leases.record()); forgot || err != nil {
		t.Errorf("asked twice: %v, %v", forgot, err)
	}
}

// A launcher is killed after the close, and before it has noted what may be lost: the next one has a person
// decide, who is told.
func TestWhatMayBeLostIsKnownToTheNextLauncher(t *testing.T) {
	t.Parallel()
	for _, goal := range []Goal{Recover, Release} {
		w := newWorld(t)
		w.open(lossy)
		w.leases.Write = func(_, next lease.Record, store func()) error {
			if w.gone() {
				panic(killed{})
			}
			store()
			return nil
		}
		c := w.caseOf(goal)
		if !w.plays(func(w *world) { _, err := w.r.Run(c); w.must(err) }) || w.file().NotStored != "" {
			t.Fatal("it was not killed in between")
		}
		w.leases.Write = w.store
		w.goesOn()
		i, err := w.r.Inspection(w.leases.record())
		w.must(err)
		said := slices.ContainsFunc(i.Facts, func(f api.Fact) bool {
			return f.Name == table.ReviewFlag && f.Answer == "yes" && strings.Contains(f.How, "the cookies cannot be read")
		})
		if r := w.leases.record(); r.State != lease.ManualReview || r.Reason != lease.ReasonRolledBack || !said {
			t.Errorf("%s, %s, and the person is told %+v", r.State, r.Reason, i.Facts)
		}
		w.checkEnd(true)
	}
}
