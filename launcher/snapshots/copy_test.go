package snapshots_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshots/objectstest"
	"leasehold/lease"
)

// several makes a store in which a profile p has a snapshot for each of these tokens. They share
// most of what they have.
func several(t *testing.T, tokens ...lease.Token) (*snapshots.Dir, *snapshots.Key, []string) {
	t.Helper()
	dir, key := openDir(t), snapshots.NewKey()
	var ids []string
	for _, token := range tokens {
		ids = append(ids, sealTree(t, snapshots.New(dir, key), token))
	}
	return dir, key, ids
}

// sealTree makes a snapshot of p that has a file of its own.
func sealTree(t *testing.T, s *snapshots.Store, token lease.Token) string {
	t.Helper()
	tree := objectstest.Profile()
	tree["Default/Of its own"] = fmt.Sprint("of ", token)
	made, err := objectstest.Seal(t, s, "p", tree.Write(t), token)
	must(t, err)
	return made.ID
}

// ids are the snapshots of p, the oldest first, all of which have to be whole.
func ids(t *testing.T, s *snapshots.Store) (all []string) {
	t.Helper()
	found, err := s.Verify(t.Context(), "p", "")
	if err != nil || !found.Whole() {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, one := range slices.Backward(found.Snapshots) {
		all = append(all, one.ID)
	}
	return all
}

func isStale(err error, token, current lease.Token) bool {
	stale := new(snapshots.StaleTokenError)
	return errors.As(err, &stale) && stale.Token == token && stale.Current == current
}

// acts are objects that do something once, before the first write of a list, or before anything is
// read for the nth time.
type acts struct {
	snapshots.Objects
	mu     sync.Mutex
	reads  int
	onHead func()
	onRead func()
	after  int
}

func (a *acts) take(which *func(), now bool) {
	a.mu.Lock()
	act := *which
	if !now {
		act = nil
	} else {
		*which = nil
	}
	a.mu.Unlock()
	if act != nil {
		act()
	}
}

func (a *acts) Put(ctx context.Context, key string, content []byte, version string) error {
	a.take(&a.onHead, strings.HasSuffix(key, "/head"))
	return a.Objects.Put(ctx, key, content, version)
}

func (a *acts) Get(ctx context.Context, key string) ([]byte, string, error) {
	a.mu.Lock()
	a.reads++
	now := a.reads > a.after
	a.mu.Unlock()
	a.take(&a.onRead, now)
	return a.Objects.Get(ctx, key)
}

// TestACopySharesWhatItsSourceShares: three snapshots take not much more than one, the one that is
// sealed after the copy stores only what is new, and what is sealed later is copied without the rest.
func TestACopySharesWhatItsSourceShares(t *testing.T) {
	for name, same := range map[string]bool{"another key": false, "the same key": true} {
		t.Run(name, func(t *testing.T) {
			dir, key, made := several(t, 1, 2)
			from, ourKey := snapshots.New(dir, key), key
			if !same {
				ourKey = snapshots.NewKey()
			}
			target := openDir(t)
			to := snapshots.New(target, ourKey)
			first, err := to.CopyFrom(t.Context(), from, "p")
			must(t, err)
			if !slices.Equal(first.Copied, made) || first.Stored < 700_000 || first.Stored > 900_000 {
				t.Errorf("%+v", first)
			}
			made = append(made, sealTree(t, from, 3))
			second, err := snapshots.New(target, ourKey).CopyFrom(t.Context(), from, "p")
			must(t, err)
			if !slices.Equal(second.Copied, made[2:]) || second.There != 2 || second.Stored > 50_000 {
				t.Errorf("%+v", second)
			}
			sealTree(t, to, 4)
			list, err := to.List(t.Context(), "p")
			must(t, err)
			if list[0].Stored > 50_000 {
				t.Errorf("the next snapshot stored %d bytes", list[0].Stored)
			}
			if got := ids(t, to); !slices.Equal(got[:3], made) {
				t.Errorf("%v, want %v and one more", got, made)
			}
		})
	}
}

// TestACopyThatIsCutOff at any write leaves nothing half, and goes on when it is made again.
func TestACopyThatIsCutOff(t *testing.T) {
	dir, key, made := several(t, 1, 2)
	from, ourKey := snapshots.New(dir, key), snapshots.NewKey()
	for writes := 0; ; writes++ {
		target := &breaks{Dir: openDir(t), left: writes}
		done, err := snapshots.New(target, ourKey).CopyFrom(t.Context(), from, "p")
		to := snapshots.New(target.Dir, ourKey)
		if there := ids(t, to); !slices.Equal(there, made[:len(there)]) || len(there) < len(done.Copied) {
			t.Fatalf("cut off after %d writes: %v, said %+v", writes, there, done)
		}
		if err == nil {
			if writes < 15 {
				t.Errorf("a copy has %d writes", writes)
			}
			return
		}
		if !strings.HasPrefix(err.Error(), "the store to copy to: ") || !errors.Is(err, errBroken) {
			t.Fatalf("%v", err)
		}
		if _, err := to.CopyFrom(t.Context(), from, "p"); err != nil || !slices.Equal(ids(t, to), made) {
			t.Fatalf("after %d writes, again: %v, %v", writes, ids(t, to), err)
		}
	}
}

// breaks are objects that take so many writes and no more.
type breaks struct {
	*snapshots.Dir
	mu   sync.Mutex
	left int
}

var errBroken = errors.New("the connection is broken")

func (b *breaks) Put(ctx context.Context, key string, content []byte, version string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		return errBroken
	}
	b.left--
	return b.Dir.Put(ctx, key, content, version)
}

