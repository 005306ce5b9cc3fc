package monitor

import (
	"bufio"
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
	// reported counts what pages reported and the network service has not sent yet. alone are the
	// requests that it sent and no page has reported. Both are by method and URL.
	reported map[string]int
	alone    map[string][]netlog.Sent
	many     bool // more than maxKnown were alone
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
	if one := n.alone[k]; len(one) > 1 {
		n.alone[k] = one[1:]
	} else if len(one) == 1 {
		delete(n.alone, k)
	} else {
		if n.reported == nil {
			n.reported = map[string]int{}
		}
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
		if n.alone == nil {
			n.alone = map[string][]netlog.Sent{}
		}
		n.alone[k] = append(n.alone[k], s)
	}
}

// takeAlone returns the requests that no page has reported, in the order in which they were sent.
func (n *unreported) takeAlone() (_ []netlog.Sent, many bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []netlog.Sent
	for _, sent := range n.alone {
		all = append(all, sent...)
	}
	slices.SortFunc(all, func(a, b netlog.Sent) int { return int(a.At - b.At) })
	many = n.many
	n.alone, n.many = nil, false
	return all, many
}

// forget forgets the session that is over. What it sent and is only read later does not count.
func (n *unreported) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begins, n.reported, n.alone, n.many = boottime.Monotonic(), nil, nil, false
}

// maxLine is the longest line of a NetLog that is read. The longest is the first, with all constants.
const maxLine = 1 << 20

// ReadNetLog reads Chrome's NetLog until it ends or is closed. It returns an error if this is not a
// NetLog, or cannot be read: then nothing is known of what pages do not report.
func (m *Monitor) ReadNetLog(log io.Reader) error {
	var r netlog.Reader
	lines := bufio.NewReaderSize(log, 64<<10)
	line, err := readLine(lines, nil)
	if len(line) > 0 {
		err = r.Begin(line)
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
func (m *Monitor) ReportAlone() {
	sent, many := m.unreported.takeAlone()
	for _, s := range sent {
		m.sink(checkpoint.Entry{
			Kind: checkpoint.KindRequest, Method: s.Method, URL: s.URL, Shape: shapeOf(decision.Sent{Method: s.Method, URL: s.URL}, nil),
			// What it carried is not known. It counts if its site is one of the account's.
			Anonymous: true,
			Text:      "the network service sent it, and no page reported it: a page that was ending, a worker, or a service of the browser's own",
		})
	}
	if many {
		m.sink(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "MANY", Text: "more requests that no page reported than are kept"})
	}
}
