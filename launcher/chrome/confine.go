package chrome

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"leasehold/internal/confine"
	"leasehold/internal/runas"
)

// Confinement has the kernel (Landlock) confine a browser to what it needs of the host: it
// reads its own program, libraries, fonts and the like, and writes its profile, its
// temporary directory, its crash dumps and ReadWrite. It does not listen on TCP ports,
// and reaches no process outside. With a proxy it connects to TCP ports with the proxy's
// number only. It confines the browser's processes until they end, also after an adoption.
//
// It is apart from the browser's own sandbox, which confines its renderers.
type Confinement struct {
	// ReadOnly and ReadWrite are further files and directories that the browser may
	// use, with all below them.
	ReadOnly, ReadWrite []string
}

// With returns a copy in which the browser may use further directories. It is nil if c
// is.
func (c *Confinement) With(readWrite []string) *Confinement {
	if c == nil {
		return nil
	}
	return &Confinement{ReadOnly: c.ReadOnly, ReadWrite: slices.Concat(c.ReadWrite, readWrite)}
}

// systemPrograms are where a browser's libraries and helper programs are.
var systemPrograms = []string{
	"/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec",
	"/usr/local/lib", "/usr/local/lib64", "/nix/store", "/gnu/store",
}

// systemFiles are what a browser reads of the host. Of /etc only single files are
// listed: others, such as /etc/shadow and private keys, are none of its business.
var systemFiles = []string{
	"/usr/share", "/usr/local/share", "/var/cache/fontconfig",
	// What the loader and the C library read, and how names are resolved.
	"/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/etc/timezone", "/etc/os-release", "/etc/lsb-release",
	"/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols",
	"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf",
	// Public certificates, without the private keys beside them.
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/crypto-policies",
	// Policies and preferences of the browser itself, fonts, looks, sound and drivers.
	"/etc/chromium", "/etc/chromium.d", "/etc/chromium-browser", "/etc/opt/chrome", "/etc/fonts", "/etc/gtk-2.0", "/etc/gtk-3.0", "/etc/gtk-4.0",
	"/etc/pulse", "/etc/alsa", "/etc/asound.conf", "/etc/drirc", "/etc/vulkan", "/etc/glvnd", "/etc/xdg/vulkan", "/etc/dconf", "/etc/mime.types",
	// The hardware.
	"/sys/devices", "/sys/class", "/sys/bus", "/sys/dev", "/run/udev/data",
}

// homeFiles are what a browser reads below the user's home directory: fonts, the
// certificates that the user trusts, and looks.
var homeFiles = []string{
	".fonts", ".fonts.conf", ".fontconfig", ".config/fontconfig", ".cache/fontconfig", ".local/share/fonts", ".pki/nssdb", ".drirc",
	".config/gtk-3.0", ".config/gtk-4.0", ".config/user-dirs.dirs", ".icons", ".themes", ".local/share/icons", ".local/share/themes",
	".config/pulse/cookie", ".asoundrc",
}

// devices are those that a browser uses.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/dri", "/dev/snd", "/dev/kfd"}

// scriptPrograms are added where the browser's binary is a script: what it calls, and
// where browsers usually are.
var scriptPrograms = []string{"/bin", "/usr/bin", "/usr/local/bin", "/opt/google", "/opt/chromium", "/opt/chromium.org", "/opt/brave.com", "/opt/microsoft"}

// hostPaths are the paths that every browser of the binary gets, as the user; nil: the
// launcher's own.
func (c Confinement) hostPaths(binary string, as *runas.User) ([]confine.Path, error) {
	var paths []confine.Path
	add := func(a confine.Access, names ...string) {
		for _, name := range names {
			paths = append(paths, confine.Path{Path: name, Access: a})
		}
	}
	const run = confine.ReadOnly | confine.Execute
	programs, err := programPaths(binary)
	if err != nil {
		return nil, err
	}
	add(run, programs...)
	add(run, systemPrograms...)
	add(confine.ReadOnly, systemFiles...)
	add(confine.ReadOnly, c.ReadOnly...)
	// Another user has a home directory in its temporary one.
	if home := os.Getenv("HOME"); filepath.IsAbs(home) && as == nil {
		for _, name := range homeFiles {
			add(confine.ReadOnly, filepath.Join(home, name))
		}
	}
	add(confine.Device, devices...)
	nvidia, err := filepath.Glob("/dev/nvidia*")
	if err != nil {
		return nil, err
	}
	add(confine.Device, nvidia...)
	// The browser's own sandbox writes its processes' /proc/PID/uid_map and the like.
	// Root has no such sandbox, and could write what is below /proc/sys.
	proc := confine.ReadOnly
	if uidOf(as) != 0 {
		proc |= confine.Write
	}
	add(proc, "/proc")
	// Shared memory. Names there cannot be guessed, and the directory cannot be listed.
	add(confine.Read|confine.Write|confine.Create, "/dev/shm")
	add(confine.ReadWrite, c.ReadWrite...)
	return paths, nil
}

