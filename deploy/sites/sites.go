// Package sites has the files about sites that come with the program: what is known of well-known
// software, for whoever runs it at an origin of their own. Package checkpoint/site reads them.
package sites

import (
	"embed"
	"fmt"
	"strings"
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

// Text is the file with a name; nil: there is none.
func Text(name string) []byte {
	text, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return nil
	}
	return text
}
