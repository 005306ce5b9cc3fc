package monitor

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/network"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/internal/reads"
	"leasehold/launcher/recovery/decision"
)

// answers finds out, from the network events of the launcher's own session, what sites
// answered: to every unsafe request, to every request for a page's document, and to the other
// requests of pages if the answer was a refusal, or the first success after one. The pipe's
// reader calls observe for every network event, so almost nothing is parsed of the events that
// do not matter.
type answers struct {
	mu sync.Mutex
	// open are the unsafe requests that have not ended, by request id.
	open map[string]*openRequest
	// loading are the documents of pages that were requested and not answered yet, by request
	// id, which is also the loader's id.
	loading map[string]loading
	// documents are those that pages show now, by the page's session.
	documents map[string]document
	// carried says what requests carried, by request id. candidates are the requests that may
	// be anonymous; the value is the id of the request for their page's document.
	carried    map[string]carried
	candidates map[string]string
	// refused are the places that refused a request and have not answered with success since,
	// and the sites that told a client to wait. told are the refusals that were already
	// reported for the documents that pages show now.
	refused, told map[string]bool
	// kept are the requests, by id, that a worker paused and kept from being sent.
	kept map[string]bool
}

// openRequest is an unsafe request that has not ended.
type openRequest struct {
	session, loader string
	document        bool // it requests a document
	// left says that Chrome's network service sent it, or what a redirect led from to it.
	left bool
}

// loading is a document that is being loaded.
type loading struct {
	asked string // the URL that was requested first
	// moved says that a redirect sent the request elsewhere temporarily.
	moved bool
}

// document is a document that a page shows.
type document struct {
	id     string // of its request
	secret bool   // its URL seems to contain a secret
	// asked is the URL that was requested; redirects may have led elsewhere, to url.
	asked, url string
}

// carried is what a request carried.
type carried struct{ cookies, credentials bool }

func newAnswers() *answers {
	return &answers{
		open: map[string]*openRequest{}, loading: map[string]loading{}, documents: map[string]document{}, carried: map[string]carried{},
		candidates: map[string]string{},
		refused:    map[string]bool{}, told: map[string]bool{}, kept: map[string]bool{},
	}
}

// forget forgets everything about a session that is over.
func (a *answers) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.open)
	clear(a.loading)
	clear(a.documents)
	clear(a.carried)
	clear(a.candidates)
	clear(a.refused)
	clear(a.told)
	clear(a.kept)
}

// maxCandidates bounds how many requests may be waiting to be found anonymous. Those that are
// forgotten count as not anonymous.
const maxCandidates = 64

// eventRequestExtra says what Chrome itself added to a request. It comes before or after
// eventRequest.
const eventRequestExtra = "Network.requestWillBeSentExtraInfo"

// answer is an entry about an answer. id is the request's id if the request was unsafe, or else
// empty.
type answer struct {
	id    string
	entry checkpoint.Entry
}

// observe takes one event, and returns what it says about answers.
func (a *answers) observe(event cdpproxy.Event, n *navigations) []answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch event.Method {
	case eventRequest:
		return a.requested(event, n)
	case eventRequestExtra:
		return a.sent(requestID(event.Params), event.Params)
	case eventResponse:
		return a.responded(event, n)
	}
	if n.closing.Load() { // what ends because the launcher closes the browser stays unanswered
		return nil
	}
	switch event.Method {
	case eventFailed:
		return a.failed(event)
	case eventFrameNavigated, eventDetached:
		return a.replaced(event, n)
	}
	return nil
}

var (
	statusMember   = []byte(`"status":`)
	responseMember = []byte(`"response":{`)
	sentCookie     = []byte(`"blockedReasons":[]`)
	// headers by which a site knows an account. A worker can add them to a paused request, in any case,
	// and then Chrome reports no cookie of its own.
	cookieHeader  = []byte(`"cookie":"`)
	authorization = []byte(`authorization":"`)
)

