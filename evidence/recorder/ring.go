package recorder

import (
	"sync"
)

// ring keeps the last entries of something that goes on, and counts all. A
// session of days takes no more memory than one of minutes.
type ring[T any] struct {
	mu    sync.Mutex
	kept  []T
	next  int // where the next one goes, once kept is full
	total int
}

// add makes room for an entry and has fill write it; what stood there before may
// be reused.
func (r *ring[T]) add(most int, fill func(*T)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	if len(r.kept) < most {
		r.kept = append(r.kept, *new(T))
		fill(&r.kept[len(r.kept)-1])
		return
	}
	fill(&r.kept[r.next])
	r.next = (r.next + 1) % most
}

// forget empties the ring and begins to count anew.
func (r *ring[T]) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept, r.next, r.total = nil, 0, 0
}

// each calls fn for the entries, oldest first.
func (r *ring[T]) each(fn func(*T)) {
	for i := range r.kept {
		fn(&r.kept[(r.next+i)%len(r.kept)])
	}
}
