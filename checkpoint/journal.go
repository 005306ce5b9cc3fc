// Package checkpoint keeps the journal of a session: what the launcher saw the pages do, and
// what the task reported about itself. The journal is a file to which entries are appended, one
// JSON object a line, so that it outlives the launcher. A crash may leave an incomplete last
// line, which readers skip.
package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"leasehold/checkpoint/shape"
	"leasehold/internal/durable"
)

// Kind says what an entry is about.
type Kind string

// The kinds of entries.
const (
	KindStart      Kind = "start"            // the session began
	KindURL        Kind = "url"              // a page navigated
	KindClosed     Kind = "closed"           // a page is closed
	KindFrame      Kind = "frame"            // a frame inside a page navigated to a sensitive URL
	KindStep       Kind = "step"             // the task named the step that it is at
	KindCheckpoint Kind = "checkpoint"       // the task named a checkpoint
	KindEvent      Kind = "event"            // the task reported an event
	KindRequest    Kind = "request"          // a page sent an unsafe request
	KindAnswer     Kind = "answer"           // a site answered; see Entry.Status
	KindGetWrite   Kind = "get_write"        // a GET that may have changed something, by the sign Name
	KindGetAfter   Kind = "get_after_action" // a page asked for something by GET after the worker had acted on it; the first of each document
	KindBlocked    Kind = "blocked"          // an unsafe request of a read-only session was failed
	KindWithheld   Kind = "withheld"         // a page wanted to send an unsafe request after its worker was lost, and did not
	KindForm       Kind = "form"             // a page submitted a form, by GET or POST
	KindDownload   Kind = "download"         // a page began a download
	KindUnfinished Kind = "unfinished"       // a download was not finished when the end of its browser began; Text is its file's name
	KindDialog     Kind = "dialog"           // a page opened a dialog
	KindStorage    Kind = "storage"          // a page changed the local or session storage of its origin
	KindCookie     Kind = "cookie"           // what became of a cookie that may carry the account's identity, or what a worker did with cookies
	KindCrash      Kind = "crash"            // a page crashed
	KindConnection Kind = "connection"       // a worker's connection came or went
	KindPicture    Kind = "picture"          // a picture was stored, which Data names
	KindDenied     Kind = "denied"           // the worker sent a command that it may not send: Name, for the reason Action; it last named Text
	KindTyped      Kind = "typed"            // something was typed into a field of the kind Name, see Field; what was typed is not kept
	KindPerson     Kind = "person"           // a person took the session over, did something (Name), or handed it back
	KindEnd        Kind = "end"              // the session ended
	KindOmitted    Kind = "omitted"          // Count entries of the kind Name were left out, see Compact
)

// Websocket is the Method of a request entry that stands for messages on a websocket. There
// is one entry for each websocket that was used since the last checkpoint, and for each shape of
// its messages.
const Websocket = shape.Websocket

// Unseen is the Method of a request entry that stands for requests that pages may have sent, and that
// the launcher could not see. Its text says why not.
const Unseen = "UNSEEN"

// GraphQLQuery is the Name of a request entry whose body is the text of GraphQL queries, and of
// nothing else.
const GraphQLQuery = "graphql_query"

// Names of entries of KindPerson that are not acts: the worker waits for a person; it stops
// waiting without an answer; a person now has the session; the worker has it again.
const (
	PersonAsked      = "asked"
	PersonUnanswered = "unanswered"
	PersonTook       = "taken"
	PersonHandedBack = "handed_back"
)

// IsAct tells whether the entry is something that a person did with the pages.
func (e Entry) IsAct() bool {
	switch e.Name {
	case PersonAsked, PersonUnanswered, PersonTook, PersonHandedBack:
		return false
	}
	return e.Kind == KindPerson
}

// GetUnanswered is the Name of the entry for a GET that was not seen to be answered.
const GetUnanswered = "unanswered"

