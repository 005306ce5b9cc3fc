package chrome

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"leasehold/internal/confine"
	"leasehold/internal/runas"
)

// tempPattern is how the temporary directories of browsers are named. Package fileroots
// knows it: workers may not name files there.
const tempPattern = "leasehold-"

// tempVariable is the beginning of the variable that names a browser's temporary directory.
const tempVariable = "TMPDIR="

// uid is the user that the browser runs as.
func (o Options) uid() int { return uidOf(o.User) }

// uidOf is the uid of a browser user; of this process's own user if that is nil.
func uidOf(as *runas.User) int {
	if as == nil {
		return os.Getuid()
	}
	return as.UID
}

// environment returns the browser's environment. For a browser user it also gives that user
// the directories that have been made for the browser.
func (o Options) environment() ([]string, error) {
	for _, dir := range []string{o.TempDir, o.DumpDir} {
		if dir == "" || o.User == nil {
			continue
		}
		if err := o.User.Own(dir); err != nil {
			return nil, err
		}
	}
	return environmentOf(o.User, o.TempDir)
}

// environmentOf returns the environment of a browser of the user, whose home directory is made
// in its temporary directory. If the user is nil, it returns this process's own environment
// without the variables that are only for the sidecar.
func environmentOf(as *runas.User, temp string) ([]string, error) {
	if as == nil {
		return withoutSecrets(os.Environ()), nil
	}
	// The browser makes it: in a directory of the user nothing is made for it, since that
	// user could put something else there meanwhile.
	return as.Environment(os.Environ(), filepath.Join(temp, "home")), nil
}

// sidecarVariables are the beginnings of variables that are for the sidecar: its settings, and the
// credentials of its evidence store. Every process of the user reads those of a browser.
var sidecarVariables = []string{"LEASEHOLD_", "AWS_"}

// withoutSecrets is the environment without the variables that are only for the sidecar.
func withoutSecrets(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		return slices.ContainsFunc(sidecarVariables, func(prefix string) bool { return strings.HasPrefix(variable, prefix) })
	})
}

// startAs starts a command, as the user if one is given, under the rules if there are any.
func startAs(ctx context.Context, cmd *exec.Cmd, rules *confine.Rules, as *runas.User, pass ...string) error {
	if as != nil {
		return confine.StartAs(ctx, cmd, rules, *as, pass...)
	}
	return confine.Start(ctx, cmd, *rules)
}

func runOnce(ctx context.Context, binary string, rules *confine.Rules, as *runas.User, pass ...string) (string, error) {
	cmd := exec.Command(binary, "--version")
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if as != nil {
		cmd.Dir, cmd.Env = "/", as.Environment(os.Environ(), "/nonexistent")
	}
	if err := startAs(ctx, cmd, rules, as, pass...); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	return output.String(), err
}

// CheckUser tells whether this process may run the binary as the user, and whether that user
// can pass through the directories. It runs the binary once, for its version. The error says
// what to do.
func CheckUser(ctx context.Context, binary string, as runas.User, pass ...string) error {
	if err := runas.Check(); err != nil {
		return err
	}
	output, err := runOnce(ctx, binary, nil, &as, pass...)
	var closed *confine.PassError
	switch {
	case errors.As(err, &closed):
		return fmt.Errorf("%w: chmod o+x %s, or choose another path", closed, closed.Dir)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%v cannot run %s: %w: name one that all users may run (--chrome)", as, binary, err)
	case err != nil:
		return fmt.Errorf("%s does not run as %v: %w; it printed %.500q", binary, as, err, output)
	}
	return nil
}

// SandboxOf tells whether the browser's own sandbox, which confines its renderers, works for
// browsers that run as the user; nil: as this process's own.
func SandboxOf(as *runas.User) string {
	switch err := userNamespaces(); {
	case uidOf(as) == 0:
		return "without Chrome's own sandbox, which root cannot have"
	case err != nil:
		return fmt.Sprintf("with Chrome's own sandbox only by its setuid program: %v", err)
	default:
		return "with Chrome's own sandbox"
	}
}
