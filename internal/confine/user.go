package confine

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"leasehold/internal/runas"
)

// PassError says that the user of a program cannot pass through a directory.
type PassError struct {
	// Dir is the directory, on the way to Path or Path itself.
	Dir  string `json:"dir"`
	Path string `json:"path"`
	UID  int    `json:"uid"`
	// Reason is the kernel's.
	Reason string `json:"reason"`
}

func (e *PassError) Error() string {
	return fmt.Sprintf("uid %d cannot pass through %s, on the way to %s: %s", e.UID, e.Dir, e.Path, e.Reason)
}

// dropTo makes this thread a thread of the user, for good: without supplementary groups and
// without capabilities. This thread becomes the program. Files that this process had open stay
// open.
func dropTo(u runas.User, pass []string) error {
	// The user's processes cannot attach to this one, because the kernel makes it undumpable
	// until it becomes the program.
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(u.GID, u.GID, u.GID), syscall.Setresuid(u.UID, u.UID, u.UID)); err != nil {
		return fmt.Errorf("becoming %v: %w: may this process do that, and does its user namespace have that user?", u, err)
	}
	// This takes root's capabilities away. Another user would keep its own.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("dropping ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	for _, path := range pass {
		if err := canPass(u, path); err != nil {
			return err
		}
	}
	return nil
}

// canPass returns a *PassError unless this process, which runs as the user, can pass through
// the directory and all directories above it.
func canPass(u runas.User, path string) error {
	path = filepath.Clean(path)
	if unix.Access(path, unix.X_OK) == nil {
		return nil
	}
	var way []string
	for dir := path; ; dir = filepath.Dir(dir) {
		way = append([]string{dir}, way...)
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for _, dir := range way {
		if err := unix.Access(dir, unix.X_OK); err != nil {
			return &PassError{Dir: dir, Path: path, UID: u.UID, Reason: err.Error()}
		}
	}
	return nil
}
