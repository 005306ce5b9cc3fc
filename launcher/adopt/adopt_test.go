package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// TestWhatALauncherLeftWarm tells a browser that no session had from one in use.
func TestWhatALauncherLeftWarm(t *testing.T) {
	now := time.Now()
	held, err := lease.Record{ProfileID: "p"}.Grant(lease.Request{SessionID: "ses", WorkerID: "w", TaskID: "t", LauncherID: "l", TTL: time.Minute}, now)
	if err != nil {
		t.Fatal(err)
	}
	released, err := held.Release("released", "succeeded", lease.Sealed{EvidenceID: "ev"}, now)
	if err != nil {
		t.Fatal(err)
	}
	blind := released
	blind.EvidenceID = ""
	for name, tt := range map[string]struct {
		kept lease.Record
		warm bool
	}{
		"nothing was kept":            {lease.Record{}, false},
		"held":                        {held, false},
		"released":                    {released, true},
		"released, without evidence":  {blind, false},
		"with a person":               {lease.Record{State: lease.ManualReview, EvidenceID: "ev"}, false},
		"kept for a task to go on on": {lease.Record{State: lease.ResumePending, EvidenceID: "ev"}, false},
	} {
		if got := leftWarm(tt.kept); got != tt.warm {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A profile that is free stays as it is, one that somebody has is theirs, and where the
// store does not say what there is, nothing is done.
func TestNothingToLookAfter(t *testing.T) {
	h := newStoredHost(t)
	l := h.launch(nil)
	free := h.change("p", func(r lease.Record) (lease.Record, error) { return h.released(h.granted(r, "ses_1")), nil })
	h.keep(free)
	var states []slots.State
	h.store.getting = func(profile string) error {
		states = append(states, l.o.Slots.Find(profile).State())
		return nil
	}
	if got := l.adopts("p"); got.Nonce != free.Nonce || !slices.Equal(states, []slots.State{slots.Closing}) {
		t.Errorf("the store was written: %v; meanwhile the profile was %v", got.Nonce != free.Nonce, states)
	}

	h.serves("busy")
	somebody := l.o.Slots.Occupy("busy")
	l.Adopt(h.record("busy"))
	if l.o.Slots.Find("busy") != somebody || somebody.State() != slots.Opening {
		t.Error("taken from who has it")
	}
	somebody.Vacate()

	states = nil
	h.store.getting = func(profile string) error {
		states = append(states, l.o.Slots.Find(profile).State())
		return lease.ErrUnavailable
	}
	if got := l.adopts("busy"); got.State != lease.Held || !slices.Equal(states, []slots.State{slots.Closing}) {
		t.Errorf("without an answer: %s; meanwhile the profile was %v", got.State, states)
	}
	if strings.Contains(h.said.String(), "recovery is not complete") {
		t.Errorf("told as a failure:\n%s", h.said.String())
	}
}

// A profile that the store forgot gets its record back from this disk. On a directory
// that others could open that waits until whoever holds it had the time to say so.
func TestForgottenProfiles(t *testing.T) {
	h := newStoredHost(t)
	l := h.launch(nil)
	used := h.granted(lease.Record{ProfileID: "free"}, "ses_1")
	used = h.granted(h.released(used), "ses_2")
	h.keep(h.released(used))
	l.presence.shared = api.Refuse(api.CodeStoreUnavailable, "ask again")
	if got := l.adopts("free"); got.State != "" {
		t.Errorf("restored at once: %+v", got)
	}
	l.presence.shared = nil
	if got := l.adopts("free"); got.State != lease.Available || got.Token != 2 || got.Home != "here" || got.SessionID != "ses_2" {
		t.Errorf("free, and forgotten: %+v", got)
	}
	if got := l.bundles("free"); len(got) > 0 {
		t.Errorf("%d bundles", len(got))
	}

	// What it was at nobody can say, so it is inspected.
	r := h.granted(lease.Record{ProfileID: "used"}, "ses_used")
	h.keep(r)
	h.must(h.files.Save(fileOf(r)))
	l = h.launch(nil)
	got := l.adopts("used")
	if got.State != lease.ManualReview || got.Token != 2 || got.Reason != lease.ReasonRecordLost || got.EvidenceID == "" {
		t.Errorf("in use, and forgotten: %+v", got)
	}
	if floor, err := h.root.Floor("used"); err != nil || floor != 2 {
		t.Errorf("floor %d, %v", floor, err)
	}
	// A directory that is gone is no directory of others.
	l.presence.shared = api.Refuse(api.CodeStoreUnavailable, "ask again")
	h.keep(h.released(h.granted(lease.Record{ProfileID: "gone"}, "ses_3")))
	h.must(os.Remove(filepath.Join(h.root.Dir(), "gone")))
	if got := l.adopts("gone"); got.State != lease.Available {
		t.Errorf("its directory is gone: %+v", got)
	}
}

// A session whose launcher was killed, and whose browser is gone, is recovered from what
// is on disk.
func TestRecoveredFromFiles(t *testing.T) {
	h := newStoredHost(t)
	r := h.serves("p")
	shown, err := json.Marshal(evidence.Picture{EvidenceID: "pic_1"})
	h.must(err)
	h.journal(r.SessionID, checkpoint.Entry{Kind: checkpoint.KindPicture, Data: shown})
	l := h.launch(nil)
	waits := make(chan error, 1)
	go func() {
		_, err := l.o.Sessions.Lookup(r.SessionID)
		waits <- err
	}()
	var sealed []bool // at each look into the store
	var told error
	h.store.getting = func(string) error {
		if len(sealed) == 1 { // the recovery begins, and does not end before the worker is told
			told = <-waits
		}
		f, err := h.files.Read(r.SessionID)
		sealed = append(sealed, f.Evidence.EvidenceID != "")
		return err
	}
	got := l.adopts("p")
	// The file names the evidence before the first transition: another try has no other.
	if len(sealed) < 3 || sealed[0] || slices.Contains(sealed[1:], false) {
		t.Errorf("the file named the evidence: %v", sealed)
	}
	const how = "lost (launcher_restarted), recovered: manual_review"
	if told == nil || !strings.Contains(told.Error(), "the launcher that served it is gone") {
		t.Errorf("a worker that waited is told: %v", told)
	}
	if _, err := l.o.Sessions.Lookup(r.SessionID); err == nil || !strings.Contains(err.Error(), how) {
		t.Errorf("one that comes later is told: %v", err)
	}
	if got.State != lease.ManualReview || got.Token != 2 || got.Reason != api.ReasonLauncherRestart || got.LastKnownURL != "https://shop.example/cart" || got.LastKnownStep != "fill_in" {
		t.Errorf("%+v", got)
	}
	m := l.manifest(got.EvidenceID)
	if m.LeaseToken != 1 || m.RecoveryReason != api.ReasonLauncherRestart || m.SessionID != r.SessionID || len(m.Pictures) != 1 || m.LastScreenshot != "" {
		t.Errorf("%+v", m)
	}
	if kinds := l.entries(got.EvidenceID); !slices.Equal(kinds, []checkpoint.Kind{checkpoint.KindStart, checkpoint.KindURL, checkpoint.KindStep, checkpoint.KindPicture}) {
		t.Errorf("its journal: %v", kinds)
	}
	if f := h.file(r.SessionID); f.Ended != how || f.Reason != api.ReasonLauncherRestart || !f.Unseen || f.Evidence.EvidenceID != got.EvidenceID {
		t.Errorf("its file: %+v", f)
	}
	h.given("p")
	if l.adoptions() != 0 || l.o.Slots.Find("p") != nil {
		t.Errorf("%v adoptions, slot %v", l.adoptions(), l.o.Slots.Find("p"))
	}
	if got, again := h.record("p"), l.adopts("p"); again.Nonce != got.Nonce {
		t.Error("recovered twice")
	}
}

// What an earlier try, or the guard, has done is not done again, and what nobody ever saw
// is not made up.
func TestRecoveryGoesOnFromTheFile(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*sessionfile.File)
		gone    bool // the profile's directory is
		unseen  bool
		reason  string
		bundles int
	}{
		"sealed by an earlier try": {
			change: func(f *sessionfile.File) {
				f.Reason, f.Evidence = api.ReasonHeartbeat, lease.Sealed{EvidenceID: "ev_1", SHA256: "ab"}
			},
			unseen: true, reason: api.ReasonHeartbeat,
		},
		"closed by an earlier try": {
			change: func(f *sessionfile.File) { f.Reason, f.CloseMethod = api.ReasonHeartbeat, "cdp" },
			reason: api.ReasonHeartbeat, bundles: 1,
		},
		"its journal was changed since": {
			change: func(f *sessionfile.File) {
				f.Reason, f.CloseMethod, f.JournalSum = api.ReasonHeartbeat, "cdp", "another"
			},
			unseen: true, reason: api.ReasonHeartbeat, bundles: 1,
		},
		"the store did not answer its grant": {
			change: func(f *sessionfile.File) { f.Reason = api.ReasonUnanswered },
			reason: api.ReasonUnanswered, bundles: 1,
		},
		"it never ended": {
			change: func(f *sessionfile.File) { f.JournalSum = "" },
			unseen: true, reason: api.ReasonLauncherRestart, bundles: 1,
		},
		"its profile is gone": {
			change: func(*sessionfile.File) {}, gone: true,
			unseen: true, reason: api.ReasonLauncherRestart, bundles: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newStoredHost(t)
			f := fileOf(h.serves("p"))
			journal, err := checkpoint.Read(h.files.Journal(f.SessionID))
			h.must(err)
			f.JournalSum = checkpoint.Sum(journal)
			tt.change(&f)
			h.must(h.files.Save(f))
			if tt.gone {
				h.must(os.Remove(filepath.Join(h.root.Dir(), "p")))
			}
			l := h.launch(nil)
			got := l.adopts("p")
			if got.State != lease.ManualReview || got.Token != 2 || got.Reason != tt.reason {
				t.Errorf("%+v", got)
			}
			after := h.file(f.SessionID)
			if after.Unseen != tt.unseen || after.Ended == "" || after.Evidence.EvidenceID != got.EvidenceID || f.Evidence.EvidenceID != "" && got.EvidenceID != f.Evidence.EvidenceID {
				t.Errorf("%+v", after)
			}
			if after.EndedWith(journal) != (f.JournalSum != "another") { // a task that resumes reads its data there
				t.Errorf("the journal's sum is %q, and was %q", after.JournalSum, f.JournalSum)
			}
			if all := l.bundles("p"); len(all) != tt.bundles {
				t.Errorf("%d bundles, want %d", len(all), tt.bundles)
			}
		})
	}
}

