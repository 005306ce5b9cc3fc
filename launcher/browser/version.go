package browser

import (
	"context"
	"fmt"
	"os"
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

// version is the number in that; empty if the binary does not say.
func (d *Driver) version(ctx context.Context) string {
	said, err := d.Version(ctx)
	if err != nil {
		return "" // nothing can be started
	}
	return chromever.In(said)
}

// MayOpen returns an *OlderError if the directory at path was written by a newer Chrome than
// that of this host.
func (d *Driver) MayOpen(ctx context.Context, path string) error {
	last := profiledir.LastVersion(path)
	if last == "" {
		return nil
	}
	if ours := d.version(ctx); chromever.Older(ours, last) {
		return &OlderError{Path: path, Browser: ours, Profile: last}
	}
	return nil
}