// Entry is one line of a journal. At is the time by the launcher's wall clock, and Token is the
// lease token that was valid then. JSON leaves out the fields that the kind does not use.
type Entry struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"`
	// Count is the number of equal entries that this one stands for; First is the time of the
	// first, and At that of the last. 0 means one.
	Count uint64    `json:"count,omitempty"`
	First time.Time `json:"first_at,omitzero"`
	Token uint64    `json:"lease_token"`
	Kind  Kind      `json:"kind"`

	URL    string `json:"url,omitempty"`
	Target string `json:"target_id,omitempty"`
	Method string `json:"method,omitempty"`
	Name   string `json:"name,omitempty"`
	Action string `json:"action,omitempty"`
	// Sensitive says of a step that the task declared it sensitive, and of an entry with a URL
	// that the URL was sensitive before it was redacted.
	Sensitive  bool `json:"sensitive,omitempty"`
	Safe       bool `json:"safe,omitempty"`
	Idempotent bool `json:"idempotent,omitempty"`
	// IdempotentShapes are the shapes of requests, as shape.Pattern describes them, that may be made
	// again after a checkpoint, beside those that are known as repeatable.
	IdempotentShapes []string        `json:"idempotent_shapes,omitempty"`
	Data             json.RawMessage `json:"data,omitempty"`
	Text             string          `json:"text,omitempty"`

	// ResumeFrom is set for the safe checkpoint at which a session began, since its task went on from there:
	// the step, of an earlier session, at which the task had named it.
	ResumeFrom string `json:"resume_from,omitempty"`

	// Committed says of a navigation that the page now has another document, so that the frames
	// of the former document are gone. Otherwise they may still be there.
	Committed bool `json:"committed,omitempty"`

	// Type is Chrome's type of a request (Document, XHR, Fetch, Ping, ...). Gesture says
	// that a person's or a worker's input came just before the request.
	Type    string `json:"type,omitempty"`
	Gesture bool   `json:"user_gesture,omitempty"`
	// Shape is the shape of a request, see shape.Of: of several messages on one websocket with one
	// shape, only the first is reported until the next checkpoint.
	Shape string `json:"shape,omitempty"`
	// Declared is the text by which the profile's owner declared the request harmless.
	Declared string `json:"declared,omitempty"`
	// Known is what the file of its site says of a request, site.Read or site.Write, and KnownBy is
	// the line that says so. Repeatable says of a write that doing it again is harmless.
	Known      string `json:"known,omitempty"`
	KnownBy    string `json:"known_by,omitempty"`
	Repeatable bool   `json:"repeatable,omitempty"`
	// Plain says that nothing of the request but its shape decides whether a line without conditions
	// speaks for it, see site.Plain.
	Plain bool `json:"plain,omitempty"`

	// Request is the name of an unsafe request, which its answer has, too. Names are unique in
	// a journal.
	Request string `json:"request,omitempty"`
	// Redirected says of a request that it came from a redirect that kept its method.
	Redirected bool `json:"redirected,omitempty"`
	// Anonymous says of the answer to an unsafe request that the request carried nothing by
	// which the site could know the account.
	Anonymous bool `json:"anonymous,omitempty"`
	// Status is the HTTP status of an answer. Failed is why there is none: Chrome's name of the
	// error, canceled, or AnswerUnseen. Ended says that it is nevertheless known what became of
	// the request: it never left, or its answer was kept from the page.
	Status int    `json:"status,omitempty"`
	Failed string `json:"failed,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	// Blocked says of a request that it never left the browser: a worker had it blocked, failed
	// it or answered it itself, or a policy of its page forbade it.
	Blocked bool `json:"blocked,omitempty"`
	// Page is the URL of the page whose document sent the answered request. The answer to a
	// request for a page's own document has Committed instead.
	Page string `json:"page,omitempty"`
	// Asked is the URL that was requested, if redirects led from it to URL. Returns says that
	// URL names the requested place, or one at its host, as the place to go on to.
	Asked   string `json:"asked,omitempty"`
	Returns bool   `json:"returns,omitempty"`
	// RetryAfter is how many seconds the answer tells the client to wait.
	RetryAfter int64 `json:"retry_after_seconds,omitempty"`
	// SignIn says what a page to which redirects led asks for: a password, or a code.
	SignIn string `json:"sign_in,omitempty"`

	// Person is the name of the person of an entry of KindPerson, and Principal is who they
	// are, as was proved. An entry of KindTyped has both if a person typed.
	Person    string `json:"person,omitempty"`
	Principal string `json:"principal,omitempty"`

	// Cookie is set for KindCookie.
	Cookie *CookieChange `json:"cookie,omitempty"`
}

// Journal is the open journal of one session. Its methods may be called concurrently.
type Journal struct {
	path   string
	limits Limits

	mu      sync.Mutex
	file    *os.File
	entries []Entry
	bytes   int  // of the file, or more
	torn    bool // a line was only written in part: the next one has to begin a new line
}

// Open opens the journal file at path for appending, within DefaultLimits, and creates it
// and its directory if they are missing.
func Open(path string) (*Journal, error) { return OpenWithin(path, DefaultLimits) }

// OpenWithin is Open with other limits.
func OpenWithin(path string, limits Limits) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("journal directory: %w", err)
	}
	entries, err := Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), file.Close())
	}
	// This ends a line that a crash may have left incomplete.
	if info.Size() > 0 {
		if _, err := file.WriteString("\n"); err != nil {
			return nil, errors.Join(fmt.Errorf("journal: %w", err), file.Close())
		}
	}
	return &Journal{path: path, limits: limits, file: file, entries: entries, bytes: int(info.Size()) + 1}, nil
}

func openFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return file, nil
}

// Append gives the entry the next Seq, writes it and returns it. A checkpoint is synced to
// the disk when Append returns. Entries of other kinds survive a crash of the launcher, but
// may be lost in a crash of the host. A journal that is full is compacted.
func (j *Journal) Append(e Entry) (Entry, error) { return j.AppendAfter(nil, e) }

// AppendAfter is Append. It calls first, unless that is nil, when nothing else is appended any more before
// the entry: whatever is reported because of that call comes after the entry.
func (j *Journal) AppendAfter(first func(), e Entry) (Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if first != nil {
		first()
	}
	if n := len(j.entries); n > 0 {
		e.Seq = j.entries[n-1].Seq
	}
	e.Seq++
	if e.Kind != KindCheckpoint && len(e.Data) > j.limits.Data {
		e = withoutData(e)
	}
	line, err := json.Marshal(e)
	if err != nil {
		return e, fmt.Errorf("journal entry: %w", err)
	}
	if err := j.write(append(line, '\n')); err != nil {
		return e, fmt.Errorf("journal %s: %w", j.path, err)
	}
	j.entries = append(j.entries, e)
	j.bytes += len(line) + 1
	if j.bytes > j.limits.Bytes || len(j.entries) > j.limits.Entries {
		return e, j.compact() // that syncs the checkpoint, too
	}
	if e.Kind == KindCheckpoint {
		if err := j.file.Sync(); err != nil {
			return e, fmt.Errorf("journal %s: %w", j.path, err)
		}
	}
	return e, nil
}

// write appends a line. On a full disk it uses the reserve, and continues where it stopped.
func (j *Journal) write(line []byte) error {
	if j.torn {
		line = append([]byte{'\n'}, line...)
	}
	written := 0
	err := durable.WithReserve(filepath.Dir(j.path), func() error {
		n, err := j.file.Write(line[written:])
		written += n
		return err
	})
	j.torn = err != nil && (j.torn || written > 0)
	return err
}

// compact replaces the file by a smaller one with the same name. If that fails, the journal
// goes on as it is.
func (j *Journal) compact() error {
	entries := Compact(j.entries, j.limits)
	content := Encode(entries)
	if err := durable.Replace(j.path, content); err != nil {
		return fmt.Errorf("journal %s is full, and cannot be compacted: %w", j.path, err)
	}
	file, err := openFile(j.path)
	if err != nil {
		return err
	}
	old := j.file
	j.file, j.entries, j.bytes, j.torn = file, entries, len(content), false
	if err := old.Close(); err != nil {
		return fmt.Errorf("journal %s: %w", j.path, err)
	}
	return nil
}

// Entries returns all entries of the journal, oldest first. The caller must not change them.
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

// Read returns the entries of the journal file at path. It skips lines that are not entries,
// since a crash may have left them incomplete.
func Read(path string) ([]Entry, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return Parse(b), nil
}

// Parse returns the entries in the content of a journal file. It skips lines that are not
// entries.
func Parse(b []byte) []Entry {
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

// Sum returns a hash of the entries, in hexadecimal; empty if there are none.
func Sum(entries []Entry) string {
	if len(entries) == 0 {
		return ""
	}
	sum := sha256.Sum256(Encode(entries))
	return hex.EncodeToString(sum[:])
}

// Encode returns the entries in the format of a journal file.
func Encode(entries []Entry) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, e := range entries {
		// Encoding an Entry can only fail because of Data that is not JSON, and Append refuses
		// such an Entry.
		_ = enc.Encode(e)
	}
	return b.Bytes()
}
