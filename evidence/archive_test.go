package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/test/storetest"
)

// away is a store that cannot be reached while down is set.
type away struct {
	evidence.Store
	mu   sync.Mutex
	down bool
	puts int
	lost string // name of a part that is stored and cannot be read
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
	if s.isDown() || name == s.lost {
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
	a := evidence.NewArchive(spool, &away{Store: dir, lost: "journal.jsonl"}, zerolog.Nop())
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

// Readers find a bundle at every moment while it moves to the store.
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

// held is a store that stores nothing: Put waits until it is released, and then fails.
type held struct {
	evidence.Store
	began, release chan struct{}
}

func (s held) Put(context.Context, *evidence.Sealed) error {
	s.began <- struct{}{}
	<-s.release
	return errAway
}

// TestAnUploadIsOverWhenTheBundleIsStored: retention removes bundles as soon as the upload of their
// anchor succeeds. That has to be true even if another call is uploading it.
func TestAnUploadIsOverWhenTheBundleIsStored(t *testing.T) {
	t.Parallel()
	dir, _ := openDir(t)
	store := held{dir, make(chan struct{}, 2), make(chan struct{})}
	spool := storetest.Spool(t)
	storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	a := evidence.NewArchive(spool, store, zerolog.Nop())
	results := make(chan error, 2)
	flush := func() { results <- a.Flush(t.Context()) }
	go flush()
	<-store.began
	ended, end := context.WithCancel(t.Context())
	end()
	if err := a.Flush(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("while another call stores the bundle: %v", err)
	}
	go flush()
	close(store.release)
	for range 2 {
		if err := <-results; !errors.Is(err, errAway) {
			t.Errorf("nobody could store the bundle: %v", err)
		}
	}
}
