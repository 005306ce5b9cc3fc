package snapshots_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/internal/durable"
	"leasehold/internal/objects"
	"leasehold/internal/test/objectstest"
	"leasehold/internal/test/smalldisk"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAKeyIsWrittenOnceAndReadByItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if _, err := snapshots.WriteKey(path); err != nil {
		t.Fatal(err)
	}
	key, err := snapshots.ReadKey(path)
	must(t, err)
	if _, err := snapshots.WriteKey(path); err == nil || !strings.Contains(err.Error(), "stays") {
		t.Errorf("written over: %v", err)
	}
	// It is the same key: what was stored with it is read again.
	dir := openDir(t)
	if _, err := objectstest.Seal(t, snapshots.New(dir, key), "p", objectstest.Profile().Write(t), 1); err != nil {
		t.Fatal(err)
	}
	again, err := snapshots.ReadKey(path)
	must(t, err)
	if list, err := snapshots.New(dir, again).List(t.Context(), "p"); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	must(t, os.Chmod(path, 0o640))
	if _, err := snapshots.ReadKey(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others may read: %v", err)
	}
	for _, content := range []string{"", "# nothing", "AGE-SECRET-KEY-1XYZ", "LEASEHOLD-PROFILE-KEY-1-short", "LEASEHOLD-PROFILE-KEY-1-" + strings.Repeat("A", 43) + "\nmore"} {
		if _, err := snapshots.ParseKey([]byte(content)); err == nil || !strings.Contains(err.Error(), "profiles keygen") || strings.Contains(err.Error(), "XYZ") {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// The store learns neither names nor content: no key and no object has either in clear.
func TestTheStoreLearnsNothing(t *testing.T) {
	dir := openDir(t)
	s := snapshots.New(dir, snapshots.NewKey())
	tree := objectstest.Tree{"Local State": "secret content", "Default/secret name": strings.Repeat("secret content", 9999)}
	if _, err := objectstest.Seal(t, s, "secret-profile", tree.Write(t), 1); err != nil {
		t.Fatal(err)
	}
	keys, err := dir.List(t.Context(), "")
	must(t, err)
	for _, key := range keys {
		content, _, err := dir.Get(t.Context(), key)
		must(t, err)
		if strings.Contains(key+string(content), "secret") || strings.Contains(string(content), "ses_1") {
			t.Errorf("object %s tells", key)
		}
	}
	if len(keys) < 4 {
		t.Errorf("%d objects", len(keys))
	}
}

// A profile that somebody writes to while it is read makes no snapshot: neither one of the
// state before nor one of the state after, and least of all a mixture.
func TestAProfileThatChangesIsNotRead(t *testing.T) {
	s := snapshots.New(openDir(t), snapshots.NewKey())
	for what, change := range map[string]func(dir string) error{
		"a file with other content": func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, "Default/Cookies"), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte("x"), 100_000)
			return errors.Join(err, f.Close())
		},
		"a new file":     func(dir string) error { return os.WriteFile(filepath.Join(dir, "Default/New"), nil, 0o600) },
		"a removed file": func(dir string) error { return os.Remove(filepath.Join(dir, "Default/Preferences")) },
		"a replaced file": func(dir string) error {
			return durable.Replace(filepath.Join(dir, "Default/Preferences"), []byte(strings.Repeat("prefs ", 500)))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir, spool := objectstest.Profile().Write(t), t.TempDir()
			// The change is made when the first file was copied.
			ctx := &during{Context: t.Context(), spool: spool, act: func() { must(t, change(dir)) }}
			if _, err := s.Read(ctx, "p", dir, snapshots.ReadOptions{Spool: spool}); !errors.Is(err, snapshots.ErrChanged) {
				t.Errorf("%v, want %v", err, snapshots.ErrChanged)
			}
			if ctx.act != nil {
				t.Error("nothing was changed")
			}
			if left, err := os.ReadDir(spool); err != nil || len(left) > 0 {
				t.Errorf("left in the spool: %v, %v", left, err)
			}
		})
	}
}

// during acts once, as soon as there is a copy in a spool. Read asks a context between two
// files.
type during struct {
	context.Context
	spool string
	act   func()
}