// A task whose grant was stored, but never answered, goes on from the checkpoint from which it was to resume.
func TestATaskThatWasToResumeWaitsAgain(t *testing.T) {
	h := newStoredHost(t)
	f := fileOf(h.serves("p"))
	h.change("p", func(r lease.Record) (lease.Record, error) {
		r.ResumeFrom, r.LastSafeCheckpoint = "order", "ordered"
		return r, nil
	})
	dir := filepath.Join(h.root.Dir(), "p") // as a browser leaves it that closed cleanly
	h.must(os.MkdirAll(filepath.Join(dir, "Default"), 0o700))
	h.must(os.WriteFile(filepath.Join(dir, "Variations"), []byte(`{"user_experience_metrics.stability.exited_cleanly":true}`), 0o600))
	h.must(os.WriteFile(filepath.Join(dir, "Default", "Preferences"), []byte(`{"profile":{"exit_type":"Normal"}}`), 0o600))
	h.must(os.Remove(h.files.Journal(f.SessionID)))
	h.journal(f.SessionID, checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "ordered", Safe: true, ResumeFrom: "order"})
	journal, err := checkpoint.Read(h.files.Journal(f.SessionID))
	h.must(err)
	f.Manifest.Resumable, f.Resume = true, &api.Resume{From: "order", Checkpoint: "ordered"}
	f.Reason, f.JournalSum = api.ReasonUnanswered, checkpoint.Sum(journal)
	h.must(h.files.Save(f))
	l := h.launch(nil)
	if got := l.adopts("p"); got.State != lease.ResumePending || got.ResumeFrom != "order" || got.LastSafeCheckpoint != "ordered" {
		t.Errorf("%s because of %q, to resume from %q at %q", got.State, got.Reasons, got.ResumeFrom, got.LastSafeCheckpoint)
	}
}

