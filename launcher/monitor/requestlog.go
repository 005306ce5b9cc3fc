package monitor

import (
	"sync"

	"leasehold/checkpoint/ledger"
	"leasehold/evidence/recorder"
)

// requestLog has the ledger of the browser's requests. The pipe's reader calls take.
type requestLog struct {
	mu     sync.Mutex
	ledger ledger.Ledger
}

// take takes in an event.
func (rl *requestLog) take(e ledger.Event) {
	rl.mu.Lock()
	defer rl.mu.Unlock()
	rl.ledger.Take(e)
}

// part is the part of a bundle about the network.
func (rl *requestLog) part() []byte {
	rl.mu.Lock()
	hops, total := rl.ledger.Hops()
	rl.mu.Unlock()
	return recorder.Network(hops, total)
}

// forget forgets the requests of a session that is over.
func (rl *requestLog) forget() {
	rl.mu.Lock()
	defer rl.mu.Unlock()
	rl.ledger = ledger.Ledger{}
}
