package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"leasehold/checkpoint/site"
	shipped "leasehold/deploy/sites"
	"leasehold/launcher/api"
)

// sitesCmds show and change what is known of sites.
type sitesCmds struct {
	List    sitesCmd       `cmd:"" default:"withargs" help:"List the sites of which something is known."`
	Show    showSiteCmd    `cmd:"" help:"Print the file about a site."`
	Put     putSitesCmd    `cmd:"" help:"Say what is known of sites, by their files; each replaces what was known before."`
	Teach   teachSiteCmd   `cmd:"" help:"Say what one kind of requests does, in the file about their site."`
	Suggest suggestSiteCmd `cmd:"" help:"Propose lines for the file about a site, by what sessions that ended in order sent to it. Nothing is put."`
	Try     trySiteCmd     `cmd:"" help:"Ask the questions of a file about a site on a profile, twice, and show what is picked out of the answers."`
	Replay  replaySiteCmd  `cmd:"" help:"Decide the last incidents of a site again, as if a file had been known all the time. Nothing is put."`
	Delete  deleteSiteCmd  `cmd:"" help:"Forget what is known of a site."`
	Export  exportSitesCmd `cmd:"" name:"export" help:"Write the files about all sites into a directory."`
	Import  importSitesCmd `cmd:"" name:"import" help:"Put all files of a directory."`
}

type sitesCmd struct {
	clientFlags `embed:""`
	Shipped     bool `help:"List the files that come with the program instead; no sidecar is asked."`
}

// Run prints the list.
func (c *sitesCmd) Run(a *app) error {
	if c.Shipped {
		_, err := fmt.Fprintln(a.stdout, strings.Join(shipped.Names(), "\n"))
		return err
	}
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
		return sidecar.askAll(ctx, "v1", "sites")
	}, func(all list[api.SiteSummary]) error {
		t := newColumns(a.stdout, "SITE", "ORIGINS", "REQUESTS", "REVISION")
		for _, s := range all.Items {
			t.row(s.Name, strings.Join(s.Origins, " "), s.Requests, s.Revision)
		}
		return t.flush()
	})
}

type showSiteCmd struct {
	clientFlags `embed:""`
	Site        string `arg:"" help:"The site."`
}

// Run prints the file in YAML.
func (c *showSiteCmd) Run(a *app) error {
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
		return sidecar.ask(ctx, http.MethodGet, nil, "v1", "sites", c.Site)
	}, func(s api.Site) error {
		text, err := yaml.Marshal(s.File)
		if err != nil {
			return fmt.Errorf("site %s: %w", c.Site, err)
		}
		_, err = fmt.Fprintf(a.stdout, "# revision %d\n%s", s.Revision, text)
		return err
	})
}

type putSitesCmd struct {
	clientFlags `embed:""`
	File        []string `arg:"" optional:"" type:"existingfile" help:"A file in YAML or JSON; it names its site."`
	Shipped     string   `placeholder:"NAME" help:"A file that comes with the program, for the origins of --origin."`
	Origin      []string `placeholder:"URL" help:"Where the software of --shipped runs, such as https://wiki.shop.example; may be repeated."`
	Revision    *uint64  `placeholder:"N" help:"The revision that was seen: a file that somebody has changed since is not replaced; 0: there was none."`
}

// Run puts the files, after all of them were read.
func (c *putSitesCmd) Run(a *app) error {
	switch {
	case c.Shipped == "" && len(c.Origin) > 0:
		return exitWith(exitUsage, "--origin is for --shipped: the origins of a file stand in it")
	case (c.Shipped == "") == (len(c.File) == 0):
		return exitWith(exitUsage, "want either files or --shipped NAME")
	case c.Shipped == "":
		return c.put(a, c.File, c.Revision)
	}
	one, err := site.Shipped(c.Shipped, c.Origin...)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return c.putFiles(a, []site.File{one}, c.Revision)
}

func (f clientFlags) put(a *app, paths []string, revision *uint64) error {
	var files []site.File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		one, err := site.Parse(text)
		if err != nil {
			return exitWith(exitUsage, "%s: %w", path, err)
		}
		files = append(files, one)
	}
	return f.putFiles(a, files, revision)
}