func (d *during) Err() error {
	if copies, _ := filepath.Glob(filepath.Join(d.spool, "*", "*")); len(copies) > 0 && d.act != nil {
		d.act()
		d.act = nil
	}
	return d.Context.Err()
}

// Who is about to use the profile ends the reading, which says why.
func TestReadingEndsWhenTheProfileIsWanted(t *testing.T) {
	s := snapshots.New(openDir(t), snapshots.NewKey())
	dir, spool := objectstest.Profile().Write(t), t.TempDir()
	wanted := errors.New("the profile is wanted")
	inner, cancel := context.WithCancelCause(t.Context())
	ctx := &during{Context: inner, spool: spool, act: func() { cancel(wanted) }}
	if _, err := s.Read(ctx, "p", dir, snapshots.ReadOptions{Spool: spool}); !errors.Is(err, wanted) && !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, wanted)
	}
	if left, err := os.ReadDir(spool); err != nil || len(left) > 0 {
		t.Errorf("left in the spool: %v, %v", left, err)
	}
}

// What was read is sealed as it was, whatever becomes of the profile then.
func TestWhatWasReadStays(t *testing.T) {
	s := snapshots.New(openDir(t), snapshots.NewKey())
	tree := objectstest.Profile()
	dir := tree.Write(t)
	r, err := s.Read(t.Context(), "p", dir, snapshots.ReadOptions{Spool: t.TempDir()})
	must(t, err)
	objectstest.Tree{"Default/Cookies": "other", "Default/New": "new"}.WriteTo(t, dir)
	made, err := s.Seal(t.Context(), r, objectstest.About(1))
	must(t, errors.Join(err, r.Close()))
	to := filepath.Join(t.TempDir(), "fetched")
	if _, err := s.Fetch(t.Context(), "p", made.ID, to, snapshots.FetchOptions{}); err != nil {
		t.Fatal(err)
	}
	if objectstest.ReadTree(t, to)["Default/Cookies"] != tree["Default/Cookies"] {
		t.Error("the snapshot has what was written later")
	}
}

// A chunk that went missing is stored again by the next snapshot that has it; one that was
// damaged, by the next that stores all anew.
func TestTheNextSnapshotIsWhole(t *testing.T) {
	objects, dir := openDir(t), objectstest.Profile().Write(t)
	s := snapshots.New(objects, snapshots.NewKey())
	options := snapshots.ReadOptions{Spool: t.TempDir(), Index: filepath.Join(t.TempDir(), "index")}
	seal := func(about snapshots.About) error {
		r, err := s.Read(t.Context(), "p", dir, options)
		must(t, err)
		_, err = s.Seal(t.Context(), r, about)
		return errors.Join(err, r.Close())
	}
	must(t, seal(objectstest.About(1)))
	keys, err := objects.List(t.Context(), "profiles/")
	must(t, err)
	for _, key := range keys {
		if strings.Contains(key, "/chunks/") {
			must(t, objects.Delete(t.Context(), key))
		}
	}
	if err := seal(objectstest.About(2)); !errors.Is(err, snapshots.ErrStale) {
		t.Errorf("unchanged files whose chunks are gone: %v, want %v", err, snapshots.ErrStale)
	}
	whole := func(what string) {
		t.Helper()
		newest, err := objectstest.Newest(t.Context(), s, "p")
		must(t, err)
		if found, err := s.Verify(t.Context(), "p", newest.ID); err != nil || !found.Whole() {
			t.Errorf("%s: %+v, %v", what, found, err)
		}
	}
	must(t, seal(objectstest.About(2)))
	whole("after all went missing")

	keys, err = objects.List(t.Context(), "profiles/")
	must(t, err)
	for _, key := range keys {
		if strings.Contains(key, "/chunks/0000000000000002/") {
			must(t, errors.Join(objects.Delete(t.Context(), key), objects.Put(t.Context(), key, []byte("damaged, and long enough to be one"), "")))
		}
	}
	must(t, seal(objectstest.About(2))) // nobody knows of the damage yet
	to := filepath.Join(t.TempDir(), "elsewhere")
	if _, err := s.Fetch(t.Context(), "p", "", to, snapshots.FetchOptions{}); !errors.Is(err, snapshots.ErrDamaged) {
		t.Fatalf("a damaged snapshot is fetched: %v", err)
	}
	if err := seal(objectstest.About(2)); !errors.Is(err, snapshots.ErrStale) {
		t.Errorf("unchanged files after damage was found, by whoever it was: %v, want %v", err, snapshots.ErrStale)
	}
	must(t, seal(objectstest.About(2)))
	whole("after damage was found, with the same token")
	must(t, seal(objectstest.About(3)))
	whole("the one after that")
}

