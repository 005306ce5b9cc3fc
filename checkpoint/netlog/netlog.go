// Package netlog reads the log that Chrome's network service keeps of what it does (its NetLog), for
// the requests in it that do more than read. The log knows every request that left the browser, also
// those of pages that were ending, of workers, and of Chrome's own background services. Everything
// here is a pure function of the lines that it is given.
package netlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"leasehold/internal/reads"
)

// Sent is a request that began to leave the browser, from one event of the log.
type Sent struct {
	Method, URL string // the URL has no fragment
	// Initiator is the origin of what asked for it.
	Initiator string
	// At is when it began, on the clock CLOCK_MONOTONIC.
	At time.Duration
}

// Reader reads the lines of one log, in their order. The zero value has read none.
type Reader struct {
	// The ends of the lines of the events that matter: an event's type is its last member.
	start, send, ended []byte
	// open are requests that do more than read, and whose sending has not begun, by the source of
	// their events.
	open map[uint64]Sent
}

// Types are the numbers of the types of events that matter. They are those of one build of Chrome.
type Types struct {
	Start int `json:"url_request_start_job"`
	Send  int `json:"http_transaction_send_request"`
	Ended int `json:"request_alive"`
}

// maxOpen bounds the requests that wait to be sent.
const maxOpen = 4096

// ErrUnknown says that a log does not begin as Chrome's does.
var ErrUnknown = errors.New("it does not begin with the constants of a NetLog")

// Begin takes in the first line, in which Chrome names the types of events. Who reads on from the
// middle of the log needs them: see Resume.
func (r *Reader) Begin(line []byte) (Types, error) {
	var first struct {
		Constants struct {
			Types map[string]int `json:"logEventTypes"`
		} `json:"constants"`
	}
	// The line is the beginning of an object that only ends with the log.
	if err := json.Unmarshal(append(bytes.TrimRight(line, ", \r\n"), '}'), &first); err != nil {
		return Types{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	types := Types{}
	for name, n := range map[string]*int{"URL_REQUEST_START_JOB": &types.Start, "HTTP_TRANSACTION_SEND_REQUEST": &types.Send, "REQUEST_ALIVE": &types.Ended} {
		known := false
		if *n, known = first.Constants.Types[name]; !known {
			return Types{}, fmt.Errorf("%w: events of type %s are missing", ErrUnknown, name)
		}
	}
	r.Resume(types)
	return types, nil
}

// Resume prepares for lines from the middle of a log, whose events have these types.
func (r *Reader) Resume(types Types) {
	end := func(n int) []byte { return []byte(`,"type":` + strconv.Itoa(n) + "}") }
	r.open, r.start, r.send, r.ended = map[uint64]Sent{}, end(types.Start), end(types.Send), end(types.Ended)
}

// event has the members of an event that are needed.
type event struct {
	Phase  int `json:"phase"`
	Source struct {
		ID uint64 `json:"id"`
	} `json:"source"`
	Time   string `json:"time"` // milliseconds
	Params struct {
		Method    string `json:"method"`
		URL       string `json:"url"`
		Initiator string `json:"initiator"`
	} `json:"params"`
}

// The phases of an event that has a beginning and an end.
const (
	phaseBegin = 1
	phaseEnd   = 2
)

// ofPage tells whether a page, or a worker of one, asked for a request. Chrome itself, its own pages
// and extensions have other initiators. One without a name is that of a page in a sandbox.
func ofPage(initiator string) bool {
	return strings.HasPrefix(initiator, "http://") || strings.HasPrefix(initiator, "https://") || strings.HasPrefix(initiator, "null")
}

// Line takes in a further line, and returns the request that begins to leave by it. Almost all lines
// are about something else, and are not parsed.
func (r *Reader) Line(line []byte) (_ Sent, ok bool) {
	line = bytes.TrimRight(line, ", \r\n")
	isStart := r.open != nil && bytes.HasSuffix(line, r.start)
	if !isStart && (len(r.open) == 0 || !bytes.HasSuffix(line, r.send) && !bytes.HasSuffix(line, r.ended)) {
		return Sent{}, false
	}
	var e event
	if json.Unmarshal(line, &e) != nil {
		return Sent{}, false
	}
	switch {
	case isStart && e.Phase == phaseBegin:
		delete(r.open, e.Source.ID) // a redirect begins anew
		switch s, acts := e.sent(); {
		case !acts:
		case len(r.open) >= maxOpen: // it counts as sent
			return s, true
		default:
			r.open[e.Source.ID] = s
		}
	case !isStart && e.Phase == phaseEnd && bytes.HasSuffix(line, r.ended):
		delete(r.open, e.Source.ID)
	case !isStart && bytes.HasSuffix(line, r.send):
		s, waits := r.open[e.Source.ID]
		delete(r.open, e.Source.ID)
		return s, waits
	}
	return Sent{}, false
}

// Open returns the requests of which the log does not say that they began to leave, nor that they
// ended. If the network service was killed, its last few events are missing: they may have left.
func (r *Reader) Open() []Sent { return slices.Collect(maps.Values(r.open)) }

// sent is the request that an event begins, and whether it may do more than read. Chrome asks by
// OPTIONS whether a page may send something to another site: the log does not tell its question from
// a page's own.
func (e event) sent() (_ Sent, acts bool) {
	p := e.Params
	if p.Method == "" || reads.Method(p.Method) || p.Method == "OPTIONS" || !ofPage(p.Initiator) {
		return Sent{}, false
	}
	ms, err := strconv.ParseUint(e.Time, 10, 52)
	if err != nil {
		return Sent{}, false
	}
	url, _, _ := strings.Cut(p.URL, "#")
	return Sent{Method: p.Method, URL: url, Initiator: p.Initiator, At: time.Duration(ms) * time.Millisecond}, true
}
