package profiledir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

// TestACopyInThePlaceOfTheDirectory: whoever puts another directory, or an older state of it, in the
// place of a profile's is noticed, and those that the launcher itself puts there are believed.
func TestACopyInThePlaceOfTheDirectory(t *testing.T) {
	at := func(dir string) string { return filepath.Join(dir, "Local State") }
	for name, tt := range map[string]struct {
		// between is what happens after the end of the second session. before is a copy of the
		// directory from the end of the first, without.
		between func(w *marked) error
		why     string
	}{
		"nothing":                              {func(*marked) error { return nil }, ""},
		"a copy of before":                     {func(w *marked) error { return w.put(w.before) }, `mark "1 `},
		"a copy of before, over it":            {func(w *marked) error { return w.over(w.before) }, `mark "1 `},
		"one that never was a profile":         {func(w *marked) error { return w.put(w.dir("foreign")) }, `mark ""`},
		"one with a damaged mark":              {func(w *marked) error { return os.WriteFile(w.mark(), []byte("two\n"), 0o600) }, `mark "two"`},
		"a copy of now":                        {func(w *marked) error { return w.put(w.copied("now")) }, ""},
		"an end that was cut":                  {func(w *marked) error { _, err := w.r.renewMark("p", w.path); return err }, ""},
		"two ends of which none is noted":      {func(w *marked) error { return os.WriteFile(w.mark(), []byte("4 of two\n"), 0o600) }, `mark "4 of two"`},
		"another profile's, with as many ends": {func(w *marked) error { return w.put(w.another(2)) }, `mark "2 `},
		"another profile's, that is one ahead": {func(w *marked) error { return w.put(w.another(3)) }, `mark "3 `},
		"a restore": {func(w *marked) error {
			_, err := w.lock.Exchange(t.Context(), time.Now(), nil, copyOf(w.before))
			return errors.Join(err, w.lock.BelieveDirectory())
		}, ""},
		"a restore that was cut short": {func(w *marked) error {
			_, err := w.lock.Exchange(t.Context(), time.Now(), nil, copyOf(w.before))
			return err
		}, "a restore was cut short"},
		"a restore that was undone": {func(w *marked) error {
			return w.undone(copyOf(w.before))
		}, ""},
		"a restore that was undone, of a copy of before": {func(w *marked) error {
			return errors.Join(w.put(w.before), w.undone(copyOf(w.before)))
		}, `mark "1 `},
		"a restore that found no place": {func(w *marked) error {
			_, err := w.lock.Exchange(t.Context(), time.Now(), nil, func(context.Context, string) (map[string][]byte, error) { return nil, nil })
			if err == nil {
				return errors.New("it has a place")
			}
			return nil
		}, ""},
		"an archive, and an import": {func(w *marked) error {
			_, err := w.lock.Archive(time.Now(), nil)
			if err == nil {
				_, err = w.lock.Make(t.Context(), copyOf(w.before), func(string, map[string][]byte) error { return nil })
			}
			return err
		}, ""},
		"a removal, and a new profile": {func(w *marked) error {
			err := os.RemoveAll(w.path)
			if err == nil {
				_, err = w.r.Create("p")
			}
			return err
		}, ""},
		"an end after which not everything is there": {func(w *marked) error { return w.lock.DisbelieveDirectory("the disk is full:\n0 bytes") }, "the disk is full:\n0 bytes"},
		"the same, and a person decides": {func(w *marked) error {
			return errors.Join(w.lock.DisbelieveDirectory("the disk is full"), w.lock.BelieveDirectory())
		}, ""},
		"the same, and the directory is removed": {func(w *marked) error {
			return errors.Join(w.lock.DisbelieveDirectory("the disk is full"), os.RemoveAll(w.path), func() error { _, err := w.r.Create("p"); return err }())
		}, ""},
		"a person who looked": {func(w *marked) error {
			return errors.Join(w.put(w.before), w.lock.Renew(lease.Record{ProfileID: "p", Token: 9}))
		}, ""},
	} {
		w := newMarked(t)
		w.must(os.WriteFile(at(w.path), []byte("first"), 0o600))
		w.must(w.r.Store("p"))
		w.before = w.copied("before")
		w.must(os.WriteFile(at(w.path), []byte("second"), 0o600))
		w.must(w.r.Store("p"))
		w.must(tt.between(w))
		why, err := w.r.Replaced("p")
		if err != nil || (why == "") != (tt.why == "") || !strings.Contains(why, tt.why) {
			t.Errorf("%s: %q, %v, want %q", name, why, err, tt.why)
		}
		// The next end is an end like any other, unless a person has to look first.
		var missing *NotStoredError
		if err := w.r.Store("p"); (err == nil) != (tt.why == "") || err != nil && !errors.As(err, &missing) {
			t.Errorf("%s: the next end: %v", name, err)
		}
		if why, err := w.r.Replaced("p"); (why == "") != (tt.why == "") || err != nil {
			t.Errorf("%s, after the next end: %q, %v", name, why, err)
		}
	}
}

