package cdpproxy_test

import (
	"context"
	"errors"
	"testing"

	"leasehold/cdpproxy"
)

// TestABrowserSessionThatComesTooLateIsDetached: its client, or the launcher itself, waits no
// longer. The next one is opened after that, since it could not be told apart before.
func TestABrowserSessionThatComesTooLateIsDetached(t *testing.T) {
	for name, attach := range map[string]func(ctx context.Context, m *cdpproxy.Mux) error{
		"a client's": func(ctx context.Context, m *cdpproxy.Mux) error {
			_, err := m.Connect(ctx, "", open(), &handler{}, true)
			return err
		},
		"the launcher's own": func(ctx context.Context, m *cdpproxy.Mux) error {
			_, err := m.Observe(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := script(t)
			slow := make(chan struct{})
			s.mu.Lock()
			s.slow = slow
			s.mu.Unlock()
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { left <- attach(ctx, s.mux) }()
			<-slow
			leave()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Fatalf("who left got %v", err)
			}
			next := make(chan error, 1)
			go func() { next <- attach(t.Context(), s.mux) }()
			slow <- struct{}{}
			if err := <-next; err != nil {
				t.Errorf("the next one: %v", err)
			}
			if got := s.await("Target.detachFromTarget"); string(got.Params) != `{"sessionId":"B1"}` || got.SessionID != "" {
				t.Errorf("the browser was asked to detach %s on %q, want B1 on the root", got.Params, got.SessionID)
			}
		})
	}
}
