package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/natsd"
	"leasehold/launcher/api"
)

type verifyCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" optional:"" help:"The profile (default: all)."`
	Store       string     `placeholder:"URL" help:"Read this store itself instead of asking the sidecar: nats://host:port, file:///path or s3://bucket/prefix?..."`
	Creds       string     `name:"nats-creds" type:"path" placeholder:"FILE" help:"Credentials for --store nats://..."`
	Identity    []string   `type:"path" placeholder:"FILE" help:"Also open what is encrypted, with the private keys in this file; several by commas."`
	CA          string     `name:"nats-ca" type:"path" placeholder:"FILE" help:"Certificates (PEM) of those who sign that of --store nats://..."`
	ID          string     `name:"id" placeholder:"E[:SHA256]" help:"Check this bundle alone, without the profile's others: for one that was taken out of its store, as evidence export --format zip does. Needs --store."`
	Head        string     `placeholder:"E:SHA256" help:"The profile's newest bundle and the hash of its manifest, as its record has them. Without --store the sidecar is asked; with it, and without --head, removed newest bundles do not show."`
}

// verification is the JSON document that the command prints.
type verification struct {
	OK    bool              `json:"ok"`
	Items []evidence.Report `json:"items"`
}

// Run verifies the evidence of one profile or of all. The exit code for findings is
// exitEvidence.
func (c *verifyCmd) Run(a *app) error {
	if c.Head != "" && (c.Profile == "" || c.Store == "") {
		return exitWith(exitUsage, "--head is for one profile and --store: give both")
	}
	if c.ID != "" && (c.Store == "" || c.Profile != "" || c.Head != "") {
		return exitWith(exitUsage, "--id is for one bundle in --store: give both, and neither a profile nor --head")
	}
	return c.printProblem(a, c.verify(a))
}

func (c *verifyCmd) verify(a *app) error {
	ctx, stop := interruptible()
	defer stop()
	with, err := readIdentities(c.Identity)
	if err != nil {
		return err
	}
	reader, heads, closeReader, err := c.open(ctx)
	if err != nil {
		return err
	}
	progress := a.progress()
	defer progress.end()
	reader = progress.of(reader)
	v := verification{OK: true, Items: []evidence.Report{}}
	for _, profile := range slices.Sorted(maps.Keys(heads)) {
		var report evidence.Report
		if c.ID != "" {
			report, err = evidence.VerifyAlone(ctx, reader, heads[profile], with)
		} else {
			report, err = evidence.VerifyWith(ctx, reader, profile, heads[profile], with)
		}
		if err != nil {
			err = fmt.Errorf("evidence of %s cannot be verified: %w", profile, err)
			break
		}
		v.OK = v.OK && report.OK()
		v.Items = append(v.Items, report)
	}
	if err := errors.Join(err, closeReader()); err != nil {
		return err
	}
	progress.end()
	if err := c.show(a, v); err != nil {
		return err
	}
	locked := 0
	for _, r := range v.Items {
		locked += len(r.Locked)
	}
	switch {
	case !v.OK:
		return exitWith(exitEvidence, "evidence is not as it was sealed")
	case locked > 0:
		return exitWith(exitLocked, "%d bundles could not be opened: --identity has the private keys of %s", locked, strings.Join(with.Names(), ", "))
	}
	return nil
}

// open returns a reader of bundles, and the heads of the profiles to verify. The caller
// calls the function, which closes the reader.
func (c *verifyCmd) open(ctx context.Context) (evidence.Reader, map[string]evidence.Link, func() error, error) {
	if c.Store != "" {
		return c.openStore(ctx)
	}
	sidecar, err := c.client()
	if err != nil {
		return nil, nil, nil, err
	}
	path := []string{"v1", "profiles"}
	if c.Profile != "" {
		path = append(path, string(c.Profile))
	}
	raw, err := sidecar.askAll(ctx, path...)
	if err != nil {
		return nil, nil, nil, err
	}
	var records list[api.Profile]
	if c.Profile == "" {
		records, err = read[list[api.Profile]](raw)
	} else {
		records.Items = make([]api.Profile, 1)
		records.Items[0], err = read[api.Profile](raw)
	}
	heads := map[string]evidence.Link{}
	for _, r := range records.Items {
		heads[r.ProfileID] = evidence.Link{EvidenceID: r.EvidenceID, SHA256: r.EvidenceSHA256}
	}
	return restReader{sidecar}, heads, func() error { return nil }, err
}

