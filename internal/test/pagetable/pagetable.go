// Package pagetable compares the tables in docs/ that are made from the code with the code.
package pagetable

import (
	"fmt"
	"os"
	"strings"
)

// Compare looks whether the page at path has want between the lines "<!-- NAME table -->" and
// "<!-- end of NAME table -->". With update it writes it there.
func Compare(path, name, want string, update bool) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+" table -->\n", "<!-- end of "+name+" table -->\n"
	head, rest, found := strings.Cut(string(page), begin)
	shown, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no lines %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	if shown == want {
		return nil
	}
	if update {
		return os.WriteFile(path, []byte(head+begin+want+end+tail), 0o644)
	}
	return fmt.Errorf("the %s table of %s is not what the code has: run this test with -update", name, path)
}
