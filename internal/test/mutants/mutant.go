package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Mutant is the code with one rule taken out, or turned into what a tired programmer would
// write.
type Mutant struct {
	// Name says in plain words what the code does then.
	Name string
	// File is the path of the file, from the root of the module.
	File string
	// From stands in the file exactly once, and To comes in its place.
	From, To string
	// By are the tests that have to notice. They run in this order, until one does.
	By []Catcher
}

// Catcher names tests of one package.
type Catcher struct {
	// Package is its path from the root of the module.
	Package string
	// Tests are the names of the tests to run; none: all of the package.
	Tests []string
	// Without are tests that do not count: they compare the code with a page of the docs,
	// so that they would notice every change and prove nothing.
	Without []string
}

// by names tests of a package; without names: all of them.
func by(pkg string, tests ...string) Catcher { return Catcher{pkg, tests, nil} }

// without leaves out a test.
func (c Catcher) without(tests ...string) Catcher { return Catcher{c.Package, c.Tests, tests} }

// key is the same for catchers that run the same tests.
func (c Catcher) key() string {
	return fmt.Sprint(c.Package, " ", anyOf(c.Tests), " ", anyOf(c.Without))
}

// String says which tests run, for people.
func (c Catcher) String() string {
	if len(c.Tests) == 0 {
		return c.Package
	}
	return c.Package + " " + strings.Join(c.Tests, " ")
}

// anyOf is a pattern of the go command for tests with these names.
func anyOf(tests []string) string {
	if len(tests) == 0 {
		return ""
	}
	return "^(" + strings.Join(tests, "|") + ")$"
}

// change is a Mutant of a file that is given elsewhere.
type change struct{ name, from, to string }

// in are the mutants of one file, with the tests that have to notice each of them.
func in(file string, catchers []Catcher, changes ...change) []Mutant {
	var all []Mutant
	for _, c := range changes {
		all = append(all, Mutant{c.name, file, c.from, c.to, catchers})
	}
	return all
}

// all returns the whole list. root is the directory of the module: the mutants of the
// decision table are made from its source.
func all(root string) ([]Mutant, error) {
	table, err := decisionTable(root)
	if err != nil {
		return nil, err
	}
	return slices.Concat(ofLease, ofStore, ofProfileDir, ofProxy, ofRecovery, table, ofRoster, ofCluster, ofHomes, ofBubble, ofSnapshots, ofQueue, ofSites, ofTravel), nil
}

// apply returns the mutated source of the file. The error says what is wrong with the list.
func (m Mutant) apply(root string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, fmt.Errorf("mutant %q: %w", m.Name, err)
	}
	source := string(b)
	if n := strings.Count(source, m.From); n != 1 || m.From == m.To {
		return nil, fmt.Errorf("mutant %q: its piece of source occurs %d times in %s, want once, and another one in its place: bring the list up to the code\n%s", m.Name, n, m.File, m.From)
	}
	mutated := strings.Replace(source, m.From, m.To, 1)
	if _, err := parser.ParseFile(token.NewFileSet(), m.File, mutated, parser.SkipObjectResolution); err != nil {
		return nil, fmt.Errorf("mutant %q does not parse: %w", m.Name, err)
	}
	return []byte(mutated), nil
}

// check finds what is wrong with a list: two mutants of one name, an equivalent one that is
// not there, a test that does not exist, or a piece of source that is not in its place.
func check(root string, list []Mutant) error {
	names, tests := map[string]bool{}, map[string]string{}
	for _, m := range list {
		if names[m.Name] {
			return fmt.Errorf("mutant %q stands twice", m.Name)
		}
		names[m.Name] = true
		if _, err := m.apply(root); err != nil {
			return err
		}
		if len(m.By) == 0 {
			return fmt.Errorf("mutant %q: no test has to notice", m.Name)
		}
		for _, c := range m.By {
			if _, read := tests[c.Package]; !read {
				source, err := testSource(filepath.Join(root, c.Package))
				if err != nil {
					return fmt.Errorf("mutant %q: %w", m.Name, err)
				}
				tests[c.Package] = source
			}
			for _, name := range slices.Concat(c.Tests, c.Without) {
				if !strings.Contains(tests[c.Package], "\nfunc "+name+"(") {
					return fmt.Errorf("mutant %q: %s has no %s", m.Name, c.Package, name)
				}
			}
		}
	}
	for name := range equivalent {
		if !names[name] {
			return fmt.Errorf("%q is said to be equivalent, and is no mutant", name)
		}
	}
	return nil
}

// testSource is the text of all tests of a package.
func testSource(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("no tests in %s (%w)", dir, err)
	}
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		all.Write(b)
	}
	return all.String(), nil
}

// matching returns the mutants whose name, or file, matches a pattern.
func matching(list []Mutant, pattern string) ([]Mutant, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern of the mutants: %w", err)
	}
	found := slices.DeleteFunc(slices.Clone(list), func(m Mutant) bool { return !re.MatchString(m.Name) && !re.MatchString(m.File) })
	if len(found) == 0 {
		return nil, fmt.Errorf("no mutant has a name or a file like %q", pattern)
	}
	return found, nil
}
