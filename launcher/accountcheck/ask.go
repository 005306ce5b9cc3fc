package accountcheck

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint/ledger"
	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
	"leasehold/evidence/redact"
	"leasehold/launcher/recovery/findings"
	"leasehold/lease"
)

// Bounds of what is read of an answer. An answer that is larger is not read to its end.
const (
	// maxBody is the size, in bytes, of the largest answer in which the proof of a session check is
	// searched.
	maxBody = 8 << 20
	// maxAnswer is that of an answer to a question.
	maxAnswer = 1 << 20
	chunk     = 256 << 10
)

const (
	eventPaused = "Fetch.requestPaused"
	eventAuth   = "Fetch.authRequired"
)

// reply is what a site answered to one GET.
type reply struct {
	status   int
	location string // of a redirect, which is not followed
	body     []byte
	problem  string // why there is no answer, or none that was read; empty: there is one
	// challenged says that the site asks for a user and a password.
	challenged bool
}

func none(format string, args ...any) reply { return reply{problem: fmt.Sprintf(format, args...)} }

// get asks for a URL by GET in a page that openPage opened. The browser pauses the
// request before it is sent, and the answer before the page gets any of it. Every other request,
// including a redirect, is failed. Of an answer with the status, at most most bytes are read; of any
// other none. A page that has a problem can ask for nothing more.
func get(ctx context.Context, p page, ask site.Ask, status, most int) reply {
	headers := map[string]string{}
	for name, value := range ask.Headers {
		headers[name] = value
	}
	if ask.Bearer != "" {
		kept, err := p.stored(ctx, shape.OriginOf(ask.URL), ask.Bearer)
		if err != nil {
			return none("%v", err)
		}
		if token := ask.Token(kept); token != "" { // without it, the site answers as somebody who is signed out
			headers["Authorization"] = "Bearer " + token
		}
	}
	return p.get(ctx, ask.URL, headers, status, most)
}

// page is a page of the launcher's own. Those that ask are hidden from everybody else, run no script, and
// all their requests are paused.
type page struct {
	o               *cdpproxy.Observer
	session, target string
	hidden          bool
}

// command is one with which a page is made ready.
type command struct {
	method string
	params map[string]any
}

func openPage(ctx context.Context, o *cdpproxy.Observer) (page, error) {
	return newPage(ctx, o, true, []command{
		{"Emulation.setScriptExecutionDisabled", map[string]any{"value": true}},
		{"Network.enable", map[string]any{"maxTotalBufferSize": 1, "maxResourceBufferSize": 1}},
		// The site itself has to be asked, not its service worker or a cache.
		{"Network.setBypassServiceWorker", map[string]any{"bypass": true}},
		{"Network.setCacheDisabled", map[string]any{"cacheDisabled": true}},
		{"Fetch.enable", map[string]any{"handleAuthRequests": true, "patterns": []map[string]string{
			{"urlPattern": "*", "requestStage": "Request"}, {"urlPattern": "*", "requestStage": "Response"},
		}}},
	})
}

// newPage opens an empty page, and makes it ready.
func newPage(ctx context.Context, o *cdpproxy.Observer, hidden bool, commands []command) (page, error) {
	create := o.CreatePage
	if hidden {
		create = o.CreateHidden
	}
	p := page{o: o, hidden: hidden}
	var err error
	if p.target, err = create(ctx); err != nil {
		if p.target != "" {
			p.close()
		}
		return page{}, err
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	err = o.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": p.target, "flatten": true}, &attached)
	p.session = attached.SessionID
	for _, c := range commands {
		if err == nil {
			if err = o.Call(ctx, p.session, c.method, c.params, nil); err != nil {
				err = fmt.Errorf("%s: %w", c.method, err)
			}
		}
	}
	if err != nil {
		p.close()
	}
	return p, err
}

// closeTimeout bounds the close of a page. A page that does not close ends with its browser.
const closeTimeout = 2 * time.Second

func (p page) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if p.hidden {
		_ = p.o.CloseHidden(ctx, p.target)
		return
	}
	_ = p.o.Call(ctx, "", "Target.closeTarget", map[string]string{"targetId": p.target}, nil)
}

