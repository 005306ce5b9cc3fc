package evidence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/evidence/storetest"
)

func openDir(t *testing.T) (evidence.Store, storetest.Damage) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := evidence.OpenDirStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return s, storetest.Damage{
		Change: func(t *testing.T, _, evidenceID, name string) {
			path := filepath.Join(dir, evidenceID, name)
			b, err := os.ReadFile(path)
			must(t, err)
			b[len(b)-2] ^= 1
			must(t, os.WriteFile(path, b, 0o600))
		},
		Remove: func(t *testing.T, _, evidenceID, name string) {
			must(t, os.Remove(filepath.Join(dir, evidenceID, name)))
		},
		Swap: func(t *testing.T, _, a, b string) {
			must(t, os.Rename(filepath.Join(dir, a), filepath.Join(dir, "x")))
			must(t, os.Rename(filepath.Join(dir, b), filepath.Join(dir, a)))
			must(t, os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, b)))
		},
	}
}

func TestDirStore(t *testing.T) { storetest.Run(t, openDir) }

func TestVerifyTellsAForkFromAGap(t *testing.T) {
	s, _ := openDir(t)
	spool := storetest.Spool(t)
	one, first := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	two, _ := storetest.Seal(t, spool, "p", "ev_2", 2, first)
	three, head := storetest.Seal(t, spool, "p", "ev_3", 2, first)
	for _, b := range []*evidence.Sealed{one, two, three} {
		if err := s.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	r, err := evidence.Verify(t.Context(), s, "p", head)
	if err != nil || !r.OK() || !slices.Equal(r.Unlinked, []string{"ev_2"}) || r.Bundles != 3 {
		t.Errorf("%+v, %v; want nothing wrong and ev_2 unlinked", r, err)
	}
	if len(r.Forks) != 1 || r.Forks[0].Previous != "ev_1" || !slices.Equal(r.Forks[0].Bundles, []string{"ev_2", "ev_3"}) || r.Head != "ev_3" || !r.HeadKnown {
		t.Errorf("forks: %+v; want ev_2 and ev_3 after ev_1", r.Forks)
	}
	// Each side is guarded: the one that lost, too.
	if err := s.Delete(t.Context(), one.Manifest); err != nil {
		t.Fatal(err)
	}
	r, err = evidence.Verify(t.Context(), s, "p", head)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Problem != evidence.BundleMissing || r.Findings[0].EvidenceID != "ev_1" {
		t.Errorf("%+v, %v; want ev_1 missing, once", r, err)
	}
}

func TestVerifyFindsATokenThatFell(t *testing.T) {
	s, _ := openDir(t)
	spool := storetest.Spool(t)
	one, first := storetest.Seal(t, spool, "p", "ev_1", 7, evidence.Link{})
	two, head := storetest.Seal(t, spool, "p", "ev_2", 6, first)
	for _, b := range []*evidence.Sealed{one, two} {
		if err := s.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	r, err := evidence.Verify(t.Context(), s, "p", head)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Problem != evidence.BundleReordered || r.Findings[0].EvidenceID != "ev_1" {
		t.Errorf("%+v, %v; want ev_1 reordered", r, err)
	}
}

func newBundle(t *testing.T, s *evidence.Spool, evidenceID string) *evidence.Bundle {
	t.Helper()
	b, err := s.New(evidence.Manifest{EvidenceID: evidenceID, ProfileID: "p"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBundleFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, err := evidence.OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := newBundle(t, s, "ev_1")
	if err := b.Add("a.txt", evidence.KindOutput, "text/plain", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if ids, err := s.Sealed(); err != nil || len(ids) != 0 {
		t.Errorf("sealed too early: %v, %v", ids, err)
	}
	if _, err := s.Open("ev_1"); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("an unsealed bundle opens: %v", err)
	}
	if _, err := s.Part(t.Context(), "ev_1", "a.txt"); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("a part of an unsealed bundle reads: %v", err)
	}
	m, sum, err := b.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if again, sum2, err := b.Seal(); err != nil || sum2 != sum || again.EvidenceID != m.EvidenceID {
		t.Errorf("sealed again: %v %v", sum2, err)
	}
	if err := b.Add("b.txt", evidence.KindOutput, "text/plain", nil); err == nil {
		t.Error("a part was added after the seal")
	}
	if err := b.Discard(); err == nil {
		t.Error("a sealed bundle was discarded")
	}
	if ids, err := s.Sealed(); err != nil || !slices.Equal(ids, []string{"ev_1"}) {
		t.Errorf("sealed: %v, %v", ids, err)
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPartNames(t *testing.T) {
	b := newBundle(t, storetest.Spool(t), "ev_1")
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{"screenshot-1.jpg", true}, {"screenshot-1.jpg", false}, {"_x", true}, {"manifest.json", false}, {"", false}, {".", false},
		{"..", false}, {".hidden", false}, {"a/b", false}, {"../x", false}, {"a\x00", false}, {"a b", false},
	} {
		if err := b.Add(c.name, evidence.KindOutput, "", []byte("x")); (err == nil) != c.ok {
			t.Errorf("Add(%q): %v", c.name, err)
		}
	}
	b.AddMissing("screenshot-1.jpg", evidence.KindScreenshot, "late")
	b.AddMissing("lock.json", evidence.KindLock, "")
	m, _, err := b.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Parts) != 3 || m.Parts[0].Missing != "" || m.Parts[2].Missing == "" {
		t.Errorf("parts: %+v", m.Parts)
	}
}

func TestNewRefusesBadIDs(t *testing.T) {
	s := storetest.Spool(t)
	newBundle(t, s, "ev_1")
	for _, m := range []evidence.Manifest{
		{}, {ProfileID: "a/b"}, {ProfileID: "p", EvidenceID: "../x"}, {ProfileID: "p", EvidenceID: ".key"}, {ProfileID: "p", EvidenceID: "ev_1"},
	} {
		if _, err := s.New(m); err == nil {
			t.Errorf("New(%+v) was not refused", m)
		}
	}
	b, err := s.New(evidence.Manifest{ProfileID: "p"})
	if err != nil || b.ID() == "" {
		t.Errorf("a bundle without an id: %q, %v", b.ID(), err)
	}
}

func TestDiscard(t *testing.T) {
	s := storetest.Spool(t)
	b := newBundle(t, s, "ev_1")
	if err := errors.Join(b.Add("a", "output", "", []byte("x")), b.Discard(), b.Discard()); err != nil {
		t.Fatal(err)
	}
	newBundle(t, s, "ev_1") // the id is free again
	if _, _, err := b.Seal(); err == nil {
		t.Error("a discarded bundle was sealed")
	}
	if err := b.Add("b", "output", "", nil); err == nil {
		t.Error("a discarded bundle took a part")
	}
}

// The manifest's JSON is part of what outsiders see.
func TestManifestJSON(t *testing.T) {
	s := storetest.Spool(t)
	at := time.Date(2026, 6, 18, 9, 39, 5, 0, time.UTC)
	b, err := s.New(evidence.Manifest{
		EvidenceID: "ev_1", ProfileID: "profile_us_018", SessionID: "s", AccountID: "a", LauncherID: "l", At: at,
		OldWorkerID: "worker-7", OldTaskID: "task_1", LeaseToken: 42, LastHeartbeatAt: at, DetectedStaleAt: at, LastKnownStep: "submit",
		LastKnownURL: "https://example.com/?token=s3cret", ProxyID: "proxy", ProfileDir: "/profiles/x", RecoveryReason: "heartbeat_timeout",
		LastScreenshot: "not yet", Parts: []evidence.Part{{Name: "not yet"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add("a.txt", evidence.KindOutput, "text/plain", []byte("x")); err != nil {
		t.Fatal(err)
	}
	b.AddMissing("b.txt", evidence.KindOutput, "gone")
	if _, _, err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	raw, err := s.Manifest(t.Context(), "ev_1")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"evidence_id":"ev_1","profile_id":"profile_us_018","session_id":"s","account_id":"a","launcher_id":"l",` +
		`"at":"2026-06-18T09:39:05Z","old_worker_id":"worker-7","old_task_id":"task_1","lease_token":42,` +
		`"last_heartbeat_at":"2026-06-18T09:39:05Z","detected_stale_at":"2026-06-18T09:39:05Z","last_known_step":"submit",` +
		`"last_known_url":"https://example.com/?token=REDACTED","last_screenshot":"","proxy_id":"proxy","profile_dir":"/profiles/x",` +
		`"recovery_reason":"heartbeat_timeout","previous_evidence_id":"","previous_manifest_sha256":"","pages":[],` +
		`"parts":[{"name":"a.txt","kind":"output","media_type":"text/plain","bytes":1,` +
		`"sha256":"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"},` +
		`{"name":"b.txt","kind":"output","bytes":0,"sha256":"","missing":"gone"}]}`
	var got bytes.Buffer
	if err := json.Compact(&got, raw); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("manifest\n got %s\nwant %s", got.String(), want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("ev_1", []byte(`{"evidence_id":"ev_1","parts":[{}],"pages":null}`))
	f.Add("ev_1", []byte(`{`))
	f.Fuzz(func(t *testing.T, evidenceID string, raw []byte) {
		m, err := evidence.Decode(evidenceID, raw)
		if err == nil && m.EvidenceID != evidenceID || err != nil && !errors.Is(err, evidence.ErrDamaged) {
			t.Fatalf("%+v, %v", m, err)
		}
	})
}

// away is a store that cannot be reached while down is set.
type away struct {
	evidence.Store
	mu   sync.Mutex
	down bool
	puts int
	lose string // part that Put stores and Part does not find
}

var errAway = errors.New("nobody answers")

func (s *away) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *away) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *away) Put(ctx context.Context, b *evidence.Sealed) error {
	if s.isDown() {
		return errAway
	}
	s.mu.Lock()
	s.puts++
	s.mu.Unlock()
	return s.Store.Put(ctx, b)
}

func (s *away) Manifest(ctx context.Context, evidenceID string) ([]byte, error) {
	if s.isDown() {
		return nil, errAway
	}
	return s.Store.Manifest(ctx, evidenceID)
}

func (s *away) Part(ctx context.Context, evidenceID, name string) ([]byte, error) {
	if s.isDown() || name == s.lose {
		return nil, errAway
	}
	return s.Store.Part(ctx, evidenceID, name)
}

func (s *away) List(ctx context.Context, profileID string) ([]evidence.Manifest, error) {
	if s.isDown() {
		return nil, errAway
	}
	return s.Store.List(ctx, profileID)
}

func TestArchiveWaitsForItsStore(t *testing.T) {
	dir, _ := openDir(t)
	store := &away{Store: dir, down: true}
	spool := storetest.Spool(t)
	var log bytes.Buffer
	a := evidence.NewArchive(spool, store, zerolog.New(&log))

	save := func(evidenceID string, previous evidence.Link) evidence.Link {
		t.Helper()
		b, err := a.New(evidence.Manifest{
			EvidenceID: evidenceID, ProfileID: "p", PreviousEvidenceID: previous.EvidenceID, PreviousManifestSHA256: previous.SHA256,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Add("a.txt", evidence.KindOutput, "text/plain", []byte(evidenceID)); err != nil {
			t.Fatal(err)
		}
		m, sum, err := a.Save(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum}
	}
	readable := func(when string, evidenceID string) {
		t.Helper()
		if _, err := a.Manifest(t.Context(), evidenceID); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if b, err := a.Part(t.Context(), evidenceID, "a.txt"); err != nil || string(b) != evidenceID {
			t.Errorf("%s: %q, %v", when, b, err)
		}
	}
	waiting := func(want ...string) {
		t.Helper()
		if ids, err := spool.Sealed(); err != nil || !slices.Equal(ids, want) {
			t.Errorf("in the spool: %v, %v; want %v", ids, err, want)
		}
	}

	first := save("ev_1", evidence.Link{})
	readable("away", "ev_1")
	waiting("ev_1")
	if !bytes.Contains(log.Bytes(), []byte(`"evidence":"ev_1"`)) {
		t.Errorf("the log does not say that evidence waits: %s", log.String())
	}
	if list, err := a.List(t.Context(), "p"); !errors.Is(err, errAway) || len(list) != 1 {
		t.Errorf("listed %v, %v; want what the spool has, and the store's error", list, err)
	}
	if _, err := a.Manifest(t.Context(), "ev_2"); !errors.Is(err, errAway) {
		t.Errorf("what may be in the store is not simply not found: %v", err)
	}
	if err := a.Flush(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("flushed to nowhere: %v", err)
	}

	store.set(false)
	head := save("ev_2", first)
	waiting("ev_1")
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting()
	readable("stored", "ev_1")
	readable("stored", "ev_2")
	if r, err := evidence.Verify(t.Context(), a, "p", head); err != nil || !r.OK() || r.Bundles != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := a.Flush(t.Context()); err != nil || store.puts != 2 {
		t.Errorf("flushed nothing: %v after %d puts", err, store.puts)
	}
}

func TestArchiveKeepsWhatCannotBeReadBack(t *testing.T) {
	dir, _ := openDir(t)
	spool := storetest.Spool(t)
	storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	a := evidence.NewArchive(spool, &away{Store: dir, lose: "journal.jsonl"}, zerolog.Nop())
	if err := a.Flush(t.Context()); err == nil {
		t.Error("a bundle that does not read back counts as stored")
	}
	if ids, err := spool.Sealed(); err != nil || len(ids) != 1 {
		t.Errorf("in the spool: %v, %v", ids, err)
	}
	if err := evidence.NewArchive(spool, dir, zerolog.Nop()).Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if ids, err := spool.Sealed(); err != nil || len(ids) != 0 {
		t.Errorf("in the spool: %v, %v", ids, err)
	}
}

// Readers find a bundle at every moment of its way to the store.
func TestArchiveReadsWhileMoving(t *testing.T) {
	dir, _ := openDir(t)
	spool := storetest.Spool(t)
	a := evidence.NewArchive(spool, dir, zerolog.Nop())
	for _, evidenceID := range []string{"ev_1", "ev_2", "ev_3", "ev_4"} {
		storetest.Seal(t, spool, "p", evidenceID, 1, evidence.Link{})
	}
	var movers, readers sync.WaitGroup
	moved := make(chan struct{})
	for range 2 {
		movers.Go(func() {
			if err := a.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for {
				if list, err := a.List(t.Context(), "p"); err != nil || len(list) != 4 {
					t.Errorf("listed %d, %v", len(list), err)
					return
				}
				if _, err := a.Part(t.Context(), "ev_4", "journal.jsonl"); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-moved:
					return
				default:
				}
			}
		})
	}
	movers.Wait()
	close(moved)
	readers.Wait()
}

func TestSalt(t *testing.T) {
	dir := t.TempDir()
	salt := func(profileID string) []byte {
		t.Helper()
		s, err := evidence.OpenSpool(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s.Salt(profileID)
	}
	one := salt("p")
	if !bytes.Equal(one, salt("p")) || bytes.Equal(one, salt("q")) || len(one) != 32 {
		t.Error("a salt is not its profile's own, for good")
	}
	if err := os.WriteFile(filepath.Join(dir, ".key"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := evidence.OpenSpool(dir); err == nil {
		t.Error("a short key was taken")
	}
}
