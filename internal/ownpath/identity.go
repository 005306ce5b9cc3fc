package ownpath

import (
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