// A session that ended in order, and whose release alone could not be stored, is released,
// unless anything else came in between.
func TestOnlyTheReleaseWasMissing(t *testing.T) {
	inOrder := func(f *sessionfile.File) {
		f.Reason, f.InOrder, f.Outcome, f.CloseMethod = api.ReasonReleased, true, "succeeded", "cdp"
		f.Evidence = lease.Sealed{EvidenceID: "ev_1", SHA256: "ab"}
	}
	for name, tt := range map[string]struct {
		file     func(*sessionfile.File)
		record   func(lease.Record) (lease.Record, error)
		released bool
	}{
		"in order":      {file: inOrder, released: true},
		"not in order":  {file: func(f *sessionfile.File) { inOrder(f); f.InOrder = false }},
		"another token": {file: func(f *sessionfile.File) { inOrder(f); f.Token = 9 }},
		"a run was lost": {file: inOrder, record: func(r lease.Record) (lease.Record, error) {
			r.LostRuns = []lease.Run{{SessionID: "ses_x", Token: 1}}
			return r, nil
		}},
		"suspected since": {file: inOrder, record: func(r lease.Record) (lease.Record, error) {
			return r.Suspect(api.ReasonObserved, lease.Sealed{}, time.Now())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newStoredHost(t)
			f := fileOf(h.serves("p"))
			tt.file(&f)
			h.must(h.files.Save(f))
			if tt.record != nil {
				h.change("p", tt.record)
			}
			l := h.launch(nil)
			got := l.adopts("p")
			if !tt.released {
				if got.State != lease.ManualReview || got.Token != 2 || got.Outcome != "" {
					t.Errorf("%+v", got)
				}
				return
			}
			if got.State != lease.Available || got.Token != 1 || got.Outcome != "succeeded" || got.EvidenceID != "ev_1" || got.Reason != api.ReasonReleased {
				t.Errorf("%+v", got)
			}
			if f := h.file(f.SessionID); f.Ended != "released: released" {
				t.Errorf("its file: %+v", f)
			}
			if _, kept, err := h.root.Kept("p"); err != nil || kept.State != lease.Available {
				t.Errorf("beside the profile: %+v, %v", kept, err)
			}
			h.given("p")
		})
	}
}

// While nothing can be sealed nothing is decided. The lock is given back, and the next try
// goes on.
func TestNoEvidenceNoDecision(t *testing.T) {
	h := newStoredHost(t)
	r := h.serves("p")
	l := h.launch(nil)
	spool := filepath.Join(h.dir, "spool")
	h.must(os.Rename(spool, spool+".away"))
	for range 2 {
		if got := l.adopts("p"); got.State != lease.Quarantined || got.EvidenceID != "" {
			t.Errorf("%+v", got)
		}
		if f := h.file(r.SessionID); f.Ended != "" {
			t.Errorf("ended: %s", f.Ended)
		}
		if locked, err := h.root.Locked("p"); err != nil || locked {
			t.Errorf("locked %v, %v", locked, err)
		}
	}
	if n := strings.Count(h.said.String(), "recovery is not complete: it is tried again"); n != 2 {
		t.Errorf("said %d times", n)
	}
	h.must(os.Rename(spool+".away", spool))
	if got := l.adopts("p"); got.State != lease.ManualReview || got.EvidenceID == "" || h.file(r.SessionID).Ended == "" {
		t.Errorf("%+v", got)
	}
}

// A recovery closes the browser, which loses cookies, and cannot reach the store. The one that is tried again finds no
// browser, and tells a person of the cookies all the same.
func TestARecoveryThatIsTriedAgainKnowsWhatWasLost(t *testing.T) {
	t.Parallel()
	h := newStoredHost(t)
	r := h.serves("p")
	path, err := h.root.Create("p")
	h.must(err)
	fakechrome.Direct(t, path, fakechrome.Script{Crashes: true})
	id := h.browser(r)
	h.store.getting = func(string) error {
		if f, err := h.files.Read(r.SessionID); err == nil && f.Evidence.EvidenceID != "" {
			return lease.ErrUnavailable
		}
		return nil
	}
	l := h.launch(func(o *Options) { o.Presence.(*presence).over = true })
	l.adopts("p")
	f := h.file(r.SessionID)
	if h.lives(id) || f.CookiesLost == "" || f.CloseMethod != "cdp" || f.Ended != "" {
		t.Errorf("after the first try the browser lives: %v, and the file says %+v", h.lives(id), f)
	}
	h.store.getting = nil
	got := l.adopts("p")
	i, err := l.o.Recoverer.Inspection(got)
	h.must(err)
	told := slices.ContainsFunc(i.Facts, func(f api.Fact) bool { return f.Name == table.CookiesWhole && f.Answer == string(table.No) })
	if after := h.file(r.SessionID); got.State != lease.ManualReview || !told || after.Ended == "" {
		t.Errorf("it is %s, the person is told %+v, and the file says %+v", got.State, i.Facts, after)
	}
}

