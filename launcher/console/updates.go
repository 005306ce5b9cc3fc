package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"leasehold/launcher/api"
)

const (
	// atMost is the least time between two updates of an open page. atLeast is how often the
	// server looks for changes that no event reports: the store cannot be reached, time has
	// passed.
	atMost, atLeast = time.Second, 5 * time.Second
	// heartbeatEvery is how often a page receives something even if nothing changes.
	heartbeatEvery = 15 * time.Second
	// maxOpen is how many pages may follow changes at a time. Further ones are not updated.
	maxOpen = 128
)

// contents are what may change in an open page: the rows of its table, in order, and named
// texts.
type contents struct {
	Order []string
	Rows  map[string]any
	Texts map[string]string
}

// staleNote says that the store cannot be reached.
const staleNote = "The lease store (NATS) cannot be reached"

// newContents has the texts that every page has: whether a lease could be granted, and since
// when the store cannot be reached.
func newContents(stale time.Time, ready error) contents {
	l := contents{Order: []string{}, Rows: map[string]any{}, Texts: map[string]string{"ready": "ready", "stale": ""}}
	if ready != nil {
		l.Texts["ready"] = "not ready: " + note(reason(ready))
	}
	if !stale.IsZero() {
		l.Texts["stale"] = staleNote + " since " + stale.UTC().Format("15:04:05") + " UTC. What is shown is what this launcher saw before; nothing is granted until the store answers."
	}
	return l
}

func (l *contents) add(id string, row any) {
	l.Order = append(l.Order, id)
	l.Rows[id] = row
}

// IsReady tells whether a lease could be granted.
func (l contents) IsReady() bool { return l.Texts["ready"] == "ready" }

// change is what is sent to a page: only what differs from before.
type change struct {
	Order []string          `json:"order,omitzero"` // nil: the order is unchanged
	Rows  map[string]any    `json:"rows,omitempty"`
	Texts map[string]string `json:"texts,omitempty"`
}

// since returns what has changed compared to before, and whether anything has.
func (l contents) since(before contents) (change, bool) {
	c := change{Rows: map[string]any{}, Texts: map[string]string{}}
	for id, row := range l.Rows {
		if !reflect.DeepEqual(before.Rows[id], row) {
			c.Rows[id] = row
		}
	}
	for name, text := range l.Texts {
		if was, ok := before.Texts[name]; !ok || was != text {
			c.Texts[name] = text
		}
	}
	moved := !reflect.DeepEqual(before.Order, l.Order)
	if moved {
		c.Order = l.Order
	}
	return c, moved || len(c.Rows) > 0 || len(c.Texts) > 0
}

// follow tells an open page what changes in it, as server-sent events, until the browser leaves
// or the launcher ends. The first event has everything, because the page may be outdated
// already.
func (p *pages) follow(w http.ResponseWriter, r *http.Request, look func(context.Context) (contents, error)) {
	select {
	case p.following <- struct{}{}:
		defer func() { <-p.following }()
	default:
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many pages of the console are open: this one does not change by itself", http.StatusTooManyRequests)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	var shown contents
	silent := time.Now()
	for {
		changes := p.svc.Changes()
		now, err := look(r.Context())
		if r.Context().Err() != nil {
			return
		}
		text := ""
		if err != nil {
			now = contents{Order: shown.Order, Rows: shown.Rows, Texts: map[string]string{"stale": "The list cannot be made: " + note(reason(err)) + "."}}
		}
		if c, changed := now.since(shown); changed {
			b, err := json.Marshal(c)
			if err != nil {
				p.log.Error().Err(err).Msg("changes of a page cannot be sent")
				return
			}
			text = fmt.Sprintf("data: %s\n\n", b)
		} else if time.Since(silent) > heartbeatEvery {
			text = ": alive\n\n"
		}
		if text != "" {
			if !deliver(w, text) {
				return
			}
			silent = time.Now()
		}
		shown = now
		if !await(r.Context(), changes) {
			return
		}
	}
}

// await waits until something has changed, for a bounded time that is neither too short nor too
// long. It returns false if the browser has left, or if the launcher ends.
func await(ctx context.Context, changes api.Changes) bool {
	soonest, latest := time.NewTimer(atMost), time.NewTimer(atLeast)
	defer soonest.Stop()
	defer latest.Stop()
	for changed, early := changes.Changed, true; ; {
		select {
		case <-ctx.Done():
			return false
		case <-changes.Over:
			return false
		case <-latest.C:
			return true
		case <-changed:
			if !early {
				return true
			}
			changed = nil // the change has come: only the least pause is still waited for
		case <-soonest.C:
			if early = false; changed == nil {
				return true
			}
		}
	}
}

// deliver sends a text at once. It returns false if the browser does not accept it, for as long as the
// server waits for that.
func deliver(w http.ResponseWriter, text string) bool {
	_, err := w.Write([]byte(text))
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	return err == nil
}

// problemOf returns the refusal that an error is.
func problemOf(err error) (*api.Problem, bool) {
	var p *api.Problem
	ok := errors.As(err, &p)
	return p, ok
}
