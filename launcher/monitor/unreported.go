package monitor

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/netlog"
	"leasehold/internal/boottime"
	"leasehold/launcher/recovery/decision"
)

// unreported compares what the network service sent with what pages reported that they send. What a
// page sends while it ends, what a service of Chrome sends for it, and what a worker sends in its
// last moment is reported by no page. Its methods may be called concurrently.
type unreported struct {
	mu sync.Mutex
	// begins is the monotonic time from which on what is sent belongs to the present session.
	begins time.Duration
	// reported counts what pages reported and the network service has not sent yet; told, what is in
	// the journal as reported by no page. alone are the requests that the service sent, and of which
	// neither is so. All are by method and URL.
	reported, told map[string]int
	alone          map[string][]alone
	many           bool          // more than maxKnown were alone
	found          chan struct{} // has room for one: something is alone
}

// alone is a request that no page has reported, and when that was found.
type alone struct {
	netlog.Sent
	since time.Time
}

func newUnreported() *unreported {
	return &unreported{reported: map[string]int{}, told: map[string]int{}, alone: map[string][]alone{}, found: make(chan struct{}, 1)}
}

func key(method, url string) string {
	url, _, _ = strings.Cut(url, "#")
	return method + " " + url
}

// page takes in that a page reported a request.
func (n *unreported) page(method, url string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := key(method, url)
	switch one := n.alone[k]; {
	case len(one) > 1:
		n.alone[k] = one[1:]
	case len(one) == 1:
		delete(n.alone, k)
	case n.told[k] > 0: // it comes late
		n.told[k]--
	default:
		remember(n.reported, k, n.reported[k]+1)
	}
}

// sent takes in that the network service sends a request.
func (n *unreported) sent(s netlog.Sent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := key(s.Method, s.URL)
	switch {
	case s.At < n.begins:
	case n.reported[k] > 1:
		n.reported[k]--
	case n.reported[k] == 1:
		delete(n.reported, k)
	case len(n.alone) >= maxKnown:
		n.many = true
	default:
		n.alone[k] = append(n.alone[k], alone{s, time.Now()})
		select {
		case n.found <- struct{}{}:
		default:
		}
	}
}

// takeAlone returns the requests that no page has reported for this long, in the order in which they
// were sent. left says that there are others.
func (n *unreported) takeAlone(within time.Duration) (all []netlog.Sent, many, left bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, found := range n.alone {
		late := slices.IndexFunc(found, func(a alone) bool { return time.Since(a.since) < within })
		if late < 0 {
			late = len(found)
		}
		for _, a := range found[:late] {
			all = append(all, a.Sent)
			remember(n.told, k, n.told[k]+1)
		}
		if n.alone[k] = found[late:]; late == len(found) {
			delete(n.alone, k)
		}
	}
	slices.SortFunc(all, func(a, b netlog.Sent) int { return int(a.At - b.At) })
	many, n.many = n.many, false
	return all, many, len(n.alone) > 0
}

// forget forgets the session that is over. What it sent and is only read later does not count.
func (n *unreported) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begins, n.many = boottime.Monotonic(), false
	clear(n.reported)
	clear(n.told)
	clear(n.alone)
}

// readPause is how long the launcher waits for more, before it reads again: Chrome writes a few lines
// at a time, and each read wakes a thread. The pipe has room for what comes meanwhile.
const readPause = 50 * time.Millisecond

// patientReader reads a pipe in larger pieces, until hurry is closed.
type patientReader struct {
	from  io.Reader
	hurry <-chan struct{}
	full  bool // the last read filled its space
}

func (r *patientReader) Read(p []byte) (n int, err error) {
	if !r.full {
		select {
		case <-time.After(readPause):
		case <-r.hurry:
		}
	}
	n, err = r.from.Read(p)
	r.full = n == len(p)
	return n, err
}

// maxLine is the longest line of a NetLog that is read. The longest is the first, with all constants.
const maxLine = 1 << 20

// ReadNetLog reads Chrome's NetLog until it ends or is closed. It returns an error if this is not a
// NetLog, or cannot be read: then nothing is known of what pages do not report. begun is called with
// the types of its events, as soon as they are known. If another launcher read the beginning, types
// are those that it knew. Until hurry is closed, it may be some time behind.
func (m *Monitor) ReadNetLog(log io.Reader, hurry <-chan struct{}, types *netlog.Types, begun func(netlog.Types) error) (err error) {
	var r netlog.Reader
	var line []byte
	lines := bufio.NewReaderSize(&patientReader{from: log, hurry: hurry}, 256<<10)
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
			// What it carried is not known. It counts if its site is one of the account's.
			Anonymous: true,
			Text:      "the network service sent it, and no page reported it: a page that was ending, a worker, or a service of the browser's own",
		}
		m.harmless.judge(&e, decision.Sent{Method: s.Method, URL: s.URL}, nil) // its body is not known: no line speaks for it
		m.sink(e)
	}
	if many {
		m.sink(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "MANY", Text: "more requests that no page reported than are kept"})
	}
	return left
}
