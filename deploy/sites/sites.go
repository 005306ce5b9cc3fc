// Package sites has the files about sites that come with the program: what is known of well-known
// software, for whoever runs it at an origin of their own.
package sites

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"leasehold/checkpoint/site"
)

//go:embed *.yaml
var files embed.FS

// Names are the names of the files, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("the files in the binary: %v", err)) // they were compiled in
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// At is the file with a name, about the origins at which somebody runs the software.
func At(name string, origins ...string) (site.File, error) {
	if !slices.Contains(Names(), name) {
		return site.File{}, fmt.Errorf("shipped file %q: want one of %s", name, strings.Join(Names(), ", "))
	}
	text, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return site.File{}, err
	}
	f, err := site.Parse(text)
	if err != nil {
		return f, fmt.Errorf("shipped file %s: %w", name, err)
	}
	f.Origins = origins
	if err := f.Check(); err != nil {
		return f, fmt.Errorf("shipped file %s: %w", name, err)
	}
	return f, nil
}
