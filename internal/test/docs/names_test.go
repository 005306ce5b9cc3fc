package docs

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what this version has in place of what the last release had")

// namesFile has the public names of the last release: flags, problems, metrics, events, facts and
// reasons, as the tables of the reference pages list them. Other tests hold those tables to the
// program.
const namesFile = "testdata/names.txt"

// rowName finds the first code in a table's row: alone in the first cell, or behind a number.
var rowName = regexp.MustCompile("(?m)^\\| (?:[0-9]+ \\| )?`([^`\n]+)`")

// publicNames are the names of today's pages.
func publicNames(t *testing.T) (names []string) {
	t.Helper()
	for _, page := range []string{"configuration", "problems", "metrics", "nats", "recovery"} {
		b, err := os.ReadFile(filepath.Join(root, "docs", page+".md"))
		if err != nil {
			t.Fatal(err)
		}
		before := len(names)
		for _, row := range rowName.FindAllSubmatch(b, -1) {
			name := string(row[1])
			if strings.HasPrefix(name, "--") {
				name, _, _ = strings.Cut(name, " ") // its argument may be called otherwise
			}
			names = append(names, page+" "+name)
		}
		if len(names) < before+5 {
			t.Fatalf("docs/%s.md has %d names: are they in another kind of table now?", page, len(names)-before)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Whoever upgrades learns from the changelog what is no longer there.
func TestTheChangelogHasWhatDisappeared(t *testing.T) {
	if now := publicNames(t); *update {
		if err := os.WriteFile(namesFile, []byte(strings.Join(now, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	released, err := os.ReadFile(namesFile)
	if err != nil {
		t.Fatal(err)
	}
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range missing(strings.Split(strings.TrimSpace(string(released)), "\n"), publicNames(t), changelog) {
		t.Errorf("%s was in the last release, is on its page no more, and CHANGELOG.md does not have it as code", name)
	}
}

// missing are the names, behind that of their page, that were released and are not there now, and
// that the changelog does not have as code.
func missing(released, now []string, changelog []byte) (names []string) {
	for _, name := range released {
		_, own, _ := strings.Cut(name, " ")
		if !slices.Contains(now, name) && !bytes.Contains(changelog, []byte("`"+own+"`")) {
			names = append(names, name)
		}
	}
	return names
}

func TestANameThatDisappearedIsFound(t *testing.T) {
	released, now := []string{"metrics a", "metrics b", "metrics c"}, []string{"metrics a"}
	if got := missing(released, now, []byte("- `b` is gone, and so is c")); !slices.Equal(got, []string{"metrics c"}) {
		t.Errorf("%q", got)
	}
}
