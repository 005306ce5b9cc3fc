package monitor

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/launcher/recovery/findings"
)

// answers finds out, from the network events of the launcher's own session, what sites
// answered: to every unsafe request, to every request for a page's document, and to the other
// requests of pages if the answer was a refusal, or the first success after one. The pipe's
// reader calls observe for every network event, so almost nothing is parsed of the events that
// do not matter. What answers knows is guarded by the mu of the request log.
type answers struct {
	log         *requestLog
	navigations *navigations

	// documents are those that pages show now, by the page's session.
	documents map[string]document
	// refused are the places that refused a request and have not answered with success since,
	// and the sites that told a client to wait. told are the refusals that were already
	// reported for the documents that pages show now, since the last checkpoint.
	refused, told map[string]bool
}

type document struct {
	request *ledger.Request
	secret  bool // its URL seems to contain a secret
	// asked is the URL that was requested; redirects may have led elsewhere, to url.
	asked, url string
}

func newAnswers(log *requestLog, n *navigations) *answers {
	return &answers{log: log, navigations: n, documents: map[string]document{}, refused: map[string]bool{}, told: map[string]bool{}}
}

// reportAgain has the next refusal of each kind reported again.
func (a *answers) reportAgain() {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	clear(a.told)
}

// forget forgets everything about a session that is over.
func (a *answers) forget() {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	clear(a.documents)
	clear(a.refused)
	clear(a.told)
}

// answer is an entry about an answer. id is the request's id if the request was unsafe, or else
// empty.
type answer struct {
	id    string
	entry checkpoint.Entry // one without a kind is not reported
	// unsent says that the network service did not send the request, as far as is known; left, that it
	// did, although unsent was said.
	unsent, left bool
}

// observe takes a fact, and returns what it says about answers. The caller holds the log's mu.
func (a *answers) observe(f ledger.Fact) []answer {
	switch f.Method {
	case ledger.Sent:
		return a.requested(f)
	case ledger.Carried:
		return a.carried(f.Request)
	case ledger.Answered:
		return a.responded(f)
	case ledger.Failed:
		return a.failed(f)
	case ledger.GivenUp:
		return unseen(f.Request)
	}
	return nil
}

var (
	statusMember   = []byte(`"status":`)
	responseMember = []byte(`"response":{`)
)

// requested takes in that a request was sent.
func (a *answers) requested(f ledger.Fact) []answer {
	kept, isUnsafe := f.Request, f.Request.Hops[f.Hop].Unsafe
	if !kept.Pending && !kept.Loading && !isUnsafe && !kept.Document {
		return nil
	}
	var r request
	if json.Unmarshal(f.Params, &r) != nil {
		return nil
	}
	var found []answer
	// A redirect of an unsafe request to another unsafe request is reported with the latter.
	if kept.Pending && !isUnsafe && r.Redirect != nil {
		kept.Pending = false
		found = append(found, answer{id: kept.ID, entry: checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: r.Redirect.URL, Status: r.Redirect.Status, Type: r.Type}})
	}
	place := a.navigations.place(f.Session)
	if kept.Document && place.frame == r.FrameID && place.frame != "" {
		if !kept.Loading {
			kept.Loading, kept.Moved, kept.Asked = true, false, r.Request.URL
		}
		if r.Redirect != nil && r.Redirect.Status != http.StatusMovedPermanently && r.Redirect.Status != http.StatusPermanentRedirect {
			kept.Moved = true
		}
	}
	if isUnsafe {
		kept.Page = nil
		if r.Redirect == nil && !kept.Pending && a.mayBeAnonymous(r, place) {
			kept.Page = a.documents[place.session].request
			found = append(found, anonymous(kept)...)
		}
		kept.Pending = true
	}
	return found
}

func (a *answers) carried(r *ledger.Request) []answer {
	found := anonymous(r)
	if r.Unsent { // the network service tells of it later than the page's process of the end
		told := answer{id: r.ID, left: r.Left >= len(r.Hops)}
		if r.Refused != "" {
			told.entry = redirectRefused(r.Refused)
		}
		found = append(found, told)
		r.Unsent, r.Refused = !told.left, ""
	}
	if r.Document {
		for other := range a.log.ledger.All() {
			if other.Page == r {
				found = append(found, anonymous(other)...)
			}
		}
	}
	return found
}

func (a *answers) responded(f ledger.Fact) []answer {
	kept := f.Request
	id, open, isLoading := kept.ID, kept.Pending, kept.Loading
	status := statusOf(f.Params)
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
			// Worker says that a service worker answered. What that sends is a request of its own.
			Worker bool `json:"fromServiceWorker"`
		} `json:"response"`
	}
	if json.Unmarshal(f.Params, &r) != nil {
		return nil
	}
	place := a.navigations.place(f.Session)
	e := checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: r.Response.URL, Status: r.Response.Status, Type: r.Type, Target: place.page, Page: place.url}
	if refusing[status] {
		e.RetryAfter = retryAfter(r.Response.Headers, time.Now())
	}
	if isLoading {
		kept.Loading = false
		e.Page, e.Committed = "", status != http.StatusNoContent && status != http.StatusResetContent
		if findings.Place(kept.Asked) != findings.Place(e.URL) {
			e.Asked = kept.Asked
			e.Returns = kept.Moved && success && returnsTo(kept.Asked, e.URL)
		}
		remember(a.documents, f.Session, document{request: kept, secret: hasSecret(e.URL), asked: e.Asked, url: e.URL})
		for told := range a.told {
			if strings.HasPrefix(told, place.page+" ") {
				delete(a.told, told)
			}
		}
	}
	if open {
		e.Blocked = kept.Kept
		kept.Unsent = e.Blocked || r.Response.Worker && kept.Left < len(kept.Hops)
		kept.Pending, kept.Kept = false, false
	} else {
		id = ""
	}
	if !open && !isLoading && !a.weighs(e, r.Type) {
		return nil
	}
	a.watch(e)
	return []answer{{id: id, entry: e, unsent: open && kept.Unsent}}
}

