package fileroots

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// place has one of everything that a worker could name. The system's temporary directory
// is a directory of the test.
type place struct {
	*testing.T
	*Roots
	temp, data, profiles, root, home string
	own, other                       string // exchange directories
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{T: t, temp: t.TempDir(), home: t.TempDir()}
	t.Setenv("TMPDIR", p.temp)
	p.root = p.dir(t.TempDir(), "root")
	p.data, p.profiles = p.dir(p.temp, "data"), p.dir(p.root, "profiles") // both lie in a root
	var err error
	p.Roots, err = New(Options{Roots: []string{p.temp, p.root}, Private: []string{p.data, p.profiles}, DataDir: p.data})
	p.must(err)
	p.own, err = p.Exchange("p", "ses_1")
	p.must(err)
	p.other, err = p.Exchange("q", "ses_2")
	p.must(err)
	return p
}

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) dir(parts ...string) string {
	p.Helper()
	path := filepath.Join(parts...)
	p.must(os.MkdirAll(path, 0o700))
	return path
}

func (p *place) file(parts ...string) string {
	p.Helper()
	path := filepath.Join(parts...)
	p.must(os.WriteFile(path, []byte("x"), 0o600))
	return path
}

func (p *place) link(to string, parts ...string) string {
	p.Helper()
	path := filepath.Join(parts...)
	p.must(os.Symlink(to, path))
	return path
}

