// Package smalldisk gives a test a small file system of its own, in memory, which it can
// fill. The test runs again in a process and a mount namespace of its own, so that nothing
// is left of either.
package smalldisk

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
)

// variable has the directory on which the test's file system is mounted.
const variable = "LEASEHOLD_TEST_SMALL_DISK"

// Run runs the test again on a file system of so much ("24m"), and returns its directory
// there. In the process that only started that it returns "", and the test is over.
func Run(t *testing.T, size string) (dir string) {
	t.Helper()
	if dir := os.Getenv(variable); dir != "" {
		if err := unix.Mount("none", dir, "tmpfs", 0, "mode=700,size="+size); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), variable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("on a disk of %s: %v\n%s", size, err, out)
	}
	return ""
}

// Fill fills the disk of a directory to the last byte, and returns what frees it again.
func Fill(t testing.TB, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range []int{1 << 20, 1 << 12, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, piece))
		}
		if !durable.Full(err) {
			t.Fatalf("error %v, want that of a full disk", err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
