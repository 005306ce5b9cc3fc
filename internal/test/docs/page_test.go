package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reasons are why a block may not be run. There are no others: a block that can be run
// here is run.
var reasons = map[string]string{
	"drawing":       "a picture, a state diagram, a form of a URL or a request: nothing that could be run as it stands",
	"long":          "builds, installs, tests or measures for minutes; that its targets and tests exist is looked at",
	"other host":    "needs another host, another user, keys of a company or a service manager",
	"endless":       "goes on until somebody ends it",
	"not installed": "its program or library cannot be had from the registries of the build machines, or is too large for them",
}

// block is a block of code of a page.
type block struct {
	page     string
	line     int // of its first line
	language string
	mark     string // without <!-- and -->; empty: there is none
	text     string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

var (
	fence  = regexp.MustCompile("^( *)(```+)([a-z]*)[^`]*$")
	marked = regexp.MustCompile(`^\s*<!-- ((?:not )?run\b.*?) -->\s*$`)
	item   = regexp.MustCompile(`^\s*([-*]|\d+\.) `)
)

// blocks are the blocks of code of a page: those between fences, and those that are
// indented by four spaces or more below an empty line or a mark.
func blocks(page, text string) []block {
	lines := strings.Split(text, "\n")
	var all []block
	mark := ""
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		above := ""
		if i > 0 {
			above = strings.TrimSpace(lines[i-1])
		}
		if m := marked.FindStringSubmatch(line); m != nil {
			mark = m[1]
			continue
		}
		if m := fence.FindStringSubmatch(line); m != nil {
			b := block{page: page, line: i + 2, language: m[3], mark: mark}
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != m[2]; i++ {
				b.text += strings.TrimPrefix(lines[i], m[1]) + "\n"
			}
			all, mark = append(all, b), ""
			continue
		}
		if strings.HasPrefix(line, "    ") && !item.MatchString(line) && (above == "" || mark != "") {
			b := block{page: page, line: i + 1, mark: mark}
			for ; i < len(lines) && (strings.HasPrefix(lines[i], "    ") || lines[i] == ""); i++ {
				b.text += strings.TrimPrefix(lines[i], "    ") + "\n"
			}
			i--
			b.text = strings.TrimRight(b.text, "\n") + "\n"
			all, mark = append(all, b), ""
			continue
		}
		if mark != "" && strings.TrimSpace(line) != "" {
			all, mark = append(all, block{page: page, line: i, mark: mark}), "" // a mark of nothing
		}
	}
	return all
}

// command is one command of a console block, and what it is to print; nil: anything.
type command struct {
	line   string
	output []string
}

