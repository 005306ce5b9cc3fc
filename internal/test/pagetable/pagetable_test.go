package pagetable

import (
	"os"
	"path/filepath"
	"testing"
)

// A table that is not the code's is reported, and replaced only if that is wanted.
func TestCompare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const page = "before\n<!-- x table -->\nold\n<!-- end of x table -->\nafter\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Compare(path, "x", "old\n", false); err != nil {
		t.Error(err)
	}
	if Compare(path, "x", "new\n", false) == nil || Compare(path, "y", "old\n", true) == nil {
		t.Error("another table, or one that is not there, is not reported")
	}
	if err := Compare(path, "x", "new\n", true); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "before\n<!-- x table -->\nnew\n<!-- end of x table -->\nafter\n" {
		t.Errorf("%q, %v", got, err)
	}
}
