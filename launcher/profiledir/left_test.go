package profiledir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/internal/boottime"
)

// TestAFileInThePlaceOfOne: between two browsers nobody writes into the files that have the
// account's state.
func TestAFileInThePlaceOfOne(t *testing.T) {
	const cookies, storage = "Default/Cookies", "Default/Local Storage/leveldb/000003.log"
	for name, tt := range map[string]struct {
		between func(w *marked) error
		why     string
	}{
		"nothing":                             {func(*marked) error { return nil }, ""},
		"older cookies of the same size":      {func(w *marked) error { return w.write(cookies, "n=1") }, cookies + " is not as the last browser left it"},
		"no cookies":                          {func(w *marked) error { return os.Remove(w.at(cookies)) }, cookies + " is not"},
		"cookies where Chrome has them later": {func(w *marked) error { return w.write("Default/Network/Cookies", "n=1") }, "Default/Network/Cookies was not there"},
		"the same cookies, in another file": {func(w *marked) error {
			aside := w.at("aside")
			return errors.Join(os.Rename(w.at(cookies), aside), w.write(cookies, "n=2"))
		}, ""},
		"an older local storage": {func(w *marked) error { return w.write(storage, "v") }, storage + " is not"},
		"an older directory of local storage": {func(w *marked) error {
			return os.Rename(w.at(storage), w.at("Default/Local Storage/leveldb/000002.log"))
		}, storage + " is not"},
		"no cookies, and a note that is no note": {func(w *marked) error {
			return errors.Join(os.Remove(w.at(cookies)), os.WriteFile(w.r.file("p", "left"), []byte("{}"), 0o600))
		}, "damaged"},
		"a cache": {func(w *marked) error { return w.write("Default/Cache/x", "y") }, ""},
		"a person decides": {func(w *marked) error {
			return errors.Join(w.write(cookies, "n=1"), w.lock.BelieveDirectory(), w.r.Store("p"))
		}, ""},
		"a browser runs": {func(w *marked) error { return errors.Join(w.write(cookies, "n=1"), w.run()) }, ""},
		"a browser did not get so far that it is noted": {func(w *marked) error {
			return errors.Join(w.lock.Opening(), w.write(cookies, "n=3"))
		}, ""},
		"a browser came and went, and put nothing on the disk": {func(w *marked) error {
			return errors.Join(w.lock.Opening(), w.run(), w.write(cookies, "n=3"), w.lock.ClearRunning())
		}, ""},
		"the same, and older cookies then": {func(w *marked) error {
			return errors.Join(w.lock.Opening(), w.run(), w.write(cookies, "n=3"), w.lock.ClearRunning(), w.write(cookies, "n=2"))
		}, cookies + " is not"},
	} {
		w := newMarked(t)
		w.must(errors.Join(w.lock.Opening(), w.run(), w.write(cookies, "n=2"), w.write(storage, "value"), w.r.Store("p"), w.lock.ClearRunning()))
		w.must(tt.between(w))
		why, err := w.r.Replaced("p")
		if tt.why == "damaged" {
			if err == nil {
				t.Errorf("%s: %q", name, why)
			}
			continue
		}
		if err != nil || (why == "") != (tt.why == "") || !strings.Contains(why, tt.why) {
			t.Errorf("%s: %q, %v, want %q", name, why, err, tt.why)
		}
	}
}

func (w *marked) at(name string) string { return filepath.Join(w.path, filepath.FromSlash(name)) }

func (w *marked) write(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(w.at(name)), 0o700); err != nil {
		return err
	}
	return os.WriteFile(w.at(name), []byte(content), 0o600)
}

func (w *marked) run() error { return w.lock.SetRunning(Running{PID: 1, BootID: boottime.ID()}) }
