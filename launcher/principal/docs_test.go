package principal

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestThePageShowsTheTable compares docs/access.md with Table.
func TestThePageShowsTheTable(t *testing.T) {
	var want strings.Builder
	want.WriteString("| role | may | rights |\n| --- | --- | --- |\n")
	for _, row := range Table() {
		var rights []string
		for _, r := range row.Rights {
			rights = append(rights, string(r))
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", row.Role, row.Means, strings.Join(rights, ", "))
	}
	page, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "<!-- principal.Table -->\n")
	if got, _, found := strings.Cut(after, "<!-- end of principal.Table -->"); !found || got != want.String() {
		t.Errorf("docs/access.md has\n%s\nbetween the markers, want\n%s", got, want.String())
	}
}
