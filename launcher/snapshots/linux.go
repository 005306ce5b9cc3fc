//go:build linux

package snapshots

import "syscall"

// times are when a file's content, and its inode, last changed.
func times(st *syscall.Stat_t) (modified, changed syscall.Timespec) { return st.Mtim, st.Ctim }
