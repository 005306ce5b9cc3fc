package profiledir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/lease"
)

// DamagedError says that a guard file of a profile is not as this launcher wrote it, so nothing
// in it is trusted. It is a signed.ErrNotAuthentic, even if the file has the right signature
// but makes no sense.
type DamagedError struct {
	Profile string
	Path    string
	Cause   error
	// Claimed is the token that the file names, and Home is the launcher; the zero values if it
	// names none. Anybody may have written them.
	Claimed lease.Token
	Home    string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("profile %s: %s cannot be believed: %v", e.Profile, e.Path, e.Cause)
}

// Unwrap returns the cause, and signed.ErrNotAuthentic.
func (e *DamagedError) Unwrap() []error { return []error{e.Cause, signed.ErrNotAuthentic} }

// Floor returns the highest token that was ever used on the profile, 0 if none
// was. The error is a *DamagedError for a floor file that this launcher has not written.
func (r *Root) Floor(id string) (lease.Token, error) {
	t, _, err := r.Kept(id)
	return t, err
}

// unwritten is a floor that this process could not write, on a disk that takes nothing for example.
// over is the floor that the file had: as long as it has that, nobody has put it back.
type unwritten struct {
	over   lease.Token
	record lease.Record
}

// Kept returns the floor and the record that was kept with it, which is the last one
// that this host wrote of the profile, or that this process tried to write; the zero record if
// none was kept.
func (r *Root) Kept(id string) (lease.Token, lease.Record, error) {
	if err := r.There(); err != nil {
		return 0, lease.Record{}, err
	}
	t, kept, err := r.written(id)
	if err != nil {
		return t, kept, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u, is := r.unwritten[id]; is && u.over == t {
		return u.record.Token, u.record, nil
	}
	return t, kept, nil
}

func (r *Root) written(id string) (lease.Token, lease.Record, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return 0, lease.Record{}, err
	}
	path := r.file(id, "floor")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, lease.Record{}, nil
	}
	if err != nil {
		return 0, lease.Record{}, fmt.Errorf("token floor of %s: %w", id, err)
	}
	content, err := r.key.Open(signed.Floor, id, unpadded(b))
	var t lease.Token
	var kept lease.Record
	if err == nil {
		t, kept, err = parseFloor(content)
	}
	if err != nil {
		damaged := &DamagedError{Profile: id, Path: path, Cause: err}
		content, _ := signed.Claimed(unpadded(b))
		damaged.Claimed, damaged.Home = claimedFloor(content)
		return 0, lease.Record{}, damaged
	}
	return t, kept, nil
}

// claimedFloor returns the token that a damaged floor names, if any can be read out of it
// and has ever been used, and the home.
func claimedFloor(content []byte) (lease.Token, string) {
	first, rest, _ := bytes.Cut(content, []byte("\n"))
	n, err := strconv.ParseUint(string(bytes.TrimSpace(first)), 10, 64)
	var kept struct {
		Home string `json:"home"`
	}
	_ = json.Unmarshal(rest, &kept) // what cannot be parsed claims nothing
	if err != nil || n > uint64(lease.MaxClaim) {
		n = 0
	}
	return lease.Token(n), kept.Home
}

// parseFloor reads a decimal number and a newline and, if there is a second line, a
// record with that token. A file that was cut short or damaged is detected: each line
// has to end with a newline, and there is only one way to write a number.
func parseFloor(b []byte) (lease.Token, lease.Record, error) {
	damaged := func() (lease.Token, lease.Record, error) {
		return 0, lease.Record{}, fmt.Errorf("%.40q is damaged: want a number and a newline", b)
	}
	first, rest, ended := bytes.Cut(b, []byte("\n"))
	n, err := strconv.ParseUint(string(first), 10, 64)
	if err != nil || !ended || strconv.FormatUint(n, 10) != string(first) {
		return damaged()
	}
	var kept lease.Record
	if len(rest) == 0 {
		return lease.Token(n), kept, nil
	}
	line, more, ended := bytes.Cut(rest, []byte("\n"))
	if err := json.Unmarshal(line, &kept); err != nil || !ended || len(more) > 0 || uint64(kept.Token) != n {
		return damaged()
	}
	return lease.Token(n), kept, nil
}

