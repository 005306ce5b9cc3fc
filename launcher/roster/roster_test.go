package roster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/internal/signed"
	"leasehold/internal/test/testkey"
	"leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *Roster {
	t.Helper()
	r, err := Open(Options{DataDir: dir, Key: testkey.Key, Log: zerolog.New(zerolog.NewTestWriter(t))})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func record(profile, home string, token lease.Token) lease.Record {
	return lease.Record{ProfileID: profile, Home: home, Token: token, State: lease.Available, AccountID: "acct", ProxyID: "px"}
}

// run has the roster run while fn does.
func run(t *testing.T, r *Roster, fn func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	fn()
	cancel()
	<-done
}

// TestWhatWasSeenIsRemembered, over restarts of the launcher, and while it runs already.
func TestWhatWasSeenIsRemembered(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	if !r.Empty() || r.Of("p").Home != "" {
		t.Fatal("it begins with something")
	}
	run(t, r, func() {
		r.See(record("p", "there", 5))
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			b, err := os.ReadFile(r.path())
			if err != nil {
				t.Fatal(err)
			}
			if known, damage := parse(b, testkey.Key); damage != nil {
				t.Fatal(damage)
			} else if known["p"].Token == 5 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("it is not on the disk")
			}
		}
		r.See(record("q", "there", 1))
		r.See(record("p", "there", 7))
		r.See(record("p", "there", 6))     // an old copy
		r.See(record("p", "elsewhere", 9)) // made anew
		r.See(lease.Record{ProfileID: "p"})
		r.See(lease.Record{ProfileID: "never"})
	})
	r = open(t, dir)
	all := r.All()
	if len(all) != 2 || r.Empty() {
		t.Errorf("remembered: %+v", all)
	}
	if k, want := r.Of("p"), record("p", "there", 7).Known(); !k.Same(want) {
		t.Errorf("%+v, want %+v", k, want)
	}
	moved := record("p", "elsewhere", 9)
	moved.HomeToken = 8
	run(t, r, func() { r.See(moved) })
	if k := open(t, dir).Of("p"); k.Home != "elsewhere" || k.HomeToken != 8 || k.Token != 9 {
		t.Errorf("%+v", k)
	}
}

// TestTheFileIsWrittenAnew when most of its lines say what others say better.
func TestTheFileIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	const profiles, times = 500, slack/500 + 3
	for i := range lease.Token(times) { // as Run does, without its pauses
		for n := range profiles {
			r.See(record(fmt.Sprint("p", n), "there", i))
		}
		if err := r.write(); err != nil {
			t.Fatal(err)
		}
	}
	if r.lines >= times*profiles {
		t.Errorf("%d lines for %d profiles", r.lines, profiles)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if k := open(t, dir).Of("p7"); k.Token != times-1 {
		t.Errorf("%+v", k)
	}
}

// TestWhatCannotBeWrittenIsWrittenLater, and nothing of it is lost.
func TestWhatCannotBeWrittenIsWrittenLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir)
	r.See(record("p", "there", 5))
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := r.write(); err == nil {
		t.Fatal("it is written")
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.write(), r.close()); err != nil {
		t.Fatal(err)
	}
	if k := open(t, dir).Of("p"); k.Token != 5 || k.Unproved {
		t.Errorf("%+v", k)
	}
}

