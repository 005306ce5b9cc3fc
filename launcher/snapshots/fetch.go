package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
	"leasehold/internal/id"
)

// Fetched is a snapshot that was fetched to this host.
type Fetched struct {
	Manifest
	// Extra are the files that were kept with the profile, by name: About.Extras.
	Extra map[string][]byte
}

// FetchOptions say what a host can use.
type FetchOptions struct {
	// Chrome is the version of this host's Chrome: a snapshot of a newer one is refused. If it
	// is empty, none is refused.
	Chrome string
	// KeepFree is how many bytes have to stay free on the disk.
	KeepFree uint64
}

// NoSpaceError says that a snapshot does not fit on this host's disk. It is also
// unix.ENOSPC.
type NoSpaceError struct {
	SnapshotID, Dir  string
	Need, Free, Keep uint64
}

// Error implements error.
func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("snapshot %s takes %s, and %s has %s left, of which %s are to stay free: make room", e.SnapshotID,
		humanize.IBytes(e.Need), e.Dir, humanize.IBytes(e.Free), humanize.IBytes(e.Keep))
}

// Unwrap makes the error one about a full disk.
func (e *NoSpaceError) Unwrap() error { return unix.ENOSPC }

// Fetch writes a snapshot into the directory at path dir, which does not exist yet or is empty.
// When Fetch returns nil, all of it is there, checked byte by byte and on disk; otherwise dir
// is as it was. An empty snapshot id means the newest one. If Fetch finds damage, the profile's
// next snapshot reuses nothing that is stored. If the snapshot is removed meanwhile, the error is
// ErrNoSnapshot.
func (s *Store) Fetch(ctx context.Context, profileID, snapshotID, dir string, o FetchOptions) (_ Fetched, err error) {
	fail := func(err error) (Fetched, error) {
		return Fetched{}, fmt.Errorf("profile %s: fetching snapshot %s: %w", profileID, snapshotID, err)
	}
	c := s.key.of(profileID)
	h, err := s.head(ctx, c, profileID)
	if err != nil {
		return Fetched{}, err
	}
	defer func() {
		if damage(err) && len(s.doubt(ctx, c, profileID, snapshotID)) > 0 {
			err = noSnapshot(profileID, snapshotID)
		}
	}()
	if last := h.newest(); snapshotID == "" && last != nil {
		snapshotID = last.ID
	}
	e, err := h.find(snapshotID)
	if err != nil {
		return Fetched{}, err
	}
	if err := CheckChrome(e.Snapshot, o.Chrome); err != nil {
		return fail(err)
	}
	m, err := s.manifest(ctx, c, e, nil)
	if err != nil {
		return Fetched{}, err
	}
	if free, err := durable.FreeSpace(filepath.Dir(dir)); err == nil && free.Bytes < m.Bytes+o.KeepFree {
		return fail(&NoSpaceError{SnapshotID: e.ID, Dir: filepath.Dir(dir), Need: m.Bytes, Free: free.Bytes, Keep: o.KeepFree})
	}
	f := Fetched{Manifest: m, Extra: map[string][]byte{}}
	for _, extra := range m.Extras {
		if extra.Size > maxExtra {
			return fail(fmt.Errorf("%w: %s has %d bytes", ErrDamaged, extra.Path, extra.Size))
		}
		content := make([]byte, 0, extra.Size)
		for _, chunk := range extra.Chunks {
			piece, err := s.chunk(ctx, c, chunk)
			if err != nil {
				return fail(fmt.Errorf("%s: %w", extra.Path, err))
			}
			content = append(content, piece...)
		}
		f.Extra[extra.Path] = content
	}
	staging := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+"."+id.New("fetch"))
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(staging))
		}
	}()
	if err := s.unpack(ctx, c, m, staging); err != nil {
		return fail(err)
	}
	// The kernel replaces an empty directory, and no other.
	if err := unix.Rename(staging, dir); err != nil {
		return fail(fmt.Errorf("%s: %w", dir, err))
	}
	if err := durable.Sync(filepath.Dir(dir)); err != nil {
		return fail(err)
	}
	return f, nil
}

// maxExtra bounds the size of a file that is kept with a profile, in bytes.
const maxExtra = 32 << 20

