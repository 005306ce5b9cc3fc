package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/launcher/api"
	"leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hook = "https://hooks.example/secret-path"

func webhook(t *testing.T, raw string) Webhook {
	t.Helper()
	w, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func review(number int) lease.Published {
	e := lease.Event{Event: string(lease.ManualReview), ProfileID: "shop", Reason: api.ReasonConnectionLost, LauncherID: "l"}
	data, _ := json.Marshal(e)
	return lease.Published{Event: e, Data: data, Place: lease.PlaceOf(uint64(number), data)}
}

// stream has events for one webhook, as the store does: what is not confirmed comes again, after
// the time that was asked for or after a minute.
type stream struct {
	mu   sync.Mutex
	wait []waiting
	done int
}

type waiting struct {
	lease.Published
	tries int
	from  time.Time
}

func (s *stream) put(e lease.Published) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait = append(s.wait, waiting{Published: e})
}

func (s *stream) Next(ctx context.Context, most time.Duration) (lease.Delivery, bool, error) {
	for end := time.Now().Add(most); ; {
		if d, ok := s.next(); ok {
			return d, true, nil
		}
		if time.Now().After(end) {
			return lease.Delivery{}, false, nil
		}
		select {
		case <-ctx.Done():
			return lease.Delivery{}, false, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (s *stream) Unconfirmed(context.Context) (n int, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.wait {
		if w.tries > 0 {
			n++
		}
	}
	return n, nil
}

func (s *stream) next() (lease.Delivery, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.wait {
		w := &s.wait[i]
		if time.Now().Before(w.from) {
			continue
		}
		w.tries++
		w.from = time.Now().Add(time.Minute)
		place := w.Place
		return lease.Delivery{Published: w.Published, Tries: w.tries,
			Done: func() error { s.take(place, 0); return nil }, Again: func(after time.Duration) error { s.take(place, after); return nil }}, true
	}
	return lease.Delivery{}, false
}

// take removes an event that is confirmed, or has it come again after a time.
func (s *stream) take(place lease.Place, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.wait, func(w waiting) bool { return w.Place == place })
	if after > 0 {
		s.wait[i].from = time.Now().Add(after)
		return
	}
	s.wait = slices.Delete(s.wait, i, i+1)
	s.done++
}

// answers are what a webhook answers, the last one from then on; at is when it was asked.
type answers struct {
	answer []func(*http.Request) (*http.Response, error)

	mu    sync.Mutex
	begun time.Time
	at    []time.Duration
	ids   []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	now := a.answer[min(len(a.at), len(a.answer)-1)]
	a.at, a.ids = append(a.at, time.Since(a.begun).Round(time.Second)), append(a.ids, r.Header.Get("webhook-id"))
	a.mu.Unlock()
	return now(r)
}

func says(status int, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: h, Body: io.NopCloser(strings.NewReader(""))}, nil
	}
}

func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func notifier(w Webhook, s *stream, log io.Writer, to http.RoundTripper) *Notifier {
	n := New(Options{
		Webhooks: []Webhook{w}, Console: "https://host:9333/", Deliveries: func(string) Deliveries { return s }, Conditions: func() []Notice { return nil },
		Log: zerolog.New(log), Metrics: prometheus.NewRegistry(),
	})
	n.client.Transport = to
	return n
}

// during runs a notifier for a time.
func during(t *testing.T, n *Notifier, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	n.Run(ctx)
}

