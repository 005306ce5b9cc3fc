package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"leasehold/internal/test/natstest"
	"leasehold/internal/test/testchrome"
	"leasehold/lease"
)

// eventStream is what a client of GET /v1/events reads.
type eventStream struct {
	t     *testing.T
	lines *bufio.Scanner
	// id is the last one that came.
	id string
}

// follow opens the event stream, after an id where one is given.
func (s *sidecar) follow(t *testing.T, lastID string) *eventStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testchrome.Patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("events: %v %v", response, err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return &eventStream{t: t, lines: bufio.NewScanner(response.Body)}
}

// begun waits until the stream says where it begins.
func (e *eventStream) begun() *eventStream {
	e.t.Helper()
	for e.id == "" && e.lines.Scan() {
		e.id = strings.TrimPrefix(e.lines.Text(), "id: ")
		if e.id == e.lines.Text() {
			e.id = ""
		}
	}
	if e.id == "" {
		e.t.Fatalf("the stream does not begin: %v", e.lines.Err())
	}
	return e
}

// next returns the next event: "late_write of p", or what the stream says of itself.
func (e *eventStream) next() string {
	e.t.Helper()
	name := ""
	for e.lines.Scan() {
		switch field, value, _ := strings.Cut(e.lines.Text(), ": "); field {
		case "id":
			e.id = value
		case "event":
			name = value
		case "data":
			if name != "" {
				var said struct {
					Available *bool  `json:"available"`
					Reason    string `json:"reason"`
				}
				if err := json.Unmarshal([]byte(value), &said); err != nil {
					e.t.Fatal(err)
				}
				if said.Available != nil {
					said.Reason = fmt.Sprint(*said.Available)
				}
				return name + " " + said.Reason
			}
			var event lease.Event
			if err := json.Unmarshal([]byte(value), &event); err != nil {
				e.t.Fatal(err)
			}
			return event.Event + " of " + event.ProfileID
		}
	}
	e.t.Fatalf("the stream ended: %v", e.lines.Err())
	return ""
}

func (e *eventStream) expect(want ...string) {
	e.t.Helper()
	for _, w := range want {
		if got := e.next(); got != w {
			e.t.Fatalf("%q came, want %q", got, w)
		}
	}
}

// TestEventsOverHTTP: who follows the events hears that NATS is away and back, and that the
// sidecar ends; the next one goes on from the last id, without a gap.
func TestEventsOverHTTP(t *testing.T) {
	t.Parallel()
	n := startNATS(t)
	s := (&sidecar{client: http.DefaultClient, young: true}).begin(t, n.args()...) // it makes no profiles
	// Another launcher publishes.
	late := func(profile string) {
		t.Helper()
		nc := natstest.Connect(t, n.url())
		e := lease.Event{Event: lease.EventLateWrite, ProfileID: profile}
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Request(e.Subject(), data, testchrome.Patience); err != nil {
			t.Fatal(err)
		}
	}
	first := s.follow(t, "").begun()
	late("a")
	first.expect("late_write of a")
	afterA := first.id

	n.stop()
	first.expect("store false")
	n.start(t)
	first.expect("store true")
	late("b")
	first.expect("late_write of b")
	s.follow(t, afterA).expect("late_write of b")

	s.stop(t)
	first.expect("end shutting_down")
	s.launch(t)
	late("c")
	again := s.follow(t, first.id)
	again.expect("late_write of c")
	everything := s.follow(t, "0")
	everything.expect("late_write of a", "late_write of b", "late_write of c")
	s.follow(t, "99999-00000001").expect("gap stream_reset", "late_write of a")
}
