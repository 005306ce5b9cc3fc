package site

import (
	"fmt"
	"slices"
	"strings"

	"leasehold/deploy/sites"
)

// Shipped is the file with a name that comes with the program, about the origins at which somebody runs
// that software.
func Shipped(name string, origins ...string) (File, error) {
	if !slices.Contains(sites.Names(), name) {
		return File{}, fmt.Errorf("%q: want one of the files that come with the program: %s", name, strings.Join(sites.Names(), ", "))
	}
	f, err := Parse(sites.Text(name))
	if err == nil {
		f.Origins = origins
		err = f.Check()
	}
	if err != nil {
		return f, fmt.Errorf("%s, which comes with the program: %w", name, err)
	}
	return f, nil
}

// whole is the file with what the one that it extends says: the lines of the file itself come first, and
// what it names once goes before.
func (f File) whole() (File, error) {
	if f.Extends == "" {
		return f, nil
	}
	base, err := Shipped(f.Extends, f.Origins...)
	if err != nil {
		return f, &Error{Path: "extends", Why: err.Error()}
	}
	f.Show = slices.Concat(f.Show, base.Show)
	f.Requests = slices.Concat(f.Requests, base.Requests)
	f.Sensitive = slices.Concat(f.Sensitive, base.Sensitive)
	return f, nil
}
