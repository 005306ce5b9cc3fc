package findings

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

// A site's answers tell more about the account than the requests do: whether it is still signed
// in, whether the site lets it go on, and whether it wants to be left alone for a while. A
// refusing answer stands until the site says otherwise:
//
//   - a refusal (401, 403, 407, 429, 451) stands until the same place (host and path) answers
//     with success;
//   - a 403 or 451 to a background request of a document stands only as long as that document,
//     since the page's next document requests again what it needs. A 401 or 407 stands longer,
//     because a site that still shows its public pages has not signed anybody in;
//   - "too many requests" stands until the site answers any request of that kind with success.
//     If it says when to come again (Retry-After), and that is soon enough, it is no refusal:
//     the site asks to wait, and the profile waits;
//   - a redirect of a page to a sign-in stands until the requested place is shown. A sign-in is
//     recognized by its structure: the URL reached names the requested place, or one at its
//     host, as the place to go on to; or the page asks for a password or a code;
//   - a safe checkpoint says that all was well: what came before it no longer stands, except for
//     the document that the task was on.

// longestWait is the longest time that a site may ask to wait without that being a refusal. A
// longer wait is a ban.
const longestWait = time.Hour

// standing is a refusing answer that nothing has taken back so far.
type standing struct {
	answer checkpoint.Entry
	kind   standingKind
	places []string // success at each of these takes it back
	site   string   // of the requested URL
}

type standingKind int

const (
	refusal standingKind = iota
	wait
	signIn
	signInUnknown
)

// stand returns the refusing answers that stand at the end of a session.
func stand(s checkpoint.Summary, t Task) []standing {
	var list []standing
	for _, e := range s.Answers {
		if kind, ok := says(e, s, t); ok {
			list = append(list, newStanding(e, kind))
			continue
		}
		if e.Status < 200 || e.Status >= 400 {
			continue
		}
		list = slices.DeleteFunc(list, func(s standing) bool { return s.takenBackBy(e) })
	}
	return list
}

func newStanding(e checkpoint.Entry, kind standingKind) standing {
	if e.Asked == "" {
		return standing{e, kind, []string{Place(e.URL)}, Site(e.URL)}
	}
	asked := []string{Place(e.Asked)}
	if kind == refusal || kind == wait { // the sign-in's own page is answered again and again
		asked = append(asked, Place(e.URL))
	}
	return standing{e, kind, asked, Site(e.Asked)}
}

// says tells which kind of refusal an answer is, if it is one about the account.
func says(e checkpoint.Entry, s checkpoint.Summary, t Task) (standingKind, bool) {
	switch {
	case e.SignIn != "" && concerns(e.Asked, e, s, t):
		if e.Failed != "" {
			return signInUnknown, true
		}
		return signIn, true
	case e.Returns && concerns(e.Asked, e, s, t):
		return signIn, true
	case e.Status == http.StatusProxyAuthRequired:
		return refusal, true
	case !concerns(e.URL, e, s, t):
		return 0, false
	}
	asksToWait := e.RetryAfter > 0 && time.Duration(e.RetryAfter)*time.Second <= longestWait
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if asksToWait {
			return wait, true
		}
		return refusal, e.Status == http.StatusTooManyRequests
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusUnavailableForLegalReasons:
		return refusal, true
	}
	return 0, false
}

// concerns tells whether an answer is about the account. If the task names its domains, it has
// to come from one of them; otherwise it has to answer a page, or a page's request to its own
// site.
func concerns(asked string, e checkpoint.Entry, s checkpoint.Summary, t Task) bool {
	if domains := t.Domains(); len(domains) > 0 {
		return inDomains(asked, domains).Answer == table.Yes
	}
	if e.Committed || e.SignIn != "" {
		return true
	}
	site := Site(asked)
	if e.Page != "" {
		return Site(e.Page) == site
	}
	// A web worker: it is not known for which page it works.
	return slices.ContainsFunc(s.Pages, func(p checkpoint.Entry) bool { return Site(p.URL) == site })
}

