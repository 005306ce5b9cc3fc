package site

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint/shape"
	"leasehold/evidence/redact"
)

// Plain tells whether nothing but its shape keeps a line without conditions from speaking for a request: no
// header and no field names another method, and its body hides no mutation from its shape. It is
// noted when the request is sent, since neither headers nor bodies are kept.
func Plain(r shape.Request) bool {
	if overridden(r.Headers) || hidesMutation(r) {
		return false
	}
	named, _ := shape.FieldsOf(r).Values(methodField)
	return len(named) == 0
}

// Noted is what is kept of a request that was judged by a book.
type Noted struct {
	Method, Shape string
	URL           string // without values, see redact.URL
	Plain         bool   // see Plain
	// Line is the line that spoke for or against it then, and Repeatable what that said; empty: none did.
	Line       string
	Repeatable bool
	// Moved says that Line may be about a place to which the request was redirected.
	Moved bool
}

// Again says what Judge would have said of a request if b had been the book, then being the one that was.
// doubt says why that cannot be told from what is kept; then the verdict is the zero value.
func (b *Book) Again(n Noted, then *Book) (v Verdict, doubt string) {
	said := shape.ReadShape(n.Shape, n.URL)
	path, _, _ := strings.Cut(n.URL, "?")
	shown := differing(b.Show(n.URL), then.Show(n.URL))
	silent := then.silent(n)
	b.of(n.URL, func(s *site) bool {
		for _, l := range s.lines {
			if l.pattern.Method() != n.Method || !l.pattern.Near(said) {
				continue
			}
			if i := slices.IndexFunc(shown, func(name string) bool { return strings.Contains(n.Shape, name) }); i >= 0 {
				doubt = fmt.Sprintf("its shape would show %s otherwise", shown[i])
				return true
			}
			if l.text == n.Line && !n.Moved {
				v = Verdict{Is: l.is, Repeatable: n.Repeatable, Line: l.text}
				return true
			}
			if silent[l.text] {
				continue
			}
			if Partial(path) {
				doubt = "its address is not kept as a whole"
				return true
			}
			covers, touches := speaksFor(l.pattern, l.is, said), l.is == Write && l.pattern.Touches(said)
			switch {
			case !covers && !touches:
				continue
			case len(l.where) > 0:
				doubt = fmt.Sprintf("the line %q has a condition, and what was sent is not kept", l.text)
				return true
			case n.Plain || touches && !l.repeat:
				if covers = covers && n.Plain; covers || touches {
					v = Verdict{Is: l.is, Repeatable: l.repeat && covers, Line: l.text}
					return true
				}
			default:
				doubt = "it is not kept whether a header or its body says more than its shape"
				return true
			}
		}
		return false
	})
	return v, doubt
}

// Now tells what b says of a request that was judged at a time: holds, that the line which spoke then still
// decides; writes, that a line before it says that it writes, or may. A line with a condition that b had
// then was not met: otherwise it would have spoken.
func (b *Book) Now(n Noted, at time.Time) (holds, writes bool) {
	said := shape.ReadShape(n.Shape, n.URL)
	b.of(n.URL, func(s *site) bool {
		for _, l := range s.lines {
			holds = l.text == n.Line
			writes = !holds && l.is == Write && l.pattern.Touches(said) && (len(l.where) == 0 || b.since(s.file.Name).After(at))
			if holds || writes {
				return true
			}
		}
		return false
	})
	return holds, writes
}

// Begin says when a launcher began to go by the book, in the place of another one, nil for none. Of files that
// are as they were it stays known.
func (b *Book) Begin(before *Book, now time.Time) {
	b.Since, b.older = now, map[string]time.Time{}
	for _, f := range b.all() {
		if old, known := before.file(f.Name); known && reflect.DeepEqual(f, old) {
			b.older[f.Name] = before.since(f.Name)
		}
	}
}

func (b *Book) since(file string) time.Time {
	if at, ok := b.older[file]; ok {
		return at
	}
	return b.Since
}

// silent are the lines of b, by their texts, that were asked about a request and said nothing.
func (b *Book) silent(n Noted) map[string]bool {
	said := map[string]bool{}
	if n.Moved {
		return said
	}
	b.of(n.URL, func(s *site) bool {
		for _, l := range s.lines {
			if l.text == n.Line {
				return true
			}
			said[l.text] = true
		}
		return false
	})
	return said
}

