//go:build linux

package foreign

import "golang.org/x/sys/unix"

// onlyPath opens a folder without the right to read it.
const onlyPath = unix.O_PATH
