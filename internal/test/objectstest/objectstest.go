// Package objectstest has the tests that every objects.Objects must pass, alone and as the
// objects of a snapshots.Store.
package objectstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/internal/objects"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// Run tests that an implementation of objects.Objects keeps its contract. open returns an empty
// one.
func Run(t *testing.T, open func(t *testing.T) objects.Objects) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, objects.Objects)
	}{
		{"write", testWrite}, {"race", testRace}, {"list", testList}, {"stale holder", testStaleHolder}, {"late seal", testLateSeal},
		{"round trip", testRoundTrip}, {"damage", testDamage}, {"retention", testRetention},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// Newest returns a profile's newest snapshot, or ErrNoSnapshot.
func Newest(ctx context.Context, s *snapshots.Store, profileID string) (snapshots.Snapshot, error) {
	list, err := s.List(ctx, profileID)
	if err == nil && len(list) == 0 {
		err = snapshots.ErrNoSnapshot
	}
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	return list[0], nil
}

func want(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", what, err, target)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A write succeeds only if the object is as the writer saw it.
func testWrite(t *testing.T, o objects.Objects) {
	ctx, key := t.Context(), "profiles/aa/head"
	_, _, err := o.Get(ctx, key)
	want(t, "nothing there", err, objects.ErrNone)
	must(t, o.Delete(ctx, key))
	must(t, o.Put(ctx, key, []byte("one"), ""))
	want(t, "made twice", o.Put(ctx, key, []byte("two"), ""), objects.ErrOtherVersion)
	content, first, err := o.Get(ctx, key)
	if string(content) != "one" || first == "" || err != nil {
		t.Fatalf("%q, version %q, %v", content, first, err)
	}
	must(t, o.Put(ctx, key, []byte("two"), first))
	want(t, "replaced what is gone", o.Put(ctx, key, []byte("three"), first), objects.ErrOtherVersion)
	content, second, err := o.Get(ctx, key)
	if string(content) != "two" || second == first || err != nil {
		t.Fatalf("%q, version %q, %v", content, second, err)
	}
	must(t, o.Delete(ctx, key))
	_, _, err = o.Get(ctx, key)
	want(t, "deleted", err, objects.ErrNone)
	want(t, "replaced what was deleted", o.Put(ctx, key, []byte("three"), second), objects.ErrOtherVersion)
	must(t, o.Put(ctx, key, bytes.Repeat([]byte("x"), 300_000), ""))
}

// If many write an object at the same time, only the first one succeeds.
func testRace(t *testing.T, o objects.Objects) {
	ctx, key := t.Context(), "profiles/aa/head"
	for round := range 5 {
		version := ""
		if round > 0 {
			var err error
			_, version, err = o.Get(ctx, key)
			must(t, err)
		}
		var won atomic.Int32
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				switch err := o.Put(ctx, key, fmt.Appendf(nil, "%d of %d", n, round), version); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, objects.ErrOtherVersion):
					t.Errorf("error %v, want %v", err, objects.ErrOtherVersion)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("round %d: %d were first", round, won.Load())
		}
	}
}

func testList(t *testing.T, o objects.Objects) {
	ctx := t.Context()
	if keys, err := o.List(ctx, "profiles/aa/"); len(keys) != 0 || err != nil {
		t.Fatalf("an empty store lists %q, %v", keys, err)
	}
	for _, key := range []string{"leasehold-profiles", "profiles/aa/head", "profiles/aa/chunks/01/x", "profiles/aa/chunks/02/y", "profiles/aab/head"} {
		must(t, o.Put(ctx, key, []byte(key), ""))
	}
	for prefix, all := range map[string][]string{
		"profiles/aa/":        {"profiles/aa/chunks/01/x", "profiles/aa/chunks/02/y", "profiles/aa/head"},
		"profiles/aa/chunks/": {"profiles/aa/chunks/01/x", "profiles/aa/chunks/02/y"},
		"profiles/bb/":        {},
		"":                    {"leasehold-profiles", "profiles/aa/chunks/01/x", "profiles/aa/chunks/02/y", "profiles/aa/head", "profiles/aab/head"},
	} {
		keys, err := o.List(ctx, prefix)
		slices.Sort(keys)
		if !slices.Equal(keys, all) || err != nil {
			t.Errorf("%q lists %q, %v, want %q", prefix, keys, err, all)
		}
	}
	for prefix, all := range map[string][]string{"profiles/": {"aa", "aab"}, "profiles/aa/chunks/": {"01", "02"}, "profiles/aab/": nil, "profiles/bb/": nil} {
		names, err := o.Folders(ctx, prefix)
		slices.Sort(names)
		if !slices.Equal(names, all) || err != nil {
			t.Errorf("%q has the folders %q, %v, want %q", prefix, names, err, all)
		}
	}
}