// TestADirectoryIsSwappedUnderItsBrowser: what the browser wrote is elsewhere then, so the end is
// none in order, and neither directory is believed afterwards.
func TestADirectoryIsSwappedUnderItsBrowser(t *testing.T) {
	for name, back := range map[string]bool{"it stays so": false, "the first one is put back": true} {
		w := newMarked(t)
		w.must(w.r.Store("p"))
		w.must(w.lock.SetRunning(Running{PID: 1, BootID: boottime.ID()}))
		w.must(w.r.Store("p")) // as for a browser that stays open
		aside := filepath.Join(t.TempDir(), "aside")
		copied := w.copied("copy")
		w.must(os.Rename(w.path, aside))
		w.must(os.Rename(copied, w.path))
		var missing *NotStoredError
		if err := w.r.Store("p"); !errors.As(err, &missing) || !strings.Contains(missing.Why, "another directory is in the place") {
			t.Errorf("%s: %v", name, err)
		}
		if back {
			w.must(errors.Join(os.RemoveAll(w.path), os.Rename(aside, w.path)))
		}
		if why, err := w.r.Replaced("p"); why == "" || err != nil {
			t.Errorf("%s: it is believed, %v", name, err)
		}
	}
	// A browser of another boot says nothing: devices have other numbers then.
	w := newMarked(t)
	w.must(w.lock.SetRunning(Running{PID: 1, BootID: "another"}))
	w.must(w.put(w.copied("copy")))
	w.must(w.r.Store("p"))
}

// marked is a profile, locked.
type marked struct {
	t            *testing.T
	r            *Root
	lock         *Lock
	path, before string
}

func newMarked(t *testing.T) *marked {
	t.Helper()
	w := &marked{t: t, r: open(t)}
	var err error
	w.path, err = w.r.Create("p")
	w.must(err)
	w.lock, err = w.r.Lock("p")
	w.must(err)
	w.must(os.WriteFile(filepath.Join(w.path, "Local State"), nil, 0o600))
	t.Cleanup(func() { w.must(w.lock.Unlock()) })
	return w
}

func (w *marked) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *marked) mark() string { return filepath.Join(w.path, directoryMark) }

// copied copies the directory as cp does, with everything.
func (w *marked) copied(name string) string {
	w.t.Helper()
	to := filepath.Join(w.t.TempDir(), name)
	w.must(os.CopyFS(to, os.DirFS(w.path)))
	return to
}

func (w *marked) dir(name string) string {
	dir := filepath.Join(w.t.TempDir(), name)
	w.must(os.Mkdir(dir, 0o700))
	return dir
}

// another is the directory of another profile, in which that many browsers have ended.
func (w *marked) another(ends int) string {
	w.t.Helper()
	path, err := w.r.Create("another")
	w.must(err)
	for range ends {
		w.must(w.r.Store("another"))
	}
	return path
}

// undone exchanges the directory, and takes that back.
func (w *marked) undone(fill Fill) error {
	e, err := w.lock.Exchange(w.t.Context(), time.Now(), nil, fill)
	if err != nil {
		return err
	}
	return e.Undo()
}

// put replaces the directory by another.
func (w *marked) put(dir string) error {
	return errors.Join(os.RemoveAll(w.path), os.CopyFS(w.path, os.DirFS(dir)))
}

// over writes another directory's files over those of the directory.
func (w *marked) over(dir string) error {
	for _, name := range []string{"Local State", directoryMark} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(w.path, name), b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
