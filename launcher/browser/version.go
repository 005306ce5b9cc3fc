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

// installed is what is known of the binary.
type installed struct {
	mu      sync.Mutex
	file    os.FileInfo // when it was asked; nil: it was not
	version string
}

// versionTimeout bounds how long the binary may take to print its version.
const versionTimeout = 20 * time.Second

// version is that of the binary as it is now; empty if it does not say. It may be replaced while
// the launcher runs.
func (d *Driver) version(ctx context.Context) string {
	v := &d.installed
	v.mu.Lock()
	defer v.mu.Unlock()
	file, err := os.Stat(d.o.Binary)
	if err != nil {
		return "" // nothing can be started
	}
	if v.file == nil || !os.SameFile(v.file, file) || !v.file.ModTime().Equal(file.ModTime()) || v.file.Size() != file.Size() {
		ctx, cancel := context.WithTimeout(ctx, versionTimeout)
		defer cancel()
		out, err := d.o.Processes.Version(ctx, d.o.Binary)
		if err != nil {
			return ""
		}
		v.file, v.version = file, chromever.In(out)
	}
	return v.version
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
