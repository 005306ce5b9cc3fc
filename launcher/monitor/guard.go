package monitor

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/internal/reads"
	"leasehold/launcher/recovery/findings"
	"leasehold/lease"
)

// The guard changes what pages send, if a manifest or a profile asks for that: it fails unsafe
// requests, and it adds the lease token to requests that go to the user's own services. It uses
// the Fetch domain on the launcher's own browser session. Chrome asks that session last, after
// those of pages and clients, and asks it about every request of any page, frame, worker or
// closed page: a request that a client intercepts and continues does not bypass the guard.
// Chrome asks nobody about messages on websockets and WebTransport.

// TokenHeader is the request header with the lease token.
const TokenHeader = "Leasehold-Token"

// Rules are what the guard does. The zero value does nothing.
type Rules struct {
	// ReadOnly says that unsafe requests are failed.
	ReadOnly bool
	// ByFiles says that of a read-only browser those GETs are failed, too, that write, as the files about
	// sites say; except those for Asked, for which the launcher itself asks.
	ByFiles bool
	Asked   []string
	// TokenOrigins are the origins, such as https://queue.example:8443, to which the token is
	// sent. CheckOrigin accepts each of them.
	TokenOrigins []string
	// Token is the lease token that is sent to them.
	Token lease.Token
	// Ended says that the launcher has ended the pages of a lost worker: every request fails,
	// except those of the page whose target id is Pass, if that is not empty.
	Ended bool
	Pass  string
}

// idle tells whether there is nothing to do.
func (r Rules) idle() bool { return !r.ReadOnly && !r.Ended && len(r.TokenOrigins) == 0 }

// CheckOrigin tells whether a text is an origin in the form in which Chrome writes it: scheme
// and host in lower case, a port only if it is not the scheme's default, and no path.
func CheckOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" && u.Port() != "80" || u.Scheme == "https" && u.Port() != "443") &&
		u.Hostname() != "" && u.Scheme+"://"+u.Host == origin && strings.ToLower(origin) == origin &&
		!strings.ContainsAny(u.Host, "*?\\%") && !strings.HasSuffix(u.Host, ":")
}

// originOf is the origin of a URL, in the form that CheckOrigin accepts.
func originOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Guard is the guard of the pages of one browser. Its methods may be called concurrently.
type Guard struct {
	chrome resolver
	known  *harmless
	sink   func(checkpoint.Entry)
	rules  atomic.Pointer[Rules] // nil: Enforce was not called
}

// resolver is a caller that can end the pause of a request. A link is one.
type resolver interface {
	caller
	Resolve(session, requestID, method string, params any)
}

func newGuard(chrome resolver, known *harmless, sink func(checkpoint.Entry)) *Guard {
	return &Guard{chrome: chrome, known: known, sink: sink}
}

// the events of the guard.
const (
	eventPaused       = "Fetch.requestPaused"
	eventWebTransport = "Network.webTransportCreated"
)

// Enforce makes the guard apply the rules to everything that pages send from now on.
func (g *Guard) Enforce(ctx context.Context, rules Rules) error {
	before := g.Rules()
	g.rules.Store(&rules)
	if rules.idle() {
		if before.idle() {
			return nil
		}
		return g.chrome.Call(ctx, "", "Fetch.disable", nil, nil)
	}
	urls := []string{"*"}
	if !rules.ReadOnly && !rules.Ended {
		urls = nil
		for _, origin := range rules.TokenOrigins {
			urls = append(urls, origin+"/*")
		}
	}
	var patterns []map[string]string
	for _, u := range urls {
		patterns = append(patterns, map[string]string{"urlPattern": u, "requestStage": "Request"})
	}
	return g.chrome.Call(ctx, "", "Fetch.enable", map[string]any{"patterns": patterns}, nil)
}

// Rules are the rules of the last call of Enforce.
func (g *Guard) Rules() Rules {
	if r := g.rules.Load(); r != nil {
		return *r
	}
	return Rules{}
}

// pausedRequest has the members of Fetch.requestPaused that are needed.
type pausedRequest struct {
	RequestID string `json:"requestId"`
	FrameID   string `json:"frameId"` // for a page's main frame, its target id
	Request   struct {
		URL     string            `json:"url"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
	} `json:"request"`
	writes bool // as the file of its site says
}

// observe decides about one of the guard's events. The pipe's reader calls it.
func (g *Guard) observe(event cdpproxy.Event) {
	if event.Method == eventWebTransport {
		g.webTransport(event)
		return
	}
	var p pausedRequest
	if !decode(event, &p) || p.RequestID == "" {
		return // the request stays paused until the browser ends, and is not sent
	}
	rules := g.Rules()
	e := checkpoint.Entry{Kind: checkpoint.KindBlocked, Method: p.Request.Method, URL: p.Request.URL, Text: "the session is read-only"}
	if rules.ByFiles && e.Method == http.MethodGet && !slices.Contains(rules.Asked, e.URL) {
		g.known.judge(&e, findings.Sent{Method: e.Method, URL: e.URL, Whole: true}, p.Request.Headers)
		p.writes = e.Known == site.Write
	}
	method, params := rules.decide(p)
	switch {
	case method != failRequest:
	case !rules.Ended:
		g.sink(e)
	case !reads.Paused(p.Request.Method, p.Request.Headers):
		g.sink(withheldEntry(checkpoint.Entry{Method: p.Request.Method, URL: p.Request.URL}))
	}
	g.chrome.Resolve(event.Session, p.RequestID, method, params)
}

// webTransport notes a WebTransport channel: it cannot be stopped, and anything may be sent on
// it.
func (g *Guard) webTransport(event cdpproxy.Event) {
	var p struct {
		URL string `json:"url"`
	}
	if g.Rules().ReadOnly && decode(event, &p) {
		g.sink(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "WEBTRANSPORT", URL: p.URL, Text: "what is sent over it cannot be seen, nor stopped"})
	}
}

// decide returns the command that ends the pause of a request.
func (r Rules) decide(p pausedRequest) (method string, params map[string]any) {
	params = map[string]any{"requestId": p.RequestID}
	if r.ReadOnly && (p.writes || !reads.Paused(p.Request.Method, p.Request.Headers)) || r.Ended && (r.Pass == "" || p.FrameID != r.Pass) {
		params["errorReason"] = "BlockedByClient"
		return failRequest, params
	}
	if slices.Contains(r.TokenOrigins, originOf(p.Request.URL)) {
		type header struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		}
		headers := []header{{TokenHeader, tokenValue(r.Token)}}
		for name, value := range p.Request.Headers {
			if !strings.EqualFold(name, TokenHeader) {
				headers = append(headers, header{name, value})
			}
		}
		params["headers"] = headers
	}
	return "Fetch.continueRequest", params
}

const failRequest = "Fetch.failRequest"

// tokenValue is the token as it is written in the header.
func tokenValue(t lease.Token) string { return strconv.FormatUint(uint64(t), 10) }
