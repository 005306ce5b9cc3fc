package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/internal/test/clients"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// newSignIn has a form whose fields do not say in their address what they are for.
func newSignIn(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><title>shop</title><form method=post action=/enter>
<input id=a type=email><input id=b type=password><input id=c><button>go</button></form>`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// whatWasSentWasTyped: a worker fills three fields, sends them, and is lost. The document
// is gone with what was typed; a person sees into which kinds of fields it was, in order, and
// nothing of the text.
func whatWasSentWasTyped(t *testing.T, s *sidecar) {
	shop := newSignIn(t)
	const mail, password, card = "pl4nted@mail.example", "pl4nted-password", "4111111111111111"
	c := clients.Start(t, clients.Playwright, s.oneShot("buyer", "worker=w&task=t"), clients.Interactive)
	c.Expect(t, "connect")
	c.Do(t, act("goto", "url", shop+"/sign-in"))
	c.Do(t, act("fill", "selector", "#a", "text", "before@mail.example"))
	// The script may be given its function late, and tell then: after the checkpoint.
	s.noted(t, "buyer", "the first mail address", 1, func(e checkpoint.Entry) bool { return e.Kind == checkpoint.KindTyped })
	c.Do(t, clients.Action{"action": "cdp", "method": "Lease.checkpoint", "params": map[string]any{"name": "begun"}})
	c.Do(t, act("fill", "selector", "#a", "text", mail))
	c.Do(t, act("fill", "selector", "#b", "text", password))
	c.Do(t, act("fill", "selector", "#c", "text", card))
	c.Do(t, act("click", "selector", "button"))
	s.noted(t, "buyer", "the answer", 1, hasAnswer("/enter"))
	c.Kill()
	s.until(t, "buyer", lease.ManualReview)

	want := []string{"typed mail_address", "checkpoint begun", "typed mail_address", "typed password", "typed card", "request"}
	var told []string
	for _, e := range s.journal(t, "buyer") {
		switch e.Kind {
		case checkpoint.KindTyped:
			if told = append(told, "typed "+e.Name); e.URL != shop+"/sign-in" || e.Target == "" || e.Person != "" {
				t.Errorf("%+v", e)
			}
		case checkpoint.KindCheckpoint:
			told = append(told, "checkpoint "+e.Name)
		case checkpoint.KindRequest:
			told = append(told, "request")
		}
	}
	if !slices.Equal(told, want) {
		t.Errorf("the journal has %q, want %q", told, want)
	}
	var found api.Inspection
	if code := s.call(t, "GET", "/v1/profiles/buyer/inspection", nil, &found); code != 200 || len(found.Typed) != 4 || found.Typed[0].SinceSafeCheckpoint || !found.Typed[1].SinceSafeCheckpoint {
		t.Errorf("inspection: %d, typed %+v", code, found.Typed)
	}

	m := s.bundle(t, "buyer")
	shown := map[string]string{}
	for _, p := range m.Parts {
		var raw []byte
		if p.Missing == "" {
			s.part(t, m, p.Name, &raw)
			shown[p.Name] = string(raw)
		}
	}
	var raw []byte
	for _, format := range []string{"html", "har"} {
		if code := s.call(t, "GET", "/v1/evidence/"+m.EvidenceID+"/export?format="+format, nil, &raw); code != 200 {
			t.Errorf("export as %s: %d", format, code)
		}
		shown[format] = string(raw)
	}
	if code := s.call(t, "GET", "/console/buyer", nil, &raw); code != 200 {
		t.Errorf("the review page: %d", code)
	}
	shown["console"] = string(raw)
	out, errs, code := s.cli(t, "show", "buyer")
	if code != 0 {
		t.Errorf("show: %d %s", code, errs)
	}
	shown["show"] = out
	logged, err := os.ReadFile(filepath.Join(s.Dir, "stderr.log"))
	if err != nil {
		t.Fatal(err)
	}
	shown["log"] = string(logged)
	for what, text := range shown {
		for _, typed := range []string{mail, password, card, "before@mail.example"} {
			if strings.Contains(text, typed) {
				t.Errorf("%s has %q", what, typed)
			}
		}
	}
	for _, what := range []string{"html", "console", "show"} {
		rest := strings.ReplaceAll(shown[what], "&#39;", "'")
		for _, words := range []string{"a mail address", "a password", "a card's number or code"} {
			_, after, ok := strings.Cut(rest, words)
			if !ok {
				t.Errorf("%s does not tell of %s in its place", what, words)
				break
			}
			rest = after
		}
	}
	if !strings.Contains(shown["console"], "POST "+shop+"/enter") {
		t.Error("the review page does not tell of the request")
	}
}
