package monitor

import (
	"fmt"
	"sync"

	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/evidence/recorder"
	"leasehold/internal/boottime"
	"leasehold/launcher/recovery/findings"
)

// requestLog has the ledger of the browser's requests. The pipe's reader calls take.
type requestLog struct {
	mu     sync.Mutex
	ledger ledger.Ledger
}

// take takes in an event, and calls judge with each fact in it. judge may keep in the ledger what
// it finds out.
func (rl *requestLog) take(e ledger.Event, judge func(ledger.Fact)) {
	rl.mu.Lock()
	defer rl.mu.Unlock()
	for _, f := range rl.ledger.Take(e) {
		judge(f)
	}
}

// mayWait tells whether an unsafe request has not ended, or a GET that may write is not answered, or a request
// has not ended that began in the last moments before since.
func (rl *requestLog) mayWait(since boottime.Instant) bool {
	return rl.open(func(r *ledger.Request, last ledger.Hop) bool {
		return last.Unsafe || r.Get != nil && r.Get.Status == 0 && findings.SignOf(*r.Get) != "" || last.Boot.Add(recentlyBegun) > since
	})
}

// unsafeOpen tells whether an unsafe request has not ended.
func (rl *requestLog) unsafeOpen() bool {
	return rl.open(func(_ *ledger.Request, last ledger.Hop) bool { return last.Unsafe })
}

// open tells whether a request of a page that has not ended is of a kind. last is its last hop.
func (rl *requestLog) open(is func(r *ledger.Request, last ledger.Hop) bool) bool {
	rl.mu.Lock()
	defer rl.mu.Unlock()
	for r := range rl.ledger.All() {
		if !r.Ended && r.OfPage() && is(r, r.Hops[len(r.Hops)-1]) {
			return true
		}
	}
	return false
}

// socketURL is the URL of a websocket, which the events of its messages do not have; empty if it is
// not known.
func (rl *requestLog) socketURL(id string) string {
	rl.mu.Lock()
	defer rl.mu.Unlock()
	if r := rl.ledger.Lookup(id); r != nil {
		return r.URL
	}
	return ""
}

// reported takes in that a message on a websocket is reported, and tells whether one like it was
// since the last checkpoint.
func (rl *requestLog) reported(socket string, e checkpoint.Entry) bool {
	rl.mu.Lock()
	defer rl.mu.Unlock()
	return rl.ledger.Known(socket).Report(fmt.Sprint(e.Declared, " ", e.KnownBy, " ", e.Shape, " ", e.Plain))
}

// forgetMessages has the next message of each kind on each websocket reported again.
func (rl *requestLog) forgetMessages() {
	rl.mu.Lock()
	defer rl.mu.Unlock()
	rl.ledger.ForgetMessages()
}

// part is the part of a bundle about the network.
func (rl *requestLog) part() []byte {
	rl.mu.Lock()
	hops, total := rl.ledger.Hops()
	rl.mu.Unlock()
	return recorder.Network(hops, total)
}

func (rl *requestLog) forget() {
	rl.mu.Lock()
	defer rl.mu.Unlock()
	rl.ledger = ledger.Ledger{}
}
