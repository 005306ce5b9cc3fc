package adopt

import (
	"sync"
	"time"

	"leasehold/lease"
)

// The shortest and the longest time between two tries to look after a profile: what does not work,
// on a disk that takes no write for example, would otherwise be tried without a pause.
const firstPause, longestPause = time.Second, 30 * time.Second

// retries are the profiles that could not be looked after. Its methods are safe for concurrent use.
type retries struct {
	mu     sync.Mutex
	failed map[string]failure // by profile
}

// failure is what is known of the tries with one token.
type failure struct {
	token lease.Token
	next  time.Time // when it is tried again
	pause time.Duration
}

// due tells whether the profile of a record may be tried now. With another token it is another
// matter, which does not wait.
func (t *retries) due(r lease.Record, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, failed := t.failed[r.ProfileID]
	return !failed || f.token != r.Token || !now.Before(f.next)
}

// ended takes in the result of a try.
func (t *retries) ended(r lease.Record, err error, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.failed, r.ProfileID)
		return
	}
	f := t.failed[r.ProfileID]
	if f.token != r.Token {
		f = failure{token: r.Token}
	}
	f.pause = min(max(2*f.pause, firstPause), longestPause)
	f.next = now.Add(f.pause)
	if t.failed == nil {
		t.failed = map[string]failure{}
	}
	t.failed[r.ProfileID] = f
}
