package lease

import (
	"errors"
	"testing"
	"time"
)

func TestOpenIsAboveEverythingKnown(t *testing.T) {
	own := Presence{LauncherID: "l", AdvertiseURL: "http://h", BootID: "b", TTLSeconds: 30}
	for name, c := range map[string]struct {
		stored     Presence
		remembered uint64
		want       uint64
	}{
		"for the first time":  {Presence{}, 0, 1},
		"over an older stay":  {Presence{LauncherID: "l", Epoch: 4}, 4, 5},
		"over a closed one":   {Presence{LauncherID: "l", Epoch: 4, Closed: true, ClosedBy: "o"}, 4, 5},
		"over one of another": {Presence{LauncherID: "l", Epoch: 9}, 4, 10},
		"the store went back": {Presence{LauncherID: "l", Epoch: 2}, 4, 5},
		"the store was lost":  {Presence{}, 4, 5},
		"nothing remembered":  {Presence{LauncherID: "l", Epoch: 4}, 0, 5},
	} {
		p := c.stored.Open(own, c.remembered, noon)
		if p.Epoch != c.want || p.Closed || p.ClosedBy != "" || p.LauncherID != "l" || p.AdvertiseURL != "http://h" ||
			!p.OpenedAt.Equal(noon) || !p.ExpiresAt.Equal(noon.Add(30*time.Second)) {
			t.Errorf("%s: %+v, want epoch %d", name, p, c.want)
		}
	}
}

func TestClose(t *testing.T) {
	for name, c := range map[string]struct {
		stored Presence
		lease  uint64
		want   uint64
	}{
		"live":                {Presence{LauncherID: "l", Epoch: 4}, 4, 4},
		"the launcher's next": {Presence{LauncherID: "l", Epoch: 5}, 4, 5},
		"lost by the store":   {Presence{}, 4, 4},
		"set back":            {Presence{LauncherID: "l", Epoch: 2}, 4, 4},
	} {
		p := c.stored.Close("l", "o", c.lease, noon)
		held := Record{State: Held, LauncherID: "l", PresenceEpoch: c.lease}
		if p.Epoch != c.want || !p.Closed || p.ClosedBy != "o" || p.LauncherID != "l" || p.Carries(held) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// Whether a stay may go on, and be closed, for everything that the store may show.
func TestStayAgainstTheStore(t *testing.T) {
	own := Presence{LauncherID: "l", Epoch: 4, TTLSeconds: 30}
	for name, c := range map[string]struct {
		stored Presence
		over   bool
	}{
		"the same":               {Presence{LauncherID: "l", Epoch: 4}, false},
		"missing":                {Presence{}, false},
		"an older one":           {Presence{LauncherID: "l", Epoch: 3}, false},
		"an older one, closed":   {Presence{LauncherID: "l", Epoch: 3, Closed: true}, false},
		"the same, closed":       {Presence{LauncherID: "l", Epoch: 4, Closed: true, ClosedBy: "o"}, true},
		"opened again":           {Presence{LauncherID: "l", Epoch: 5}, true},
		"opened again, and over": {Presence{LauncherID: "l", Epoch: 5, Closed: true}, true},
	} {
		stay := Begin(PresenceEntry{Presence: own, Revision: 1}, 0, timing, nil)
		stay.Shown(PresenceEntry{Presence: c.stored, Revision: 2})
		prev, next, err := stay.Next(noon)
		_, _, due := stay.Closed(noon)
		switch {
		case errors.Is(err, ErrExpired) != c.over, due == c.over:
			t.Errorf("%s: renewal %v, closing due %v", name, err, due)
		case errors.Is(err, ErrSuperseded) != (c.stored.Epoch > own.Epoch):
			t.Errorf("%s: %v", name, err)
		case !c.over && (prev.Revision != 2 || next.Epoch != 4 || next.Closed || !next.HeartbeatAt.Equal(noon)):
			t.Errorf("%s: %+v over %+v", name, next, prev)
		}
	}
}

func TestLive(t *testing.T) {
	r := Record{State: Held, LauncherID: "l", PresenceEpoch: 4, HeartbeatAt: noon, ExpiresAt: noon.Add(ttl)}
	p := Presence{LauncherID: "l", Epoch: 4, HeartbeatAt: noon.Add(time.Hour), ExpiresAt: noon.Add(time.Hour + ttl)}
	if got := r.Live(p); !got.ExpiresAt.Equal(p.ExpiresAt) || !got.HeartbeatAt.Equal(p.HeartbeatAt) {
		t.Errorf("%v: a live lease shows its presence's heartbeat", got.HeartbeatAt)
	}
	free, other, closed, older := r, p, p, p
	free.State, other.Epoch, closed.Closed, older.HeartbeatAt = Available, 5, true, noon.Add(-time.Hour)
	for name, got := range map[string]Record{
		"not held": free.Live(p), "another stay": r.Live(other), "closed": r.Live(closed), "older than the grant": r.Live(older),
	} {
		if !got.HeartbeatAt.Equal(noon) {
			t.Errorf("%s: heartbeat %v", name, got.HeartbeatAt)
		}
	}
}
