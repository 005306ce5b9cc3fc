// Package sessionfile keeps on disk what the next launcher has to know of a session:
// its file, journal, pipe log, and the other files beside them. It also keeps the session
// cookies that one session of a profile leaves to the next one.
package sessionfile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/netlog"
	"leasehold/checkpoint/site"
	"leasehold/internal/boottime"
	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// File is what is kept about a session. It is enough for the next launcher to resume or recover
// the session, and to tell a worker that comes too late how it ended. It does not contain the
// capability itself, only its hash. A newer launcher can read the files of an older one.
type File struct {
	SessionID      string       `json:"session_id"`
	CapabilityHash string       `json:"capability_sha256"`
	Token          lease.Token  `json:"lease_token"`
	Manifest       api.Manifest `json:"manifest"`
	AcquiredAt     time.Time    `json:"acquired_at"`
	// Begun is when that was, by the boot-time clock: the next launcher counts the session's age
	// by it, since the wall clock may have been set meanwhile. A file of an older launcher has none.
	Begun  boottime.Instant `json:"begun,omitempty"`
	SeenAt time.Time        `json:"seen_at"`
	// Proxy is the proxy that the browser was started with; nil if it was started
	// without one.
	Proxy *ProxyUse `json:"proxy,omitempty"`
	// Reason is why the session ended, once its end has begun.
	Reason string `json:"reason,omitempty"`
	// Evidence names the session's bundle, once it is stored.
	Evidence lease.Sealed `json:"evidence"`
	// Unseen says that for some time nobody watched what the pages sent.
	Unseen bool `json:"unseen,omitempty"`
	// InOrder says that the session ended in order: its evidence is stored and its
	// browser closed, so that only the release may be missing. Outcome is the task's
	// outcome, as its worker named it.
	InOrder bool   `json:"in_order,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	// CloseMethod is how the browser ended, once it has.
	CloseMethod string `json:"rung,omitempty"`
	// CookiesLost is why the browser's cookies may be incomplete since it was closed; empty:
	// they are complete.
	CookiesLost string `json:"cookies_lost,omitempty"`
	// NotStored is why what was written into the profile may not be on the disk, all of it;
	// empty: it is.
	NotStored string `json:"not_stored,omitempty"`
	// UnfinishedDownloads is how many downloads were not finished when the end of the browser
	// began.
	UnfinishedDownloads int `json:"unfinished_downloads,omitempty"`
	// JournalSum is the checkpoint.Sum of the journal at the end of the session, because the
	// journal's file has no signature of its own. A journal with another sum was changed since.
	JournalSum string `json:"journal_sha256,omitempty"`
	// Ended is how the session ended, in words. It is empty until then.
	Ended string `json:"ended,omitempty"`
	// Released says that it ended with a release rather than a recovery.
	Released bool `json:"released,omitempty"`
	// Principal and OpenerUID are the manifest's Opener. A file of an older launcher has
	// neither: its session is joined by its capability, or by an admin.
	Principal string  `json:"principal,omitempty"`
	OpenerUID *uint32 `json:"opener_uid,omitempty"`
	// OneShot and ByHand are fields of the manifest, whose JSON does not contain them.
	OneShot bool        `json:"one_shot,omitempty"`
	ByHand  *api.ByHand `json:"by_hand,omitempty"`
	// Person is the person who had the session by hand when the file was written; nil: nobody.
	Person *api.Person `json:"person,omitempty"`
	// Resume says where the task was to resume; nil if it began anew.
	Resume *api.Resume `json:"resume,omitempty"`
	// Dedicated is the address of the session's own port, if it has one.
	Dedicated string `json:"dedicated,omitempty"`
}

// BeganAt is the checkpoint from which the session's task resumed; empty if the task began anew.
func (f File) BeganAt() string {
	if f.Resume == nil {
		return ""
	}
	return f.Resume.Checkpoint
}

// EndedWith tells whether the session ended with this journal: what is on disk may have lost a part of it, or been
// changed since.
func (f File) EndedWith(journal []checkpoint.Entry) bool {
	return checkpoint.Sum(journal) == f.JournalSum
}

// ProxyUse is the proxy that a browser was started with.
type ProxyUse struct {
	ID     string `json:"proxy_id"`
	Server string `json:"server"`
	// Sum is a hash of the server and its user name, to recognize a change.
	Sum string `json:"sha256"`
}

// LostRun is what is known of a lost run whose evidence is stored.
type LostRun struct {
	File    File
	Journal []checkpoint.Entry
}

// HashCapability returns the hash of a capability. It is stored instead of the capability.
func HashCapability(capability string) string {
	sum := sha256.Sum256([]byte(capability))
	return hex.EncodeToString(sum[:])
}

// Dir is the folder with the session files of one launcher.
type Dir struct {
	path string
	key  *signed.Key
}

// NewDir returns the folder in a launcher's data directory. Its files are signed with the key.
// Load creates it.
func NewDir(dataDir string, key *signed.Key) Dir { return Dir{filepath.Join(dataDir, "sessions"), key} }

// Path is the folder itself.
func (d Dir) Path() string { return d.path }

func (d Dir) file(sessionID string) string { return filepath.Join(d.path, sessionID+".json") }

// Journal is the path of a session's journal.
func (d Dir) Journal(sessionID string) string { return filepath.Join(d.path, sessionID+".journal") }

// Output is the path of the file with the output of a session's browser.
func (d Dir) Output(sessionID string) string { return filepath.Join(d.path, sessionID+".chrome.log") }

// PipeLog is the path of the pipe log of a session's browser: what clients have open on
// its pipe.
func (d Dir) PipeLog(sessionID string) string { return filepath.Join(d.path, sessionID+".ledger") }

// Digests is the path of the digests of the account's state when the session was
// granted.
func (d Dir) Digests(sessionID string) string { return filepath.Join(d.path, sessionID+".digests") }

// Dumps is the folder of the minidumps of a session's browser.
func (d Dir) Dumps(sessionID string) string { return filepath.Join(d.path, sessionID+".dumps") }

// Share makes the folder, and lets other users pass through it without listing it: this is how
// browsers that run as another user reach the folder of their minidumps.
func (d Dir) Share() error {
	err := os.MkdirAll(d.path, 0o700)
	if err == nil {
		err = os.Chmod(d.path, 0o711)
	}
	if err != nil {
		return fmt.Errorf("sessions folder: %w", err)
	}
	return nil
}

// MakeDumps makes the folder of a session's minidumps.
func (d Dir) MakeDumps(sessionID string) (string, error) {
	dir := d.Dumps(sessionID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("folder of crash dumps: %w", err)
	}
	return dir, nil
}

// Save replaces the file of a session and syncs it.
func (d Dir) Save(f File) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("session file: %w", err)
	}
	if err := durable.Replace(d.file(f.SessionID), d.key.Sign(signed.Session, f.SessionID, b)); err != nil {
		return fmt.Errorf("session file: %w", err)
	}
	return nil
}

// Begin writes the file of a new session. The file survives a crash of the launcher
// from then on, and a crash of the host only after Sync.
func (d Dir) Begin(f File) error {
	b, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(d.file(f.SessionID), d.key.Sign(signed.Session, f.SessionID, b), 0o600)
	}
	if err != nil {
		return fmt.Errorf("session file: %w", err)
	}
	return nil
}

// Sync syncs the file that Begin wrote.
func (d Dir) Sync(sessionID string) error {
	if err := errors.Join(durable.Sync(d.file(sessionID)), durable.Sync(d.path)); err != nil {
		return fmt.Errorf("session file: %w", err)
	}
	return nil
}

// Read reads the file of a session. The error is a signed.ErrNotAuthentic for a file that
// this launcher has not written.
func (d Dir) Read(sessionID string) (File, error) {
	b, err := os.ReadFile(d.file(sessionID))
	var f File
	if err == nil {
		f, err = d.parse(sessionID, b)
	}
	if err != nil {
		return File{}, fmt.Errorf("session file of %s: %w", sessionID, err)
	}
	return f, nil
}

func (d Dir) parse(sessionID string, b []byte) (File, error) {
	content, err := d.key.Open(signed.Session, sessionID, b)
	if err != nil {
		return File{}, err
	}
	var f File
	if err := json.Unmarshal(content, &f); err != nil {
		return File{}, fmt.Errorf("%w: %w", signed.ErrNotAuthentic, err)
	}
	if f.SessionID != sessionID {
		return File{}, fmt.Errorf("%w: it is that of %q", signed.ErrNotAuthentic, f.SessionID)
	}
	return f, nil
}

// Load reads all files, oldest first. It creates the folder if it is missing. It leaves out a
// file that this launcher has not written, so that the session is not known: a profile without
// a session file goes to a person.
func (d Dir) Load() ([]File, error) {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, fmt.Errorf("sessions folder: %w", err)
	}
	names, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("sessions folder: %w", err)
	}
	var all []File
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".json") {
			continue
		}
		f, err := d.Read(strings.TrimSuffix(n.Name(), ".json"))
		if err != nil {
			continue
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b File) int { return a.AcquiredAt.Compare(b.AcquiredAt) })
	return all, nil
}

// SaveDigests keeps the digests of the account's state when the session was granted. They
// survive the launcher, not the host.
func (d Dir) SaveDigests(sessionID string, content []byte) error {
	return os.WriteFile(d.Digests(sessionID), d.key.Sign(signed.Digests, sessionID, content), 0o600)
}

// ReadDigests returns what SaveDigests kept. The error is a signed.ErrNotAuthentic for a
// file that this launcher has not written.
func (d Dir) ReadDigests(sessionID string) ([]byte, error) {
	b, err := os.ReadFile(d.Digests(sessionID))
	if err != nil {
		return nil, err
	}
	return d.key.Open(signed.Digests, sessionID, b)
}

func (d Dir) netLog(sessionID string) string { return filepath.Join(d.path, sessionID+".netlog") }

// SaveNetLog keeps the types of the events in the NetLog of a session's browser, for the launcher
// that reads it on.
func (d Dir) SaveNetLog(sessionID string, types netlog.Types) error {
	b, err := json.Marshal(types)
	if err != nil {
		return err
	}
	return os.WriteFile(d.netLog(sessionID), d.key.Sign(signed.NetLog, sessionID, b), 0o600)
}

// ReadNetLog returns what SaveNetLog kept. The error is a signed.ErrNotAuthentic for a file that
// this launcher has not written.
func (d Dir) ReadNetLog(sessionID string) (types netlog.Types, err error) {
	b, err := os.ReadFile(d.netLog(sessionID))
	if err == nil {
		b, err = d.key.Open(signed.NetLog, sessionID, b)
	}
	if err == nil {
		err = json.Unmarshal(b, &types)
	}
	return types, err
}

func (d Dir) baselines(sessionID string) string { return filepath.Join(d.path, sessionID+".baselines") }

// SaveBaselines keeps what sites answered about the account of a session while it lived.
func (d Dir) SaveBaselines(sessionID string, all []site.Baseline) error {
	b, err := json.Marshal(all)
	if err == nil {
		err = durable.Replace(d.baselines(sessionID), d.key.Sign(signed.Baselines, sessionID, b))
	}
	if err != nil {
		return fmt.Errorf("what sites answered while the session lived is not kept: %w", err)
	}
	return nil
}

// ReadBaselines returns what SaveBaselines kept; nothing, if it never did. The error is a
// signed.ErrNotAuthentic for a file that this launcher has not written.
func (d Dir) ReadBaselines(sessionID string) (all []site.Baseline, err error) {
	b, err := os.ReadFile(d.baselines(sessionID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		b, err = d.key.Open(signed.Baselines, sessionID, b)
	}
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("what sites answered while the session lived: %w", err)
	}
	return all, nil
}

// Remove deletes everything that is kept of a session.
func (d Dir) Remove(sessionID string) error {
	var errs error
	for _, path := range []string{d.file(sessionID), d.Journal(sessionID), d.Output(sessionID), d.PipeLog(sessionID), d.Digests(sessionID), d.netLog(sessionID), d.baselines(sessionID), d.stillCookies(sessionID)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = errors.Join(errs, fmt.Errorf("session file: %w", err))
		}
	}
	if err := os.RemoveAll(d.Dumps(sessionID)); err != nil {
		errs = errors.Join(errs, fmt.Errorf("session file: %w", err))
	}
	return errs
}
