package fileroots

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"leasehold/internal/durable"
	"leasehold/internal/runas"
)

// base is the directory with the exchange directories of one launcher: PROFILE/SESSION below
// it. It is in the system's temporary directory, under a name that nobody can know beforehand.
// Its path is kept in the data directory, so that the next launcher continues to use it, and
// beside it the identity of the data directory: in a copy of that, the path is another
// launcher's, which may have sessions there.
type base struct {
	temp string // directory in which it is made
	note string // file with its path and, in a second line, the identity
	// data is the identity of the data directory.
	data string
	// user is the browser user; nil: browsers run as the launcher's own.
	user *runas.User

	mu  sync.Mutex
	dir string
}

const basePrefix = "leasehold-exchange-"

// path is the directory; "" before it is made.
func (b *base) path() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dir
}

// open finds the remembered directory, or makes one.
func (b *base) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	noted, err := os.ReadFile(b.note)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("place of the exchange directories: %w", err)
	}
	dir, of, _ := strings.Cut(strings.TrimSpace(string(noted)), "\n")
	if of == b.data && filepath.Dir(dir) == b.temp && strings.HasPrefix(filepath.Base(dir), basePrefix) && ours(dir) == nil {
		b.dir = dir
		return b.share(dir)
	}
	return b.make()
}

// share lets the browser user pass through a directory on the way to its sessions' directories,
// without listing it.
func (b *base) share(dir string) error {
	if b.user == nil {
		return nil
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return fmt.Errorf("place of the exchange directories: %w", err)
	}
	return nil
}

// make makes a new directory. The caller holds b.mu.
func (b *base) make() error {
	dir, err := os.MkdirTemp(b.temp, basePrefix)
	if err == nil {
		err = durable.Replace(b.note, []byte(dir+"\n"+b.data+"\n"))
	}
	if err != nil {
		return fmt.Errorf("place of the exchange directories: %w", err)
	}
	b.dir = dir
	return b.share(dir)
}

// ours returns nil if dir is a directory (not a link to one) of this user in which nobody else
// can list or make anything.
func ours(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, known := fi.Sys().(*syscall.Stat_t)
	if !fi.IsDir() || fi.Mode().Perm()&0o066 != 0 || !known || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: want a directory of mode 0700, or 0711 with --browser-user, that belongs to uid %d", dir, os.Geteuid())
	}
	return nil
}

// Ready returns why no exchange directory can be made now.
func (r *Roots) Ready() error {
	r.base.mu.Lock()
	defer r.base.mu.Unlock()
	return r.base.ready()
}

// ready finds the directory, or makes it again if somebody has cleaned up. The caller holds b.mu.
func (b *base) ready() error {
	err := ours(b.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return b.make()
	}
	if err != nil {
		return fmt.Errorf("place of the exchange directories: %w", err)
	}
	return nil
}

// Exchange makes the exchange directory of a session, and returns its path. It may be
// there already, from an earlier launcher.
func (r *Roots) Exchange(profile, session string) (string, error) {
	b := &r.base
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ready(); err != nil {
		return "", err
	}
	of := filepath.Join(b.dir, profile)
	if err := os.MkdirAll(of, 0o700); err != nil {
		return "", fmt.Errorf("exchange directory: %w", err)
	}
	if err := errors.Join(ours(of), b.share(of)); err != nil {
		return "", err
	}
	// Nobody else can make anything there. An existing directory belongs to the user of the
	// browser for which it was made, which may still run.
	dir := filepath.Join(of, session)
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return dir, nil
	}
	if err == nil && b.user != nil {
		err = b.user.Own(dir)
	}
	if err != nil {
		return "", fmt.Errorf("exchange directory: %w", err)
	}
	return dir, nil
}

// OfProfile is the directory with the exchange directories of a profile's sessions. A browser
// needs all of it, since it may serve one session after another.
func (r *Roots) OfProfile(profile string) string { return filepath.Join(r.base.path(), profile) }

// Remove removes a session's exchange directory with everything in it. The profile's directory
// stays: the kernel lets a confined browser into that very directory, but not into another one
// of the same name.
func (r *Roots) Remove(profile, session string) error {
	r.base.mu.Lock()
	defer r.base.mu.Unlock()
	dir := filepath.Join(r.base.dir, profile, session)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("exchange directory: %w", err)
	}
	return nil
}

// Forget removes the directory of a profile, with its sessions' exchange directories. Its
// browser has ended, and there will be no other.
func (r *Roots) Forget(profile string) error {
	r.base.mu.Lock()
	defer r.base.mu.Unlock()
	if err := os.RemoveAll(filepath.Join(r.base.dir, profile)); err != nil {
		return fmt.Errorf("exchange directory: %w", err)
	}
	return nil
}

// Sweep removes the exchange directories of sessions that are over, in case an earlier launcher
// was killed before it could.
func (r *Roots) Sweep(living func(session string) bool) error {
	base := r.base.path()
	profiles, err := os.ReadDir(base)
	if err != nil {
		return fmt.Errorf("exchange directories: %w", err)
	}
	for _, p := range profiles {
		sessions, listed := os.ReadDir(filepath.Join(base, p.Name()))
		err = errors.Join(err, listed)
		for _, s := range sessions {
			if !living(s.Name()) {
				err = errors.Join(err, r.Remove(p.Name(), s.Name()))
			}
		}
	}
	r.removeEmpty()
	return err
}

// Close removes the base directory if no exchange directory is left in it.
func (r *Roots) Close() {
	r.removeEmpty()
	_ = os.Remove(r.base.path()) // it fails if sessions go on in the next launcher
}

// removeEmpty removes the directories of profiles that have no session. No browser of
// this launcher may be running.
func (r *Roots) removeEmpty() {
	r.base.mu.Lock()
	defer r.base.mu.Unlock()
	profiles, _ := os.ReadDir(r.base.dir) // the next launcher finds what stays
	for _, p := range profiles {
		_ = os.Remove(filepath.Join(r.base.dir, p.Name()))
	}
}
