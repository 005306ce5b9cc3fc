package decision

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"leasehold/checkpoint"
)

// Four more questions of an inspection: did pages change something by a GET? And did a page on
// which the worker had acted ask for anything by GET at all? The table does not use the second:
// most such GETs read. It is for owners of accounts on sites that change something by a GET that
// is answered like any other.
const (
	WritesByGet          = "writes_by_get"
	WritesByGetSinceSafe = "writes_by_get_since_safe_checkpoint"
	GetsAfterAction      = "gets_after_action"
	GetsAfterActionSince = "gets_after_action_since_safe_checkpoint"
)

// A GET should only read, and nearly every GET does. A few sites change something by a GET: a
// link takes the next ticket, a button calls /relay?on=1. Neither the URL nor the name of a
// control shows that in every language, but what the site does next does. A read shows what was
// requested. A write sends the browser back to where it was, or on to something that nobody
// named, or its answer has nothing to read.
//
// A GET without such a sign counts as a read: links, sorting, paging, filtering and searching
// need no person. But what the site did next has to be seen. If it could not be seen, because
// the page was gone or did not answer, the GET is neither read nor write: a person decides. Two
// more cases cannot be told from what is shown: whether a button that is answered with a value
// or two, a price or a code, produced what it shows, and whether a form that is no search sets
// something.

// Sign is why a GET looks like a write, or that it could not be judged; empty for a read.
type Sign string

// The signs. The journal names a GET's sign.
const (
	Returned     Sign = "returned"
	Chosen       Sign = "chosen"
	NoContent    Sign = "no_content"
	Confirmed    Sign = "confirmed"
	Toggled      Sign = "toggled"
	NothingShown Sign = "nothing_shown"
	Acknowledged Sign = "acknowledged"
	Reloaded     Sign = "reloaded"
	Notice       Sign = "notice"

	// Unjudged is no sign of a write: it was not seen what the site did next.
	Unjudged Sign = checkpoint.GetUnjudged
)

// signTexts explain the signs to a person.
var signTexts = map[Sign]string{
	Returned:     "the site sent the browser back to the page from which it was asked",
	Chosen:       "the site went on to something that the request did not name",
	NoContent:    "it was answered without content",
	Confirmed:    "a question was answered with yes just before it",
	Toggled:      "only the control that was pressed changed after its answer",
	NothingShown: "nothing of its answer was shown",
	Acknowledged: "its answer was a word or two, and none of that was shown",
	Reloaded:     "the page was loaded anew when it was answered, by itself",
	Notice:       "it was answered with a short notice that has nothing to press",
}

// Get is a GET that somebody caused on a page, by pressing something or by a command that opens
// its URL, together with its effect.
type Get struct {
	// From is the URL of the page that sent the request, Asked the URL that was requested, and
	// Final the one that answered in the end. They differ after redirects, whose statuses are
	// Redirects.
	From, Asked, Final string
	Redirects          []int
	// Status is the status of the last answer; 0 if there was none.
	Status int
	// Document says that a page navigated. Otherwise a script of the page sent the request.
	Document bool
	// Commanded says that a command opened the URL; Form, that a form was sent.
	Commanded, Form bool
	// Sets says that the form is not a search: it has no text field, or several in which nobody
	// has typed.
	Sets bool
	// Detour says that a redirect led through another site.
	Detour bool
	// Shown says that the page at Final was shown before.
	Shown bool
	// Agreed says that somebody answered a confirm dialog of the page with yes just before.
	Agreed bool
	// Pressed is the control that was pressed, and what became of the page. It is nil if a
	// script's request did not follow from a press.
	Pressed *Pressed
	// Unseen says why it could not be seen what the site did next, or what was pressed; empty
	// if it was seen.
	Unseen string
}

// Pressed is a control that was pressed before a script of its page sent a request, and what
// changed in the page when the answer came.
type Pressed struct {
	// Link says that the control is a link with an address; Field, that it is a text field, or
	// the button of a form with one, as in a search.
	Link, Field bool
	// Choice says that the control chooses what is shown, as a tab or a select box does.
	Choice bool
	// Own says that the control itself changed.
	Own bool
	// Elsewhere says whether the answer changed anything else, except places that are meant for
	// notices. It is unknown if another answer may have brought what changed; empty means no.
	Elsewhere Answer
	// Opaque says that the page shows things in ways that cannot be seen: a canvas, a video, or
	// components of its own.
	Opaque bool
	// Values is how many values the answer has. It is negative for an answer that is long, or
	// has a list or markup: such an answer is meant to be read.
	Values int
	// Lost says that the answer could not be read, so that Values is not known.
	Lost bool
	// Told says whether one of the values was found in what changed. It is unknown if another
	// answer may have brought that value; empty means no.
	Told Answer
}