// Without a presence it is not known yet whether a session may go on: it waits.
func TestWithoutAPresenceASessionWaits(t *testing.T) {
	h := newStoredHost(t)
	before := h.serves("p")
	l := h.launch(nil)
	l.presence.err = errors.New("the store is away")
	if got := l.adopts("p"); got.Nonce != before.Nonce || len(l.bundles("p")) > 0 {
		t.Errorf("%+v", got)
	}
	h.given("p")
	l.presence.err = nil
	if got := l.adopts("p"); got.State != lease.ManualReview {
		t.Errorf("%+v", got)
	}
}

// Runs that shared the browser end with it, each in its own file.
func TestAllRunsAreRecovered(t *testing.T) {
	h := newStoredHost(t)
	for _, id := range []string{"ses_1", "ses_2", "ses_3"} {
		r := h.change("p", func(r lease.Record) (lease.Record, error) {
			if r.Token == 2 { // the second one is lost
				r, err := r.EndRun(2, true, api.ReasonHeartbeat, "", lease.Sealed{EvidenceID: "ev_2"}, time.Now())
				return r, err
			}
			r.MaxActiveRuns = 3
			return h.granted(r, id), nil
		})
		h.keep(r)
		if id == "ses_3" {
			break
		}
		f := fileOf(r)
		if id == "ses_2" {
			f.Reason, f.Ended = api.ReasonHeartbeat, "lost before"
		}
		h.must(h.files.Save(f))
		h.journal(id, checkpoint.Entry{Kind: checkpoint.KindStart})
	}
	l := h.launch(nil)
	if r := h.record("p"); len(r.Runs) != 1 || len(r.LostRuns) != 1 || r.SessionID != "ses_1" {
		t.Fatalf("%+v", r)
	}
	if got := l.adopts("p"); got.State != lease.ManualReview || len(got.LostRuns) != 2 {
		t.Errorf("%+v", got)
	}
	for id, want := range map[string]string{"ses_1": "lost (launcher_restarted), recovered: manual_review", "ses_2": "lost before"} {
		if got := h.file(id).Ended; got != want {
			t.Errorf("%s ended: %s", id, got)
		}
	}
}

// A run that was about to end has its bundle. What the other did in their browser after that is
// in a bundle of its own before the browser is closed.
func TestWhatTheOtherRunDidLast(t *testing.T) {
	t.Parallel()
	h := newStoredHost(t)
	shared := h.change("p", func(r lease.Record) (lease.Record, error) { r.MaxActiveRuns = 2; return h.granted(r, "ses_1"), nil })
	h.must(h.files.Save(fileOf(shared)))
	r := h.change("p", func(r lease.Record) (lease.Record, error) { return h.granted(r, "ses_2"), nil })
	h.keep(r)
	ending := fileOf(r)
	ending.Reason, ending.InOrder, ending.Evidence = api.ReasonReleased, true, lease.Sealed{EvidenceID: "ev_2", SHA256: "ab"}
	h.must(h.files.Save(ending))
	id := h.browser(shared)
	l := h.launch(nil)
	got := l.adopts("p")
	if h.lives(id) || got.State != lease.ManualReview || got.EvidenceID == "ev_2" {
		t.Errorf("the browser lives: %v, %+v", h.lives(id), got)
	}
	if m := l.manifest(got.EvidenceID); m.LastScreenshot == "" || m.ProfileID != "p" {
		t.Errorf("%+v", m)
	}
	h.given("p")
}