func TestReadable(t *testing.T) {
	p := newPlace(t)
	inRoot, inOwn := p.file(p.root, "a"), p.file(p.own, "b c\u00e9")
	tree := p.dir(p.root, "tree", "sub")
	p.file(tree, "x")
	p.link("x", tree, "y")
	fifo := filepath.Join(p.root, "fifo")
	p.must(unix.Mkfifo(fifo, 0o600))
	for _, path := range []string{
		inRoot, inOwn, p.own, filepath.Join(p.root, "tree"), p.link(inRoot, p.own, "in"), p.link(inOwn, p.root, "to own"),
		filepath.Join(p.root, ".", "a"), p.root + "//./a",
	} {
		if err := p.Readable(p.own, path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	bad := p.dir(p.root, "bad")
	p.link("/etc/passwd", bad, "out")
	secret, floor := p.file(p.data, "admin.url"), p.file(p.profiles, "floor")
	browsers := p.dir(p.temp, "leasehold-123")
	for _, path := range []string{
		"", "a", "~/a", "file://" + inRoot, inRoot + "\x00", p.root + "/tree/../a", p.root + "/..", "/etc/passwd", "/proc/self/environ", "/proc/self/root" + inRoot, "/dev/zero",
		secret, floor, p.file(p.other, "theirs"), p.file(p.home, "h"), p.file(browsers, "s"),
		p.link(secret, p.own, "s1"), p.link(p.data, p.own, "s2") + "/admin.url", p.link("/etc", p.root, "etc") + "/passwd", p.link("/proc/self/environ", p.own, "env"),
		p.link("/proc/self/fd/0", p.own, "fd"), filepath.Join(p.root, "missing"), fifo,
		bad, p.root, p.temp, p.base.path(), "/", p.root + strings.Repeat("/x", 5000),
	} {
		err := p.Readable(p.own, path)
		if err == nil {
			t.Errorf("%q may be read", path)
		} else if !strings.Contains(err.Error(), p.own) || !strings.Contains(err.Error(), p.root) {
			t.Errorf("%q: it is not said what is allowed: %v", path, err)
		}
	}
	// What is allowed is that of the session that asks.
	if p.Readable(p.other, inOwn) == nil || p.Readable("", inOwn) == nil {
		t.Error("another session's file may be read")
	}
}

// Other files of the launcher are no session's, even below a root; a root that was named in one is.
func TestTheLaunchersOtherFilesAreNoSessions(t *testing.T) {
	p := newPlace(t)
	tokens, store, later := p.file(p.root, "tokens.yaml"), p.dir(p.root, "evidence"), filepath.Join(p.root, "made-later")
	link := p.link(tokens, p.root, "tokens")
	public := p.dir(p.home, "imports", "public")
	roots, err := New(Options{Roots: []string{p.root, public}, Private: []string{p.data}, Own: []string{link, store, later, filepath.Dir(public), p.temp}, DataDir: p.data})
	p.must(err)
	own, err := roots.Exchange("p", "ses_1")
	p.must(err)
	p.dir(later)
	for _, path := range []string{tokens, link, p.file(store, "bundle"), p.file(later, "x")} {
		if err := roots.Readable(own, path); err == nil || !strings.Contains(err.Error(), "launcher's own") {
			t.Errorf("%s may be read: %v", path, err)
		}
	}
	for _, path := range []string{store, filepath.Join(later, "new")} {
		if err := roots.Writable(own, path); err == nil || !strings.Contains(err.Error(), "launcher's own") {
			t.Errorf("%s may be written: %v", path, err)
		}
	}
	for _, path := range []string{p.file(p.root, "a"), p.file(public, "b"), p.file(own, "c")} {
		if err := roots.Readable(own, path); err != nil {
			t.Error(err)
		}
	}
}

func TestWritable(t *testing.T) {
	p := newPlace(t)
	full := p.dir(p.root, "full")
	p.file(full, "a")
	p.link("a", full, "b")
	for _, dir := range []string{p.own, p.root, p.temp, full, filepath.Join(p.own, "new", "deeper"), filepath.Join(p.temp, "playwright-artifacts-XXXX"), p.own + "/"} {
		if err := p.Writable(p.own, dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	trap := p.dir(p.root, "trap")
	p.link(filepath.Join(p.home, "authorized_keys"), trap, "x.txt") // it leads to nothing yet
	for _, dir := range []string{
		"", "rel", "~", p.root + "/../x", "/", "/etc", p.home, filepath.Join(p.home, ".ssh"), p.data, filepath.Join(p.data, "nats"), p.profiles,
		filepath.Join(p.profiles, ".leasehold"), p.other, filepath.Join(p.other, "x"), filepath.Join(p.temp, "leasehold-7", "x"), p.base.path(), filepath.Join(p.base.path(), "new"),
		p.link(p.home, p.own, "l1"), p.link(p.home, p.own, "l2") + "/new", p.link(p.home+"/missing", p.own, "l3"), p.link(p.home+"/missing", p.own, "l4") + "/new",
		p.link(p.profiles, p.root, "l5") + "/.leasehold", trap, filepath.Join(full, "a"), filepath.Join(full, "a", "b"),
	} {
		if p.Writable(p.own, dir) == nil {
			t.Errorf("%q may be written to", dir)
		}
	}
}

func TestTheDefaultRootIsTheTemporaryDirectory(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	data := t.TempDir()
	r, err := New(Options{Private: []string{data}, DataDir: data})
	if err != nil {
		t.Fatal(err)
	}
	if dirs := r.Dirs(); len(dirs) != 1 || dirs[0] != temp {
		t.Errorf("roots %q", dirs)
	}
	// systemd gives the unit a directory for its temporary files, and a /tmp of its own, in which clients name
	// directories: Playwright one for downloads, to every browser that it connects to.
	t.Setenv("CACHE_DIRECTORY", temp)
	if r, err = New(Options{Private: []string{data}, DataDir: data}); err != nil {
		t.Fatal("as a unit:", err)
	}
	if dirs := r.Dirs(); !slices.Equal(dirs, []string{temp, "/tmp"}) {
		t.Errorf("roots of a unit %q", dirs)
	}
	// A root that is named replaces it.
	named := t.TempDir()
	if r, err = New(Options{Roots: []string{named}, Private: []string{data}, DataDir: data}); err != nil {
		t.Fatal(err)
	}
	if r.Writable("", temp) == nil || r.Writable("", named) != nil {
		t.Error("the temporary directory is a root although another one was named")
	}
	for _, bad := range []string{filepath.Join(data, "x"), data, "relative", filepath.Join(temp, "missing")} {
		_ = os.Mkdir(filepath.Join(data, "x"), 0o700)
		if _, err := New(Options{Roots: []string{bad}, Private: []string{data}, DataDir: data}); err == nil {
			t.Errorf("%s is a root", bad)
		}
	}
}

func TestExchangeDirectoriesComeAndGo(t *testing.T) {
	p := newPlace(t)
	for _, dir := range []string{p.own, p.other, filepath.Dir(p.own), p.base.path()} {
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, fi, err)
		}
		if within(dir, p.data) || within(dir, p.profiles) {
			t.Errorf("%s lies below the launcher's own directories", dir)
		}
	}
	if p.OfProfile("p") != filepath.Dir(p.own) {
		t.Errorf("the profile's is %s", p.OfProfile("p"))
	}
	p.file(p.own, "left")
	// The next launcher goes on with them, and keeps those of sessions that go on.
	next, err := New(Options{Private: []string{p.data}, DataDir: p.data})
	p.must(err)
	if again, err := next.Exchange("p", "ses_1"); err != nil || again != p.own {
		t.Errorf("%s, %v", again, err)
	}
	p.must(next.Sweep(func(session string) bool { return session == "ses_1" }))
	if _, err := os.Stat(p.other); err == nil {
		t.Error("the directory of a session that is over stays")
	}
	if _, err := os.Stat(filepath.Join(p.own, "left")); err != nil {
		t.Error(err)
	}
	next.Close()
	if _, err := os.Stat(p.own); err != nil {
		t.Error("Close took a directory that is in use")
	}
	p.must(next.Remove("p", "ses_1"))
	p.must(next.Remove("p", "ses_1"))
	next.Close()
	if _, err := os.Stat(p.base.path()); err == nil {
		t.Error("their place stays")
	}
	// Somebody tidied up: there is a new place.
	if dir, err := next.Exchange("p", "ses_3"); err != nil || ours(dir) != nil {
		t.Errorf("exchange directory %q, error %v; want one of the launcher's own", dir, err)
	}
}

// TestAForeignPlaceIsNotTaken: what lies under the remembered name belongs to somebody
// else, or others may enter it.
func TestAForeignPlaceIsNotTaken(t *testing.T) {
	p := newPlace(t)
	for what, spoil := range map[string]func(dir string) error{
		"mode":  func(dir string) error { return os.Chmod(dir, 0o777) },
		"owner": func(dir string) error { return os.Chown(dir, 12345, 12345) },
		"link":  func(dir string) error { return os.Rename(dir, dir+".real") },
	} {
		first, err := New(Options{Private: []string{p.data}, DataDir: p.data})
		p.must(err)
		dir := first.base.path()
		p.must(spoil(dir))
		if what == "link" {
			p.link(dir+".real", dir)
		}
		if _, err := first.Exchange("p", "ses_9"); err == nil || first.Ready() == nil {
			t.Errorf("%s: a session got a directory there, or %v", what, first.Ready())
		}
		next, err := New(Options{Private: []string{p.data}, DataDir: p.data})
		p.must(err)
		if next.base.path() == dir {
			t.Errorf("%s: the next launcher took it", what)
		}
	}
	// Nor is the place of a launcher whose data directory was copied: it may have sessions there.
	first, err := New(Options{Private: []string{p.data}, DataDir: p.data})
	p.must(err)
	living, err := first.Exchange("p", "ses_9")
	p.must(err)
	note, err := os.ReadFile(filepath.Join(p.data, "exchange"))
	p.must(err)
	copied := p.dir(p.temp, "copied")
	p.must(os.WriteFile(filepath.Join(copied, "exchange"), note, 0o600))
	second, err := New(Options{Private: []string{copied}, DataDir: copied})
	p.must(err)
	p.must(second.Sweep(func(string) bool { return false }))
	if _, err := os.Stat(living); err != nil || second.base.path() == first.base.path() {
		t.Errorf("a copy of the data directory swept the exchange directories of the original: %v", err)
	}
	// A note that leads elsewhere is not followed.
	p.must(os.WriteFile(filepath.Join(p.data, "exchange"), []byte(p.home+"\n"+p.base.data+"\n"), 0o600))
	next, err := New(Options{Private: []string{p.data}, DataDir: p.data})
	p.must(err)
	if next.base.path() == p.home {
		t.Error("the note led elsewhere")
	}
}
