package recorder

import (
	"slices"
	"sync"
)

// ring keeps the last entries of something that goes on, and counts all of them: a
// session of days takes no more memory than one of minutes.
type ring[T any] struct {
	mu      sync.Mutex
	entries []T
	oldest  int // index of the oldest entry, once the ring is full
	total   int
}

// add puts an entry into a ring of the given size. If the ring is full, the entry replaces the
// oldest.
func (r *ring[T]) add(size int, entry T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	if len(r.entries) < size {
		r.entries = append(r.entries, entry)
		return
	}
	r.entries[r.oldest] = entry
	r.oldest = (r.oldest + 1) % size
}

// addDropped counts entries that happened and were not kept.
func (r *ring[T]) addDropped(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += n
}

// reset empties the ring and starts its count again.
func (r *ring[T]) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries, r.oldest, r.total = nil, 0, 0
}

// last returns a copy of the kept entries, oldest first, and the total number.
func (r *ring[T]) last() (entries []T, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.entries[r.oldest:], r.entries[:r.oldest]), r.total
}
