package monitor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/checkpoint/netlog"
	"leasehold/internal/boottime"
	"leasehold/internal/reads"
	"leasehold/launcher/recovery/findings"
)

// unreported compares what the network service sent, requests and messages on websockets, with what
// pages reported that they send. What a page sends while it ends, what a service of Chrome sends for
// it, and what a worker sends in its last moment is reported by no page. Its methods may be called
// concurrently.
type unreported struct {
	mu sync.Mutex
	// begins is the monotonic time from which on what is sent belongs to the present session.
	begins  time.Duration
	tallies map[string]*tally // by method and URL
	many    bool              // more than maxKnown were reported by no page
	// known are the sites that were sent something by which a site knows an account.
	known map[string]bool
	found chan struct{} // has room for one: something was sent that no page has reported
	// underWay says that the network service has begun a request that does more than read, and not ended it.
	underWay atomic.Bool
}

// tally compares the requests with one method and URL.
type tally struct {
	// left is how many pages reported that left the browser, less those that the network service sent.
	left int
	// told is how many of these are in the journal as reported by no page. The last of them was sent at
	// toldAt, by the monotonic clock: what a page sends some time later is none of them.
	told   int
	toldAt time.Duration
	// last is what the network service sent last, and since is when that was found.
	last  netlog.Sent
	since time.Time
}

// alone is how many requests no page has reported.
func (t *tally) alone() int { return max(0, -t.left) }

func newUnreported() *unreported {
	return &unreported{tallies: map[string]*tally{}, known: map[string]bool{}, found: make(chan struct{}, 1)}
}

// change changes the tally of a method and URL, and forgets one that says nothing any more. It is
// false if there are too many.
func (n *unreported) change(method, url string, do func(*tally)) bool {
	url, _, _ = strings.Cut(url, "#")
	key := method + " " + url
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.tallies[key]
	if t == nil {
		if len(n.tallies) >= maxKnown {
			return false
		}
		t = &tally{}
		n.tallies[key] = t
	}
	if do(t); t.left == 0 && t.told == 0 {
		delete(n.tallies, key)
	}
	return true
}

// page takes in that a page reported a request, which it made at a time of Chrome's clock. If it was told
// before that no page had reported it, page returns the tally's toldAt, and otherwise zero.
func (n *unreported) page(method, url string, at float64) (told time.Duration) {
	n.change(method, url, func(t *tally) {
		if t.told > 0 && at <= chromeClock(t.toldAt+lateReport) { // it comes late
			t.told--
			told = t.toldAt
		} else {
			t.left++
		}
	})
	return told
}

// count takes in that a request's hop that was reported last leaves the browser: it stands for one that
// the network service sends. The caller holds the log's mu.
func (n *unreported) count(r *ledger.Request) {
	if !r.Counted {
		r.Counted = true
		r.Told = n.page(r.Method, r.LastURL, r.MadeAt)
	}
}

// uncount takes in that it does not leave the browser. The caller holds the log's mu.
func (n *unreported) uncount(r *ledger.Request) {
	r.Withheld = 0
	if r.Counted {
		r.Counted = false
		n.kept(r.Method, r.LastURL, r.Told)
	}
}

// OwnEvents are the events that Own takes.
var OwnEvents = []string{ledger.Sent, ledger.Socket, eventMessageSent}

// Own returns what takes in the events of a page of the launcher's own, of which the monitor knows
// nothing: what it sends is reported by a page, too, and is nothing that a worker did. The reader of the
// pipe calls it.
func (m *Monitor) Own() func(cdpproxy.Event) {
	sockets := map[string]string{}
	return func(e cdpproxy.Event) {
		var r struct {
			request
			URL string `json:"url"` // of a new websocket
		}
		if json.Unmarshal(e.Params, &r) != nil {
			return
		}
		switch {
		case e.Method == ledger.Socket:
			remember(sockets, r.RequestID, r.URL)
		case e.Method == eventMessageSent:
			m.unreported.page(checkpoint.Websocket, sockets[r.RequestID], r.Timestamp)
		case !reads.Method(r.Request.Method):
			m.unreported.page(r.Request.Method, r.Request.URL, r.Timestamp)
		}
	}
}

// kept takes in that a request that a page reported never left the browser: it stands for none that
// the network service sends. told is what page returned of it: it was not the one that was told.
func (n *unreported) kept(method, url string, told time.Duration) {
	n.change(method, url, func(t *tally) {
		if told != 0 {
			t.told, t.toldAt = t.told+1, max(t.toldAt, told)
			return
		}
		t.left--
		t.last, t.since = netlog.Sent{Method: method, URL: url, At: boottime.Monotonic()}, time.Now()
		n.wake(t)
	})
}

// wake tells whoever waits if something was sent that no page has reported.
func (n *unreported) wake(t *tally) {
	if t.alone() == 0 {
		return
	}
	select {
	case n.found <- struct{}{}:
	default:
	}
}

// sent takes in that the network service sends a request.
func (n *unreported) sent(s netlog.Sent) {
	known := n.change(s.Method, s.URL, func(t *tally) {
		if s.At < n.begins {
			return
		}
		t.left--
		t.last, t.since = s, time.Now()
		n.wake(t)
	})
	if !known {
		n.mu.Lock()
		n.many = n.many || s.At >= n.begins
		n.mu.Unlock()
	}
}

// takeAlone returns the requests that no page has reported for this long, in the order in which they
// were sent. left says that there are others.
func (n *unreported) takeAlone(within time.Duration) (all []netlog.Sent, many, left bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.tallies {
		switch {
		case t.alone() == 0:
		case time.Since(t.since) < within:
			left = true
		default:
			all = append(all, slices.Repeat([]netlog.Sent{t.last}, t.alone())...)
			t.left, t.told, t.toldAt = 0, t.told+t.alone(), max(t.toldAt, t.last.At)
		}
	}
	slices.SortFunc(all, func(a, b netlog.Sent) int { return int(a.At - b.At) })
	many, n.many = n.many, false
	return all, many, left
}

