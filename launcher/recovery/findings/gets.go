package findings

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/launcher/recovery/table"
)

// A GET is a read, unless the browser's own events say otherwise. Nothing is asked of the page for
// that. A GET that followed an act of the worker's on its page may have changed something if its
// answer shows nothing of what was requested, or if it has none. So may one whose address has what
// sites put there to guard a write, whoever asked for it.

// Sign is why a GET may have changed something; empty for a read.
type Sign string

// The signs. The journal names a GET's sign.
const (
	Guarded    Sign = "guarded"
	Confirmed  Sign = "confirmed"
	NoContent  Sign = "no_content"
	Picture    Sign = "picture"
	Returned   Sign = "returned"
	MovedOn    Sign = "moved_on"
	Reloaded   Sign = "reloaded"
	Unanswered Sign = checkpoint.GetUnanswered
	Known      Sign = "known"
)

// signTexts explain the signs to a person.
var signTexts = map[Sign]string{
	Guarded:    "its address has what sites put there to guard a write",
	Confirmed:  "a question was answered with yes just before it",
	NoContent:  "it was answered without content",
	Picture:    "a press led to it, and it was answered by a picture",
	Returned:   "the site sent the browser back to the page from which it was asked",
	MovedOn:    "the site sent the browser on to a page that was not asked for",
	Reloaded:   "its page loaded itself anew when it was answered",
	Unanswered: "it was not answered before its page ended",
	Known:      "what is known of its site says that it writes",
}

// Tell explains the sign to a person; empty for a read.
func (s Sign) Tell() string { return signTexts[s] }

// SignOf returns why a GET may have changed something. A refused request changed nothing, and one
// to another site than its page's is not about the account.
func SignOf(g ledger.Get) Sign {
	from, asked, final := parsed(g.From), parsed(g.Asked), parsed(g.Final)
	switch {
	case asked == nil || final == nil || g.Status >= 400:
		return ""
	case g.Writes != "":
		return Known
	case from != nil && Site(g.Asked) != Site(g.From):
		return ""
	case guarded(asked):
		return Guarded
	case !g.Acted:
		return ""
	case g.Agreed:
		return Confirmed
	case g.Status == 0:
		return Unanswered
	case g.Status == 204 || g.Status == 205 || g.Empty:
		return NoContent
	case g.Picture:
		return Picture
	case g.Reloaded:
		return Reloaded
	case !redirected(g):
		return ""
	case from != nil && place(final) == place(from):
		return Returned
	case place(final) != place(asked) || final.RawQuery != asked.RawQuery:
		return MovedOn
	}
	return ""
}

// redirected tells whether there was a redirect that is not permanent. A permanent one only tells
// another address of what was requested: a browser follows it by itself from then on.
func redirected(g ledger.Get) bool {
	return slices.ContainsFunc(g.Redirects, func(status int) bool { return status == 302 || status == 303 || status == 307 })
}

// guards are parts of the names under which sites put a secret into an address, by which they know
// that a page of their own asks.
var guards = []string{"nonce", "csrf", "xsrf", "authenticitytoken", "requestverification", "sesskey", "formkey", "formtoken"}

// guarded tells whether an address has such a secret.
func guarded(u *url.URL) bool {
	for name, values := range u.Query() {
		plain := strings.Map(func(r rune) rune {
			if r == '-' || r == '_' || r == '.' {
				return -1
			}
			return r
		}, strings.ToLower(name))
		known := name == "_token" || slices.ContainsFunc(guards, func(g string) bool { return strings.Contains(plain, g) })
		if known && slices.ContainsFunc(values, func(v string) bool { return v != "" }) {
			return true
		}
	}
	return false
}

// parsed is an http or https URL, or nil for any other text.
func parsed(raw string) *url.URL {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	return u
}

// place is a URL's host and path, without its query and fragment.
func place(u *url.URL) string { return strings.ToLower(u.Host) + strings.TrimRight(u.Path, "/") }

// writesByGet is the fact about GETs that may have changed something, without those that the
// profile's owner has declared harmless, or that did nothing as their site shows.
func writesByGet(name string, gets []checkpoint.Entry, declared func(checkpoint.Entry) bool) table.Fact {
	counted, quiet := split(gets, declared)
	besides := ""
	if len(quiet) > 0 {
		besides = fmt.Sprintf("; %d that are declared harmless, known to only read, or shown to have done nothing are not counted", times(quiet))
	}
	if len(counted) == 0 {
		return table.Fact{Name: name, Answer: table.No, How: "no GET showed a sign of a write" + besides}
	}
	unanswered, signed := split(counted, func(e checkpoint.Entry) bool { return Sign(e.Name) != Unanswered })
	if len(signed) == 0 {
		last := unanswered[len(unanswered)-1]
		return table.Fact{Name: name, Answer: table.Unknown, How: fmt.Sprintf("%d were not answered, the last GET %s%s", times(unanswered), last.URL, besides)}
	}
	if len(unanswered) > 0 {
		besides = fmt.Sprintf("; %d more were not answered", times(unanswered)) + besides
	}
	last := signed[len(signed)-1]
	return table.Fact{Name: name, Answer: table.Yes, How: fmt.Sprintf("%d seen, the last GET %s: %s%s", times(signed), last.URL, Sign(last.Name).Tell(), besides)}
}

// getsAfterAction is the fact about GETs of pages on which the worker had acted, without those
// that the profile's owner declares harmless.
func getsAfterAction(name string, gets []checkpoint.Entry, declared func(checkpoint.Entry) bool) table.Fact {
	counted, _ := split(gets, declared)
	if len(counted) == 0 {
		return table.Fact{Name: name, Answer: table.No, How: "no page on which the worker had acted asked for anything by GET"}
	}
	return table.Fact{Name: name, Answer: table.Yes, How: fmt.Sprintf("%d pages asked for something by GET after the worker had acted on them, the last for %s", times(counted), counted[len(counted)-1].URL)}
}