// TestACopyBesideTheHolder: what is sealed while it runs is copied, and what is removed meanwhile is
// no damage.
func TestACopyBesideTheHolder(t *testing.T) {
	dir, key, made := several(t, 1, 2, 3)
	holder := snapshots.New(dir, key)
	var newer string
	busy := &acts{Objects: dir, after: 8, onRead: func() {
		newer = sealTree(t, holder, 4)
		removed, err := holder.Retain(t.Context(), "p", 4, snapshots.Retention{Keep: 1}, time.Now())
		if err != nil || len(removed) != 3 {
			t.Errorf("removed %v, %v", removed, err)
		}
	}}
	to := snapshots.New(openDir(t), snapshots.NewKey())
	done, err := to.CopyFrom(t.Context(), snapshots.New(busy, key), "p")
	if err != nil || !done.Whole() {
		t.Fatalf("%+v, %v", done, err)
	}
	got := ids(t, to)
	if newer == "" || got[len(got)-1] != newer || len(got) > 3 || !slices.Contains(append(made, newer), got[0]) {
		t.Errorf("copied %v, want %s and none of those that were removed before they were read", got, newer)
	}
	if err := to.Raise(t.Context(), "p", 3); !isStale(err, 3, 4) {
		t.Errorf("a stale holder: %v", err)
	}
}

// TestACopyBesideACollection: a sidecar that uses the new store already, with the token that the old
// one knows, collects what no list names, and nothing of what is being copied.
func TestACopyBesideACollection(t *testing.T) {
	dir, key, made := several(t, 1, 2)
	target, ourKey := openDir(t), snapshots.NewKey()
	other := snapshots.New(target, ourKey)
	must(t, other.Raise(t.Context(), "p", 2))
	busy := &acts{Objects: target, onHead: func() { must(t, other.Collect(t.Context(), "p", 2)) }}
	if _, err := snapshots.New(busy, ourKey).CopyFrom(t.Context(), snapshots.New(dir, key), "p"); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, other); busy.onHead != nil || !slices.Equal(got, made) {
		t.Errorf("%v, want %v", got, made)
	}
}