// What is on disk of a run is taken as it is; what is not is as little as the record says.
func TestWhatIsLeftOfARun(t *testing.T) {
	h := newStoredHost(t)
	seen := time.Now().UTC().Add(-time.Minute).Truncate(time.Second)
	r := lease.Record{ProfileID: "p", HeartbeatAt: seen}
	run := func(id string) lease.Run { return lease.Run{SessionID: id, Token: 4, OwnerWorkerID: "w", TaskID: "t"} }
	file := func(id string) sessionfile.File {
		return sessionfile.File{SessionID: id, Token: 4, SeenAt: seen, Manifest: api.Manifest{ProfileID: "p", WorkerID: "w2", TaskID: "t"}}
	}
	lost, orphan, later := file("ses_lost"), file("ses_orphan"), file("ses_later")
	lost.Reason = api.ReasonHeartbeat
	h.must(h.files.Save(file("ses_served")), h.files.Save(lost), h.files.Save(orphan), h.files.Save(later))
	h.journal("ses_served", checkpoint.Entry{Kind: checkpoint.KindStart}, checkpoint.Entry{Kind: checkpoint.KindStep, Name: "pay"})
	h.must(os.Mkdir(h.files.Journal("ses_damaged"), 0o700))
	l := h.launch(nil)
	// The guard comes while the launcher starts, after it has read the files.
	orphan.Reason, orphan.Evidence, orphan.CloseMethod = api.ReasonOrphaned, lease.Sealed{EvidenceID: "ev_1"}, "cdp"
	other := lost
	other.Reason = "what is on disk is older than what this launcher knows"
	h.must(h.files.Save(orphan), h.files.Save(other), os.WriteFile(filepath.Join(h.dir, "sessions", "ses_later.json"), []byte("{"), 0o600))

	served := file("ses_served")
	served.Reason, served.Unseen = api.ReasonLauncherRestart, true
	later.Reason, later.Unseen = lease.ReasonNotAuthentic, true
	unknown := file("ses_unknown")
	unknown.Manifest.WorkerID, unknown.Reason, unknown.Unseen = "w", api.ReasonLauncherRestart, true
	for _, tt := range []struct {
		name    string
		want    sessionfile.File
		entries int
	}{
		{"it served", served, 2},
		{"its end had begun", lost, 0},
		{"the guard ended its browser", orphan, 0},
		{"its file is damaged since", later, 0},
		{"nothing is on disk", unknown, 0},
	} {
		got, err := l.leftRun(r, run(tt.want.SessionID))
		if err != nil || !reflect.DeepEqual(got.File, tt.want) || len(got.Journal) != tt.entries {
			t.Errorf("%s: %+v with %d entries, %v; want %+v", tt.name, got.File, len(got.Journal), err, tt.want)
		}
	}
	if _, err := l.leftRun(r, run("ses_damaged")); err == nil {
		t.Error("a journal that cannot be read is taken for an empty one")
	}

	r.SessionID = "ses_served"
	r.Runs = []lease.Run{run("ses_served"), run("ses_orphan"), run("ses_lost")}
	r.LostRuns = []lease.Run{run("ses_lost")}
	left, err := l.leftRuns(r)
	h.must(err)
	var ids []string
	for _, run := range left {
		ids = append(ids, run.File.SessionID)
	}
	if !slices.Equal(ids, []string{"ses_lost", "ses_orphan"}) {
		t.Errorf("besides its latest: %v", ids)
	}
	r.Runs = append(r.Runs, run("ses_damaged"))
	if _, err := l.leftRuns(r); err == nil {
		t.Error("a journal that cannot be read is taken for an empty one")
	}
}

