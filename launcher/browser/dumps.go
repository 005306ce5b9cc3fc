package browser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"leasehold/internal/durable"
	"leasehold/launcher/sessionfile"
)

// Minidumps of crashed processes hold what those had in memory, secrets too. They
// stay on this host, in a folder of their session that no other user reads; a bundle
// has their names only.

// Bounds of what is kept of dumps.
const (
	// dumpsOfOne is how many dumps of a session are kept, and dumpBytesOfOne their
	// size together: the first ones. What comes after is removed, with its name
	// kept.
	dumpsOfOne     = 20
	dumpBytesOfOne = 256 << 20
	// dumpBytesOfAll bounds the dumps of all sessions that are over: the oldest go.
	dumpBytesOfAll = 1 << 30
	// dumpPatience is how long a bundle waits for a dump that is being written.
	dumpPatience = 2 * time.Second
)

// Dump is one minidump, as the bundle names it.
type Dump struct {
	File  string    `json:"file"` // in the session's folder
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at"`
	// Removed says that its content was not kept: there were too many.
	Removed bool `json:"removed,omitempty"`
}

// The layout of a folder of dumps is Crashpad's: a dump is begun in new and moved,
// whole, to pending; one that Chrome would send, and may not, to completed.
const (
	dumpsBegun   = "new"
	dumpSuffix   = ".dmp"
	dumpsRemoved = "removed" // ours: names of dumps that were not kept, one file each
)

// dumpsIn lists the dumps of a folder, the oldest first; none where there is no such
// folder.
func dumpsIn(dir string) ([]Dump, error) {
	var found []Dump
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, dumpSuffix) {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		file, err := filepath.Rel(dir, path)
		if err != nil || filepath.Dir(file) == dumpsBegun {
			return err // not whole
		}
		one := Dump{File: file, Bytes: fi.Size(), At: fi.ModTime().UTC()}
		if filepath.Dir(file) == dumpsRemoved {
			one.File, one.Removed = filepath.Base(file), true
		}
		found = append(found, one)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // no folder, or one moved on meanwhile, which the next look finds
	}
	slices.SortFunc(found, func(a, b Dump) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.File, b.File)) })
	return found, err
}

// awaitDumps lists the dumps once none is being written any more, or after dumpPatience.
func awaitDumps(ctx context.Context, dir string) ([]Dump, error) {
	ctx, cancel := context.WithTimeout(ctx, dumpPatience)
	defer cancel()
	for {
		begun, err := os.ReadDir(filepath.Join(dir, dumpsBegun))
		if err != nil || len(begun) == 0 || ctx.Err() != nil {
			return dumpsIn(dir)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// overflowing returns which of a session's dumps are too many: the first ones say
// most about what went wrong.
func overflowing(found []Dump) []Dump {
	var over []Dump
	n, bytes := 0, int64(0)
	for _, d := range found {
		if d.Removed {
			continue
		}
		if n++; n > dumpsOfOne || bytes+d.Bytes > dumpBytesOfOne {
			over = append(over, d)
			continue
		}
		bytes += d.Bytes
	}
	return over
}

// trimDumps removes what is too many of a session's dumps. Their names, times and
// sizes stay, for its bundle, as empty files of that length.
func trimDumps(dir string) error {
	found, err := dumpsIn(dir)
	over := overflowing(found)
	if err != nil || len(over) == 0 {
		return err
	}
	aside := filepath.Join(dir, dumpsRemoved)
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return fmt.Errorf("crash dumps: %w", err)
	}
	for _, d := range over {
		path := filepath.Join(dir, d.File)
		stub := filepath.Join(aside, filepath.Base(d.File))
		err := os.Rename(path, stub)
		if err == nil {
			// Emptied, and as long as before: a hole takes no room.
			err = errors.Join(os.Truncate(stub, 0), os.Truncate(stub, d.Bytes), os.Chtimes(stub, d.At, d.At))
		}
		meta := os.Remove(strings.TrimSuffix(path, dumpSuffix) + ".meta")
		if errors.Is(meta, fs.ErrNotExist) {
			meta = nil
		}
		if err := errors.Join(err, meta); err != nil {
			return fmt.Errorf("crash dumps: %w", err)
		}
	}
	return durable.Sync(aside)
}

// uploadsDumps tells whether Chrome's crash handler may send the dumps to its maker: the
// user of a Google Chrome agreed to that. A Chromium knows no address to send to.
func uploadsDumps(dir string) bool {
	// Crashpad's settings: a magic word, a version, and options, whose first bit it
	// is.
	b, err := os.ReadFile(filepath.Join(dir, "settings.dat"))
	return err == nil && len(b) > 8 && b[8]&1 != 0
}

// TidyDumps keeps the dumps of sessions that are over within their bound, together.
// Only those of sessions are removed whose evidence is stored, which names them.
func (d *Driver) TidyDumps(ended []sessionfile.File) error {
	d.mu.Lock()
	inUse := map[string]bool{} // several sessions share a browser, and its folder
	for b := range d.driven {
		inUse[b.dumps] = true
	}
	d.mu.Unlock()
	ended = slices.DeleteFunc(slices.Clone(ended), func(f sessionfile.File) bool { return f.Ended == "" || f.Evidence.EvidenceID == "" })
	slices.SortFunc(ended, func(a, b sessionfile.File) int { return b.AcquiredAt.Compare(a.AcquiredAt) })
	var total int64
	var errs error
	for _, f := range ended { // the newest first
		dir := d.o.Files.Dumps(f.SessionID)
		if _, err := os.Stat(dir); err != nil || inUse[dir] {
			continue
		}
		found, err := dumpsIn(dir)
		var bytes int64
		for _, one := range found {
			if !one.Removed {
				bytes += one.Bytes
			}
		}
		total += bytes
		if err == nil && (bytes == 0 || total > dumpBytesOfAll) {
			err = os.RemoveAll(dir)
			total -= bytes
		}
		errs = errors.Join(errs, err)
	}
	if errs != nil {
		return fmt.Errorf("crash dumps: %w", errs)
	}
	return nil
}
