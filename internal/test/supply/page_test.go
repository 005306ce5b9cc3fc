package supply

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// tests are the tests and fuzz targets of each directory of the project, with slashes
// and relative to its root.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == ".git"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
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

var (
	anyTest   = regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w*`)
	namedTest = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Z]\\w*)`")
	markdown  = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
)

// Whoever reads SECURITY.md can run what it names.
func TestTheTestsOfTheSecurityPageExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := namedTest.FindAllSubmatch(page, -1)
	if mentioned := anyTest.FindAll(page, -1); len(mentioned) != len(named) {
		t.Errorf("%d tests are mentioned, but %d with their directory, as `launcher/httpapi.TestX`", len(mentioned), len(named))
	}
	if len(named) < 30 {
		t.Errorf("only %d tests are named", len(named))
	}
	all := tests(t)
	for _, m := range named {
		dir, name := string(m[1]), string(m[2])
		if !slices.Contains(all[dir], name) {
			t.Errorf("SECURITY.md names %s in %s, which is not there", name, dir)
		}
	}
}

// A claim without a test is none: each row of the tables names one.
func TestEveryClaimOfTheSecurityPageHasATest(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	claims := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| it cannot |") || strings.HasPrefix(line, "| --- |") {
			continue
		}
		claims++
		claim, shown, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !namedTest.MatchString(shown) {
			t.Errorf("SECURITY.md claims that an adversary cannot %q, and names no test", claim)
		}
	}
	if claims < 60 {
		t.Errorf("only %d claims are found", claims)
	}
}

func TestTheSecurityPageIsLinked(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "](SECURITY.md)") {
		t.Error("README.md does not link to SECURITY.md")
	}
	page, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range markdown.FindAllSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
			t.Errorf("SECURITY.md links to a file that is not there: %v", err)
		}
	}
}