// unpack makes the directory that a manifest describes, and syncs it.
func (s *Store) unpack(ctx context.Context, c *codec, m Manifest, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, d := range m.Dirs {
		p, err := realPath(d)
		if err == nil {
			err = root.Mkdir(filepath.FromSlash(p), 0o700)
		}
		if err != nil {
			return err
		}
	}
	work, working := errgroup.WithContext(ctx)
	work.SetLimit(parallel)
	for _, f := range m.Tree {
		if working.Err() != nil {
			break
		}
		work.Go(func() error {
			if err := s.unpackFile(working, c, root, f); err != nil {
				return fmt.Errorf("%s: %w", f.Path, err)
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return durable.SyncAll(dir)
}

// unpackFile writes one file. It checks each chunk before writing it.
func (s *Store) unpackFile(ctx context.Context, c *codec, root *os.Root, f File) (err error) {
	p, err := realPath(f.Path)
	if err != nil {
		return err
	}
	out, err := root.OpenFile(filepath.FromSlash(p), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(f.mode()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for _, chunk := range f.Chunks {
		piece, err := s.chunk(ctx, c, chunk)
		if err == nil {
			_, err = out.Write(piece)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Checked is the result of Verify.
type Checked struct {
	ProfileID string `json:"profile_id"`
	// Snapshots are those that were checked, newest first.
	Snapshots []CheckedSnapshot `json:"snapshots"`
	// Chunks is how many different chunks were read, and Bytes is their size.
	Chunks int    `json:"chunks"`
	Bytes  uint64 `json:"bytes"`
}

// CheckedSnapshot is what Verify found about one snapshot.
type CheckedSnapshot struct {
	ID string `json:"snapshot_id"`
	// Problems are the parts that cannot be read; none: the snapshot is whole.
	Problems []string `json:"problems"`
}

// Whole tells whether everything could be read.
func (c Checked) Whole() bool { return len(c.damaged()) == 0 }

// damaged are the ids of the snapshots that are not whole.
func (c Checked) damaged() (snapshotIDs []string) {
	for _, s := range c.Snapshots {
		if len(s.Problems) > 0 {
			snapshotIDs = append(snapshotIDs, s.ID)
		}
	}
	return snapshotIDs
}

// maxProblems bounds how many problems of one snapshot are reported.
const maxProblems = 20

// Verify reads every byte of a profile's snapshots, or of one of them, and checks it. If there
// is damage, the profile's next snapshot reuses nothing that is stored. A snapshot that is removed
// meanwhile is left out. The error says that the check itself could not be made.
func (s *Store) Verify(ctx context.Context, profileID, snapshotID string) (Checked, error) {
	c := s.key.of(profileID)
	h, err := s.head(ctx, c, profileID)
	if err != nil {
		return Checked{}, err
	}
	entries := h.Snapshots
	if snapshotID != "" {
		e, err := h.find(snapshotID)
		if err != nil {
			return Checked{}, err
		}
		entries = []entry{*e}
	}
	found := Checked{ProfileID: profileID, Snapshots: []CheckedSnapshot{}}
	results := map[Chunk]error{} // of the chunks that were read
	manifests := map[string][]byte{}
	for _, e := range slices.Backward(entries) {
		one := CheckedSnapshot{ID: e.ID, Problems: []string{}}
		m, err := s.manifest(ctx, c, &e, manifests)
		if err != nil && !damage(err) {
			return Checked{}, err
		}
		if err != nil {
			one.Problems = append(one.Problems, err.Error())
		}
		if err := s.readAll(ctx, c, m, results); err != nil {
			return Checked{}, err
		}
		for _, f := range slices.Concat(m.Tree, m.Extras) {
			for _, chunk := range f.Chunks {
				if err := results[chunk]; err != nil && len(one.Problems) < maxProblems {
					one.Problems = append(one.Problems, fmt.Sprintf("%s: %v", f.Path, err))
				}
			}
		}
		found.Snapshots = append(found.Snapshots, one)
	}
	for chunk := range results {
		found.Chunks++
		found.Bytes += uint64(chunk.Size)
	}
	if !found.Whole() {
		gone := s.doubt(ctx, c, profileID, found.damaged()...)
		found.Snapshots = slices.DeleteFunc(found.Snapshots, func(one CheckedSnapshot) bool { return slices.Contains(gone, one.ID) })
	}
	if snapshotID != "" && len(found.Snapshots) == 0 {
		return Checked{}, noSnapshot(profileID, snapshotID)
	}
	return found, nil
}

// damage tells whether an error says that something is not as it was stored, rather than that
// the store cannot be reached.
func damage(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, ErrIncomplete) }

// readAll reads the chunks of a snapshot that were not read yet.
func (s *Store) readAll(ctx context.Context, c *codec, m Manifest, results map[Chunk]error) error {
	var todo []Chunk
	for _, chunk := range chunksOf(m) {
		if _, done := results[chunk]; !done {
			results[chunk] = nil
			todo = append(todo, chunk)
		}
	}
	failed := make([]error, len(todo))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(parallel)
	for i, chunk := range todo {
		work.Go(func() error {
			_, err := s.chunk(ctx, c, chunk)
			if failed[i] = err; damage(err) {
				return nil
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	for i, chunk := range todo {
		results[chunk] = failed[i]
	}
	return nil
}
