package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// Server-sent events. A profile's event has no name, so that the onmessage of an EventSource
// receives it; its data is the same JSON as on NATS. What the stream says about itself has a
// name: gap, store or end.

const (
	// heartbeatEvery is the time after which a stream without events sends a comment, and the
	// place that it has reached.
	heartbeatEvery = 15 * time.Second
	// clientRetry is how long a client waits before it connects again, in milliseconds.
	clientRetry = 2000
)

func eventRoutes() []route {
	follow := v1(http.MethodGet, "/events", forRole(principal.Read), streamEvents)
	follow.changes = true // a HEAD request would never be answered
	return []route{follow}
}

type eventFilter struct {
	who      principal.Principal
	profiles principal.Patterns // empty: all
	kinds    []string           // empty: all
}

func (f eventFilter) has(e lease.Event) bool {
	if e.Site != "" { // whoever may read may read what is known of sites
		return len(f.profiles) == 0 && (len(f.kinds) == 0 || slices.Contains(f.kinds, e.Kind()))
	}
	return f.who.May(principal.Read, e.ProfileID) && (len(f.profiles) == 0 || f.profiles.Match(e.ProfileID)) &&
		(len(f.kinds) == 0 || slices.Contains(f.kinds, e.Kind()))
}

// listed are the values of a parameter that may be repeated, and may have several values
// separated by commas.
func (c *call) listed(name string) (all []string) {
	for _, said := range c.query[name] {
		for one := range strings.SplitSeq(said, ",") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one)
			}
		}
	}
	return all
}

func (c *call) eventsAsked() (f eventFilter, after lease.Place, err error) {
	if c.queryErr != nil {
		return f, after, api.Invalid("", "the query cannot be read: %v", c.queryErr)
	}
	f = eventFilter{who: c.who, kinds: c.listed("kind")}
	for _, kind := range f.kinds {
		if !lease.IsEventKind(kind) {
			return f, after, api.Invalid("kind", "%.40q: want some of %s", kind, strings.Join(lease.EventKinds, ", "))
		}
	}
	if profiles := c.listed("profile"); len(profiles) > 0 {
		if f.profiles, err = principal.ParsePatterns(profiles); err != nil {
			return f, after, api.Invalid("profile", "%v", err)
		}
	}
	// An EventSource that reconnects sends this header; its URL still has the query.
	said := c.r.Header.Get("Last-Event-ID")
	if said == "" {
		said = c.query.Get("last_event_id")
	}
	if said == "" {
		return f, lease.PlaceNow, nil
	}
	if after, err = lease.ParsePlace(said); err != nil {
		return f, after, api.Invalid("last_event_id", "%v", err)
	}
	return f, after, nil
}

// streamEvents follows the events until the client leaves, is cut off, or the launcher ends.
func streamEvents(c *call) error {
	filter, after, err := c.eventsAsked()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	follower, err := c.svc.Events(ctx, after)
	if err != nil {
		return err
	}
	defer follower.Close()
	out := c.startEventStream()
	for {
		waiting, stop := context.WithTimeout(ctx, heartbeatEvery)
		batch, err := follower.Next(waiting)
		stop()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			out.comment("alive")
		default:
			out.batch(batch, filter)
		}
		if !out.send() || batch.Ended {
			return nil
		}
	}
}

// eventStream writes server-sent events.
type eventStream struct {
	c   *call
	buf strings.Builder
	id  string // the last that was written
}

func (c *call) startEventStream() *eventStream {
	s := &eventStream{c: c}
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no") // tells reverse proxies not to buffer
	c.w.WriteHeader(http.StatusOK)
	c.log() // the line in the log does not wait for the stream's end
	fmt.Fprintf(&s.buf, "retry: %d\n\n", clientRetry)
	s.send()
	return s
}

func (s *eventStream) comment(text string) { fmt.Fprintf(&s.buf, ": %s\n\n", text) }

// place tells the client from where to go on when it reconnects. It is no event for its
// handlers.
func (s *eventStream) place(at lease.Place) {
	if id := at.String(); at != lease.PlaceNow && id != s.id {
		s.id = id
		fmt.Fprintf(&s.buf, "id: %s\n\n", id)
	}
}

// news sends an event about the stream itself.
func (s *eventStream) news(name string, what map[string]any) {
	b, err := encode(what)
	if err != nil {
		return // a map of texts can always be encoded
	}
	fmt.Fprintf(&s.buf, "event: %s\ndata: %s\n\n", name, strings.TrimSpace(string(b)))
}

func (s *eventStream) batch(b api.EventBatch, f eventFilter) {
	switch b.Lost {
	case lease.LostOldest:
		s.news("gap", map[string]any{"reason": b.Lost, "detail": "events after the Last-Event-ID have left the stream: what follows begins with the oldest that is kept"})
	case lease.LostStream:
		s.news("gap", map[string]any{"reason": b.Lost, "detail": "the Last-Event-ID is not one of the event stream that is there: what follows begins with the oldest event that is kept, and may have come before"})
	}
	if n := b.Store; n != nil && n.Away.IsZero() {
		s.news("store", map[string]any{"available": true})
	} else if n != nil {
		s.news("store", map[string]any{"available": false, "since": n.Away.UTC(), "detail": "the lease store cannot be read: events come when it can, none is lost by that"})
	}
	for _, e := range b.Events {
		if f.has(e.Event) {
			s.id = e.Place.String()
			fmt.Fprintf(&s.buf, "id: %s\ndata: %s\n\n", s.id, oneLine(e.Data))
		}
	}
	s.place(b.Through)
	if b.Ended {
		s.news("end", map[string]any{"reason": "shutting_down", "detail": "the launcher ends: connect to the next one, with the Last-Event-ID"})
	}
}

// oneLine is JSON without line breaks, which would end the field of an event. Launchers do not
// write any.
func oneLine(data []byte) []byte {
	if !bytes.ContainsAny(data, "\r\n") {
		return data
	}
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return []byte("{}")
	}
	return b.Bytes()
}

// send sends what was written. It returns false if the client is gone, or too slow.
func (s *eventStream) send() bool {
	if s.buf.Len() == 0 {
		return true
	}
	_, err := s.c.w.Write([]byte(s.buf.String()))
	s.buf.Reset()
	if err == nil {
		err = s.c.w.FlushError()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.c.o.Log.Info().Err(err).Str("principal", s.c.who.Name).Str("peer", s.c.r.RemoteAddr).
			Msg("an event stream was cut: its client did not accept what was sent; it may go on by the Last-Event-ID")
	}
	return err == nil
}
