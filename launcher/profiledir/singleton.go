package profiledir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/internal/durable"
	"leasehold/internal/procfs"
)

// Singleton is Chrome's own lock in the profile, the link SingletonLock. A Chrome that
// is killed leaves it behind, so the link alone proves nothing.
type Singleton struct {
	Present Fact `json:"present"`
	// Host and PID identify the owner, as the link names it.
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
	// SameHost is yes if Host is this host's name.
	SameHost Fact `json:"same_host"`
	// OwnerAlive is yes if PID is a browser of this profile on this host.
	OwnerAlive Fact `json:"owner_alive"`
}

func (s Singleton) owner() string { return fmt.Sprintf("%s-%d", s.Host, s.PID) }

// foreign tells whether the lock is that of a browser of which nobody here can tell whether it
// runs: it names another host, or this one has no name.
func (s Singleton) foreign() bool {
	return s.Host != "" && s.SameHost.Answer != Yes && s.OwnerAlive.Answer == Unknown
}

// Foreign is what the lock says, host-pid, if nobody on this host can tell whether its browser
// runs; otherwise it is empty.
func (s Singleton) Foreign() string {
	if !s.foreign() {
		return ""
	}
	return s.owner()
}

// ForeignLockError says that Chrome's own lock in a directory, SingletonLock, was written under
// another host's name. Chrome refuses such a directory, and the processes of that host cannot be
// seen from here. Often it is a container that was killed, and the next one has another name.
type ForeignLockError struct {
	Path string
	// Profile is the directory's profile; empty if it is none of this launcher's.
	Profile string
	// Owner is what the lock says, host-pid, and Host is the host in it.
	Owner, Host string
	// Shared says on what kind of file system the directory is, if another host may have it
	// open; empty: only the kernel of this host can.
	Shared string
}

func (e *ForeignLockError) Error() string {
	what := fmt.Sprintf("SingletonLock of %s names %s: it was written on host %q, whose processes cannot be seen from here", e.Path, e.Owner, e.Host)
	const byHand = "then move SingletonLock, SingletonSocket and SingletonCookie out of the directory by hand"
	switch {
	case e.Profile == "":
		return fmt.Sprintf("%s: close the browser there, or make sure that none has the directory; %s", what, byHand)
	case e.Shared != "":
		return fmt.Sprintf("%s, and that host may have the directory, too (%s): close the browser there, or switch that host off; %s", what, e.Shared, byHand)
	}
	return fmt.Sprintf("%s: make sure that no browser there has the profile, then approve its review: leasehold review %s --decision approve; the next start sets that lock aside", what, e.Profile)
}

// Gone tells somebody who has the kernel's lock whether the lock's browser is gone, because a
// person approved the lock with this owner.
func (e *ForeignLockError) Gone(approved string) bool {
	return approved == e.Owner && e.Shared == ""
}

// foreignLock describes the lock of a profile's directory, which is foreign.
func foreignLock(id, path string, s Singleton) *ForeignLockError {
	e := &ForeignLockError{Path: path, Profile: id, Owner: s.owner(), Host: s.Host}
	if fs := NetworkFilesystem(path); fs.Answer != No {
		e.Shared = fs.How
	}
	return e
}

// singleton is Chrome's own lock in the directory of a profile.
func (r *Root) singleton(id, path string, inUse Fact, ps []Process) Singleton {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	s := inspectSingleton(path, host, inUse, ps)
	if s.foreign() {
		s.OwnerAlive.How = foreignLock(id, path, s).Error()
	}
	return s
}

// ForeignLock returns a *ForeignLockError if Chrome's own lock in the profile's directory names
// another host, and nil if there is no such lock, or no directory that may be opened.
func (r *Root) ForeignLock(id string) error {
	path, err := r.Path(id)
	if err != nil {
		return nil //nolint:nilerr // there is none, or whoever opens it refuses it
	}
	target, err := os.Readlink(filepath.Join(path, singletonLock))
	if err != nil {
		return nil //nolint:nilerr // there is no link that a browser wrote
	}
	of, _, err := ParseSingleton(target)
	if here, unnamed := os.Hostname(); err == nil && unnamed == nil && of == here {
		return nil // mostly so, and the processes need not be looked at
	}
	ps, unseen := Processes(path)
	if s := r.singleton(id, path, inUse(ps, unseen), ps); s.foreign() {
		return foreignLock(id, path, s)
	}
	return nil
}

// Chrome's own lock is the first of these links. The others say how to talk to its owner.
const singletonLock = "SingletonLock"

var singletons = []string{"SingletonCookie", "SingletonSocket", singletonLock}

// SetAside is a lock of Chrome's that was moved out of a profile.
type SetAside struct {
	// Path is the directory in which it is now; empty: none was moved.
	Path string
	// Owner is what it says: host-pid.
	Owner string
}

