// Package site is what the owners of accounts know of a site: which requests to it only read, which
// change the account, which of its places are sensitive, and how to ask it what became of the
// account. All of it is pure: a file is parsed, and requests are judged by it.
package site

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/theory/jsonpath"

	"leasehold/checkpoint/shape"
	"leasehold/internal/members"
)

// File is what is known of one site, as it is written.
type File struct {
	Name string `json:"name" yaml:"name"`
	// Origins are those of the site; * stands for one or more parts of a host in front.
	Origins []string `json:"origins" yaml:"origins"`
	// Show are names of which a person may see the values, and rules may use them.
	Show []string `json:"show,omitempty" yaml:"show,omitempty"`
	// Requests are judged by the first line that matches.
	Requests []Line `json:"requests,omitempty" yaml:"requests,omitempty"`
	// Sensitive are places after which a person decides.
	Sensitive []string `json:"sensitive,omitempty" yaml:"sensitive,omitempty"`

	// Identity and Probes are requests that tell whose account it is and what it has. Headers and
	// BearerFrom are what they are asked with. Rehearse are pages that are opened to see what they
	// would send.
	Identity   *Probe            `json:"identity,omitempty" yaml:"identity,omitempty"`
	Probes     []Probe           `json:"probes,omitempty" yaml:"probes,omitempty"`
	Headers    map[string]string `json:"headers,omitempty" yaml:"headers,omitempty"`
	BearerFrom string            `json:"bearer_from,omitempty" yaml:"bearer_from,omitempty"`
	Rehearse   []Rehearsal       `json:"rehearse,omitempty" yaml:"rehearse,omitempty"`
	// SignIn is how the launcher signs an account in; nil: it does not.
	SignIn *SignIn `json:"sign_in,omitempty" yaml:"sign_in,omitempty"`
	// Extends is a file that comes with the program: what it shows, knows of requests and calls
	// sensitive is known of this site, too, after the file's own lines.
	Extends string `json:"extends,omitempty" yaml:"extends,omitempty"`
}

// Line says of a kind of requests what they do.
type Line struct {
	// Shape is a shape.Pattern. A path without an origin is on all origins of the file.
	Shape string `json:"shape" yaml:"shape"`
	// Where are conditions on names in the query and in the body.
	Where map[string]Condition `json:"where,omitempty" yaml:"where,omitempty"`
	// Is is Read or Write.
	Is string `json:"is" yaml:"is"`
	// Repeatable says of a write that doing it again is harmless.
	Repeatable bool `json:"repeatable,omitempty" yaml:"repeatable,omitempty"`

	// SaidBy is who said so, SaidAt when, and Incident from which one.
	SaidBy   string    `json:"said_by,omitempty" yaml:"said_by,omitempty"`
	SaidAt   time.Time `json:"said_at,omitzero" yaml:"said_at,omitempty"`
	Incident string    `json:"incident,omitempty" yaml:"incident,omitempty"`
}

// The values of Line.Is.
const (
	Read  = "read"
	Write = "write"
)

// Probe is a GET that tells something about the account.
type Probe struct {
	Name     string   `json:"name,omitempty" yaml:"name,omitempty"`
	Get      string   `json:"get" yaml:"get"`
	Take     []string `json:"take,omitempty" yaml:"take,omitempty"`
	TakeText string   `json:"take_text,omitempty" yaml:"take_text,omitempty"`
	Match    string   `json:"match,omitempty" yaml:"match,omitempty"`
	Show     string   `json:"show,omitempty" yaml:"show,omitempty"`
	Covers   []string `json:"covers,omitempty" yaml:"covers,omitempty"`
	Alarm    *bool    `json:"alarm,omitempty" yaml:"alarm,omitempty"`
}

// Rehearsal is a page that is opened with everything unsafe failed.
type Rehearsal struct {
	Open     string `json:"open" yaml:"open"`
	TakeText string `json:"take_text,omitempty" yaml:"take_text,omitempty"`
}