// Sign returns the sign by which a GET looks like a write.
func (g Get) Sign() Sign {
	from, asked, final := parsed(g.From), parsed(g.Asked), parsed(g.Final)
	if asked == nil || final == nil || g.Status >= 400 || from != nil && !sameSite(asked, g.From) {
		return ""
	}
	switch {
	case g.Document && (g.Status == 204 || g.Status == 205):
		return NoContent
	case g.Document && g.Agreed:
		return Confirmed
	case g.Document && g.returned(from, asked, final):
		return Returned
	case g.Document && g.chosen(from, asked, final):
		return Chosen
	case g.Document && (g.Unseen != "" || g.Sets && g.Status != 0):
		return Unjudged
	case !g.Document && g.Pressed != nil:
		return g.byScript(from, final)
	}
	return ""
}

// returned tells whether redirects led back to the page that sent the request. That is no sign
// of a write if the requested place is only another address of that page: one that leads
// further down to where the browser already is, as a site's logo does, or one that has moved
// permanently. A command that opens a page may be sent back because it asked for nothing in
// particular, as before a sign-in.
func (g Get) returned(from, asked, final *url.URL) bool {
	if from == nil || g.Detour || !g.redirected() || place(final) != place(from) || place(asked) == place(from) {
		return false
	}
	if strings.HasPrefix(place(final), place(asked)+"/") || place(asked) == place(&url.URL{Host: asked.Host}) {
		return false
	}
	return !g.Commanded || len(identifiers(asked)) > 0 || names(asked, final)
}

// names tells whether a query has anything besides the address to go on to.
func names(asked, final *url.URL) bool {
	for _, values := range asked.Query() {
		for _, v := range values {
			if v != "" && !strings.HasSuffix(strings.TrimSuffix(v, "/"), strings.TrimSuffix(final.Path, "/")) {
				return true
			}
		}
	}
	return false
}

// chosen tells whether redirects led to one of many things although the request named none: the
// next ticket, a draft that was just made. It is no choice if a form finds one thing, if a
// place leads further down, or if a sign-in comes first.
func (g Get) chosen(from, asked, final *url.URL) bool {
	if g.Detour || g.Form || g.Shown || !g.redirected() || !sameSite(final, g.Asked) || len(identifiers(asked)) > 0 {
		return false
	}
	segments := segmentsOf(asked)
	if len(segments) == 0 || related(segments[len(segments)-1], final) {
		return false
	}
	var before []string
	if from != nil {
		before = identifiers(from)
	}
	return slices.ContainsFunc(identifiers(final), func(id string) bool { return !slices.Contains(before, id) })
}

// related tells whether a name occurs in a URL again: in its path, its route, or an address
// that it carries.
func related(name string, u *url.URL) bool {
	name = strings.ToLower(name)
	for _, s := range slices.Concat(segmentsOf(u), strings.Split(u.Fragment, "/")) {
		if strings.Contains(strings.ToLower(s), name) {
			return true
		}
	}
	for _, values := range u.Query() {
		for _, v := range values {
			if strings.Contains(strings.ToLower(v), name) {
				return true
			}
		}
	}
	return false
}

// redirected tells whether there was a redirect that is not permanent.
func (g Get) redirected() bool {
	return slices.ContainsFunc(g.Redirects, func(status int) bool { return status == 302 || status == 303 || status == 307 })
}

// fewValues is the most values of an answer that only says that all is well.
const fewValues = 3

// byScript judges a script's request that followed from a press.
func (g Get) byScript(from, final *url.URL) Sign {
	p := g.Pressed
	switch {
	case p.Link || p.Field || counts(g.Asked) || collector(g.Asked) || g.Status == 0 && g.Unseen == "":
		return ""
	case g.Agreed:
		return Confirmed
	case g.Status == 204 || g.Status == 205:
		return NoContent
	case from != nil && g.redirected() && place(final) == place(from):
		return Returned
	case g.Status == 0:
		return Unjudged
	case p.Values < 0:
		return ""
	case g.Unseen != "" || p.Lost:
		return Unjudged
	}
	return p.shown()
}

// shown judges a short answer by what the page showed when the answer came.
func (p Pressed) shown() Sign {
	many := p.Values > fewValues
	sure := p.Elsewhere == Yes
	switch {
	case p.Told == Yes && !many && !p.Choice:
		return Unjudged
	case p.Told == Yes, sure && many, p.Opaque && !sure:
		return ""
	case sure && p.Told != Unknown:
		return Acknowledged
	case p.Told == Unknown, p.Elsewhere == Unknown && many:
		return Unjudged
	case p.Elsewhere == Unknown: // who brought it does not matter: it is not what was answered
		return Acknowledged
	case p.Own:
		return Toggled
	}
	return NothingShown
}

// Page is the content of an opened document.
type Page struct {
	Controls int // links, buttons, fields, frames and pictures
	Letters  int // of its text
}

// noticeLetters is the greatest length of a notice.
const noticeLetters = 240

// IsNotice tells whether a document that was requested by an address with a key is not meant to
// be read, but says that something was done: a few words, without a way on. A link in a mail
// that unsubscribes, or a code that checks somebody in, is answered in that way.
func IsNotice(raw string, p Page) bool {
	u := parsed(raw)
	return u != nil && p.Controls == 0 && p.Letters > 0 && p.Letters <= noticeLetters && Keyed(raw)
}

