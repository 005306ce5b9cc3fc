package host

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"leasehold/internal/test/testkey"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
)

// A profile that was archived is imported again with the cookies that are kept of it: who asks for a new
// directory, and is refused, takes none of them. A directory that is made has none.
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
	for _, profile := range []string{"archived", "new"} {
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
	if n := kept("archived"); n != 1 {
		t.Errorf("%d files with cookies are kept of the archived profile, want 1", n)
	}
}