func (c *verifyCmd) openStore(ctx context.Context) (evidence.Reader, map[string]evidence.Link, func() error, error) {
	fail := func(code int, err error) (evidence.Reader, map[string]evidence.Link, func() error, error) {
		return nil, nil, nil, &exitError{code, fmt.Errorf("--store: %w", err)}
	}
	head, err := c.head()
	if err != nil {
		return nil, nil, nil, err
	}
	if c.ID != "" {
		if head, err = c.alone(); err != nil {
			return nil, nil, nil, err
		}
	}
	store, closeStore, err := c.connect(ctx)
	if unreachable, ok := errors.AsType[*exitError](err); ok {
		return fail(unreachable.code, err)
	}
	if err != nil {
		return fail(exitUsage, err)
	}
	heads := map[string]evidence.Link{}
	if c.Profile != "" || c.ID != "" {
		heads[string(c.Profile)] = head
		return store, heads, closeStore, nil
	}
	bundles, err := store.List(ctx, "")
	if err != nil {
		return fail(exitFailure, errors.Join(err, closeStore()))
	}
	for _, m := range bundles {
		heads[m.ProfileID] = evidence.Link{}
	}
	return store, heads, closeStore, nil
}

// head reads --head. It is the zero Link if the flag was left out.
func (c *verifyCmd) head() (evidence.Link, error) {
	if c.Head == "" {
		return evidence.Link{}, nil
	}
	evidenceID, sum, _ := strings.Cut(c.Head, ":")
	if !evidence.SafeName(evidenceID) || len(sum) != 64 {
		return evidence.Link{}, exitWith(exitUsage, "--head %.200q: want the evidence_id and the evidence_sha256 of the profile's record, with a colon between", c.Head)
	}
	return evidence.Link{EvidenceID: evidenceID, SHA256: strings.ToLower(sum)}, nil
}

func (c *verifyCmd) alone() (evidence.Link, error) {
	evidenceID, sum, hashed := strings.Cut(c.ID, ":")
	if !evidence.SafeName(evidenceID) || hashed && len(sum) != 64 {
		return evidence.Link{}, exitWith(exitUsage, "--id %.200q: want an evidence id, and behind a colon the SHA-256 of its manifest if that is known", c.ID)
	}
	return evidence.Link{EvidenceID: evidenceID, SHA256: strings.ToLower(sum)}, nil
}

// connect opens the store of --store. Here nats:// names a server.
func (c *verifyCmd) connect(ctx context.Context) (evidence.Reader, func() error, error) {
	switch {
	case strings.HasPrefix(c.Store, ownNATS):
	case strings.HasPrefix(c.Store, "file://"):
		dir, err := storeDir(c.Store)
		if err != nil {
			return nil, nil, err
		}
		store, err := evidence.ExistingDirStore(dir)
		return store, func() error { return nil }, err
	default:
		if err := checkStore(c.Store); err != nil {
			return nil, nil, err
		}
		return openStore(c.Store, nil, 0)
	}
	target := natsd.Target{URL: c.Store, Creds: c.Creds, CA: c.CA}
	if err := checkNATS(target); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	nc, err := natsd.Dial(ctx, target, zerolog.Nop())
	if err != nil {
		return nil, nil, &exitError{exitNATS, err}
	}
	store, _, err := openStore(ownNATS, nc, 0)
	return store, func() error { nc.Close(); return nil }, err
}

