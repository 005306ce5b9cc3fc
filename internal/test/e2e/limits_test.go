package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// metric reads a gauge of the sidecar.
func (s *sidecar) metric(t *testing.T, name string) string {
	t.Helper()
	var text []byte
	if code := s.call(t, "GET", "/metrics", nil, &text); code != 200 {
		t.Fatalf("metrics: %d", code)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestHostFull: who waits for a place has it as soon as another browser is closed, and who does not
// wait is told how many there are.
func TestHostFull(t *testing.T) {
	t.Parallel()
	s := start(t, append(fakeBrowsers(t), "--max-browsers", "1")...)
	held := asks(t, s.URL, map[string]any{"profile_id": "first", "create": true})
	if held.code != http.StatusCreated {
		t.Fatalf("%+v", held)
	}
	waiting := async(func() answered {
		return asks(t, s.URL, map[string]any{"profile_id": "second", "create": true, "wait": "5m"})
	})
	eventually(t, "the second to queue", func() error {
		if n := s.metric(t, "leasehold_queue"); n != "1" {
			return fmt.Errorf("%s wait", n)
		}
		return nil
	})
	refused := asks(t, s.URL, map[string]any{"profile_id": "third", "create": true})
	for member, want := range map[string]any{"code": "host_full", "max_browsers": 1.0, "browsers": 1.0, "queue_position": 2.0, "queue_length": 1.0, "reason": "browsers"} {
		if refused.code != http.StatusTooManyRequests || refused.body[member] != want {
			t.Errorf("%s is %v, want %v", member, refused.body[member], want)
		}
	}
	s.giveBack(t, held)
	if a := <-waiting; a.code != http.StatusCreated {
		t.Errorf("%+v", a)
	}
}
