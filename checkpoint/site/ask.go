package site

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/spec"

	"leasehold/checkpoint/shape"
	"leasehold/evidence/redact"
)

// Question is what a site is asked about an account: a probe of its file, the identity, or a page that
// is opened.
type Question struct {
	Probe
	Site string
	// Identity says that the answer tells whose account it is.
	Identity bool
	// Opens says that the page is opened, with its scripts, and everything failed that it wants to
	// send and that may write.
	Opens bool
	Ask
	file File
}

// Ask is how a URL is asked for.
type Ask struct {
	URL     string
	Headers map[string]string
	// Bearer is the name in the local storage of the URL's origin under which an application keeps
	// the token that it sends instead of cookies; empty: there is none.
	Bearer string
	// BearerAt is the JSON path of the token, if what is kept there is JSON with more in it.
	BearerAt string `json:",omitempty"`
}

// localStorage begins BearerFrom.
const localStorage = "localStorage."

// bearer are the name and the JSON path that BearerFrom has.
func (f File) bearer() (name, path string) {
	name, path, found := strings.Cut(strings.TrimPrefix(f.BearerFrom, localStorage), " $")
	if found {
		path = "$" + path
	}
	return name, path
}

// Token is the one in what the application keeps under the name; empty: there is none.
func (a Ask) Token(kept string) string {
	if a.BearerAt != "" {
		var v any
		_ = json.Unmarshal([]byte(kept), &v) // what is no JSON has no token at a path
		if values := selected(a.BearerAt, v); len(values) == 1 {
			return values[0]
		}
		return ""
	}
	var text string
	if json.Unmarshal([]byte(kept), &text) == nil { // many applications keep JSON
		return text
	}
	return kept
}

func (f File) ask(address string) Ask {
	if strings.HasPrefix(address, "/") {
		address = f.Origins[0] + address
	}
	name, path := f.bearer()
	return Ask{URL: address, Headers: f.Headers, Bearer: name, BearerAt: path}
}

// Questions are those of a file: the identity comes first.
func (f File) Questions() (all []Question) {
	if f.Identity != nil {
		all = append(all, Question{Probe: *f.Identity, Site: f.Name, Identity: true, Ask: f.ask(f.Identity.Get), file: f})
	}
	for _, p := range f.Probes {
		all = append(all, Question{Probe: p, Site: f.Name, Ask: f.ask(p.Get), file: f})
	}
	return all
}

// Rehearsals are the pages of a file that are opened.
func (f File) Rehearsals() (all []Question) {
	for _, r := range f.Rehearse {
		all = append(all, Question{Probe: Probe{Name: "page " + r.Open, Get: r.Open, TakeText: r.TakeText}, Site: f.Name, Opens: true, Ask: f.ask(r.Open), file: f})
	}
	return all
}

// ID tells a question from all others.
func (q Question) ID() string {
	if q.Identity {
		return q.Site
	}
	return q.Site + "/" + q.Name
}

// Alarms tells whether a changed answer speaks against letting a profile go.
func (q Question) Alarms() bool { return q.Alarm == nil || *q.Alarm }

// takenForm is the version of the form in which Picked.Values has what is taken out of JSON: what was remembered in
// another one is not compared.
const takenForm = 2

