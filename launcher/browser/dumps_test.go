package browser

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"leasehold/internal/test/testkey"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// crash writes the files that Crashpad writes for one crash.
func crash(t *testing.T, dir, name string, size int, at time.Time) {
	t.Helper()
	pending := filepath.Join(dir, "pending")
	if err := os.MkdirAll(pending, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{name + ".dmp": make([]byte, size), name + ".meta": []byte("m")} {
		if err := os.WriteFile(filepath.Join(pending, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(pending, name+".dmp"), at, at); err != nil {
		t.Fatal(err)
	}
}

func TestDumpsAreBounded(t *testing.T) {
	dir := t.TempDir()
	begun := time.Now().Add(-time.Hour).Truncate(time.Second).UTC()
	const crashes = maxSessionDumps + 7
	for i := range crashes {
		crash(t, dir, fmt.Sprintf("c%02d", i), 100+i, begun.Add(time.Duration(i)*time.Minute))
		for range 2 {
			if err := trimDumps(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	found, err := dumpsIn(dir)
	if err != nil || len(found) != crashes {
		t.Fatalf("%d dumps, %v", len(found), err)
	}
	for i, d := range found {
		removed := i >= maxSessionDumps
		if filepath.Base(d.File) != fmt.Sprintf("c%02d.dmp", i) || d.Bytes != int64(100+i) || !d.At.Equal(begun.Add(time.Duration(i)*time.Minute)) || d.Removed != removed {
			t.Errorf("dump %d: %+v", i, d)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "pending", "*"))
	if err != nil || len(left) != 2*maxSessionDumps {
		t.Errorf("%d files, %v: %v", len(left), left, err)
	}
	if none, err := dumpsIn(filepath.Join(dir, "nowhere")); len(none) != 0 || err != nil {
		t.Errorf("no folder: %v, %v", none, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, dumpsUnfinished), 0o700); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, dumpsUnfinished, "half.dmp")
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		time.AfterFunc(30*time.Millisecond, func() {
			if err := os.Rename(half, filepath.Join(dir, "pending", "half.dmp")); err != nil {
				t.Error(err)
			}
		})
		if found, err := awaitDumps(t.Context(), dir); err != nil || len(found) != crashes+1 {
			t.Errorf("the one that was being written: %d, %v", len(found), err)
		}
	})
}

func TestSurplusDumps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var found []Dump
		for range rapid.IntRange(0, 60).Draw(t, "dumps") {
			found = append(found, Dump{Bytes: rapid.Int64Range(0, 40<<20).Draw(t, "bytes"), Removed: rapid.IntRange(0, 5).Draw(t, "removed") == 0})
		}
		over := map[Dump]int{}
		for _, d := range surplusDumps(found) {
			if d.Removed {
				t.Fatal("removed twice")
			}
			over[d]++
		}
		kept, bytes := 0, int64(0)
		for i := len(found) - 1; i >= 0; i-- { // dumps of the same size are equal, and the later one is surplus
			d := found[i]
			if d.Removed {
				continue
			}
			if over[d] > 0 {
				over[d]--
				continue
			}
			kept++
			bytes += d.Bytes
		}
		if kept > maxSessionDumps || bytes > maxSessionDumpBytes {
			t.Fatalf("%d dumps of %d bytes are kept", kept, bytes)
		}
		if len(found) > 0 && !found[0].Removed && kept == 0 { // no single dump is larger than the bound
			t.Fatal("the first is not kept")
		}
	})
}

