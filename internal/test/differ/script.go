package differ

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Script is one parsed script.
type Script struct {
	Name string
	// About is the first comment: what the script shows.
	About string
	steps []step
	// sets, drops and masks are the patterns of the lines set, drop and mask.
	sets, drops, masks []string
}

// step is one line of a script.
type step struct {
	line int
	verb string
	// conn is the connection, and session the CDP session, with its $.
	conn, session string
	// words are what else the step says; their meaning is the verb's.
	words []string
	text  string // of a message, frame or request: to the end of the line
}

func (s step) String() string {
	if s.session != "" {
		return fmt.Sprintf("line %d: %s/%s %s %s %s", s.line, s.conn, s.session, s.verb, strings.Join(s.words, " "), s.text)
	}
	return fmt.Sprintf("line %d: %s %s %s %s", s.line, s.conn, s.verb, strings.Join(s.words, " "), s.text)
}

var (
	word     = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	variable = regexp.MustCompile(`\$[a-z][a-zA-Z0-9]*`)
	method   = regexp.MustCompile(`^[A-Za-z]+\.[A-Za-z]+$`)
	pattern  = regexp.MustCompile(`^([A-Za-z]+\.([A-Za-z]+|\*)|#[0-9]+)$`)
	member   = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
)

// frames are the kinds of websocket frames that a script can send.
var frames = []string{"text", "start", "more", "last", "binary", "ping", "pong"}

// parser is what is known while a script is read.
type parser struct {
	script    *Script
	names     map[string]bool
	conns     map[string]bool
	requested bool // something was waited for, so that let has a message
}

// Parse reads a script. An error names the line, and what was expected.
func Parse(name, source string) (*Script, error) {
	p := &parser{
		script: &Script{Name: name},
		names:  map[string]bool{"site": true, "other": true, "downloads": true, "home": true},
		conns:  map[string]bool{},
	}
	for i, line := range strings.Split(source, "\n") {
		line = strings.TrimRight(line, " \t\r")
		switch {
		case strings.HasPrefix(line, "#"):
			if p.script.About == "" {
				p.script.About = strings.TrimSpace(line[1:])
			}
			continue
		case line == "":
			continue
		}
		if err := p.line(i+1, line); err != nil {
			return nil, fmt.Errorf("%s.cdp:%d: %w", name, i+1, err)
		}
	}
	switch {
	case p.script.About == "":
		return nil, fmt.Errorf("%s.cdp: the first comment has to say what the script shows", name)
	case len(p.script.steps) == 0:
		return nil, fmt.Errorf("%s.cdp: no steps", name)
	}
	return p.script, nil
}

func (p *parser) line(number int, line string) error {
	for _, v := range variable.FindAllString(line, -1) {
		if !p.names[v[1:]] {
			return fmt.Errorf("%s was not named before", v)
		}
	}
	first, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimLeft(rest, " ")
	words := strings.Fields(rest)
	s := step{line: number, verb: first, words: words}
	want := func(s step, ok bool, form string) error {
		if !ok {
			return fmt.Errorf("want %s", form)
		}
		p.script.steps = append(p.script.steps, s)
		return nil
	}
	switch first {
	case "set", "drop", "mask":
		if first == "drop" && len(words) == 1 && p.conns[words[0]] {
			s.conn, s.words = words[0], nil
			return want(s, true, "")
		}
		return p.compared(first, words)
	case "tab":
		ok := len(words) == 2 && word.MatchString(words[0])
		if ok {
			p.names[words[0]] = true
		}
		return want(s, ok, "tab NAME URL")
	case "open":
		ok := (len(words) == 1 || len(words) == 3 && words[1] == "page") && word.MatchString(words[0]) && !p.conns[words[0]]
		if ok {
			p.conns[words[0]] = true
			s.conn, s.words = words[0], words[1:]
		}
		return want(s, ok, "open NAME, or open NAME page TARGET, with a new name")
	case "let":
		ok := p.requested && len(words) == 2 && word.MatchString(words[0]) && member.MatchString(words[1])
		if ok {
			p.names[words[0]] = true
		}
		return want(s, ok, "let NAME PATH after something was waited for")
	case "http":
		p.requested = true
		return want(s, len(words) == 2 && strings.HasPrefix(words[1], "/"), "http METHOD /PATH")
	case "close", "end":
		ok := len(words) > 0 && p.conns[words[0]] && (first == "close" || len(words) == 1)
		if ok {
			s.conn, s.words = words[0], words[1:]
		}
		if ok && len(s.words) > 0 {
			_, err := strconv.ParseUint(s.words[0], 10, 16)
			ok = err == nil
		}
		return want(s, ok, first+" CONNECTION")
	case "settle":
		return want(s, rest == "", "settle alone")
	}
	return p.connStep(s, first, rest, want)
}

// compared reads a line that says what is not compared whole.
func (p *parser) compared(verb string, words []string) error {
	form := pattern
	if verb == "mask" {
		form = member
	}
	if len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return !form.MatchString(w) }) {
		return fmt.Errorf("want %s, then names that match %s", verb, form)
	}
	list := map[string]*[]string{"set": &p.script.sets, "drop": &p.script.drops, "mask": &p.script.masks}[verb]
	*list = append(*list, words...)
	return nil
}

// connStep reads a step that begins with the connection that it is about.
func (p *parser) connStep(s step, address, rest string, want func(step, bool, string) error) error {
	s.conn, s.session, _ = strings.Cut(address, "/")
	if !p.conns[s.conn] {
		return fmt.Errorf("%q is no verb and no open connection", address)
	}
	if s.session != "" && !variable.MatchString(s.session) {
		return fmt.Errorf("session %q: want a name with a $", s.session)
	}
	s.verb, rest, _ = strings.Cut(rest, " ")
	rest = strings.TrimLeft(rest, " ")
	switch s.verb {
	case "call", "send":
		p.requested = p.requested || s.verb == "call"
		name, params, _ := strings.Cut(rest, " ")
		s.words, s.text = []string{name}, params
		return want(s, method.MatchString(name), s.verb+" METHOD PARAMS")
	case "raw":
		s.words, s.text = nil, rest
		return want(s, true, "")
	case "frame":
		kind, payload, _ := strings.Cut(rest, " ")
		s.words, s.text = []string{kind}, payload
		return want(s, slices.Contains(frames, kind), "frame, one of "+strings.Join(frames, ", ")+", and a text")
	case "wait":
		p.requested = true
		s.words = strings.Fields(rest)
		if len(s.words) == 0 {
			return want(s, false, "wait METHOD or wait ID")
		}
		_, err := strconv.ParseInt(s.words[0], 10, 64)
		ok := err == nil || method.MatchString(s.words[0])
		for _, condition := range s.words[min(1, len(s.words)):] {
			at, _, equals := strings.Cut(condition, "=")
			ok = ok && equals && member.MatchString(at)
		}
		return want(s, ok, "wait METHOD or wait ID, then PATH=VALUE")
	}
	return fmt.Errorf("want %s call, send, raw, frame or wait", address)
}

// matches tells whether a method matches one of the patterns.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}

// fill puts the values of names into a text.
func fill(text string, values map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(v string) string {
		if value, ok := values[v[1:]]; ok {
			return value
		}
		return v
	})
}
