// Package netlog reads the log that Chrome's network service keeps of what it does (its NetLog), for
// the requests in it that do more than read, and the messages on websockets. The log knows everything
// that left the browser, also what pages sent that were ending, workers, and Chrome's own background
// services. Everything here is a pure function of the lines that it is given.
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

	"leasehold/checkpoint/shape"
	"leasehold/internal/reads"
)

// Sent is a request that began to leave the browser, or a message on a websocket that did: its method
// is shape.Websocket, and its URL that of the websocket.
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
	start, send, ended, frame []byte
	// open are requests that do more than read, and whose sending has not begun, by the source of
	// their events.
	open map[uint64]Sent
	// sending are those whose sending has begun, and that have not ended; and those of OPTIONS.
	sending map[uint64]bool
	// sockets are the websockets that were opened, by the source of their events. The log does not
	// say when one is closed.
	sockets map[uint64]Sent
}

// Types are the numbers of the types of events that matter. They are those of one build of Chrome.
type Types struct {
	Start int `json:"url_request_start_job"`
	Send  int `json:"http_transaction_send_request"`
	Ended int `json:"request_alive"`
	Frame int `json:"websocket_sent_frame_header"`
}

// maxOpen bounds the requests that wait to be sent, those under way, and the websockets.
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
	for name, n := range map[string]*int{
		"URL_REQUEST_START_JOB": &types.Start, "HTTP_TRANSACTION_SEND_REQUEST": &types.Send, "REQUEST_ALIVE": &types.Ended,
		"WEBSOCKET_SENT_FRAME_HEADER": &types.Frame,
	} {
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
	r.open, r.sending, r.sockets = map[uint64]Sent{}, map[uint64]bool{}, map[uint64]Sent{}
	r.start, r.send, r.ended, r.frame = end(types.Start), end(types.Send), end(types.Ended), end(types.Frame)
}

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
		Opcode    int    `json:"opcode"`
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

// Line takes in a further line, and returns what begins to leave by it. Almost all lines are about
// something else, and are not parsed.
func (r *Reader) Line(line []byte) (_ Sent, ok bool) {
	if r.open == nil {
		return Sent{}, false
	}
	line = bytes.TrimRight(line, ", \r\n")
	is := func(what []byte, matters bool) bool { return matters && bytes.HasSuffix(line, what) }
	starts, sends, ends, frame := is(r.start, true), is(r.send, len(r.open) > 0), is(r.ended, r.UnderWay()), is(r.frame, len(r.sockets) > 0)
	var e event
	if !starts && !sends && !ends && !frame || json.Unmarshal(line, &e) != nil {
		return Sent{}, false
	}
	switch id := e.Source.ID; {
	case starts && e.Phase == phaseBegin:
		return r.begins(id, e)
	case ends && e.Phase == phaseEnd:
		delete(r.open, id)
		delete(r.sending, id)
	case sends:
		s, waits := r.open[id]
		delete(r.open, id)
		if waits && len(r.sending) < maxOpen {
			r.sending[id] = true
		}
		return s, waits
	case frame && (e.Params.Opcode == opcodeText || e.Params.Opcode == opcodeBinary):
		s, known := r.sockets[id]
		s.At = e.at()
		return s, known
	}
	return Sent{}, false
}

// The opcodes by which a message on a websocket begins (RFC 6455, 5.2). The others continue it, or are
// no message.
const (
	opcodeText   = 1
	opcodeBinary = 2
)

// begins takes in that a request begins. A redirect begins anew. What is too much to remember counts
// as sent.
func (r *Reader) begins(id uint64, e event) (_ Sent, left bool) {
	delete(r.open, id)
	delete(r.sending, id)
	s, acts := e.sent()
	switch {
	case s.Method == shape.Websocket:
		if len(r.sockets) >= maxOpen {
			delete(r.sockets, slices.Min(slices.Collect(maps.Keys(r.sockets)))) // the oldest
		}
		r.sockets[id] = s
	case !acts:
		if s.Method == "OPTIONS" && len(r.sending) < maxOpen { // what it asks for is sent once it is answered
			r.sending[id] = true
		}
	case len(r.open) >= maxOpen:
		return s, true
	default:
		r.open[id] = s
	}
	return Sent{}, false
}

// Open returns the requests of which the log does not say that they began to leave, nor that they
// ended. If the network service was killed, its last few events are missing: they may have left.
func (r *Reader) Open() []Sent { return slices.Collect(maps.Values(r.open)) }

// UnderWay tells whether any request that does more than read has begun and not ended: as far as the log
// says, a part of it, or what a redirect makes of it, may still leave.
func (r *Reader) UnderWay() bool { return len(r.open)+len(r.sending) > 0 }

// sent is the request that an event begins, and whether it may do more than read. Chrome asks by
// OPTIONS whether a page may send something to another site: the log does not tell its question from
// a page's own. A request that opens a websocket has the method of the messages on it.
func (e event) sent() (_ Sent, acts bool) {
	p := e.Params
	if p.Method == "" || !ofPage(p.Initiator) {
		return Sent{}, false
	}
	url, _, _ := strings.Cut(p.URL, "#")
	s := Sent{Method: p.Method, URL: url, Initiator: p.Initiator, At: e.at()}
	if strings.HasPrefix(url, "ws://") || strings.HasPrefix(url, "wss://") {
		s.Method = shape.Websocket
		return s, false
	}
	return s, !reads.Method(p.Method) && p.Method != "OPTIONS"
}

// at is the event's time. One that cannot be read is the beginning of all time.
func (e event) at() time.Duration {
	ms, err := strconv.ParseUint(e.Time, 10, 52)
	if err != nil {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
