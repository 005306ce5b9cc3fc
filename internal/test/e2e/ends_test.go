package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/test/clients"
	"leasehold/internal/test/natstest"
	"leasehold/lease"
)

const identity = "worker=worker-7&task=task_1"

// browserOf returns the pid of a profile's main Chrome process.
func (s *sidecar) browserOf(t *testing.T, profile string) int {
	t.Helper()
	pid := s.anyBrowserOf(t, profile)
	if pid == 0 {
		t.Fatalf("profile %s has no browser", profile)
	}
	return pid
}

// watched is a session with three connections: a plain one, Playwright and Puppeteer,
// each with a command in flight.
type watched struct {
	*socket
	pending    int
	playwright *clients.Client
	puppeteer  *clients.Client
}

// forever is an expression that never returns, and shows in its tab's title that it has
// arrived.
const forever = "document.title = 'asked'; new Promise(() => {})"

func (s *sidecar) watch(t *testing.T, profile string, withClients bool) watched {
	t.Helper()
	w := watched{socket: dial(t, s.socket(profile, identity))}
	page, _ := w.page(t, "about:blank", "")
	inFlight := map[string]any{"expression": forever, "awaitPromise": true}
	w.pending = w.send(t, page, "Runtime.evaluate", inFlight)
	asked := 1
	if withClients {
		asked = 3
		w.playwright = clients.Start(t, clients.Playwright, s.socket(profile, identity), clients.Interactive)
		w.puppeteer = clients.Start(t, clients.Puppeteer, s.socket(profile, identity), clients.Interactive)
		for _, c := range []*clients.Client{w.playwright, w.puppeteer} {
			c.Expect(t, "connect")
			c.Do(t, act("newPage"))
		}
		// Playwright's page.evaluate says "Execution context was destroyed" for every
		// error, so its CDP session is used, which shows the answer.
		w.playwright.Send(t, cdp("Runtime.evaluate", inFlight))
		w.puppeteer.Send(t, act("evaluate", "expression", forever))
	}
	eventually(t, "the commands in flight to arrive", func() error {
		var r struct{ TargetInfos []struct{ Title string } }
		w.call(t, "", "Target.getTargets", nil, &r)
		n := 0
		for _, target := range r.TargetInfos {
			if target.Title == "asked" {
				n++
			}
		}
		if n != asked {
			return fmt.Errorf("%d of %d", n, asked)
		}
		return nil
	})
	return w
}

// beat sends heartbeats for the profile's session until stop is called.
func (s *sidecar) beat(t *testing.T, profile string) (stop func()) {
	t.Helper()
	r := s.record(t, profile)
	ended := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		for {
			body := strings.NewReader(fmt.Sprintf(`{"lease_token":%d}`, r.Token))
			if resp, err := http.Post(s.URL+"/v1/sessions/"+r.SessionID+"/heartbeat", "application/json", body); err != nil {
				t.Errorf("heartbeat: %v", err)
			} else {
				_ = resp.Body.Close()
			}
			select {
			case <-ended:
				return
			case <-time.After(time.Second):
			}
		}
	})
	return func() {
		close(ended)
		beating.Wait()
	}
}

// over checks what each connection learns of the end. Commands in flight get an error with the
// reason, which clients show to their users.
func (w watched) over(t *testing.T, code int, reason string) {
	t.Helper()
	gotCode, gotReason := w.ended(t)
	if gotCode != code || !strings.Contains(gotReason, reason) {
		t.Errorf("close code %d %q, want %d with %q", gotCode, gotReason, code, reason)
	}
	if m := w.answer(t, w.pending); m.Error == nil || !strings.Contains(m.Error.Message, reason) {
		t.Errorf("the command in flight got %+v, want an error with %q", m.Error, reason)
	}
	if w.playwright == nil {
		return
	}
	for _, c := range []struct {
		name  string
		after *regexp.Regexp // the client's error for all later commands
		*clients.Client
	}{
		{"Playwright", regexp.MustCompile("Target page, context or browser has been closed"), w.playwright},
		{"Puppeteer", regexp.MustCompile("detached Frame|Target closed|Session closed|Execution context was destroyed"), w.puppeteer},
	} {
		if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, reason) {
			t.Errorf("%s shows %+v, %v; want %q", c.name, line, err, reason)
		}
		c.Send(t, act("evaluate", "expression", "1"))
		if line, err := c.Next(); err != nil || line.OK || !c.after.MatchString(line.Error) {
			t.Errorf("%s shows %+v, %v afterwards; want %q", c.name, line, err, c.after)
		}
	}
}

