package site

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint/shape"
)

// Verdict is what is known of a request. The zero value is nothing.
type Verdict struct {
	Is         string // Read, Write, or nothing
	Repeatable bool   // of a write: doing it again is harmless
	Line       string // which line said so: the name of its file, and Line.Text
}

// Book has the files of all sites. It does not change. A nil Book knows nothing.
type Book struct {
	files  []File
	sites  map[string][]*site // by origin, in which * may stand for the parts in front
	byGET  bool               // a line is about GETs
	probes bool               // there is a probe
	places bool               // a file has sensitive places
	// Since is when a launcher began to go by it; zero: it always has.
	Since time.Time
	older map[string]time.Time // when it began to go by the files that the book before had, by their names
}

// Source returns the book of the moment: what is known changes while sessions run. A nil Source knows
// nothing.
type Source func() *Book

// Book is the book of now.
func (s Source) Book() *Book {
	if s == nil {
		return nil
	}
	return s()
}

type site struct {
	file  File
	lines []line
	// sensitive are the sensitive places.
	sensitive []place
}

type line struct {
	pattern  shape.Pattern
	where    []where
	is       string
	repeat   bool
	text     string
	override bool // it names the field by which some servers take another method
}

type where struct {
	name      string
	condition Condition
	matches   *regexp.Regexp
}

type place struct {
	origin string
	path   []string
	query  url.Values
}

// methodField is the field by which some servers take another method.
const methodField = "_method"

func compile(f File) (*site, error) {
	s := &site{file: f}
	for i, l := range f.Requests {
		read, path, err := f.compileLine(l)
		if err != nil {
			return nil, &Error{Path: strings.TrimSuffix(at("requests", i)+"."+path, "."), Why: err.Error()}
		}
		s.lines = append(s.lines, read)
	}
	for i, text := range f.Sensitive {
		p := place{}
		address, query, _ := strings.Cut(text, "?")
		if !strings.HasPrefix(address, "/") {
			if p.origin = shape.OriginPattern(address); p.origin == "" || !f.Owns(address) {
				return nil, &Error{Path: at("sensitive", i), Why: fmt.Sprintf("%q: want a path, such as /checkout/**, or a URL on one of the origins", text)}
			}
			_, address, _ = strings.Cut(address, "://")
			_, address, _ = strings.Cut(address, "/")
		}
		values, err := url.ParseQuery(query)
		if err != nil || strings.Contains(text, "#") {
			return nil, &Error{Path: at("sensitive", i), Why: fmt.Sprintf("%q: want a path with a query of NAME=VALUE, such as /admin?page=options, and no #", text)}
		}
		p.path, p.query = strings.Split(strings.TrimPrefix(address, "/"), "/"), values
		s.sensitive = append(s.sensitive, p)
	}
	return s, nil
}

// compileLine reads a line. The path says which part of it is wrong.
func (f File) compileLine(l Line) (read line, path string, err error) {
	read = line{is: l.Is, repeat: l.Repeatable}
	if read.pattern, err = shape.ParsePattern(l.Shape); err != nil {
		return read, "shape", err
	}
	switch method := read.pattern.Method(); {
	case l.Is != Read && l.Is != Write:
		return read, "is", fmt.Errorf("%q: want read or write", l.Is)
	case l.Repeatable && l.Is != Write:
		return read, "repeatable", fmt.Errorf("want it of a line that is write only: what reads can be repeated anyway")
	case read.pattern.Origin() != "" && !f.Owns(read.pattern.Origin()+"/"):
		return read, "shape", fmt.Errorf("%s is none of the origins: add it to them, or leave it out", read.pattern.Origin())
	case method == "HEAD" || method == "OPTIONS":
		return read, "shape", fmt.Errorf("%s only reads: want another method", method)
	case l.Is == Read && read.pattern.Vague():
		return read, "shape", fmt.Errorf("%q: {} stands for many operations: want the name of one, or its text=", l.Shape)
	}
	for _, name := range sortedNames(l.Where) {
		w := where{name: name, condition: l.Where[name]}
		forms := b2i(w.condition.Equal != nil) + b2i(w.condition.Matches != "") + b2i(w.condition.Absent)
		if name == "" || forms != 1 {
			return read, "where", fmt.Errorf("%q: want a text, {matches: REGULAR EXPRESSION}, or absent", name)
		}
		if w.condition.Matches != "" {
			if w.matches, err = regexp.Compile("^(?:" + w.condition.Matches + ")$"); err != nil {
				return read, "where", fmt.Errorf("%s: matches %q: %w", name, w.condition.Matches, err)
			}
		}
		read.override = read.override || name == methodField
		read.where = append(read.where, w)
	}
	read.text = f.Name + ": " + l.Text()
	if len(read.text) > maxText {
		return read, "", fmt.Errorf("want a line of at most %d bytes", maxText)
	}
	return read, "", nil
}

// Owns tells whether a URL is on one of the file's origins.
func (f File) Owns(raw string) bool {
	return slices.ContainsFunc(origins(shape.OriginOf(raw)), func(o string) bool { return slices.Contains(f.Origins, o) })
}

// origins are the texts under which a file may have an origin, the nearest first.
func origins(origin string) []string {
	scheme, host, ok := strings.Cut(origin, "://")
	if !ok {
		return nil
	}
	all := []string{origin}
	for i, c := range host {
		if c == '.' {
			all = append(all, scheme+"://*"+host[i:])
		}
	}
	return all
}

