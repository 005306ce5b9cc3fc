package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint/site"
	"leasehold/lease"
)

const (
	// countPause is the least time between two writes of counts.
	countPause = 5 * time.Second
	// maxCounted is how many sites may wait to be counted, while the store is away.
	maxCounted = 200
)

// Count adds to what is counted for sites, by their names. It does not wait: the store is told later,
// and what it was not told when the launcher ends is lost.
func (s *Shelf) Count(of map[string]site.Tally) {
	if s == nil || s.o.Store == nil || len(of) == 0 {
		return
	}
	s.mu.Lock()
	for name, t := range of {
		if _, waits := s.counts[name]; waits || len(s.counts) < maxCounted {
			s.counts[name] = s.counts[name].Plus(t)
		}
	}
	s.mu.Unlock()
	select {
	case s.counted <- struct{}{}:
	default:
	}
}

// tellCounts tells the store what is counted, until ctx ends.
func (s *Shelf) tellCounts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.counted:
		}
		s.mu.Lock()
		told := s.counts
		s.counts = map[string]site.Tally{}
		s.mu.Unlock()
		again := map[string]site.Tally{}
		for name, t := range told {
			written, err := s.addCounts(ctx, name, t)
			if err != nil {
				s.o.Log.Debug().Err(err).Str("site", name).Bool("lost", written).Msg("what was counted could not be stored")
				if !written {
					again[name] = t
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(countPause):
		}
		s.Count(again)
	}
}

// addCounts adds to the counts of a site in the store. If there is an error, written says that they
// may be stored nevertheless: who adds them again might count twice.
func (s *Shelf) addCounts(ctx context.Context, name string, t site.Tally) (written bool, err error) {
	for tries := 0; tries <= teachTries; tries++ {
		var stored site.Tally
		var at uint64
		if stored, at, err = s.storedCounts(ctx, name); err != nil {
			return false, err
		}
		err = s.o.Store.PutSiteCounts(ctx, lease.SiteEntry{Name: name, Data: stored.Plus(t).Encode(), Revision: at})
		if !errors.Is(err, lease.ErrSiteMoved) {
			return true, err
		}
	}
	return false, err
}

// storedCounts are the counts that the store has under a name. What nobody can read is none.
func (s *Shelf) storedCounts(ctx context.Context, name string) (t site.Tally, revision uint64, err error) {
	e, err := s.o.Store.SiteCounts(ctx, name)
	if err != nil {
		return nil, 0, fmt.Errorf("counts: %w", err)
	}
	if json.Unmarshal(e.Data, &t) != nil {
		t = nil
	}
	return t, e.Revision, nil
}

// Counts is what was counted for a site: under its name and, before it had a file, under those of its
// hosts.
func (s *Shelf) Counts(ctx context.Context, name string) (site.Tally, error) {
	if s == nil || s.o.Store == nil {
		return nil, ErrNoStore
	}
	names := []string{name}
	if e, err := s.Get(name); err == nil {
		for _, o := range e.Origins {
			if !strings.Contains(o, "*") {
				names = append(names, site.NameOf(o))
			}
		}
	}
	slices.Sort(names)
	sum := site.Tally{}
	for _, n := range slices.Compact(names) {
		t, _, err := s.storedCounts(ctx, n)
		if err != nil {
			return nil, err
		}
		sum = sum.Plus(t)
	}
	return sum, nil
}
