package sites

import (
	"os"
	"strings"
	"testing"

	"leasehold/internal/test/source"
)

// TestShippedFilesAreRightAndTold: each file can be put as it is, has the name of its file, and is
// named on the page about sites.
func TestShippedFilesAreRightAndTold(t *testing.T) {
	page, err := os.ReadFile(source.Path("docs/sites.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(Names()) < 3 {
		t.Errorf("the files in the binary are %q", Names())
	}
	for _, name := range Names() {
		f, err := At(name, "https://here.example")
		if err != nil || f.Name != name || len(f.Requests) == 0 || len(f.Origins) != 1 || f.Origins[0] != "https://here.example" {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/sites.md does not name the shipped file %s", name)
		}
	}
	if _, err := At("pocketbase"); err == nil {
		t.Error("a shipped file without an origin is taken")
	}
	if _, err := At("../sites", "https://here.example"); err == nil || !strings.Contains(err.Error(), "pocketbase") {
		t.Errorf("a file that is not shipped: %v, want the names of those that are", err)
	}
}