// RaiseFloor makes the record's token the floor, and keeps the record with it, in case the
// lease store loses it. When RaiseFloor returns nil, both are on disk. The error is a
// *lease.FencedError if the token is below the floor. The token may equal the floor: that is
// how an interrupted write is repeated. The error is a *DamagedError if the floor cannot be
// trusted, and a *DepartedError if the directory was left.
func (l *Lock) RaiseFloor(r lease.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if err := l.mayOpen(); err != nil {
		return err
	}
	floor, err := l.root.Floor(l.id)
	if err != nil {
		return err
	}
	return l.keep(r, floor)
}

// Renew does what RaiseFloor does, but replaces a floor that cannot be trusted, removes notes of
// departure and arrival that cannot be trusted, and believes the directory that is there. It is meant for the record of a
// profile that goes to a person for that reason, with a token above the one that the floor
// names.
func (l *Lock) Renew(r lease.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	floor, err := l.root.Floor(l.id)
	var damaged *DamagedError
	if errors.As(err, &damaged) {
		floor, err = damaged.Claimed, nil
	}
	if err != nil {
		return err
	}
	for _, kind := range []signed.Kind{signed.Departure, signed.Arrival} {
		if _, err := l.root.readNote(l.id, kind, new(struct{})); errors.As(err, &damaged) {
			if err := l.removeNote(kind); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
	}
	if err := l.root.forgetMark(l.id); err != nil {
		return err
	}
	return l.keep(r, floor)
}

// keep writes the floor. The caller holds l.mu.
func (l *Lock) keep(r lease.Record, floor lease.Token) error {
	if r.Token < floor {
		return &lease.FencedError{Profile: l.id, Token: r.Token, Current: floor}
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = l.writeFloor(fmt.Appendf(nil, "%d\n%s\n", r.Token, b))
	}
	if err != nil {
		err = fmt.Errorf("token floor of %s: %w", l.id, err)
	}
	l.root.noteUnwritten(l.id, r, err)
	return err
}

// noteUnwritten notes whether the floor could be written: the record may be above the floor then,
// and that is no sign that the floor was put back.
func (r *Root) noteUnwritten(id string, record lease.Record, failed error) {
	over, _, err := r.written(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if failed == nil || err != nil {
		delete(r.unwritten, id)
	} else {
		r.unwritten[id] = unwritten{over, record}
	}
}

// writeFloor replaces the floor file by one with these lines. It uses the prepared file if
// there is one that is large enough.
func (l *Lock) writeFloor(lines []byte) error {
	floor, size, said := l.root.file(l.id, "floor"), l.prepared, l.root.key.Sign(signed.Floor, l.id, lines)
	if size < len(said) {
		return durable.Replace(floor, said)
	}
	l.prepared = 0
	// The prepared file is longer. It is filled with spaces before the last newline, which are
	// not part of the record.
	padded := append(said[:len(said)-1], bytes.Repeat([]byte(" "), size-len(said))...)
	return durable.ReplaceBy(l.root.file(l.id, preparedFloor), floor, append(padded, '\n'))
}

// unpadded removes the spaces with which writeFloor fills a file. They are not signed, because
// there are more of them than of everything else.
func unpadded(b []byte) []byte {
	padded, ended := bytes.CutSuffix(b, []byte("\n"))
	if !ended {
		return b
	}
	return slices.Concat(bytes.TrimRight(padded, " "), []byte("\n"))
}

// preparedFloor is the file that PrepareFloor makes. Nobody reads it.
const preparedFloor = "floor-spare"

// preparedRoom is by how many bytes the next record may be longer than the last one and still
// fit into the prepared file.
const preparedRoom = 8 << 10

// PrepareFloor halves the time of the next RaiseFloor. It prepares the file with its blocks, so
// that then only the content and the name have to be written.
func (l *Lock) PrepareFloor() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	fi, err := os.Stat(l.root.file(l.id, "floor"))
	if err != nil {
		return fmt.Errorf("token floor of %s: %w", l.id, err)
	}
	size := int(fi.Size()) + preparedRoom
	if err := durable.Prepare(l.root.file(l.id, preparedFloor), size); err != nil {
		return fmt.Errorf("token floor of %s: %w", l.id, err)
	}
	l.prepared = size
	return nil
}

// Running is what a later launcher needs to find and adopt the browser of a
// profile.
type Running struct {
	PID int `json:"pid"`
	// StartTime is the kernel's, in clock ticks since the host started. With BootID
	// it distinguishes the process from a later one with the same pid.
	StartTime uint64      `json:"start_time"`
	BootID    string      `json:"boot_id"`
	SessionID string      `json:"session_id"`
	Token     lease.Token `json:"lease_token"`
	// TempDir and OutputFile are the browser's, absolute.
	TempDir    string `json:"temp_dir"`
	OutputFile string `json:"output_file"`
	// PipeLog is the file of the cdpproxy.PipeLog of the browser's pipe; empty if
	// none is kept.
	PipeLog string `json:"ledger,omitempty"`
	// Group is the directory of the browser's control group; empty if it has none.
	Group string `json:"cgroup,omitempty"`
	// Dumps is the directory of its minidumps; empty if it is not known.
	Dumps string `json:"dumps,omitempty"`
	// Owed says for what a browser that has no session is closed, of which evidence has to be
	// stored first; empty: none is owed.
	Owed string `json:"owed,omitempty"`
	// Place is the directory on which it runs. SetRunning finds it out.
	Place place `json:"place,omitzero"`
}

// SetRunning durably stores r as the browser that runs on the profile.
func (l *Lock) SetRunning(r Running) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	var err error
	if r.Place, err = placeOf(filepath.Join(l.root.dir, l.id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("browser state of %s: %w", l.id, err)
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = durable.Replace(l.root.file(l.id, "browser"), l.root.key.Sign(signed.Browser, l.id, append(b, '\n')))
	}
	if err != nil {
		return fmt.Errorf("browser state of %s: %w", l.id, err)
	}
	return nil
}

// OweEvidence durably adds to what SetRunning stored that evidence of the browser has to be stored before
// it is closed, by whoever closes it, because of why.
func (l *Lock) OweEvidence(why string) error {
	r, noted, err := l.root.Running(l.id)
	if err != nil || !noted {
		return err
	}
	r.Owed = why
	return l.SetRunning(r)
}

// ClearRunning durably removes what SetRunning stored: no browser runs on the
// profile. From then on nothing may change what the last one left there. It takes the shared part of
// an adopted lock first: as long as a process has that, the error is ErrLocked, and the note stays,
// for whoever closes that process has to know what it is. A note that this launcher has not written
// says nothing about it, and is removed.
func (l *Lock) ClearRunning() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.retake(); err != nil {
		var damaged *DamagedError
		if _, _, unread := l.root.Running(l.id); errors.Is(err, ErrLocked) && errors.As(unread, &damaged) {
			err = errors.Join(err, l.removeRunning())
		}
		return err
	}
	if err := l.root.noteLeft(l.id); err != nil {
		return err
	}
	return l.removeRunning()
}

// removeRunning durably removes the note of the browser.
func (l *Lock) removeRunning() error {
	err := os.Remove(l.root.file(l.id, "browser"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = durable.Sync(l.root.guard)
	}
	if err != nil {
		return fmt.Errorf("browser state of %s: %w", l.id, err)
	}
	return nil
}

// Running returns the browser that was last stored by SetRunning, and whether one is
// stored. It may have ended since. The error is a *DamagedError for a note that this
// launcher has not written: the process that it names may be anybody's.
func (r *Root) Running(id string) (Running, bool, error) {
	if err := lease.CheckProfileID(id); err != nil {
		return Running{}, false, err
	}
	path := r.file(id, "browser")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Running{}, false, nil
	}
	if err != nil {
		return Running{}, false, fmt.Errorf("browser state of %s: %w", id, err)
	}
	var run Running
	content, err := r.key.Open(signed.Browser, id, b)
	if err == nil {
		err = json.Unmarshal(content, &run)
	}
	if err != nil {
		return Running{}, false, &DamagedError{Profile: id, Path: path, Cause: err}
	}
	return run, true, nil
}
