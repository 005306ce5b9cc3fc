package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"leasehold/lease"
)

// receiver takes OTLP traces over HTTP, as a collector does.
type receiver struct {
	mu    sync.Mutex
	spans []*spans.Span
	raw   bytes.Buffer
	from  map[string]string // attributes of the resource
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		zipped, err := gzip.NewReader(req.Body)
		if err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		body = zipped
	}
	b, err := io.ReadAll(body)
	var got collector.ExportTraceServiceRequest
	if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(b, &got) != nil {
		http.Error(w, fmt.Sprint(req.URL.Path, err), 400)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw.Write(b)
	for _, of := range got.ResourceSpans {
		r.from = map[string]string{}
		for _, a := range of.Resource.Attributes {
			r.from[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range of.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
}

// tree is a span with its steps in their order, as text, and its attributes.
func (r *receiver) tree(name, task string) (steps string, attributes map[string]string, trace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		attributes = map[string]string{}
		for _, a := range s.Attributes {
			attributes[strings.TrimPrefix(a.Key, "leasehold.")] = a.Value.GetStringValue()
			if n := a.Value.GetIntValue(); n != 0 {
				attributes[strings.TrimPrefix(a.Key, "leasehold.")] = fmt.Sprint(n)
			}
		}
		if s.Name != name || attributes["task"] != task {
			continue
		}
		var of []*spans.Span
		for _, child := range r.spans {
			if bytes.Equal(child.ParentSpanId, s.SpanId) {
				of = append(of, child)
			}
		}
		slices.SortFunc(of, func(a, b *spans.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
		var names []string
		for _, child := range of {
			names = append(names, child.Name)
		}
		return strings.Join(names, ", "), attributes, fmt.Sprintf("%x", s.TraceId)
	}
	return "", nil, ""
}

// TestTraces sends the spans of a release and of a recovery to a receiver. No span has a
// secret, and a receiver that is away is nobody's matter.
func TestTraces(t *testing.T) {
	t.Parallel()
	r := &receiver{}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	s := start(t, append(fakeBrowsers(t), "--otlp-endpoint", server.URL)...)
	c := dial(t, s.socket("shop", "worker=w&task=good"))
	c.call(t, "", "Browser.getVersion", nil, nil)
	c.close(t)
	c.ended(t)
	s.until(t, "shop", lease.Available)
	const parent = "4bf92f3577b34da6a3ce929d0e0e4736"
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/sessions", strings.NewReader(`{"profile_id":"shop","worker_id":"w","task_id":"lost","wait":"20s"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-"+parent+"-00f067aa0ba902b7-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != 201 {
		t.Fatalf("%s %s %v", resp.Status, b, err)
	}
	secret := strings.Split(string(b[bytes.Index(b, []byte("/s/"))+3:]), "/")[0]
	const page = "https://shop.example/?password=hunter2"
	c = dial(t, strings.Replace(s.URL, "http", "ws", 1)+"/s/"+secret+"/devtools/browser/shop")
	c.page(t, page, "")
	c.drop()
	s.until(t, "shop", lease.Available, lease.ManualReview)
	s.stop(t) // sends what waits

	for _, want := range []struct{ name, task, steps string }{
		{"grant", "good", "floor, session file, lease store, browser"},
		{"release", "good", "evidence, close, give back"},
		{"grant", "lost", "floor, session file, lease store, browser"},
		{"recovery", "lost", "evidence, quarantine, close, inspect, decide"},
	} {
		steps, about, trace := r.tree(want.name, want.task)
		if steps != want.steps || about["profile"] != "shop" || about["worker"] != "w" || about["session"] == "" || about["token"] == "" {
			t.Errorf("%s of %s has the steps %q and is about %v, want %q", want.name, want.task, steps, about, want.steps)
		}
		if want.name == "grant" && (trace == parent) != (want.task == "lost") {
			t.Errorf("the grant of %s is in trace %s", want.task, trace)
		}
	}
	if _, about, _ := r.tree("recovery", "lost"); about["decision"] == "" || about["evidence"] == "" || about["reason"] == "" {
		t.Errorf("the recovery says %v", about)
	}
	if r.from["service.name"] != "leasehold" || r.from["service.instance.id"] == "" {
		t.Errorf("the spans are from %v", r.from)
	}
	if len(r.spans) > 40 {
		t.Errorf("%d spans for two sessions", len(r.spans))
	}
	for _, hidden := range []string{secret, "hunter2", "shop.example"} {
		if bytes.Contains(r.raw.Bytes(), []byte(hidden)) {
			t.Errorf("a span has %s", hidden)
		}
	}
}
