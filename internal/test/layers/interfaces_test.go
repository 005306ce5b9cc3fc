package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wide is the least number of methods with which an interface says why it has so many.
const wide = 6

// TestAWideInterfaceSaysWhy: its comment has a sentence "It has N methods because ...", with the right
// number. Methods of embedded interfaces of the same package count; tests and the harness do not.
func TestAWideInterfaceSaysWhy(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		if strings.HasPrefix(p.ImportPath, harness) {
			continue
		}
		fset := token.NewFileSet()
		named, docs := map[string]*ast.InterfaceType{}, map[string]string{}
		known := map[*ast.InterfaceType]bool{}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
			for _, d := range f.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, spec := range g.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok {
						if i, ok := ts.Type.(*ast.InterfaceType); ok {
							named[ts.Name.Name], docs[ts.Name.Name], known[i] = i, g.Doc.Text()+ts.Doc.Text(), true
						}
					}
				}
			}
		}
		for name, i := range named {
			n := methodsOf(i, named)
			if n < wide {
				continue
			}
			found++
			why := because.FindStringSubmatch(strings.Join(strings.Fields(docs[name]), " "))
			if why == nil || why[1] != fmt.Sprint(n) {
				t.Errorf("%s.%s has %d methods: its comment has to say why, in a sentence %q; or take some away", p.ImportPath, name, n, fmt.Sprintf("It has %d methods because", n))
			}
		}
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				if i, ok := n.(*ast.InterfaceType); ok && !known[i] && methodsOf(i, named) >= wide {
					t.Errorf("%s: an interface without a name has %d methods: name it, and say why", fset.Position(i.Pos()), methodsOf(i, named))
				}
				return true
			})
		}
	}
	if found < 5 {
		t.Errorf("%d interfaces of at least %d methods found: does the test see the sources?", found, wide)
	}
}

var because = regexp.MustCompile(`\b(?:It has|They have) (\d+) methods because \w+`)

// methodsOf counts an interface's methods, with those of embedded interfaces among the named ones.
func methodsOf(i *ast.InterfaceType, named map[string]*ast.InterfaceType) (n int) {
	for _, m := range i.Methods.List {
		n += len(m.Names)
		if id, ok := m.Type.(*ast.Ident); ok && named[id.Name] != nil {
			n += methodsOf(named[id.Name], named)
		}
	}
	return n
}
