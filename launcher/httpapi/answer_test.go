package httpapi

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"leasehold/launcher/api"
)

// TestAnswerToAClientThatDoesNotRead is given up, whoever writes it: what it holds in memory is free again.
func TestAnswerToAClientThatDoesNotRead(t *testing.T) {
	before := sendTimeout
	sendTimeout = 300 * time.Millisecond
	t.Cleanup(func() { sendTimeout = before })
	big := make([]byte, 32<<20) // more than the sockets hold
	for i := range big {
		big[i] = ' '
	}
	for path, answers := range map[string]map[string]any{
		"/v1/evidence/evd_1/part": {"EvidencePart": content{big, "text/plain"}},
		"/v1/evidence/evd_1":      {"EvidenceManifest": json.RawMessage(big)},
		"/metrics":                nil,
		"/hosts":                  nil,
	} {
		t.Run(path, func(t *testing.T) {
			page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(big) // what it comes to is seen by its end
			})
			answered := make(chan struct{})
			f := serveWith(t, Options{Console: page, Metrics: page}, answers, func(svc api.Service, o Options) http.Handler {
				h := New(svc, o)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(answered)
					h.ServeHTTP(w, r)
				})
			})
			silent := f.dial()
			if err := silent.(*net.TCPConn).SetReadBuffer(4096); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(silent, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, f.addr())
			select {
			case <-answered:
			case <-time.After(patience):
				t.Error("the answer is held for a client that does not read it")
			}
		})
	}
}

// bounded is a ResponseWriter that notes the deadlines of its writes.
type bounded struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (b *bounded) SetWriteDeadline(at time.Time) error {
	b.deadlines = append(b.deadlines, at)
	return nil
}

// A client may keep its connection for longer than it may take to read an answer: the bound of one request is
// none of the next. What the server still has to send when the handler has returned is bounded, too.
func TestTheBoundOfAnAnswerIsItsOwn(t *testing.T) {
	w := &bounded{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodGet, "/healthz", nil)
	written := 0
	New(&fake{t: t}, Options{Gate: gate("")}).ServeHTTP(countWrites{w, func() { written = len(w.deadlines) }}, r)
	if n := len(w.deadlines); n < 3 || !w.deadlines[0].IsZero() || w.deadlines[n-1].IsZero() {
		t.Fatalf("deadlines %v, want none at first, one for the answer, and one for what is sent last", w.deadlines)
	} else if written < 2 || written == n {
		t.Errorf("the answer was written after %d of the deadlines %v", written, w.deadlines)
	}
}

// countWrites calls a function before each write.
type countWrites struct {
	*bounded
	before func()
}

func (c countWrites) Write(b []byte) (int, error) {
	c.before()
	return c.bounded.Write(b)
}
