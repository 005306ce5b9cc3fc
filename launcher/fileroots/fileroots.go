// Package fileroots decides which files of the host a worker may name: those below its
// session's exchange directory and below the roots that the operator named, but never files of
// the launcher or of another session. It also makes and removes exchange directories.
//
// A path is judged by where the kernel finds it at the time of the check. Chrome opens it
// later, by the same name. Somebody who can rename files below a root may change in between
// what the name leads to. The kernel's confinement of Chrome, which judges every open, is meant
// for that; this package stops workers that only use CDP, and links that exist already.
package fileroots

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"leasehold/internal/ownpath"
	"leasehold/internal/runas"
)

// Options configure a Roots.
type Options struct {
	// Roots are the directories whose files every session may use. If there are none, it is the
	// system's temporary directory.
	Roots []string
	// Private are the launcher's own directories, which exist: nothing below them may be named,
	// even if a root contains them.
	Private []string
	// Own are further files and directories of the launcher, which need not exist. They are treated
	// likewise, but for one in which a root or the exchange directories lie: those are there on purpose.
	Own []string
	// DataDir is where the path of the exchange directories is kept. It is one of Private.
	DataDir string
	// User is the browser user, to whom the exchange directories belong; nil: browsers run as
	// the launcher's own user.
	User *runas.User
}

// Roots decides for the sessions of one launcher. Its methods may be called concurrently.
type Roots struct {
	roots   []string // absolute, without symlinks
	private []string // likewise, as far as they exist
	temp    string   // the system's temporary directory, without symlinks
	base    base
}

// Default are the roots of a launcher that is given none: its temporary directory. Under systemd that may lie in
// the unit's cache directory, and /tmp be the unit's own: then /tmp is one as well, since clients name
// directories there.
func Default() []string {
	roots := []string{os.TempDir()}
	if cache := os.Getenv("CACHE_DIRECTORY"); cache != "" && within(filepath.Clean(roots[0]), filepath.Clean(cache)) {
		roots = append(roots, "/tmp")
	}
	return roots
}

// New resolves the directories, and makes or finds the directory of the exchange directories.
// Its error names the path that is not a directory.
func New(o Options) (*Roots, error) {
	temp, err := realDir(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("the system's temporary directory: %w", err)
	}
	r := &Roots{temp: temp}
	for _, dir := range o.Private {
		real, err := realDir(dir)
		if err != nil {
			return nil, err
		}
		r.private = append(r.private, real)
	}
	named := o.Roots
	if len(named) == 0 {
		named = Default()
	}
	for _, dir := range named {
		real, err := realDir(dir)
		if err != nil {
			return nil, fmt.Errorf("--file-root %s: want an existing directory: %w", dir, err)
		}
		if own := r.privateOf(real); own != "" && len(o.Roots) > 0 {
			return nil, fmt.Errorf("--file-root %s: it lies in %s, which is the launcher's own: name another one", dir, own)
		}
		r.roots = append(r.roots, real)
	}
	identity, err := ownpath.Identity(o.DataDir)
	if err != nil {
		return nil, err
	}
	r.base = base{temp: temp, note: filepath.Join(o.DataDir, "exchange"), data: identity, user: o.User}
	if own := r.privateOf(temp); own != "" {
		// In this case the temporary directory is not suitable for exchange directories.
		r.base.temp = filepath.Dir(own)
	}
	inUse := append(slices.Clone(r.roots), r.base.temp)
	for _, path := range o.Own {
		real := resolved(path)
		if !slices.ContainsFunc(inUse, func(root string) bool { return within(root, real) }) {
			r.private = append(r.private, real)
		}
	}
	return r, r.base.open()
}

// resolved is a path without symlinks, as far as it exists.
func resolved(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return real
	}
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}

// realDir is a directory's path without symlinks.
func realDir(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%q: want an absolute path", dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(real)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s: want a directory", dir)
	}
	return real, err
}

// Dirs are the roots, without symlinks.
func (r *Roots) Dirs() []string { return r.roots }

func (r *Roots) privateOf(path string) string {
	for _, dir := range r.private {
		if within(path, dir) {
			return dir
		}
	}
	return ""
}

// within tells whether the clean path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// browserDir matches the name of a temporary directory of one of the launcher's browsers.
var browserDir = regexp.MustCompile(`^leasehold-[0-9]+$`)

// maxFiles is how many files a directory that is named for reading may have below it.
const maxFiles = 20000

// Readable returns nil if pages of the session with the exchange directory own may read a file,
// or a directory of files. The error says what is wrong, and which places are allowed.
func (r *Roots) Readable(own, path string) error {
	if err := r.spelling(own, path); err != nil {
		return err
	}
	real, mode, err := resolve(path)
	if err != nil {
		return r.refuse(own, path, fmt.Sprintf("cannot be used: %v", reason(err)))
	}
	if why := r.outside(own, real); why != "" {
		return r.refuse(own, path, why)
	}
	switch {
	case mode.IsRegular():
		return nil
	case !mode.IsDir():
		return r.refuse(own, path, "is neither a file nor a directory")
	}
	return r.wholeDir(own, path, real)
}