// programPaths are the directories of the browser's own program.
func programPaths(binary string) ([]string, error) {
	path, err := filepath.EvalSymlinks(binary)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	magic := make([]byte, 2)
	if _, err := io.ReadFull(f, magic); err == nil && string(magic) == "#!" {
		return append([]string{path}, scriptPrograms...), nil
	}
	// The directory of a home, or of all programs, is not the browser's own.
	if dir := filepath.Dir(path); !within(os.Getenv("HOME"), dir) && dir != "/usr/bin" && dir != "/bin" {
		return []string{dir}, nil
	}
	return []string{path}, nil
}

// rules are what this browser may do.
func (c Confinement) rules(o Options) (confine.Rules, error) {
	paths, err := c.hostPaths(o.Binary, o.User)
	if err != nil {
		return confine.Rules{}, err
	}
	for _, own := range []string{o.ProfileDir, o.TempDir, o.DumpDir} {
		if own != "" {
			paths = append(paths, confine.Path{Path: own, Access: confine.ReadWrite | confine.Link})
		}
	}
	// The next launcher takes the pipe from the browser: see takePipe.
	// The next launcher may attach to a browser of another user by a capability.
	r := confine.Rules{Paths: paths, Attach: o.User == nil}
	display, headed := os.Getenv("DISPLAY"), !o.Headless
	if headed {
		// The library that talks to an X server gives up if its abstract socket is
		// refused, and does not try the other one.
		r.Sockets = true
		authority := os.Getenv("XAUTHORITY")
		if authority == "" && o.User == nil {
			authority = filepath.Join(os.Getenv("HOME"), ".Xauthority")
		}
		if authority != "" {
			r.Paths = append(r.Paths, confine.Path{Path: authority, Access: confine.Read})
		}
	}
	if o.Proxy != "" {
		if r.Ports, err = proxyPorts(o.Proxy); err != nil {
			return confine.Rules{}, err
		}
		if port, ok := displayPort(display); ok && headed {
			r.Ports = append(r.Ports, port)
		}
	}
	return r, nil
}

// proxyPorts are the TCP ports that a browser with this proxy needs: the proxy's own,
// and that of name servers if the proxy has a name.
func proxyPorts(proxy string) ([]uint16, error) {
	u, err := url.Parse(proxy)
	if err != nil {
		return nil, errors.New("proxy: want scheme://host:port") // without what may be secret
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return nil, errors.New("proxy: want a port from 1 to 65535")
	}
	ports := []uint16{uint16(port)}
	if strings.ContainsFunc(u.Hostname(), func(r rune) bool { return (r < '0' || r > '9') && r != '.' }) && !strings.Contains(u.Hostname(), ":") {
		ports = append(ports, 53)
	}
	return ports, nil
}

// displayPort is the TCP port of an X server that is reached over the network.
func displayPort(display string) (uint16, bool) {
	host, rest, ok := strings.Cut(display, ":")
	if !ok || host == "" || host == "unix" {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n > 65535-6000 {
		return 0, false
	}
	return uint16(6000 + n), true
}

// Exposes returns the path among those that every confined browser may use that is, or
// contains, the directory; it is empty if there is none. The kernel cannot leave out a
// part of a directory: what it allows for one, it allows for all below. With onlyChanges, only
// those paths count below which browsers may change something.
func (c Confinement) Exposes(binary, dir string, onlyChanges bool) (string, error) {
	paths, err := c.hostPaths(binary, nil)
	if err != nil {
		return "", err
	}
	dir = resolved(dir)
	for _, p := range paths {
		if onlyChanges && p.Access&confine.Write == 0 {
			continue
		}
		if p.Path != "/proc" && within(dir, resolved(p.Path)) {
			return p.Path, nil
		}
	}
	return "", nil
}

// resolved is the path without symlinks, as far as it exists.
func resolved(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolved(parent), filepath.Base(path))
	}
	return path
}

// CheckConfinement tells whether this host can confine this binary as the user (nil: this
// process's own), and what the kernel then covers. It runs the binary once, for its version.
func CheckConfinement(ctx context.Context, binary string, as *runas.User) (string, error) {
	kernel, err := confine.Probe()
	if err != nil {
		return "", err
	}
	// A confined program gets no more rights by setuid. The browser's own sandbox needs
	// them where users may not make namespaces.
	if uidOf(as) != 0 {
		if err := userNamespaces(); err != nil {
			return "", err
		}
	}
	paths, err := Confinement{}.hostPaths(binary, as)
	if err != nil {
		return "", err
	}
	if output, err := runOnce(ctx, binary, &confine.Rules{Paths: paths}, as); err != nil {
		return "", fmt.Errorf("%s does not run confined: %w; it printed %.500q", binary, err, output)
	}
	return kernel.String(), nil
}

// userNamespaces returns an error if users that are not root may not make namespaces.
func userNamespaces() error {
	for _, name := range []string{"/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/unprivileged_userns_clone"} {
		value, err := os.ReadFile(name)
		if err == nil && strings.TrimSpace(string(value)) == "0" {
			return fmt.Errorf("%s is 0: the browser's own sandbox would need its setuid program, which a confined browser cannot use", name)
		}
	}
	return nil
}
