package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// repository is where the tests of a client are that its package does not have.
type repository struct {
	folder   string // below the directory of checkouts
	url      string
	tag      string
	version  string // of the tag
	manifest string // the package.json that says the version
}

// checkout returns a directory with the repository at its tag: from the directory of
// checkouts, or cloned.
func (p *place) checkout(ctx context.Context, r repository) (string, error) {
	if p.checkouts != "" {
		dir, err := filepath.Abs(filepath.Join(p.checkouts, r.folder))
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(dir); err == nil {
			return dir, r.check(dir)
		}
	}
	dir, err := p.once("checkouts/"+r.folder+"-"+r.version, func(dir string) error {
		_, err := must(ctx, dir, "git", "-c", "advice.detachedHead=false", "clone", "-q", "--depth", "1", "--branch", r.tag, r.url, "source")
		if err != nil {
			return fmt.Errorf("%w: %s at %s, nor is it in SUITES_DIR/%s: %w", errNotHere, r.url, r.tag, r.folder, err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "source")
	return dir, r.check(dir)
}

// check compares the checkout's version to the one that is wanted.
func (r repository) check(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, r.manifest))
	if err != nil {
		return err
	}
	var is struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(raw, &is); err != nil {
		return err
	}
	if is.Version != r.version {
		return fmt.Errorf("%s has version %s: want %s, the tag %s of %s", dir, is.Version, r.version, r.tag, r.url)
	}
	return nil
}

// npm makes a directory with the packages that a suite needs, and a copy of its
// repository in source. name is the folder below js that has the list of packages.
func (p *place) npm(ctx context.Context, name string, r repository, finish func(source string) error) (string, error) {
	from, err := p.checkout(ctx, r)
	if err != nil {
		return "", err
	}
	return p.once(name+"-"+r.version, func(dir string) error {
		for _, file := range []string{"package.json", "package-lock.json", ".npmrc"} {
			raw, err := os.ReadFile(filepath.Join(p.source, "js", name, file))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, file), raw, 0o644); err != nil {
				return err
			}
		}
		if _, err := must(ctx, dir, "npm", "ci", "--loglevel=error", "--no-progress"); err != nil {
			return fmt.Errorf("%w: %w", errNotHere, err)
		}
		source := filepath.Join(dir, "source")
		if err := os.CopyFS(source, os.DirFS(from)); err != nil {
			return err
		}
		return finish(source)
	})
}

// writeJSON writes what a script reads.
func writeJSON(file string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o644)
}

// removeReport removes the report of an earlier play.
func removeReport(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// between is what stands between the parts of a test's full name.
const between = " › "

// byFile sorts full names by the files that they begin with, in order.
func byFile(names []string) (files []string, of map[string][]string) {
	of = map[string][]string{}
	for _, name := range names {
		file, _, _ := strings.Cut(name, between)
		if of[file] == nil {
			files = append(files, file)
		}
		of[file] = append(of[file], name)
	}
	return files, of
}