// requested takes in the event of a request.
func (a *answers) requested(event cdpproxy.Event, n *navigations) []answer {
	id := requestID(event.Params)
	_, open := a.open[id]
	_, chain := a.loading[id]
	unsafe := !reads.Event(event.Params)
	document := bytes.HasPrefix(event.Params, []byte(`{"requestId":"`+id+`","loaderId":"`+id+`"`))
	if !open && !chain && !unsafe && !document {
		return nil
	}
	var r request
	if !decode(event, &r) {
		return nil
	}
	var found []answer
	// A redirect of an unsafe request to another unsafe request is reported with the latter.
	if open && !unsafe && r.Redirect != nil {
		delete(a.open, id)
		found = append(found, answer{id, checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: r.Redirect.URL, Status: r.Redirect.Status, Type: r.Type}})
	}
	place := n.place(event.Session)
	if document && place.frame == r.FrameID && place.frame != "" {
		l, redirected := a.loading[id]
		if !redirected {
			l.asked = r.Request.URL
		}
		if r.Redirect != nil && r.Redirect.Status != http.StatusMovedPermanently && r.Redirect.Status != http.StatusPermanentRedirect {
			l.moved = true
		}
		remember(a.loading, id, l)
	}
	if unsafe {
		_, left := a.carried[id]
		remember(a.open, id, &openRequest{session: event.Session, loader: r.LoaderID, document: document, left: left})
		if r.Redirect == nil && !open && a.mayBeAnonymous(r, place, n) {
			if len(a.candidates) >= maxCandidates {
				clear(a.candidates)
			}
			a.candidates[id] = a.documents[place.session].id
			found = append(found, a.anonymous(id)...)
		} else {
			delete(a.candidates, id)
		}
	}
	return found
}

// sent takes in the event that says what Chrome itself added to a request.
func (a *answers) sent(id string, params json.RawMessage) []answer {
	c := a.carried[id]
	lower := bytes.ToLower(params)
	c.cookies = c.cookies || bytes.Contains(params, sentCookie)
	c.credentials = c.credentials || bytes.Contains(lower, authorization) || bytes.Contains(lower, cookieHeader)
	remember(a.carried, id, c)
	if o := a.open[id]; o != nil {
		o.left = true
	}
	found := a.anonymous(id)
	for candidate, document := range a.candidates {
		if document == id {
			found = append(found, a.anonymous(candidate)...)
		}
	}
	return found
}

// responded takes in the event of a response.
func (a *answers) responded(event cdpproxy.Event, n *navigations) []answer {
	id := requestID(event.Params)
	status := statusOf(event.Params)
	_, open := a.open[id]
	l, isLoading := a.loading[id]
	success := status >= 200 && status < 400
	if !open && !isLoading && !refusing[status] && !(success && len(a.refused) > 0) {
		return nil
	}
	var r struct {
		Type     string `json:"type"`
		FrameID  string `json:"frameId"`
		Response struct {
			URL     string            `json:"url"`
			Status  int               `json:"status"`
			Headers map[string]string `json:"headers"`
		} `json:"response"`
	}
	if !decode(event, &r) {
		return nil
	}
	place := n.place(event.Session)
	e := checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: r.Response.URL, Status: r.Response.Status, Type: r.Type, Target: place.page, Page: place.url}
	if refusing[status] {
		e.RetryAfter = retryAfter(r.Response.Headers, time.Now())
	}
	if isLoading {
		delete(a.loading, id)
		e.Page, e.Committed = "", status != http.StatusNoContent && status != http.StatusResetContent
		if decision.Place(l.asked) != decision.Place(e.URL) {
			e.Asked = l.asked
			e.Returns = l.moved && success && returnsTo(l.asked, e.URL)
		}
		remember(a.documents, event.Session, document{id: id, secret: hasSecret(e.URL), asked: e.Asked, url: e.URL})
		for told := range a.told {
			if strings.HasPrefix(told, place.page+" ") {
				delete(a.told, told)
			}
		}
	}
	if open {
		delete(a.open, id)
		e.Blocked = a.kept[id]
		delete(a.kept, id)
	} else {
		id = ""
	}
	if !open && !isLoading && !a.weighs(e, r.Type) {
		return nil
	}
	a.watch(e)
	return []answer{{id, e}}
}