// askedFor are the types of requests whose answers say something about the account. Pictures,
// styles and the like may be missing for other reasons, and are served to everybody.
var askedFor = []string{"XHR", "Fetch", "EventSource", "Document"}

// weighs tells whether the answer to a page's other request is reported. That is so for a
// refusal, once for each document and anew after a checkpoint, and for the first success at a
// place that refused before.
func (a *answers) weighs(e checkpoint.Entry, kind string) bool {
	if !slices.Contains(askedFor, kind) {
		return false
	}
	if !refusing[e.Status] {
		return a.refused[findings.Place(e.URL)] || a.refused[findings.Site(e.URL)]
	}
	key := e.Target + " " + strconv.Itoa(e.Status) + " " + findings.Place(e.URL)
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
		remember(a.refused, findings.Place(e.URL), true)
		if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
			remember(a.refused, findings.Site(e.URL), true)
		}
	case e.Status >= 200 && e.Status < 400:
		delete(a.refused, findings.Place(e.URL))
		delete(a.refused, findings.Site(e.URL))
	}
}

// keptBack takes in that a worker keeps a request from being sent, or that it lets it go after
// all.
func (a *answers) keptBack(r cdpproxy.KeptRequest) {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	a.log.ledger.Known(r.RequestID).Kept = r.Back
}

// rewritten takes in that a worker lets a request go as an unsafe one, which it may not have been
// before: its answer is reported.
func (a *answers) rewritten(id string) {
	if id == "" {
		return
	}
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	r := a.log.ledger.Known(id)
	r.Pending, r.Page = true, nil
}

// failed takes in that a request ended without an answer.
func (a *answers) failed(f ledger.Fact) []answer {
	if a.navigations.closing.Load() { // what ends because the launcher closes the browser stays unanswered
		return nil
	}
	kept := f.Request
	kept.Loading = false
	if !kept.Pending {
		return nil
	}
	var r struct {
		Error    string          `json:"errorText"`
		Canceled bool            `json:"canceled"`
		Blocked  string          `json:"blockedReason"`
		CORS     json.RawMessage `json:"corsErrorStatus"`
	}
	if json.Unmarshal(f.Params, &r) != nil || r.Error == "" {
		r.Error, r.Canceled = "canceled", true
	}
	e := checkpoint.Entry{Kind: checkpoint.KindAnswer, Failed: r.Error}
	keptBack := kept.Kept
	kept.Pending, kept.Kept, kept.Unsent = false, false, kept.Left < len(kept.Hops)
	refused := slices.Contains(blockedBefore, r.Blocked) // Chrome says of some of these that they were canceled
	switch {
	case refused && kept.Left > 0: // a redirect led to what is not allowed: the site had the request by then
		e = redirectRefused(r.Blocked)
	case keptBack:
		e.Failed, e.Ended, e.Blocked = "a worker had the browser fail it before it was sent", true, true
	case refused:
		e.Failed, e.Ended, e.Blocked = "the browser refused to send it: "+r.Blocked, true, true
		kept.Refused = r.Blocked
	case r.Canceled:
		e.Failed = "canceled"
	case r.CORS != nil:
		e.Failed, e.Ended = "kept from the page by CORS", true
	default:
		e.Ended = !hasLeft(r.Blocked, r.Error)
	}
	return []answer{{id: kept.ID, entry: e, unsent: kept.Unsent}}
}

func redirectRefused(why string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindAnswer, Failed: "the browser refused to follow its redirect: " + why, Ended: true}
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
func (a *answers) replaced(event cdpproxy.Event) (found []answer) {
	if a.navigations.closing.Load() {
		return nil
	}
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	session, loader := event.Session, ""
	switch event.Method {
	case eventDetached:
		var p target.EventDetachedFromTarget
		if !decode(event, &p) {
			return nil
		}
		session = string(p.SessionID)
		delete(a.documents, session)
	case eventFrameNavigated:
		var p cdppage.EventFrameNavigated
		if !decode(event, &p) || p.Frame == nil || string(p.Frame.ID) != a.navigations.place(session).frame {
			return nil
		}
		loader = string(p.Frame.LoaderID)
	default:
		return nil
	}
	for r := range a.log.ledger.All() {
		if r.Session == session && r.Loader != loader && !(r.Document && loader != "") {
			found = append(found, unseen(r)...)
		}
	}
	return found
}

// unseen is the report that Chrome says no more about a request, unless it was answered. If nothing says
// that it left, it was not sent before its page ended. A beacon is sent all the same, and what the network
// service tells of it may be lost with the page's session: it counts as sent.
func unseen(r *ledger.Request) []answer {
	if !r.Pending {
		return nil
	}
	r.Pending = false
	if r.Left < len(r.Hops) {
		var sent request
		r.Unsent = json.Unmarshal(r.Hops[len(r.Hops)-1].Sent, &sent) == nil && sent.Type != typePing
	}
	return []answer{{id: r.ID, entry: checkpoint.Entry{Kind: checkpoint.KindAnswer, Failed: checkpoint.AnswerUnseen}, unsent: r.Unsent}}
}

// typePing is Chrome's type of a beacon.
const typePing = "Ping"

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
