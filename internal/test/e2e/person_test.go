package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"leasehold/internal/test/clients"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// handed is a session as far as persons are concerned.
type handed struct {
	Person *api.Person `json:"person"`
	Ask    *api.Ask    `json:"ask"`
}

// hand has a person take a session over, or hand it back.
func (s *sidecar) hand(t *testing.T, ses twoStep, what string, more map[string]any) handed {
	t.Helper()
	body := map[string]any{"lease_token": ses.Token}
	for k, v := range more {
		body[k] = v
	}
	var now handed
	if code := s.call(t, "POST", "/v1/sessions/"+ses.SessionID+"/"+what, body, &now); code != 200 {
		t.Fatalf("%s: status %d", what, code)
	}
	return now
}

func (s *sidecar) handed(t *testing.T, ses twoStep) (now handed) {
	t.Helper()
	if code := s.call(t, "GET", "/v1/sessions/"+ses.SessionID, nil, &now); code != 200 {
		t.Fatalf("session: status %d", code)
	}
	return now
}

// asksFor waits until the session's worker asks for a person.
func (s *sidecar) asksFor(t *testing.T, ses twoStep, reason string) {
	t.Helper()
	eventually(t, "the worker asks", func() error {
		if a := s.handed(t, ses).Ask; a == nil || a.Reason != reason {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
}

// refusedTo has a client try what is the person's now.
func refusedTo(t *testing.T, c *clients.Client, a clients.Action) {
	t.Helper()
	c.Send(t, a)
	line, err := c.Next()
	if err != nil || line.OK || !strings.Contains(line.Error, "Ann has taken over") {
		t.Errorf("%v: %+v, %v", a, line, err)
	}
}

// TestAPersonInTheLoop: two workers ask for a person. One is answered; the other goes on with its
// person after the launcher was killed, and is killed itself while the person has its session.
func TestAPersonInTheLoop(t *testing.T) {
	t.Parallel()
	s, web := start(t, "--reconnect-grace", "10s", "--person-grace", "10s"), newSite(t)

	t.Run("playwright", func(t *testing.T) {
		ses := s.open(t, "one", nil)
		c := clients.Start(t, clients.Playwright, ses.CDPURL, clients.Interactive)
		c.Expect(t, "connect")
		c.Do(t, act("goto", "url", web.URL+"/code"))
		stay := s.attends(t, ses)
		s.hand(t, ses, "take-over", map[string]any{"person": "Ann"})
		refusedTo(t, c, act("goto", "url", web.URL+"/elsewhere"))
		refusedTo(t, c, act("newPage"))
		if got := evaluate(t, c, "document.title"); !strings.Contains(got, "code") {
			t.Errorf("what is read: %q", got)
		}
		c.Send(t, clients.Action{"action": "cdp", "method": "Lease.askPerson", "params": map[string]any{"reason": "the code", "wait": "1m"}})
		s.asksFor(t, ses, "the code")
		s.hand(t, ses, "hand-back", map[string]any{"note": "typed it", "data": map[string]int{"code": 7}})
		stay()
		var answer api.Answer
		if err := json.Unmarshal(c.Expect(t, "cdp"), &answer); err != nil || !answer.Answered || answer.By != "Ann" || answer.Note != "typed it" || string(answer.Data) != `{"code":7}` {
			t.Errorf("%+v, %v", answer, err)
		}
		c.Do(t, act("click", "selector", "button"))
		c.Do(t, act("goto", "url", web.URL+"/on"))
		c.Do(t, act("disconnect"))
		s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil)
		if got := names(s.events(t, "one")); got != "granted taken asked handed_back released" {
			t.Errorf("history: %s", got)
		}
	})

	t.Run("raw", func(t *testing.T) {
		ses := s.open(t, "three", nil)
		c := dial(t, ses.CDPURL)
		c.page(t, web.URL+"/consent", "")
		s.attends(t, ses)
		s.hand(t, ses, "take-over", map[string]any{"person": "Ann"})
		c.send(t, "", "Lease.askPerson", map[string]any{"reason": "consent"})
		s.asksFor(t, ses, "consent")
		s.kill(t)
		s.launch(t)
		if now := s.handed(t, ses); now.Person == nil || now.Person.Name != "Ann" {
			t.Errorf("after the launcher was killed: %+v", now)
		}
		s.attends(t, ses)
		again := dial(t, s.here(t, ses.CDPURL))
		if err := again.fails(t, "", "Target.createTarget", map[string]string{"url": web.URL}); !strings.Contains(err.Message, "Ann has taken over") {
			t.Errorf("%+v", err)
		}
		again.call(t, "", "Target.getTargets", nil, nil)
		below, _, _ := strings.Cut(ses.CDPURL[strings.Index(ses.CDPURL, "/s/"):], "/devtools/")
		var refused api.Problem
		if code := s.call(t, "PUT", below+"/json/new?about:blank", nil, &refused); code != 409 || refused.Code != api.CodeTakenOver {
			t.Errorf("/json/new: %d %v", code, refused)
		}
		if code := s.call(t, "GET", below+"/json/list", nil, nil); code != 200 {
			t.Errorf("/json/list: %d", code)
		}
		again.send(t, "", "Lease.askPerson", map[string]any{"reason": "consent again"})
		s.asksFor(t, ses, "consent again")
		again.drop()
		s.until(t, "three", lease.ManualReview)
		if answers, how := s.inspection(t, "three"); answers["person_had_session"] != "yes" || !strings.Contains(how["person_had_session"], "Ann") || answers["person_acted"] != "no" {
			t.Errorf("%s (%s), %s", answers["person_had_session"], how["person_had_session"], answers["person_acted"])
		}
		journal := s.journal(t, "three")
		var told []string
		for _, e := range journal {
			if e.Kind == "person" {
				told = append(told, e.Name+" "+e.Person+e.Text)
			}
		}
		if want := []string{"taken Ann", "asked consent", "asked consent again", "unanswered withdrawn"}; !slices.Equal(told, want) {
			t.Errorf("the journal has %q", told)
		}
	})
}

// attends opens the view of a session, which closes with the test, or when leave is called.
func (s *sidecar) attends(t *testing.T, ses twoStep) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	view, _, _, err := ws.Dial(ctx, "ws"+strings.TrimPrefix(s.URL, "http")+"/v1/sessions/"+ses.SessionID+"/view")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = view.Close() }) // it may be closed already
	return func() { _ = view.Close() }
}
