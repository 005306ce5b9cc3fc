package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/internal/runas"
)

var other = runas.User{UID: 54321, GID: 54322}

// play starts a program as another user, with the rules that allow everything or without.
func play(ruled bool, secret string) (string, error) {
	var r *Rules
	if ruled {
		r = &Rules{Paths: []Path{{"/", ReadOnly | Execute}}}
	}
	cmd := exec.Command("/bin/sh", "-c", `grep -E '^(Uid|Gid|Groups|Cap(Inh|Prm|Eff|Amb)):' /proc/self/status; cat "$1" 2>&1; pwd`, "sh", secret)
	cmd.Dir = "/"
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := StartAs(context.Background(), cmd, r, other, "/", "/proc"); err != nil {
		return "", err
	}
	_ = cmd.Wait() // what it printed says more
	return strings.Join(strings.Fields(out.String()), " "), nil
}

// A program of another user has that user's rights and no others, with rules and without,
// whether root starts it or a user with capabilities, which the kernel would leave to it.
func TestStartAs(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("SECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, starter := range []uint32{0, 54323} {
		for _, mode := range []string{"as", "as, ruled"} {
			cmd := exec.Command("/proc/self/exe", secret)
			cmd.Dir, cmd.Env = "/", []string{modeVar + "=" + mode}
			cmd.SysProcAttr = &syscall.SysProcAttr{
				AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_DAC_OVERRIDE},
				Credential:  &syscall.Credential{Uid: starter, Gid: starter, Groups: []uint32{0, 6}},
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got := string(out)
			const ids, none = "54321 54321 54321 54321 Gid: 54322 54322 54322 54322 Groups:", "0000000000000000"
			want := fmt.Sprintf("Uid: %s CapInh: %s CapPrm: %s CapEff: %s CapAmb: %s cat: %s: Permission denied /", ids, none, none, none, none, secret)
			if got != want {
				t.Errorf("started %s by uid %d it is\n%s, want\n%s", mode, starter, got, want)
			}
		}
	}
}

// Where the user cannot get to a directory, the error names the one that is closed.
func TestWhereAUserCannotPass(t *testing.T) {
	base, err := os.MkdirTemp("", "leasehold-pass-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	closed := filepath.Join(base, "closed")
	below := filepath.Join(closed, "a", "b")
	if err := errors.Join(os.MkdirAll(below, 0o755), os.Chmod(base, 0o711), os.Chmod(closed, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{closed, below} {
		err := StartAs(t.Context(), exec.Command("/bin/true"), nil, other, base, path)
		var pass *PassError
		if !errors.As(err, &pass) || pass.Dir != closed || pass.Path != path || pass.UID != other.UID {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := os.Chmod(closed, 0o711); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/true")
	if err := StartAs(t.Context(), cmd, nil, other, below); err != nil {
		t.Errorf("once it is open: %v", err)
	} else if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