// navigate goes to a URL, and has decide end the pauses of the request for it: it returns true once
// the answer is paused that the caller waits for. Whatever else is asked for, such as the icon of a
// page that was there before, fails.
func (p page) navigate(ctx context.Context, to string, decide func(paused) (done bool)) error {
	p.o.Post(p.session, "Page.navigate", map[string]string{"url": to})
	for {
		events, err := p.o.Next(ctx)
		if err != nil {
			return err
		}
		done := false
		for _, e := range events {
			var r paused
			if e.Session != p.session || json.Unmarshal(e.Params, &r) != nil {
				continue
			}
			r.auth = e.Method == eventAuth
			if r.Type != document {
				p.fail(r)
				continue
			}
			done = decide(r) || done
		}
		if done {
			return nil
		}
	}
}

// get asks for the URL.
func (p page) get(ctx context.Context, address string, headers map[string]string, status, most int) (answer reply) {
	asked := false
	err := p.navigate(ctx, address, func(r paused) bool {
		switch {
		case r.auth:
			_ = p.o.Call(ctx, p.session, "Fetch.continueWithAuth", map[string]any{"requestId": r.RequestID, "authChallengeResponse": map[string]string{"response": "CancelAuth"}}, nil)
			answer = reply{status: http.StatusUnauthorized, challenged: true}
			if r.Challenge.Source == "Proxy" {
				answer = none("the proxy asks for credentials")
			}
			return true
		case !r.answered() && !asked && r.Request.Method == http.MethodGet:
			asked = true
			p.o.Resolve(p.session, r.RequestID, "Fetch.continueRequest", map[string]any{"requestId": r.RequestID, "headers": r.with(headers)})
			return false
		case r.answered() && asked && answer.status == 0 && answer.problem == "":
			answer = p.read(ctx, r, status, most)
			return true
		}
		p.fail(r)
		return false
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		return none("the site gave no answer in time: %v", err)
	}
	return answer
}

// stored is what an origin keeps under a name in its local storage. The page is at the origin for
// that, with an empty document that the launcher answers itself: nothing is sent.
func (p page) stored(ctx context.Context, origin, name string) (string, error) {
	given := false
	err := p.navigate(ctx, origin+"/", func(r paused) bool {
		if given || r.answered() || r.auth {
			p.fail(r)
			return false
		}
		given = true
		p.o.Resolve(p.session, r.RequestID, "Fetch.fulfillRequest", map[string]any{
			"requestId": r.RequestID, "responseCode": http.StatusOK,
			"responseHeaders": []header{{"Content-Type", "text/html"}, {"Cache-Control", "no-store"}},
		})
		return true
	})
	var items struct {
		Entries [][]string `json:"entries"`
	}
	for err == nil {
		// The page is there a moment after it was answered.
		var frames struct {
			FrameTree struct {
				Frame struct {
					URL string `json:"url"`
				} `json:"frame"`
			} `json:"frameTree"`
		}
		if err = p.o.Call(ctx, p.session, "Page.getFrameTree", nil, &frames); err == nil && frames.FrameTree.Frame.URL == origin+"/" {
			break
		}
	}
	if err == nil {
		err = p.o.Call(ctx, p.session, "DOMStorage.getDOMStorageItems", map[string]any{"storageId": map[string]any{"securityOrigin": origin, "isLocalStorage": true}}, &items)
	}
	if err != nil {
		return "", fmt.Errorf("the local storage of %s could not be read: %w", origin, err)
	}
	for _, item := range items.Entries {
		if len(item) == 2 && item[0] == name {
			return item[1], nil
		}
	}
	return "", nil
}

// document is the type of the request of a navigation.
const document = "Document"

func (p page) fail(r paused) {
	if r.auth {
		return
	}
	p.o.Resolve(p.session, r.RequestID, "Fetch.failRequest", map[string]any{"requestId": r.RequestID, "errorReason": "BlockedByClient"})
}

type header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// paused has the members of Fetch.requestPaused and Fetch.authRequired that are needed.
type paused struct {
	RequestID string `json:"requestId"`
	Request   struct {
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
	} `json:"request"`
	Type      string   `json:"resourceType"`
	Status    int      `json:"responseStatusCode"`
	Error     string   `json:"responseErrorReason"`
	Headers   []header `json:"responseHeaders"`
	Challenge struct {
		Source string `json:"source"`
	} `json:"authChallenge"`
	auth bool
}

// answered tells whether the answer is paused, or there was none.
func (r paused) answered() bool { return r.Status != 0 || r.Error != "" }

// with are the request's headers with others in their places.
func (r paused) with(others map[string]string) (all []header) {
	for name, value := range r.Request.Headers {
		if _, set := named(others, name); !set {
			all = append(all, header{name, value})
		}
	}
	for name, value := range others {
		all = append(all, header{name, value})
	}
	return all
}

func named(headers map[string]string, name string) (string, bool) {
	for n, value := range headers {
		if strings.EqualFold(n, name) {
			return value, true
		}
	}
	return "", false
}

func (r paused) header(name string) string {
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, name) {
			return h.Value
		}
	}
	return ""
}