// Keyed tells whether a URL has a key besides its place: a query, or a part of the path that no
// person would read out.
func Keyed(raw string) bool {
	u := parsed(raw)
	return u != nil && (u.RawQuery != "" || slices.ContainsFunc(segmentsOf(u), isKey))
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

func segmentsOf(u *url.URL) []string {
	return strings.FieldsFunc(u.Path, func(r rune) bool { return r == '/' })
}

// identifiers are the parts of a URL that name one of many things: numbers and keys in its
// path, and in its query. A year does not count, nor the month or day after it.
func identifiers(u *url.URL) []string {
	var found []string
	dated := false
	for _, s := range segmentsOf(u) {
		number := isNumber(s)
		switch {
		case number && len(s) == 4 && (strings.HasPrefix(s, "19") || strings.HasPrefix(s, "20")):
			dated = true
		case number && !(dated && len(s) <= 2), isKey(s):
			found = append(found, s)
		}
	}
	for _, values := range u.Query() {
		for _, v := range values {
			if isNumber(v) || isKey(v) {
				found = append(found, v)
			}
		}
	}
	return found
}

func isNumber(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsDigit(r) }) < 0
}

// isKey tells whether a text mixes letters and digits as no word does: at least six characters,
// two of them digits. If it has dashes, no part between them may be a word, as in an address
// that contains a title.
func isKey(s string) bool {
	if utf8.RuneCountInString(s) < 6 {
		return false
	}
	digits, letters := 0, 0
	for _, r := range s {
		switch {
		case unicode.IsDigit(r):
			digits++
		case unicode.IsLetter(r):
			letters++
		case r != '-' && r != '_':
			return false
		}
	}
	if digits < 2 || letters == 0 {
		return false
	}
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '-' || r == '_' })
	return len(parts) == 1 || !slices.ContainsFunc(parts, func(p string) bool {
		return strings.IndexFunc(p, unicode.IsDigit) < 0 && !isHex(p)
	})
}

func isHex(s string) bool { return strings.Trim(strings.ToLower(s), "0123456789abcdef") == "" }

// writesByGet is the fact about GETs that look like writes, without those that the profile's
// owner has declared harmless.
func writesByGet(name string, gets []checkpoint.Entry, declared func(checkpoint.Entry) bool) Fact {
	counted, quiet := split(gets, declared)
	besides := ""
	if len(quiet) > 0 {
		besides = fmt.Sprintf("; %d that the profile declares harmless are not counted", times(quiet))
	}
	if len(counted) == 0 {
		return Fact{name, No, "no GET looked like a write" + besides}
	}
	unjudged, writes := split(counted, func(e checkpoint.Entry) bool { return Sign(e.Name) != Unjudged })
	if len(writes) == 0 {
		last := unjudged[len(unjudged)-1]
		return Fact{name, Unknown, fmt.Sprintf("%d could not be judged, the last GET %s: %s%s", times(unjudged), last.URL, last.Text, besides)}
	}
	last := writes[len(writes)-1]
	why := signTexts[Sign(last.Name)]
	if last.Text != "" {
		why += " (" + last.Text + ")"
	}
	if len(unjudged) > 0 {
		besides = fmt.Sprintf("; %d more could not be judged", times(unjudged)) + besides
	}
	return Fact{name, Yes, fmt.Sprintf("%d seen, the last GET %s: %s%s", times(writes), last.URL, why, besides)}
}

// getsAfterAction is the fact about GETs of pages on which the worker had acted, without those
// that the profile's owner declares harmless.
func getsAfterAction(name string, gets []checkpoint.Entry, declared func(checkpoint.Entry) bool) Fact {
	counted, _ := split(gets, declared)
	if len(counted) == 0 {
		return Fact{name, No, "no page on which the worker had acted asked for anything by GET"}
	}
	return Fact{name, Yes, fmt.Sprintf("%d pages asked for something by GET after the worker had acted on them, the last for %s", times(counted), counted[len(counted)-1].URL)}
}

// ValuesOf returns the texts and numbers of a small answer, each cut to max bytes, and how many
// values it has in all. The count is -1 for an answer that is meant to be read: one that has a
// list or markup, or is no JSON and longer than a word or two.
func ValuesOf(body string, max int) (texts []string, count int) {
	texts = []string{}
	body = strings.TrimSpace(body)
	if body == "" {
		return texts, 0
	}
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		if len(body) > max || strings.ContainsAny(body, "<\n") {
			return texts, -1
		}
		return []string{body}, 1
	}
	var walk func(v any) bool
	walk = func(v any) bool {
		text := ""
		switch x := v.(type) {
		case []any:
			return false
		case map[string]any:
			for _, member := range x {
				if !walk(member) {
					return false
				}
			}
			return true
		case string:
			text = x
		case json.Number:
			text = x.String()
		}
		if count++; text != "" && len(text) <= max {
			texts = append(texts, text)
		}
		return true
	}
	if !walk(v) {
		return []string{}, -1
	}
	return texts, count
}
