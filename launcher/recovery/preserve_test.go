package recovery_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// TestEvidenceOfABrowserWithoutASession has its page and why it is closed, and the profile's
// next bundle names it. On a full disk there is none, which is said.
func TestEvidenceOfABrowserWithoutASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open(fakechrome.Script{URL: cart})
	w.must(w.r.Preserve(profile, "stirred", "a request", witness.Of(w.browser)))
	list, err := w.archive.List(context.Background(), profile)
	w.must(err)
	if len(list) != 1 || list[0].RecoveryReason != api.ReasonWarm || list[0].LeaseToken != uint64(token) {
		t.Fatalf("%+v", list)
	}
	raw, err := w.archive.Part(context.Background(), list[0].EvidenceID, "closing.json")
	if err != nil || !strings.Contains(string(raw), "a request") {
		t.Errorf("it does not say why: %s, %v", raw, err)
	}
	if list[0].LastScreenshot == "" {
		t.Error("there is no picture")
	}
	_, err = w.r.Run(w.caseOf(Release))
	w.must(err)
	last, err := w.archive.List(context.Background(), profile)
	w.must(err)
	named := func(l evidence.Link) bool { return l.EvidenceID == list[0].EvidenceID }
	if !slices.ContainsFunc(last, func(m evidence.Manifest) bool { return slices.ContainsFunc(m.AlsoFollows, named) }) {
		t.Error("no later bundle names it")
	}
	full := newWorld(t)
	full.open(fakechrome.Script{URL: cart})
	full.fullDisk()
	if err := full.r.Preserve(profile, "stirred", "", witness.Of(full.browser)); err == nil {
		t.Error("nothing was stored, and nobody is told")
	}
}

// TestABundleThatCannotBeSealedIsNotKept: whoever tries again makes another one, and its parts would hold the disk.
func TestABundleThatCannotBeSealedIsNotKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open(fakechrome.Script{URL: cart})
	chain := filepath.Join(w.spool, ".chain")
	w.must(os.WriteFile(chain, nil, 0o600)) // in the way of what is remembered of the chain
	for range 3 {
		if err := w.r.Preserve(profile, "stirred", "", witness.Of(w.browser)); err == nil {
			t.Fatal("it was sealed")
		}
	}
	if left, err := filepath.Glob(filepath.Join(w.spool, "ev_*")); err != nil || len(left) > 0 {
		t.Errorf("left in the spool: %v, %v", left, err)
	}
	w.must(os.Remove(chain))
	w.must(w.r.Preserve(profile, "stirred", "", witness.Of(w.browser)))
}

// TestABundleThatTheRecordNamedIsNamedByTheNext, where another launcher made it: the home,
// which did not know of it, has put its own in that place.
func TestABundleThatTheRecordNamedIsNamedByTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open(fakechrome.Script{})
	granted := w.recordOrNone()
	w.leases.Put(func(r lease.Record) lease.Record {
		r.EvidenceID, r.EvidenceSHA256 = "ev_other", strings.Repeat("0", 64)
		return r
	}(granted))
	c := w.caseOf(Release)
	c.Bundle = func() *evidence.Bundle {
		return w.r.Capture(Capture{Record: granted, Path: w.path, Token: token, Reason: api.ReasonReleased, Browser: witness.Of(w.browser)}, w.log)
	}
	_, err := w.r.Run(c)
	w.must(err)
	b, err := w.archive.New(evidence.Manifest{ProfileID: profile, LeaseToken: uint64(token) + 1})
	w.must(err)
	m, _, err := b.Seal()
	w.must(err)
	if !slices.ContainsFunc(m.AlsoFollows, func(l evidence.Link) bool { return l.EvidenceID == "ev_other" }) {
		t.Errorf("the next bundle names %+v", m.AlsoFollows)
	}
}
