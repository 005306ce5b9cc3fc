package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/test/source"
)

// claiming are the pages of which each sentence names the test that plays it.
var claiming = []string{"SECURITY.md", "docs/access.md"}

// A sentence of these claims nothing that a test could play. The other pages that they lead to
// have tests of their own.
var (
	free     = []string{"Note: ", "Not defended: "}                        // a paragraph or item that begins like this
	sections = []string{"Reporting", "What is not defended"}               // a section of this heading
	made     = regexp.MustCompile(`^<!-- (end of )?[a-z]+\.[A-Z]\w* -->$`) // what is between two of these is compared with the code
)

var (
	anyTest   = regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w*`)
	namedTest = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Z]\\w*)`")
	codeSpan  = regexp.MustCompile("`[^`]*`")
	// sentence is one up to the full stop at its end, behind which a bracket or a star may close.
	sentence = regexp.MustCompile(`(?s)^.*?[.?!][)*]*(\s+|$)`)
)

// sentences are those of a text, and what is left behind the last full stop.
func sentences(text string) (all []string, rest string) {
	// A full stop within code ends no sentence.
	for masked := codeSpan.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("x", len(s)) }); ; {
		end := len(sentence.FindString(masked))
		if end == 0 {
			return all, strings.TrimSpace(text)
		}
		all = append(all, strings.TrimSpace(text[:end]))
		text, masked = text[end:], masked[end:]
	}
}

// unproved lists the claims of a page that name no test, each with what is to be done:
//
//   - a row of a table is one claim, and its last column names the test;
//   - each other sentence names it itself, unless it stands where nothing is claimed;
//   - what is no sentence ends with a colon, and leads on to a table or a list.
func unproved(page string) (wrong []string, claims int) {
	heading, generated := "", false
	var text []string // the lines of a paragraph or an item
	flush := func() {
		block := strings.Join(text, "\n")
		text = nil
		if slices.ContainsFunc(free, func(begin string) bool { return strings.HasPrefix(block, begin) }) || slices.Contains(sections, heading) {
			return
		}
		all, rest := sentences(block)
		for _, s := range all {
			if claims++; !namedTest.MatchString(s) {
				wrong = append(wrong, fmt.Sprintf("%q names no test in brackets", s))
			}
		}
		if rest != "" && !strings.HasSuffix(rest, ":") {
			wrong = append(wrong, fmt.Sprintf("%q ends with neither a full stop nor a colon", rest))
		}
	}
	for line := range strings.SplitSeq(withoutBlocks(page), "\n") {
		switch {
		case made.MatchString(line):
			flush()
			generated = !generated
		case generated || strings.HasPrefix(line, "<!--") || strings.HasPrefix(line, "| --- |"):
		case strings.HasPrefix(line, "#"):
			flush()
			heading = strings.TrimLeft(line, "# ")
		case strings.HasPrefix(line, "| "):
			flush()
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			claim, shown := strings.Join(cells[:len(cells)-1], " | "), cells[len(cells)-1]
			if shown == "shown by" {
				continue // the head
			}
			if claims++; !namedTest.MatchString(shown) {
				wrong = append(wrong, fmt.Sprintf("the row %q names no test in its last column", claim))
			}
			if all, _ := sentences(claim); len(all) > 0 {
				wrong = append(wrong, fmt.Sprintf("the row %q is more than one claim: it has a full stop", claim))
			}
		case strings.TrimSpace(line) == "":
			flush()
		case item.MatchString(line):
			flush()
			text = []string{item.ReplaceAllString(line, "")}
		default:
			text = append(text, strings.TrimSpace(line))
		}
	}
	flush()
	return wrong, claims
}

// withoutBlocks is a page without its blocks of code.
func withoutBlocks(page string) string {
	lines := strings.Split(page, "\n")
	for _, b := range blocks("", page) {
		if n := strings.Count(b.text, "\n"); n > 0 {
			for i := range n {
				lines[b.line-1+i] = ""
			}
		}
	}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return fence.MatchString(line) }), "\n")
}

// A claim without a test is none. Whoever writes one into these pages names its test.
func TestEveryClaimNamesItsTest(t *testing.T) {
	for _, name := range claiming {
		wrong, claims := unproved(textOf(t, name))
		for _, w := range wrong {
			t.Errorf("%s: %s", name, w)
		}
		if claims < 30 {
			t.Errorf("%s: only %d claims are found", name, claims)
		}
	}
}

// What names no test is found, wherever it stands.
func TestAClaimWithoutATestIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"It holds (`a/b.TestX`).":                               "",
		"It holds, see x.go: `a.b` (`a/b.TestX`, `a.FuzzY`).\n": "",
		"It holds.":                                 `"It holds." names`,
		"It holds (`a/b.TestX`). It\nalso does.":    `"It\nalso does." names`,
		"It holds (`TestX`).":                       "names no test",
		"- It holds (`a/b.TestX`).\n- **It does.**": `"**It does.**" names`,
		"- it holds":                                "neither a full stop nor a colon",
		"What holds:\n\n| it cannot | shown by |\n| --- | --- |\n| a | `b.TestX` |": "",
		"| what | shown by |\n| --- | --- |\n| a | b |":                             "names no test in its last column",
		"| a |": "names no test in its last column",
		"| what | how | shown by |\n| --- | --- |\n| a `b.TestX` | c | d |":              "names no test in its last column",
		"| what | shown by |\n| --- | --- |\n| a. And b. | `c.TestX` |":                  "more than one claim",
		"Note: it is so. It does.":                                                       "",
		"Not defended: it is so.\n\nIt does.":                                            `"It does." names`,
		"## Reporting\n\nTell us.\n\n## A page\n\nIt does.":                              `"It does." names`,
		"<!-- principal.Table -->\n| a | b |\n<!-- end of principal.Table -->\nIt does.": `"It does." names`,
		"Note: so.\n\n<!-- run -->\n```sh\nIt does.\n```\n":                              "",
	} {
		wrong, _ := unproved(text)
		if got := strings.Join(wrong, "; "); (got == "") != (want == "") || len(wrong) > 1 || !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// Whoever reads the pages can run what they name.
func TestTheTestsOfTheClaimsExist(t *testing.T) {
	all := tests(t)
	for _, name := range claiming {
		text := textOf(t, name)
		named := namedTest.FindAllStringSubmatch(text, -1)
		if mentioned := anyTest.FindAllString(text, -1); len(mentioned) != len(named) {
			t.Errorf("%s: %d tests are mentioned, but %d with their directory, as `launcher/httpapi.TestX`", name, len(mentioned), len(named))
		}
		for _, m := range named {
			if dir, test := m[1], m[2]; !slices.Contains(all[dir], test) {
				t.Errorf("%s names %s in %s, which is not there", name, test, dir)
			}
		}
	}
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tests are the tests and fuzz targets of each directory of the project, with slashes
// and relative to its root.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := source.Walk("_test.go", func(path string, content []byte) error {
		file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(source.Path("."), filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				all[filepath.ToSlash(dir)] = append(all[filepath.ToSlash(dir)], f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
