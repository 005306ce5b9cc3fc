package profiledir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"leasehold/internal/signed"
	"leasehold/lease"
)

// A directory that is away is not replaced by an empty one, in which the account would be signed out. One that
// was put aside or removed here, and one that nobody had, may be made.
func TestOnlyADirectoryThatWasPutAsideIsMadeAnew(t *testing.T) {
	away := func(r *Root, _ *Lock) error {
		return os.Rename(filepath.Join(r.dir, "p"), filepath.Join(t.TempDir(), "p"))
	}
	inArchive := func(_ *Root, l *Lock) error {
		_, err := l.Archive(time.Now(), nil)
		return err
	}
	archived := func(_ *Root, l *Lock) error {
		at, err := l.Archive(time.Now(), nil)
		return errors.Join(err, os.RemoveAll(at), os.RemoveAll(at+besideMark)) // as a person deletes it
	}
	removed := func(r *Root, l *Lock) error {
		err := MarkClone(filepath.Join(r.dir, "p"), "another")
		if err == nil {
			_, err = l.RemoveClone()
		}
		return err
	}
	imported := func(_ *Root, l *Lock) error {
		_, err := l.Make(t.Context(), Empty, func(string, map[string][]byte) error { return nil })
		return err
	}
	created := func(r *Root, _ *Lock) error {
		_, err := r.Create("p")
		return err
	}
	opened := func(_ *Root, l *Lock) error { return l.Opening() }
	unknown := func(r *Root, _ *Lock) error { return os.Remove(r.file("p", "floor")) }
	notImported := func(_ *Root, l *Lock) error {
		_, err := l.Make(t.Context(), Empty, func(string, map[string][]byte) error {
			return errors.Join(l.RaiseFloor(lease.Record{ProfileID: "p", State: lease.Available, Token: 8, Home: "here"}), errRefused)
		})
		return refusedBy(err)
	}
	importedTooLate := func(_ *Root, l *Lock) error {
		_, err := l.Make(t.Context(), Empty, func(made string, _ map[string][]byte) error { return os.Remove(made) })
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it came into its place: %w", err)
		}
		return nil
	}
	notRestored := func(_ *Root, l *Lock) error {
		e, err := l.Exchange(t.Context(), time.Now(), nil, Empty)
		if err == nil {
			err = e.Undo()
		}
		return err
	}
	for name, tt := range map[string]struct {
		then []func(*Root, *Lock) error
		want error
	}{
		"it is away":              {steps(away), ErrMissing},
		"nobody had it":           {steps(away, unknown), nil},
		"its first import failed": {steps(away, unknown, notImported), nil},
		"its first import failed, the next did not, and it is away": {steps(away, unknown, notImported, imported, away), ErrMissing},
		"it is away, and an import failed":                          {steps(away, notImported), ErrMissing},
		"it is away, and a restore was undone":                      {steps(away, notRestored), ErrMissing},
		"it was archived and deleted, and an import failed":         {steps(archived, notImported), nil},
		"it was archived and deleted, and an import did not appear": {steps(archived, importedTooLate), nil},
		"it was a clone that was removed, and a restore was undone": {steps(removed, notRestored), nil},
		"it was archived, and is deleted there":                     {steps(archived), nil},
		"it was a clone that was removed":                           {steps(removed), nil},
		"its removal was cut short": {steps(func(r *Root, l *Lock) error {
			return l.putAside(func() error { return os.Rename(filepath.Join(r.dir, "p"), l.removedPath()) })
		}), nil},
		"it left for another home": {steps(func(_ *Root, l *Lock) error {
			return l.Depart(Departure{Home: "there", Token: 8})
		}, away), nil},
		"it could not be put aside, and is away": {steps(func(_ *Root, l *Lock) error {
			return refusedBy(l.putAside(func() error { return errRefused }))
		}, away), ErrMissing},
		"it was archived, one was imported, and that is away": {steps(archived, imported, away), ErrMissing},
		"it was archived, one was restored, and that is away": {steps(archived, restored(t), away), ErrMissing},
		"it was removed, one came here, and that is away":     {steps(removed, arrived(t), away), ErrMissing},
		"it was archived":                                      {steps(inArchive), ErrArchived},
		"it was restored, and that is away":                    {steps(restored(t), away), ErrMissing},
		"it came back to this host, and that is away":          {steps(arrived(t), away), ErrMissing},
		"it was archived, brought back, and that is away":      {steps(inArchive, imported, away), ErrMissing},
		"it was removed, and one was made for nobody":          {steps(removed, created, func(r *Root, _ *Lock) error { return r.RemoveEmpty("p") }), nil},
		"it was removed, one was made and opened, and is away": {steps(removed, created, opened, away), ErrMissing},
		"somebody else says that it was put aside": {steps(away, func(r *Root, _ *Lock) error {
			return os.WriteFile(r.file("p", string(signed.Aside)), []byte("{}\n"), 0o600)
		}), ErrMissing},
	} {
		t.Run(name, func(t *testing.T) {
			r, must := open(t), mustIn(t)
			_, err := r.Create("p")
			must(err)
			l := lock(t, r, "p")
			must(l.RaiseFloor(lease.Record{ProfileID: "p", State: lease.Available, Token: 7, Home: "here"}))
			for _, step := range tt.then {
				must(step(r, l))
			}
			place, err := r.Create("p")
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Errorf("made at %q, %v; want %v", place, err, tt.want)
			}
			if _, err := os.Lstat(filepath.Join(r.dir, "p")); errors.Is(err, fs.ErrNotExist) != (tt.want != nil) {
				t.Errorf("its directory: %v", err)
			}
		})
	}
}

func steps(all ...func(*Root, *Lock) error) []func(*Root, *Lock) error { return all }

var errRefused = errors.New("refused")

func refusedBy(err error) error {
	if errors.Is(err, errRefused) {
		return nil
	}
	return errors.Join(errors.New("it was not refused"), err)
}

func restored(t *testing.T) func(*Root, *Lock) error {
	return func(_ *Root, l *Lock) error {
		_, err := l.Exchange(t.Context(), time.Now(), nil, Empty)
		return err
	}
}

func arrived(t *testing.T) func(*Root, *Lock) error {
	return func(_ *Root, l *Lock) error {
		err := l.PrepareArrival(t.Context(), Arrival{MoveID: "mv9"}, Empty)
		if err == nil {
			_, err = l.Arrive(cameUnder(9, "mv9"), time.Now(), nil, func(map[string][]byte) error { return nil })
		}
		return err
	}
}