// TestFencedAndExpired: a session ends by its worker, because of a higher token in the store, or
// because the store cannot be reached. Its clients get the right close code and reason, and those
// that use the domain its events before. launcher/session.TestEndings goes through every way. While
// the store is away nothing is granted, and what is known is shown; afterwards all goes on.
func TestFencedAndExpired(t *testing.T) {
	t.Parallel()
	n := startNATS(t)
	s := start(t, n.args()...)
	released := s.watch(t, "released", true)
	released.call(t, "", "Lease.release", map[string]any{"outcome": "succeeded", "reason": "done"}, nil)
	released.over(t, 1000, "the session ended: done")
	if r := s.until(t, "released", lease.Available); r.Reason != "done" {
		t.Errorf("the record says %s, want done", r.Reason)
	}
	fenced := s.watch(t, "fenced", false)
	expired := s.watch(t, "expired", false)
	for _, w := range []watched{fenced, expired} {
		w.call(t, "", "Lease.getLease", nil, nil) // a client that uses the domain gets its events
	}

	supersede(t, n.url(), "fenced")
	fenced.over(t, 4409, "token 1 superseded by 2")
	fenced.event(t, "Lease.leaseLost", nil)

	held := s.record(t, "expired")
	n.stop()
	s.knowsWhileNATSIsAway(t, held)
	expired.over(t, 4408, "lease expired")
	var warning struct {
		Token   lease.Token `json:"lease_token"`
		Seconds float64     `json:"seconds"`
	}
	if expired.event(t, "Lease.leaseExpiring", &warning); warning.Token != 1 || warning.Seconds <= 0 {
		t.Errorf("leaseExpiring: %+v", warning)
	}
	var lost struct {
		Token  lease.Token `json:"lease_token"`
		Reason string      `json:"reason"`
	}
	if expired.event(t, "Lease.leaseLost", &lost); lost.Token != 1 || !strings.Contains(lost.Reason, "lease expired") {
		t.Errorf("leaseLost: %+v", lost)
	}
	n.start(t)
	if r := s.until(t, "expired", lease.Available, lease.ManualReview); r.Reason != "lease_lost" || !r.StaleSince.IsZero() || r.Token != held.Token+1 || r.EvidenceID == "" {
		t.Errorf("the record is %+v, want lease_lost, with evidence, under token %d", r, held.Token+1)
	}
	s.screenshot(t, "expired")
	eventually(t, "a grant", func() error {
		var answer map[string]any
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "other", "create": true}, &answer); code != 201 {
			return fmt.Errorf("%d %v", code, answer)
		}
		return nil
	})
}

// supersede writes a record with a higher token, as another launcher would do.
func supersede(t *testing.T, natsURL, profile string) {
	t.Helper()
	nc := natstest.Connect(t, natsURL)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "leasehold_leases")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a write that no renewal came before", func() error {
		entry, err := kv.Get(t.Context(), profile)
		if err != nil {
			return err
		}
		var record map[string]any
		if err := json.Unmarshal(entry.Value(), &record); err != nil {
			return err
		}
		record["lease_token"] = record["lease_token"].(float64) + 1
		b, err := json.Marshal(record)
		if err != nil {
			return err
		}
		_, err = kv.Update(t.Context(), profile, b, entry.Revision())
		return err
	})
}