// TestAWebhookThatFailsIsAskedAgain: the pauses grow, and one that it asks for itself is kept.
func TestAWebhookThatFailsIsAskedAgain(t *testing.T) {
	for name, one := range map[string]struct {
		answer []func(*http.Request) (*http.Response, error)
		at     []time.Duration
	}{
		"never answers":     {[]func(*http.Request) (*http.Response, error){hangs, hangs, says(200)}, []time.Duration{0, 15 * time.Second, 35 * time.Second}},
		"answers 500":       {[]func(*http.Request) (*http.Response, error){says(500), says(500), says(204)}, []time.Duration{0, 5 * time.Second, 15 * time.Second}},
		"answers 429":       {[]func(*http.Request) (*http.Response, error){says(429, "Retry-After", "120"), says(200)}, []time.Duration{0, 2 * time.Minute}},
		"asks for a week":   {[]func(*http.Request) (*http.Response, error){says(503, "Retry-After", "604800"), says(200)}, []time.Duration{0, time.Hour}},
		"answers nonsense":  {[]func(*http.Request) (*http.Response, error){says(503, "Retry-After", "later"), says(200)}, []time.Duration{0, 5 * time.Second}},
		"takes it at once":  {[]func(*http.Request) (*http.Response, error){says(202)}, []time.Duration{0}},
		"leads to itself":   {[]func(*http.Request) (*http.Response, error){says(307, "Location", hook), says(200)}, []time.Duration{0, 5 * time.Second}},
		"breaks connection": {[]func(*http.Request) (*http.Response, error){func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, says(200)}, []time.Duration{0, 5 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, a := &stream{}, &answers{answer: one.answer, begun: time.Now()}
				s.put(review(1))
				var log bytes.Buffer
				during(t, notifier(webhook(t, hook), s, &log, a), 3*time.Hour)
				if !slices.Equal(a.at, one.at) || s.done != 1 {
					t.Errorf("asked after %v, confirmed %d; want %v and 1", a.at, s.done, one.at)
				}
				if strings.Contains(log.String(), "secret-path") {
					t.Errorf("the log has the webhook's URL: %s", &log)
				}
			})
		})
	}
}

// TestALauncherThatEndsLeavesItsNotices: one that was being sent is sent by the next launcher,
// under the same id.
func TestALauncherThatEndsLeavesItsNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := &stream{}, &answers{answer: []func(*http.Request) (*http.Response, error){hangs, says(200)}, begun: time.Now()}
		s.put(review(1))
		during(t, notifier(webhook(t, hook), s, io.Discard, a), 3*time.Second)
		if s.done != 0 {
			t.Fatal("it was confirmed, and nobody took it")
		}
		during(t, notifier(webhook(t, hook), s, io.Discard, a), 5*time.Minute)
		if s.done != 1 || len(a.ids) != 2 || a.ids[0] != a.ids[1] {
			t.Errorf("confirmed %d, sent %v; want 1, and twice the same", s.done, a.ids)
		}
	})
}

// TestADeadWebhookCostsLittle: it is asked at most once a minute, whatever waits, and what it has
// not taken for a day is dropped.
func TestADeadWebhookCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := &stream{}, &answers{answer: []func(*http.Request) (*http.Response, error){says(404)}, begun: time.Now()}
		for i := range 20 {
			s.put(review(i))
		}
		n := notifier(webhook(t, hook), s, io.Discard, a)
		during(t, n, 26*time.Hour)
		if most := 26*60 + 10; len(a.at) > most {
			t.Errorf("asked %d times in 26 hours, want at most %d", len(a.at), most)
		}
		if failing := n.longestFailing(); failing < 25*3600 {
			t.Errorf("it is said to fail for %v s", failing)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, a := &stream{}, &answers{answer: []func(*http.Request) (*http.Response, error){says(404)}, begun: time.Now()}
		s.put(review(1))
		n := notifier(webhook(t, hook), s, io.Discard, a)
		during(t, n, 26*time.Hour)
		if dropped := counted(t, n, resultDropped); s.done != 1 || dropped != 1 || len(a.at) != maxTries {
			t.Errorf("confirmed %d, dropped %v after %d tries; want it dropped after %d", s.done, dropped, len(a.at), maxTries)
		}
	})
}

// counted is how many tries ended in a way, as the metrics have it.
func counted(t *testing.T, n *Notifier, result string) float64 {
	t.Helper()
	families, err := n.o.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if labels := m.GetLabel(); len(labels) == 1 && labels[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestAConditionIsToldOnce, and again if it comes again.
func TestAConditionIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{answer: []func(*http.Request) (*http.Response, error){says(500), says(200)}, begun: time.Now()}
		n := notifier(webhook(t, hook), &stream{}, io.Discard, a)
		begun := time.Now()
		n.o.Conditions = func() []Notice {
			if now := time.Since(begun); now > 10*time.Minute && now < 20*time.Minute {
				return nil
			}
			return []Notice{OfWaiting("l", 3, begun, n.o.Console)}
		}
		during(t, n, 30*time.Minute)
		want := []time.Duration{0, time.Minute, 20 * time.Minute}
		for i := range a.at {
			a.at[i] = a.at[i].Truncate(time.Minute)
		}
		if !slices.Equal(a.at, want) {
			t.Errorf("told after %v, want %v", a.at, want)
		}
	})
}