// The lock is taken at once where nobody has it. Where some process has Chrome's part and
// is no browser that is known, it is waited for, for a while.
func TestTheLockOfABrowserThatIsGone(t *testing.T) {
	for _, tt := range []struct {
		name     string
		holds    time.Duration // some process has Chrome's part of the lock
		known    bool          // a browser is noted that is gone
		launcher bool          // another launcher has its part
		ends     time.Duration // this launcher does, after
		whole    bool
		took     time.Duration
		err      error
	}{
		{name: "nobody has it", whole: true},
		{name: "another launcher has it", launcher: true, err: profiledir.ErrLocked},
		{name: "a browser that ends by itself", holds: 2 * time.Second, known: true, whole: true, took: 2 * time.Second},
		{name: "some process that stays", holds: time.Hour, took: lockWait},
		{name: "a launcher that ends meanwhile", holds: time.Hour, ends: time.Second, took: time.Second, err: context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				l := h.launch(nil)
				_, err := h.root.Create("p")
				h.must(err)
				lock, err := h.root.Lock("p")
				h.must(err)
				if tt.known {
					h.must(lock.SetRunning(profiledir.Running{PID: 1 << 30, BootID: "of another boot"}))
				}
				if !tt.launcher {
					h.must(lock.Unlock())
				}
				if tt.holds > 0 {
					chromes, err := os.OpenFile(filepath.Join(h.root.Dir(), ".leasehold", "p.lock"), os.O_RDWR|os.O_CREATE, 0o600)
					h.must(err, unix.Flock(int(chromes.Fd()), unix.LOCK_EX))
					time.AfterFunc(tt.holds, func() { _ = chromes.Close() })
				}
				if tt.ends > 0 {
					time.AfterFunc(tt.ends, l.cancel)
				}
				begun := time.Now()
				got, b, err := l.adoptBrowser(nil, lease.Record{ProfileID: "p"}, filepath.Join(h.root.Dir(), "p"), func(checkpoint.Entry) {}, h.log())
				if took := time.Since(begun); b != nil || !errors.Is(err, tt.err) || took < tt.took || took > tt.took+500*time.Millisecond {
					t.Errorf("browser %v, %v, after %v", b, err, took)
				}
				if tt.err == nil {
					if (got.File() != nil) != tt.whole {
						t.Errorf("the whole lock: %v", got.File() != nil)
					}
					h.must(got.Unlock())
				} else if held, err := h.root.Held("p"); err != nil || held != tt.launcher {
					t.Errorf("held %v, %v", held, err)
				}
				h.must(lock.Unlock())
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// A browser on a profile that was decided about while its host was away is closed, after
// its evidence. What was decided stays.
func TestABrowserThatOutlivedItsLease(t *testing.T) {
	t.Parallel()
	h := newStoredHost(t)
	r := h.serves("p")
	h.keep(h.released(r)) // it looks as if it were warm, but for what came since
	id := h.browser(r)
	decided := h.change("p", func(r lease.Record) (lease.Record, error) {
		r, err := r.Suspect(api.ReasonObserved, lease.Sealed{EvidenceID: "ev_1", SHA256: "ab"}, time.Now())
		h.must(err)
		r, err = r.Quarantine(0, time.Now())
		h.must(err)
		return r.Abandon([]string{"its home did not come back"}, lease.Sealed{}, time.Now())
	})
	l := h.launch(nil)
	spool := filepath.Join(h.dir, "spool")
	h.must(os.Rename(spool, spool+".away"))
	if got := l.adopts("p"); got.Nonce != decided.Nonce || !h.lives(id) {
		t.Errorf("without evidence: %+v, the browser lives: %v", got, h.lives(id))
	}
	h.unlocked("p")
	h.must(os.Rename(spool+".away", spool))
	got := l.adopts("p")
	if got.State != lease.ManualReview || got.Token != decided.Token || got.Reason != decided.Reason || got.EvidenceID == "ev_1" {
		t.Errorf("%+v", got)
	}
	if h.lives(id) {
		t.Error("the browser lives")
	}
	m := l.manifest(got.EvidenceID)
	if m.LastScreenshot == "" || m.RecoveryReason != api.ReasonLauncherRestart || m.PreviousEvidenceID != "ev_1" || m.PreviousManifestSHA256 != "ab" {
		t.Errorf("%+v", m)
	}
	h.given("p")
}

// While the launcher was away its profile was contested, and another one is the home: what is
// left here is closed, after its evidence, and nothing else is done with the profile.
func TestABrowserOfAProfileThatWasContested(t *testing.T) {
	t.Parallel()
	h := newStoredHost(t)
	r := h.serves("p")
	id := h.browser(r)
	contested := h.change("p", func(r lease.Record) (lease.Record, error) {
		r.Home = "here"
		return r.Contest(lease.Known{ProfileID: "p", Home: "far", Token: 9}, lease.Record{}, 0, 0, time.Now())
	})
	l := h.launch(nil)
	if got := l.adopts("p"); got.Nonce != contested.Nonce || h.lives(id) {
		t.Errorf("%+v, the browser lives: %v", got, h.lives(id))
	}
	if made := l.bundles("p"); len(made) != 1 {
		t.Errorf("bundles %v", made)
	}
	h.given("p")
}

// A launcher that was killed right after it had started a browser left no note of it. The
// browser is found by the lock that it holds, and it is not let alone, whatever became of
// its profile meanwhile.
func TestABrowserThatNobodyNoted(t *testing.T) {
	t.Parallel()
	for _, decided := range []bool{false, true} {
		h := newStoredHost(t)
		id := h.browser(h.serves("p"))
		h.must(os.Remove(filepath.Join(profiledir.GuardDir(h.root.Dir()), "p.browser")))
		if decided {
			h.change("p", func(r lease.Record) (lease.Record, error) {
				r, err := r.Suspect(api.ReasonObserved, lease.Sealed{EvidenceID: "ev_1", SHA256: "ab"}, time.Now())
				h.must(err)
				r, err = r.Quarantine(0, time.Now())
				h.must(err)
				return r.Abandon([]string{"its home did not come back"}, lease.Sealed{}, time.Now())
			})
		}
		l := h.launch(nil)
		got := l.adopts("p")
		if got.State != lease.ManualReview && got.State != lease.Available || h.lives(id) {
			t.Errorf("decided %v: %+v, the browser lives: %v", decided, got, h.lives(id))
		}
		if m := l.manifest(got.EvidenceID); m.LastScreenshot == "" {
			t.Errorf("decided %v: %+v", decided, m)
		}
		h.given("p")
		l.end()
	}
}

// A warm browser is as it should be, and stays; where the store forgot its profile it is
// closed first. One that a launcher left warm is closed, without another bundle: its
// evidence is that of the release.
func TestWarmBrowsers(t *testing.T) {
	t.Parallel()
	h, free := newReleased(t)
	left := h.browser(free)
	l := h.launch(nil)
	if got := l.adopts("p"); got.Nonce != free.Nonce || h.lives(left) || !strings.Contains(h.said.String(), "a launcher left a warm browser") {
		t.Errorf("%+v, the browser lives: %v", got, h.lives(left))
	}
	if all := l.bundles("p"); len(all) > 0 {
		t.Errorf("%d bundles", len(all))
	}
	h.given("p")

	warm := h.browser(free)
	_, lock := h.parked(l, free)
	since := l.o.Slots.WarmSince("p")
	if got := l.adopts("p"); got.Nonce != free.Nonce || !h.lives(warm) || since.IsZero() || l.o.Slots.WarmSince("p") != since {
		t.Errorf("%+v, the browser lives: %v, warm since %v", got, h.lives(warm), l.o.Slots.WarmSince("p"))
	}
	if strings.Contains(h.said.String(), "recovery is not complete") {
		t.Error("told as a failure")
	}
	later := h.released(h.granted(free, "ses_later"))
	h.must(lock.RaiseFloor(later))
	if got := l.adopts("p"); got.State != lease.Available || got.Token != later.Token || h.lives(warm) || l.o.Slots.Find("p") != nil {
		t.Errorf("%+v, the browser lives: %v", got, h.lives(warm))
	}
	h.given("p")
}

// parked has a launcher keep the browser of a profile that is free warm, as the session ses_p left it.
func (h *host) parked(l *launcher, free lease.Record) (*slots.Slot, *profiledir.Lock) {
	slot := l.o.Slots.Occupy("p")
	lock, b, err := l.adoptBrowser(slot, free, filepath.Join(h.root.Dir(), "p"), slot.Note, h.log())
	h.must(err)
	slot.Locked(lock)
	slot.Opened(b, "ses_p", nil)
	one := &run{}
	slot.Enter(one)
	slot.Leave(one)
	slot.Park("ses_p")
	return slot, lock
}

// What a warm browser did by itself is in a bundle before the browser is closed and its note removed, also
// where the first try to store one failed: by whoever comes next, the same launcher or another one.
func TestWhatAWarmBrowserDidByItselfIsNotLost(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]bool{"the same launcher tries again": false, "the next launcher does": true} {
		for why, does := range map[string]func(h *host, s *slots.Slot, id chrome.Identity){
			slots.WarmDisturbed: func(_ *host, s *slots.Slot, _ chrome.Identity) {
				s.Note(checkpoint.Entry{Kind: checkpoint.KindRequest, URL: "https://shop.example/"})
			},
			slots.WarmGone: func(h *host, _ *slots.Slot, id chrome.Identity) { h.must(unix.Kill(id.PID, unix.SIGKILL)) },
		} {
			t.Run(name+", "+why, func(t *testing.T) {
				t.Parallel()
				h, free := newReleased(t)
				id := h.browser(free)
				l := h.launch(nil)
				l.o.Slots.PreserveBy(func(string, string, string, *browser.Browser) error { return errors.New("the disk is full") })
				slot, _ := h.parked(l, free)
				does(h, slot, id)
				h.await("the browser is given up", func() bool { return l.o.Slots.Find("p") == nil })
				if all := l.bundles("p"); len(all) > 0 {
					t.Fatalf("%d bundles", len(all))
				}
				if next {
					h.must(os.RemoveAll(filepath.Join(h.dir, "spool")))
					l.adopts("p") // nothing can be stored
					if _, noted, err := h.root.Running("p"); err != nil || !noted || h.lives(id) != (why == slots.WarmDisturbed) {
						t.Errorf("without evidence the browser is noted: %v, %v, and lives: %v", noted, err, h.lives(id))
					}
					l.end()
					l = h.launch(nil)
				}
				if got := l.adopts("p"); got.Nonce != free.Nonce || h.lives(id) {
					t.Errorf("%+v, the browser lives: %v", got, h.lives(id))
				}
				if all := l.bundles("p"); len(all) != 1 || all[0].RecoveryReason != api.ReasonWarm {
					t.Errorf("its bundles: %+v", all)
				}
				h.given("p")
			})
		}
	}
}

// The cookies of a warm browser that lost its own stay, also where it could not be closed at once.
func TestTheCookiesOfAWarmBrowserThatLostThem(t *testing.T) {
	t.Parallel()
	for why, kept := range map[string]bool{slots.WarmNetwork: true, slots.WarmDisturbed: false} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			h, free := newReleased(t)
			id := h.browser(free)
			l := h.launch(nil)
			l.o.Slots.PreserveBy(func(string, string, string, *browser.Browser) error { return errors.New("the disk is full") })
			jar := sessionfile.NewJar(h.dir, testkey.Key)
			h.must(jar.KeepAll(t.Context(), oneCookie{}, "p"))
			h.parked(l, free)
			l.o.Slots.CoolProfile("p", why)
			if !h.lives(id) {
				t.Fatal("it is closed without evidence")
			}
			l.adopts("p")
			if h.lives(id) {
				t.Error("it is not closed")
			}
			if cookies, err := jar.Kept("p"); err != nil || (cookies != nil) != kept {
				t.Errorf("%v are kept, %v; want some: %v", cookies, err, kept)
			}
		})
	}
}