// SignIn says where the fields of a sign-in are, by CSS selectors for the documents of one origin: that
// of the page at URL. They may come on several pages, one after the other.
type SignIn struct {
	URL      string `json:"url" yaml:"url"`
	Username string `json:"username,omitempty" yaml:"username,omitempty"`
	Password string `json:"password" yaml:"password"`
	Code     string `json:"code,omitempty" yaml:"code,omitempty"`
	// Submit is what is pressed on each of the pages; empty: the form of the field that was filled last
	// is sent.
	Submit string `json:"submit,omitempty" yaml:"submit,omitempty"`
}

// SignInURL is the page with which the launcher signs an account in; empty: the file names none.
func (f File) SignInURL() string {
	if f.SignIn == nil {
		return ""
	}
	return f.ask(f.SignIn.URL).URL
}

// Condition is what a value has to be. Its short forms are a text, which the value is equal to, and
// the word absent.
type Condition struct {
	Equal   *string `json:"equal,omitempty" yaml:"equal,omitempty"`
	Matches string  `json:"matches,omitempty" yaml:"matches,omitempty"`
	Absent  bool    `json:"absent,omitempty" yaml:"absent,omitempty"`
}

type longCondition Condition

const absent = "absent"

func short(text string) Condition {
	if text == absent {
		return Condition{Absent: true}
	}
	return Condition{Equal: &text}
}

// UnmarshalYAML reads either form.
func (c *Condition) UnmarshalYAML(b []byte) error {
	if trimmed := bytes.TrimSpace(b); bytes.HasPrefix(trimmed, []byte("{")) || mapping.Match(trimmed) {
		return yaml.UnmarshalWithOptions(b, (*longCondition)(c), yaml.Strict())
	}
	var text string
	err := yaml.Unmarshal(b, &text)
	*c = short(text)
	return err
}

var mapping = regexp.MustCompile(`^(equal|matches|absent)\s*:`)

// UnmarshalJSON reads either form.
func (c *Condition) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
		return strictly(b, (*longCondition)(c))
	}
	text := string(b)
	if err := json.Unmarshal(b, &text); err != nil && (bytes.HasPrefix(b, []byte("[")) || string(b) == "null") {
		return err
	}
	*c = short(text)
	return nil
}

func (c Condition) form() any {
	switch {
	case c.Absent:
		return absent
	case c.Equal != nil && *c.Equal != absent:
		return *c.Equal
	}
	return longCondition(c)
}

// MarshalJSON writes the short form where there is one.
func (c Condition) MarshalJSON() ([]byte, error) { return json.Marshal(c.form()) }

// MarshalYAML writes the short form where there is one.
func (c Condition) MarshalYAML() (any, error) { return c.form(), nil }

func (c Condition) String() string {
	switch {
	case c.Absent:
		return " " + absent
	case c.Equal != nil:
		return "=" + strconv.Quote(*c.Equal)
	}
	return " matches " + strconv.Quote(c.Matches)
}

