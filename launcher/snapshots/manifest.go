package snapshots

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"leasehold/lease"
)

// Format is the version of the format of manifests, of lists, and of what is stored.
const Format = 1

// Snapshot describes one snapshot of a profile.
type Snapshot struct {
	ID        string `json:"snapshot_id"`
	ProfileID string `json:"profile_id"`
	// Token is the token of the session that ended before the snapshot was made.
	Token      lease.Token `json:"lease_token"`
	SessionID  string      `json:"session_id"`
	LauncherID string      `json:"launcher_id"`
	// ChromeVersion is the version of the Chrome that wrote the profile, such as 156.0.8078.79.
	ChromeVersion string `json:"chrome_version"`
	// CreatedAt is for people, and for the age at which a snapshot is removed.
	CreatedAt time.Time `json:"created_at"`
	// Previous is the profile's snapshot before this one; empty for the first.
	Previous string `json:"previous_snapshot_id,omitempty"`
	// Files is the number of files in the snapshot, and Bytes is their size.
	Files int    `json:"files"`
	Bytes uint64 `json:"bytes"`
	// Stored is how many bytes were sent to the store for it.
	Stored uint64 `json:"stored_bytes"`
}

// Manifest is the content of a snapshot.
type Manifest struct {
	Format int `json:"format"`
	Snapshot
	// Dirs and Tree are the profile's directories and files, sorted by path.
	Dirs []string `json:"dirs"`
	Tree []File   `json:"tree"`
	// Extras are files that the launcher keeps about the profile outside its directory, by
	// name, such as the cookies that Chrome drops when it closes.
	Extras []File `json:"extras,omitempty"`
}

// File is one file of a profile.
type File struct {
	// Path is relative to the profile, with slashes. If its bytes are not valid UTF-8, it is
	// quoted (strconv.Quote), in quotation marks.
	Path string `json:"path"`
	// Executable tells whether the owner may execute the file. The other permissions are the
	// same for all files: only the owner may read and write.
	Executable bool    `json:"executable,omitempty"`
	Size       uint64  `json:"size"`
	Chunks     []Chunk `json:"chunks,omitempty"`
}

func (f File) mode() uint32 {
	if f.Executable {
		return 0o700
	}
	return 0o600
}

// Bounds of a manifest. They are far larger than any real profile.
const (
	maxManifest  = maxPlain
	maxPath      = 4096
	maxTextField = 256
)

// encode returns the manifest as it is stored.
func (m Manifest) encode() ([]byte, error) {
	raw, err := json.Marshal(m)
	if err == nil && len(raw) > maxManifest {
		err = fmt.Errorf("it has %d bytes, want at most %d: the profile has too many files", len(raw), maxManifest)
	}
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return raw, nil
}

// DecodeManifest reads a manifest and checks that it is valid: every path stays inside the
// profile, the sizes agree, and nothing occurs twice. The error is ErrDamaged, or ErrFormat for
// a manifest of a later version.
func DecodeManifest(raw []byte) (Manifest, error) {
	var m Manifest
	if err := decodeJSON(raw, &m); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	if err := m.check(); err != nil {
		return Manifest{}, fmt.Errorf("%w: manifest: %w", ErrDamaged, err)
	}
	return m, nil
}

// decodeJSON reads one JSON value of this format.
func decodeJSON(raw []byte, into any) error {
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(raw, &version); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if version.Format != Format {
		return fmt.Errorf("%w: format %d, want %d", ErrFormat, version.Format, Format)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows it", ErrDamaged)
	}
	return nil
}

func (m Manifest) check() error {
	if err := m.Snapshot.check(); err != nil {
		return err
	}
	known := map[string]bool{".": true} // directories: true; files: false
	for _, dir := range m.Dirs {
		p, err := realPath(dir)
		if err != nil {
			return err
		}
		if _, twice := known[p]; twice || !known[path.Dir(p)] {
			return fmt.Errorf("directory %.200q is there twice, or before the one that it is in", dir)
		}
		known[p] = true
	}
	var total uint64
	for _, f := range m.Tree {
		p, err := realPath(f.Path)
		if err != nil {
			return err
		}
		if _, twice := known[p]; twice || !known[path.Dir(p)] {
			return fmt.Errorf("file %.200q is there twice, or in no directory", f.Path)
		}
		known[p] = false
		if err := f.check(); err != nil {
			return err
		}
		total += f.Size
	}
	extras := map[string]bool{}
	for _, f := range m.Extras {
		if !isExtra(f.Path) || extras[f.Path] || f.Executable {
			return fmt.Errorf("extra %.200q: want a name of a-z and - that is there once", f.Path)
		}
		extras[f.Path] = true
		if err := f.check(); err != nil {
			return err
		}
	}
	if m.Files != len(m.Tree) || m.Bytes != total {
		return fmt.Errorf("%d files of %d bytes, want %d of %d", len(m.Tree), total, m.Files, m.Bytes)
	}
	return nil
}

// check checks a file's size against its chunks.
func (f File) check() error {
	var size uint64
	for _, c := range f.Chunks {
		size += uint64(c.Size)
	}
	if size != f.Size || f.Size > math.MaxInt64 {
		return fmt.Errorf("file %.200q has chunks of %d bytes, want %d", f.Path, size, f.Size)
	}
	return nil
}

// check checks the fields that name other things.
func (s Snapshot) check() error {
	if err := lease.CheckProfileID(s.ProfileID); err != nil {
		return err
	}
	if !isSnapshotID(s.ID) || s.Previous != "" && !isSnapshotID(s.Previous) {
		return fmt.Errorf("snapshot %.80q after %.80q: want ids of snapshots", s.ID, s.Previous)
	}
	for _, text := range []string{s.SessionID, s.LauncherID, s.ChromeVersion} {
		if len(text) > maxTextField {
			return fmt.Errorf("%.80q is longer than %d bytes", text, maxTextField)
		}
	}
	if s.Files < 0 {
		return fmt.Errorf("%d files", s.Files)
	}
	return nil
}

// idPrefix begins the id of a snapshot.
const idPrefix = "snap"

func isSnapshotID(text string) bool {
	rest, ok := strings.CutPrefix(text, idPrefix+"_")
	return ok && len(rest) > 0 && len(rest) <= 40 && strings.Trim(rest, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func isExtra(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-") == ""
}

// pathText is a path as it is written in a manifest. JSON cannot hold bytes that are not UTF-8,
// but file names can.
func pathText(p string) string {
	if utf8.ValidString(p) && !strings.HasPrefix(p, `"`) {
		return p
	}
	return strconv.Quote(p)
}

// realPath is the path of a pathText. The error is for one that is not relative, leads outside,
// or could have been written in another way.
func realPath(text string) (string, error) {
	p := text
	if strings.HasPrefix(text, `"`) {
		var err error
		if p, err = strconv.Unquote(text); err != nil {
			return "", fmt.Errorf("path %.200q: %w", text, err)
		}
	}
	if p == "" || p == "." || len(p) > maxPath || path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../") ||
		strings.ContainsRune(p, 0) || pathText(p) != text {
		return "", fmt.Errorf("path %.200q: want one inside of the profile, in its shortest form", text)
	}
	return p, nil
}