func TestASnapshotOfANewerChromeIsRefused(t *testing.T) {
	s := snapshots.New(openDir(t), snapshots.NewKey())
	if _, err := objectstest.Seal(t, s, "p", objectstest.Profile().Write(t), 1); err != nil {
		t.Fatal(err)
	}
	for ours, refused := range map[string]bool{"155.0.9999.99": true, "156.0.8078.78": true, "156.0.8078.79": false, "157.0.1.1": false, "": false} {
		to := filepath.Join(t.TempDir(), "fetched")
		_, err := s.Fetch(t.Context(), "p", "", to, snapshots.FetchOptions{Chrome: ours})
		var newer *snapshots.NewerChromeError
		if errors.As(err, &newer) != refused || !refused && err != nil {
			t.Errorf("Chrome %q: %v", ours, err)
		}
		if refused && !strings.Contains(err.Error(), "was made by Chrome 156.0.8078.79, and this host has Chrome "+ours+", which cannot read a newer one's profile") {
			t.Errorf("%v", err)
		}
		if _, err := os.Stat(to); os.IsNotExist(err) != refused {
			t.Errorf("Chrome %q: %v", ours, err)
		}
	}
}

// A directory that has something in it is not replaced, and an empty one is.
func TestAFetchReplacesNothing(t *testing.T) {
	s := snapshots.New(openDir(t), snapshots.NewKey())
	if _, err := objectstest.Seal(t, s, "p", objectstest.Profile().Write(t), 1); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	must(t, os.WriteFile(filepath.Join(to, "mine"), []byte("mine"), 0o600))
	if _, err := s.Fetch(t.Context(), "p", "", to, snapshots.FetchOptions{}); err == nil {
		t.Error("a directory was replaced")
	}
	if tree := objectstest.ReadTree(t, to); len(tree) != 1 || tree["mine"] != "mine" {
		t.Errorf("%v", tree)
	}
	must(t, os.Remove(filepath.Join(to, "mine")))
	if _, err := s.Fetch(t.Context(), "p", "", to, snapshots.FetchOptions{}); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(to), ".*")); err != nil || len(left) > 0 {
		t.Errorf("left beside it: %v, %v", left, err)
	}
}

// A disk that is full, or becomes full in the middle, leaves nothing half there.
func TestAFetchOnAFullDisk(t *testing.T) {
	disk := smalldisk.Run(t, "3m")
	if disk == "" {
		return
	}
	objects, key := openDir(t), snapshots.NewKey()
	s := snapshots.New(objects, key)
	tree := objectstest.Tree{"Local State": "{}"}
	for _, name := range []string{"a", "b", "c", "d"} {
		tree["Default/"+name] = objectstest.Random(len(tree), 500_000)
	}
	if _, err := objectstest.Seal(t, s, "p", tree.Write(t), 1); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(disk, "profile")
	nothing := func() {
		t.Helper()
		left, err := os.ReadDir(disk)
		must(t, err)
		for _, e := range left {
			if e.Name() != "filler" {
				t.Errorf("%s is left", e.Name())
			}
		}
	}
	var no *snapshots.NoSpaceError
	if _, err := s.Fetch(t.Context(), "p", "", to, snapshots.FetchOptions{KeepFree: 2 << 20}); !errors.As(err, &no) || !durable.Full(err) {
		t.Errorf("too little beside it: %v", err)
	}
	nothing()
	// Somebody else fills the disk while it is fetched.
	filling := snapshots.New(&fills{Dir: objects, fill: sync.OnceFunc(func() { smalldisk.Fill(t, disk) })}, key)
	if _, err := filling.Fetch(t.Context(), "p", "", to, snapshots.FetchOptions{}); !durable.Full(err) || errors.As(err, &no) {
		t.Errorf("%v, want a full disk", err)
	}
	nothing()
	must(t, os.Remove(filepath.Join(disk, "filler")))
	if _, err := s.Fetch(t.Context(), "p", "", to, snapshots.FetchOptions{}); err != nil {
		t.Error(err)
	}
}