// takenBackBy tells whether a successful answer takes back the one that stands.
func (s standing) takenBackBy(e checkpoint.Entry) bool {
	if slices.Contains(s.places, Place(e.URL)) || e.Asked != "" && slices.Contains(s.places, Place(e.Asked)) {
		return true
	}
	switch {
	case s.kind == wait || s.answer.Status == http.StatusTooManyRequests:
		// The page that shows the refusal may still show more of its site.
		return Site(e.URL) == s.site && (e.Committed || !s.answer.Committed)
	case s.answer.SignIn != "":
		return e.Committed && (e.Target == s.answer.Target || Site(e.URL) == s.site)
	case s.answer.Status == http.StatusForbidden || s.answer.Status == http.StatusUnavailableForLegalReasons:
		return e.Committed && !s.answer.Committed && e.Target == s.answer.Target && Site(e.URL) == s.site
	}
	return false
}

func answerFacts(s checkpoint.Summary, t Task) []table.Fact {
	of := map[standingKind][]standing{}
	for _, one := range stand(s, t) {
		of[one.kind] = append(of[one.kind], one)
	}
	refused := table.Fact{Name: table.SiteRefused, Answer: table.No, How: "no answer that stands refuses anything"}
	if list := of[refusal]; len(list) > 0 {
		e := list[len(list)-1].answer
		refused = table.Fact{Name: table.SiteRefused, Answer: table.Yes, How: fmt.Sprintf("%d places, the last %s, answered %d", len(list), e.URL, e.Status)}
	} else if e := lastDocument(s.Answers); e != nil {
		refused.How += fmt.Sprintf("; the last document %s was answered %d", e.URL, e.Status)
	}
	asks := table.Fact{Name: table.SentToSignIn, Answer: table.No, How: "no page was sent to one"}
	switch known, unknown := of[signIn], of[signInUnknown]; {
	case len(known) > 0:
		e := known[len(known)-1].answer
		why := "which names it as the place to go on from"
		if e.SignIn != "" {
			why = "where the page asks for a " + e.SignIn
		}
		asks.Answer, asks.How = table.Yes, fmt.Sprintf("%s led to %s, %s", e.Asked, e.URL, why)
	case len(unknown) > 0:
		e := unknown[len(unknown)-1].answer
		asks.Answer, asks.How = table.Unknown, fmt.Sprintf("%s led to %s, and what that page asks for is not known: %s", e.Asked, e.URL, e.Failed)
	}
	waits := table.Fact{Name: table.AskedToWait, Answer: table.No, How: "no site asked to wait"}
	if list := of[wait]; len(list) > 0 {
		e := list[len(list)-1].answer
		waits.Answer, waits.How = table.Yes, fmt.Sprintf("%s was answered %d and asks to wait %d s, until %s", e.URL, e.Status, e.RetryAfter, until(e).Format(time.RFC3339))
	}
	return []table.Fact{refused, asks, waits}
}

func lastDocument(answers []checkpoint.Entry) *checkpoint.Entry {
	for i := range slices.Backward(answers) {
		if answers[i].Committed {
			return &answers[i]
		}
	}
	return nil
}

func until(e checkpoint.Entry) time.Time {
	return e.At.Add(time.Duration(e.RetryAfter) * time.Second).UTC()
}

// WaitUntil is when all sites that asked to wait may be asked again; zero if none did.
func WaitUntil(s checkpoint.Summary, t Task) time.Time {
	var last time.Time
	for _, one := range stand(s, t) {
		if one.kind == wait && until(one.answer).After(last) {
			last = until(one.answer)
		}
	}
	return last
}

// Place is a URL's host and path, without its query.
func Place(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return raw
	}
	return strings.ToLower(u.Host) + strings.TrimSuffix(u.Path, "/")
}

// Site is the registrable domain of a URL, or its host if it has none.
func Site(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return raw
	}
	host := strings.ToLower(u.Hostname())
	if net.ParseIP(host) != nil {
		return host
	}
	if domain, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return domain
	}
	return host
}
