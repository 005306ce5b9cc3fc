package supply

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([-._].*)?$`)

// LicenceFiles finds the files that say under which licences the linked packages of a
// module are: those of the module and those between it and each package.
func LicenceFiles(m Module) ([]string, error) {
	var dirs []string
	for _, dir := range m.Packages {
		for ; len(dir) >= len(m.Dir) && !slices.Contains(dirs, dir); dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	var files []string
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && licenceFile.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
	}
	return files, nil
}

// WriteNotices writes the licences of everything that is linked into the sidecar beside the
// project itself, as they ask for: each text once, below the modules that have it.
func WriteNotices(w io.Writer) error {
	modules, err := Modules()
	if err != nil {
		return err
	}
	var texts []string
	of := map[string][]string{}
	for _, m := range modules {
		files, err := LicenceFiles(m)
		if err != nil {
			return err
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			text, name := strings.TrimSpace(string(b)), m.Path+" "+m.Version
			if of[text] == nil {
				texts = append(texts, text)
			}
			if !slices.Contains(of[text], name) {
				of[text] = append(of[text], name)
			}
		}
	}
	for _, text := range texts {
		if _, err := fmt.Fprintf(w, "%s\n\n%s\n\n%s\n\n", strings.Join(of[text], "\n"), text, strings.Repeat("-", 80)); err != nil {
			return err
		}
	}
	return nil
}
