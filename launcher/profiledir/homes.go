package profiledir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/lease"
)

// Departure says that this host's directory of the profile was left: another launcher is now
// the profile's home. The directory stays where it is, as evidence, and no browser is started
// on it.
type Departure struct {
	// Home is the new home, and Token is the token under which it became the home.
	Home  string      `json:"home"`
	Token lease.Token `json:"lease_token"`
	At    time.Time   `json:"at"`
	// Pending says that the former home wrote this before the record was changed: it is not
	// known yet whether the record was changed.
	Pending bool `json:"pending,omitempty"`
}

// DepartedError says that this host's directory of the profile was left for another home.
type DepartedError struct {
	Profile string
	Departure
}

func (e *DepartedError) Error() string {
	return fmt.Sprintf("the directory of profile %s on this host was left to launcher %s under token %d: it is not opened any more", e.Profile, e.Home, e.Token)
}

// Depart durably notes that the profile's directory was left. A note with a lower token does
// not replace one with a higher token.
func (l *Lock) Depart(d Departure) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if before, left, err := l.root.Departed(l.id); err != nil {
		return err
	} else if left && before.Token > d.Token {
		return nil
	}
	return l.writeNote(signed.Departure, d)
}

// Stay durably removes a pending departure: the record was not changed, and never will be by
// that write. It does nothing if there is no departure, or if it is not pending.
func (l *Lock) Stay() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if d, left, err := l.root.Departed(l.id); err != nil || !left || !d.Pending {
		return err
	}
	return l.removeNote(signed.Departure)
}

// Departed returns whether this host's directory of the profile was left. The error is a
// *DamagedError for a note that this launcher has not written: then nobody opens the directory
// either.
func (r *Root) Departed(id string) (Departure, bool, error) {
	var d Departure
	found, err := r.readNote(id, signed.Departure, &d)
	return d, found, err
}

// MayOpen returns nil if a browser may be started on the profile's directory: the directory was
// not left for another home, and no other one is about to replace it. Otherwise the error is a
// *DepartedError, an *ArrivingError, or a *DamagedError.
func (l *Lock) MayOpen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mayOpen()
}

func (l *Lock) mayOpen() error { return l.root.MayOpen(l.id) }

// MayOpen is Lock.MayOpen, as a hint for callers that do not have the lock.
func (r *Root) MayOpen(id string) error {
	d, left, err := r.Departed(id)
	if err == nil && left {
		err = &DepartedError{id, d}
	}
	if err != nil {
		return err
	}
	a, arriving, err := r.Arriving(id)
	if err == nil && arriving {
		err = &ArrivingError{id, a}
	}
	return err
}

// Arrival is a directory that is complete, and is put into the profile's place as soon as it is
// known that this launcher became the home by the move with that id.
type Arrival struct {
	MoveID string    `json:"move_id"`
	At     time.Time `json:"at"`
	// Extras are the files that belong beside the directory, by name: the session cookies.
	Extras map[string][]byte `json:"extras,omitempty"`
}

// ArrivingError says that the profile's directory on this host is not in its place yet.
type ArrivingError struct {
	Profile string
	Arrival
}

func (e *ArrivingError) Error() string {
	return fmt.Sprintf("the directory of profile %s is on its way into its place on this host", e.Profile)
}

// arrivalPath is where the arriving directory is made.
func (r *Root) arrivalPath(id string) string { return filepath.Join(r.guard, arrivalMark+id) }

// PrepareArrival makes the directory in which the profile arrives, out of sight. If it returns nil, the
// directory is complete and on disk; otherwise nothing is left of it. One that an earlier move prepared,
// and of which nobody knows yet whether it was stored, is not replaced: the error is an *ArrivingError.
func (l *Lock) PrepareArrival(ctx context.Context, a Arrival, fill Fill) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if before, arriving, err := l.root.Arriving(l.id); err == nil && arriving {
		return &ArrivingError{l.id, before}
	}
	if err := l.dropArrival(os.RemoveAll); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.dropArrival(os.RemoveAll))
		}
	}()
	if a.Extras, err = fill(ctx, l.root.arrivalPath(l.id)); err != nil {
		return fmt.Errorf("profile %s: its directory is not filled: %w", l.id, err)
	}
	if fi, err := os.Lstat(l.root.arrivalPath(l.id)); err != nil || !fi.IsDir() {
		return fmt.Errorf("profile %s: its directory is not filled: %s is no directory (%w)", l.id, l.root.arrivalPath(l.id), err)
	}
	if err := durable.Sync(l.root.guard); err != nil {
		return fmt.Errorf("profile %s: %w", l.id, err)
	}
	return l.writeNote(signed.Arrival, a)
}

// Arriving returns the directory that is to be put into the profile's place, and whether there
// is one. The error is a *DamagedError for a note that this launcher has not written.
func (r *Root) Arriving(id string) (Arrival, bool, error) {
	var a Arrival
	found, err := r.readNote(id, signed.Arrival, &a)
	return a, found, err
}

// DropArrival removes a prepared directory that is not needed, because the profile did not come
// here by that move.
func (l *Lock) DropArrival() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.dropArrival(os.RemoveAll)
}

