package ownpath

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// stranger is another user of the host. The tests run as root, so that there can be one.
const stranger = 61234

// asStranger runs a command as that user.
func asStranger(t *testing.T, name string, args ...string) error {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("want to be root: the adversary is another user")
	}
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}

// TestADirectoryOfOthersIsRefused: wherever a stranger can put a directory of his own into
// the place of what the path leads to, and he really does it; and where he cannot, the
// path is taken.
func TestADirectoryOfOthersIsRefused(t *testing.T) {
	// t.TempDir lies below directories of which nobody else may see anything.
	top, err := os.MkdirTemp("/tmp", "ownpath-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(top, 0o755))
	for _, tt := range []struct {
		name   string
		make   func(at string) (path string)
		says   []string // in the error; none: it is safe
		moving string   // what the stranger tries to move away, below at; empty: nothing
	}{
		{"ours alone", func(at string) string {
			must(os.MkdirAll(at+"/a/data", 0o700))
			return at + "/a/data"
		}, nil, "a"},
		{"readable by all", func(at string) string {
			must(os.MkdirAll(at+"/a/data", 0o755))
			return at + "/a/data"
		}, nil, "a/data"},
		{"not there yet", func(at string) string { return at + "/a/b/data" }, nil, ""},
		{"a parent that all may write", func(at string) string {
			must(os.MkdirAll(at+"/a/data", 0o755), os.Chmod(at+"/a", 0o777))
			return at + "/a/data"
		}, []string{"/a,", "0777", "belongs to uid 0", "chmod go-w"}, "a/data"},
		{"a parent that its group may write", func(at string) string {
			must(os.MkdirAll(at+"/a/data", 0o755), os.Chown(at+"/a", 0, stranger), os.Chmod(at+"/a", 0o775))
			return at + "/a/data"
		}, []string{"/a,", "0775", "chmod go-w"}, "a/data"},
		{"a parent of the stranger's", func(at string) string {
			must(os.MkdirAll(at+"/a/data", 0o755), os.Chown(at+"/a", stranger, stranger))
			return at + "/a/data"
		}, []string{"/a belongs to uid 61234", "0755", "chown"}, "a/data"},
		{"the stranger's own", func(at string) string {
			must(os.MkdirAll(at+"/a", 0o755), os.Chmod(at+"/a", os.ModeSticky|0o777), asStranger(t, "mkdir", at+"/a/data"))
			return at + "/a/data"
		}, []string{"/a/data belongs to uid 61234", "choose another path"}, "a/data"},
		{"made by the stranger for all", func(at string) string {
			must(os.MkdirAll(at+"/a", 0o755), os.Chmod(at+"/a", os.ModeSticky|0o777), asStranger(t, "mkdir", "-m", "777", at+"/a/data"))
			return at + "/a/data"
		}, []string{"/a/data belongs to uid 61234", "0777"}, ""},
		{"ours in a sticky one", func(at string) string {
			must(os.MkdirAll(at+"/a/data", 0o755), os.Chmod(at+"/a", os.ModeSticky|0o777))
			return at + "/a/data"
		}, nil, "a/data"},
		{"a sticky one itself", func(at string) string {
			must(os.MkdirAll(at+"/data", 0o755), os.Chmod(at+"/data", os.ModeSticky|0o777))
			return at + "/data"
		}, []string{"/data,", "01777"}, ""},
		{"the stranger's between", func(at string) string {
			must(os.MkdirAll(at+"/a", 0o755), os.Chmod(at+"/a", os.ModeSticky|0o777), asStranger(t, "mkdir", "-m", "777", at+"/a/b"), os.Mkdir(at+"/a/b/data", 0o700))
			return at + "/a/b/data"
		}, []string{"/a/b belongs to uid 61234"}, "a/b/data"},
		{"our link to what is ours", func(at string) string {
			must(os.MkdirAll(at+"/real/data", 0o700), os.Symlink("real/../real", at+"/link"))
			return at + "/link/data"
		}, nil, "link"},
		{"our link to what all may write", func(at string) string {
			must(os.MkdirAll(at+"/real/x/data", 0o755), os.Chmod(at+"/real", 0o777), os.Symlink(at+"/real/x", at+"/link"))
			return at + "/link/data"
		}, []string{"/real,", "0777"}, "real/x"},
		{"the stranger's link", func(at string) string {
			must(os.MkdirAll(at+"/a", 0o755), os.Chmod(at+"/a", os.ModeSticky|0o777), os.Mkdir(at+"/real", 0o700), asStranger(t, "ln", "-s", at+"/real", at+"/a/data"))
			return at + "/a/data"
		}, []string{"/a/data belongs to uid 61234"}, "a/data"},
		{"links without end", func(at string) string {
			must(os.Symlink("b", at+"/a"), os.Symlink("a", at+"/b"))
			return at + "/a"
		}, []string{"symbolic links"}, ""},
		{"a file", func(at string) string {
			must(os.WriteFile(at+"/a", nil, 0o600))
			return at + "/a/data"
		}, []string{"no directory"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := filepath.Join(top, strings.ReplaceAll(tt.name, " ", "-"))
			must(os.Mkdir(at, 0o755))
			path := tt.make(at)
			err := Check(path)
			if (err == nil) != (tt.says == nil) {
				t.Fatalf("%v", err)
			}
			for _, says := range append(tt.says, path) {
				if err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("%v, want it to say %q", err, says)
				}
			}
			if tt.moving == "" {
				return
			}
			// The rule is right where it says what really can be done.
			moved := asStranger(t, "mv", filepath.Join(at, tt.moving), filepath.Join(filepath.Dir(filepath.Join(at, tt.moving)), "moved"))
			if (moved == nil) != (err != nil) {
				t.Errorf("the check says %v, and moving %s away: %v", err, tt.moving, moved)
			}
		})
	}
}

func TestTheRootItselfIsChecked(t *testing.T) {
	if err := Check("/"); err != nil {
		t.Error(err)
	}
	dir := t.TempDir() // ours, and to that user a stranger's
	if err := check(dir, stranger); os.Geteuid() != 0 && (err == nil || !strings.Contains(err.Error(), "this is uid 61234")) {
		t.Errorf("%v", err)
	}
	if err := os.Chown(dir, stranger+1, -1); err == nil {
		if err := check(dir, stranger); err == nil || !strings.Contains(err.Error(), "this is uid 61234") {
			t.Errorf("%v", err)
		}
	}
}
