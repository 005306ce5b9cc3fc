package session

import (
	"errors"
	"io/fs"
	"sync"
	"testing"
	"time"

	"leasehold/launcher/sessionfile"
)

// TestOnlyASessionsOwnCapabilityIsLearned: the next launcher has the hash alone, and whoever shows
// another secret does not become the one who is told where the session is.
func TestOnlyASessionsOwnCapabilityIsLearned(t *testing.T) {
	t.Parallel()
	p := newAlone(t, task("one"))
	next := newKept(p.host, p.terms, p.life, "", nil)
	next.change(func(f *sessionfile.File) { *f = p.file.get() })
	for _, shown := range []struct{ capability, known string }{{"", ""}, {"another", ""}, {"s3cret", "s3cret"}, {"another", "s3cret"}} {
		next.learn(shown.capability)
		if got := next.shown(); got != shown.known {
			t.Errorf("after %q was shown: %q, want %q", shown.capability, got, shown.known)
		}
	}
}

// TestAFileSaysWhenTheWorkerWasSeen: each time that it is written. That of an ephemeral session is
// never written.
func TestAFileSaysWhenTheWorkerWasSeen(t *testing.T) {
	t.Parallel()
	p := newAlone(t, task("one"))
	seen := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for range 2 {
		seen = seen.Add(time.Minute)
		p.life.update(func(f *facts) { f.seenAt = seen })
		if err := p.file.save(); err != nil {
			t.Fatal(err)
		}
		if f, err := p.host.o.Files.Read("ses_1"); err != nil || !f.SeenAt.Equal(seen) || f.Token != 7 {
			t.Errorf("seen %v, want %v; token %d, %v", f.SeenAt, seen, f.Token, err)
		}
	}
	other := newAlone(t, task("one"))
	other.terms.ephemeral = true
	copied := newKept(other.host, other.terms, other.life, "s3cret", nil)
	if err := copied.save(); err != nil {
		t.Error(err)
	}
	if _, err := other.host.o.Files.Read("ses_1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an ephemeral session has a file: %v", err)
	}
}

// TestTheLastSaveIsTheLastOnDisk: several who change and save the file at once leave on disk what
// all of them changed.
func TestTheLastSaveIsTheLastOnDisk(t *testing.T) {
	t.Parallel()
	p := newAlone(t, task("one"))
	for round := range 50 {
		var saving sync.WaitGroup
		for range 4 {
			saving.Go(func() {
				p.file.change(func(f *sessionfile.File) { f.Token++ })
				if err := p.file.save(); err != nil {
					t.Error(err)
				}
			})
		}
		saving.Wait()
		if f, err := p.host.o.Files.Read("ses_1"); err != nil || f.Token != p.file.get().Token {
			t.Fatalf("round %d: %d on disk, want %d (%v)", round, f.Token, p.file.get().Token, err)
		}
	}
}