// forget forgets the session that is over. What it sent and is only read later does not count.
func (n *unreported) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begins, n.many = boottime.Monotonic(), false
	clear(n.tallies)
	clear(n.known)
}

// observe takes in a fact about a request of a page: whether what a script asks for, or what does more
// than read, carries something by which its site knows an account. A picture with a cookie says nothing:
// so does that of everybody who counts visits.
func (n *unreported) observe(f ledger.Fact) {
	r := f.Request
	if !r.OfPage() {
		return
	}
	switch f.Method {
	case ledger.Sent:
		n.learn(r.Hops[f.Hop].Unsafe, f.Params, r.Knows(f.Hop)) // the parameters with all headers
	case ledger.Carried:
		// It is about that hop, or about a later one if one before it was not sent: a worker may have answered it.
		if at := r.Left - 1; r.Knows(at) {
			for _, h := range r.Hops[min(at, len(r.Hops)):] {
				n.learn(h.Unsafe, h.Sent, true)
			}
		}
	}
}

// learn takes in a hop of a request. knows says that it carried a cookie or a credential.
func (n *unreported) learn(isUnsafe bool, params json.RawMessage, knows bool) {
	if !isUnsafe && !byScriptAlone(params) {
		return
	}
	var sent request
	if json.Unmarshal(params, &sent) != nil || !knows && plainHeaders(sent.Request.Headers) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if site := findings.Site(sent.Request.URL); len(n.known) < maxKnown {
		n.known[site] = true
	}
}

// byScriptAlone tells whether a request, given by its event, is one that only a script makes.
func byScriptAlone(params []byte) bool {
	return slices.ContainsFunc(scriptTypes, func(kind []byte) bool { return bytes.Contains(params, kind) })
}

var scriptTypes = [][]byte{[]byte(`"type":"XHR"`), []byte(`"type":"Fetch"`), []byte(`"type":"EventSource"`)}

// anonymous tells whether nothing is known to have told the site of a URL about the account.
func (n *unreported) anonymous(url string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.known) < maxKnown && !n.known[findings.Site(url)]
}

// maxLine is the longest line of a NetLog that is read. The longest is the first, with all constants.
const maxLine = 1 << 20

// ReadNetLog reads Chrome's NetLog until it ends or is closed. It returns an error if this is not a
// NetLog, or cannot be read: then nothing is known of what pages do not report. begun is called with
// the types of its events, as soon as they are known. If another launcher read the beginning, types
// are those that it knew. It may be some time behind: see
// AwaitLogged and HurryNetLog. It is called once.
func (m *Monitor) ReadNetLog(log io.Reader, types *netlog.Types, begun func(netlog.Types) error) (err error) {
	defer close(m.netLog.ended)
	var r netlog.Reader
	var line []byte
	lines := bufio.NewReaderSize(&patientReader{from: log, log: m.netLog}, 256<<10)
	if types != nil {
		r.Resume(*types)
	} else if line, err = readLine(lines, nil); len(line) > 0 {
		found := netlog.Types{}
		if found, err = r.Begin(line); err == nil {
			err = begun(found)
		}
	}
	for err == nil {
		if line, err = readLine(lines, line); err == nil {
			if s, ok := r.Line(line); ok {
				m.unreported.sent(s)
			}
			m.unreported.underWay.Store(r.UnderWay())
			m.netLog.read(line)
		}
	}
	if errors.Is(err, os.ErrClosed) { // the browser goes on
		return nil
	}
	for _, s := range r.Open() {
		m.unreported.sent(s)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// readLine returns the next line, in the space of an earlier one. A longer one than maxLine is empty.
func readLine(r *bufio.Reader, space []byte) ([]byte, error) {
	line := space[:0]
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) <= maxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// ReportAlone reports what the network service sent and no page has reported. It is called when the
// browser is gone, and everything is read that pages and the network service said.
func (m *Monitor) ReportAlone() { m.reportAlone(0) }

// lateReport is how long a page's report may come after the network service's.
const lateReport = 2 * time.Second

// reportAloneInTime does what ReportAlone does while the browser lives, so that the journal has it if
// this launcher does not see the end.
func (m *Monitor) reportAloneInTime(ctx context.Context) {
	for left := false; ; {
		if !left {
			select {
			case <-m.unreported.found:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-time.After(lateReport):
		case <-ctx.Done():
			return
		}
		if m.CatchUp(ctx) == nil {
			left = m.reportAlone(lateReport)
		}
	}
}

// reportAlone reports what no page has reported for this long, and tells whether more is left.
func (m *Monitor) reportAlone(within time.Duration) bool {
	sent, many, left := m.unreported.takeAlone(within)
	for _, s := range sent {
		e := checkpoint.Entry{
			Kind: checkpoint.KindRequest, Method: s.Method, URL: s.URL,
			// What it carried is not known. It counts if its site is one of the account's. No event says what
			// a websocket carried when it was opened: a message counts wherever it goes.
			Anonymous: s.Method != checkpoint.Websocket && m.unreported.anonymous(s.URL),
			Text:      "the network service sent it, and no page reported it: a page that was ending, a worker, or a service of the browser's own",
		}
		m.harmless.judge(&e, findings.Sent{Method: s.Method, URL: s.URL}, nil) // its body is not known: no line speaks for it
		m.sink(e)
	}
	if many {
		m.sink(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "MANY", Text: "more requests that no page reported than are kept"})
	}
	return left
}
