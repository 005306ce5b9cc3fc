package profiledir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"leasehold/internal/cookiedb"
	"leasehold/internal/durable"
	"leasehold/internal/foreign"
)

// NotStoredError says that what a browser wrote into a profile may not be on the disk, all of
// it. Chrome itself says nothing of that: it ends in order on a full disk, too.
type NotStoredError struct {
	Profile string
	Why     string
}

func (e *NotStoredError) Error() string {
	return fmt.Sprintf("profile %s: what was written last may not be on the disk: %s", e.Profile, e.Why)
}

// leastRoom is how much space a disk has to have left. With less, Chrome may have failed to
// write something.
const leastRoom = 1 << 20

// Store returns when everything that was written into the profile's directory would survive a
// power cut, and the directory has a new mark. The error is a *NotStoredError if that cannot be had,
// if the disk is full, or if it is not the directory that was there; other errors are those of
// Path.
func (r *Root) Store(id string) error {
	path, err := r.Path(id)
	if err != nil {
		return err
	}
	if why := r.exchanged(id); why != "" {
		return errors.Join(&NotStoredError{id, why}, r.disbelieveMark(id, why))
	}
	why, err := r.Replaced(id)
	if err == nil && why != "" {
		return &NotStoredError{id, why}
	}
	noted, err := r.renewMark(id, path)
	if err == nil {
		err = durable.SyncAll(path)
	}
	if err == nil {
		err = noted()
	}
	if err != nil {
		return &NotStoredError{id, err.Error()}
	}
	if why := r.Full(id); why != "" {
		return &NotStoredError{id, why}
	}
	return nil
}

// Full says why a browser may be unable to write to the disk of the profile; empty: it can.
func (r *Root) Full(id string) (why string) {
	path, err := r.Path(id)
	var free durable.Free
	if err == nil {
		free, err = durable.FreeSpace(path)
	}
	if err != nil {
		return err.Error()
	}
	left := free.Bytes
	if r.user.UID == 0 { // it may use what is kept for root
		left = free.ToRoot
	}
	switch {
	case left < leastRoom:
		return fmt.Sprintf("the disk is full: it has %d bytes left", left)
	case free.Files == 0:
		return "the disk is full: it has no inodes left"
	}
	return ""
}

// cookieFiles are the names that the cookie database may have in the folder that is opened. Some
// versions of Chrome, and Chrome on other systems, use the second.
var cookieFiles = []string{"Cookies", "Network/Cookies"}

// maxCookies bounds how much of a cookie database is read.
const maxCookies = 256 << 20

// Cookies reads the persistent cookies that Chrome left in the profile. Nobody may use the
// profile meanwhile.
func (r *Root) Cookies(id string) ([]cookiedb.Cookie, error) {
	path, err := r.Path(id)
	if err != nil {
		return nil, err
	}
	folder, err := Folder(path)
	if err != nil {
		return nil, err
	}
	for _, database := range cookieFiles {
		name := filepath.Join(folder, database)
		file, err := foreign.Read(path, name, maxCookies)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, log := range []string{"-wal", "-journal"} { // changes that the file does not have, or has to lose
			if fi, err := os.Lstat(filepath.Join(path, name+log)); err == nil && fi.Size() > 0 {
				return nil, fmt.Errorf("%s%s was left behind", name, log)
			}
		}
		cookies, err := cookiedb.Read(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return cookies, nil
	}
	return nil, nil
}
