package tracing

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"leasehold/internal/test/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without a Tracer nothing is made, and nothing allocated.
func TestNoTracer(t *testing.T) {
	var none *Tracer
	if n := testing.AllocsPerRun(100, func() {
		s := none.Start(t.Context(), "grant", About{Profile: "p", Token: 7})
		s.About(About{Session: "s"})
		s.Set("start", "cold")
		s.Step("floor")
		s.End(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if ctx := t.Context(); none.Follow(ctx, http.Header{"Traceparent": {"x"}}) != ctx {
		t.Error("it follows a trace")
	}
}

func TestSpan(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := New(trace.NewTracerProvider(trace.WithSpanProcessor(recorder)))
	s := tracer.Start(t.Context(), "grant", About{Profile: "p", Worker: "w"})
	s.About(About{Session: "s", Token: 7})
	s.Set("empty", "")
	s.Step("first")
	s.Step("second")
	s.End(errors.New(strings.Repeat("x", 1000)))
	ended := recorder.Ended()
	if len(ended) != 3 || ended[0].Name() != "first" || ended[1].Name() != "second" || ended[2].Name() != "grant" {
		t.Fatalf("%v", ended)
	}
	if ended[0].Status().Code != codes.Unset || ended[1].Status().Code != codes.Error || ended[2].Status().Code != codes.Error || len(ended[2].Status().Description) != maxError {
		t.Errorf("the statuses are %v, %v, %v", ended[0].Status(), ended[1].Status(), ended[2].Status())
	}
	if got := len(ended[2].Attributes()); got != 4 {
		t.Errorf("attributes %v, want profile, worker, session and token", ended[2].Attributes())
	}
}

func TestWanted(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		env      map[string]string
		want     bool
	}{
		{"", nil, false},
		{"http://h:4318", nil, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h"}, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://h"}, true},
		{"http://h", map[string]string{"OTEL_SDK_DISABLED": "true"}, false},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_TRACES_EXPORTER": "none"}, false},
	} {
		if got := Wanted(c.endpoint, func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A receiver that is away, or never answers, holds nobody up: neither who makes spans nor the
// end of the sidecar.
func TestAReceiverThatDoesNotAnswer(t *testing.T) {
	var asked atomic.Int32
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer silent.Close()
	defer close(release)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, endpoint := range map[string]string{"silent": silent.URL + "/", "away": nobody} {
		var log testlog.Buffer
		tracer, stop, err := Exporter{Endpoint: endpoint, LauncherID: "l", Version: "1", Log: zerolog.New(&log)}.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 5000 {
			tracer.Start(t.Context(), "grant", About{Profile: "p"}).End(nil)
		}
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > 10*closeTime {
			t.Errorf("%s: it takes %v to stop", name, took)
		}
		if !strings.Contains(log.String(), "not sent") {
			t.Errorf("%s: the log says nothing: %s", name, &log)
		}
	}
	if asked.Load() == 0 {
		t.Error("the silent receiver was not asked")
	}
}