// Tree is a small profile: the content of its files, by path. A path that ends in a slash is a
// directory.
type Tree map[string]string

// Write makes a directory with the tree's files in it.
func (tree Tree) Write(t testing.TB) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "profile")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	tree.WriteTo(t, dir)
	return dir
}

// WriteTo writes the tree's files into a directory.
func (tree Tree) WriteTo(t testing.TB, dir string) {
	t.Helper()
	for path, content := range tree {
		at := filepath.Join(dir, path)
		err := os.MkdirAll(filepath.Dir(at), 0o700)
		if strings.HasSuffix(path, "/") {
			err = errors.Join(err, os.MkdirAll(at, 0o700))
		} else {
			err = errors.Join(err, os.WriteFile(at, []byte(content), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ReadTree returns the content of a directory as a tree.
func ReadTree(t testing.TB, dir string) Tree {
	t.Helper()
	tree := Tree{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err != nil || rel == "." {
			return err
		}
		if d.IsDir() {
			tree[rel+"/"] = ""
			return nil
		}
		content, err := os.ReadFile(path)
		tree[rel] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// Random returns a text of the given length that cannot be compressed. It is the same for the
// same seed.
func Random(seed, length int) string {
	b, state := make([]byte, length), uint64(seed)*0x9E3779B97F4A7C15+1
	for i := range b {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		b[i] = byte(state >> 32)
	}
	return string(b)
}

// Profile returns a tree with everything that matters: empty and nested directories, and files of
// every size.
func Profile() Tree {
	return Tree{
		"Local State": `{"x":1}`, "Default/": "", "Default/Empty/": "", "Default/Preferences": strings.Repeat("prefs ", 500),
		"Default/Cookies": Random(1, 700_000), "Default/empty file": "", "Default/IndexedDB/": "",
		"Default/IndexedDB/https_a.test_0.indexeddb.leveldb/": "", "Default/IndexedDB/https_a.test_0.indexeddb.leveldb/000003.log": Random(2, 90_000),
	}
}

// Seal reads a directory, and seals a snapshot of it.
func Seal(t testing.TB, s *snapshots.Store, profileID, dir string, token lease.Token) (snapshots.Snapshot, error) {
	t.Helper()
	r, err := s.Read(t.Context(), profileID, dir, snapshots.ReadOptions{Spool: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return s.Seal(t.Context(), r, About(token))
}

// About returns the description of a snapshot that a test makes.
func About(token lease.Token) snapshots.About {
	return snapshots.About{
		Token: token, SessionID: fmt.Sprintf("ses_%d", token), LauncherID: "launcher-a", ChromeVersion: "156.0.8078.79",
		CreatedAt: time.Date(2026, 6, 18, 9, 30, int(token), 0, time.UTC), Extras: map[string][]byte{"session-cookies": fmt.Appendf(nil, "of %d", token)},
	}
}

// A holder with a lower token than the list's is refused. A holder with the same token is not.
func testStaleHolder(t *testing.T, o objects.Objects) {
	s, dir := snapshots.New(o, snapshots.NewKey()), Profile().Write(t)
	for _, token := range []lease.Token{41, 43, 43} {
		if _, err := Seal(t, s, "p.1", dir, token); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(token, current lease.Token) {
		t.Helper()
		before, err := s.List(t.Context(), "p.1")
		must(t, err)
		_, err = Seal(t, s, "p.1", dir, token)
		var stale *snapshots.StaleTokenError
		if !errors.As(err, &stale) || stale.Token != token || stale.Current != current {
			t.Errorf("a seal with token %d: %v", token, err)
		}
		if after, err := s.List(t.Context(), "p.1"); err != nil || len(after) != len(before) {
			t.Errorf("%d snapshots, %v, want %d as before", len(after), err, len(before))
		}
	}
	refused(42, 43)
	must(t, s.Raise(t.Context(), "p.1", 50)) // the next holder has made no snapshot yet
	refused(49, 50)
	var stale *snapshots.StaleTokenError
	if err := s.Raise(t.Context(), "p.1", 49); !errors.As(err, &stale) {
		t.Errorf("raised to a lower one: %v", err)
	}
	if _, err := s.Retain(t.Context(), "p.1", 49, snapshots.Retention{Keep: 1}, time.Now()); !errors.As(err, &stale) {
		t.Errorf("a stale holder removed snapshots: %v", err)
	}
	if _, err := Seal(t, s, "p.1", dir, 50); err != nil {
		t.Error(err)
	}
}

// paused wraps objects, and stops a writer before it replaces a list, like a host that is
// suspended for a while.
type paused struct {
	objects.Objects
	before func()
	// refused is how many lists the store refused because somebody else had replaced them.
	refused atomic.Int32
}

func (p *paused) Put(ctx context.Context, key string, content []byte, version string) error {
	if strings.HasSuffix(key, "/head") && p.before != nil {
		before := p.before
		p.before = nil
		before()
	}
	err := p.Objects.Put(ctx, key, content, version)
	if errors.Is(err, objects.ErrOtherVersion) && strings.HasSuffix(key, "/head") {
		p.refused.Add(1)
	}
	return err
}

// If a holder was suspended between reading the list and writing it, the store itself refuses the
// holder's list.
func testLateSeal(t *testing.T, o objects.Objects) {
	key, dir := snapshots.NewKey(), Profile().Write(t)
	s := snapshots.New(o, key)
	if _, err := Seal(t, s, "p.1", dir, 41); err != nil {
		t.Fatal(err)
	}
	slow := &paused{Objects: o}
	slow.before = func() {
		if _, err := Seal(t, s, "p.1", Tree{"Local State": "of the next holder"}.Write(t), 43); err != nil {
			t.Error(err)
		}
	}
	_, err := Seal(t, snapshots.New(slow, key), "p.1", dir, 42)
	var stale *snapshots.StaleTokenError
	if !errors.As(err, &stale) || stale.Current != 43 || slow.refused.Load() != 1 {
		t.Errorf("%v, refused %d times by the store", err, slow.refused.Load())
	}
	if newest, err := Newest(t.Context(), s, "p.1"); err != nil || newest.Token != 43 {
		t.Errorf("%+v, %v, want that of token 43", newest, err)
	}
	if found, err := s.Verify(t.Context(), "p.1", ""); err != nil || !found.Whole() || len(found.Snapshots) != 2 {
		t.Errorf("%+v, %v", found, err)
	}
}

// A fetched profile is the one that was sealed, and content that did not change is not stored
// again.
func testRoundTrip(t *testing.T, o objects.Objects) {
	ctx, s, tree := t.Context(), snapshots.New(o, snapshots.NewKey()), Profile()
	dir, spool := tree.Write(t), t.TempDir()
	options := snapshots.ReadOptions{Spool: spool, Index: filepath.Join(t.TempDir(), "index")}
	seal := func(token lease.Token) snapshots.Snapshot {
		t.Helper()
		r, err := s.Read(ctx, "p.1", dir, options)
		must(t, err)
		made, err := s.Seal(ctx, r, About(token))
		must(t, errors.Join(err, r.Close()))
		return made
	}
	first := seal(1)
	again := seal(2)
	if again.Stored > first.Stored/20 {
		t.Errorf("the same profile again: %d bytes stored, and %d for the first", again.Stored, first.Stored)
	}
	changed := Tree{"Default/Cookies": Random(1, 300_000) + "something" + Random(1, 700_000)[300_000:], "Default/New": "new"}
	changed.WriteTo(t, dir)
	must(t, os.Remove(filepath.Join(dir, "Default/empty file")))
	third := seal(3)
	if third.Stored > 400_000+first.Stored/20 {
		t.Errorf("nine bytes more in a file: %d bytes stored", third.Stored)
	}
	if third.Previous != again.ID || again.Previous != first.ID || first.Previous != "" {
		t.Errorf("%q, %q, %q are not a chain", first.Previous, again.Previous, third.Previous)
	}
	list, err := s.List(ctx, "p.1")
	if err != nil || len(list) != 3 || list[0].ID != third.ID || list[2].ID != first.ID {
		t.Fatalf("%+v, %v", list, err)
	}
	now := ReadTree(t, dir)
	for id, want := range map[string]Tree{first.ID: tree, again.ID: tree, third.ID: now, "": now} {
		to := filepath.Join(t.TempDir(), "fetched")
		f, err := s.Fetch(ctx, "p.1", id, to, snapshots.FetchOptions{Chrome: "156.0.8078.79"})
		must(t, err)
		if got := ReadTree(t, to); !mapsEqual(got, want) {
			t.Errorf("snapshot %s is not what was sealed", id)
		}
		if string(f.Extra["session-cookies"]) != fmt.Sprintf("of %d", f.Token) || f.Files != len(f.Tree) || f.SessionID != fmt.Sprintf("ses_%d", f.Token) {
			t.Errorf("%+v", f.Snapshot)
		}
	}
	if left, err := os.ReadDir(spool); err != nil || len(left) > 0 {
		t.Errorf("left in the spool: %v, %v", left, err)
	}
	if list, err := s.List(ctx, "p"); err != nil || len(list) != 0 {
		t.Errorf("another profile has %+v, %v", list, err)
	}
	_, err = s.Fetch(ctx, "p", first.ID, filepath.Join(t.TempDir(), "x"), snapshots.FetchOptions{})
	want(t, "of another profile", err, snapshots.ErrNoSnapshot)
}

func mapsEqual(a, b Tree) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// Objects that are not as they were stored are found, and nothing of a damaged profile is fetched.
func testDamage(t *testing.T, o objects.Objects) {
	ctx, key := t.Context(), snapshots.NewKey()
	s := snapshots.New(o, key)
	for _, p := range []string{"p.1", "p.2"} {
		if _, err := Seal(t, s, p, Profile().Write(t), 1); err != nil {
			t.Fatal(err)
		}
	}
	all, err := o.List(ctx, "profiles/")
	must(t, err)
	folders := map[string][]string{}
	for _, k := range all {
		folder := strings.SplitN(k, "/", 3)[1]
		if strings.Contains(k, "/chunks/") {
			folders[folder] = append(folders[folder], k)
		}
	}
	if len(folders) != 2 {
		t.Fatalf("%d profiles in the store", len(folders))
	}
	check := func(what string, target error) {
		t.Helper()
		damaged := 0
		for _, p := range []string{"p.1", "p.2"} {
			found, err := s.Verify(ctx, p, "")
			must(t, err)
			to := filepath.Join(t.TempDir(), "fetched")
			_, err = s.Fetch(ctx, p, "", to, snapshots.FetchOptions{})
			if found.Whole() != (err == nil) {
				t.Errorf("%s: verify says whole: %v, and the fetch %v", what, found.Whole(), err)
			}
			if err == nil {
				continue
			}
			damaged++
			want(t, what, err, target)
			if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) > 0 {
				t.Errorf("%s: half a profile is left: %v, %v", what, left, err)
			}
		}
		if damaged != 1 {
			t.Errorf("%s: %d profiles are damaged", what, damaged)
		}
	}
	replace := func(k string, content []byte) {
		t.Helper()
		must(t, errors.Join(o.Delete(ctx, k), o.Put(ctx, k, content, "")))
	}
	var mine, others []string
	for _, keys := range folders {
		slices.Sort(keys)
		mine, others = others, keys
	}
	was, _, err := o.Get(ctx, mine[0])
	must(t, err)
	changed := bytes.Clone(was)
	changed[len(changed)/2] ^= 1
	replace(mine[0], changed)
	check("changed", snapshots.ErrDamaged)
	replace(mine[0], was[:len(was)-1])
	check("cut off", snapshots.ErrDamaged)
	replace(mine[0], was[:3])
	check("cut off short", snapshots.ErrDamaged)
	for what, from := range map[string]string{"another's": others[0], "another of its own": mine[1]} {
		other, _, err := o.Get(ctx, from)
		must(t, err)
		replace(mine[0], other)
		check(what, snapshots.ErrDamaged)
	}
	must(t, o.Delete(ctx, mine[0]))
	check("gone", snapshots.ErrIncomplete)
	replace(mine[0], was)

	_, err = snapshots.New(o, snapshots.NewKey()).List(ctx, "p.1")
	want(t, "a wrong key", err, snapshots.ErrWrongKey)

	// The list of one profile is cut off, and its whole list is put in the place of the other's.
	heads := slices.DeleteFunc(all, func(k string) bool { return !strings.HasSuffix(k, "/head") })
	head, version, err := o.Get(ctx, heads[0])
	must(t, err)
	must(t, o.Put(ctx, heads[0], head[:len(head)-1], version))
	other, otherVersion, err := o.Get(ctx, heads[1])
	must(t, err)
	must(t, o.Put(ctx, heads[1], head, otherVersion))
	_ = other
	for _, p := range []string{"p.1", "p.2"} {
		_, err := s.List(ctx, p)
		want(t, "the list of "+p, err, snapshots.ErrDamaged)
	}
}

// Retention removes snapshots by count and age, but never the newest and never one that
// the caller names. The snapshots that stay are whole.
func testRetention(t *testing.T, o objects.Objects) {
	ctx, s := t.Context(), snapshots.New(o, snapshots.NewKey())
	var made []snapshots.Snapshot
	for token := range lease.Token(6) {
		tree := Profile()
		tree["Default/Cookies"] = Random(int(token), 300_000)
		snapshot, err := Seal(t, s, "p.1", tree.Write(t), token+1)
		must(t, err)
		made = append(made, snapshot)
	}
	chunks := func() int {
		t.Helper()
		keys, err := o.List(ctx, "profiles/")
		must(t, err)
		return len(keys)
	}
	before := chunks()
	now := made[5].CreatedAt
	retain := func(r snapshots.Retention, now time.Time, left ...int) {
		t.Helper()
		_, err := s.Retain(ctx, "p.1", 6, r, now)
		must(t, err)
		list, err := s.List(ctx, "p.1")
		must(t, err)
		var ids, wanted []string
		for _, one := range list {
			ids = append(ids, one.ID)
		}
		for _, i := range left {
			wanted = append(wanted, made[i].ID)
		}
		if !slices.Equal(ids, wanted) {
			t.Errorf("%+v leaves %q, want %q", r, ids, wanted)
		}
		if found, err := s.Verify(ctx, "p.1", ""); err != nil || !found.Whole() {
			t.Errorf("%+v leaves damage: %+v, %v", r, found, err)
		}
	}
	retain(snapshots.Retention{}, now, 5, 4, 3, 2, 1, 0)
	retain(snapshots.Retention{Keep: 4, Also: []string{made[0].ID}}, now, 5, 4, 3, 2, 0)
	if now := chunks(); now >= before {
		t.Errorf("%d objects before, and %d after one snapshot was removed", before, now)
	}
	retain(snapshots.Retention{KeepFor: 2 * time.Second, Also: []string{made[2].ID}}, now, 5, 4, 3, 2)
	retain(snapshots.Retention{KeepFor: 2 * time.Second}, now, 5, 4, 3)
	retain(snapshots.Retention{Keep: 1, KeepFor: time.Second}, now.Add(time.Hour), 5)

	// Chunks that an incomplete seal left are collected. Chunks that a later holder stores at the
	// same time are not.
	keys, err := o.List(ctx, "profiles/")
	must(t, err)
	var folder string
	for _, key := range keys {
		if before, _, ok := strings.Cut(key, "chunks/"); ok {
			folder = before + "chunks/"
		}
	}
	name := strings.Repeat("ab", 20)
	mine, later := folder+"0000000000000006/"+name, folder+"0000000000000007/"+name
	must(t, errors.Join(o.Put(ctx, mine, []byte("x"), ""), o.Put(ctx, later, []byte("x"), "")))
	must(t, s.Collect(ctx, "p.1", 6))
	_, _, err = o.Get(ctx, mine)
	want(t, "left over", err, objects.ErrNone)
	_, _, err = o.Get(ctx, later)
	want(t, "of a later holder", err, nil)
	retain(snapshots.Retention{}, now, 5)
}