// commands are those of a console block.
func (b block) commands() ([]command, error) {
	var all []command
	more := false
	for i, line := range strings.Split(strings.TrimRight(b.text, "\n"), "\n") {
		switch entered, isCommand := strings.CutPrefix(line, "$ "); {
		case more:
			all[len(all)-1].line += "\n" + line
			more = strings.HasSuffix(line, `\`)
		case isCommand:
			all = append(all, command{line: entered})
			more = strings.HasSuffix(line, `\`)
		case len(all) == 0:
			return nil, fmt.Errorf("line %d of the block comes before the first command: a command begins with \"$ \"", i+1)
		default:
			all[len(all)-1].output = append(all[len(all)-1].output, line)
		}
	}
	return all, nil
}

// matches tells whether lines were printed as a page shows them.
func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if strings.TrimSpace(want[0]) == "..." {
		for i := 0; i <= len(got); i++ {
			if matches(want[1:], got[i:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && lineMatches(want[0], got[0]) && matches(want[1:], got[1:])
}

// lineMatches compares two lines. "..." stands for anything; as a word of its own it may be
// nothing at all.
func lineMatches(want, got string) bool {
	pattern := regexp.QuoteMeta(strings.Join(strings.Fields(want), " "))
	pattern = strings.ReplaceAll(" "+pattern, ` \.\.\. `, " (?:.* )?")
	if head, ok := strings.CutSuffix(pattern, ` \.\.\.`); ok {
		pattern = head + "(?: .*)?"
	}
	pattern = strings.ReplaceAll(pattern, `\.\.\.`, ".*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(" " + strings.Join(strings.Fields(got), " "))
}

// verdict is what a mark says about its block.
type verdict struct {
	kind string // run, in, as, of, server, by, not
	arg  string
}

// read understands the mark of a block.
func (b block) read() (verdict, error) {
	how := fmt.Sprintf("want <!-- run --> in the line above it, or another mark of internal/test/docs/doc.go, or <!-- not run: REASON --> with one of %s", strings.Join(slices.Sorted(maps.Keys(reasons)), ", "))
	if b.text == "" {
		return verdict{}, fmt.Errorf("the mark %q stands above no block", b.mark)
	}
	if reason, ok := strings.CutPrefix(b.mark, "not run: "); ok {
		if reasons[reason] == "" {
			return verdict{}, fmt.Errorf("%q is no reason: %s", reason, how)
		}
		return verdict{"not", reason}, nil
	}
	if test, ok := strings.CutPrefix(b.mark, "run by: "); ok {
		return verdict{"by", test}, nil
	}
	rest := strings.TrimPrefix(b.mark, "run: ")
	switch kind, arg, _ := strings.Cut(rest, " "); {
	case b.mark == "":
		return verdict{}, fmt.Errorf("the block is neither run nor excused: %s", how)
	case b.mark == "run" && slices.Contains([]string{"console", "sh", "python"}, b.language):
		return verdict{"run", b.language}, nil
	case b.mark == "run":
		return verdict{}, fmt.Errorf("a block in %q cannot be run by itself: want a language (console, sh, python) or a frame: %s", b.language, how)
	case rest != b.mark && (kind == "in" || kind == "as" || kind == "of") && arg != "" || rest == "server":
		return verdict{kind, arg}, nil
	}
	return verdict{}, fmt.Errorf("the mark %q is not understood: %s", b.mark, how)
}

// pages are README.md and those of docs, docs/examples and docs/lab, by their names.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files := []string{filepath.Join(root, "README.md")}
	for _, dir := range []string{"docs", "docs/examples", "docs/lab"} {
		more, err := filepath.Glob(filepath.Join(root, dir, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

var (
	targets = regexp.MustCompile(`(?m)^(?:\$ )?(?:[A-Z_]+=\S+ )*make ((?:[a-z-]+)(?: [a-z-]+)*)`)
	runTest = regexp.MustCompile(`go test (\./\S+).* -(?:run|bench) '?\^?(\w+)`)
	rule    = regexp.MustCompile(`(?m)^([a-z-]+):`)
)

// exists looks whether the targets of make and the tests that a text names are there.
func exists(t *testing.T, where fmt.Stringer, text, makefile string) {
	t.Helper()
	var known []string
	for _, m := range rule.FindAllStringSubmatch(makefile, -1) {
		known = append(known, m[1])
	}
	for _, m := range targets.FindAllStringSubmatch(text, -1) {
		for target := range strings.FieldsSeq(m[1]) {
			if !slices.Contains(known, target) {
				t.Errorf("%s: the Makefile has no target %s", where, target)
			}
		}
	}
	for _, m := range runTest.FindAllStringSubmatch(text, -1) {
		if !hasFunction(t, filepath.Join(root, m[1]), m[2]) {
			t.Errorf("%s: %s has no test %s", where, m[1], m[2])
		}
	}
}

// hasFunction looks for a function, or one whose name begins so, in the files of a package.
func hasFunction(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+name) {
			return true
		}
	}
	return false
}

func TestBlocksAreFound(t *testing.T) {
	got := blocks("p", strings.ReplaceAll(`text

<!-- run -->
~~~console
$ a \
    b
x ... y
$ c
~~~

<!-- not run: drawing -->
    indented

    more
end

    none
- a
    - nested

1. item

       in a list

<!-- run: as g.mjs -->
~~~js g.mjs
g
~~~

<!-- run: in f.mjs -->
words
`, "~", "`"))
	var shown []string
	for _, b := range got {
		shown = append(shown, fmt.Sprintf("%d %s|%s|%q", b.line, b.language, b.mark, b.text))
	}
	want := []string{
		`5 console|run|"$ a \\\n    b\nx ... y\n$ c\n"`, `12 |not run: drawing|"indented\n\nmore\n"`, `17 ||"none\n"`,
		`23 ||"   in a list\n"`, `27 js|run: as g.mjs|"g\n"`, `30 |run: in f.mjs|""`,
	}
	if !slices.Equal(shown, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(shown, "\n"), strings.Join(want, "\n"))
	}
	all, err := got[0].commands()
	if err != nil || len(all) != 2 || all[0].line != "a \\\n    b" || len(all[0].output) != 1 || all[1].output != nil {
		t.Errorf("%+v %v", all, err)
	}
}

func TestMarksAreUnderstood(t *testing.T) {
	for mark, want := range map[string]string{
		"run": "run console", "run: in a.mjs": "in a.mjs", "run: as b.yaml": "as b.yaml", "run: of c.mjs": "of c.mjs", "run: server": "server ", "run by: TestX": "by TestX",
		"not run: long": "not long", "not run: bored": "", "": "", "run: in": "", "run: somehow": "", "runs": "",
	} {
		v, err := block{language: "console", mark: mark, text: "x"}.read()
		got := v.kind + " " + v.arg
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%q: %q (%v), want %q", mark, got, err, want)
		}
	}
	if _, err := (block{language: "js", mark: "run", text: "x"}).read(); err == nil {
		t.Error("JavaScript needs a frame")
	}
	if _, err := (block{mark: "run"}).read(); err == nil {
		t.Error("a mark above nothing is read")
	}
}

func TestOutputIsCompared(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"a  b", "a b", true}, {"a b", "a c", false}, {"a ... c", "a b b c", true}, {"a ... c", "a b b", false}, {"a ... c", "a c", true}, {"a ...", "a", true}, {"... a", "a", true}, {"a ...", "ab", false}, {"a...", "ab", true}, {"a.c", "abc", false},
		{"...\nx", "1\n2\nx", true}, {"...\nx", "x", true}, {"...\nx", "x\n1", false}, {"x", "x\ny", false}, {"x\ny", "x", false},
	} {
		if got := matches(strings.Split(c.want, "\n"), strings.Split(c.got, "\n")); got != c.same {
			t.Errorf("%q and %q: %v", c.want, c.got, got)
		}
	}
}