// fills are objects during whose reading a disk becomes full.
type fills struct {
	*snapshots.Dir
	reads atomic.Int32
	fill  func()
}

func (f *fills) Get(ctx context.Context, key string) ([]byte, string, error) {
	if f.reads.Add(1) == 10 {
		f.fill()
	}
	return f.Dir.Get(ctx, key)
}

// A link could lead anywhere, and is not followed.
func TestLinksAreRefused(t *testing.T) {
	s := snapshots.New(openDir(t), snapshots.NewKey())
	dir := objectstest.Profile().Write(t)
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "Default", "link")))
	if _, err := s.Read(t.Context(), "p", dir, snapshots.ReadOptions{Spool: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "link") {
		t.Errorf("%v", err)
	}
}

// Names are bytes, and modes of programs stay.
func TestNamesAndModes(t *testing.T) {
	s := snapshots.New(openDir(t), snapshots.NewKey())
	tree := objectstest.Tree{"Local State": "{}", "Default/\xff\xfe": "bytes", `"quoted"`: "q", "Default/\n": "line", "Default/äöü/x": "y", "Default/äöü/": "", "Default/": ""}
	dir := tree.Write(t)
	must(t, os.WriteFile(filepath.Join(dir, "program"), []byte("#!"), 0o755))
	tree["program"] = "#!"
	if _, err := objectstest.Seal(t, s, "p", dir, 1); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "x")
	if _, err := s.Fetch(t.Context(), "p", "", to, snapshots.FetchOptions{}); err != nil {
		t.Fatal(err)
	}
	got := objectstest.ReadTree(t, to)
	for name, content := range tree {
		if got[name] != content {
			t.Errorf("%q is %q, want %q", name, got[name], content)
		}
	}
	for name, mode := range map[string]os.FileMode{"program": 0o700, "Local State": 0o600} {
		if fi, err := os.Stat(filepath.Join(to, name)); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
}

// Caches at the places where Chrome has them are left out, and the same names elsewhere
// are a site's or an extension's, and stay.
func TestCachesAreLeftOut(t *testing.T) {
	s := snapshots.New(openDir(t), snapshots.NewKey())
	tree := objectstest.Tree{
		"Local State": "{}", "Default/Cache/Cache_Data/data_0": "c", "Profile 1/Code Cache/js/x": "c", "Crashpad/x": "c", "BrowserMetrics-12.pma": "c", "SingletonCookie": "c",
		"Default/IndexedDB/Cache/x": "kept", "Default/Service Worker/CacheStorage/x": "kept", "Default/Extensions/abc/Cache/y": "kept", "Default/Storage/ext/Crashpad": "kept",
		// What Chrome writes only once there is something to be kept.
		"Default/Bookmarks": "kept", "Default/Shortcuts": "kept", "Default/TransportSecurity": "kept", "Default/Sessions/Session_1": "kept", "Default/Local Storage/leveldb/1.log": "kept",
	}
	if _, err := objectstest.Seal(t, s, "p", tree.Write(t), 1); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "x")
	if _, err := s.Fetch(t.Context(), "p", "", to, snapshots.FetchOptions{}); err != nil {
		t.Fatal(err)
	}
	got := objectstest.ReadTree(t, to)
	for name, content := range tree {
		if _, there := got[name]; there != (content != "c") {
			t.Errorf("%s is there: %v", name, there)
		}
	}
}