// askedFor are the types of requests whose answers say something about the account. Pictures,
// styles and the like may be missing for other reasons, and are served to everybody.
var askedFor = []string{"XHR", "Fetch", "EventSource", "Document"}

// weighs tells whether the answer to a page's other request is reported. That is so for a
// refusal, once for each document, and for the first success at a place that refused before.
func (a *answers) weighs(e checkpoint.Entry, kind string) bool {
	if !slices.Contains(askedFor, kind) {
		return false
	}
	if !refusing[e.Status] {
		return a.refused[decision.Place(e.URL)] || a.refused[decision.Site(e.URL)]
	}
	key := e.Target + " " + strconv.Itoa(e.Status) + " " + decision.Place(e.URL)
	if a.told[key] {
		return false
	}
	remember(a.told, key, true)
	return true
}

// watch remembers the places that refused, until they answer with success.
func (a *answers) watch(e checkpoint.Entry) {
	switch {
	case refusing[e.Status]:
		remember(a.refused, decision.Place(e.URL), true)
		if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
			remember(a.refused, decision.Site(e.URL), true)
		}
	case e.Status >= 200 && e.Status < 400:
		delete(a.refused, decision.Place(e.URL))
		delete(a.refused, decision.Site(e.URL))
	}
}

// keptBack takes in that a worker keeps a request from being sent, or that it lets it go after
// all.
func (a *answers) keptBack(r cdpproxy.KeptRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Back {
		remember(a.kept, r.RequestID, true)
	} else {
		delete(a.kept, r.RequestID)
	}
}

// rewritten takes in that a worker lets a request go as an unsafe one, which it may not have been
// before: its answer is reported.
func (a *answers) rewritten(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.candidates, id)
	if a.open[id] == nil && id != "" {
		remember(a.open, id, &openRequest{})
	}
}

// failed takes in the event of a request that ended without an answer.
func (a *answers) failed(event cdpproxy.Event) []answer {
	id := requestID(event.Params)
	o := a.open[id]
	delete(a.loading, id)
	if o == nil {
		return nil
	}
	delete(a.open, id)
	var r struct {
		Error    string          `json:"errorText"`
		Canceled bool            `json:"canceled"`
		Blocked  string          `json:"blockedReason"`
		CORS     json.RawMessage `json:"corsErrorStatus"`
	}
	if !decode(event, &r) || r.Error == "" {
		r.Error, r.Canceled = "canceled", true
	}
	e := checkpoint.Entry{Kind: checkpoint.KindAnswer, Failed: r.Error}
	kept := a.kept[id]
	delete(a.kept, id)
	refused := slices.Contains(blockedBefore, r.Blocked) // Chrome says of some of these that they were canceled
	switch {
	case refused && o.left: // a redirect led to what is not allowed: the site had the request by then
		e.Failed, e.Ended = "the browser refused to follow its redirect: "+r.Blocked, true
	case kept:
		e.Failed, e.Ended, e.Blocked = "a worker had the browser fail it before it was sent", true, true
	case refused:
		e.Failed, e.Ended, e.Blocked = "the browser refused to send it: "+r.Blocked, true, true
	case r.Canceled:
		e.Failed = "canceled"
	case r.CORS != nil:
		e.Failed, e.Ended = "kept from the page by CORS", true
	default:
		e.Ended = !hasLeft(r.Blocked, r.Error)
	}
	return []answer{{id, e}}
}

// blockedBefore are the values of blockedReason by which Chrome says that it did not send a
// request. With the other values it has withheld the answer from the page.
var blockedBefore = []string{
	string(network.BlockedReasonInspector), string(network.BlockedReasonCsp), string(network.BlockedReasonMixedContent), string(network.BlockedReasonSubresourceFilter),
}