// Text is the line in one form, by which it is known: lines with equal texts say the same.
func (l Line) Text() string {
	pattern, _ := shape.ParsePattern(l.Shape)
	text := pattern.String()
	for i, name := range sortedNames(l.Where) {
		text += [...]string{" and ", " where "}[b2i(i == 0)] + name + l.Where[name].String()
	}
	text += " is " + l.Is
	if l.Repeatable {
		text += ", repeatable"
	}
	return text
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func sortedNames[V any](m map[string]V) []string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Bounds of a file.
const (
	MaxBytes   = 60 << 10 // of its text
	maxOrigins = 50
	maxLines   = 500
	maxText    = 700 // bytes of a line
	maxName    = 64  // bytes of the name of a site, see siteName
)

// Error says what is wrong with a file, and where.
type Error struct {
	Path string // such as requests[2].where.route
	Line int    // of the text; zero: unknown
	Why  string
}

func (e *Error) Error() string {
	text := e.Why
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return text
}

// Parse reads a file, in YAML or in JSON. The error is an *Error, which says what to write instead.
func Parse(text []byte) (File, error) {
	var f File
	if len(text) > MaxBytes {
		return f, &Error{Why: fmt.Sprintf("%d bytes: want at most %d", len(text), MaxBytes)}
	}
	if json.Valid(text) {
		if err := strictly(text, &f); err != nil {
			return f, &Error{Why: strings.TrimPrefix(err.Error(), "json: ") + ": " + names}
		}
		if name := members.Doubled(text, reflect.TypeFor[File]()); name != "" { // the first would not be read
			return f, &Error{Why: name + " is there twice: want it once"}
		}
		return f, f.Check()
	}
	if err := yaml.UnmarshalWithOptions(text, &f, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		return f, ofYAML(err)
	}
	if line := second(text); line > 0 { // it is not read
		return f, &Error{Line: line, Why: "a second document begins: want one file about one site"}
	}
	err := f.Check()
	if wrong, ok := errors.AsType[*Error](err); ok {
		wrong.Line = lineOf(text, wrong.Path)
	}
	return f, err
}

// names are all names that a file may have.
const names = "want name, origins, show, requests (shape, where, is, repeatable, incident), sensitive, identity, " +
	"probes (name, get, take, take_text, match, show, covers, alarm), headers, bearer_from, rehearse (open, take_text), sign_in (url, username, password, code, submit), extends"

func strictly(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// position is how the YAML library begins a message.
var position = regexp.MustCompile(`^\[(\d+):\d+\] `)

func ofYAML(err error) *Error {
	first, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	e := &Error{Why: first}
	if m := position.FindStringSubmatch(first); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		e.Why = first[len(m[0]):]
	}
	e.Why += ": " + names
	return e
}

// second is the line on which a second document begins in a text in YAML; zero if there is none.
func second(text []byte) int {
	directive, within, ended := 0, false, false
	for _, t := range lexer.Tokenize(string(text)) {
		switch {
		case t.Type == token.CommentType:
		case t.Type == token.DirectiveType:
			directive = t.Position.Line
		case t.Position.Line == directive:
		case t.Type == token.DocumentHeaderType || t.Type == token.DocumentEndType:
			ended = within
		case ended:
			return t.Position.Line
		default:
			within = true
		}
	}
	return 0
}

// lineOf is the line on which what a path names begins; zero if it is not found.
func lineOf(text []byte, path string) int {
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		return 0
	}
	for path != "" {
		var node ast.Node
		if p, err := yaml.PathString("$." + path); err == nil {
			node, err = p.FilterFile(tree)
			if err == nil && node != nil && node.GetToken() != nil {
				token := node.GetToken()
				if m, ok := node.(*ast.MappingNode); ok && len(m.Values) > 0 {
					token = m.Values[0].Key.GetToken()
				}
				return token.Position.Line
			}
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 0
}

// siteName is the form of a site's name.
var siteName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// CheckName returns nil if a site may have this name.
func CheckName(name string) error {
	if !siteName.MatchString(name) {
		return fmt.Errorf("%.80q: want 1 to 64 of a-z 0-9 _ -, such as shop", name)
	}
	return nil
}

// Check returns what is wrong with a file, as an *Error.
func (f File) Check() error {
	if err := CheckName(f.Name); err != nil {
		return &Error{Path: "name", Why: err.Error()}
	}
	switch {
	case len(f.Origins) == 0:
		return &Error{Path: "origins", Why: `want the origins of the site, such as ["https://shop.example"]`}
	case len(f.Origins) > maxOrigins:
		return &Error{Path: "origins", Why: fmt.Sprintf("want at most %d", maxOrigins)}
	case len(f.Requests) > maxLines:
		return &Error{Path: "requests", Why: fmt.Sprintf("want at most %d", maxLines)}
	}
	for i, o := range f.Origins {
		if o == "" || shape.OriginPattern(o) != o {
			return &Error{Path: at("origins", i), Why: fmt.Sprintf("%q: want an origin in small letters, such as https://shop.example or https://*.shop.example, without a path", o)}
		}
	}
	if _, err := compile(f); err != nil {
		return err
	}
	if _, err := f.whole(); err != nil {
		return err
	}
	return f.checkAsked()
}

func at(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

func (f File) checkAsked() error {
	seen := map[string]bool{}
	probes := f.Probes
	if f.Identity != nil {
		probes = slices.Concat([]Probe{*f.Identity}, probes)
	}
	if s := f.SignIn; s != nil {
		if s.Password == "" {
			return &Error{Path: "sign_in", Why: "want password, a CSS selector of the field"}
		}
		if err := f.checkAddress("url", s.URL, "/login"); err != nil {
			return &Error{Path: "sign_in", Why: err.Error()}
		}
	}
	for i, p := range probes {
		path := at("probes", i-b2i(f.Identity != nil))
		isIdentity := f.Identity != nil && i == 0
		if isIdentity {
			path = "identity"
		}
		err := p.check()
		switch {
		case err == nil && !isIdentity && (p.Name == "" || seen[p.Name]):
			err = errors.New("want a name that no other probe has")
		case err == nil:
			err = f.checkAddress("get", p.Get, "/api/me")
		}
		if err != nil {
			return &Error{Path: path, Why: err.Error()}
		}
		seen[p.Name] = !isIdentity
	}
	opened := map[string]bool{}
	for i, r := range f.Rehearse {
		var err error
		if r.TakeText != "" {
			_, err = parseSelector(r.TakeText)
		}
		if err == nil {
			err = f.checkAddress("open", r.Open, "/")
		}
		if err == nil && opened[r.Open] {
			err = fmt.Errorf("open %q is there twice: want each page once", r.Open)
		}
		if err != nil {
			return &Error{Path: at("rehearse", i), Why: err.Error()}
		}
		opened[r.Open] = true
	}
	for _, name := range sortedNames(f.Headers) {
		browsers := slices.Contains([]string{"cookie", "host", "connection", "content-length", "transfer-encoding"}, strings.ToLower(name))
		if browsers || !headerName.MatchString(name) || strings.ContainsAny(f.Headers[name], "\r\n\x00") || overridden(f.Headers) {
			return &Error{Path: "headers", Why: fmt.Sprintf("%q: want names and values of HTTP, none that the browser sets itself, and none that names another method", name)}
		}
	}
	if f.BearerFrom != "" {
		name, path := f.bearer()
		if name == "" || !strings.HasPrefix(f.BearerFrom, localStorage) {
			return &Error{Path: "bearer_from", Why: fmt.Sprintf("%q: want localStorage.NAME, or localStorage.NAME $.token where JSON with more in it is kept", f.BearerFrom)}
		}
		if path != "" {
			if _, err := jsonpath.Parse(path); err != nil {
				return &Error{Path: "bearer_from", Why: fmt.Sprintf("%q: want a JSON path (RFC 9535) such as $.token: %v", path, err)}
			}
		}
	}
	return nil
}

// checkAddress returns nil if what stands under a name is a path of the first origin, or a URL of the site.
func (f File) checkAddress(name, address, example string) error {
	switch relative := strings.HasPrefix(address, "/"); {
	case !relative && !f.Owns(address):
		return fmt.Errorf("%s %q: want a path, such as %s, or a URL on one of the origins", name, address, example)
	case relative && strings.Contains(f.Origins[0], "*"):
		return fmt.Errorf("%s %q is relative to the first of the origins, which has a *: want a whole URL", name, address)
	case strings.Contains(shape.OriginOf(address), "*"):
		return fmt.Errorf("%s %q is asked at one host: want its name, without *", name, address)
	}
	return nil
}

// headerName is the form of the name of a header that a file may set.
var headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)

func (p Probe) check() error {
	if (len(p.Take) == 0) == (p.TakeText == "") {
		return errors.New("want either take, a list of JSON paths such as $.total, or take_text, a CSS selector")
	}
	if p.TakeText != "" {
		for _, selector := range slices.Concat([]string{p.TakeText}, nonEmpty(p.Show)) {
			if _, err := parseSelector(selector); err != nil {
				return err
			}
		}
	} else {
		for _, path := range slices.Concat(p.Take, nonEmpty(p.Show)) {
			if _, err := jsonpath.Parse(path); err != nil {
				return fmt.Errorf("%q: want a JSON path (RFC 9535) such as $.items[0].id: %w", path, err)
			}
		}
	}
	if _, err := regexp.Compile(p.Match); err != nil {
		return fmt.Errorf("match: %w", err)
	}
	for _, c := range p.Covers {
		if _, err := shape.ParsePattern(c); err != nil {
			return fmt.Errorf("covers: %w", err)
		}
	}
	return nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