// TestWhatIsWrittenIsSynced, with all that it says.
func TestWhatIsWrittenIsSynced(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	was := syncFile
	defer func() { syncFile = was }()
	broken := errors.New("the disk is broken")
	var synced []byte
	syncFile = func(f *os.File) (err error) {
		synced, err = os.ReadFile(f.Name())
		return errors.Join(err, broken)
	}
	r.See(record("p", "there", 5))
	if err := r.append(r.take()); !errors.Is(err, broken) {
		t.Errorf("a sync that failed: %v", err)
	}
	if known, damage := parse(synced, testkey.Key); damage != nil || known["p"].Token != 5 {
		t.Errorf("synced: %+v, %v", known, damage)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

// TestADamagedRosterProvesNothing, and takes nothing back: what it names stays refused, and
// is put right by the store alone.
func TestADamagedRosterProvesNothing(t *testing.T) {
	whole := func(t *testing.T, dir string) []byte {
		r := open(t, dir)
		run(t, r, func() {
			for i := range 3 {
				r.See(record(fmt.Sprintf("p%d", i), "there", 5))
			}
		})
		b, err := os.ReadFile(r.path())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	forged := `00 {"profile_id":"p9","home":"evil","lease_token":77,"state":"held"}` + "\n"
	for name, tt := range map[string]struct {
		spoil    func([]byte) []byte
		proved   int
		unproved int
	}{
		"cut short in the last line": {func(b []byte) []byte { return b[:len(b)-9] }, 2, 0},
		"a line added":               {func(b []byte) []byte { return append(b, forged...) }, 3, 1},
		"a line before":              {func(b []byte) []byte { return append([]byte(forged), b...) }, 0, 4},
		"a token changed": {func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"lease_token":5`), []byte(`"lease_token":4`), 1)
		}, 0, 3},
		"a line taken out": {func(b []byte) []byte {
			_, rest, _ := bytes.Cut(b, []byte("\n"))
			return rest
		}, 0, 2},
		"a line that says nothing in between": {func(b []byte) []byte {
			first, rest, _ := bytes.Cut(b, []byte("\n"))
			return slices.Concat(first, []byte("\nnothing\n"), rest)
		}, 1, 2},
		"a line added about a profile that is known": {func(b []byte) []byte {
			return append(b, `00 {"profile_id":"p1","home":"evil","lease_token":77,"state":"held"}`+"\n"...)
		}, 3, 0},
		"no text": {func([]byte) []byte { return []byte("\x00\xff\n\n") }, 0, 0},
		"a token that nobody reaches": {func([]byte) []byte {
			return []byte(`00 {"profile_id":"p9","home":"evil","lease_token":18446744073709551615}` + "\n")
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := tt.spoil(whole(t, dir))
			if err := os.WriteFile(filepath.Join(dir, fileName), b, 0o600); err != nil {
				t.Fatal(err)
			}
			for start := range 2 { // it stays so over a restart
				r := open(t, dir)
				proved, unproved := 0, 0
				for _, k := range r.All() {
					if k.Unproved {
						unproved++
					} else {
						proved++
					}
				}
				// A host that went down in a write has damaged nothing.
				aside, err := os.ReadFile(r.path() + ".damaged")
				if damaged := name != "cut short in the last line"; start == 0 && ((err == nil) != damaged || damaged && !bytes.Equal(aside, b)) {
					t.Errorf("put aside: %q, %v", aside, err)
				}
				if proved != tt.proved || unproved != tt.unproved {
					t.Errorf("%d proved and %d unproved, want %d and %d: %+v", proved, unproved, tt.proved, tt.unproved, r.All())
				}
			}
			r := open(t, dir)
			run(t, r, func() { r.See(record("p9", "there", 1)) })
			if k := open(t, dir).Of("p9"); k.Unproved || k.Token != 1 || k.Home != "there" {
				t.Errorf("after the store showed it: %+v", k)
			}
		})
	}
	if _, err := Open(Options{DataDir: filepath.Join(t.TempDir(), "none"), Key: testkey.Key, Log: zerolog.Nop()}); err == nil {
		t.Error("a roster that cannot be written is opened")
	}
}

// FuzzParse checks that nothing is proved but what a launcher wrote, and that what it wrote
// is read as it was.
func FuzzParse(f *testing.F) {
	write := func(all ...lease.Known) []byte {
		r := &Roster{o: Options{Key: testkey.Key}}
		b, err := r.signed(testkey.Key.Chain(signed.Roster, fileName), all)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	p, q := record("p", "a", 1).Known(), record("q", "b", 2).Known()
	f.Add([]byte(""))
	f.Add(write(p, q, p))
	f.Add(write(p, q)[:40])
	f.Add([]byte("00 {}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		known, _ := parse(b, testkey.Key)
		for profile, k := range known {
			if k.ProfileID != profile || k.Home == "" {
				t.Errorf("%q: %+v", profile, k)
			}
			if !k.Unproved && !bytes.Contains(b, []byte("\n")) {
				t.Errorf("proved by no line: %+v", k)
			}
		}
		again, damage := parse(write(slices.Collect(maps.Values(known))...), testkey.Key)
		if damage != nil || !maps.EqualFunc(again, known, lease.Known.Same) {
			t.Errorf("%+v, written and read: %+v, %v", known, again, damage)
		}
	})
}