// hasLeft tells whether a failed request may have reached its site, from the event's
// blockedReason and errorText.
func hasLeft(blocked, name string) bool {
	return blocked == "" && !slices.ContainsFunc(neverLeft, func(n string) bool { return strings.HasPrefix(name, "net::ERR_"+n) })
}

// neverLeft are the prefixes of Chrome's error names with which a request cannot have reached
// its site, because there was no connection to send it on.
var neverLeft = []string{
	"ADDRESS_INVALID", "ADDRESS_UNREACHABLE", "BLOCKED_BY", "CERT_", "CONNECTION_FAILED", "CONNECTION_REFUSED", "DISALLOWED_URL_SCHEME",
	"FILE_NOT_FOUND", "INTERNET_DISCONNECTED", "INVALID_URL", "NAME_", "PROXY_CONNECTION_FAILED", "SSL_", "TUNNEL_CONNECTION_FAILED",
	"UNKNOWN_URL_SCHEME", "UNSAFE_PORT",
}

// replaced takes in the event that a page shows another document, or has ended: Chrome does not
// report anything more about what the earlier document had sent.
func (a *answers) replaced(event cdpproxy.Event, n *navigations) []answer {
	session, loader := event.Session, ""
	if event.Method == eventDetached {
		var p struct {
			SessionID string `json:"sessionId"`
		}
		if !decode(event, &p) {
			return nil
		}
		session = p.SessionID
		delete(a.documents, session)
	} else {
		var p struct {
			Frame struct {
				ID       string `json:"id"`
				LoaderID string `json:"loaderId"`
			} `json:"frame"`
		}
		if len(a.open) == 0 || !decode(event, &p) || p.Frame.ID != n.place(session).frame {
			return nil
		}
		loader = p.Frame.LoaderID
	}
	var found []answer
	for id, o := range a.open {
		if o.session == session && o.loader != loader && !(o.document && loader != "") {
			delete(a.open, id)
			found = append(found, answer{id, checkpoint.Entry{Kind: checkpoint.KindAnswer, Failed: checkpoint.AnswerUnseen}})
		}
	}
	return found
}

// refusing are the statuses by which a site refuses something to the client, or tells it to
// wait.
var refusing = map[int]bool{
	http.StatusUnauthorized: true, http.StatusForbidden: true, http.StatusProxyAuthRequired: true,
	http.StatusTooManyRequests: true, http.StatusUnavailableForLegalReasons: true, http.StatusServiceUnavailable: true,
}

// statusOf is the status in the event of a response; 0 if there is none. It comes right after
// the URL.
func statusOf(params json.RawMessage) int {
	_, rest, _ := bytes.Cut(params, responseMember)
	_, rest, _ = bytes.Cut(rest, statusMember)
	digits := rest[:min(len(rest), 3)]
	status, err := strconv.Atoi(string(digits))
	if err != nil {
		return 0
	}
	return status
}

// retryAfter is how many seconds the answer tells the client to wait; 0 if it says nothing
// about that.
func retryAfter(headers map[string]string, now time.Time) int64 {
	for name, value := range headers {
		if !strings.EqualFold(name, "Retry-After") {
			continue
		}
		value = strings.TrimSpace(value)
		if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
			return max(0, seconds)
		}
		if at, err := http.ParseTime(value); err == nil {
			return max(0, int64(at.Sub(now).Seconds()))
		}
	}
	return 0
}

// place is the page, frame and document of a CDP session.
type place struct {
	page    string // the page's target; empty for web workers
	frame   string // the id of the page's main frame; empty on the session of another frame
	url     string // of the page's document
	session string // the page's own session
}

// place returns the place of a session.
func (n *navigations) place(session string) place {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := n.sessions[session]
	if page == nil {
		return place{}
	}
	p := place{page: page.target, url: page.url, session: page.session}
	if page.session == session {
		p.frame = page.target
	}
	return p
}
