package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// anchors are the names of a page's headings in links, as GitHub makes them.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// Links lead to files and headings that are there.
func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for _, name := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/decisions/README.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	looked := 0
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") || strings.HasPrefix(path, "mailto:") {
				continue
			}
			looked++
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			there, err := os.Stat(filepath.Join(root, target))
			if err != nil {
				t.Errorf("%s: %s leads nowhere", name, m[1])
				continue
			}
			if anchor == "" || there.IsDir() {
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, target))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(anchors(string(text)), anchor) {
				t.Errorf("%s: %s has no heading #%s", name, target, anchor)
			}
		}
	}
	if looked < 100 {
		t.Errorf("%d links were found, want 100 or more", looked)
	}
}

var goFile = regexp.MustCompile("`([a-z]+(?:/[a-z0-9_]+)+\\.go)`")

// The files that ARCHITECTURE.md leads through are there.
func TestLinksOfTheArchitectureNameFiles(t *testing.T) {
	named := goFile.FindAllStringSubmatch(textOf(t, "ARCHITECTURE.md"), -1)
	if len(named) < 20 {
		t.Errorf("%d files are named, want 20 or more", len(named))
	}
	for _, m := range named {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("ARCHITECTURE.md: there is no %s", m[1])
		}
	}
}

// The README's list of further reading has every page.
func TestTheReadmeListsEveryPage(t *testing.T) {
	readme := pages(t)["README.md"]
	for name := range pages(t) {
		if name != "README.md" && !strings.Contains(readme, "("+name) {
			t.Errorf("README.md does not lead to %s", name)
		}
	}
}

// Lines are no longer than 120 characters, so that they can be read in a terminal. Rows of
// tables, and what is made from the code, are as long as they are.
func TestLinesAreShort(t *testing.T) {
	for name, text := range pages(t) {
		if name == "docs/cdp-methods.md" || name == "docs/lab/mutants.md" {
			continue // made from the code
		}
		made := false
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "<!-- ") && strings.HasSuffix(line, " table -->") {
				made = !strings.HasPrefix(line, "<!-- end")
			}
			if n := len([]rune(line)); n > 120 && !made && !strings.HasPrefix(strings.TrimSpace(line), "|") {
				t.Errorf("%s:%d has %d characters, want 120 at most", name, i+1, n)
			}
		}
	}
}