// Partial tells whether some of a URL, or of a part of one, was left out when it was kept.
func Partial(kept string) bool { return strings.Contains(kept, redact.Mark) }

// differing are the names that are in one of two lists only.
func differing(a, b []string) (names []string) {
	for _, name := range slices.Concat(a, b) {
		if slices.Contains(a, name) != slices.Contains(b, name) {
			names = append(names, name)
		}
	}
	return names
}

// About are the files that have to do with URLs, as a book can be made of them again: those that own one
// of them.
func (b *Book) About(urls []string) (files []File) {
	for _, f := range b.all() {
		if slices.ContainsFunc(urls, f.Owns) {
			f.Extends = "" // its lines are in it
			files = append(files, f)
		}
	}
	return files
}

// NewPlace is a sensitive place of b that then did not have; empty: there is none.
func (b *Book) NewPlace(then *Book) string {
	for _, f := range b.all() {
		old, known := then.file(f.Name)
		for _, place := range f.Sensitive {
			if !known || !slices.Equal(f.Origins, old.Origins) || !slices.Contains(old.Sensitive, place) {
				return place
			}
		}
	}
	return ""
}

// NewGET is a line of b by which a GET may write of which then did not say so; empty: there is none. Then
// such a GET is not in what is kept of a session.
func (b *Book) NewGET(then *Book) string {
	unshadowed := slices.ContainsFunc(then.all(), func(old File) bool {
		f, known := b.file(old.Name)
		return (!known || !slices.Equal(f.Origins, old.Origins)) && slices.ContainsFunc(old.Requests, Line.aboutGET)
	})
	for _, f := range b.all() {
		old, _ := then.file(f.Name)
		for i, l := range f.Requests {
			if !l.aboutGET() || l.Is != Write {
				continue
			}
			at := slices.IndexFunc(old.Requests, func(o Line) bool { return o.Text() == l.Text() })
			// what a line before it said of such a GET then has to be said before it still
			moved := at < 0 || slices.ContainsFunc(old.Requests[:at], func(before Line) bool {
				return before.aboutGET() && !slices.ContainsFunc(f.Requests[:i], func(o Line) bool { return o.Text() == before.Text() })
			})
			if moved || unshadowed || !slices.Equal(f.Origins, old.Origins) {
				return f.Name + ": " + l.Text()
			}
		}
	}
	return ""
}

// SameOfGETs tells whether b says of GETs, and of sensitive places, what then said.
func (b *Book) SameOfGETs(then *Book) bool {
	return slices.EqualFunc(b.all(), then.all(), func(f, old File) bool {
		return f.Name == old.Name && slices.Equal(f.Origins, old.Origins) && slices.Equal(f.Sensitive, old.Sensitive) && slices.Equal(f.ofGETs(), old.ofGETs())
	})
}

// ofGETs are the texts of the lines about GETs.
func (f File) ofGETs() (texts []string) {
	for _, l := range f.Requests {
		if l.aboutGET() {
			texts = append(texts, l.Text())
		}
	}
	return texts
}

func (l Line) aboutGET() bool {
	p, err := shape.ParsePattern(l.Shape)
	return err == nil && p.Method() == "GET"
}

func (b *Book) all() []File {
	if b == nil {
		return nil
	}
	return b.files
}

func (b *Book) file(name string) (File, bool) {
	i := slices.IndexFunc(b.all(), func(f File) bool { return f.Name == name })
	if i < 0 {
		return File{}, false
	}
	return b.files[i], true
}

// With is the book with a file in the place of the one of that name.
func (b *Book) With(f File) (*Book, error) {
	files := slices.DeleteFunc(slices.Clone(b.all()), func(o File) bool { return o.Name == f.Name })
	for i := range files {
		files[i].Extends = "" // its lines are in it
	}
	made, wrong := NewBook(append(files, f))
	if len(wrong) > 0 {
		return nil, wrong[0]
	}
	return made, nil
}

// Has tells whether b has the same files as another book.
func (b *Book) Has(other *Book) bool {
	return reflect.DeepEqual(b.all(), other.all())
}