// Means is the same for questions whose answers can be compared: they ask for the same, and pick out
// the same.
func (q Question) Means() string {
	form := 0
	if len(q.Take) > 0 {
		form = takenForm
	}
	b, _ := json.Marshal(struct { // it consists of texts
		Ask
		Take            []string
		TakeText, Match string
		Opens           bool `json:",omitempty"`
		Form            int  `json:",omitempty"`
	}{q.Ask, q.Take, q.TakeText, q.Match, q.Opens, form})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Owns tells whether a URL is one of the site that is asked.
func (q Question) Owns(raw string) bool { return q.file.Owns(raw) }

// Covers tells whether an unchanged answer proves that a request of that shape did nothing; plain is what
// Plain says of it: what the shape does not tell of a request, no answer is about.
func (q Question) Covers(shp, raw string, plain bool) bool {
	if !plain || !q.file.Owns(raw) {
		return false
	}
	said := shape.ReadShape(shp, raw)
	return slices.ContainsFunc(q.Probe.Covers, func(text string) bool {
		p, err := shape.ParsePattern(text)
		return err == nil && p.Covers(said)
	})
}

// Covers tells whether the answer to any question may prove that a request of that shape did nothing.
func (b *Book) Covers(shp, raw string, plain bool) (found bool) {
	b.of(raw, func(s *site) bool {
		found = slices.ContainsFunc(s.file.Questions(), func(q Question) bool { return q.Covers(shp, raw, plain) })
		return found
	})
	return found
}

// MaxQuestions is how many questions a book has for one session, at most: whose account it is comes first,
// of each site, and is never left out.
const MaxQuestions = 40

// Questions are what is asked about an account: of the sites of these URLs, and of those in these
// domains. The identities of all sites come before the probes.
func (b *Book) Questions(urls, domains []string) (all []Question) {
	identities, others := b.ask(urls, domains, File.Questions)
	return append(identities, others[:min(len(others), max(MaxQuestions-len(identities), 0))]...)
}

// Rehearsals are the pages that are opened about an account: of the sites of these URLs, and of those
// in these domains.
func (b *Book) Rehearsals(urls, domains []string) []Question {
	_, pages := b.ask(urls, domains, File.Rehearsals)
	return pages
}

func (b *Book) ask(urls, domains []string, what func(File) []Question) (identities, others []Question) {
	if b == nil {
		return nil, nil
	}
	for _, f := range b.files {
		own := slices.ContainsFunc(urls, f.Owns) || f.in(domains)
		if own || f.around(domains) {
			for _, q := range what(f) {
				if q.Identity && !own && !q.near(domains) { // whose account another host's is says nothing
					continue
				}
				if q.Identity {
					identities = append(identities, q)
				} else {
					others = append(others, q)
				}
			}
		}
	}
	return identities, others
}

// Identities are the questions whose account it is: of the site of this URL, of those in these domains,
// and of those for which counts is true.
func (b *Book) Identities(address string, domains []string, counts func(Question) bool) (all []Question) {
	if b == nil {
		return nil
	}
	for _, f := range b.files {
		if f.Identity == nil {
			continue
		}
		q := f.Questions()[0]
		if f.Owns(address) || f.in(domains) || f.around(domains) && q.near(domains) || counts(q) {
			all = append(all, q)
		}
	}
	return all
}

// Probes are the probes of the sites in these domains, and of those with a question for which counts is
// true.
func (b *Book) Probes(domains []string, counts func(Question) bool) []Question {
	if b == nil {
		return nil
	}
	var all []Question
	for _, f := range b.files {
		if f.in(domains) || f.around(domains) || slices.ContainsFunc(f.Questions(), counts) {
			all = append(all, slices.DeleteFunc(f.Questions(), func(q Question) bool { return q.Identity })...)
		}
	}
	return all[:min(len(all), MaxQuestions)]
}

// SignIns are the files that say how the launcher signs in, of the sites for which counts is true.
func (b *Book) SignIns(counts func(File) bool) (all []File) {
	if b == nil {
		return nil
	}
	for _, f := range b.files {
		if f.SignIn != nil && counts(f) {
			all = append(all, f)
		}
	}
	return all
}

// in tells whether an origin of the site has a host in one of these domains.
func (f File) in(domains []string) bool {
	return slices.ContainsFunc(f.Origins, func(o string) bool { return within(o, domains) })
}

// around tells whether one of these domains is below an origin with a wildcard.
func (f File) around(domains []string) bool {
	return slices.ContainsFunc(f.Origins, func(o string) bool {
		parent := strings.Replace(o, "://*.", "://", 1)
		u, err := url.Parse(parent)
		return err == nil && parent != o && anyBelow(domains, u.Hostname())
	})
}

// near tells whether the host that is asked has one of these domains above it, or below.
func (q Question) near(domains []string) bool {
	u, err := url.Parse(q.URL)
	return err == nil && (within(q.URL, domains) || anyBelow(domains, u.Hostname()))
}

// anyBelow tells whether one of these domains is below a host.
func anyBelow(domains []string, host string) bool {
	return slices.ContainsFunc(domains, func(d string) bool { return strings.HasSuffix(strings.ToLower(d), "."+host) })
}

// within tells whether a URL, or an origin, has a host in one of these domains.
func within(origin string, domains []string) bool {
	u, err := url.Parse(strings.Replace(origin, "://*.", "://", 1))
	return err == nil && slices.ContainsFunc(domains, func(d string) bool {
		d = strings.ToLower(strings.TrimPrefix(d, "."))
		return d != "" && (u.Hostname() == d || strings.HasSuffix(u.Hostname(), "."+d))
	})
}

// AskFor is how a URL of a site is asked for, by the file that names its origin nearest.
func (b *Book) AskFor(raw string) Ask {
	a := Ask{URL: raw}
	b.of(raw, func(s *site) bool { a = s.file.ask(raw); return true })
	return a
}

// Picked is what a question picks out of an answer.
type Picked struct {
	// Values are equal if what was picked out is.
	Values string
	// Whole says that there was a value for everything that is picked out. Otherwise some is missing,
	// which is not equal to another answer in which it is.
	Whole bool
	// Text is what a person is shown, bounded, without what looks like a secret.
	Text string
}

// Bounds of what is picked out of an answer.
const (
	maxValues = 64 << 10
	maxShown  = 120 // bytes of each text that is shown
)

// ErrNoValue says that an answer has nothing of what is picked out.
var ErrNoValue = errors.New("the answer has no such value")

// Pick picks out of the body of an answer what the question wants to know.
func (q Question) Pick(body []byte) (Picked, error) {
	if q.Opens && q.TakeText == "" {
		return Picked{Values: "[]", Whole: true, Text: "opened"}, nil
	}
	var parts []any // a text, or what taken returns, for each thing that is picked out
	var said []string
	var shown string
	whole := true
	if q.TakeText != "" {
		doc, err := parseHTML(body)
		if err != nil {
			return Picked{}, err
		}
		text, found := doc.text(q.TakeText)
		one, matches := q.matched(text)
		parts, said, whole = []any{one}, []string{one}, found && matches
		if q.Show != "" {
			shown, _ = doc.text(q.Show)
		}
	} else {
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return Picked{}, errors.New("the answer is no JSON")
		}
		if _, err := d.Token(); err != io.EOF {
			return Picked{}, errors.New("the answer is no JSON: something follows its value")
		}
		for _, path := range q.Take {
			found := len(said)
			part, all := taken(path, v, func(value string) string {
				one, matches := q.matched(value)
				said, whole = append(said, one), whole && matches
				return one
			})
			parts, whole = append(parts, part), whole && all && len(said) > found
		}
		if q.Show != "" {
			shown = strings.Join(selected(q.Show, v), ", ")
		}
	}
	said = slices.DeleteFunc(said, func(p string) bool { return p == "" })
	if len(said) == 0 {
		return Picked{}, ErrNoValue
	}
	b, err := json.Marshal(parts)
	if err != nil || len(b) > maxValues {
		return Picked{}, fmt.Errorf("what is picked out is too large: want at most %d bytes", maxValues)
	}
	text := showable(strings.Join(said, ", "))
	if shown = showable(shown); shown != "" {
		text += " (" + shown + ")"
	}
	return Picked{Values: string(b), Whole: whole, Text: text}, nil
}

