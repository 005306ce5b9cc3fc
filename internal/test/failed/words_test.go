package failed

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"

	"leasehold/internal/test/source"
)

// TestFailuresHaveWords: no test fails with values alone, as in t.Error(err), which may print
// <nil>. An error alone is enough where the test has just found that it is not nil.
func TestFailuresHaveWords(t *testing.T) {
	files := token.NewFileSet()
	err := source.Walk(".go", func(path string, content []byte) error {
		f, err := parser.ParseFile(files, path, content, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, call := range wordless(f, nil) {
			t.Errorf("%s: say what was seen and what is wanted", files.Position(call.Pos()))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWhatCountsAsWords: each source fails a test, some without words.
func TestWhatCountsAsWords(t *testing.T) {
	for code, want := range map[string]int{
		`if err != nil { t.Fatal(err) }`:                                0,
		`if err := f(); err != nil { t.Error(err) }`:                    0,
		`if x && err != nil { t.Error(err) }`:                           0,
		`if !ok || err != nil { t.Error(err) }`:                         1,
		`if !errors.Is(err, target) { t.Error(err) }`:                   1,
		`if err != nil { if x { t.Error(err) } }`:                       0,
		`if err != nil { } else { t.Error(err) }`:                       1,
		`if got != 1 { t.Error(got) }`:                                  1,
		`if got != 1 { t.Error(got, err) }`:                             1,
		`if got != 1 { t.Error("got", got) }`:                           0,
		`if got != 1 { t.Errorf("%v, want 1", got) }`:                   0,
		`switch { case err != nil: t.Fatal(err) }`:                      0,
		`switch { case got != 1: t.Fatal(got) }`:                        1,
		`if got != 1 { t.Error("a" + got) }`:                            0,
		`go func() { if _, err := f(); err == nil { t.Error(err) } }()`: 1,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; func f() {"+code+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(wordless(f, nil)); got != want {
			t.Errorf("%s: %d found, want %d", code, got, want)
		}
	}
}

// wordless returns the calls in n that fail a test with values alone. known are the conditions
// that are true there.
func wordless(n ast.Node, known []ast.Expr) (found []*ast.CallExpr) {
	within := func(n ast.Node, also ...ast.Expr) {
		found = append(found, wordless(n, append(slices.Clip(known), also...))...)
	}
	ast.Inspect(n, func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.IfStmt:
			within(m.Body, m.Cond)
			if m.Else != nil {
				within(m.Else)
			}
			return false
		case *ast.CaseClause:
			for _, s := range m.Body {
				within(s, m.List...)
			}
			return false
		case *ast.CallExpr:
			if failsWithValues(m) && !(len(m.Args) == 1 && notNil(m.Args[0], known)) {
				found = append(found, m)
			}
		}
		return true
	})
	return found
}

// failsWithValues tells whether the call is t.Error or t.Fatal, of any testing.TB by one of its
// usual names, and none of its arguments has words.
func failsWithValues(c *ast.CallExpr) bool {
	f, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Error" && f.Sel.Name != "Fatal" {
		return false
	}
	on, ok := f.X.(*ast.Ident)
	return ok && slices.Contains([]string{"t", "b", "f", "tb"}, on.Name) && !slices.ContainsFunc(c.Args, hasWords)
}

func hasWords(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return hasWords(e.X) || hasWords(e.Y)
	case *ast.CallExpr:
		return slices.ContainsFunc(e.Args, hasWords)
	}
	return false
}

// notNil tells whether one of the known conditions says that the value is not nil.
func notNil(value ast.Expr, known []ast.Expr) bool {
	name, ok := value.(*ast.Ident)
	return ok && slices.ContainsFunc(known, func(c ast.Expr) bool { return saysNotNil(c, name.Name) })
}

func saysNotNil(e ast.Expr, name string) bool {
	c, ok := e.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	if c.Op == token.LAND {
		return saysNotNil(c.X, name) || saysNotNil(c.Y, name)
	}
	x, isName := c.X.(*ast.Ident)
	y, isNil := c.Y.(*ast.Ident)
	return c.Op == token.NEQ && isName && isNil && x.Name == name && y.Name == "nil"
}
