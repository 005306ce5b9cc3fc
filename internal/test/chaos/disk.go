package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
)

// disk is a file system of its own that can be filled, or a directory if none can be
// mounted. It is in memory, or in the file of an image, as on a device that forgets at a power
// cut what was not written to it yet.
type disk struct {
	path  string
	image string // empty: there is none
}

const (
	// diskSize and diskFiles are more than any run writes, on a file system in memory.
	diskSize, diskFiles = 4 << 30, 1 << 20
	// imageSize is that of an image.
	imageSize = "2g"
)

func newDisk(isolated bool, path string) (*disk, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	d := &disk{path: path}
	if !isolated {
		return d, nil
	}
	return d, run(fmt.Sprintf("mount -t tmpfs -o size=%d,nr_inodes=%d,mode=700 none %s", diskSize, diskFiles, path))
}

// newImage returns a disk whose image is in a file, which itself is in memory.
func newImage(path string) (*disk, error) {
	under, err := newDisk(true, path+".image")
	if err != nil {
		return nil, err
	}
	d := &disk{path: path, image: filepath.Join(under.path, "image")}
	return d, errors.Join(
		os.MkdirAll(path, 0o700),
		run("mke2fs -q -F -t ext4 -m 0 -N 65536 -J size=16 -E lazy_itable_init=0 "+d.image+" "+imageSize),
		d.mount(),
	)
}

func (d *disk) mount() error {
	return errors.Join(run("mount -o loop "+d.image+" "+d.path), os.Chmod(d.path, 0o700))
}

// The command of ioctl that has an ext4 stop as at a power cut, and its way that writes nothing.
const (
	ext4Shutdown  = 0x8004587d
	withoutAFlush = uint32(2)
)

// cutPower has an image keep what is on it now: nothing that the kernel has in memory is written
// any more. mounted has to follow, when no process uses it.
func (d *disk) cutPower() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	how := withoutAFlush
	if _, _, failed := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&how))); failed != 0 {
		return fmt.Errorf("power cut of %s: %w", d.path, failed)
	}
	return nil
}

// remount mounts an image again after a power cut, as a boot does.
func (d *disk) remount() error {
	for deadline := time.Now().Add(killTime); ; time.Sleep(50 * time.Millisecond) {
		err := unix.Unmount(d.path, 0)
		if err == nil {
			return d.mount()
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("unmount %s: %w", d.path, err)
		}
	}
}

// filler is what fills a disk that is not made smaller.
func (d *disk) filler() string { return filepath.Join(d.path, "filler") }

// fill leaves next to nothing free: it shrinks a file system in memory, and writes to an image.
func (d *disk) fill() error {
	if d.image == "" {
		return d.shrink("size", func(fs unix.Statfs_t) uint64 { return (fs.Blocks - fs.Bfree) * uint64(fs.Bsize) }, 64<<10)
	}
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil && !durable.Full(err) {
		return err
	}
	defer f.Close()
	for _, piece := range []int{1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, piece))
		}
	}
	if !durable.Full(err) {
		return fmt.Errorf("fill %s: %w", d.path, err)
	}
	return nil
}

// fillFiles leaves next to no inodes free, on a file system in memory.
func (d *disk) fillFiles() error {
	return d.shrink("nr_inodes", func(fs unix.Statfs_t) uint64 { return fs.Files - fs.Ffree }, 16)
}

// shrink makes a limit of a file system in memory what it uses. A limit that became too small
// for the content, because something was written meanwhile, is refused.
func (d *disk) shrink(limit string, used func(unix.Statfs_t) uint64, step uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(d.path, &fs); err != nil {
		return fmt.Errorf("disk %s: %w", d.path, err)
	}
	for extra := uint64(0); ; extra += step {
		err := d.limit(fmt.Sprintf("%s=%d", limit, used(fs)+extra))
		if err == nil || extra > 256*step {
			return err
		}
	}
}

// limit gives a file system in memory other limits.
func (d *disk) limit(limits string) error {
	if err := unix.Mount("none", d.path, "tmpfs", unix.MS_REMOUNT, limits); err != nil {
		return fmt.Errorf("disk %s: %s: %w", d.path, limits, err)
	}
	return nil
}

// stays has what fills the disk do so again whenever something was removed, until stop is called.
func stays(ctx context.Context, fill func() error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = fill() // it was full a moment ago, and is tried again
			sleep(ctx, 20*time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// free gives the file system its full size again.
func (d *disk) free() error {
	if d.image != "" {
		return os.RemoveAll(d.filler())
	}
	return d.limit(fmt.Sprintf("size=%d,nr_inodes=%d", diskSize, diskFiles))
}
