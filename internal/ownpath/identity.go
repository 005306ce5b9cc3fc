package ownpath

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Identity distinguishes a directory from its copies: it stays the same when the directory is
// renamed, and a copy has another one. It may change when the disk is mounted again.
func Identity(dir string) (string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino), nil
}

// MovedError says that a directory is not the one that was opened.
type MovedError struct {
	Dir   string
	Cause error
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("%s is not the directory that this sidecar opened at its start: %v: it was moved, or its disk was unmounted: put it back, or start the sidecar again", e.Dir, e.Cause)
}

func (e *MovedError) Unwrap() error { return e.Cause }

// Still returns nil if the directory at a path has the identity that it had before. Otherwise the
// error is a *MovedError, and what is missing there says nothing.
func Still(dir, identity string) error {
	now, err := Identity(dir)
	if err == nil && now != identity {
		err = errors.New("another directory is in its place")
	}
	if err != nil {
		return &MovedError{dir, err}
	}
	return nil
}
