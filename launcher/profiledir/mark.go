package profiledir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"leasehold/internal/boottime"
	"leasehold/internal/durable"
	"leasehold/internal/foreign"
	"leasehold/internal/signed"
	"leasehold/lease"
)

// A directory can be exchanged by hand: for a copy from a backup, while its browser runs or later.
// Then the account is as it was long ago, and no process, lock or token shows that. So the
// directory has a number inside, and its guard files have the same number, signed. Both grow by one
// whenever a browser has ended there: a copy has an older number, or none.

// directoryMark is the file in a profile's directory that has the mark.
const directoryMark = ".leasehold-mark"

// mark is what a directory has inside. The number counts the ends of browsers. The name is random:
// two directories with the same number are told apart by it.
type mark struct {
	n    uint64
	name string
	// doubt is, in the guard file, why no directory is believed, whatever mark it has; empty: one is.
	doubt string
}

func (m mark) next() mark { return mark{n: m.n + 1, name: rand.Text()} }

func (m mark) String() string { return fmt.Sprintf("%d %s", m.n, m.name) }

// parseMark reads a mark, and in a directory the name of the mark before it.
func parseMark(b []byte) (m mark, before string, err error) {
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return mark{}, "", errors.New("want a number and a name")
	}
	m.n, err = strconv.ParseUint(fields[0], 10, 64)
	m.name = fields[1]
	return m, strings.Join(fields[2:], ""), err
}

// renewMark gives the directory the next mark. What calls it puts the directory on the disk, and
// then calls the function that it returns, which gives the guard file the same mark. In between
// the directory is one ahead, and says of which mark.
func (r *Root) renewMark(id, path string) (noted func() error, err error) {
	was, _, err := r.noted(id)
	var damaged *DamagedError
	if err != nil && !errors.As(err, &damaged) { // a damaged one is for a person, at the next grant
		return nil, err
	}
	dir, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	next := filepath.Join(path, directoryMark+".next")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	now := was.next()
	_, err = fmt.Fprintf(f, "%s %s\n", now, was.name)
	if owner, ok := dir.Sys().(*syscall.Stat_t); err == nil && ok {
		err = f.Chown(int(owner.Uid), int(owner.Gid))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, filepath.Join(path, directoryMark))
	}
	if err != nil {
		return nil, fmt.Errorf("mark of the directory: %w", err)
	}
	return func() error {
		if damaged != nil {
			return nil
		}
		return r.note(id, now)
	}, nil
}

// note writes the mark of the guard file.
func (r *Root) note(id string, m mark) error {
	content := fmt.Appendln(nil, m)
	if m.doubt != "" {
		content = fmt.Appendln(content, m.doubt)
	}
	return durable.Replace(r.file(id, string(signed.Mark)), r.key.Sign(signed.Mark, id, content))
}

// disbelieveMark makes no directory believed until a person has looked, because none has all that the
// last browser wrote. why says so.
func (r *Root) disbelieveMark(id, why string) error {
	was, _, err := r.noted(id)
	if err == nil {
		err = r.note(id, mark{was.n + 3, rand.Text(), why}) // the directory may be one ahead
	}
	return err
}

// readMark reads the guard file of the mark; nil: there is none.
func (r *Root) readMark(id string) ([]byte, error) {
	b, err := os.ReadFile(r.file(id, string(signed.Mark)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("mark of %s: %w", id, err)
	}
	return b, nil
}

// putMark makes the guard file of the mark what readMark returned.
func (r *Root) putMark(id string, b []byte) error {
	if b == nil {
		return r.removeMark(id)
	}
	return durable.Replace(r.file(id, string(signed.Mark)), b)
}

// noted is the mark in the guard file, and whether there is one.
func (r *Root) noted(id string) (m mark, is bool, err error) {
	path := r.file(id, string(signed.Mark))
	b, err := r.readMark(id)
	if err != nil || b == nil {
		return mark{}, false, err
	}
	content, err := r.key.Open(signed.Mark, id, b)
	if err == nil {
		line, doubt, _ := strings.Cut(string(content), "\n")
		m, _, err = parseMark([]byte(line))
		m.doubt = strings.TrimSpace(doubt)
	}
	if err != nil {
		return mark{}, false, &DamagedError{Profile: id, Path: path, Cause: err}
	}
	return m, true, nil
}

// forgetMark makes the directory believed as it is, whatever mark it has: another one is about to
// come into its place, or a person has looked at it.
func (r *Root) forgetMark(id string) error {
	if err := r.forgetLeft(id); err != nil {
		return err
	}
	return r.removeMark(id)
}

// removeMark removes the guard file of the mark, if there is one.
func (r *Root) removeMark(id string) error {
	err := os.Remove(r.file(id, string(signed.Mark)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = durable.Sync(r.guard)
	}
	if err != nil {
		return fmt.Errorf("mark of %s: %w", id, err)
	}
	return nil
}

// DisbelieveDirectory has a person decide about the profile, because the directory has not all that the
// last browser wrote. why says so.
func (l *Lock) DisbelieveDirectory(why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.root.disbelieveMark(l.id, why)
}

// DisbelieveLost is DisbelieveDirectory if err is a *NotStoredError. It is for the end of a browser without a
// session, which no recovery follows.
func (l *Lock) DisbelieveLost(err error) error {
	if missing := new(NotStoredError); errors.As(err, &missing) {
		return l.DisbelieveDirectory(missing.Why)
	}
	return nil
}

// BelieveDirectory makes the directory believed as it is, because a person decides about it, or because the
// profile's record says that Exchange put it there.
func (l *Lock) BelieveDirectory() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.root.forgetMark(l.id)
}

// Replaced says why the directory is not as the last browser left it; empty if it is, or if nothing
// is known of that. The error is a *DamagedError for a guard file that this launcher has not
// written.
func (r *Root) Replaced(id string) (why string, err error) {
	if err := lease.CheckProfileID(id); err != nil {
		return "", err
	}
	want, is, err := r.noted(id)
	if err != nil || !is {
		return "", err
	}
	b, err := foreign.Read(filepath.Join(r.dir, id), directoryMark, 64)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(filepath.Join(r.dir, id)); errors.Is(err, fs.ErrNotExist) {
			return "", nil // that there is none is another fact
		}
		b = nil
	case err != nil:
		return "", fmt.Errorf("mark of %s: %w", id, err)
	}
	if want.doubt != "" {
		return want.doubt, nil
	}
	if m, before, err := parseMark(b); err == nil && (m == want || m.n == want.n+1 && before == want.name) {
		return r.changed(id)
	}
	return fmt.Sprintf("the directory has the mark %.12q, and its last browser left %.12q there: another directory, or an older copy, was put in its place",
		strings.TrimSpace(string(b)), want.String()), nil
}

// place identifies a directory while its host is up.
type place struct {
	Device uint64 `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
}

func placeOf(path string) (place, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return place{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return place{uint64(st.Dev), st.Ino}, nil //nolint:unconvert // the type differs by architecture
}

// exchanged says why the profile's directory is not the one on which its browser was started, so that
// what the browser wrote is elsewhere; empty if it is that one, or if no browser is noted.
func (r *Root) exchanged(id string) (why string) {
	run, is, err := r.Running(id)
	if err != nil || !is || run.Place == (place{}) || run.BootID != boottime.ID() {
		return "" // a note that cannot be believed is looked at elsewhere
	}
	now, err := placeOf(filepath.Join(r.dir, id))
	if err != nil {
		return err.Error()
	}
	if now != run.Place {
		return "another directory is in the place of the one on which its browser was started"
	}
	return ""
}