// Log says what was moved where; nothing if nothing was.
func (a SetAside) Log(log zerolog.Logger) {
	if a.Path != "" {
		log.Warn().Str("owner", a.Owner).Str("kept", a.Path).Msg("the SingletonLock of another host was set aside: a person had approved the profile, and no browser here has its lock")
	}
}

// SetAsideSingleton moves Chrome's own lock out of the profile's directory if it was written on
// another host, and it is known that its browser is gone. It is kept beside the profiles. (Chrome
// itself replaces one of this host whose process is gone.)
//
// The caller has the kernel's lock, which every browser of every launcher on this kernel has as
// long as it runs. But the lock's browser may be one that no launcher started, and a person has to
// have said that there is none: approved is the owner of the lock that a person was shown and
// approved; empty if nobody did. On a file system that another host may have mounted, the kernel's
// lock proves nothing about that host, and the person's word is not enough. Without both, the error
// is a *ForeignLockError.
func (l *Lock) SetAsideSingleton(approved string) (SetAside, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return SetAside{}, err
	}
	err := l.root.ForeignLock(l.id)
	var foreign *ForeignLockError
	if !errors.As(err, &foreign) {
		return SetAside{}, err
	}
	if !foreign.Gone(approved) || l.shared == nil {
		return SetAside{}, err
	}
	done := SetAside{Owner: foreign.Owner}
	kept := filepath.Join(l.root.guard, "singletons")
	done.Path = filepath.Join(kept, l.id+archiveMark+time.Now().UTC().Format("20060102T150405.000000000Z"))
	err = os.MkdirAll(done.Path, 0o700)
	for _, name := range singletons {
		if err == nil {
			if err = os.Rename(filepath.Join(foreign.Path, name), filepath.Join(done.Path, name)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
	}
	if err == nil {
		err = errors.Join(durable.Sync(done.Path), durable.Sync(kept), durable.Sync(l.root.guard), durable.Sync(foreign.Path))
	}
	if err != nil {
		return SetAside{}, fmt.Errorf("profile %s: setting its SingletonLock aside: %w", l.id, err)
	}
	return done, nil
}

// ParseSingleton reads the target of Chrome's SingletonLock, which is host-pid. The
// host's name may contain dashes.
func ParseSingleton(target string) (host string, pid int, err error) {
	dash := strings.LastIndexByte(target, '-')
	if dash > 0 {
		pid, err = strconv.Atoi(target[dash+1:])
	}
	if dash <= 0 || err != nil || pid <= 0 || strconv.Itoa(pid) != target[dash+1:] {
		return "", 0, fmt.Errorf("singleton lock %.80q: want host-pid", target)
	}
	return target[:dash], pid, nil
}

func inspectSingleton(path, thisHost string, inUse Fact, ps []Process) Singleton {
	all := func(a Answer, how string, args ...any) Singleton {
		f := fact(a, how, args...)
		return Singleton{Present: f, SameHost: fact(Unknown, "%s", f.How), OwnerAlive: f}
	}
	target, err := os.Readlink(filepath.Join(path, singletonLock))
	if errors.Is(err, fs.ErrNotExist) {
		return all(No, "there is no SingletonLock")
	}
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return all(Unknown, "%v", err)
	}
	var s Singleton
	if err != nil {
		s = all(Unknown, "SingletonLock is not a symlink")
		s.Present.Answer = Yes
		return s
	}
	host, pid, err := ParseSingleton(target)
	if err != nil {
		s = all(Unknown, "%v", err)
		s.Present.Answer = Yes
		return s
	}
	s = Singleton{Present: fact(Yes, "SingletonLock names %s", target), Host: host, PID: pid}
	runs := slices.ContainsFunc(ps, func(p Process) bool { return p.PID == pid })
	switch {
	case thisHost == "":
		s.SameHost = fact(Unknown, "this host does not tell its name")
		s.OwnerAlive = s.SameHost
		return s
	case host != thisHost:
		s.SameHost = fact(No, "it was written on %s, this is %s", host, thisHost)
		s.OwnerAlive = fact(Unknown, "a process of %s cannot be seen from here", host)
		if runs { // the host has another name than when that browser began
			s.OwnerAlive = ownerAlive(pid, inUse, ps)
		}
		return s
	}
	s.SameHost = fact(Yes, "it was written on %s", host)
	s.OwnerAlive = ownerAlive(pid, inUse, ps)
	return s
}

func ownerAlive(pid int, inUse Fact, ps []Process) Fact {
	for _, p := range ps {
		if p.PID == pid {
			return fact(Yes, "pid %d runs on this profile", pid)
		}
	}
	p, err := procfs.Read(pid)
	switch {
	case inUse.Answer == Unknown:
		return fact(Unknown, "%s", inUse.How)
	case errors.Is(err, fs.ErrNotExist):
		return fact(No, "there is no pid %d", pid)
	case err != nil:
		return fact(Unknown, "%v", err)
	case !p.Alive():
		return fact(No, "pid %d has ended and waits for its parent", pid)
	default:
		return fact(No, "pid %d is another program now", pid)
	}
}
