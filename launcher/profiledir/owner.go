package profiledir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
	"leasehold/internal/ownpath"
	"leasehold/internal/runas"
	"leasehold/internal/signed"
)

// A profile belongs to the user as whom its browser runs: the launcher's own user, or the
// browser user. If that changes, the directory changes its owner before the browser starts,
// under the profile's lock.
//
// Meanwhile the directory's present owner could put other users' files into it in order to be
// given them. So the order of the steps keeps that user out: the top directory is given away
// last, and taken back first. And only files that belonged to the one user are given to the
// other: any other file stops it.

// ownersFile is the guard file that lists the present and former browser users of this
// launcher: the users to whom profiles may belong.
const ownersFile = "browser-users"

// SetBrowserUser says as which user the profiles' browsers run from now on; nil: as the
// launcher's own. It is called once, before any other method.
func (r *Root) SetBrowserUser(u *runas.User) error {
	r.user = runas.User{UID: os.Geteuid(), GID: os.Getegid()}
	path := filepath.Join(r.guard, ownersFile)
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("list of the browser users: %w", err)
	default:
		content, err := r.key.Open(signed.Owners, "", b)
		if err == nil {
			err = json.Unmarshal(content, &r.owners)
		}
		if err != nil {
			return fmt.Errorf("%s cannot be believed: %w: remove it; a profile that belongs to a browser user is then refused until you chown it", path, err)
		}
	}
	if u == nil {
		return nil
	}
	r.user = *u
	if slices.Contains(r.owners, u.UID) {
		return nil
	}
	r.owners = append(r.owners, u.UID)
	content, err := json.Marshal(r.owners)
	if err == nil {
		err = durable.Replace(path, r.key.Sign(signed.Owners, "", append(content, '\n')))
	}
	if err != nil {
		return fmt.Errorf("list of the browser users: %w", err)
	}
	return nil
}

// CheckOwner does what CheckMine does, but for a directory that may also belong to a browser
// user: a profile's, or one that was archived here.
func (r *Root) CheckOwner(path string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return checkMine(path, fi, append([]int{os.Getuid()}, r.owners...)...)
}

// takingMark is a guard file that exists while a profile is taken back from a browser user. It may have the
// ownpath.Identity of a directory about which it says nothing.
const takingMark = "taking"

// forgetFormer forgets what guard files say about the directory that was in the profile's place: nothing is there, and
// another one is about to come. Until then they stay, since the same one may come back.
func (r *Root) forgetFormer(id string) error {
	_, err := r.forgetTaking(id)
	return errors.Join(err, r.forgetMark(id))
}

// forgetTaking removes takingMark, since the directory that it is about is not in the profile's place any more.
// was tells whether it was there.
func (r *Root) forgetTaking(id string) (was bool, err error) {
	err = os.Remove(r.file(id, takingMark))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, durable.Sync(r.guard)
}

// spareTaking has takingMark say nothing about another directory, which is about to come into the profile's place.
func (r *Root) spareTaking(id, made string) error {
	mark := r.file(id, takingMark)
	if _, err := os.Lstat(mark); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	of, err := ownpath.Identity(made)
	if err == nil {
		err = durable.Replace(mark, []byte(of))
	}
	return err
}

// Chown gives the profile's directory, with everything in it, to the user as whom its browser
// is about to run. No browser may be running on it. If the directory is that user's already,
// nothing is looked at or changed. The error names what belongs to somebody else.
func (l *Lock) Chown() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	path, err := l.root.Path(l.id)
	if err == nil {
		err = l.chown(path)
	}
	if err != nil {
		return fmt.Errorf("profile %s: handing it to %v: %w", l.id, l.root.user, err)
	}
	return nil
}

