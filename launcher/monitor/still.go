package monitor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/evidence/redact"
	"leasehold/internal/boottime"
)

// While a browser stands still, because its network service is stopped, its pages go on
// running, and what they send is withheld. The monitor keeps it apart from what was sent: if
// the browser goes on, it is reported as sent; if the pages are ended, as withheld for good.

const (
	// maxWithheld is how many withheld requests and messages are kept one by one, and as many again of
	// those that are the first to their method and address.
	maxWithheld = 1000
	// recentlyBegun is the greatest age of an unanswered request that may still wait in the
	// network service. Messages on websockets get no answer.
	recentlyBegun = 10 * time.Second
)

// Withheld is a request, or a message on a websocket, that a page wanted to send while its
// browser stood still.
type Withheld struct {
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	URL    string    `json:"url"`
	Type   string    `json:"type,omitempty"`
}

// Still is what is known of a browser that stands still, and of what may wait in its network
// service. Its methods may be called concurrently.
type Still struct {
	log        *requestLog
	unreported *unreported
	sink       func(checkpoint.Entry)

	mu    sync.Mutex
	since float64 // when it stood still, by Chrome's clock; zero: it does not
	over  bool    // its pages were ended: what is reported later was withheld, too

	entries []checkpoint.Entry
	at      []time.Time
	more    uint64 // number of those that were not kept one by one
	any     bool   // something was withheld or begun, safe requests included
	// gets are what is to be reported of GETs if the browser goes on.
	gets []checkpoint.Entry

	messages boottime.Instant // when the last message was sent
	left     bool             // an unsafe request of a session that is over had not ended
}

func newStill(log *requestLog, n *unreported, sink func(checkpoint.Entry)) *Still {
	return &Still{log: log, unreported: n, sink: sink}
}

// chromeClock is a time as Chrome's events have it: seconds on the kernel's CLOCK_MONOTONIC.
func chromeClock(at time.Duration) float64 { return at.Seconds() }

// Begins says that nothing leaves the browser any more, since at by the kernel's
// CLOCK_MONOTONIC.
func (s *Still) Begins(at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = chromeClock(at)
}

// withholds takes in an entry for what a page sent at a time of Chrome's clock, and tells
// whether it is withheld, and whether that is for good, because the pages were ended. again says
// that it was taken in before.
func (s *Still) withholds(e checkpoint.Entry, at float64, again bool) (withheld, forGood bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since == 0 || at <= s.since {
		return false, false
	}
	if s.any = true; !again {
		s.add(e)
	}
	return true, s.over
}

// add keeps an entry. The caller holds s.mu.
func (s *Still) add(e checkpoint.Entry) {
	if s.over {
		return // it is reported at once
	}
	if n := len(s.entries); n >= 2*maxWithheld || n >= maxWithheld && slices.ContainsFunc(s.entries, func(o checkpoint.Entry) bool { return o.Method == e.Method && address(o) == address(e) }) {
		s.more++
		return
	}
	s.entries, s.at = append(s.entries, e), append(s.at, time.Now().UTC())
}

// holds takes in what is to be reported of a GET that was made at a time of Chrome's clock, and tells whether
// that waits until the browser goes on: until then it has not sent it. Of very many, more of the same kind say
// nothing new.
func (s *Still) holds(e checkpoint.Entry, at float64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since == 0 || at <= s.since {
		return false
	}
	if !s.over && (len(s.gets) < maxWithheld || !slices.ContainsFunc(s.gets, func(o checkpoint.Entry) bool { return o.Kind == e.Kind })) {
		s.gets = append(s.gets, e)
	}
	return true
}

// address is where an entry's request went to, without its query.
func address(e checkpoint.Entry) string {
	at, _, _ := strings.Cut(e.URL, "?")
	return at
}

// take returns what was withheld, and forgets it. more is the number of entries that were not
// kept. If over is true, everything reported from now on was withheld; otherwise the browser
// moves again.
func (s *Still) take(over bool) (entries []checkpoint.Entry, more uint64) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := chromeClock(boottime.Monotonic())
	for r := range s.log.ledger.All() {
		switch {
		case r.Withheld == 0 || over:
		case r.Name != "":
			r.MadeAt = now
			s.unreported.count(r)
		default:
			for range r.Withheld {
				s.unreported.page(checkpoint.Websocket, r.URL, now)
			}
		}
		r.Withheld = 0
	}
	entries, more = s.entries, s.more
	if s.over = over; !over {
		s.since = 0
		entries = append(entries, s.gets...)
	}
	s.entries, s.gets, s.at, s.more, s.any = nil, nil, nil, 0, false
	return entries, more
}