// read reads the answer. The page never gets it.
func (p page) read(ctx context.Context, r paused, status, most int) reply {
	defer p.fail(r)
	if r.Error != "" {
		return none("the site could not be reached: %s", r.Error)
	}
	a := reply{status: r.Status, location: r.header("Location")}
	if r.Status != status || most == 0 {
		return a
	}
	if n, err := strconv.Atoi(r.header("Content-Length")); err == nil && n > most {
		return none("the answer of %d bytes is too large to be searched", n)
	}
	var body struct {
		Stream string `json:"stream"`
	}
	err := p.o.Call(ctx, p.session, "Fetch.takeResponseBodyAsStream", map[string]string{"requestId": r.RequestID}, &body)
	for err == nil {
		var part struct {
			Data    string `json:"data"`
			Encoded bool   `json:"base64Encoded"`
			EOF     bool   `json:"eof"`
		}
		err = p.o.Call(ctx, p.session, "IO.read", map[string]any{"handle": body.Stream, "size": chunk}, &part)
		data := []byte(part.Data)
		if err == nil && part.Encoded {
			data, err = base64.StdEncoding.DecodeString(part.Data)
		}
		a.body = append(a.body, data...)
		switch {
		case len(a.body) > most:
			return none("the answer is larger than %d bytes, and was not read to its end", most)
		case part.EOF && err == nil:
			return a
		}
	}
	if ctx.Err() != nil {
		return none("the answer did not come to its end in time")
	}
	return none("the answer could not be read: %v", err)
}

// troubled tells whether a status says that the site has troubles of its own.
func troubled(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500
}

// told is the beginning of a sentence about an answer.
func (a reply) told(address string) string {
	return fmt.Sprintf("GET %s was answered %d", redact.URL(address), a.status)
}

// redirected is the end of a sentence about an answer that is a redirect.
func (a reply) redirected(address string) string {
	return ", a redirect to " + redact.URL(resolved(address, a.location))
}

// judgeSession tells what an answer proves about the session.
func judgeSession(check lease.SessionCheck, a reply) Result {
	switch {
	case a.problem != "":
		return unknown("%s", a.problem)
	case a.challenged:
		return Result{SignedOut, a.status, "the site asks for a user and a password"}
	}
	r := Result{Answer: SignedOut, Status: a.status, How: a.told(check.URL)}
	switch want := check.WantStatus(); {
	case a.status == want && bytes.Contains(a.body, []byte(check.Text)):
		r.Answer = SignedIn
		if check.Text != "" {
			r.How += ", with the text that proves it"
		}
	case a.status == want:
		r.How += ", without the text that proves that the account is signed in"
	case troubled(a.status):
		r.Answer = Unknown
		r.How += ": the site has troubles of its own"
	case a.location != "":
		r.How += fmt.Sprintf("%s; want %d", a.redirected(check.URL), want)
	default:
		r.How += fmt.Sprintf("; want %d", want)
	}
	return r
}

// judge tells what an answer says to a question. A redirect, and a refusal, is what somebody gets who
// is signed out: then the site does not show what it is asked for.
func judge(q site.Question, a reply) site.Answer {
	answer := site.Answer{Question: q, State: site.NotHad, How: a.problem}
	if a.problem != "" {
		return answer
	}
	answer.How = a.told(q.URL)
	answer.Writes = findings.SignOf(ledger.Get{
		Asked: q.URL, Final: q.URL, Status: a.status, Acted: true, Empty: a.status == http.StatusOK && len(a.body) == 0,
	}).Tell()
	switch {
	case a.status == http.StatusOK:
		var err error
		answer.Picked, err = q.Pick(a.body)
		switch {
		case err == nil:
			answer.State = site.Told
		case errors.Is(err, site.ErrNoValue):
			answer.State = site.NotTold
			fallthrough
		default:
			answer.How += ": " + err.Error()
		}
	case troubled(a.status):
		answer.How += ": the site has troubles of its own"
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		answer.State = site.NotTold
	case a.location != "":
		answer.State = site.NotTold
		answer.How += a.redirected(q.URL)
	default:
		answer.How += "; want 200"
	}
	return answer
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