// TestDumpsAreRemovedOnceTheirEvidenceNamesThem: dumps are removed only if there are
// too many, and only if their session's evidence is stored.
func TestDumpsAreRemovedOnceTheirEvidenceNamesThem(t *testing.T) {
	files := sessionfile.NewDir(t.TempDir(), testkey.Key)
	d := NewDriver(t.Context(), &sync.WaitGroup{}, Options{Files: files, Metrics: prometheus.NewRegistry()})
	var all []sessionfile.File
	session := func(id string, age time.Duration, ended string, evidence string, size int) string {
		all = append(all, sessionfile.File{SessionID: id, Ended: ended, Evidence: lease.Sealed{EvidenceID: evidence}, AcquiredAt: time.Now().Add(-age)})
		dir, err := files.MakeDumps(id)
		if err != nil {
			t.Fatal(err)
		}
		if size > 0 {
			crash(t, dir, "c", 1, time.Now())
			if err := os.Truncate(filepath.Join(dir, "pending", "c.dmp"), int64(size)); err != nil { // a hole
				t.Fatal(err)
			}
		}
		return dir
	}
	const half = maxEndedDumpBytes/2 + 1
	newest := session("newest", time.Minute, "released", "ev1", half)
	living := session("living", 2*time.Minute, "", "", half)
	shared := session("shared", 3*time.Minute, "released", "ev2", 0)
	d.driven[d.undriven(nil, nil, shared, "shared")] = true
	unstored := session("unstored", 4*time.Minute, "recovering", "", half)
	older := session("older", 5*time.Minute, "released", "ev3", half)
	small := session("small", 6*time.Minute, "released", "ev4", 1000)
	empty := session("empty", 7*time.Minute, "released", "ev5", 0)
	if err := d.TidyDumps(all); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{newest: true, living: true, shared: true, unstored: true, older: false, small: true, empty: false} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v, want it kept: %v", filepath.Base(dir), err, want)
		}
	}
	if err := files.Remove("newest"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(newest); err == nil {
		t.Error("a session that is forgotten keeps its dumps")
	}
}

func TestUploadsDumps(t *testing.T) {
	dir := t.TempDir()
	if uploadsDumps(dir) {
		t.Error("without settings")
	}
	for options, want := range map[byte]bool{0: false, 1: true, 2: false} {
		settings := append([]byte("sdPC\x01\x00\x00\x00"), options, 0, 0, 0, 0, 0, 0, 0)
		if err := os.WriteFile(filepath.Join(dir, "settings.dat"), settings, 0o600); err != nil {
			t.Fatal(err)
		}
		if uploadsDumps(dir) != want {
			t.Errorf("options %d", options)
		}
	}
}

// The folder belongs to the browser's user, who may put anything there to have the launcher
// write elsewhere.
func TestTrimmingLeavesTheFolderForNothing(t *testing.T) {
	const stranger = 54321
	for name, plant := range map[string]func(dir, elsewhere string) error{
		"a hard link":        func(dir, elsewhere string) error { return os.Link(elsewhere+"/secret", dir+"/pending/z.dmp") },
		"a link":             func(dir, elsewhere string) error { return os.Symlink(elsewhere+"/secret", dir+"/pending/z.dmp") },
		"a link as a folder": func(dir, elsewhere string) error { return os.Symlink(elsewhere, dir+"/"+dumpsRemoved) },
		"a link as a stub": func(dir, elsewhere string) error {
			return errors.Join(os.Mkdir(dir+"/"+dumpsRemoved, 0o700), os.Symlink(elsewhere+"/secret", dir+"/"+dumpsRemoved+"/c20.dmp"))
		},
		"nothing of the kind": func(string, string) error { return nil },
	} {
		dir, elsewhere := t.TempDir(), t.TempDir()
		secret := filepath.Join(elsewhere, "secret")
		if err := os.WriteFile(secret, []byte("SECRET"), 0o600); err != nil {
			t.Fatal(err)
		}
		begun := time.Now().Add(-time.Hour)
		for i := range maxSessionDumps + 1 {
			crash(t, dir, fmt.Sprintf("c%02d", i), 10, begun.Add(time.Duration(i)*time.Second))
		}
		if err := plant(dir, elsewhere); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{dir, filepath.Join(dir, "pending"), filepath.Join(dir, "pending", "c20.dmp")} {
			if err := os.Chown(at, stranger, stranger); err != nil {
				t.Fatal(err)
			}
		}
		err := trimDumps(dir)
		if b, failed := os.ReadFile(secret); failed != nil || string(b) != "SECRET" {
			t.Errorf("%s: the secret is %q, %v", name, b, failed)
		}
		if left, failed := os.ReadDir(elsewhere); failed != nil || len(left) != 1 {
			t.Errorf("%s: elsewhere there is %v, %v", name, left, failed)
		}
		if name == "nothing of the kind" && err != nil {
			t.Error(err)
		}
	}
}