// TestAConditionThatGoesOnIsOne: the oldest bundle that waits is another one each time, while a backlog is
// stored. A message that failed is sent again under its id.
func TestAConditionThatGoesOnIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{answer: []func(*http.Request) (*http.Response, error){says(500), says(200)}, begun: time.Now()}
		n := notifier(webhook(t, hook), &stream{}, io.Discard, a)
		n.o.Conditions = func() []Notice { return []Notice{OfWaiting("l", 3, time.Now().Add(-20*time.Minute), n.o.Console)} }
		during(t, n, 10*time.Minute)
		if len(a.ids) != 2 || a.ids[0] != a.ids[1] {
			t.Errorf("told under the ids %v, want one that fails, and is sent again", a.ids)
		}
	})
}

// TestAWebhookThatTakesWhatFailedTakesNotices, also where another launcher has sent it, or nothing is left to
// send; not where it was dropped.
func TestAWebhookThatTakesWhatFailedTakesNotices(t *testing.T) {
	for name, tt := range map[string]struct {
		then  func(*http.Request) (*http.Response, error) // what the other launcher is answered
		tries int                                         // before
		fails bool
	}{
		"another launcher sends it":       {then: says(200)},
		"another launcher fails, too":     {then: says(503), fails: true},
		"it was dropped by this launcher": {then: says(200), tries: maxTries - 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stream{}
				s.put(review(1))
				s.wait[0].tries = tt.tries
				n := notifier(webhook(t, hook), s, io.Discard, &answers{answer: []func(*http.Request) (*http.Response, error){says(503)}, begun: time.Now()})
				during(t, n, 2*time.Second)
				if n.longestFailing() == 0 {
					t.Fatal("it does not fail")
				}
				other := notifier(webhook(t, hook), s, io.Discard, &answers{answer: []func(*http.Request) (*http.Response, error){tt.then}, begun: time.Now()})
				during(t, other, time.Minute)
				during(t, n, 3*time.Minute)
				if fails := n.longestFailing() > 0; fails != tt.fails {
					t.Errorf("it fails: %v, want %v", fails, tt.fails)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		n := notifier(webhook(t, hook), &stream{}, io.Discard, &answers{answer: []func(*http.Request) (*http.Response, error){says(503)}, begun: time.Now()})
		begun := time.Now()
		n.o.Conditions = func() []Notice {
			if time.Since(begun) > 10*time.Minute {
				return nil
			}
			return []Notice{OfWaiting("l", 3, begun, n.o.Console)}
		}
		during(t, n, 8*time.Minute)
		if n.longestFailing() < 5*time.Minute.Seconds() {
			t.Error("it does not take a condition, and does not fail")
		}
		during(t, n, 8*time.Minute)
		if n.longestFailing() > 0 {
			t.Error("nothing is left to send, and it fails")
		}
	})
}

// TestOnlyWhatAWebhookAsksForIsSent: by the notice's name, and by the profile's.
func TestOnlyWhatAWebhookAsksForIsSent(t *testing.T) {
	lost := Of(lease.Published{Event: lease.Event{Event: string(lease.SuspectedStale), ProfileID: "shop_1", Reason: api.ReasonObserved, LauncherID: "l"}}, "")
	dropped := Of(lease.Published{Event: lease.Event{Event: string(lease.SuspectedStale), ProfileID: "shop_1", Reason: api.ReasonConnectionLost}}, "")
	site := Of(lease.Published{Event: lease.Event{Event: lease.EventSiteChanged, Site: "shop", Principal: "ann"}}, "https://h")
	if site.Link != "https://h/sites/shop" || site.Text != "What is known of site shop was changed by `ann`." {
		t.Errorf("%+v", site)
	}
	asked := Of(lease.Published{Event: lease.Event{Event: lease.EventAsked, ProfileID: "bank"}}, "")
	waits := OfWaiting("l", 1, time.Time{}, "")
	for raw, want := range map[string]string{
		hook:                         "host_lost asked evidence_waits",
		hook + "#event=asked":        "asked",
		hook + "#event=*":            "host_lost suspected_stale asked evidence_waits",
		hook + "#event=s*&event=a*":  "suspected_stale asked",
		hook + "#profile=shop_*":     "host_lost evidence_waits",
		hook + "#profile=b*&event=*": "asked evidence_waits",
	} {
		var got []string
		for _, n := range []Notice{lost, dropped, asked, waits} {
			if webhook(t, raw).wants(n) {
				got = append(got, n.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s gets %v, want %s", raw, got, want)
		}
	}
}

// TestASettingThatCannotWorkIsRefused, without its secret in the error.
func TestASettingThatCannotWorkIsRefused(t *testing.T) {
	for _, raw := range []string{"", "secret-path", "ftp://x/secret-path", "https:///secret-path", "http://[secret-path", hook + "#form=fax", hook + "#events=asked", hook + "#event=[",
		hook + "#event=", hook + "#profile=a/b", "file:///not/there"} {
		if w, err := Parse(raw); err == nil || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%q: %v, %v", raw, w, err)
		}
	}
	for _, content := range []string{"", "short", "whsec_", "whsec_not base64 at all", "whsec_" + base64.StdEncoding.EncodeToString([]byte("short"))} {
		if key, err := Secret([]byte(content)); err == nil {
			t.Errorf("the secret %q is %q, want an error", content, key)
		}
	}
}

// TestTheIDIsTheEvents: an event that a lost stream gets again, at another place, is told under the same id. Another
// event is told under another, also at the same place, or as the same change of a record that went back.
func TestTheIDIsTheEvents(t *testing.T) {
	at := time.Date(2026, 11, 28, 12, 0, 0, 5, time.UTC)
	change := lease.Event{Event: string(lease.ManualReview), ProfileID: "shop.1", Token: 42, Sequence: 7, SessionID: "ses_1", At: at}
	late := lease.Event{Event: lease.EventLateWrite, ProfileID: "shop.1", Token: 42, At: at, Write: "a"}
	id := func(e lease.Event, number uint64) string {
		data, err := lease.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		return Of(lease.Published{Event: e, Data: data, Place: lease.PlaceOf(number, data)}, "http://c").ID
	}
	seen := map[string]lease.Event{}
	for _, e := range []lease.Event{change, late} {
		if a, b := id(e, 4711), id(e, 3); a != b || a == "" || strings.Contains(a, ".") {
			t.Errorf("%s is told under %q and %q", e.Event, a, b)
		}
		seen[id(e, 4711)] = e
	}
	later := change
	later.LastKnownURL, later.At = "https://a.example", at.In(time.FixedZone("", 3600)) // as a later version could write it
	if a, b := id(change, 1), id(later, 1); a != b {
		t.Errorf("one change is told under %q and %q", a, b)
	}
	for i, other := range []func(e *lease.Event){
		func(e *lease.Event) { e.ProfileID = "shop.2" }, func(e *lease.Event) { e.Token++ }, func(e *lease.Event) { e.At = e.At.Add(1) },
		func(e *lease.Event) { e.SessionID = "ses_2" }, func(e *lease.Event) { e.Event = lease.EventAsked },
		func(e *lease.Event) { e.Sequence++ }, func(e *lease.Event) { e.Write = "b" },
	} {
		for _, e := range []lease.Event{change, late} {
			if e.Sequence == 0 && i == 5 || e.Sequence > 0 && i == 6 {
				continue
			}
			other(&e)
			if same, known := seen[id(e, 4711)]; known {
				t.Errorf("%+v and %+v have one id", e, same)
			}
		}
	}
}

// TestWhatIsSentIsSigned, over its id, its time and all of it; and a redirect gets nothing.
func TestWhatIsSentIsSigned(t *testing.T) {
	key, err := Secret([]byte("whsec_" + base64.StdEncoding.EncodeToString([]byte("a key of some 24 bytes..")) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	var header http.Header
	var body []byte
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	n := New(Options{Secret: key, Console: "https://host:9333", Metrics: prometheus.NewRegistry()})
	defer n.client.CloseIdleConnections()
	w := webhook(t, server.URL+"/secret-path")
	_, err = n.post(t.Context(), w, Of(review(7), n.o.Console))
	if err == nil || !strings.Contains(err.Error(), "redirects are not followed") {
		t.Errorf("a redirect is %v", err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", header.Get("webhook-id"), header.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); header.Get("webhook-signature") != want || header.Get("webhook-id") == "" {
		t.Errorf("signed %q, want %q", header, want)
	}
	var got Notice
	if err := json.Unmarshal(body, &got); err != nil || got.Link != "https://host:9333/console/shop" || !bytes.Equal(got.Event, review(7).Data) {
		t.Errorf("sent %s (%v)", body, err)
	}
	elsewhere.Close()
	server.Close()
	if _, err := n.post(t.Context(), w, Of(review(7), "")); err == nil || strings.Contains(err.Error(), "secret-path") {
		t.Errorf("the error shows the URL: %v", err)
	}
}

// TestWordsOfOthersCallNobody: what a worker says stays on one line, is bounded and marked, and is
// no markup of Slack. In a card it stands where Teams takes no markdown: backticks mean nothing there.
func TestWordsOfOthersCallNobody(t *testing.T) {
	for name, want := range map[string]string{lease.EventSignedOut: "is signed out (`GET /me`)", lease.EventAnotherAccount: "with another account (`GET /me`)"} {
		if n := Of(lease.Published{Event: lease.Event{Event: name, ProfileID: "shop", Reason: "GET /me"}}, "https://h"); !strings.Contains(n.Text, want) || !slices.Contains(usual, n.Name) {
			t.Errorf("%s: %s, want %s, to every webhook that names no event", name, n.Text, want)
		}
	}
	n := Of(lease.Published{Event: lease.Event{Event: lease.EventAsked, ProfileID: "shop", Reason: "`<!channel>\n@all " + strings.Repeat("x", 500)}}, "https://h")
	for form, want := range map[string]string{FormText: `{"text":"The worker of profile shop asks for a person, until 0001-01-01T00:00:00Z: ` + "`'&amp;lt;!channel&amp;gt; @all xxx", FormCard: "`'<!channel> @all xxx"} {
		body, err := n.body(form)
		var decoded map[string]any
		if err := errors.Join(err, json.Unmarshal(body, &decoded)); err != nil {
			t.Fatal(err)
		}
		plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&amp;").Replace(string(body))
		if form == FormText {
			plain = strings.ReplaceAll(plain, "&amp;amp;", "&amp;")
		}
		if !strings.Contains(plain, want) || len(body) > 1000 || strings.Count(plain, "`") != 2 {
			t.Errorf("%s: %s, want %s", form, plain, want)
		}
	}
	const link = "[Open the console](https://evil.example) **now** {{{DATE(2026-01-01T00:00:00Z,SHORT)}}"
	n = Of(lease.Published{Event: lease.Event{Event: lease.EventAsked, ProfileID: "shop", Reason: link}}, "https://h")
	body, err := n.body(FormCard)
	var card struct {
		Attachments []struct {
			Content struct {
				Body []struct {
					Type, Text string
					Inlines    []struct{ Type, Text string }
				}
			}
		}
	}
	if err := errors.Join(err, json.Unmarshal(body, &card)); err != nil {
		t.Fatal(err)
	}
	blocks := card.Attachments[0].Content.Body
	if len(blocks) != 1 || blocks[0].Type != "RichTextBlock" || blocks[0].Text != "" || len(blocks[0].Inlines) != 1 || blocks[0].Inlines[0].Type != "TextRun" {
		t.Fatalf("%+v, want a RichTextBlock with one TextRun", blocks)
	}
	if text := blocks[0].Inlines[0].Text; strings.Contains(text, "{{") || !strings.Contains(text, "`[Open the console](https://evil.example) **now** { { {DATE(") {
		t.Errorf("the card says %s", text)
	}
}
