package profiledir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/internal/signed"
	"leasehold/lease"
)

func cameUnder(token lease.Token, id string) lease.Record {
	return lease.Record{ProfileID: "a", State: lease.Available, Home: "here", Token: token, HomeToken: token, Moved: &lease.Move{ID: id, From: "there", Token: token}}
}

func mustBe[E error](t *testing.T, what string, err error) {
	t.Helper()
	var want E
	if !errors.As(err, &want) {
		t.Errorf("%s: %v, want a %T", what, err, want)
	}
}

// A directory that was left is not opened any more, its floor included, until it is known that
// it was not left after all.
func TestALeftDirectory(t *testing.T) {
	r := open(t)
	if _, err := r.Create("a"); err != nil {
		t.Fatal(err)
	}
	l := lock(t, r, "a")
	if err := errors.Join(l.MayOpen(), l.Stay(), l.RaiseFloor(lease.Record{ProfileID: "a", Token: 3})); err != nil {
		t.Fatal(err)
	}
	if err := l.Depart(Departure{Home: "there", Token: 5, Pending: true}); err != nil {
		t.Fatal(err)
	}
	mustBe[*DepartedError](t, "a departure that is pending", l.MayOpen())
	if err := l.Stay(); err != nil || l.MayOpen() != nil {
		t.Fatalf("taken back: %v %v", err, l.MayOpen())
	}
	for _, d := range []Departure{{Home: "there", Token: 5}, {Home: "elsewhere", Token: 4}} { // a lower one changes nothing
		if err := l.Depart(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Stay(); err != nil {
		t.Fatal(err)
	}
	d, left, err := r.Departed("a")
	if err != nil || !left || d.Home != "there" || d.Token != 5 {
		t.Errorf("%+v %v %v", d, left, err)
	}
	mustBe[*DepartedError](t, "the lock", l.MayOpen())
	mustBe[*DepartedError](t, "the root", r.MayOpen("a"))
	mustBe[*DepartedError](t, "the floor", l.RaiseFloor(lease.Record{ProfileID: "a", Token: 9}))
	if floor, err := r.Floor("a"); err != nil || floor != 3 {
		t.Errorf("floor %d %v", floor, err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"depart": l.Depart(Departure{Token: 9}), "stay": l.Stay(), "prepare": l.PrepareArrival(t.Context(), Arrival{}, nil), "drop": l.DropArrival()} {
		if err == nil {
			t.Errorf("%s without the lock", what)
		}
	}
}

// A directory arrives where another one was: that one goes to the archive, the floor follows,
// and nothing is opened before all of it is done, however often it is cut short.
func TestAnArrival(t *testing.T) {
	steps := func(t *testing.T, r *Root, l *Lock, done int) {
		// What Arrive has done before it was killed.
		t.Helper()
		to := filepath.Join(r.Dir(), "a")
		if done > 0 {
			if _, err := l.Archive(time.Now(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if done > 1 {
			if err := os.Rename(r.arrivalPath("a"), to); err != nil {
				t.Fatal(err)
			}
		}
		if done > 2 {
			if err := errors.Join(l.keep(cameUnder(9, "mv9"), 0), l.removeNote(signed.Departure)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for done := range 4 {
		r := open(t)
		if _, err := r.Create("a"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.Dir(), "a", "old"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l := lock(t, r, "a")
		if err := l.Depart(Departure{Home: "there", Token: 5}); err != nil {
			t.Fatal(err)
		}
		err := l.PrepareArrival(t.Context(), Arrival{MoveID: "mv9"}, func(_ context.Context, dir string) (map[string][]byte, error) {
			return map[string][]byte{"cookies": []byte("c")}, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "new"), nil, 0o600))
		})
		if err != nil {
			t.Fatal(err)
		}
		nothing := func(map[string][]byte) error { return nil }
		if _, err := l.Arrive(cameUnder(9, "mv8"), time.Now(), nil, nothing); err == nil {
			t.Error("it arrived by another move")
		}
		other := cameUnder(9, "mv9")
		other.HomeToken = 10
		if _, err := l.Arrive(other, time.Now(), nil, nothing); err == nil {
			t.Error("it arrived, and the home has changed since")
		}
		if a, arriving, err := r.Arriving("a"); err != nil || !arriving || string(a.Extras["cookies"]) != "c" {
			t.Errorf("%+v %v %v", a, arriving, err)
		}
		steps(t, r, l, done)
		if err := l.MayOpen(); err == nil {
			t.Errorf("after %d steps it may be opened", done)
		}
		if done < 2 { // the jar takes nothing
			full := errors.New("the disk is full")
			if _, err := l.Arrive(cameUnder(9, "mv9"), time.Now(), map[string][]byte{"cookies": []byte("old")}, func(map[string][]byte) error { return full }); !errors.Is(err, full) || l.MayOpen() == nil {
				t.Errorf("it may be opened without what belongs to it: %v", err)
			}
		}
		taken := ""
		_, err = l.Arrive(cameUnder(9, "mv9"), time.Now(), map[string][]byte{"cookies": []byte("none")}, func(extras map[string][]byte) error {
			taken = string(extras["cookies"])
			return nil
		})
		if err != nil || (taken == "c") != (done < 2) { // what is in its place has what belongs to it
			t.Fatalf("after %d steps it took %q, %v", done, taken, err)
		}
		if _, err := os.Stat(filepath.Join(r.Dir(), "a", "new")); err != nil {
			t.Error(err)
		}
		floor, kept, err := r.Kept("a")
		if err != nil || floor != 9 || kept.Home != "here" || l.MayOpen() != nil {
			t.Errorf("floor %d of %+v: %v, %v", floor, kept, err, l.MayOpen())
		}
		archived, err := filepath.Glob(filepath.Join(r.archive(), "a@*", "old"))
		if err != nil || len(archived) != 1 {
			t.Fatalf("archived: %v %v", archived, err)
		}
		if beside, _, err := r.Beside(filepath.Dir(archived[0])); done == 0 && string(beside["cookies"]) != "old" || err != nil {
			t.Errorf("beside the directory before: %s, %v", beside, err)
		}
		if _, err := os.Stat(r.arrivalPath("a")); err == nil {
			t.Error("something is left of the way")
		}
	}
}

// If the directory cannot be filled nothing of it is left, and what was there is as it was.
func TestAnArrivalThatFails(t *testing.T) {
	r := open(t)
	l := lock(t, r, "a")
	for name, fill := range map[string]func(dir string) error{
		"half":       func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), errors.New("cut off")) },
		"nothing":    func(string) error { return nil },
		"a file":     func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a bad copy": func(dir string) error { return Copy(t.Context(), t.TempDir(), dir) },
		"a late copy": func(dir string) error {
			ctx, end := context.WithCancel(t.Context())
			end()
			return Copy(ctx, userData(t), dir)
		},
	} {
		if err := l.PrepareArrival(t.Context(), Arrival{MoveID: "mv"}, func(_ context.Context, dir string) (map[string][]byte, error) { return nil, fill(dir) }); err == nil || !strings.Contains(err.Error(), "profile a") {
			t.Errorf("%s: %v", name, err)
		}
		if _, arriving, err := r.Arriving("a"); arriving || err != nil {
			t.Errorf("%s: arriving %v %v", name, arriving, err)
		}
		if _, err := os.Lstat(r.arrivalPath("a")); err == nil {
			t.Errorf("%s: something is left", name)
		}
	}
	from := userData(t)
	if err := l.PrepareArrival(t.Context(), Arrival{MoveID: "mv"}, copyOf(from)); err != nil {
		t.Fatal(err)
	}
	mustBe[*ArrivingError](t, "on its way", l.MayOpen())
	if err := l.DropArrival(); err != nil || l.MayOpen() != nil {
		t.Errorf("dropped: %v %v", err, l.MayOpen())
	}
	if _, err := os.Lstat(r.arrivalPath("a")); err == nil {
		t.Error("something is left of what was dropped")
	}
}

// Nobody else's note opens a directory, or shuts it for good.
func TestForgedNotesOfHomes(t *testing.T) {
	r := open(t)
	for _, kind := range []signed.Kind{signed.Departure, signed.Arrival} {
		l := lock(t, r, "a")
		if err := os.WriteFile(r.file("a", string(kind)), []byte(`{"home":"there","lease_token":5}`), 0o600); err != nil {
			t.Fatal(err)
		}
		mustBe[*DamagedError](t, string(kind), l.MayOpen())
		mustBe[*DamagedError](t, string(kind), l.RaiseFloor(lease.Record{ProfileID: "a", Token: 90}))
		if err := l.Renew(lease.Record{ProfileID: "a", Token: 91}); err != nil || l.MayOpen() != nil { // a person decides
			t.Errorf("%s: %v %v", kind, err, l.MayOpen())
		}
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}