// NewBook returns the book of some files. A file that is wrong is left out; wrong says why.
func NewBook(files []File) (b *Book, wrong []error) {
	b = &Book{sites: map[string][]*site{}}
	files = slices.Clone(files)
	slices.SortFunc(files, func(x, y File) int { return cmp.Compare(x.Name, y.Name) })
	for _, f := range files {
		err := f.Check()
		if err == nil {
			f, err = f.whole()
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("site %s: %w", f.Name, err))
			continue
		}
		s, _ := compile(f) // Check has compiled it
		b.files = append(b.files, f)
		for _, o := range slices.Compact(slices.Sorted(slices.Values(f.Origins))) {
			b.sites[o] = append(b.sites[o], s)
		}
		b.places = b.places || len(s.sensitive) > 0
		b.probes = b.probes || len(f.Probes) > 0
		for _, l := range s.lines {
			b.byGET = b.byGET || l.pattern.Method() == "GET"
		}
	}
	return b, wrong
}

// of calls do with each site that has the URL's origin, until do returns true.
func (b *Book) of(raw string, do func(*site) bool) {
	if b == nil || len(b.sites) == 0 {
		return
	}
	for _, o := range origins(shape.OriginOf(raw)) {
		if slices.ContainsFunc(b.sites[o], do) {
			return
		}
	}
}

// HasProbes tells whether any site is asked what an account is.
func (b *Book) HasProbes() bool { return b != nil && b.probes }

// JudgesGETs tells whether any line is about GETs.
func (b *Book) JudgesGETs() bool { return b != nil && b.byGET }

// Show are the names whose values may be shown of requests to a URL.
func (b *Book) Show(raw string) (names []string) {
	b.of(raw, func(s *site) bool { names = append(names, s.file.Show...); return false })
	return names
}

// Sensitive tells whether a URL is a sensitive place.
func (b *Book) Sensitive(raw string) (found bool) {
	if b == nil || !b.places {
		return false
	}
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	segments := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	b.of(raw, func(s *site) bool {
		found = slices.ContainsFunc(s.sensitive, func(p place) bool { return p.is(u, segments) })
		return found
	})
	return found
}

func (p place) is(u *url.URL, segments []string) bool {
	if p.origin != "" && !shape.OriginMatches(p.origin, shape.OriginOf(u.String())) || !shape.PathMatches(p.path, segments, segments, false) {
		return false
	}
	have := shape.QueryOf(u.RawQuery)
	for name, values := range p.query {
		found, _ := have.Values(name)
		for _, v := range values {
			if !slices.Contains(found, v) {
				return false
			}
		}
	}
	return true
}

// Judge says what is known of a request. shp is its shape. The first line that matches decides.
// One that says that a request only reads, or may be repeated, has to be certain of all of it; for
// one that says that it writes it is enough that it may be meant.
func (b *Book) Judge(r shape.Request, shp string) (v Verdict) {
	var fields *shape.Fields
	known := func() shape.Fields {
		if fields == nil {
			f := shape.FieldsOf(r)
			fields = &f
		}
		return *fields
	}
	var said *shape.Read
	b.of(r.URL, func(s *site) bool {
		for _, l := range s.lines {
			if l.pattern.Method() != r.Method {
				continue
			}
			if said == nil {
				read := shape.ReadShape(shp, r.URL)
				said = &read
			}
			certain := l.covers(r, *said, known)
			if certain || l.is == Write && l.touches(*said, known) {
				v = Verdict{Is: l.is, Repeatable: l.repeat && certain, Line: l.text}
				return true
			}
		}
		return false
	})
	return v
}

// speaksFor tells whether a line with a pattern speaks for all requests of a shape, by what the shape says.
func speaksFor(p shape.Pattern, is string, said shape.Read) bool {
	return p.Covers(said) && (is != Read || p.NamesMutations(said))
}

func (l line) covers(r shape.Request, said shape.Read, known func() shape.Fields) bool {
	if !speaksFor(l.pattern, l.is, said) || overridden(r.Headers) || hidesMutation(r) {
		return false
	}
	f := known()
	if other, _ := f.Values(methodField); len(other) > 0 && !l.override {
		return false
	}
	return len(l.where) == 0 || f.Whole && !slices.ContainsFunc(l.where, func(w where) bool {
		values, one := f.Values(w.name)
		if w.condition.Absent {
			return len(values) > 0
		}
		return !one || !w.is(values[0])
	})
}

func (l line) touches(said shape.Read, known func() shape.Fields) bool {
	if !l.pattern.Touches(said) {
		return false
	}
	return !slices.ContainsFunc(l.where, func(w where) bool {
		values, _ := known().Values(w.name)
		if w.condition.Absent {
			return len(values) > 0
		}
		return known().Whole && !slices.ContainsFunc(values, w.is)
	})
}

func (w where) is(value string) bool {
	if w.matches != nil {
		return w.matches.MatchString(value)
	}
	return value == *w.condition.Equal
}

// overridden tells whether a header names another method.
func overridden(headers map[string]string) bool {
	for name := range headers {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-") && strings.Contains(name, "method") {
			return true
		}
	}
	return false
}

var mutation = regexp.MustCompile(`(?i)(?:\b|\\[bfnrt]|%[0-9a-f]{2})mutation|\\u00[4-7]`)

// hidesMutation tells whether a body has the word, or letters that are escaped without need, and the shape
// does not tell of what kind its operations are: where GraphQL is no member query of the body's JSON.
func hidesMutation(r shape.Request) bool {
	plain, err := url.QueryUnescape(r.Body)
	return (mutation.MatchString(r.Body) || err == nil && mutation.MatchString(plain)) && !shape.TellsKinds(r)
}
