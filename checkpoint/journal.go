// Package checkpoint keeps a session's journal: what the launcher saw the pages
// do and what the task said of itself. It is an append-only file beside nothing
// else, one JSON entry a line, so that it outlives the launcher; a torn last line
// is what a crash leaves and is passed over.
package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Kind is what an entry is about.
type Kind string

// The kinds of entries.
const (
	KindStart      Kind = "start"      // the session began
	KindURL        Kind = "url"        // a page went somewhere
	KindFrame      Kind = "frame"      // a frame inside a page went to a sensitive place
	KindStep       Kind = "step"       // the task named what it does
	KindCheckpoint Kind = "checkpoint" // the task named a point
	KindEvent      Kind = "event"      // the task reported something
	KindRequest    Kind = "request"    // a page sent something unsafe
	KindForm       Kind = "form"       // a page submitted a form, by GET or POST
	KindDownload   Kind = "download"   // a page began a download
	KindDialog     Kind = "dialog"     // a page opened a dialog
	KindStorage    Kind = "storage"    // a page changed what its origin stores: local or session storage
	KindCrash      Kind = "crash"      // a page crashed
	KindConnection Kind = "connection" // a worker's connection came or went
	KindPicture    Kind = "picture"    // a picture was stored; Data names it
	KindEnd        Kind = "end"        // the session is over
)

// Websocket is the Method of a request entry that stands for messages on a
// websocket: one entry for each that was used since the last checkpoint.
const Websocket = "WEBSOCKET"

// Unseen is the Method of a request entry that stands for what a page may have sent
// at its end, which nobody could see.
const Unseen = "UNSEEN"

// LinkPing is the Name of a request that tells of a link that was followed
// (<a ping>).
const LinkPing = "link_ping"

// Entry is one line of a journal. At is the launcher's wall clock; Token is the
// lease token that was valid. Fields that the kind does not use are left out.
type Entry struct {
	Seq   uint64    `json:"seq"`
	At    time.Time `json:"at"`
	Token uint64    `json:"lease_token"`
	Kind  Kind      `json:"kind"`

	URL    string `json:"url,omitempty"`
	Target string `json:"target_id,omitempty"`
	Method string `json:"method,omitempty"`
	Name   string `json:"name,omitempty"`
	Action string `json:"action,omitempty"`
	// Sensitive is what a step says of itself, and of an entry with a URL that
	// its URL is sensitive, as it was before it was redacted.
	Sensitive  bool            `json:"sensitive,omitempty"`
	Safe       bool            `json:"safe,omitempty"`
	Idempotent bool            `json:"idempotent,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
	Text       string          `json:"text,omitempty"`

	// Committed says of a page that went somewhere that it is another document now:
	// what frames it had are gone. Without it they may still be there.
	Committed bool `json:"committed,omitempty"`

	// Of a request: Chrome's type of it (Document, XHR, Fetch, Ping, ...), and
	// whether a person's or a worker's input was just before it.
	Type    string `json:"type,omitempty"`
	Gesture bool   `json:"user_gesture,omitempty"`
	// Requests of one Group are the same, to the byte, from the same document;
	// Repeat is one more than how many of them had been answered with success
	// before. Unprompted says that this one, and the first of its group, came
	// before anybody had done anything on the document, or on the one that led to it.
	Group      string `json:"group,omitempty"`
	Repeat     int    `json:"repeat,omitempty"`
	Unprompted bool   `json:"unprompted,omitempty"`
	// Declared is the text by which the profile's owner declares it harmless.
	Declared string `json:"declared,omitempty"`
}

// Journal is open for one session. Its methods may be called concurrently.
type Journal struct {
	path string

	mu      sync.Mutex
	file    *os.File
	entries []Entry
}

// Open creates the journal file, or goes on with the one that is there.
func Open(path string) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("journal directory: %w", err)
	}
	entries, err := Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	// Ends a line that a crash tore.
	if len(entries) > 0 {
		if _, err := file.WriteString("\n"); err != nil {
			return nil, errors.Join(fmt.Errorf("journal: %w", err), file.Close())
		}
	}
	return &Journal{path: path, file: file, entries: entries}, nil
}

// Append numbers the entry and writes it. A checkpoint is on disk when Append
// returns; other kinds survive the launcher, not the host.
func (j *Journal) Append(e Entry) (Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.entries); n > 0 {
		e.Seq = j.entries[n-1].Seq
	}
	e.Seq++
	line, err := json.Marshal(e)
	if err != nil {
		return e, fmt.Errorf("journal entry: %w", err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return e, fmt.Errorf("journal %s: %w", j.path, err)
	}
	j.entries = append(j.entries, e)
	if e.Kind == KindCheckpoint {
		if err := j.file.Sync(); err != nil {
			return e, fmt.Errorf("journal %s: %w", j.path, err)
		}
	}
	return e, nil
}

// Entries returns what was appended, oldest first.
func (j *Journal) Entries() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.entries[:len(j.entries):len(j.entries)]
}

// Close closes the file. The entries stay readable.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("journal %s: %w", j.path, err)
	}
	return nil
}

// Read returns the entries of a journal file. Lines that are no entry are passed
// over: a crash may have torn them.
func Read(path string) ([]Entry, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return parse(b), nil
}

func parse(b []byte) []Entry {
	var entries []Entry
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, len(b)+1)
	for lines.Scan() {
		var e Entry
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Kind != "" {
			entries = append(entries, e)
		}
	}
	return entries
}

// Encode writes entries as a journal file has them.
func Encode(entries []Entry) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, e := range entries {
		// An Entry has nothing that cannot be written as JSON but a Data
		// that is no JSON, and Append refuses that.
		_ = enc.Encode(e)
	}
	return b.Bytes()
}
