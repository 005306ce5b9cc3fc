package proxies

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestTryShowsTheCredentials: what a proxy refuses is found without a site.
func TestTryShowsTheCredentials(t *testing.T) {
	for kind, start := range servers {
		web := site(t, httptest.NewServer)
		upstream := start(t, web.Listener.Addr().String(), user, password)
		right, wrong := configured(t, upstream, password), configured(t, upstream, "another")
		try := func(p *Proxy) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return p.Try(ctx)
		}
		if err := try(right); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if targets := upstream.Targets(); len(targets) != 1 || targets[0] != nowhere {
			t.Errorf("%s was asked for %q", kind, targets)
		}
		if err := try(wrong); !errors.Is(err, errCredentials) || strings.Contains(err.Error(), "another") {
			t.Errorf("%s, with a wrong password: %v", kind, err)
		}
		upstream.Stop()
		if err := try(right); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("%s, stopped: %v", kind, err)
		}
	}
}
