package natskv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold/lease"
)

// kindOf returns what a caller that knows only package lease can tell about an error.
func kindOf(err error) string {
	var moved *lease.MovedError
	var presence *lease.PresenceMovedError
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, lease.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, lease.ErrNotFound):
		return "not found"
	case errors.As(err, &moved), errors.As(err, &presence):
		return "moved"
	}
	return "refused"
}

func apiError(kind string, status, code int) string {
	return fmt.Sprintf(`{"type":"io.nats.jetstream.api.v1.%s_response","error":{"code":%d,"err_code":%d,"description":"forged"}}`, kind, status, code)
}

// Each call gets each error of NATS as its answer, once and then always. Callers only ever
// see the errors that package lease names. The server is a real one; the proxy replaces its
// answers.
func TestErrorsAreThoseOfLease(t *testing.T) {
	t.Parallel()
	const noResponders = "NATS/1.0 503\r\n\r\n"
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s := openWith(t, dialPlain(t, p.url()), Options{LauncherID: "test", tryTime: lateAnswer})
	if err := presenceOf("boot")(patient(t), s); err != nil {
		t.Fatal(err)
	}
	grantedLater(t, s, "p")
	flushed(t, s)

	n := 0
	writes := map[string]func(context.Context) error{
		"swap": func(ctx context.Context) error {
			n++
			return grantOf(fmt.Sprintf("p%d", n))(ctx, s)
		},
		"swap presence": func(ctx context.Context) error {
			n++
			return second2(s.SwapPresence(ctx, lease.PresenceEntry{}, lease.Presence{LauncherID: fmt.Sprintf("l%d", n)}))
		},
		"announce": func(ctx context.Context) error {
			return s.Announce(ctx, lease.Event{Event: lease.EventConflict, ProfileID: "p"})
		},
	}
	reads := map[string]func(context.Context) error{
		"get":      func(ctx context.Context) error { return second2(s.Get(ctx, "p")) },
		"presence": func(ctx context.Context) error { return second2(s.Presence(ctx, "l")) },
	}
	lists := map[string]func(context.Context) error{
		"list":    func(ctx context.Context) error { return second2(s.List(ctx)) },
		"history": func(ctx context.Context) error { return second2(s.History(ctx, "p")) },
	}
	batches := map[string]func(context.Context) error{
		"presences": func(ctx context.Context) error { return second2(s.Presences(ctx)) },
	}
	const published, got, created = "pub_ack", "stream_msg_get", "consumer_create"
	for _, tt := range []struct {
		name, answer string
		calls        map[string]func(context.Context) error
		once, always string
	}{
		{"wrong last sequence", apiError(published, 400, 10071), writes, "ok", ""}, // as every answer it would be untrue
		{"another write is in flight", apiError(published, 400, 10164), writes, "ok", "unavailable"},
		{"an earlier try is in flight", apiError(published, 409, 10158), writes, "ok", "unavailable"},
		{"message too large", apiError(published, 400, 10054), writes, "refused", "refused"},
		{"per-message TTL", apiError(published, 400, 10166), writes, "refused", "refused"},
		{"sealed", apiError(published, 400, 10109), writes, "refused", "refused"},
		{"bucket full", apiError(published, 503, 10077), writes, "ok", "unavailable"},
		{"stream not found", apiError(published, 404, 10059), writes, "ok", "unavailable"},
		{"no leader", apiError(published, 503, 10008), writes, "ok", "unavailable"},
		{"JetStream off", apiError(published, 503, 10076), writes, "ok", "unavailable"},
		{"no responders", noResponders, writes, "ok", "unavailable"},
		{"no answer of NATS", "what?", writes, "ok", "unavailable"},

		{"stream not found", apiError(got, 404, 10059), reads, "ok", "unavailable"},
		{"no leader", apiError(got, 503, 10008), reads, "ok", "unavailable"},
		{"bad request", apiError(got, 400, 10003), reads, "unavailable", "unavailable"},
		{"JetStream off", apiError(got, 503, 10076), reads, "ok", "unavailable"},
		{"no responders", noResponders, reads, "ok", "unavailable"},
		{"no answer of NATS", "{}", reads, "ok", "unavailable"},

		{"no responders", noResponders, batches, "ok", "unavailable"},
		{"bad request", "NATS/1.0 408 Bad Request\r\n\r\n", batches, "ok", "unavailable"},
		{"too many keys", "NATS/1.0 413 Too Many Results\r\n\r\n", batches, "ok", ""}, // as every answer it would be untrue
		{"no answer of NATS", "what?", batches, "ok", "unavailable"},

		{"stream not found", apiError(created, 404, 10059), lists, "ok", "unavailable"},
		{"no leader", apiError(created, 503, 10008), lists, "ok", "unavailable"},
		{"too many consumers", apiError(created, 400, 10026), lists, "ok", "unavailable"},
		{"no responders", noResponders, lists, "ok", "unavailable"},
		{"no answer of NATS", "what?", lists, "ok", "unavailable"},
	} {
		for call, do := range tt.calls {
			if call == "announce" && (strings.Contains(tt.answer, "10071") || strings.Contains(tt.answer, "10164")) {
				continue // Announce writes without a condition
			}
			for _, n := range []struct {
				times int
				limit time.Duration
				want  string
			}{{1, 20 * time.Second, tt.once}, {-1, 120 * time.Millisecond, tt.always}} {
				if n.want == "" {
					continue
				}
				if n.want == "refused" { // at once, for a host that has time
					n.limit = 20 * time.Second
				}
				flushed(t, s) // the settler writes too
				// Wait for requests whose callers gave up.
				if err := s.nc.FlushTimeout(20 * time.Second); err != nil {
					t.Fatal(err)
				}
				forge := times(n.times, subjectOf(call))
				p.set(func(p *proxy) {
					p.forge = func(subject string) string {
						if forge(subject) {
							return tt.answer
						}
						return ""
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), n.limit)
				err := do(ctx)
				cancel()
				p.set(func(p *proxy) { p.forge = func(string) string { return "" } })
				if got := kindOf(err); got != n.want {
					t.Errorf("%s after %q (%d times): %s (%v), want %s", call, tt.name, n.times, got, err, n.want)
				}
			}
		}
	}
	tooLong := lease.Record{ProfileID: "long", Settings: lease.Settings{SensitiveWords: []string{strings.Repeat("x", 2<<20)}}}
	if _, err := s.Swap(patient(t), none("long"), tooLong); kindOf(err) != "refused" || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("more than the server takes: %v", err)
	}
	flushed(t, s)
	s.nc.Close()
	for _, calls := range []map[string]func(context.Context) error{writes, reads, batches, lists, {"ping": s.Ping, "flush": func(ctx context.Context) error {
		s.pub.sweep()
		return s.Flush(ctx)
	}}} {
		for call, do := range calls {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := do(ctx); kindOf(err) != "unavailable" {
				t.Errorf("%s on a closed connection: %v", call, err)
			}
			cancel()
		}
	}
}

// subjectOf returns the prefix of the subject of the request that is decisive for a call.
func subjectOf(call string) string {
	switch call {
	case "swap", "swap presence":
		return "$KV."
	case "announce":
		return "leasehold.conflict."
	case "get", "presence":
		return "$JS.API.STREAM.MSG.GET."
	case "presences":
		return "$JS.API.DIRECT.GET."
	default:
		return "$JS.API.CONSUMER.CREATE."
	}
}
