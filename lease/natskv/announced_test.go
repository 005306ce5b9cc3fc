package natskv

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"leasehold/lease"
)

// TestAnEventIsAnnouncedLater, once, where NATS did not take it, or did not say so, while the caller waited.
func TestAnEventIsAnnouncedLater(t *testing.T) {
	t.Parallel()
	asked := func(subject string) bool { return strings.HasPrefix(subject, "leasehold.person.") }
	for name, lose := range map[string]func(*proxy){
		"its request is lost": func(p *proxy) { p.loseRequest = asked },
		"its answer is lost":  func(p *proxy) { p.loseAnswer = asked },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, start(t, t.TempDir()))
			s := openWith(t, dialPlain(t, p.url()), Options{LauncherID: "test", tryTime: time.Second})
			p.set(lose)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := s.Announce(ctx, lease.Event{Event: lease.EventAsked, ProfileID: "p", Token: 1, At: t0}); !errors.Is(err, lease.ErrUnavailable) {
				t.Fatalf("announced without an answer: %v", err)
			}
			never := func(string) bool { return false }
			p.set(func(p *proxy) { p.loseRequest, p.loseAnswer = never, never })
			if err := s.Announce(patient(t), lease.Event{Event: lease.EventHandedBack, ProfileID: "p", Token: 1, At: t0}); err != nil {
				t.Errorf("announced afterwards: %v", err)
			}
			flushed(t, s)
			if events, err := s.History(patient(t), "p"); err != nil || len(events) != 2 || events[0].Event != lease.EventAsked || events[1].Event != lease.EventHandedBack {
				t.Errorf("%+v, %v; want each event once, in their order", events, err)
			}
		})
	}
}
