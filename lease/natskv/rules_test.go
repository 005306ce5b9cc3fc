package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/lease"
)

func TestJudge(t *testing.T) {
	api := func(status int, code jetstream.ErrorCode) error {
		return fmt.Errorf("nats: %w", &jetstream.APIError{Code: status, ErrorCode: code})
	}
	for _, tt := range []struct {
		name string
		err  error
		want verdict
	}{
		{"acknowledged", nil, stored},
		{"wrong last sequence", api(400, 10071), moved},
		{"another write is in flight", api(400, 10164), inFlight},
		{"an earlier try is in flight", api(409, 10158), inFlight},
		{"too large", api(400, 10054), refused},
		{"larger than the server takes", nats.ErrMaxPayload, refused},
		{"bucket full", api(503, 10077), notSent},
		{"stream deleted", api(404, 10059), notSent},
		{"no leader", api(503, 10008), unknown},
		{"no responders", jetstream.ErrNoStreamResponse, notSent},
		{"disconnected", nats.ErrReconnectBufExceeded, notSent},
		{"no answer", context.DeadlineExceeded, unknown},
		{"caller gave up", context.Canceled, unknown},
		{"timeout", nats.ErrTimeout, unknown},
		{"answer unreadable", jetstream.ErrInvalidJSAck, unknown},
		{"something new", errors.New("x"), unknown},
		{"closed", nats.ErrConnectionClosed, gone},
	} {
		if got := judge(tt.err); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestPositions(t *testing.T) {
	for _, tt := range []struct {
		a, b position
		want bool
	}{
		{position{1, 1}, position{}, true},
		{position{}, position{}, false},
		{position{1, 2}, position{1, 1}, true},
		{position{1, 1}, position{1, 2}, false},
		{position{1, 1}, position{1, 1}, false},
		{position{2, 1}, position{1, 9}, true}, // the record was lost in between
		{position{1, 9}, position{2, 1}, false},
	} {
		if got := tt.a.after(tt.b); got != tt.want {
			t.Errorf("%v after %v: %v", tt.a, tt.b, got)
		}
	}
}

// A stream that ends below what was seen went back. A replicated one counts as having gone
// back only when it does so for longer than a new leader, or one that was cut off.
func TestCompare(t *testing.T) {
	made := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	type answer struct {
		created    time.Time
		last, seen uint64
		after      time.Duration
		lost       bool
	}
	for name, tt := range map[string]struct {
		replicas int
		answers  []answer
	}{
		"grows":                 {1, []answer{{made, 5, 0, 0, false}, {made, 9, 5, 0, false}, {made, 9, 9, 0, false}}},
		"made again":            {3, []answer{{made, 5, 0, 0, false}, {made.Add(1), 9, 5, 0, true}, {made.Add(1), 9, 9, 0, false}}},
		"went back":             {1, []answer{{made, 5, 0, 0, false}, {made, 4, 5, 0, true}, {made, 4, 4, 0, false}}},
		"new leader":            {3, []answer{{made, 5, 0, 0, false}, {made, 4, 5, 0, false}, {made, 5, 5, time.Second, false}, {made, 4, 5, time.Minute, false}}},
		"replicated, went back": {3, []answer{{made, 5, 0, 0, false}, {made, 4, 5, 0, false}, {made, 4, 5, doubtTime, true}, {made, 4, 4, doubtTime, false}}},
	} {
		st, now := &stream{}, made
		for i, a := range tt.answers {
			now = now.Add(a.after)
			info := &jetstream.StreamInfo{Created: a.created, Config: jetstream.StreamConfig{Replicas: tt.replicas}, State: jetstream.StreamState{LastSeq: a.last}}
			if got := st.compare(info, a.seen, now); got != a.lost {
				t.Errorf("%s: answer %d: lost %v, want %v", name, i, got, a.lost)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("p=2E1", []byte(`{"profile_id":"p.1","nonce":"n","state":"held","lease_token":1}`))
	f.Add("p", []byte(`{"type":"io.nats.jetstream.api.v1.account_info_response","memory":0}`))
	f.Add("p", []byte(`{"event":"granted","profile_id":"p","lease_token":1,"sequence":1}`))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		if e, ok := decodeEvent(key, data); ok && e.Subject() != key {
			t.Errorf("event of another subject: %+v on %q", e, key)
		}
		r, ok := decodeRecord(key, data)
		if !ok {
			return
		}
		if r.Nonce == "" || lease.Key(r.ProfileID) != key {
			t.Fatalf("taken for a record of %q: %+v", key, r)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Skip("a time that JSON does not have") // year above 9999
		}
		if again, ok := decodeRecord(key, b); !ok || again.Nonce != r.Nonce || again.Token != r.Token {
			t.Errorf("%+v came back as %+v", r, again)
		}
	})
}

// TestAPollThatProtectsNothingIsRare, and always comes before the server drops the consumer.
func TestAPollThatProtectsNothingIsRare(t *testing.T) {
	for range 1000 {
		if wait := pollWait(false); wait < time.Second || wait >= 2*time.Second {
			t.Fatalf("the next poll is in %s", wait)
		}
		if wait := pollWait(true); wait < 15*time.Second || wait >= inactiveTime/2 {
			t.Fatalf("the next poll of what changes only here is in %s", wait)
		}
	}
}

// TestAStoreWasReached if the leader of the bucket of records has answered, or, where this
// launcher's own server has all streams, that of another one.
func TestAStoreWasReached(t *testing.T) {
	for name, tt := range map[string]struct {
		own, told, saw, closed bool
		want                   bool
	}{
		"not yet":                            {own: true},
		"the leader told about the bucket":   {told: true, want: true},
		"before the connection was lost":     {told: true, closed: true},
		"another stream took a write":        {saw: true},
		"another stream of one's own server": {saw: true, own: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			nc := inProcess(t, start(t, t.TempDir()))
			s := &Store{nc: nc, ownServer: tt.own, leases: bucket{stream: &stream{}}, hosts: bucket{stream: &stream{}}}
			if tt.told {
				s.leases.compare(&jetstream.StreamInfo{}, 0, time.Now())
			}
			if tt.saw {
				s.hosts.saw(1)
			}
			if tt.closed {
				nc.Close()
			}
			if got := s.Reached(time.Minute); got != tt.want {
				t.Errorf("it was reached: %v", got)
			}
		})
	}
}
