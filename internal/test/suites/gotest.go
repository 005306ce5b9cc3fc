package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// goSuite is the test binary of a Go module.
type goSuite struct {
	dir, binary string
	args        []string
	env         []string
	pages       *pages
	limit       time.Duration // of one play
}

// module copies a module as the module proxy has it, in the version that the module in the
// directory from uses. Another one than the suite's is refused.
func (p *place) module(ctx context.Context, from, path, version, dir string) error {
	if _, err := must(ctx, from, "go", "mod", "download", path); err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	said, err := must(ctx, from, "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", path)
	if err != nil {
		return err
	}
	is, root, _ := strings.Cut(said, " ")
	if is != "v"+version {
		return fmt.Errorf("%s is used in version %s: the suite is the one of v%s", path, is, version)
	}
	// A directory that is copied to has to be empty.
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(root)); err != nil {
		return err
	}
	// Files of the module cache are read-only.
	return filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(file, 0o755)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.Chmod(file, info.Mode().Perm()|0o600)
	})
}

// list returns the tests on the top level. Examples need the internet.
func (g *goSuite) list(ctx context.Context) ([]string, error) {
	out, err := command(ctx, g.dir, append(os.Environ(), g.env...), g.binary, "-test.list", "^Test")
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.Lines(string(out)) {
		if name = strings.TrimSpace(name); strings.HasPrefix(name, "Test") && !strings.Contains(name, " ") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no tests: %s", out)
	}
	return names, nil
}

// play runs the tests. One that ends the process has failed; those behind it are run anew.
func (g *goSuite) play(ctx context.Context, s *side, names []string) (results, error) {
	whole, stop := context.WithTimeout(ctx, g.limit)
	defer stop()
	all := results{}
	for left := names; len(left) > 0 && whole.Err() == nil; {
		args := append([]string{"-test.v", "-test.run", exactly(left), "-test.timeout", "0"}, g.args...)
		out, err := command(whole, g.dir, append(slices.Clone(s.env), g.env...), g.binary, args...)
		if err != nil && whole.Err() == nil {
			return all, err
		}
		if err := s.keep(g.dir, out); err != nil {
			return all, err
		}
		got, broke := readGoTest(out)
		if broke != "" {
			got[broke] = result{Verdict: failed, Said: tail(out)}
		}
		before := len(left)
		left = slices.DeleteFunc(slices.Clone(left), func(name string) bool {
			one, has := got[name]
			if has {
				all[name] = one
			}
			return has
		})
		if len(left) == before {
			if len(all) == 0 {
				return all, fmt.Errorf("no test had a result: %s", tail(out))
			}
			break // they stay without a result
		}
	}
	return all, ctx.Err()
}

func (g *goSuite) close() error {
	if g.pages == nil {
		return nil
	}
	return g.pages.close()
}

func exactly(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}

// tail is the end of what a program printed.
func tail(out []byte) string { return string(out[max(0, len(out)-saidBytes):]) }

// rodVersion is the version of go-rod in internal/test/clients/gorod.
const rodVersion = "0.116.2"

var revision = regexp.MustCompile(`RevisionDefault\s*=\s*(\d+)`)

func prepareRod(ctx context.Context, p *place) (player, error) {
	home := filepath.Join(p.work, "rod-home")
	dir, err := p.once("rod-"+rodVersion, func(dir string) error {
		if err := p.module(ctx, filepath.Join(p.source, "../clients/gorod"), "github.com/go-rod/rod", rodVersion, dir); err != nil {
			return err
		}
		if err := replace(filepath.Join(dir, "setup_test.go"), `return "file://" + f`, `return os.Getenv("SUITES_PAGES") + f`); err != nil {
			return err
		}
		_, err := must(ctx, dir, "go", "test", "-mod=mod", "-c", "-o", "rod.test", ".")
		return err // what its tests need comes by the module proxy, too
	})
	if err != nil {
		return nil, err
	}
	// go-rod looks for the Chromium of its own revision there, and would download it.
	source, err := os.ReadFile(filepath.Join(dir, "lib/launcher/revision.go"))
	if err != nil {
		return nil, err
	}
	m := revision.FindSubmatch(source)
	if m == nil {
		return nil, errors.New("lib/launcher/revision.go names no revision any more")
	}
	browser := filepath.Join(home, ".cache/rod/browser", "chromium-"+string(m[1]))
	if err := errors.Join(os.RemoveAll(browser), os.MkdirAll(browser, 0o755), os.Symlink(p.standin, filepath.Join(browser, "chrome"))); err != nil {
		return nil, err
	}
	served, err := servePages(dir)
	if err != nil {
		return nil, err
	}
	return &goSuite{
		dir: dir, binary: filepath.Join(dir, "rod.test"), pages: served, limit: 30 * time.Minute,
		// One test after the other, on one browser: they tell each other's pages apart no
		// better than those of a stranger.
		args: []string{"-test.parallel", "1", "-timeout-each", "3m"},
		env:  []string{"GODEBUG=tracebackancestors=1000", "HOME=" + home, "SUITES_PAGES=" + served.url, "STANDIN_CHROME=" + p.chrome},
	}, nil
}
