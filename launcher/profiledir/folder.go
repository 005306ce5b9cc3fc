package profiledir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"leasehold/internal/foreign"
)

// A user-data-dir may have several of Chrome's own profiles, each in a folder: Default, Profile 1,
// and so on. Chrome opens the one that was used last, unless it is told which. Here a directory is
// one account, so one of them is opened, always the same, and everything that is read of the
// directory is read of that one.

// folderFile is a file in a profile's directory that names the folder that is opened. It is copied
// and moved with the directory.
const folderFile = "leasehold_chrome_profile"

const defaultFolder = "Default"

// folderName is how a folder may be called. It is on the command lines of the browser's processes,
// and must not look like another argument there.
var folderName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@()-]*( [A-Za-z0-9(][A-Za-z0-9._@()-]*)*$`)

// Folder returns the name of the folder that is opened in the user-data-dir at path: the one that
// the directory names, or that Chrome used last there. The error says that it cannot be told, and
// then nothing may be opened.
func Folder(path string) (string, error) {
	b, err := foreign.Read(path, folderFile, 256)
	if err == nil {
		return checkFolder(string(b), folderFile)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("which Chrome profile it opens: %w", err)
	}
	last, err := readNote(path, "Local State", parseLastUsed)
	if err != nil || last == "" || last == "System Profile" || last == "Guest Profile" { // it is new, or Chrome would repair it
		return defaultFolder, nil //nolint:nilerr // Chrome does the same
	}
	if fi, err := os.Lstat(filepath.Join(path, filepath.Base(last))); err != nil || !fi.IsDir() {
		return defaultFolder, nil //nolint:nilerr // it was removed
	}
	return checkFolder(last, "Local State")
}

func checkFolder(name, said string) (string, error) {
	if len(name) > 128 || !folderName.MatchString(name) {
		return "", fmt.Errorf("which Chrome profile it opens: %s names %.140q: want a folder like %q, of letters, digits, single spaces and ._@()-", said, name, "Profile 1")
	}
	return name, nil
}

// PinFolder makes the folder that is opened in the profile's directory the same for good, and
// returns it. Otherwise a person who changes the profile in Chrome's own menu would change the
// account of all later tasks.
func (l *Lock) PinFolder() (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return "", err
	}
	path, err := l.root.Path(l.id)
	if err != nil {
		return "", err
	}
	name, err := Folder(path)
	if _, unpinned := os.Lstat(filepath.Join(path, folderFile)); err == nil && errors.Is(unpinned, fs.ErrNotExist) {
		err = foreign.Replace(path, folderFile, []byte(name))
	}
	if err != nil {
		return "", fmt.Errorf("profile %s: %w", l.id, err)
	}
	return name, nil
}

// parseLastUsed reads which folder Chrome used last; empty if it does not say.
func parseLastUsed(b []byte) (string, error) {
	var v struct {
		Profile struct {
			LastUsed string `json:"last_used"`
		} `json:"profile"`
	}
	err := json.Unmarshal(b, &v)
	return v.Profile.LastUsed, err
}
