package table

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestParseCaution(t *testing.T) {
	for in, want := range map[string]Caution{"downloads": {Downloads, Yes}, "closed_cleanly=no": {ClosedCleanly, No}, "dialogs=unknown": {Dialogs, Unknown}} {
		if got, err := ParseCaution(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "downloads=", "downloads=maybe"} {
		if _, err := ParseCaution(in); err == nil {
			t.Errorf("%q is taken", in)
		}
	}
}

// TestEveryQuestionIsKnown checks that each fact by which the table decides has a name that can be
// configured.
func TestEveryQuestionIsKnown(t *testing.T) {
	seen := map[string]bool{}
	for _, q := range Questions {
		if seen[q] {
			t.Errorf("%s stands twice", q)
		}
		seen[q] = true
	}
	for _, row := range append([]row{{when: sound}}, table...) {
		for _, c := range row.when {
			if !seen[c.fact] {
				t.Errorf("%s decides, and is not among the questions", c.fact)
			}
		}
	}
}

// TestEveryConditionMakesASentence: whatever is not met can be told, and says how it was found.
func TestEveryConditionMakesASentence(t *testing.T) {
	for _, c := range slices.Concat(sound, table[0].when, table[1].when, table[2].when, table[3].when) {
		for _, a := range []Answer{Yes, No, Unknown} {
			s := c.sentence(a, "as was seen")
			if !strings.HasSuffix(s, ": as was seen.") || strings.Contains(s, "  ") || s[0] < 'A' || s[0] > 'Z' {
				t.Errorf("%s is %s: %q", c.fact, a, s)
			}
		}
	}
}

// TestPeopleReadTheTable checks that docs/recovery.md shows the table as it is.
func TestPeopleReadTheTable(t *testing.T) {
	b, err := os.ReadFile("../../../docs/recovery.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- recovery table -->\n", "<!-- end of recovery table -->"
	_, rest, found := strings.Cut(string(b), begin)
	shown, _, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("docs/recovery.md has no table between %q and %q", begin, end)
	}
	if want := drawTable(); shown != want {
		t.Errorf("docs/recovery.md does not show the table: put this between the markers\n%s", want)
	}
}

// drawTable draws each row as an item of a list, with a line for each condition. A row
// in a single line would be too long to read.
func drawTable() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Version %d.\n\n", Version)
	n := 0
	draw := func(outcome, because string, when []condition) {
		n++
		fmt.Fprintf(&b, "%d. %s: %s. Only when\n", n, outcome, because)
		for _, c := range when {
			fmt.Fprintf(&b, "   - `%s` is %s\n", c.fact, c.want)
		}
	}
	draw("any but `manual_review`", "nobody is on the profile, it is whole, what was done on it was seen, no site refuses the account, and its pages ask for nothing", sound)
	for _, r := range table {
		draw("`"+r.outcome+"`", r.because, r.when)
	}
	fmt.Fprintf(&b, "%d. `manual_review`, always: the reasons are the conditions that were not met\n", n+1)
	return b.String()
}