// run is a session that used a slot's browser.
type run struct{}

func (*run) Token() lease.Token    { return 1 }
func (*run) Note(checkpoint.Entry) {}
func (*run) Observe(lease.Record)  {}

// oneCookie is a browser with one session cookie, as far as the jar asks.
type oneCookie struct{}

func (oneCookie) Call(_ context.Context, _, _ string, _, result any) error {
	return json.Unmarshal([]byte(`{"cookies":[{"name":"sid","value":"1","domain":"shop.example","path":"/","session":true}]}`), result)
}

// A person who closes the browser while no launcher is there keeps its session cookies, as they were noted last: Chrome has
// none of them by then. Where somebody else closed it, what that kept is newer.
func TestThePersonsCookiesOfABrowserThatIsGone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		exit   string
		change func(*sessionfile.File)
		kept   bool
	}{
		"closed by the person":             {"Normal", func(*sessionfile.File) {}, true},
		"closed, and they are not wanted":  {"Normal", func(f *sessionfile.File) { f.Manifest.SessionCookies = api.CookiesDrop }, false},
		"crashed":                          {"Crashed", func(*sessionfile.File) {}, false},
		"closed at the end that had begun": {"Normal", func(f *sessionfile.File) { f.Reason = api.ReasonReleased }, false},
		"closed by the guard": {"Normal", func(f *sessionfile.File) {
			f.Reason, f.Evidence, f.CloseMethod = api.ReasonOrphaned, lease.Sealed{EvidenceID: "ev_1", SHA256: "ab"}, "cdp"
		}, false},
		"closed at the first try": {"Normal", func(f *sessionfile.File) {
			f.Reason, f.Evidence = api.ReasonLauncherRestart, lease.Sealed{EvidenceID: "ev_1", SHA256: "ab"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStoredHost(t)
			r := h.serves("p")
			f := fileOf(r)
			f.ByHand = &api.ByHand{Holder: "ann"}
			tt.change(&f)
			dir := filepath.Join(h.root.Dir(), "p")
			h.must(h.files.Save(f), os.MkdirAll(filepath.Join(dir, "Default"), 0o700))
			h.must(os.WriteFile(filepath.Join(dir, "Default", "Preferences"), fmt.Appendf(nil, `{"profile":{"exit_type":%q}}`, tt.exit), 0o600))
			h.must(os.WriteFile(filepath.Join(dir, "Variations"), fmt.Appendf(nil, `{"user_experience_metrics.stability.exited_cleanly":%t}`, tt.exit == "Normal"), 0o600))
			h.must(sessionfile.NewJar(h.dir, testkey.Key).Note(t.Context(), oneCookie{}, "p"))
			if got := h.launch(nil).adopts("p"); got.State != lease.ManualReview {
				t.Errorf("%+v", got)
			}
			_, err := os.Stat(filepath.Join(h.dir, "session-cookies", "p.json"))
			if (err == nil) != tt.kept {
				t.Errorf("kept: %v, want it to be %v", err, tt.kept)
			}
			if _, err := os.Stat(filepath.Join(h.dir, "session-cookies", "p.json.noted")); err == nil {
				t.Error("the notes stay")
			}
			h.given("p")
		})
	}
}

