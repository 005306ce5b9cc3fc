package profiledir

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"leasehold/internal/durable"
	"leasehold/internal/foreign"
	"leasehold/internal/signed"
)

// A single file can be exchanged by hand, too, for one from a backup, and the directory's mark
// stays. So when a browser has ended, a guard file says what the files were like that have the
// account's state. It is removed before the next browser is started: only browsers change them.

// accountFiles are patterns of the files that have the account's state, in the folder that is opened.
var accountFiles = append([]string{"Preferences", "Login Data", "Local Storage/leveldb/*", "IndexedDB/*.leveldb/*"}, cookieFiles...)

// leftFile is what a file was like. The same inode with the same time of its last change has the
// same content; otherwise the content is compared. The files of a LevelDB are never rewritten, so
// of these the size is enough.
type leftFile struct {
	Size    int64  `json:"size"`
	Inode   uint64 `json:"inode"`
	Changed int64  `json:"changed"`
	SHA256  string `json:"sha256,omitempty"`
}

// noteLeft notes what the browser that has ended left. What cannot be noted, on a full disk for
// example, is not compared.
func (r *Root) noteLeft(id string) error {
	left, err := r.leftNow(id, nil)
	var b []byte
	if err == nil {
		b, err = json.Marshal(left)
	}
	if err == nil {
		err = durable.Replace(r.file(id, string(signed.Left)), r.key.Sign(signed.Left, id, append(b, '\n')))
	}
	if err != nil {
		return r.forgetLeft(id)
	}
	return nil
}

// forgetLeft has the files believed as they are.
func (r *Root) forgetLeft(id string) error {
	err := os.Remove(r.file(id, string(signed.Left)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("what was left in %s: %w", id, err)
	}
	return nil
}

// Opening has to be called before a browser is started on the profile.
func (l *Lock) Opening() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return errors.Join(l.root.forgetLeft(l.id), l.removeNote(signed.Aside))
}

// changed says which file is not as the last browser left it; empty if none is, if a browser runs,
// or if nothing is known of that.
func (r *Root) changed(id string) (why string, err error) {
	path := r.file(id, string(signed.Left))
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("what was left in %s: %w", id, err)
	}
	if _, err := os.Lstat(r.file(id, "browser")); !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var was map[string]leftFile
	content, err := r.key.Open(signed.Left, id, b)
	if err == nil {
		err = json.Unmarshal(content, &was)
	}
	if err != nil {
		return "", &DamagedError{Profile: id, Path: path, Cause: err}
	}
	now, err := r.leftNow(id, was)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if n, is := now[name]; !is || n.Size != was[name].Size || n.SHA256 != was[name].SHA256 {
			return fmt.Sprintf("%s is not as the last browser left it: something else wrote, removed or replaced it", name), nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if _, is := was[name]; !is {
			return fmt.Sprintf("%s was not there when the last browser had ended: something else put it there", name), nil
		}
	}
	return "", nil
}

// leftNow is what the files are like now. Those that were not changed since known have the content
// that they had then, and are not read.
func (r *Root) leftNow(id string, known map[string]leftFile) (map[string]leftFile, error) {
	path, err := r.Path(id)
	if errors.Is(err, ErrNoProfile) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return accountIn(path, known, true)
}

// accountIn is what the account's files in a user-data-dir are like; without their content, it is enough to
// tell whether one was written between two looks.
func accountIn(path string, known map[string]leftFile, content bool) (map[string]leftFile, error) {
	dir, err := foreign.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	left := map[string]leftFile{}
	folder, err := Folder(path)
	if err != nil {
		return nil, err
	}
	for _, pattern := range accountFiles {
		names, err := fs.Glob(dir.FS(), folder+"/"+pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			fi, err := dir.Lstat(name)
			if err != nil {
				return nil, err
			}
			st := fi.Sys().(*syscall.Stat_t) //nolint:forcetypeassert // Linux
			f := leftFile{Size: fi.Size(), Inode: st.Ino, Changed: st.Ctim.Nano()}
			was, is := known[name]
			switch {
			case !content || strings.HasSuffix(pattern, "*"):
			case is && was.Size == f.Size && was.Inode == f.Inode && was.Changed == f.Changed:
				f.SHA256 = was.SHA256
			default:
				b, err := foreign.Read(path, name, maxCookies)
				if err != nil {
					return nil, err
				}
				sum := sha256.Sum256(b)
				f.SHA256 = hex.EncodeToString(sum[:])
			}
			left[name] = f
		}
	}
	return left, nil
}
