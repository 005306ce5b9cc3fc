package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

var playwrightRepository = repository{
	folder: "playwright", url: "https://github.com/microsoft/playwright", tag: "v1.62.1", version: "1.62.1", manifest: "package.json",
}

// playwright is one folder of Playwright's own tests.
type playwright struct {
	dir     string // with the packages
	source  string // the copy of the repository
	config  string
	folder  string // below tests
	standin string
}

// preparePlaywright returns what prepares the tests of one folder. The browsers that they
// launch are connected to over CDP: js/playwright.config.cjs does that.
func preparePlaywright(folder string) func(context.Context, *place) (player, error) {
	return func(ctx context.Context, p *place) (player, error) {
		dir, err := p.npm(ctx, "playwright", playwrightRepository, func(source string) error {
			// The tests look into the library's bundle, which only the package has.
			return os.Symlink(filepath.Join(filepath.Dir(source), "node_modules/playwright-core/lib"), filepath.Join(source, "packages/playwright-core/lib"))
		})
		if err != nil {
			return nil, err
		}
		return &playwright{dir: dir, source: filepath.Join(dir, "source"), config: filepath.Join(p.source, "js/playwright.config.cjs"), folder: folder, standin: p.standin}, nil
	}
}

func (w *playwright) list(ctx context.Context) ([]string, error) {
	report := filepath.Join(w.dir, "list.jsonl")
	if err := removeReport(report); err != nil {
		return nil, err
	}
	out, err := w.run(ctx, append(os.Environ(), "SUITES_LIST=1", "SUITES_REPORT="+report), "--list")
	if err != nil {
		return nil, err
	}
	got, err := readReportFile(report)
	if err == nil && len(got) == 0 {
		err = fmt.Errorf("playwright listed no tests: %s", tail(out))
	}
	return slices.Sorted(maps.Keys(got)), err
}

func (w *playwright) run(ctx context.Context, env []string, args ...string) ([]byte, error) {
	env = append(env, "SUITES_ROOT="+w.source, "SUITES_STANDIN="+w.standin, "SUITES_FOLDER="+w.folder, "SUITES_OUTPUT="+filepath.Join(w.dir, "output"), "NODE_PATH="+filepath.Join(w.dir, "node_modules"))
	args = append([]string{filepath.Join(w.dir, "node_modules/@playwright/test/cli.js"), "test", "--config", w.config}, args...)
	return command(ctx, w.source, env, "node", args...)
}

func (w *playwright) play(ctx context.Context, s *side, names []string) (results, error) {
	report, chosen := filepath.Join(w.dir, s.name+".jsonl"), filepath.Join(w.dir, s.name+".json")
	if err := errors.Join(removeReport(report), writeJSON(chosen, names)); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, 3*time.Hour)
	defer cancel()
	out, err := w.run(limited, append(slices.Clone(s.env), "SUITES_REPORT="+report, "SUITES_TESTS="+chosen))
	if err != nil && limited.Err() == nil {
		return nil, err
	}
	if err := s.keep(w.dir, out); err != nil {
		return nil, err
	}
	got, err := readReportFile(report)
	return got, errors.Join(err, ctx.Err())
}

func (w *playwright) close() error { return nil }
