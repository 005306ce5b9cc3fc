// Package runas finds a user of this host as whom programs are to be started, tells whether
// this process may do that, and makes their environment.
package runas

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// User is a user as whom programs are started, with one group and no supplementary ones.
type User struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Name is the user's; it is empty for one that only has a number.
	Name string `json:"name,omitempty"`
}

// String names the user with its numbers.
func (u User) String() string {
	if u.Name == "" {
		return fmt.Sprintf("uid %d, gid %d", u.UID, u.GID)
	}
	return fmt.Sprintf("%s (uid %d, gid %d)", u.Name, u.UID, u.GID)
}

// Find returns the user with a name, a uid, or UID:GID. If both numbers are given, the host
// need not know the user. It refuses root, root's group, and the user as whom this process
// runs: a program of one of these would not be separated from this process.
func Find(text string) (User, error) {
	u, err := find(text)
	switch {
	case err != nil:
		return User{}, err
	case u.UID == 0:
		return User{}, fmt.Errorf("%s is uid 0, which may do everything: want a user that nothing else runs as (useradd --system)", text)
	case u.UID == os.Getuid() || u.UID == os.Geteuid():
		return User{}, fmt.Errorf("%s is uid %d, as which the sidecar runs itself: want a user that nothing else runs as (useradd --system)", text, u.UID)
	case u.GID == 0:
		return User{}, fmt.Errorf("%s has gid 0, root's group: want a user with a group of its own (useradd --system --user-group)", text)
	}
	return u, nil
}

func find(text string) (User, error) {
	first, second, both := strings.Cut(text, ":")
	if first == "" || first[0] < '0' || first[0] > '9' {
		known, err := user.Lookup(text)
		if err != nil {
			return User{}, fmt.Errorf("there is no user %q: make one (useradd --system), or give UID:GID", text)
		}
		return ofHost(known)
	}
	uid, err := number(first)
	if err != nil {
		return User{}, fmt.Errorf("%q: want a user's name, or uid[:gid] in numbers: %w", text, err)
	}
	if both {
		gid, err := number(second)
		if err != nil {
			return User{}, fmt.Errorf("%q: want a user's name, or uid[:gid] in numbers: %w", text, err)
		}
		u := User{UID: uid, GID: gid}
		if known, err := user.LookupId(first); err == nil {
			u.Name = known.Username
		}
		return u, nil
	}
	known, err := user.LookupId(first)
	if err != nil {
		return User{}, fmt.Errorf("there is no user with uid %d: make one (useradd --system), or give its group too, as %d:GID", uid, uid)
	}
	return ofHost(known)
}

func ofHost(known *user.User) (User, error) {
	uid, err := number(known.Uid)
	gid, groupErr := number(known.Gid)
	return User{UID: uid, GID: gid, Name: known.Username}, errors.Join(err, groupErr)
}

// number reads an id. The greatest number is not an id: to the kernel it means "leave it".
func number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err == nil && n == math.MaxUint32 {
		err = errors.New("it is no id")
	}
	return int(n), err
}

// capabilities are those that a process needs to run programs as another user, and to look
// after them and their files.
var capabilities = []struct {
	bit  uint
	name string
}{
	{unix.CAP_SETUID, "CAP_SETUID"}, {unix.CAP_SETGID, "CAP_SETGID"}, // become that user
	{unix.CAP_CHOWN, "CAP_CHOWN"}, {unix.CAP_FOWNER, "CAP_FOWNER"}, {unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"}, // its files
	{unix.CAP_KILL, "CAP_KILL"}, {unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE"}, // its processes, and their pipes
}

// Check returns an error that names the capabilities that this process would need to run
// programs as other users and to look after them, and does not have.
func Check() error {
	missing, err := missing()
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("to run programs as another user the sidecar has to be root, or to have %s too: it is uid %d without that", strings.Join(missing, ", "), os.Geteuid())
	}
	return err
}

// missing returns the names of the capabilities that this process does not have.
func missing() ([]string, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil, fmt.Errorf("capabilities of this process: %w", err)
	}
	var missing []string
	for _, c := range capabilities {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			missing = append(missing, c.name)
		}
	}
	return missing, nil
}

// Own gives the user a directory that this process has made. It must lie where nobody else
// can replace it.
func (u User) Own(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Fchown(fd, u.UID, u.GID), unix.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("giving %s to %v: %w", dir, u, err)
	}
	return nil
}

// kept are the variables of this process's environment that a program of another user gets:
// what it needs to find programs, libraries, a display and the network, and to speak the user's
// language. Others may be secret, or name what belongs to this process's user.
var (
	kept = []string{
		"PATH", "LANG", "LANGUAGE", "TZ", "TZDIR", "LD_LIBRARY_PATH",
		"DISPLAY", "XAUTHORITY", "GDK_BACKEND", "GDK_SCALE", "XCURSOR_SIZE", "XCURSOR_THEME", "FONTCONFIG_FILE", "FONTCONFIG_PATH",
		"SSL_CERT_FILE", "SSL_CERT_DIR",
		"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
	}
	keptPrefixes = []string{"LC_", "CHROME_", "LIBGL_", "MESA_", "VK_", "__GL", "LIBVA_", "NVIDIA_", "EGL_"}
)

// Environment returns the environment of a program of this user. home is its home directory,
// which the variables for configuration, caches and the like follow.
func (u User) Environment(environ []string, home string) []string {
	name := u.Name
	if name == "" {
		name = strconv.Itoa(u.UID)
	}
	env := []string{"HOME=" + home, "USER=" + name, "LOGNAME=" + name}
	for _, one := range environ {
		name, _, _ := strings.Cut(one, "=")
		if slices.Contains(kept, name) || slices.ContainsFunc(keptPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			env = append(env, one)
		}
	}
	return env
}
