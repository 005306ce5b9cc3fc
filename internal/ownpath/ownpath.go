// Package ownpath tells whether a directory is safe from other users of the host: whether
// nobody but its owner and root can change what its path leads to.
package ownpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links a path may lead through, as in the kernel.
const maxLinks = 40

// Check refuses a directory if it, or a directory above it up to the root, belongs to another
// user than root and the caller's own, or may be written to by its group or by others. Symbolic
// links are followed, and both the directory that contains a link and the one to which it leads
// are checked in the same way. A directory above it with the sticky bit, such as /tmp, may be
// writable by others: nobody can rename or replace other users' files there. If the end of the
// path does not exist yet, the rest is checked. The error names the directory, its owner, its
// mode, and what to do.
func Check(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	return check(path, os.Geteuid())
}

func check(path string, uid int) error {
	rest := split(path)
	at, links := "/", 0
	if err := checkOne(path, at, uid, len(rest) == 0); err != nil {
		return err
	}
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." { // of a link
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			// Whoever makes it will own it: nobody else can make it, or not for long.
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if err := checkOne(path, next, uid, len(rest) == 0); err != nil {
				return err
			}
			at = next
			continue
		}
		if err := checkOwner(path, next, info, uid); err != nil {
			return err
		}
		if links++; links > maxLinks {
			return fmt.Errorf("%s leads through more than %d symbolic links", path, maxLinks)
		}
		to, err := os.Readlink(next)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(split(to), rest...)
	}
	return nil
}

// split returns the names in a path, without empty ones and ".".
func split(path string) []string {
	var names []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// checkOne checks the directory dir on the way to path. last says that it is the end.
func checkOne(path, dir string, uid int, last bool) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := checkOwner(path, dir, info, uid); err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %s is no directory", path, dir)
	}
	if info.Mode().Perm()&0o022 == 0 || info.Mode()&fs.ModeSticky != 0 && !last {
		return nil
	}
	return fmt.Errorf("%s is not safe: %s, which belongs to uid %d, has mode %#o, so that others can replace what is in it: chmod go-w %s", path, dir, owner(info), perm(info), dir)
}

func checkOwner(path, at string, info fs.FileInfo, uid int) error {
	who := owner(info)
	if who == 0 || who == uid {
		return nil
	}
	do := fmt.Sprintf("chown -h %d %s", uid, at)
	if at == path || info.Mode()&fs.ModeSymlink != 0 {
		do += ", or choose another path"
	}
	return fmt.Errorf("%s is not safe: %s belongs to uid %d and has mode %#o, so that its owner can replace what is in it, and this is uid %d: %s", path, at, who, perm(info), uid, do)
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// perm is the mode as chmod takes it, the sticky bit included.
func perm(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Mode & 0o7777 }
