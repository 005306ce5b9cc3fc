package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"leasehold/launcher/api"
)

// evidenceCmds are the commands about evidence. The first one is the default. A profile
// that has the name of a command needs it written out: leasehold evidence list verify.
type evidenceCmds struct {
	List   evidenceCmd `cmd:"" default:"withargs" help:"List a profile's evidence, or fetch a bundle."`
	Verify verifyCmd   `cmd:"" help:"Check every hash and the chain of a profile's evidence, or of all."`
}

type evidenceCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile."`
	ID          string     `name:"id" xor:"which" placeholder:"E" help:"Fetch this bundle: print its manifest, or with --out save all of it."`
	Last        bool       `xor:"which" help:"Fetch the newest bundle."`
	Out         string     `type:"path" placeholder:"DIR" help:"Save the manifest and the parts as files in this directory."`
}

// manifestName is the name of the file with a bundle's manifest.
const manifestName = "manifest.json"

// Run lists the bundles, or fetches one of them.
func (c *evidenceCmd) Run(a *app) error {
	listOnly := c.ID == "" && !c.Last
	if c.Out != "" && listOnly {
		return exitWith(exitUsage, "--out needs to know the bundle: give --id or --last")
	}
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		raw, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "profiles", string(c.Profile), "evidence")
		if err != nil || c.JSON && listOnly {
			return a.printAnswer(raw, err)
		}
		bundles, err := read[list[api.Bundle]](raw)
		if err != nil {
			return err
		}
		if listOnly {
			return printBundles(a, bundles.Items)
		}
		return c.fetch(ctx, a, sidecar, bundles.Items)
	})
}

// fetch prints the manifest of the chosen bundle, or saves all of the bundle.
func (c *evidenceCmd) fetch(ctx context.Context, a *app, sidecar *client, bundles []api.Bundle) error {
	bundle, err := c.choose(bundles)
	if err != nil {
		return err
	}
	manifest, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "evidence", bundle.EvidenceID)
	if err != nil {
		return err
	}
	if c.Out == "" {
		return a.printJSON(manifest)
	}
	if err := c.save(ctx, a, sidecar, bundle, manifest); err != nil || !c.JSON {
		return err
	}
	return a.printJSON(manifest)
}

// choose finds the bundle that is asked for. The bundles are sorted, the newest first.
func (c *evidenceCmd) choose(bundles []api.Bundle) (api.Bundle, error) {
	for _, b := range bundles {
		if c.Last || b.EvidenceID == c.ID {
			return b, nil
		}
	}
	if c.Last {
		return api.Bundle{}, exitWith(exitFailure, "%s has no evidence yet", c.Profile)
	}
	return api.Bundle{}, exitWith(exitFailure, "%s has no evidence %q: leasehold evidence %s lists what there is", c.Profile, c.ID, c.Profile)
}

func printBundles(a *app, bundles []api.Bundle) error {
	t := newTable(a.stdout, "EVIDENCE", "TOKEN", "AT", "REASON", "PARTS", "BYTES", "MISSING")
	for _, b := range bundles {
		var size int64
		var missing []string
		for _, p := range b.Parts {
			size += p.Bytes
			if p.Missing != "" {
				missing = append(missing, p.Name)
			}
		}
		t.row(b.EvidenceID, b.Token, b.At, b.RecoveryReason, len(b.Parts)-len(missing), size, strings.Join(missing, ", "))
	}
	return t.flush()
}

// save writes the bundle's files. It replaces no file, and compares each part with its
// digest.
func (c *evidenceCmd) save(ctx context.Context, a *app, sidecar *client, bundle api.Bundle, manifest []byte) error {
	for _, part := range bundle.Parts {
		if !isFileName(part.Name) || part.Name == manifestName {
			return fmt.Errorf("evidence %s: part %q cannot be a file name: nothing was saved", bundle.EvidenceID, part.Name)
		}
	}
	// Only the user may read it: there are screenshots and URLs of an account in it.
	if err := os.MkdirAll(c.Out, 0o700); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if err := saveFile(filepath.Join(c.Out, manifestName), bytes.NewReader(manifest)); err != nil {
		return err
	}
	c.reportSaved(a, manifestName, int64(len(manifest)))
	for _, part := range bundle.Parts {
		if part.Missing != "" {
			a.warn("part %s is missing: %s", part.Name, part.Missing)
			continue
		}
		if err := c.savePart(ctx, sidecar, bundle.EvidenceID, part); err != nil {
			return err
		}
		c.reportSaved(a, part.Name, part.Bytes)
	}
	return nil
}

func (c *evidenceCmd) reportSaved(a *app, name string, size int64) {
	if !c.JSON {
		fmt.Fprintf(a.stdout, "%s  %d bytes\n", printable(filepath.Join(c.Out, name)), size)
	}
}

// savePart writes one part to a file and compares it with its digest.
func (c *evidenceCmd) savePart(ctx context.Context, sidecar *client, evidenceID string, part api.Part) error {
	response, err := sidecar.open(ctx, http.MethodGet, nil, "v1", "evidence", evidenceID, part.Name)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	digest := sha256.New()
	path := filepath.Join(c.Out, part.Name)
	if err := saveFile(path, io.TeeReader(response.Body, digest)); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != part.SHA256 {
		return fmt.Errorf("%s: the SHA-256 is %s, the bundle says %s: the part was changed or damaged", path, got, part.SHA256)
	}
	return nil
}

// isFileName tells whether a name from outside is that of a visible file, and does not
// lead out of the directory that it is joined to.
func isFileName(name string) bool {
	return name != "" && name[0] != '.' && len(name) <= 255 && !strings.ContainsRune(name, '/') && printable(name) == name
}

// saveFile writes a new file.
func saveFile(path string, r io.Reader) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = io.Copy(file, r)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s is not complete: %w", path, err)
	}
	return nil
}