func (c *verifyCmd) show(a *app, v verification) error {
	if c.JSON {
		return a.printValue(v)
	}
	t := newColumns(a.stdout, "PROFILE", "BUNDLES", "PARTS", "HEAD", "REMOVED", "RESULT")
	for _, r := range v.Items {
		removed, result := 0, "ok"
		if r.CutOff != nil {
			removed = r.CutOff.Bundles
		}
		if !r.OK() {
			result = fmt.Sprintf("%d wrong", len(r.Findings))
		}
		t.row(r.ProfileID, r.Bundles, r.Parts, r.Head, removed, result)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, r := range v.Items {
		c.explain(a, r)
	}
	return nil
}

// explain prints what does not fit into the table.
func (c *verifyCmd) explain(a *app, r evidence.Report) {
	line := func(format string, args ...any) {
		fmt.Fprintln(a.stdout, printable(r.ProfileID+": "+fmt.Sprintf(format, args...)))
	}
	for _, f := range r.Findings {
		name := f.EvidenceID
		if f.Part != "" {
			name += "/" + f.Part
		}
		line("%s %s: %s", f.Problem, name, f.Detail)
	}
	for _, f := range r.Forks {
		previous := f.Previous
		if previous == "" {
			previous = "the beginning"
		}
		line("the chain forks after %s: %s; the one that leads to the head counts", previous, strings.Join(f.Bundles, ", "))
	}
	if len(r.Unlinked) > 0 {
		line("not in the chain of the head: %s", strings.Join(r.Unlinked, ", "))
	}
	if r.CutOff != nil {
		line("retention removed %d bundles (%d bytes), the newest of %s; anchors: %s", r.CutOff.Bundles, r.CutOff.Bytes,
			r.CutOff.Newest.Format("2006-01-02 15:04:05Z07:00"), strings.Join(r.CutOff.Anchors, ", "))
	}
	if len(r.Locked) > 0 {
		line("encrypted to others than --identity has: %s", strings.Join(r.Locked, ", "))
	} else if r.Encrypted > 0 && len(c.Identity) == 0 {
		line("%d bundles are encrypted: hashes and chain were checked, the contents were not opened (--identity)", r.Encrypted)
	}
	if c.ID != "" {
		line("one bundle was checked, and not its place in the profile's chain")
		if !r.HeadKnown {
			line("its manifest was not compared with anything (--id %s:SHA256)", r.Head)
		}
	} else if !r.HeadKnown && r.Head != "" {
		line("the head is the newest bundle found: newer ones that were removed would not show (--head)")
	}
}

// restReader reads evidence through a sidecar.
type restReader struct{ sidecar *client }

var _ evidence.Reader = restReader{}

// evidenceError turns the sidecar's problems back into the errors of package evidence from
// which they were made.
func evidenceError(err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		switch p.Code {
		case api.CodeNotFound:
			return fmt.Errorf("%w: %w", evidence.ErrNotFound, err)
		case api.CodeEvidenceDamaged:
			return fmt.Errorf("%w: %w", evidence.ErrDamaged, err)
		}
	}
	return err
}

// get returns the bytes of an answer unchanged, because they are hashed.
func (r restReader) get(ctx context.Context, path ...string) ([]byte, error) {
	ctx, cancel := withinRequestTimeout(ctx)
	defer cancel()
	response, err := r.sidecar.open(ctx, http.MethodGet, nil, path...)
	if err != nil {
		return nil, evidenceError(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, r.sidecar.unanswered(response.Request, fmt.Errorf("answer: %w", err))
	}
	return b, nil
}

// Manifest implements evidence.Reader.
func (r restReader) Manifest(ctx context.Context, evidenceID string) ([]byte, error) {
	return r.get(ctx, "v1", "evidence", evidenceID)
}

// Part implements evidence.Reader.
func (r restReader) Part(ctx context.Context, evidenceID, name string) ([]byte, error) {
	stored := restReader{r.sidecar.with(url.Values{"stored": {"true"}})}
	return stored.get(ctx, "v1", "evidence", evidenceID, name)
}

// List implements evidence.Reader, for one profile.
func (r restReader) List(ctx context.Context, profileID string) ([]evidence.Manifest, error) {
	raw, err := r.sidecar.askAll(ctx, "v1", "profiles", profileID, "evidence")
	if err != nil {
		return nil, err
	}
	bundles, err := read[list[api.Bundle]](raw)
	if err != nil {
		return nil, err
	}
	found := []evidence.Manifest{}
	for _, b := range bundles.Items {
		raw, err := r.Manifest(ctx, b.EvidenceID)
		if errors.Is(err, evidence.ErrNotFound) || errors.Is(err, evidence.ErrDamaged) {
			continue // Verify reports it
		}
		if err != nil {
			return nil, err
		}
		if m, err := evidence.Decode(b.EvidenceID, raw); err == nil && m.ProfileID == profileID {
			found = append(found, m)
		}
	}
	evidence.Newest(found)
	return found, nil
}
