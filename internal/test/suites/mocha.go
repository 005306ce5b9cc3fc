package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mocha is a suite of Mocha's.
type mocha struct {
	dir    string // with the packages
	source string // the copy of the repository
	ui     string // directory of our interface and reporter
	files  []string
	args   []string
	env    func(*side) []string
	// open, if given, opens the browser that the tests of one file expect to run, and
	// returns a copy of the sources that knows it.
	open  func(s *side) (source string, stop func(), err error)
	limit time.Duration // of one file
}

// list returns the names of all tests, as the files define them.
func (m *mocha) list(ctx context.Context) ([]string, error) {
	report := filepath.Join(m.dir, "list.jsonl")
	if err := removeReport(report); err != nil {
		return nil, err
	}
	env := append(os.Environ(), "SUITES_REPORT="+report, "SUITES_ROOT="+m.source)
	if m.env != nil {
		env = append(env, m.env(&side{})...)
	}
	args := append(m.arguments(), "--dry-run")
	out, err := command(ctx, m.source, env, "node", append(args, m.files...)...)
	if err != nil {
		return nil, err
	}
	got, err := readReportFile(report)
	if err == nil && len(got) == 0 {
		err = fmt.Errorf("mocha listed no tests: %s", tail(out))
	}
	return slices.Sorted(maps.Keys(got)), err
}

func (m *mocha) arguments() []string {
	return append([]string{
		filepath.Join(m.dir, "node_modules/mocha/bin/mocha.js"), "--no-config", "--exit", "--timeout", "60000",
		"--ui", filepath.Join(m.ui, "mocha-ui.cjs"), "--reporter", filepath.Join(m.ui, "mocha-reporter.cjs"),
	}, m.args...)
}

// play runs the files one after the other, each in a process of its own.
func (m *mocha) play(ctx context.Context, s *side, names []string) (results, error) {
	all := results{}
	files, of := byFile(names)
	for _, file := range files {
		got, err := m.file(ctx, s, file, of[file])
		if err != nil {
			return all, fmt.Errorf("%s: %w", file, err)
		}
		maps.Copy(all, got)
	}
	return all, ctx.Err()
}

func (m *mocha) file(ctx context.Context, s *side, file string, names []string) (results, error) {
	report, chosen := filepath.Join(m.dir, s.name+".jsonl"), filepath.Join(m.dir, s.name+".json")
	if err := errors.Join(removeReport(report), writeJSON(chosen, names)); err != nil {
		return nil, err
	}
	source := m.source
	if m.open != nil {
		prepared, stop, err := m.open(s)
		if err != nil {
			return nil, err
		}
		defer stop()
		source = prepared
	}
	limited, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	env := append(slices.Clone(s.env), "SUITES_REPORT="+report, "SUITES_TESTS="+chosen, "SUITES_ROOT="+source)
	if m.env != nil {
		env = append(env, m.env(s)...)
	}
	out, err := command(limited, source, env, "node", append(m.arguments(), file)...)
	if err != nil && limited.Err() == nil {
		return nil, err
	}
	if err := s.keep(m.dir, out); err != nil {
		return nil, err
	}
	return readReportFile(report)
}

func (m *mocha) close() error { return nil }

// filesOf returns the files below a directory whose names end so, relative to it.
func filesOf(source, below, suffix string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(filepath.Join(source, below), func(file string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(file, suffix) {
			var relative string
			relative, err = filepath.Rel(source, file)
			files = append(files, relative)
		}
		return err
	})
	return files, err
}

var criRepository = repository{
	folder: "chrome-remote-interface", url: "https://github.com/cyrus-and/chrome-remote-interface", tag: "v0.33.3", version: "0.33.3", manifest: "package.json",
}

