package site

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"leasehold/checkpoint/shape"
)

// Teach says in the file about a site what requests of one shape do, and returns that file: the one of
// files that names the origin nearest, or a new one. The shape is a whole one, with its origin, as an
// inspection shows it. The line goes before all others, in place of what was said of the same shape. If
// l.Is is empty, that is taken back.
func Teach(files []File, l Line) (File, error) {
	pattern, err := shape.ParsePattern(l.Shape)
	if err == nil && pattern.Origin() == "" {
		err = fmt.Errorf("%q: want a whole shape with its origin, as an inspection shows it", l.Shape)
	}
	if err != nil {
		return File{}, &Error{Path: "shape", Why: err.Error()}
	}
	f := FileFor(files, pattern.Origin())
	f.Requests = slices.DeleteFunc(slices.Clone(f.Requests), func(o Line) bool { return o.isExactly(pattern) })
	if l.Is != "" {
		f.Requests = slices.Insert(f.Requests, 0, l)
	}
	return f, f.Check()
}

// FileFor is the file of files that names the origin nearest. If there is none it is a new one, which
// has the name of the host, with a number if another site has that name.
func FileFor(files []File, origin string) File {
	for _, o := range origins(origin) {
		for _, f := range files {
			if slices.Contains(f.Origins, o) {
				return f
			}
		}
	}
	_, host, _ := strings.Cut(origin, "://")
	made := File{Name: nameOf(host), Origins: []string{origin}}
	for n := 2; slices.ContainsFunc(files, func(f File) bool { return f.Name == made.Name }); n++ {
		number := fmt.Sprintf("-%d", n)
		name := nameOf(host)
		made.Name = name[:min(len(name), maxName-len(number))] + number
	}
	return made
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

func nameOf(host string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(host), "-"), "-")
	return strings.TrimRight(name[:min(len(name), maxName)], "-")
}

// isExactly tells whether a line is about the requests of a shape without any condition.
func (l Line) isExactly(pattern shape.Pattern) bool {
	own, err := shape.ParsePattern(l.Shape)
	return err == nil && len(l.Where) == 0 && own.String() == pattern.String()
}

// About returns the first line that is about all requests of a shape, and false if there is none: what
// the file says under conditions is not about all of them.
func (f File) About(shp string) (Line, bool) {
	f, err := f.whole()
	if err != nil { // it was not taken
		return Line{}, false
	}
	said := shape.ReadShape(shp, "")
	i := slices.IndexFunc(f.Requests, func(l Line) bool {
		p, err := shape.ParsePattern(l.Shape)
		return err == nil && len(l.Where) == 0 && f.Owns(said.Origin()+"/") && (speaksFor(p, l.Is, said) || l.Is == Write && p.Touches(said))
	})
	if i < 0 {
		return Line{}, false
	}
	return f.Requests[i], true
}

// Says returns what the file says of exactly this shape, and false if that is nothing.
func (f File) Says(shp string) (Line, bool) {
	pattern, err := shape.ParsePattern(shp)
	if err != nil {
		return Line{}, false
	}
	i := slices.IndexFunc(f.Requests, func(l Line) bool { return l.isExactly(pattern) })
	if i < 0 {
		return Line{}, false
	}
	return f.Requests[i], true
}
