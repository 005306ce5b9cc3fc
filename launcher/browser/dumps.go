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

	"golang.org/x/sys/unix"

	"leasehold/internal/foreign"
	"leasehold/launcher/sessionfile"
)

// Minidumps of crashed processes contain what those had in memory, secrets included.
// They stay on this host, in a folder of their session that no other user can read.
// Bundles contain only their names.

// Bounds of the dumps that are kept.
const (
	// A session keeps its first maxSessionDumps dumps, up to maxSessionDumpBytes
	// together. Of later ones only the names are kept.
	maxSessionDumps     = 20
	maxSessionDumpBytes = 256 << 20
	// maxEndedDumpBytes bounds the dumps of all sessions that are over. The oldest are
	// removed first.
	maxEndedDumpBytes = 1 << 30
	// dumpTimeout is how long a bundle waits for a dump that is being written.
	dumpTimeout = 2 * time.Second
)

// Dump describes one minidump in a bundle.
type Dump struct {
	File  string    `json:"file"` // path in the session's folder
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at"`
	// Removed says that the content was not kept, because there were too many dumps.
	Removed bool `json:"removed,omitempty"`
}

// The layout of a folder of dumps is Crashpad's. A dump is written in new, and moved to
// pending when it is complete. A dump that Chrome would send, but may not, is moved to
// completed.
const (
	dumpsUnfinished = "new"
	dumpSuffix      = ".dmp"
	dumpsRemoved    = "removed" // made by the launcher: a file for each dump that was not kept
)

// dumpsIn lists the dumps of a folder, the oldest first. A folder that does not exist
// has none.
func dumpsIn(dir string) ([]Dump, error) {
	var found []Dump
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, dumpSuffix) {
			return err
		}
		if !d.Type().IsRegular() {
			return nil // the browser's user put it there, Crashpad makes none
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		file, err := filepath.Rel(dir, path)
		if err != nil || filepath.Dir(file) == dumpsUnfinished {
			return err // not complete yet
		}
		one := Dump{File: file, Bytes: fi.Size(), At: fi.ModTime().UTC()}
		if filepath.Dir(file) == dumpsRemoved {
			one.File, one.Removed = filepath.Base(file), true
		}
		found = append(found, one)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // there is no folder, or a dump was moved meanwhile, and the next call finds it
	}
	slices.SortFunc(found, func(a, b Dump) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.File, b.File)) })
	return found, err
}

// awaitDumps lists the dumps as soon as none is being written any more, or after
// dumpTimeout.
func awaitDumps(ctx context.Context, dir string) ([]Dump, error) {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	for {
		begun, err := os.ReadDir(filepath.Join(dir, dumpsUnfinished))
		if err != nil || len(begun) == 0 || ctx.Err() != nil {
			return dumpsIn(dir)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// surplusDumps returns those of a session's dumps that are not to be kept. The first
// ones are kept, since they say most about what went wrong.
func surplusDumps(found []Dump) []Dump {
	var over []Dump
	n, bytes := 0, int64(0)
	for _, d := range found {
		if d.Removed {
			continue
		}
		if n++; n > maxSessionDumps || bytes+d.Bytes > maxSessionDumpBytes {
			over = append(over, d)
			continue
		}
		bytes += d.Bytes
	}
	return over
}

// trimDumps removes the content of a session's surplus dumps. A file of the same name,
// time and length stays for each, so that the session's bundle can list it.
func trimDumps(dir string) error {
	found, err := dumpsIn(dir)
	over := surplusDumps(found)
	if err != nil || len(over) == 0 {
		return err
	}
	folder, err := foreign.Open(dir)
	if err != nil {
		return fmt.Errorf("crash dumps: %w", err)
	}
	defer folder.Close()
	if err := folder.MkdirAll(dumpsRemoved, 0o700); err != nil {
		return fmt.Errorf("crash dumps: %w", err)
	}
	for _, d := range over {
		err := emptyDump(folder, d)
		meta := folder.Remove(strings.TrimSuffix(d.File, dumpSuffix) + ".meta")
		if errors.Is(meta, fs.ErrNotExist) {
			meta = nil
		}
		if err := errors.Join(err, meta); err != nil {
			return fmt.Errorf("crash dumps: %w", err)
		}
	}
	aside, err := folder.OpenFile(dumpsRemoved, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("crash dumps: %w", err)
	}
	return errors.Join(aside.Sync(), aside.Close())
}

// emptyDump moves a dump aside, empties it, and makes it as long as before. The hole in it
// takes no space.
func emptyDump(folder *foreign.Dir, d Dump) error {
	stub := filepath.Join(dumpsRemoved, filepath.Base(d.File))
	if err := folder.Rename(d.File, stub); err != nil {
		return err
	}
	f, err := folder.File(stub, os.O_WRONLY)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(0), f.Truncate(d.Bytes), f.Close(), folder.Chtimes(stub, d.At, d.At))
}

// uploadsDumps tells whether Chrome's crash handler may send the dumps to its maker,
// because the user of a Google Chrome agreed to that. A Chromium has no address to send
// them to.
func uploadsDumps(dir string) bool {
	// Crashpad's settings begin with a magic word, a version, and options. The first
	// bit of the options allows uploads.
	b, err := foreign.Read(dir, "settings.dat", 1<<20)
	return err == nil && len(b) > 8 && b[8]&1 != 0
}

// TidyDumps keeps the dumps of all sessions that are over within their common bound. It
// removes only the dumps of sessions whose evidence is stored, since that lists them.
func (d *Driver) TidyDumps(ended []sessionfile.File) error {
	d.mu.Lock()
	inUse := map[string]bool{} // sessions that share a browser share its folder
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
		if err == nil && (bytes == 0 || total > maxEndedDumpBytes) {
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