// dropArrival is DropArrival, which has remove delete the directories.
func (l *Lock) dropArrival(remove func(path string) error) error {
	err := l.removeNote(signed.Arrival)
	if err == nil {
		err = remove(l.root.arrivalPath(l.id))
	}
	// A fetch that was killed leaves its files beside it. Ids may have dots: there may be one of another profile.
	mark := "." + filepath.Base(l.root.arrivalPath(l.id)) + "."
	left, globErr := durable.Glob(l.root.guard, mark+"*")
	err = errors.Join(err, globErr)
	for _, path := range left {
		if !strings.Contains(strings.TrimPrefix(filepath.Base(path), mark), ".") {
			err = errors.Join(err, remove(path))
		}
	}
	if err != nil {
		return fmt.Errorf("profile %s: %w", l.id, err)
	}
	return nil
}

// Arrive puts the prepared directory into the profile's place, and makes the record's token the
// floor: by that record this launcher is the home. A directory that was there before goes to
// the archive, with former, which is what belongs to it. After that, and before the new one is in its place,
// take gets what belongs to that. If Arrive is interrupted, the next call goes on from there, and may call take
// again. archived is the path of the former directory; empty if there was none.
func (l *Lock) Arrive(rec lease.Record, now time.Time, former map[string][]byte, take func(extras map[string][]byte) error) (archived string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return "", err
	}
	a, arriving, err := l.root.Arriving(l.id)
	switch {
	case err != nil:
		return "", err
	case !arriving || rec.Moved == nil || rec.Moved.ID != a.MoveID || rec.HomeToken != rec.Moved.Token:
		return "", fmt.Errorf("profile %s: no directory was prepared for the move to %s under token %d", l.id, rec.Home, rec.HomeToken)
	}
	to := filepath.Join(l.root.dir, l.id)
	if _, err := os.Lstat(l.root.arrivalPath(l.id)); err == nil {
		if _, err := os.Lstat(to); err == nil {
			if archived, err = l.Archive(now, former); err != nil {
				return "", err
			}
		}
		if err := take(a.Extras); err != nil {
			return archived, err
		}
		if err := l.root.forgetFormer(l.id); err != nil {
			return archived, err
		}
		if err := os.Rename(l.root.arrivalPath(l.id), to); err != nil {
			return archived, fmt.Errorf("profile %s: %w", l.id, err)
		}
		if err := errors.Join(durable.Sync(l.root.dir), durable.Sync(l.root.guard)); err != nil {
			return archived, fmt.Errorf("profile %s: %w", l.id, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	floor, err := l.root.Floor(l.id)
	if err == nil {
		err = l.keep(rec, floor)
	}
	if err == nil {
		err = errors.Join(l.removeNote(signed.Aside), l.removeNote(signed.Departure))
	}
	if err == nil { // it comes last: until then nobody opens the directory
		err = l.removeNote(signed.Arrival)
	}
	return archived, err
}

// writeNote durably writes a note about the profile.
func (l *Lock) writeNote(kind signed.Kind, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = durable.Replace(l.root.file(l.id, string(kind)), l.root.key.Sign(kind, l.id, append(b, '\n')))
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", kind, l.id, err)
	}
	return nil
}

// removeNote durably removes a note.
func (l *Lock) removeNote(kind signed.Kind) error {
	err := os.Remove(l.root.file(l.id, string(kind)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = durable.Sync(l.root.guard)
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", kind, l.id, err)
	}
	return nil
}

// readNote reads a note about the profile into v, and tells whether there is one.
func (r *Root) readNote(id string, kind signed.Kind, v any) (bool, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return false, err
	}
	path := r.file(id, string(kind))
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s of %s: %w", kind, id, err)
	}
	content, err := r.key.Open(kind, id, b)
	if err == nil {
		err = json.Unmarshal(content, v)
	}
	if err != nil {
		return false, &DamagedError{Profile: id, Path: path, Cause: err}
	}
	return true, nil
}

// ChangedError says that a directory changed while it was copied: the copy may be damaged.
type ChangedError struct{ Path, Why string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s changed while it was copied, and the copy may be damaged: %s: close what uses it, and ask again", e.Path, e.Why)
}

// CopyUnused is Copy for a directory that a person's own Chrome may open at any time. If that, or anything
// else, has changed it meanwhile, the error is a *ChangedError, and what is at dir is not to be used.
func CopyUnused(ctx context.Context, from, dir string) error {
	before, err := accountIn(from, nil, false)
	if err != nil {
		return err
	}
	if err := Copy(ctx, from, dir); err != nil {
		return err
	}
	u, err := FindUser(from)
	if err == nil && u != nil {
		return &ChangedError{from, fmt.Sprintf("it is in use by %s", u)}
	}
	after, unread := accountIn(from, nil, false)
	if err := errors.Join(err, unread); err != nil {
		return &ChangedError{from, err.Error()}
	}
	if !maps.Equal(before, after) {
		return &ChangedError{from, "files with the account's state were written"}
	}
	return nil
}

// Copy durably copies the Chrome user-data-dir from to the path dir, where nothing is yet. The
// caller has made sure that no browser uses from.
func Copy(ctx context.Context, from, dir string) error { return copyTree(ctx, from, dir) }
