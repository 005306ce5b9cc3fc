package evidence_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/evidence"
)

func TestWhatTheStoreDoesNotHaveYet(t *testing.T) {
	dir, _ := openDir(t)
	store, place := &away{Store: dir, down: true}, t.TempDir()
	spool, err := evidence.OpenSpool(place)
	if err != nil {
		t.Fatal(err)
	}
	a := evidence.NewArchive(spool, store, zerolog.Nop())
	shows := func(when string, bundles int, oldest time.Time) {
		t.Helper()
		size := int64(0)
		sealed, err := filepath.Glob(filepath.Join(place, "*", "manifest.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, manifest := range sealed {
			files, err := os.ReadDir(filepath.Dir(manifest))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				info, err := f.Info()
				if err != nil {
					t.Fatal(err)
				}
				size += info.Size()
			}
		}
		for _, again := range []string{"", ", again"} {
			w, err := a.Waiting()
			if err != nil || w.Bundles != bundles || w.Bytes != size || !w.Oldest.Equal(oldest) {
				t.Errorf("%s%s: %+v, %v; want %d bundles, %d bytes, the oldest of %v", when, again, w, err, bundles, size, oldest)
			}
		}
	}
	begun := time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)
	save := func(evidenceID string, at time.Time) *evidence.Bundle {
		t.Helper()
		b, err := a.New(evidence.Manifest{EvidenceID: evidenceID, ProfileID: "p", At: at})
		if err == nil {
			err = b.Add("a.txt", evidence.KindOutput, "text/plain", []byte("what Chrome said to "+evidenceID))
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	shows("nothing", 0, time.Time{})
	open := save("ev_3", begun)
	shows("one that is not sealed", 0, time.Time{})
	if _, _, err := a.Save(t.Context(), save("ev_2", begun.Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	shows("one", 1, begun.Add(time.Hour))
	if _, _, err := a.Save(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	shows("an older one, that was sealed later", 2, begun)
	store.set(false)
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	shows("the store has all", 0, time.Time{})
}
