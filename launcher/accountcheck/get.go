package accountcheck

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"leasehold/cdpproxy"
	"leasehold/evidence/redact"
	"leasehold/lease"
)

// maxBody is the size, in bytes, of the largest answer in which the proof is searched.
const maxBody = 8 << 20

const (
	eventPaused = "Fetch.requestPaused"
	eventAuth   = "Fetch.authRequired"
)

// get requests the check's URL in a page of its own. The browser pauses the request before it
// is sent, and the answer before the page gets any of it. Every other request, including a
// redirect, is failed.
func get(ctx context.Context, mux *cdpproxy.Mux, check lease.SessionCheck) Result {
	o, err := mux.Observe(ctx, eventPaused, eventAuth)
	if err != nil {
		return unknown("the browser does not answer: %v", err)
	}
	session, err := openPage(ctx, o)
	if err != nil {
		return unknown("no page could be opened: %v", err)
	}
	o.Post(session, "Page.navigate", map[string]string{"url": check.URL})
	asked := false
	for {
		events, err := o.Next(ctx)
		if err != nil {
			return unknown("the site gave no answer in time: %v", err)
		}
		for _, e := range events {
			var p paused
			if json.Unmarshal(e.Params, &p) != nil {
				continue
			}
			switch {
			case e.Method == eventAuth:
				_ = o.Call(ctx, e.Session, "Fetch.continueWithAuth", map[string]any{"requestId": p.RequestID, "authChallengeResponse": map[string]string{"response": "CancelAuth"}}, nil)
				if p.Challenge.Source == "Proxy" {
					return unknown("the proxy asks for credentials")
				}
				return Result{SignedOut, http.StatusUnauthorized, "the site asks for a user and a password"}
			case !p.answered() && !asked && p.Request.Method == http.MethodGet: // the page was empty, so this is its navigation
				asked = true
				o.Resolve(e.Session, p.RequestID, "Fetch.continueRequest", map[string]any{"requestId": p.RequestID})
			case p.answered() && asked:
				return p.result(ctx, o, e.Session, check)
			default:
				p.fail(o, e.Session)
			}
		}
	}
}

// openPage opens an empty page that runs no script and whose requests are all paused, and
// returns its CDP session.
func openPage(ctx context.Context, o *cdpproxy.Observer) (string, error) {
	var created struct {
		TargetID string `json:"targetId"`
	}
	if err := o.Call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &created); err != nil {
		return "", err
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	if err := o.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": created.TargetID, "flatten": true}, &attached); err != nil {
		return "", err
	}
	for _, c := range []struct {
		method string
		params map[string]any
	}{
		{"Emulation.setScriptExecutionDisabled", map[string]any{"value": true}},
		{"Network.enable", map[string]any{"maxTotalBufferSize": 1, "maxResourceBufferSize": 1}},
		// The site itself has to be asked, not its service worker or a cache.
		{"Network.setBypassServiceWorker", map[string]any{"bypass": true}},
		{"Network.setCacheDisabled", map[string]any{"cacheDisabled": true}},
		{"Fetch.enable", map[string]any{"handleAuthRequests": true, "patterns": []map[string]string{
			{"urlPattern": "*", "requestStage": "Request"}, {"urlPattern": "*", "requestStage": "Response"},
		}}},
	} {
		if err := o.Call(ctx, attached.SessionID, c.method, c.params, nil); err != nil {
			return "", fmt.Errorf("%s: %w", c.method, err)
		}
	}
	return attached.SessionID, nil
}

// paused has the members of Fetch.requestPaused and Fetch.authRequired that are needed.
type paused struct {
	RequestID string `json:"requestId"`
	Request   struct {
		Method string `json:"method"`
	} `json:"request"`
	Status  int    `json:"responseStatusCode"`
	Error   string `json:"responseErrorReason"`
	Headers []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"responseHeaders"`
	Challenge struct {
		Source string `json:"source"`
	} `json:"authChallenge"`
}

// answered tells whether the answer is paused, or there was none.
func (p paused) answered() bool { return p.Status != 0 || p.Error != "" }

func (p paused) fail(o *cdpproxy.Observer, session string) {
	o.Resolve(session, p.RequestID, "Fetch.failRequest", map[string]any{"requestId": p.RequestID, "errorReason": "BlockedByClient"})
}

func (p paused) header(name string) string {
	for _, h := range p.Headers {
		if strings.EqualFold(h.Name, name) {
			return h.Value
		}
	}
	return ""
}

// result judges the answer. The page never gets it.
func (p paused) result(ctx context.Context, o *cdpproxy.Observer, session string, check lease.SessionCheck) Result {
	defer p.fail(o, session)
	if p.Error != "" {
		return unknown("the site could not be reached: %s", p.Error)
	}
	a := answer{status: p.Status, location: p.header("Location")}
	if check.Text != "" && p.Status == check.WantStatus() {
		if n, err := strconv.Atoi(p.header("Content-Length")); err == nil && n > maxBody {
			return unknown("the answer of %d bytes is too large to be searched", n)
		}
		var body struct {
			Body    string `json:"body"`
			Encoded bool   `json:"base64Encoded"`
		}
		if err := o.Call(ctx, session, "Fetch.getResponseBody", map[string]string{"requestId": p.RequestID}, &body); err != nil {
			return unknown("the answer could not be read: %v", err)
		}
		a.body = []byte(body.Body)
		if body.Encoded {
			var err error
			if a.body, err = base64.StdEncoding.DecodeString(body.Body); err != nil {
				return unknown("the answer could not be read: %v", err)
			}
		}
	}
	return judge(check, a)
}

// answer is what a site answered.
type answer struct {
	status   int
	location string // of a redirect
	body     []byte // read only if it matters
}

// judge tells what an answer proves.
func judge(check lease.SessionCheck, a answer) Result {
	r := Result{Answer: SignedOut, Status: a.status, How: fmt.Sprintf("GET %s was answered %d", redact.URL(check.URL), a.status)}
	switch want := check.WantStatus(); {
	case a.status == want && bytes.Contains(a.body, []byte(check.Text)):
		r.Answer = SignedIn
		if check.Text != "" {
			r.How += ", with the text that proves it"
		}
	case a.status == want:
		r.How += ", without the text that proves that the account is signed in"
	case a.status == http.StatusTooManyRequests || a.status == http.StatusRequestTimeout || a.status >= 500:
		r.Answer = Unknown
		r.How += ": the site has troubles of its own"
	case a.location != "":
		r.How += fmt.Sprintf(", a redirect to %s; want %d", redact.URL(resolved(check.URL, a.location)), want)
	default:
		r.How += fmt.Sprintf("; want %d", want)
	}
	return r
}

func resolved(base, location string) string {
	b, err := url.Parse(base)
	if err != nil {
		return ""
	}
	u, err := b.Parse(location)
	if err != nil {
		return ""
	}
	return u.String()
}