// matched is what is compared of a value, and false if nothing of it is.
func (q Question) matched(value string) (string, bool) {
	if q.Match == "" {
		return value, true
	}
	re, err := regexp.Compile(q.Match) // Check has compiled it
	if err != nil {
		return "", false
	}
	found := re.FindString(value)
	return found, found != ""
}

// selected are the values of a JSON path, as texts; null is none.
func selected(path string, in any) (values []string) {
	taken(path, in, func(value string) string { values = append(values, value); return value })
	return values
}

// taken is what a JSON path picks out of a value: a text, as leaf returns it of the value's own, null, or false for
// what is not there. Where a step of the path may lead to several, they are a list in the order of their places, so
// that what one of them lacks does not look like what another one has. whole is false if anything is not there.
func taken(path string, in any, leaf func(value string) string) (found any, whole bool) {
	p, err := jsonpath.Parse(path) // Check has parsed it
	if err != nil {
		return false, false
	}
	whole = true
	var walk func(segments []*spec.Segment, node any) any
	one := func(selector spec.Selector, segments []*spec.Segment, node any) any {
		if next := selector.Select(node, in); len(next) == 1 {
			return walk(segments, next[0])
		}
		whole = false
		return false
	}
	walk = func(segments []*spec.Segment, node any) any {
		if len(segments) == 0 {
			return textOf(node, leaf)
		}
		first, rest := segments[0], segments[1:]
		selectors, list := first.Selectors(), []any{}
		if named := !first.IsDescendant() && !slices.ContainsFunc(selectors, severally); named && len(selectors) == 1 {
			return one(selectors[0], rest, node)
		} else if named {
			for _, s := range selectors {
				list = append(list, one(s, rest, node))
			}
			return list
		}
		switch node.(type) {
		case []any, map[string]any:
		default: // it has no members
			whole = false
			return false
		}
		next := first.SelectLocated(node, in, nil)
		slices.SortStableFunc(next, func(a, b *spec.LocatedNode) int { return a.Path.Compare(b.Path) }) // those of an object come in any order
		for _, n := range next {
			list = append(list, walk(rest, n.Node))
		}
		return list
	}
	return walk(p.Query().Segments(), in), whole
}

// severally tells whether a selector of a JSON path may lead to more than one value.
func severally(s spec.Selector) bool {
	switch s.(type) {
	case spec.Name, spec.Index:
		return false
	}
	return true
}

// textOf is the text of a value that is no null, as leaf returns it.
func textOf(value any, leaf func(string) string) any {
	switch v := value.(type) {
	case nil:
		return nil
	case string:
		return leaf(v)
	}
	b, err := json.Marshal(value)
	if err != nil { // it was read from JSON
		return nil
	}
	return leaf(string(b))
}