// An old snapshot of a profile whose list a slow store brings is not taken for the newest
// by its age: order is that of the list.
func TestTheNewestIsTheLastThatWasSealed(t *testing.T) {
	s := snapshots.New(openDir(t), snapshots.NewKey())
	dir := objectstest.Profile().Write(t)
	for n, at := range []time.Time{time.Now(), time.Now().Add(-48 * time.Hour)} {
		r, err := s.Read(t.Context(), "p", dir, snapshots.ReadOptions{Spool: t.TempDir()})
		must(t, err)
		about := objectstest.About(1)
		about.Token += 1
		about.CreatedAt = at
		about.SessionID = []string{"first", "second"}[n]
		_, err = s.Seal(t.Context(), r, about)
		must(t, errors.Join(err, r.Close()))
	}
	if newest, err := objectstest.Newest(t.Context(), s, "p"); err != nil || newest.SessionID != "second" {
		t.Errorf("%+v, %v", newest, err)
	}
	if _, err := objectstest.Newest(t.Context(), s, "q"); !errors.Is(err, snapshots.ErrNoSnapshot) {
		t.Errorf("%v", err)
	}
}

// overtaken has somebody else write a profile's list once, just before its holder does.
type overtaken struct {
	objects.Objects
	by func()
}

func (o *overtaken) Put(ctx context.Context, key string, content []byte, version string) error {
	if by := o.by; by != nil && strings.HasSuffix(key, "/head") {
		o.by = nil
		by()
	}
	return o.Objects.Put(ctx, key, content, version)
}

// TestAChangeOfTheListIsMadeAgain where somebody else changed it meanwhile: neither is lost.
func TestAChangeOfTheListIsMadeAgain(t *testing.T) {
	dir, key := openDir(t), snapshots.NewKey()
	other := snapshots.New(dir, key)
	seal := func(s *snapshots.Store, token lease.Token) {
		_, err := objectstest.Seal(t, s, "p", objectstest.Profile().Write(t), token)
		must(t, err)
	}
	seal(other, 1)
	seal(snapshots.New(&overtaken{dir, func() { seal(other, 2) }}, key), 3)
	if list, err := other.List(t.Context(), "p"); err != nil || len(list) != 3 {
		t.Errorf("%+v; %v", list, err)
	}
}

// beside is a store of objects in which do happens once, before a chunk is read.
type beside struct {
	objects.Objects
	do func()
}

func (b *beside) Get(ctx context.Context, key string) ([]byte, string, error) {
	if do := b.do; do != nil && strings.Contains(key, "/chunks/") {
		b.do = nil
		do()
	}
	return b.Objects.Get(ctx, key)
}

// TestWhatIsRemovedMeanwhileIsNotDamaged: who reads a snapshot that retention removes finds its chunks
// gone, and the next snapshot is not stored in full for that.
func TestWhatIsRemovedMeanwhileIsNotDamaged(t *testing.T) {
	dir, key := openDir(t), snapshots.NewKey()
	other := snapshots.New(dir, key)
	seal := func(token lease.Token) snapshots.Snapshot {
		tree := objectstest.Profile()
		tree["Default/Cookies"] = objectstest.Random(int(token), 300_000)
		made, err := objectstest.Seal(t, other, "p", tree.Write(t), token)
		must(t, err)
		return made
	}
	made := []snapshots.Snapshot{seal(1), seal(2), seal(3), seal(4)}
	removing := func(keep int) *snapshots.Store {
		return snapshots.New(&beside{dir, func() {
			_, err := other.Retain(t.Context(), "p", 4, snapshots.Retention{Keep: keep}, time.Now())
			must(t, err)
		}}, key)
	}
	found, err := removing(3).Verify(t.Context(), "p", "")
	if err != nil || !found.Whole() || len(found.Snapshots) != 3 {
		t.Errorf("all were verified: %+v, %v", found, err)
	}
	if _, err := removing(2).Verify(t.Context(), "p", made[1].ID); !errors.Is(err, snapshots.ErrNoSnapshot) {
		t.Errorf("one was verified: %v", err)
	}
	to := filepath.Join(t.TempDir(), "x")
	if _, err := removing(1).Fetch(t.Context(), "p", made[2].ID, to, snapshots.FetchOptions{}); !errors.Is(err, snapshots.ErrNoSnapshot) {
		t.Errorf("one was fetched: %v", err)
	}
	if again := seal(4); again.Stored >= made[0].Stored/2 {
		t.Errorf("the next snapshot stored %d bytes; the first one %d", again.Stored, made[0].Stored)
	}
}
