package snapshotter

import (
	"context"
	"time"

	"leasehold/lease"
)

const (
	// learnTimeout bounds how long a grant waits for the profile store; learnEvery is the time
	// after which a store that did not answer is asked again.
	learnTimeout, learnEvery = 5 * time.Second, time.Minute
)

// highest is the highest token of a profile that the profile store has shown to this process.
type highest struct {
	token lease.Token
	known bool      // the store has answered
	retry time.Time // when it is asked again at the earliest
}

// Learn reads the highest token of a profile from the profile store, if this process has not done
// so yet, for Highest. The lease store and this host's disk may both be put back to an older copy;
// the profile store then is the only one that knows which tokens were granted since.
func (s *Snapshotter) Learn(ctx context.Context, profile string) {
	s.mu.Lock()
	seen := s.highest[profile]
	s.mu.Unlock()
	if seen.known || time.Now().Before(seen.retry) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	token, err := s.o.Snapshots.Token(ctx, profile)
	if err != nil {
		s.o.Log.Warn().Err(err).Str("profile", profile).Msg("the profile store does not say which tokens it has seen")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen = s.highest[profile]
	s.highest[profile] = highest{max(seen.token, token), seen.known || err == nil, time.Now().Add(learnEvery)}
}

// Highest is the highest token of a profile that the profile store has shown; zero if it was not
// asked yet, or has none.
func (s *Snapshotter) Highest(profile string) lease.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.highest[profile].token
}

// overtaken notes that the profile store has a higher token of a profile than a snapshot had.
func (s *Snapshotter) overtaken(profile string, token lease.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.highest[profile]
	seen.token = max(seen.token, token)
	s.highest[profile] = seen
}