// secret is a text of the kind that sites draw at random.
var secret = regexp.MustCompile(`[A-Za-z0-9_+/=-]{16,}(\.[A-Za-z0-9_-]{8,})*`)

// showable is a text of a site as people may see it.
func showable(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	text = secret.ReplaceAllStringFunc(text, func(s string) string {
		if strings.ContainsAny(s, "0123456789") && strings.IndexFunc(s, unicode.IsLetter) >= 0 {
			return redact.Mark
		}
		return s
	})
	return redact.Clip(text, maxShown)
}

// State is what became of a question.
type State string

// The states. A site that shows no value with an answer of its own, a refusal, or a redirect, such as
// to a sign-in, did not show it. Of one that did not answer, or not in its usual way, it is unknown.
const (
	Told    State = "told"
	NotTold State = "not_shown"
	NotHad  State = "unknown"
)

// Answer is a question with its answer.
type Answer struct {
	Question
	State State
	Picked
	// How says in words how the site answered, without what it answered.
	How string
	// Writes says by which sign the question itself may have changed something; empty: there is none.
	Writes string
	// Opened says of a page that it was there, as the account's. Wanted are the requests that it wanted
	// to send then, and that may write: in words, without values.
	Opened bool
	Wanted []string
}

// Kept is what is remembered of an answer that was given while nobody used the account.
type Kept struct {
	Means  string `json:"means"`  // of the question, see Question.Means
	Digest string `json:"digest"` // of the values, with a key
	Whole  bool   `json:"whole,omitempty"`
	Text   string `json:"text,omitempty"` // not of identities
	// Moved says that the answer was once seen to change.
	Moved bool `json:"moved,omitempty"`
	// Token is the lease token that the profile had then; 0: it is not known.
	Token uint64    `json:"token,omitempty"`
	At    time.Time `json:"at"`
}

// Compared is an answer beside the one that was remembered.
type Compared struct {
	Answer
	Before *Kept // nil: there is none that can be compared
	From   Origin
	Equal  bool // both are whole, and the same
	Moved  bool // what was picked out is not what it was
}

// Compare compares an answer with what is remembered of the question. digest makes the keyed digest
// of values.
func Compare(a Answer, before Kept, digest func(id, values string) string) Compared {
	c := Compared{Answer: a}
	if before.Means != a.Means() {
		return c
	}
	c.Before = &before
	if a.State == Told {
		same := digest(a.ID(), a.Values) == before.Digest
		c.Equal, c.Moved = same && a.Whole && before.Whole, !same
	}
	return c
}

// Tell says in words what an answer shows, to a person who may see values: orders: 14, now 15.
func (c Compared) Tell() string {
	if c.Identity || c.State != Told {
		return c.Brief()
	}
	was := ""
	if c.Before != nil {
		was = c.Before.Text
	}
	if c.Moved {
		return c.say(cmp.Or(was, "another value") + ", now " + c.Text)
	}
	return c.say(c.Text + ", " + c.standing())
}

// Brief says it without any value, for records and logs.
func (c Compared) Brief() string {
	switch {
	case c.State != Told:
		return c.say(c.How)
	case c.Identity && c.Moved:
		return c.say("another account than before")
	}
	return c.say(c.standing())
}

// standing is how an answer compares with the one before.
func (c Compared) standing() string {
	switch {
	case c.Before == nil:
		return "asked for the first time"
	case c.Moved:
		return "not what it was"
	}
	return "as before"
}

// Since says in words how an answer compares with an earlier one, without a value: as before, compared with
// the answer at checkpoint a.
func (c Compared) Since() string { return c.standing() + c.from() }

// from says with which answer it is compared, where that is not the last at rest.
func (c Compared) from() (text string) {
	switch {
	case c.Before == nil && c.From.Why != "":
		return "; " + c.From.Why
	case c.Before == nil || c.From == Origin{}:
		return ""
	case c.From.Why != "":
		text = ": " + c.From.Why
	}
	if c.From.Earlier && len(c.Probe.Covers) > 0 {
		text += ", so that it covers nothing"
	}
	return ", compared with " + cmp.Or(c.From.Of, "the last answer at rest") + text
}

func (c Compared) say(text string) string {
	text = c.Site + ": " + cmp.Or(c.Name, "identity") + ": " + text + c.from()
	if c.Before != nil && !c.Before.Moved && !c.Moved && !c.Identity && (!c.Opens || c.TakeText != "") {
		text += " (never seen to change)"
	}
	if len(c.Wanted) > 0 {
		text += "; it wants to send " + strings.Join(c.Wanted, ", ")
	}
	return text
}
