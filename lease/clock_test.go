package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	"leasehold/internal/boottime"
)

// told is a store that says what it is told to.
type told struct {
	at        time.Time
	presences []PresenceEntry
}

func (s *told) Time(context.Context) (time.Time, error)            { return s.at, nil }
func (s *told) Presences(context.Context) ([]PresenceEntry, error) { return s.presences, nil }

// Nothing is removed for its age on the word of one clock.
func TestTheClockIsBelievedOnlyIfNothingSpeaksAgainstIt(t *testing.T) {
	const year, day = 365 * 24 * time.Hour, 24 * time.Hour
	beat := func(id string, at time.Time, closed bool) PresenceEntry {
		return PresenceEntry{Presence: Presence{LauncherID: id, HeartbeatAt: at, TTLSeconds: 30, Closed: closed}}
	}
	for name, tt := range map[string]struct {
		store    time.Duration // of the store's clock, from the real time
		wall     []time.Duration
		beats    []PresenceEntry
		shared   bool
		believed []bool
	}{
		"all agree":                            {0, []time.Duration{0, time.Minute}, nil, true, []bool{true, true}},
		"a year ahead of the store":            {0, []time.Duration{year}, nil, true, []bool{false}},
		"a day behind the store":               {0, []time.Duration{-day}, nil, true, []bool{false}},
		"wrong, and right again":               {0, []time.Duration{0, year, 0}, nil, true, []bool{true, false, true}},
		"its own store, set while it runs":     {year, []time.Duration{year, 0}, nil, false, []bool{true, false}},
		"the store is wrong as well":           {year, []time.Duration{year}, []PresenceEntry{beat("other", noon, false)}, true, []bool{false}},
		"one of the others agrees":             {0, []time.Duration{0}, []PresenceEntry{beat("cut off", noon.Add(-day), false), beat("other", noon, false)}, true, []bool{true}},
		"what another left when it ended":      {0, []time.Duration{0}, []PresenceEntry{beat("ended", noon.Add(-day), true)}, true, []bool{true}},
		"its own presence of the stay before":  {0, []time.Duration{0}, []PresenceEntry{beat("own", noon.Add(-day), false)}, true, []bool{true}},
		"its own presence proves nothing else": {0, []time.Duration{year}, []PresenceEntry{beat("own", noon.Add(year), false)}, true, []bool{false}},
	} {
		s := &told{noon.Add(tt.store), tt.beats}
		var wall time.Time
		c := &Clock{LauncherID: "own", Store: s, Shared: tt.shared, Wall: func() time.Time { return wall }, Boot: func() boottime.Instant { return 1000 }}
		for i, off := range tt.wall {
			wall = noon.Add(off)
			if !tt.shared { // it has the host's clock
				s.at = wall
			}
			now, err := c.Now(t.Context())
			var wrong *ClockError
			if (err == nil) != tt.believed[i] || err != nil && !errors.As(err, &wrong) || err == nil && !now.Equal(wall) {
				t.Errorf("%s: look %d: %v, %v, want it believed: %t", name, i, now, err, tt.believed[i])
			}
		}
	}
}