// TestACopyToAStoreThatIsAhead: as soon as the new store knows of a later holder, nothing comes from
// the old one any more, also in the middle; and that is an error where the old one has something
// newer than what was copied.
func TestACopyToAStoreThatIsAhead(t *testing.T) {
	dir, key, made := several(t, 1, 2)
	from, target, ourKey := snapshots.New(dir, key), openDir(t), snapshots.NewKey()
	to := snapshots.New(target, ourKey)
	if _, err := to.CopyFrom(t.Context(), from, "p"); err != nil {
		t.Fatal(err)
	}
	ahead := sealTree(t, to, 7)
	if _, err := to.Retain(t.Context(), "p", 7, snapshots.Retention{Keep: 2}, time.Now()); err != nil {
		t.Fatal(err)
	}
	done, err := to.CopyFrom(t.Context(), from, "p")
	if err != nil || len(done.Copied) > 0 || done.There != 1 || done.Left != 1 || !slices.Equal(ids(t, to), []string{made[1], ahead}) {
		t.Errorf("the profile has gone on in the new store: %+v, %v", done, err)
	}
	sealTree(t, from, 3) // a sidecar uses the old store still
	before := objectstest.Everything(t, target)
	if _, err := to.CopyFrom(t.Context(), from, "p"); !isStale(err, 3, 7) || !strings.Contains(err.Error(), "ahead") {
		t.Errorf("what is older than what the new store knows: %v", err)
	}
	if !maps.Equal(before, objectstest.Everything(t, target)) {
		t.Error("it was written to")
	}
	// In the middle.
	empty := openDir(t)
	busy := &acts{Objects: empty, onHead: func() { must(t, snapshots.New(empty, ourKey).Raise(t.Context(), "p", 9)) }}
	if _, err := snapshots.New(busy, ourKey).CopyFrom(t.Context(), from, "p"); !isStale(err, 3, 9) {
		t.Errorf("a later holder in the middle: %v", err)
	}
	if list, err := snapshots.New(empty, ourKey).List(t.Context(), "p"); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestTheOrderOfACopy is that of the tokens, also where the new store has one that the old has not.
func TestTheOrderOfACopy(t *testing.T) {
	dir, key, made := several(t, 1, 3)
	from, to := snapshots.New(dir, key), snapshots.New(openDir(t), snapshots.NewKey())
	between := sealTree(t, to, 2)
	if _, err := to.CopyFrom(t.Context(), from, "p"); err != nil {
		t.Fatal(err)
	}
	if got, want := ids(t, to), []string{made[0], between, made[1]}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestTheFloorIsCopied where nothing was sealed under it yet, or at all.
func TestTheFloorIsCopied(t *testing.T) {
	for _, tokens := range [][]lease.Token{{1}, {}} {
		dir, key, _ := several(t, tokens...)
		from, to := snapshots.New(dir, key), snapshots.New(openDir(t), snapshots.NewKey())
		must(t, from.Raise(t.Context(), "p", 5))
		if done, err := to.CopyFrom(t.Context(), from, "p"); err != nil || len(done.Copied) != len(tokens) {
			t.Fatalf("%+v, %v", done, err)
		}
		if err := to.Raise(t.Context(), "p", 4); !isStale(err, 4, 5) {
			t.Errorf("with %d snapshots: %v", len(tokens), err)
		}
	}
}

// TestADamagedSnapshotIsNotCopied, and the others are. The old store does not learn of it.
func TestADamagedSnapshotIsNotCopied(t *testing.T) {
	for name, harm := range map[string]func(*testing.T, *snapshots.Dir, string){
		"a chunk that was changed": func(t *testing.T, dir *snapshots.Dir, key string) {
			must(t, dir.Put(t.Context(), key, []byte("damaged, and long enough to be one"), ""))
		},
		"a chunk that is gone": func(*testing.T, *snapshots.Dir, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			dir, key, made := several(t, 1, 2, 3)
			keys, err := dir.List(t.Context(), "profiles/")
			must(t, err)
			for _, key := range keys {
				if strings.Contains(key, "/chunks/0000000000000002/") {
					must(t, dir.Delete(t.Context(), key))
					harm(t, dir, key)
				}
			}
			before := objectstest.Everything(t, dir)
			to := snapshots.New(openDir(t), snapshots.NewKey())
			done, err := to.CopyFrom(t.Context(), snapshots.New(dir, key), "p")
			if err != nil || done.Whole() || len(done.Damaged) != 1 || done.Damaged[0].ID != made[1] || !strings.Contains(done.Damaged[0].Problems[0], "chunk ") {
				t.Errorf("%+v, %v", done, err)
			}
			if got := ids(t, to); !slices.Equal(got, []string{made[0], made[2]}) {
				t.Errorf("%v of %v", got, made)
			}
			if !maps.Equal(before, objectstest.Everything(t, dir)) {
				t.Error("the old store has changed")
			}
		})
	}
}

// TestWhatCannotBeCopied is refused, and a store that is not there is not made.
func TestWhatCannotBeCopied(t *testing.T) {
	dir, key, _ := several(t, 1)
	to := snapshots.New(openDir(t), snapshots.NewKey())
	if _, err := to.CopyFrom(t.Context(), snapshots.New(dir, snapshots.NewKey()), "p"); !errors.Is(err, snapshots.ErrWrongKey) || !strings.HasPrefix(err.Error(), "the store to copy from: ") {
		t.Errorf("the wrong key: %v", err)
	}
	if _, err := to.CopyFrom(t.Context(), snapshots.New(dir, key), "q"); !errors.Is(err, snapshots.ErrNoSnapshot) || !strings.Contains(err.Error(), "profile q") {
		t.Errorf("a profile that is not in the store: %v", err)
	}
	none := filepath.Join(t.TempDir(), "none")
	if _, err := to.CopyFrom(t.Context(), snapshots.New(snapshots.OpenDir(none), key), "p"); !errors.Is(err, snapshots.ErrNoStore) {
		t.Errorf("no store: %v", err)
	}
	if _, err := os.Stat(none); !os.IsNotExist(err) {
		t.Errorf("a store that was to be read was made: %v", err)
	}
}

// TestOthers counts the profiles that nobody named.
func TestOthers(t *testing.T) {
	dir, key, _ := several(t, 1)
	s := snapshots.New(dir, key)
	must(t, s.Raise(t.Context(), "q", 1))
	must(t, dir.Put(t.Context(), "profiles/aa/chunks/0000000000000001/bb", []byte("of an attempt"), ""))
	for want, named := range map[int][]string{0: {"p", "q"}, 1: {"p", "x"}, 2: nil} {
		if others, err := s.Others(t.Context(), named); err != nil || others != want {
			t.Errorf("besides %v there are %d, %v", named, others, err)
		}
	}
}

// lies are objects that keep something else than what they are given of one chunk.
type lies struct {
	*snapshots.Dir
	once sync.Once
}

func (l *lies) Put(ctx context.Context, key string, content []byte, version string) error {
	if strings.Contains(key, "/chunks/") {
		l.once.Do(func() {
			content = slices.Clone(content)
			content[len(content)-1] ^= 1
		})
	}
	return l.Dir.Put(ctx, key, content, version)
}

// TestACopyIsReadBack: a store that does not keep what it is given has no snapshot.
func TestACopyIsReadBack(t *testing.T) {
	dir, key, _ := several(t, 1)
	target, ourKey := &lies{Dir: openDir(t)}, snapshots.NewKey()
	_, err := snapshots.New(target, ourKey).CopyFrom(t.Context(), snapshots.New(dir, key), "p")
	if !errors.Is(err, snapshots.ErrDamaged) || !strings.HasPrefix(err.Error(), "the store to copy to: ") {
		t.Errorf("%v", err)
	}
	if list, err := snapshots.New(target.Dir, ourKey).List(t.Context(), "p"); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestPinsAreCopied, so that what stays in the old store stays in the new one.
func TestPinsAreCopied(t *testing.T) {
	dir, key, made := several(t, 1, 2)
	from, to := snapshots.New(dir, key), snapshots.New(openDir(t), snapshots.NewKey())
	must(t, from.Pin(t.Context(), "p", made[0], "review"))
	if _, err := to.CopyFrom(t.Context(), from, "p"); err != nil {
		t.Fatal(err)
	}
	if removed, err := to.Retain(t.Context(), "p", 2, snapshots.Retention{Keep: 1}, time.Now()); err != nil || len(removed) > 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
}
