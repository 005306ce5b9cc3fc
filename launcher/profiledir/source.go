package profiledir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"leasehold/internal/procfs"
	"leasehold/internal/signed"
	"leasehold/lease"
)

// Source is a directory that is being copied. If it is a profile of any launcher of this host,
// no browser is started on it meanwhile.
type Source struct {
	parts []*os.File // of the profile's lock
	// Kept is the last record that the profile's home kept beside it; the zero record if the
	// directory is not a profile, or nothing was kept. Anybody may have written it, so it may
	// only make a launcher more careful.
	Kept lease.Record
}

// LockSource locks the directory at path, which contains no links, until Release. The error is
// ErrLocked if a launcher or a browser has the profile.
func LockSource(path string) (_ *Source, err error) {
	if guard, id, archived := archivedAt(path); archived {
		return &Source{Kept: keptBeside(guard, id)}, nil // no browser is started there
	}
	guard, id := GuardDir(filepath.Dir(path)), filepath.Base(path)
	if fi, err := os.Lstat(guard); err != nil || !fi.IsDir() || lease.CheckProfileID(id) != nil {
		return &Source{}, nil //nolint:nilerr // it is not a profile
	}
	s := &Source{}
	for _, part := range []string{launcherPart, sharedPart} {
		file, err := flock(filepath.Join(guard, id+"."+part))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("profile %s: %w", path, err), s.Release())
		}
		s.parts = append(s.parts, file)
	}
	s.Kept = keptBeside(guard, id)
	return s, nil
}

// keptBeside reads the record that a launcher kept of a profile, without checking that the
// launcher wrote it; the zero record if there is none.
func keptBeside(guard, id string) (kept lease.Record) {
	b, err := os.ReadFile(filepath.Join(guard, id+".floor"))
	if err != nil {
		return lease.Record{}
	}
	content, _ := signed.Claimed(unpadded(b))
	_, line, _ := bytes.Cut(content, []byte("\n"))
	if json.Unmarshal(line, &kept) != nil {
		return lease.Record{}
	}
	return kept
}

// archivedAt tells whether a path is an archived profile's, of any launcher, which profile it
// is, and where that launcher's record of it is kept.
func archivedAt(path string) (guard, id string, archived bool) {
	guard = filepath.Dir(filepath.Dir(path))
	id, _, archived = strings.Cut(filepath.Base(path), archiveMark)
	archived = archived && lease.CheckProfileID(id) == nil && filepath.Dir(path) == archiveIn(guard) && guard == GuardDir(filepath.Dir(guard))
	return guard, id, archived
}

// Release gives the directory up. A second Release does nothing.
func (s *Source) Release() error {
	var err error
	for _, part := range s.parts {
		err = errors.Join(err, part.Close())
	}
	s.parts = nil
	return err
}

// namedOtherwise returns a process that names the directory at path as its user-data-dir by
// another path: through a link, or relative to where it was started; 0 if there is none.
func namedOtherwise(path string) (pid int, err error) {
	dir, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	pids, err := procfs.PIDs()
	if err != nil {
		return 0, err
	}
	const flag = "--user-data-dir="
	for _, pid := range pids {
		line, err := procfs.CommandLine(pid) // empty for a zombie
		if err != nil {
			continue // it has ended, or is another user's, who cannot have this directory open
		}
		for arg := range strings.SplitSeq(string(line), "\x00") {
			named, ok := strings.CutPrefix(arg, flag)
			if !ok {
				continue
			}
			at := fmt.Sprintf("/proc/%d/cwd/%s", pid, named)
			if filepath.IsAbs(named) {
				at = fmt.Sprintf("/proc/%d/root%s", pid, named)
			}
			if other, err := os.Stat(at); err == nil && os.SameFile(dir, other) {
				return pid, nil
			}
		}
	}
	return 0, nil
}
