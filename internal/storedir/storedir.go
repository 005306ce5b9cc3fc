// Package storedir tells whether the directory of a store is still the one that was used before. When its
// disk is unmounted, another directory is at its path, which looks like an empty store. A number of the
// file system, such as an inode's, does not tell: some change with each mount. So the directory has a mark.
package storedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"leasehold/internal/durable"
	"leasehold/internal/foreign"
	"leasehold/internal/id"
)

// Name is the file with the mark, which is the same for all who use the directory.
const Name = ".leasehold-store"

// maxMark is more than a mark has bytes.
const maxMark = 100

// Dir is such a directory. Its methods are safe for concurrent use.
type Dir struct {
	path  string
	calls durable.Calls

	mu   sync.Mutex
	mark string // as it was first read; empty: there was none yet
}

// New returns the directory at a path, without accessing it.
func New(path string) *Dir { return &Dir{path: path, calls: durable.NewCalls()} }

// Call is durable.Call on the directory, which has to be ready: by its Still, its Make, or what calls them.
func Call[T any](ctx context.Context, d *Dir, ready func() error, do func() (T, error)) (T, error) {
	return durable.Call(ctx, d.calls, func() (T, error) {
		if err := ready(); err != nil {
			var none T
			return none, err
		}
		return do()
	})
}

// Still returns nil if the directory is the one that was used before, or none with a mark was used yet.
// Otherwise what is missing there says nothing, and the error is not fs.ErrNotExist. It is to be called
// before each use.
func (d *Dir) Still() error {
	want := d.remember("") // before the mark is read: somebody may make it right after that
	b, err := foreign.ReadPlain(d.path, Name, maxMark)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now := string(b)
	if want == "" && now != "" {
		want = d.remember(now)
	}
	if now == want {
		return nil
	}
	says := "is missing"
	if now != "" {
		says = fmt.Sprintf("says %q", now)
	}
	return fmt.Errorf("%s is not the directory that this store was opened in: its file %s %s, want %q: "+
		"its disk was unmounted, or it was moved: mount it or put it back, and the store goes on; if this is the right directory, start the sidecar again",
		d.path, Name, says, want)
}

// remember returns the mark as it was first read, which may be now.
func (d *Dir) remember(now string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mark == "" {
		d.mark = now
	}
	return d.mark
}

// Make is Still for who writes: it makes the directory and its mark if there was none yet.
func (d *Dir) Make() error {
	if err := d.Still(); err != nil || d.remember("") != "" {
		return err
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	path := filepath.Join(d.path, Name)
	err := durable.CreateWhole(path, []byte(id.New("store")))
	if err == nil {
		err = os.Chmod(path, 0o644) // sidecars of other users may share the directory
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.Still()
}