// prepareCRI prepares the tests of chrome-remote-interface. They expect a Chrome on port
// 9222: each file gets a copy that says another port.
func prepareCRI(ctx context.Context, p *place) (player, error) {
	dir, err := p.npm(ctx, "chrome-remote-interface", criRepository, func(string) error { return nil })
	if err != nil {
		return nil, err
	}
	source := filepath.Join(dir, "source")
	files, err := filesOf(source, "test", ".js")
	if err != nil {
		return nil, err
	}
	return &mocha{dir: dir, source: source, ui: filepath.Join(p.source, "js"), files: files, limit: 5 * time.Minute, open: func(s *side) (string, func(), error) {
		b, err := s.open(nil)
		if err != nil {
			return "", nil, err
		}
		copied, err := aimed(source, filepath.Join(dir, "on-"+s.name), b.host)
		if err != nil {
			b.stop()
		}
		return copied, b.stop, err
	}}, nil
}

// aimed copies the sources to a directory, with another port in place of 9222, and another
// page in place of the new tab's.
func aimed(source, to, host string) (string, error) {
	if err := os.RemoveAll(to); err != nil {
		return "", err
	}
	if err := os.CopyFS(to, os.DirFS(source)); err != nil {
		return "", err
	}
	_, number, _ := strings.Cut(host, ":")
	for _, one := range []struct{ file, old, new string }{
		{"lib/defaults.js", "9222", number}, {"test/connect.js", "9222", number}, {"test/event.js", "9222", number},
		{"test/devtools.js", newTab, anyPage}, {"test/event.js", newTab, anyPage}, {"test/send.js", newTab, anyPage},
	} {
		if err := replace(filepath.Join(to, one.file), one.old, one.new); err != nil {
			return "", err
		}
	}
	return to, nil
}

// newTab is any page to these tests. It is one of Chrome's own, which the sidecar refuses.
const newTab, anyPage = "chrome://newtab/", "data:text/html,new-tab"

var puppeteerRepository = repository{
	folder: "puppeteer", url: "https://github.com/puppeteer/puppeteer", tag: "puppeteer-core-v24.15.0", version: "24.15.0", manifest: "packages/puppeteer-core/package.json",
}

// renamed puts names that Chrome resolves by itself in place of those for which it would need
// an argument that is not allowed.
func renamed(source string) error {
	var errs []error
	for _, one := range []struct{ file, name string }{
		{"src/oopif.spec.ts", "domain1"}, {"src/page.spec.ts", "domain1"}, {"src/page.spec.ts", "domain2"},
		{"assets/main-frame.html", "domain2"}, {"assets/inner-frame1.html", "domain1"},
	} {
		errs = append(errs, replace(filepath.Join(source, "test", one.file), one.name+".test", one.name+".localhost"))
	}
	return errors.Join(errs...)
}

// preparePuppeteer prepares Puppeteer's tests. They start the stand-in in place of Chrome.
func preparePuppeteer(ctx context.Context, p *place) (player, error) {
	dir, err := p.npm(ctx, "puppeteer", puppeteerRepository, func(source string) error {
		// The server of the tests is a package of the repository, without what is made
		// from its sources.
		server := filepath.Join(source, "packages/testserver")
		// So is the library that the programs of some tests load.
		library := filepath.Join(source, "packages/puppeteer")
		return errors.Join(
			renamed(source),
			os.RemoveAll(library),
			os.Symlink(filepath.Join(filepath.Dir(source), "node_modules/puppeteer"), library),
			replace(filepath.Join(server, "package.json"), `"lib/index.js"`, `"src/index.ts"`),
			os.MkdirAll(filepath.Join(source, "node_modules/@pptr"), 0o755),
			os.Symlink(server, filepath.Join(source, "node_modules/@pptr/testserver")))
	})
	if err != nil {
		return nil, err
	}
	source := filepath.Join(dir, "source")
	files, err := filesOf(source, "test/src", ".spec.ts")
	if err != nil {
		return nil, err
	}
	return &mocha{
		dir: dir, source: source, ui: filepath.Join(p.source, "js"), files: files, limit: 10 * time.Minute,
		args: []string{"--require", filepath.Join(p.source, "js/typescript.cjs"), "--require", filepath.Join(source, "test/src/mocha-utils.ts")},
		env:  func(*side) []string { return []string{"BINARY=" + p.standin} },
	}, nil
}
