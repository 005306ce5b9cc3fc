package profiledir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
	"leasehold/internal/signed"
)

// Exchanged is the result of Exchange.
type Exchanged struct {
	// Kept is where the former directory is, in the archive; empty if there was none.
	Kept string
	// Extras are the files that belong beside the new directory, by name.
	Extras map[string][]byte

	lock  *Lock
	to    string
	place string
	// taking says that the former directory was being taken back from a browser user.
	taking bool
	// aside says that there was a note of putAside.
	aside bool
	// unfinished is where the new directory is as long as it is not in its place: no archive, to Archived.
	unfinished string
	// mark is the guard file of the former directory's mark, as it was; nil: there was none.
	mark []byte
}

// Exchange puts another directory into the place of the profile's own, which goes to the archive. Both
// happen in one step, so that the profile always has one of the two. former is what belongs to its own, and
// is kept beside that. The caller has made sure that nobody uses the profile. If the directory cannot be
// filled, the profile stays as it is.
//
// The new directory may be older than what the profile's record says of it. So it is not believed before
// the caller, who has it in the record, calls BelieveDirectory: if that never happens, a person decides.
func (l *Lock) Exchange(ctx context.Context, now time.Time, former map[string][]byte, fill Fill) (_ *Exchanged, err error) {
	fail := func(err error) (*Exchanged, error) { return nil, fmt.Errorf("profile %s: %w", l.id, err) }
	to := filepath.Join(l.root.dir, l.id)
	if _, err := l.root.Path(l.id); err != nil && !errors.Is(err, ErrNoProfile) {
		return nil, err
	}
	archive := l.root.archive()
	if err := os.Mkdir(archive, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fail(err)
	}
	if err := l.sweepUnfinished(archive, os.RemoveAll); err != nil {
		return fail(err)
	}
	name := l.id + archiveMark + now.UTC().Format("20060102T150405.000000000Z")
	e := &Exchanged{lock: l, to: to, place: filepath.Join(archive, name), unfinished: filepath.Join(archive, unfinishedMark+name)}
	if e.Extras, err = fill(ctx, e.unfinished); err != nil {
		return nil, err
	}
	if err := l.root.spareTaking(l.id, e.unfinished); err != nil {
		return fail(err)
	}
	if e.mark, err = l.root.readMark(l.id); err != nil {
		return nil, err
	}
	var damaged *DamagedError
	if err := l.root.disbelieveMark(l.id, cutShort); err != nil && !errors.As(err, &damaged) { // a damaged one is not believed either
		return nil, err
	}
	made := e.unfinished
	err = unix.Renameat2(unix.AT_FDCWD, made, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, fs.ErrExist) {
		err = l.moveToArchive(e.place, former, func() error {
			err := unix.Renameat2(unix.AT_FDCWD, made, unix.AT_FDCWD, e.place, unix.RENAME_NOREPLACE)
			if err == nil {
				made, e.Kept = e.place, e.place
				err = unix.Renameat2(unix.AT_FDCWD, made, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
			}
			return err
		})
	}
	if err != nil {
		return fail(errors.Join(fmt.Errorf("putting %s in the place of %s: %w", made, to, err), os.RemoveAll(made), l.root.putMark(l.id, e.mark)))
	}
	err = errors.Join(durable.Sync(archive), durable.Sync(l.root.dir))
	if err == nil {
		e.taking, err = l.root.forgetTaking(l.id)
	}
	if err == nil {
		e.aside, _ = l.root.readNote(l.id, signed.Aside, new(struct{})) // one that cannot be believed does not come back
		err = l.removeNote(signed.Aside)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("profile %s: %w", l.id, err), e.Undo())
	}
	return e, nil
}

// cutShort is why a directory is not believed of which nobody knows whether the profile's record has it.
const cutShort = "a restore was cut short: the directory may be that of the snapshot, and the profile's record does not say so"

// unfinishedMark begins the names, in the archive, of what Exchange has not put into its place, and of
// what a Fill makes beside that.
const unfinishedMark = "."

// sweepUnfinished has remove delete what an interrupted Exchange has left, and what belonged to a directory that never
// came to the archive, or was deleted there.
func (l *Lock) sweepUnfinished(archive string, remove func(path string) error) error {
	entries, err := os.ReadDir(archive)
	for _, e := range entries {
		of, unfinished := strings.CutPrefix(e.Name(), unfinishedMark)
		if !strings.HasPrefix(strings.TrimLeft(of, unfinishedMark), l.id+archiveMark) {
			continue
		}
		if name, beside := strings.CutSuffix(e.Name(), besideMark); beside && !unfinished {
			_, gone := os.Lstat(filepath.Join(archive, name))
			unfinished = errors.Is(gone, fs.ErrNotExist)
		}
		if unfinished {
			err = errors.Join(err, remove(filepath.Join(archive, e.Name())))
		}
	}
	return err
}

// Undo puts the former directory back, and removes the new one.
func (e *Exchanged) Undo() error {
	var err error
	from := e.to
	if e.taking {
		err = durable.Replace(e.lock.root.file(e.lock.id, takingMark), nil)
	}
	if err == nil && e.aside {
		err = e.lock.writeNote(signed.Aside, struct{}{})
	}
	if err == nil && e.Kept != "" {
		err = unix.Renameat2(unix.AT_FDCWD, e.place, unix.AT_FDCWD, e.to, unix.RENAME_EXCHANGE)
		from = e.place
	}
	if err == nil {
		err = os.Rename(from, e.unfinished)
	}
	if err == nil {
		err = errors.Join(durable.Sync(filepath.Dir(e.place)), durable.Sync(e.lock.root.dir), os.RemoveAll(e.unfinished), os.RemoveAll(e.place+besideMark))
	}
	if err == nil {
		err = e.lock.root.putMark(e.lock.id, e.mark)
	}
	if err != nil {
		return fmt.Errorf("profile %s: putting the directory before back: %w", e.lock.id, err)
	}
	return nil
}