func (l *Lock) chown(path string) error {
	own, to := runas.User{UID: os.Geteuid(), GID: os.Getegid()}, l.root.user
	mark := l.root.file(l.id, takingMark)
	if spared, err := os.ReadFile(mark); !errors.Is(err, fs.ErrNotExist) {
		is, unknown := ownpath.Identity(path)
		if err != nil || unknown != nil || is != string(spared) {
			return fmt.Errorf("taking it back from another user was cut short: look for files in %s that are not its own, then chown -hR %d:%d it and remove %s", path, to.UID, to.GID, mark)
		}
		if _, err := l.root.forgetTaking(l.id); err != nil {
			return err
		}
	}
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	top := os.NewFile(uintptr(dir), path)
	defer top.Close()
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch who := int(st.Uid); {
	case who == to.UID:
		return nil
	case who == own.UID:
	case !slices.Contains(l.root.owners, who):
		return fmt.Errorf("%s belongs to uid %d, which is no browser user of this launcher: chown it", path, who)
	default:
		if err := durable.Replace(mark, nil); err != nil {
			return err
		}
		if err := (&chowner{from: who, to: own, device: st.Dev, taking: true}).dir(top, path, true); err != nil {
			return err
		}
		if err := errors.Join(unix.Syncfs(dir), os.Remove(mark), durable.Sync(l.root.guard)); err != nil {
			return err
		}
	}
	if to.UID == own.UID {
		return nil
	}
	// Nobody else can enter it before all of it is given. What was given before an interruption
	// is the new user's already.
	if err := unix.Fchmod(dir, 0o700); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return (&chowner{from: own.UID, to: to, device: st.Dev}).dir(top, path, true)
}

// chowner gives what belongs to the user from to another user.
type chowner struct {
	from   int
	to     runas.User
	device uint64 // the profile's device
	// taking says that the user from may be active in the directories meanwhile. Each one is
	// taken away from it before it is read.
	taking bool
}

// dir changes the owner of an open directory and everything below it. Its path is only for
// messages.
func (c *chowner) dir(d *os.File, path string, top bool) error {
	if c.taking {
		if err := c.give(d, path); err != nil {
			return err
		}
		// After this, the former owner cannot make anything in it.
		if err := d.Chmod(0o700); err != nil {
			return err
		}
	}
	if _, err := d.Seek(0, io.SeekStart); err != nil { // it may have been read before
		return err
	}
	entries, err := d.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := c.entry(d, filepath.Join(path, e.Name()), top); err != nil {
			return err
		}
	}
	if c.taking {
		return nil
	}
	if top {
		// After a crash of the host, the directory may be its user's only if everything in it
		// is.
		if err := unix.Syncfs(int(d.Fd())); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return c.give(d, path)
}

// entry changes the owner of the entry with the path's last name in an open directory.
func (c *chowner) entry(in *os.File, path string, top bool) error {
	name := filepath.Base(path)
	fd, err := unix.Openat(int(in.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	kind := st.Mode & unix.S_IFMT
	switch who := int(st.Uid); {
	case who != c.from && (c.taking || who != c.to.UID):
		return fmt.Errorf("%s belongs to uid %d, want uid %d: if it belongs to the profile, chown -h it", path, who, c.from)
	case st.Dev != c.device:
		return fmt.Errorf("%s is on another file system than the profile: want all of it on one", path)
	case kind == unix.S_IFREG && st.Nlink > 1:
		return fmt.Errorf("%s has %d names (hard links), and who gets it under one would have it under all: put a copy in its place", path, st.Nlink)
	case kind == unix.S_IFLNK && !(top && strings.HasPrefix(name, "Singleton")):
		return fmt.Errorf("%s is a link: want files and directories only, which do not lead out of the profile", path)
	case kind != unix.S_IFREG && kind != unix.S_IFLNK && kind != unix.S_IFDIR:
		return fmt.Errorf("%s is a device, pipe or socket: remove it", path)
	case kind != unix.S_IFDIR:
		return c.give(f, path)
	}
	// It can only be opened by its name; the open directory itself is then judged.
	sub, err := unix.Openat(int(in.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	dir := os.NewFile(uintptr(sub), path)
	defer dir.Close()
	var same unix.Stat_t
	if err := unix.Fstat(sub, &same); err != nil || same.Ino != st.Ino || same.Dev != st.Dev {
		return errors.Join(fmt.Errorf("%s was replaced while its owner was changed: does somebody else use the profile?", path), err)
	}
	return c.dir(dir, path, false)
}

// give changes the owner of an open file, and not of anything to which its name may lead.
func (c *chowner) give(f *os.File, path string) error {
	if err := unix.Fchownat(int(f.Fd()), "", c.to.UID, c.to.GID, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("giving %s to uid %d: %w", path, c.to.UID, err)
	}
	return nil
}