// wholeDir judges a directory to be read by everything below it.
func (r *Roots) wholeDir(own, path, real string) error {
	n := 0
	err := filepath.WalkDir(real, func(at string, e fs.DirEntry, err error) error {
		switch n++; {
		case err != nil:
			return fmt.Errorf("cannot be read whole: %w", reason(err))
		case n > maxFiles:
			return fmt.Errorf("has more than %d files below it", maxFiles)
		case e.Type()&fs.ModeSymlink != 0:
			to, _, err := resolve(at)
			if err == nil && r.outside(own, to) == "" {
				return nil
			}
			return fmt.Errorf("has the link %s in it, which leads out", at)
		}
		if why := r.outside(own, at); why != "" {
			return fmt.Errorf("has %s in it, which %s", at, why)
		}
		return nil
	})
	if err != nil {
		return r.refuse(own, path, err.Error())
	}
	return nil
}

// Writable returns nil if pages of the session with the exchange directory own may download
// into a directory. It need not exist yet: Chrome makes it.
func (r *Roots) Writable(own, path string) error {
	if err := r.spelling(own, path); err != nil {
		return err
	}
	existing, rest := filepath.Clean(path), ""
	var real string
	for {
		at, mode, err := resolve(existing)
		switch {
		case err == nil && !mode.IsDir():
			return r.refuse(own, path, "is not a directory")
		case err == nil:
			real = at
		case errors.Is(err, fs.ErrNotExist) && existing != "/":
			// If a link leads nowhere, something could later be made at its target.
			if _, err := os.Lstat(existing); err == nil {
				return r.refuse(own, path, "is, or is below, a link that leads nowhere")
			}
			existing, rest = filepath.Dir(existing), filepath.Join(filepath.Base(existing), rest)
			continue
		default:
			return r.refuse(own, path, fmt.Sprintf("cannot be used: %v", reason(err)))
		}
		break
	}
	if why := r.outside(own, filepath.Join(real, rest)); why != "" {
		return r.refuse(own, path, why)
	}
	if rest == "" {
		return r.noLinksOut(own, path, real)
	}
	return nil
}

// noLinksOut refuses a directory that contains a link leading outside: a download with the name
// of that link would be written to its target.
func (r *Roots) noLinksOut(own, path, real string) error {
	dir, err := os.Open(real)
	if err != nil {
		return r.refuse(own, path, fmt.Sprintf("cannot be used: %v", reason(err)))
	}
	defer func() { _ = dir.Close() }()
	entries, err := dir.ReadDir(maxFiles)
	if len(entries) == maxFiles {
		return r.refuse(own, path, fmt.Sprintf("has %d files or more", maxFiles))
	}
	if len(entries) == 0 {
		return nil // it is empty
	}
	if err != nil {
		return r.refuse(own, path, fmt.Sprintf("cannot be used: %v", reason(err)))
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		if to, _, err := resolve(filepath.Join(real, e.Name())); err != nil || r.outside(own, to) != "" {
			return r.refuse(own, path, fmt.Sprintf("has the link %q in it, which leads out", e.Name()))
		}
	}
	return nil
}

// spelling refuses paths that Chrome would not read as this package does.
func (r *Roots) spelling(own, path string) error {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return r.refuse(own, path, "is not an absolute path")
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return r.refuse(own, path, "has .. in it")
		}
	}
	return nil
}

// outside says why a path without symlinks is not one of the session's; "" if it is one.
func (r *Roots) outside(own, real string) string {
	if private := r.privateOf(real); private != "" {
		return "lies in a directory of the launcher's own"
	}
	if own != "" && within(real, own) {
		return ""
	}
	if within(real, r.base.path()) {
		return "lies in the exchange directory of another session"
	}
	if rest, below := strings.CutPrefix(real, strings.TrimSuffix(r.temp, "/")+"/"); below {
		if first, _, _ := strings.Cut(rest, "/"); browserDir.MatchString(first) {
			return "lies in the temporary directory of a browser"
		}
	}
	for _, root := range r.roots {
		if within(real, root) {
			return ""
		}
	}
	return "lies outside of them"
}

// refuse is the error for a path. It says what would be allowed.
func (r *Roots) refuse(own, path, why string) error {
	allowed := r.roots
	if own != "" {
		allowed = append([]string{own}, r.roots...)
	}
	if len(path) > 300 {
		path = strings.ToValidUTF8(path[:300], "") + "..."
	}
	return fmt.Errorf("files of a session lie below its exchange directory and the file roots (%s): %q %s", strings.Join(allowed, ", "), path, why)
}

// reason is an error without the path that it mentions.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// resolve returns where the kernel finds a path, without symlinks, and what is there. It opens
// nothing. Links in /proc, which lead elsewhere for each process, are not followed.
func resolve(path string) (real string, mode fs.FileMode, err error) {
	const flags = unix.O_PATH | unix.O_CLOEXEC
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // an old kernel, or a container that does not allow the call
		fd, err = unix.Open(path, flags, 0)
	}
	if err != nil {
		return "", 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	defer func() { err = errors.Join(err, file.Close()) }()
	fi, err := file.Stat()
	if err != nil {
		return "", 0, err
	}
	real, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", 0, err
	}
	// For a file that was removed meanwhile, the kernel returns a name that no file has.
	again, err := os.Lstat(real)
	if err == nil && !os.SameFile(fi, again) {
		err = fs.ErrNotExist
	}
	return real, fi.Mode(), err
}