func (f clientFlags) putFiles(a *app, files []site.File, revision *uint64) error {
	return f.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		for _, one := range files {
			raw, err := sidecar.ask(ctx, http.MethodPut, api.SitePut{File: one, Revision: revision}, "v1", "sites", one.Name)
			if err := f.printKnown(a, raw, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// printKnown prints how much is known of a site by the file that was answered.
func (f clientFlags) printKnown(a *app, raw []byte, err error) error {
	if err != nil || f.JSON {
		return a.printAnswer(raw, err)
	}
	s, err := read[api.Site](raw)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %d requests are known, revision %d\n", printable(s.Name), len(s.Requests), s.Revision)
	return err
}

type teachSiteCmd struct {
	clientFlags `embed:""`
	Shape       string `arg:"" help:"A whole shape with its origin, as an inspection shows it."`
	Is          string `arg:"" enum:"read,write,nothing" help:"read: such requests change nothing of the account; write: they do; nothing: what was said of this shape is taken back."`
	Incident    string `placeholder:"ID" help:"The evidence because of which it is said; for people."`
}

// Run says it.
func (c *teachSiteCmd) Run(a *app) error {
	t := api.SiteTeaching{Shape: c.Shape, Is: c.Is, Incident: c.Incident}
	if c.Is == "nothing" {
		t.Is = ""
	}
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		raw, err := sidecar.ask(ctx, http.MethodPost, t, "v1", "sites")
		return c.printKnown(a, raw, err)
	})
}

type suggestSiteCmd struct {
	clientFlags `embed:""`
	Site        string `arg:"" help:"The site; one without a file has the name of its host, such as shop-example."`
}

// Run prints the lines as they stand in a file, each below what speaks for it.
func (c *suggestSiteCmd) Run(a *app) error {
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
		return sidecar.askAll(ctx, "v1", "sites", c.Site, "shapes")
	}, func(all list[api.SiteShape]) error {
		text := ""
		for _, s := range all.Items {
			if s.Proposed != "" {
				text += fmt.Sprintf("  # %s, last on %s\n  - {shape: %s, is: %s}\n", s.Tell(), s.LastAt.Format(time.DateOnly), strconv.Quote(s.Shape), s.Proposed)
			}
		}
		if text == "" {
			a.warn("%s: nothing is proposed: %d unknown shapes were counted, and none came with unchanged probes in %d sessions of %d accounts", printable(c.Site), len(all.Items), site.ProposeAfter, site.ProposeAccounts)
			return nil
		}
		_, err := fmt.Fprint(a.stdout, "requests:\n"+text)
		return err
	})
}

type trySiteCmd struct {
	clientFlags `embed:""`
	File        string     `arg:"" type:"existingfile" help:"A file in YAML or JSON, which need not be put."`
	Profile     profileArg `required:"" placeholder:"PROFILE" help:"A profile that nobody uses, whose account the site knows."`
}

// Run prints what the site answered, and fails if a question is not fit to be asked.
func (c *trySiteCmd) Run(a *app) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	one, err := site.Parse(text)
	if err != nil {
		return exitWith(exitUsage, "%s: %w", c.File, err)
	}
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		raw, err := sidecar.ask(ctx, http.MethodPost, api.SiteTry{File: one, ProfileID: string(c.Profile)}, "v1", "sites", one.Name, "try")
		if err != nil || c.JSON {
			if err := a.printAnswer(raw, err); err != nil {
				return err
			}
		}
		tried, err := read[api.SiteTried](raw)
		if err != nil {
			return err
		}
		t := newColumns(a.stdout, "QUESTION", "STATE", "PICKED", "HOW", "PROBLEMS")
		fit := len(tried.Sent) == 0
		for _, q := range tried.Questions {
			fit = fit && q.State == string(site.Told) && len(q.Problems) == 0
			t.row(q.Name, q.State, q.Picked, q.How, strings.Join(q.Problems, "; "))
		}
		if !c.JSON {
			if err := t.flush(); err != nil {
				return err
			}
			for _, sent := range tried.Sent {
				a.warn("a page wanted to send %s", printable(sent))
			}
		}
		if !fit {
			return &exitError{code: exitFailure}
		}
		return nil
	})
}

