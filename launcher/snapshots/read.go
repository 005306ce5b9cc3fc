package snapshots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
	"leasehold/internal/foreign"
)

// Content is a profile as it was at one moment, on this host's disk. Seal makes a snapshot of
// it. The profile's files may change again as soon as it has been read.
type Content struct {
	profileID string
	dirs      []string
	files     []readFile
	// index is what was known of the profile's files before; nil: nothing.
	index *index
	// spool is the directory with the copies of files.
	spool     string
	indexPath string
}

// readFile is a file of a Content: it is unchanged since the last snapshot, or has a copy.
type readFile struct {
	File
	stat stat
	// copy is the path of the copy; empty if Chunks are known.
	copy string
}

// stat shows whether a file was written to. The kernel sets the time of the last change of its
// inode, and nobody can set it back.
type stat struct {
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // ns since 1970
	Changed  int64  `json:"changed"`  // ns since 1970
}

func statOf(fi fs.FileInfo) stat {
	st := fi.Sys().(*syscall.Stat_t)
	modified, changed := times(st)
	return stat{Inode: st.Ino, Size: st.Size, Modified: modified.Nano(), Changed: changed.Nano()}
}

// ReadOptions say where Read keeps what it needs.
type ReadOptions struct {
	// Spool is a directory of this launcher's own. Copies of the changed files are kept on its
	// disk until Close. After a restart its content is worthless.
	Spool string
	// Index is the file in which Seal keeps how to recognize the profile's unchanged files, so
	// that the next Read and Seal only look at those that changed.
	Index string
	// KeepFree is how many bytes have to stay free on the disk of the spool.
	KeepFree uint64
}

// seen is one entry of a walk through a profile.
type seen struct {
	path string // with slashes
	dir  bool
	exec bool
	stat stat
}

// Read reads the profile in dir, which nobody may use until it returns. The error is ErrChanged
// if somebody did. ctx is ended as soon as somebody is about to use it. The caller calls Close
// when it no longer needs the content.
func (s *Store) Read(ctx context.Context, profileID, dir string, o ReadOptions) (_ *Content, err error) {
	fail := func(err error) error { return fmt.Errorf("profile %s: reading %s: %w", profileID, dir, err) }
	before, err := look(ctx, dir)
	if err != nil {
		return nil, fail(err)
	}
	if err := os.MkdirAll(o.Spool, 0o700); err != nil {
		return nil, fail(err)
	}
	r := &Content{profileID: profileID, indexPath: o.Index, index: s.readIndex(profileID, o.Index)}
	if r.spool, err = os.MkdirTemp(o.Spool, "reading-"); err != nil {
		return nil, fail(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if err := r.room(before, o.KeepFree); err != nil {
		return nil, fail(err)
	}
	source, err := foreign.Open(dir)
	if err != nil {
		return nil, fail(err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	for _, e := range before {
		if err := context.Cause(ctx); err != nil {
			return nil, fail(err)
		}
		if e.dir {
			r.dirs = append(r.dirs, pathText(e.path))
			continue
		}
		f := readFile{File: File{Path: pathText(e.path), Executable: e.exec, Size: uint64(e.stat.Size)}, stat: e.stat}
		if known, ok := r.index.file(f.Path, e.stat); ok {
			f.Chunks = known
		} else if e.stat.Size > 0 {
			f.copy = filepath.Join(r.spool, strconv.Itoa(len(r.files)))
			if err := copyOut(source, e, f.copy); err != nil {
				return nil, fail(err)
			}
		}
		r.files = append(r.files, f)
	}
	after, err := look(ctx, dir)
	if err != nil {
		return nil, fail(err)
	}
	if !slices.Equal(before, after) {
		return nil, fail(ErrChanged)
	}
	if err := context.Cause(ctx); err != nil { // somebody is about to use it: was the reading finished in time?
		return nil, fail(err)
	}
	return r, nil
}

// room returns an error if the copies to be made do not fit into the spool.
func (r *Content) room(files []seen, keep uint64) error {
	var need uint64
	for _, e := range files {
		if _, known := r.index.file(pathText(e.path), e.stat); !e.dir && !known {
			need += uint64(e.stat.Size)
		}
	}
	free, err := durable.FreeSpace(r.spool)
	if err != nil || free.Bytes >= need+keep {
		return err
	}
	return fmt.Errorf("a copy of what changed takes %s, and %s has %s left, of which %s are to stay free: make room: %w",
		humanize.IBytes(need), r.spool, humanize.IBytes(free.Bytes), humanize.IBytes(keep), unix.ENOSPC)
}

// Close removes the copies.
func (r *Content) Close() error { return os.RemoveAll(r.spool) }

// look walks through a profile, and returns what belongs in its snapshot, by path. It refuses
// links and devices: Chrome makes none except its own locks.
func look(ctx context.Context, dir string) ([]seen, error) {
	var all []seen
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && p != dir {
			return ErrChanged
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil || p == dir {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if leftOut(rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		fi, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return ErrChanged
		}
		if err != nil {
			return err
		}
		if !d.IsDir() && !fi.Mode().IsRegular() {
			return fmt.Errorf("%s is a link, a device, a pipe or a socket: want files and directories only", p)
		}
		e := seen{path: rel, dir: d.IsDir()}
		if !e.dir {
			e.stat, e.exec = statOf(fi), fi.Mode().Perm()&0o100 != 0
		}
		all = append(all, e)
		return nil
	})
	slices.SortFunc(all, func(a, b seen) int { return cmp.Compare(a.path, b.path) })
	return all, err
}

// copyOut copies a file out of the profile. If the file system can do it, the two share their
// blocks until one of them is written to.
func copyOut(source *foreign.Dir, e seen, to string) (err error) {
	in, err := source.File(e.path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrChanged
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	n, err := io.Copy(out, in)
	if err == nil && n != e.stat.Size {
		err = ErrChanged
	}
	return err
}
