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

// The last heartbeat of a launcher that is gone for good says nothing of the time. Until it is known whether that
// launcher is gone, nothing is removed, and nobody is told that a clock is wrong.
func TestALauncherThatIsGoneSaysNothingOfTheTime(t *testing.T) {
	gone := Presence{LauncherID: "other", HeartbeatAt: noon, TTLSeconds: 30}
	s := &told{at: noon.Add(365 * 24 * time.Hour), presences: []PresenceEntry{{Presence: gone, Revision: 1}}}
	boot := boottime.Instant(1000)
	c := &Clock{LauncherID: "own", Store: s, Shared: true, Wall: func() time.Time { return s.at }, Boot: func() boottime.Instant { return boot }}
	look := func(when string, passed time.Duration, believed, disagree bool) {
		t.Helper()
		boot = boot.Add(passed)
		_, err := c.Now(t.Context())
		if _, wrong := errors.AsType[*ClockError](err); (err == nil) != believed || wrong != disagree {
			t.Errorf("%s: %v, want the clock believed: %t, and the clocks to disagree: %t", when, err, believed, disagree)
		}
	}
	wait := Timing{TTL: gone.TTL()}.ObserverWait()
	look("it may live", 0, false, false)
	look("it may live still", wait-1, false, false)
	look("it is gone", 1, true, false)
	s.presences[0].Revision++ // the store and this host have the same wrong clock
	look("it lives, after all", time.Hour, false, true)
	look("it lived a moment ago", wait-1, false, true)
	look("it is gone again", 1, true, false)
}
