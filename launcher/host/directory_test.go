package host

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// A profile that was archived is imported again with the cookies that are kept of it, and one whose directory is
// missing is opened with them when that is back: who asks for a new directory, and is refused, takes none of them.
// A directory that is made has none.
func TestOnlyANewDirectoryLosesCookies(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	root, err := profiledir.Open(filepath.Join(dir, "profiles"), testkey.Key)
	must(err)
	h := &Host{Root: root, Jar: sessionfile.NewJar(dir, testkey.Key)}
	kept := func(profile string) int {
		t.Helper()
		files, err := h.Jar.Export(profile)
		must(err)
		return len(files)
	}
	for _, profile := range []string{"archived", "missing", "new"} {
		must(h.Jar.Import(profile, map[string][]byte{"session-cookies": []byte(`[{"name":"sid","value":"1","domain":"shop.example","path":"/"}]`)}))
		if kept(profile) != 1 {
			t.Fatalf("%d files of %s are kept, want 1", kept(profile), profile)
		}
	}
	must(h.Create("new"))
	if n := kept("new"); n != 0 {
		t.Errorf("%d files with cookies are kept of a new directory", n)
	}
	_, err = root.Create("archived")
	must(err)
	lock, err := root.Lock("archived")
	must(err)
	_, err = lock.Archive(time.Now(), nil)
	must(errors.Join(err, lock.Unlock()))
	if err := h.Create("archived"); !errors.Is(err, profiledir.ErrArchived) {
		t.Errorf("a directory beside the archived one: %v, want %v", err, profiledir.ErrArchived)
	}
	lock, err = root.Lock("missing")
	must(err)
	must(errors.Join(lock.RaiseFloor(lease.Record{ProfileID: "missing", State: lease.Available, Token: 7}), lock.Unlock()))
	var refused *api.Problem
	if err := h.Create("missing"); !errors.As(err, &refused) || refused.Code != api.CodeConflict || refused.More["reason"] != api.ReasonDirectoryMissing || !strings.Contains(refused.Detail, "leasehold profiles rehome missing --empty") {
		t.Errorf("a directory in the place of one that is missing: %v", err)
	}
	for _, profile := range []string{"archived", "missing"} {
		if n := kept(profile); n != 1 {
			t.Errorf("%d files with cookies are kept of the %s profile, want 1", n, profile)
		}
	}
}
