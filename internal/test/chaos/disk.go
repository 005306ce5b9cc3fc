package chaos

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// disk is a file system of its own that can be filled, or a directory if none can be
// mounted.
type disk struct {
	path    string
	mounted bool
}

// diskSize is more than any run writes. The file system is in memory.
const diskSize = 4 << 30

func newDisk(isolated bool, path string) (*disk, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	d := &disk{path: path, mounted: isolated}
	if !isolated {
		return d, nil
	}
	return d, run(fmt.Sprintf("mount -t tmpfs -o size=%d,mode=700 none %s", diskSize, path))
}

// fill shrinks the file system until next to nothing is free.
func (d *disk) fill() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(d.path, &fs); err != nil {
		return fmt.Errorf("disk %s: %w", d.path, err)
	}
	used := (fs.Blocks - fs.Bfree) * uint64(fs.Bsize)
	// A size that became too small for the content, because something was written
	// meanwhile, is refused.
	for extra := uint64(0); ; extra += 64 << 10 {
		err := run(fmt.Sprintf("mount -o remount,size=%d %s", used+extra, d.path))
		if err == nil || extra > 16<<20 {
			return err
		}
	}
}

// free gives the file system its full size again.
func (d *disk) free() error {
	return run(fmt.Sprintf("mount -o remount,size=%d %s", diskSize, d.path))
}
