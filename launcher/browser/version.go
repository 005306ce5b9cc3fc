package browser

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"leasehold/internal/chromever"
	"leasehold/launcher/profiledir"
)

// OlderError says that a newer Chrome wrote a profile than the one that is to open it. An older
// one throws away what it cannot read, the cookies among it, without a word.
type OlderError struct {
	Path string
	// Browser is the version of this host's Chrome, and Profile that of the profile.
	Browser, Profile string
}

func (e *OlderError) Error() string {
	return fmt.Sprintf("%s was written by Chrome %s, and this host has Chrome %s, which would destroy what it cannot read: upgrade the Chrome of this host (--chrome) to at least %s",
		e.Path, e.Profile, e.Browser, e.Profile)
}

type installed struct {
	mu   sync.Mutex
	file os.FileInfo // when it was asked; nil: it was not
	said string
}

// versionTimeout bounds how long the binary may take to print its version.
const versionTimeout = 20 * time.Second

// Version is what the binary, as it is now, prints for --version. It may be replaced while the
// launcher runs. It is asked once: that takes as long as a third of a browser's start.
func (d *Driver) Version(ctx context.Context) (string, error) {
	v := &d.installed
	v.mu.Lock()
	defer v.mu.Unlock()
	file, unseen := os.Stat(d.o.Binary)
	if unseen == nil && v.file != nil && os.SameFile(v.file, file) && v.file.ModTime().Equal(file.ModTime()) && v.file.Size() == file.Size() {
		return v.said, nil
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	said, err := d.o.Processes.Version(ctx, d.o.Binary)
	if err != nil {
		return "", err
	}
	v.file, v.said = file, said
	return said, nil
}

// Number is the version in what Version returns, such as 156.0.8078.79.
func (d *Driver) Number(ctx context.Context) (string, error) {
	said, err := d.Version(ctx)
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: want a Chrome or Chromium that runs (--chrome)", d.o.Binary, err)
	}
	number := chromever.In(said)
	if number == "" {
		return "", fmt.Errorf("%s --version printed %q: want a Chrome or Chromium (--chrome)", d.o.Binary, strings.TrimSpace(said))
	}
	return number, nil
}

// MayOpen returns an *OlderError if the directory at path was written by a newer Chrome than
// that of this host.
func (d *Driver) MayOpen(ctx context.Context, path string) error {
	last := profiledir.LastVersion(path)
	if last == "" {
		return nil
	}
	if ours, _ := d.Number(ctx); chromever.Older(ours, last) { // one that does not say it opens nothing
		return &OlderError{Path: path, Browser: ours, Profile: last}
	}
	return nil
}