type replaySiteCmd struct {
	clientFlags `embed:""`
	File        string `arg:"" type:"existingfile" help:"A file in YAML or JSON, which need not be put."`
}

// Run prints the incidents as they were decided, and as they would be.
func (c *replaySiteCmd) Run(a *app) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	one, err := site.Parse(text)
	if err != nil {
		return exitWith(exitUsage, "%s: %w", c.File, err)
	}
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
		return sidecar.ask(ctx, http.MethodPost, api.SiteReplay{File: one}, "v1", "sites", one.Name, "replay")
	}, func(replayed api.SiteReplayed) error {
		if len(replayed.Incidents) > 0 {
			t := newColumns(a.stdout, "AT", "PROFILE", "EVIDENCE", "DECIDED", "WITH THIS FILE")
			for _, i := range replayed.Incidents {
				t.row(i.At.Format(time.DateTime), i.ProfileID, i.EvidenceID, i.Decided, i.Tell())
			}
			if err := t.flush(); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(a.stdout, replayed.Tell())
		return err
	})
}

type deleteSiteCmd struct {
	clientFlags `embed:""`
	Site        string  `arg:"" help:"The site."`
	Revision    *uint64 `placeholder:"N" help:"The revision that was seen: a file that somebody has changed since is not removed."`
}

// Run removes the file.
func (c *deleteSiteCmd) Run(a *app) error {
	parameters := url.Values{}
	if c.Revision != nil {
		parameters.Set("revision", strconv.FormatUint(*c.Revision, 10))
	}
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		raw, err := sidecar.with(parameters).ask(ctx, http.MethodDelete, nil, "v1", "sites", c.Site)
		if err != nil || c.JSON {
			return a.printAnswer(raw, err)
		}
		_, err = fmt.Fprintf(a.stdout, "%s: nothing is known of it any more\n", printable(c.Site))
		return err
	})
}

type exportSitesCmd struct {
	clientFlags `embed:""`
	Dir         string `arg:"" type:"path" help:"The directory, which is made if it is missing. It can be a --sites-dir."`
}

// Run writes a file for each site.
func (c *exportSitesCmd) Run(a *app) error {
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		raw, err := sidecar.askAll(ctx, "v1", "sites")
		if err != nil {
			return err
		}
		all, err := read[list[api.SiteSummary]](raw)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(c.Dir, 0o755); err != nil {
			return &exitError{exitUsage, err}
		}
		for _, summary := range all.Items {
			raw, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "sites", summary.Name)
			if err != nil {
				return err
			}
			s, err := read[api.Site](raw)
			if err == nil {
				err = site.CheckName(s.Name) // it becomes a path
			}
			var text []byte
			if err == nil {
				text, err = yaml.Marshal(s.File)
			}
			if err != nil {
				return fmt.Errorf("site %s: %w", summary.Name, err)
			}
			if err := os.WriteFile(filepath.Join(c.Dir, s.Name+".yaml"), text, 0o644); err != nil {
				return &exitError{exitUsage, err}
			}
		}
		_, err = fmt.Fprintf(a.stdout, "%d files in %s\n", len(all.Items), printable(c.Dir))
		return err
	})
}

type importSitesCmd struct {
	clientFlags `embed:""`
	Dir         string `arg:"" type:"existingdir" help:"The directory, with files NAME.yaml, NAME.yml or NAME.json."`
}

// Run puts each file of the directory.
func (c *importSitesCmd) Run(a *app) error {
	var paths []string
	var errs error
	for _, ext := range []string{"yaml", "yml", "json"} {
		found, err := filepath.Glob(filepath.Join(escapeGlob(c.Dir), "*."+ext))
		paths, errs = append(paths, found...), cmp.Or(errs, err)
	}
	if errs != nil || len(paths) == 0 {
		return &exitError{exitUsage, cmp.Or(errs, errors.New(c.Dir+": no file NAME.yaml, NAME.yml or NAME.json is in it"))}
	}
	slices.Sort(paths)
	return c.put(a, paths, nil)
}

// escapeGlob is a directory as a part of a pattern that stands for itself.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}
