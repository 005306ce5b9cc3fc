// Package nofiles has a process open no files, as one does that has used up its descriptors.
package nofiles

import (
	"syscall"
	"testing"
)

// During calls do while this process can open nothing. Tests that run beside it cannot either.
func During(t testing.TB, do func()) {
	t.Helper()
	var all syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &all); err != nil {
		t.Fatalf("the limit of open files: %v", err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &all); err != nil {
			t.Fatalf("putting the limit of open files back: %v", err)
		}
	}()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: all.Max}); err != nil {
		t.Fatalf("setting the limit of open files: %v", err)
	}
	do()
}