// failing has the processes of browsers, of which nothing can be had as long as it fails.
type failing struct {
	browser.Kernel
	find, end bool // they are not found, or it is not known whether they ended
}

func (f *failing) Adopt(id chrome.Identity, o chrome.AdoptOptions) (browser.Process, error) {
	if f.find {
		return nil, unix.EMFILE
	}
	p, err := f.Kernel.Adopt(id, o)
	return unending{p, f}, err
}

func (f *failing) Attach(chrome.Identity, chrome.AdoptOptions) (browser.Process, error) {
	return nil, unix.EMFILE
}

type unending struct {
	browser.Process
	f *failing
}

func (u unending) Close(ctx context.Context, ask func(context.Context) error, bounds chrome.CloseTimeouts) (chrome.CloseMethod, error) {
	method, err := u.Process.Close(ctx, ask, bounds)
	if u.f.end {
		err = errors.Join(err, errors.New("helpers of it may be left"))
	}
	return method, err
}

// A browser of a session check, whose launcher was killed, may not have all cookies of the
// account yet: it is closed, and what the jar keeps stays. So it is if that works only at a second try.
func TestTheBrowserOfASessionCheck(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]failing{"at once": {}, "it is not found at first": {find: true}, "it is not known at first whether it ended": {end: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, free := newReleased(t)
			jar := sessionfile.NewJar(h.dir, testkey.Key)
			h.must(jar.Keep(t.Context(), oneCookie{}, "p"))
			kept, err := filepath.Glob(filepath.Join(h.dir, "session-cookies", "*"))
			if err != nil || len(kept) != 1 {
				t.Fatalf("kept jars %v, error %v; want one", kept, err)
			}
			before, err := os.ReadFile(kept[0])
			h.must(err)
			noted := free
			noted.SessionID = "chk_1"
			left := h.browser(noted)
			ctx, cancel := context.WithCancel(context.Background())
			var work sync.WaitGroup
			defer work.Wait()
			defer cancel()
			processes := first
			l := h.launch(func(o *Options) {
				o.Driver = browser.NewDriver(ctx, &work, browser.Options{Key: testkey.Key, Files: h.files, Root: h.root, Processes: &processes, Log: h.log(), Metrics: prometheus.NewRegistry()})
			})
			if first != (failing{}) {
				if got := l.adopts("p"); got.Nonce != free.Nonce || h.lives(left) != first.find {
					t.Errorf("at first: %+v, the browser lives: %v", got, h.lives(left))
				}
				if running, is, err := h.root.Running("p"); err != nil || !is || running.SessionID != "chk_1" {
					t.Errorf("the browser that may live is noted: %v, as one of %q, %v", is, running.SessionID, err)
				}
				processes = failing{}
			}
			if got := l.adopts("p"); got.Nonce != free.Nonce || h.lives(left) || len(l.bundles("p")) > 0 {
				t.Errorf("%+v, the browser lives: %v", got, h.lives(left))
			}
			if after, err := os.ReadFile(kept[0]); err != nil || string(after) != string(before) {
				t.Errorf("what the jar keeps was changed: %v", err)
			}
			h.given("p")
		})
	}
}

// A browser of a session check, whose launcher was killed, did not end in order: sites may have replaced the
// login, which it had no time to write, and a person decides.
func TestTheBrowserOfASessionCheckIsKilled(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(h *host, id chrome.Identity){
		"with its launcher": func(h *host, id chrome.Identity) {
			h.must(unix.Kill(-id.PID, unix.SIGKILL))
			h.await("it ends", func() bool { return !h.lives(id) })
		},
		"since it does not end when it is asked to": func(h *host, _ chrome.Identity) {
			fakechrome.Direct(h, filepath.Join(h.root.Dir(), "p"), fakechrome.Script{RefusesClose: true, Stubborn: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, free := newReleased(t)
			noted := free
			noted.SessionID = "chk_1"
			left := h.browser(noted)
			how(h, left)
			ctx, cancel := context.WithCancel(context.Background())
			var work sync.WaitGroup
			defer work.Wait()
			defer cancel()
			l := h.launch(func(o *Options) {
				o.Driver = browser.NewDriver(ctx, &work, browser.Options{
					Key: testkey.Key, Files: h.files, Root: h.root, Log: h.log(), Metrics: prometheus.NewRegistry(),
					CloseTimeouts: chrome.CloseTimeouts{Ask: time.Second, Interrupt: 100 * time.Millisecond},
				})
			})
			l.adopts("p")
			if _, open, err := h.root.Running("p"); open || err != nil || h.lives(left) {
				t.Errorf("it is noted as running: %v, %v; it lives: %v", open, err, h.lives(left))
			}
			if got := l.adopts("p"); got.State != lease.ManualReview || got.Reason != lease.ReasonRolledBack {
				t.Errorf("the profile is %s, %s; want it with a person, %s", got.State, got.Reason, lease.ReasonRolledBack)
			}
			h.given("p")
		})
	}
}
