package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/evidence/export"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// exportCmd writes a bundle as one file. It checks every byte itself: it compares the sidecar's
// answers with the hashes of the manifest, and decrypts what is encrypted locally.
type exportCmd struct {
	clientFlags `embed:""`
	ID          string   `arg:"" name:"bundle" help:"The bundle: its evidence id, as leasehold evidence PROFILE lists it."`
	Format      string   `required:"" enum:"har,html,zip" placeholder:"F" help:"har: the requests, as HAR 1.2. html: one page with the pictures in it, for a ticket. zip: all files, as they were sealed."`
	Out         string   `type:"path" placeholder:"FILE" help:"The new file (default: leasehold-BUNDLE.FORMAT in the working directory; -: the standard output)."`
	Identity    []string `type:"path" placeholder:"FILE" help:"Open what is encrypted, with the private keys in this file; several by commas."`
	Stored      bool     `help:"Export what is encrypted as it is stored, as zip, without opening it."`
	Unverified  bool     `help:"Export also what is not as it was sealed. The file says so."`
}

// exported is the JSON document that the command prints.
type exported struct {
	EvidenceID string             `json:"evidence_id"`
	File       string             `json:"file"`
	Bytes      int64              `json:"bytes"`
	Findings   []evidence.Finding `json:"findings"`
}

// Run exports the bundle. The exit code for findings is exitEvidence.
func (c *exportCmd) Run(a *app) error {
	if c.Stored && len(c.Identity) > 0 {
		return exitWith(exitUsage, "--stored opens nothing, and --identity is for opening: leave one of them out")
	}
	if c.JSON && c.Out == "-" {
		return exitWith(exitUsage, "--json prints to the standard output, where --out - puts the file: leave one of them out")
	}
	with, err := readIdentities(c.Identity)
	if err != nil {
		return err
	}
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		progress := a.progress()
		defer progress.end()
		from := export.Source{Reader: progress.of(restReader{sidecar}), With: with, Records: restRecords{sidecar}}
		e, err := export.Prepare(ctx, from, export.Request{EvidenceID: c.ID, Format: export.Format(c.Format), Unverified: c.Unverified, Stored: c.Stored})
		if err != nil {
			return c.explain(err)
		}
		for _, f := range e.Findings {
			progress.end()
			a.warn("%s is not as it was sealed: %s %s: %s", f.EvidenceID, f.Problem, f.Part, f.Detail)
		}
		return c.write(ctx, a, e, progress)
	})
}

// explain gives an error of Prepare its exit code, and says what to do.
func (c *exportCmd) explain(err error) error {
	var unverified *export.UnverifiedError
	var problem *api.Problem
	switch {
	case errors.As(err, &unverified):
		return exitWith(exitEvidence, "%w: nothing was exported (--unverified exports it all the same, and says so in the file)", err)
	case errors.Is(err, crypt.ErrNoKey):
		return exitWith(exitLocked, "%w: give --identity with the private key of one of these, or --stored with --format zip to export it as it is", err)
	case errors.As(err, new(*exitError)):
		return err
	case errors.As(err, &problem):
		return exitWith(exitUsage, "--%s", problem.Detail)
	}
	return err
}

// write writes the file, or none.
func (c *exportCmd) write(ctx context.Context, a *app, e *export.Export, progress *progress) error {
	if c.Out == "-" {
		return e.Write(ctx, a.stdout)
	}
	name := c.Out
	if name == "" {
		name = e.FileName
	}
	// Only the user may read it: it contains screenshots and URLs of an account.
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	counted := &counter{w: file}
	err = errors.Join(e.Write(ctx, counted), file.Close())
	if err != nil {
		return errors.Join(err, os.Remove(name))
	}
	progress.end()
	if c.JSON {
		return a.printValue(exported{EvidenceID: c.ID, File: name, Bytes: counted.n, Findings: append([]evidence.Finding{}, e.Findings...)})
	}
	_, err = fmt.Fprintf(a.stdout, "%s  %d bytes\n", printable(name), counted.n)
	return err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// restRecords reads, through a sidecar, what that knows about profiles.
type restRecords struct{ sidecar *client }

var _ export.Records = restRecords{}

// Profile implements export.Records.
func (r restRecords) Profile(ctx context.Context, profileID string) (api.Profile, error) {
	return r.sidecar.record(ctx, profileID)
}

// History implements export.Records.
func (r restRecords) History(ctx context.Context, profileID string) ([]lease.Event, error) {
	raw, err := r.sidecar.askAll(ctx, "v1", "profiles", profileID, "history")
	if err != nil {
		return nil, err
	}
	events, err := read[list[lease.Event]](raw)
	return events.Items, err
}

// Inspection implements export.Records.
func (r restRecords) Inspection(ctx context.Context, profileID string) (api.Inspection, error) {
	raw, err := inspectionOf(ctx, r.sidecar, profileID)
	if err != nil || raw == nil {
		return api.Inspection{}, err
	}
	return read[api.Inspection](raw)
}
