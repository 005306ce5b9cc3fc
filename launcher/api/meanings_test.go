package api

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/test/pagetable"
)

var update = flag.Bool("update", false, "write docs/problems.md")

const problemsPage = "../../docs/problems.md"

func problemsTable() string {
	var b strings.Builder
	b.WriteString("| status | code | when, and what to do |\n| --- | --- | --- |\n")
	codes := slices.SortedFunc(maps.Keys(statuses), func(a, b string) int {
		return cmp.Or(cmp.Compare(statuses[a], statuses[b]), cmp.Compare(a, b))
	})
	for _, code := range codes {
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", statuses[code], code, linked(Meanings[code]))
	}
	return b.String()
}

var page = regexp.MustCompile(`\bdocs/(\w+)\.md`)

// linked makes links of the names of pages.
func linked(text string) string { return page.ReplaceAllString(text, "[$1]($1.md)") }

func TestThePageShowsEveryProblem(t *testing.T) {
	for code := range statuses {
		if m := Meanings[code]; !strings.HasSuffix(m, ".") || strings.Contains(m, "|") {
			t.Errorf("%s means %q: want sentences without |, in meanings.go", code, m)
		}
	}
	for code := range Meanings {
		if statuses[code] == 0 {
			t.Errorf("%s has a meaning and no status", code)
		}
	}
	if err := pagetable.Compare(problemsPage, "problems", problemsTable(), *update); err != nil {
		t.Error(err)
	}
}
