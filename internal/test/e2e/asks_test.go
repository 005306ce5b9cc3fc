package e2e

import (
	"bytes"
	"fmt"
	"image"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"leasehold/evidence"
	"leasehold/lease"
)

// askingSite has pages that ask for what only a person may give, on hosts of two sites.
func askingSite(t *testing.T) (site, other string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		switch r.URL.Path {
		case "/mauzo": // a frame with a card's fields
			_, other := hosts(r.Host)
			_, _ = fmt.Fprintf(w, `<!doctype html><title>mauzo</title><h1>Malipo</h1><iframe width=300 height=100 src="%s/karte"></iframe>`, other)
		case "/karte":
			_, _ = io.WriteString(w, `<!doctype html><input id=number autocomplete=cc-number>`)
		case "/koodi":
			_, _ = io.WriteString(w, `<!doctype html><title>koodi</title><p>Anna koodi</p><form method=post><input inputmode=numeric maxlength=6><button>Jatka</button></form>`)
		case "/lukko":
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `<!doctype html><title>401</title>401`)
		default:
			_, _ = io.WriteString(w, `<!doctype html><title>uutiset</title><h1>Uutiset</h1><a href=/1>1</a><p>Ei mitään</p>`)
		}
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return hosts("x:" + u.Port())
}

// hosts are the URLs of two sites on the port of a host.
func hosts(host string) (site, other string) {
	_, port, _ := strings.Cut(host, ":")
	return "http://duka.localhost:" + port, "http://benki.localhost:" + port
}

// whatPagesAskFor: each of several open pages asks for something, and a frame
// of another site has what was typed and not sent. A person decides, and sees it in the
// evidence.
func whatPagesAskFor(t *testing.T, s *sidecar) {
	const card = "4111111111111111"
	site, other := askingSite(t)
	c := dial(t, s.socket("asked", "worker=w&task=t"))
	c.visit(t, site+"/koodi")
	locked, _ := c.page(t, "about:blank", "")
	var refused struct{ ErrorText string }
	if c.call(t, locked, "Page.navigate", map[string]any{"url": site + "/lukko"}, &refused); refused.ErrorText == "" {
		t.Error("somebody gave the password")
	}
	session, _ := c.visit(t, site+"/uutiset")
	c.call(t, session, "Network.enable", nil, nil)
	c.call(t, session, "Network.emulateNetworkConditions", map[string]any{"offline": true, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}, nil)
	session, target := c.visit(t, site+"/mauzo")
	var targets struct {
		TargetInfos []struct{ TargetID, Type, ParentFrameID string }
	}
	eventually(t, "the frame of the other site", func() error {
		c.call(t, "", "Target.getTargets", nil, &targets)
		targets.TargetInfos = slices.DeleteFunc(targets.TargetInfos, func(i struct{ TargetID, Type, ParentFrameID string }) bool {
			return i.Type != "iframe" || i.ParentFrameID != target
		})
		if len(targets.TargetInfos) != 1 {
			return fmt.Errorf("%d frames of %s on %s", len(targets.TargetInfos), other, session)
		}
		return nil
	})
	frame := c.attach(t, targets.TargetInfos[0].TargetID)
	eventually(t, "the card's field", func() error {
		if got := c.evaluate(t, frame, `document.querySelector("#number")?.focus(), document.activeElement.id`); got != `"number"` {
			return fmt.Errorf("%s has the focus", got)
		}
		return nil
	})
	c.call(t, frame, "Input.insertText", map[string]any{"text": card}, nil)
	c.drop()
	r := s.until(t, "asked", lease.Available, lease.ManualReview)
	answers, how := s.inspection(t, "asked")
	for name, want := range map[string]string{
		"pages_looked_at": "yes", "code_asked_for": "yes", "http_authentication_asked_for": "yes", "offline_emulation_on": "yes", "secret_input_unsent": "yes",
		"password_asked_for": "no", "challenge_shown": "no", "consent_asked_for": "no", "notice_blocks_page": "no", "dialog_waits_for_answer": "no", "writes_waiting_in_profile": "no",
	} {
		if answers[name] != want {
			t.Errorf("%s: %q (%s), want %s", name, answers[name], how[name], want)
		}
	}
	if r.Decision != "manual_review" || !strings.Contains(fmt.Sprint(r.Reasons), "code") {
		t.Errorf("%s %q", r.Decision, r.Reasons)
	}
	var b bundles
	s.call(t, "GET", "/v1/profiles/asked/evidence", nil, &b)
	parts := map[string][]byte{}
	for _, p := range b.Items[0].Parts {
		if p.Kind == evidence.KindDetail || p.Kind == evidence.KindLook {
			var raw []byte
			s.call(t, "GET", "/v1/evidence/"+b.Items[0].EvidenceID+"/"+p.Name, nil, &raw)
			parts[p.Name] = raw
		}
	}
	if _, _, err := image.Decode(bytes.NewReader(parts["fact-code_asked_for.jpg"])); err != nil {
		t.Errorf("the picture of the field for the code: %v, among %d parts", err, len(parts))
	}
	if look := string(parts["look.json"]); !strings.Contains(look, "code_asked_for") || strings.Contains(look, card[:6]) { // which is longer than the port in an address
		t.Errorf("look.json: %s", look)
	}
}
