package recovery_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/recorder"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/launcher/look"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// TestABundleSaysWhatThereWasAndWhatNot: every part is there, or says why it is not.
func TestABundleSaysWhatThereWasAndWhatNot(t *testing.T) {
	t.Parallel()
	cookies := fakechrome.Script{URL: cart, Cookies: []fakechrome.Cookie{{Name: "sid", Value: "s3cr3t", Domain: "shop.example", Path: "/"}}}
	for _, tt := range []struct {
		name    string
		prepare func(w *world, c *Capture)
		missing map[string]string // a part of why, by part
	}{
		{"a browser", func(w *world, c *Capture) {
			c.Commands = []byte("[]")
			w.must(w.files.SaveDigests(session, []byte("{}")))
		}, map[string]string{"chrome-output.txt": "empty"}},
		{"a browser of a launcher that is gone", func(*world, *Capture) {},
			map[string]string{"chrome-output.txt": "empty", recorder.CommandsPart: "the launcher that carried them is gone", "digests_before.json": "none were made at the grant"}},
		{"one that hangs", func(w *world, c *Capture) {
			c.Reason, c.Commands = api.ReasonBrowserHangs, []byte("[]")
		}, map[string]string{"chrome-output.txt": "empty", "digests_before.json": "none were made at the grant"}},
		{"no browser", func(w *world, c *Capture) { c.Browser = nil }, map[string]string{
			"screenshot-1.jpg": "there was no browser left to ask", recorder.CommandsPart: "the launcher that carried them is gone", "digests_before.json": "none were made at the grant"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.open(cookies)
			seen := time.Now().Add(-time.Minute).UTC()
			c := Capture{
				Record: w.leases.record(), Path: w.path, Token: token, Reason: api.ReasonHeartbeat, Outcome: "failed", SeenAt: seen, Browser: witness.Of(w.browser),
				Journal: []checkpoint.Entry{{Kind: checkpoint.KindURL, URL: cart}, {Kind: checkpoint.KindStep, Name: "order"}},
			}
			c.Record.EvidenceID, c.Record.EvidenceSHA256 = "ev_before", "5ha"
			tt.prepare(w, &c)
			b := w.r.Capture(c, w.log)
			if b == nil {
				t.Fatal("no bundle")
			}
			if got := w.r.Seal(b, w.log); got.EvidenceID != b.ID() || got.SHA256 == "" {
				t.Fatalf("sealed %+v", got)
			}
			raw, err := w.archive.Manifest(t.Context(), b.ID())
			if err != nil {
				t.Fatal(err)
			}
			var m evidence.Manifest
			w.must(json.Unmarshal(raw, &m))
			if m.ProfileID != profile || m.SessionID != session || m.AccountID != "store_18" || m.LauncherID != launcher || m.OldWorkerID != "worker-7" || m.OldTaskID != "task_101" ||
				m.LeaseToken != uint64(token) || !m.LastHeartbeatAt.Equal(seen) || m.DetectedStaleAt.Before(seen) || m.LastKnownStep != "order" || m.LastKnownURL != cart ||
				m.ProfileDir != w.path || m.RecoveryReason != c.Reason || m.Outcome != "failed" || m.PreviousEvidenceID != "ev_before" || m.PreviousManifestSHA256 != "5ha" {
				t.Errorf("the manifest says %+v", m)
			}
			var names []string
			for _, p := range m.Parts {
				names = append(names, p.Name)
				if why, missing := tt.missing[p.Name]; missing != (p.Missing != "") || !strings.Contains(p.Missing, why) {
					t.Errorf("%s: missing %q, want %q", p.Name, p.Missing, why)
				}
			}
			want := []string{"screenshot-1.jpg", recorder.CommandsPart, "digests_before.json", "journal.jsonl", "processes.json", "lock.json"}
			if c.Browser != nil {
				want = append(want, "dom-1.html", recorder.NetworkPart, recorder.ConsolePart, evidence.CookiesDigestName, evidence.DigestsPart, "browser.json", "chrome-output.txt")
			}
			if c.Browser != nil && c.Reason != api.ReasonBrowserHangs {
				want = append(want, look.Part)
			}
			for _, name := range want {
				if !slices.Contains(names, name) {
					t.Errorf("%s is not named", name)
				}
			}
			if len(names) != len(want) {
				t.Errorf("parts %v", names)
			}
			for _, name := range names {
				part, _ := w.archive.Part(t.Context(), b.ID(), name)
				if strings.Contains(string(part), "s3cr3t") {
					t.Errorf("%s has the value of a cookie", name)
				}
			}
			if n := w.counted("leasehold_evidence_seconds", ""); n != 1 {
				t.Errorf("%v bundles are counted", n)
			}
		})
	}
}

// TestNothingIsSealedOfNothing: neither of a bundle that could not be begun, nor of one
// that was discarded.
func TestNothingIsSealedOfNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.bundle(w.file())
	w.must(b.Discard())
	if got := w.r.Seal(b, w.log); got != (lease.Sealed{}) {
		t.Errorf("sealed %+v of a bundle that was discarded", got)
	}
	w.fullDisk()
	if b := w.r.Capture(Capture{Record: w.leases.record(), Path: w.path}, w.log); b != nil {
		t.Error("a bundle on a full disk")
	}
	if got := w.r.Seal(nil, w.log); got != (lease.Sealed{}) {
		t.Errorf("sealed %+v of nothing", got)
	}
	if n := w.counted("leasehold_evidence_seconds", ""); n != 0 {
		t.Errorf("%v bundles are counted", n)
	}
}

func TestLatestKeepsWhatTheJournalDoesNotSay(t *testing.T) {
	was := lease.Record{LastKnownURL: "https://shop.example/", LastKnownStep: "log_in", LastSafeCheckpoint: "logged_in"}
	if got := Latest(was, nil); got.LastKnownURL != was.LastKnownURL || got.LastKnownStep != was.LastKnownStep || got.LastSafeCheckpoint != was.LastSafeCheckpoint {
		t.Errorf("by an empty journal: %+v", got)
	}
	got := Latest(was, []checkpoint.Entry{
		{Kind: checkpoint.KindURL, URL: cart}, {Kind: checkpoint.KindStep, Name: "order"},
		{Kind: checkpoint.KindCheckpoint, Name: "filled", Safe: true}, {Kind: checkpoint.KindCheckpoint, Name: "unsure"},
	})
	if got.LastKnownURL != cart || got.LastKnownStep != "order" || got.LastSafeCheckpoint != "filled" {
		t.Errorf("%+v", got)
	}
}
