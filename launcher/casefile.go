package launcher

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

	"leasehold/internal/durable"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// caseFile is what is kept on disk of a session: enough for the next launcher to
// recover it, and to tell a worker that comes late how it ended. The capability
// itself is not in it.
type caseFile struct {
	SessionID      string       `json:"session_id"`
	CapabilityHash string       `json:"capability_sha256"`
	Token          lease.Token  `json:"lease_token"`
	Manifest       api.Manifest `json:"manifest"`
	AcquiredAt     time.Time    `json:"acquired_at"`
	SeenAt         time.Time    `json:"seen_at"`
	// Proxy is what the browser was started with, if it was with one.
	Proxy *proxyUse `json:"proxy,omitempty"`
	// Reason is why the session ends, once it does.
	Reason string `json:"reason,omitempty"`
	// Evidence names the bundle, once one is stored.
	Evidence lease.Sealed `json:"evidence"`
	// Unseen says that there was a time during which nobody watched what the
	// pages sent.
	Unseen bool `json:"unseen,omitempty"`
	// InOrder says that the evidence is stored and the browser closed as the
	// worker wished: only the release may be missing. Outcome is the worker's.
	InOrder bool   `json:"in_order,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	// Rung is how the browser ended, once it did.
	Rung  string `json:"rung,omitempty"`
	Ended string `json:"ended,omitempty"`
	// OneShot is the manifest's, which does not say it in JSON.
	OneShot bool `json:"one_shot,omitempty"`
	// ByHand is the manifest's too.
	ByHand *api.ByHand `json:"by_hand,omitempty"`
	// Resume is what a resumed task was told.
	Resume *api.Resume `json:"resume,omitempty"`
	// Dedicated is the address of the session's own port, if it has one.
	Dedicated string `json:"dedicated,omitempty"`
}

func hashCapability(capability string) string {
	sum := sha256.Sum256([]byte(capability))
	return hex.EncodeToString(sum[:])
}

// cases is the folder of case files.
type cases struct{ dir string }

func sessionsDir(dataDir string) string { return filepath.Join(dataDir, "sessions") }

// keptCases is how many files of sessions that ended are kept.
const keptCases = 2000

func (c cases) path(sessionID string) string { return filepath.Join(c.dir, sessionID+".json") }

func (c cases) journal(sessionID string) string { return filepath.Join(c.dir, sessionID+".journal") }

// save replaces the file of a session.
func (c cases) save(f caseFile) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("session file: %w", err)
	}
	if err := durable.Replace(c.path(f.SessionID), b); err != nil {
		return fmt.Errorf("session file: %w", err)
	}
	return nil
}

// begin writes the file of a new session, which survives the launcher then, and the
// host after sync.
func (c cases) begin(f caseFile) error {
	b, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(c.path(f.SessionID), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("session file: %w", err)
	}
	return nil
}

// sync puts the file of a session that was begun on disk.
func (c cases) sync(sessionID string) error {
	if err := errors.Join(durable.Sync(c.path(sessionID)), durable.Sync(c.dir)); err != nil {
		return fmt.Errorf("session file: %w", err)
	}
	return nil
}

// one reads the file of a session.
func (c cases) one(sessionID string) (caseFile, error) {
	var f caseFile
	b, err := os.ReadFile(c.path(sessionID))
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err == nil && f.SessionID != sessionID {
		err = fmt.Errorf("it is that of %q", f.SessionID)
	}
	if err != nil {
		return caseFile{}, fmt.Errorf("session file of %s: %w", sessionID, err)
	}
	return f, nil
}

// load reads all files, oldest first.
func (c cases) load() ([]caseFile, error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("sessions folder: %w", err)
	}
	names, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, fmt.Errorf("sessions folder: %w", err)
	}
	var all []caseFile
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".json") {
			continue
		}
		var f caseFile
		b, err := os.ReadFile(filepath.Join(c.dir, n.Name()))
		if err != nil || json.Unmarshal(b, &f) != nil || c.path(f.SessionID) != filepath.Join(c.dir, n.Name()) {
			continue // not ours, or unreadable: recovery goes on without it, to a person
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b caseFile) int { return a.AcquiredAt.Compare(b.AcquiredAt) })
	return all, nil
}

// output is what the session's browser printed.
func (c cases) output(sessionID string) string { return filepath.Join(c.dir, sessionID+".chrome.log") }

// ledger says what is open on the pipe of the session's browser.
func (c cases) ledger(sessionID string) string { return filepath.Join(c.dir, sessionID+".ledger") }

// digests are those of the account's state at the session's grant.
func (c cases) digests(sessionID string) string {
	return filepath.Join(c.dir, sessionID+".digests")
}

// remove deletes everything that is kept of a session.
func (c cases) remove(sessionID string) error {
	var errs error
	for _, path := range []string{c.path(sessionID), c.journal(sessionID), c.output(sessionID), c.ledger(sessionID), c.digests(sessionID)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = errors.Join(errs, fmt.Errorf("session file: %w", err))
		}
	}
	if err := os.RemoveAll(c.dumps(sessionID)); err != nil {
		errs = errors.Join(errs, fmt.Errorf("session file: %w", err))
	}
	return errs
}

// remember keeps what is to be known of a session that is over, and forgets the
// oldest ones where there are too many.
func (l *Launcher) remember(f caseFile) error {
	err := l.cases.save(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[f.SessionID] = f
	l.hashes[f.CapabilityHash] = f.SessionID
	if len(l.ended) <= keptCases {
		return err
	}
	var oldest []caseFile
	for _, e := range l.ended {
		if e.Ended != "" {
			oldest = append(oldest, e)
		}
	}
	slices.SortFunc(oldest, func(a, b caseFile) int { return a.AcquiredAt.Compare(b.AcquiredAt) })
	for _, e := range oldest[:min(len(oldest), keptCases/10)] {
		if running, ok, err := l.o.Root.Running(e.Manifest.ProfileID); err != nil || ok && running.SessionID == e.SessionID {
			continue // its files are those of a browser that may live
		}
		delete(l.ended, e.SessionID)
		delete(l.hashes, e.CapabilityHash)
		delete(l.late, e.SessionID)
		err = errors.Join(err, l.cases.remove(e.SessionID))
	}
	return err
}