func (s *Still) stands() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since != 0
}

// eventMessageSent reports a message that a page sent on a websocket.
const eventMessageSent = "Network.webSocketFrameSent"

// observe takes in a fact about a request. The caller holds the mu of the request log.
func (s *Still) observe(f ledger.Fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.Method {
	case ledger.Sent:
		s.any = s.any || s.since != 0 && f.Request.OfPage()
	case ledger.GivenUp:
		s.any = s.any || f.Request.OfPage() // it may wait
	}
}

// endings are the events by which a document or a worker is over. What it sends while it ends, no page reports.
var endings = []string{eventDetached, eventCrashed, eventFrameDetached, eventFrameNavigated}

// ends takes in one of endings.
func (s *Still) ends() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.any = s.any || s.since != 0
}

// message takes in that a page sent a message on a websocket.
func (s *Still) message(now boottime.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = now
	s.any = s.any || s.since != 0
}

// forget takes in that a session is over.
func (s *Still) forget() {
	left := s.log.unsafeOpen()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = s.left || left
}

// MayWait tells whether anything may wait in the browser's network service, which was
// stopped at since: it would be sent if the network service went on. Pages may not have reported
// it: its log has to be read up to that moment.
func (s *Still) MayWait(since boottime.Instant) bool {
	s.mu.Lock()
	may := s.any || s.left || s.messages != 0 && s.messages.Add(recentlyBegun) > since
	s.mu.Unlock()
	return may || s.log.mayWait(since) || s.unreported.underWay.Load()
}

// Moves says that the browser goes on: what was withheld is sent now, and is reported.
func (s *Still) Moves() {
	entries, more := s.take(false)
	for _, e := range entries {
		s.sink(e)
	}
	if more > 0 {
		s.sink(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "MANY", Text: "more requests at once than could be recorded", Count: more})
	}
}

// PagesEnd says that the launcher ends the pages of a browser that stood still: what was
// withheld is never sent, and is reported so.
func (s *Still) PagesEnd() {
	entries, more := s.take(true)
	for _, e := range entries {
		s.sink(withheldEntry(e))
	}
	if more > 0 {
		s.sink(checkpoint.Entry{Kind: checkpoint.KindWithheld, Method: "MANY", Text: "further ones, which were not recorded one by one", Count: more})
	}
}

// withheldEntry is the entry of a request that was never sent.
func withheldEntry(e checkpoint.Entry) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindWithheld, Method: e.Method, URL: e.URL, Shape: e.Shape, Type: e.Type, Declared: e.Declared, Known: e.Known, KnownBy: e.KnownBy, Text: "never sent: the worker was lost"}
}

// MayHaveSent reports that pages may have sent something that cannot be told apart from what
// was withheld. why explains that in words.
func (s *Still) MayHaveSent(why string) {
	s.sink(unseenEntry(why))
}

// Withheld is what was withheld so far and not reported, and how many entries it leaves out.
func (s *Still) Withheld() (list []Withheld, more uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range s.entries {
		list = append(list, Withheld{At: s.at[i], Method: e.Method, URL: checkpoint.Clip(redact.URL(e.URL)), Type: e.Type})
	}
	return list, s.more
}

// AwaitStored returns when the cookies that scripts of the open pages have set are in the
// browser's cookie store. A script sets a cookie in no time, but for a moment the cookie is on
// its way to the network service, and Storage.getCookies does not have it yet. Reading the
// cookies in the page takes the same way after it, so its answer comes later. The error says
// how many documents did not answer before the deadline of ctx. Frames in the process of their
// page are not asked.
func (c *Cookies) AwaitStored(ctx context.Context) error {
	documents := c.pages.documents() // a frame has the id of its target
	// A document that reads its cookies while the network service is stopped waits for it, and
	// shows nothing more. So a document that runs this expression too late must not read them.
	deadline, _ := ctx.Deadline()
	script := fmt.Sprintf("(() => { if (Date.now() >= %d) return false; try { document.cookie } catch {} return true })()", deadline.UnixMilli())
	var asking sync.WaitGroup
	var silent atomic.Int64
	for frame, session := range documents {
		asking.Go(func() {
			var read bool
			if err := inPage(ctx, c.chrome, session, frame, script, &read); ctx.Err() != nil || err == nil && !read {
				silent.Add(1) // a target that answers with an error earlier is no document, but a worker
			}
		})
	}
	asking.Wait()
	if n := silent.Load(); n > 0 {
		return fmt.Errorf("%d of %d documents did not answer in time", n, len(documents))
	}
	return nil
}
