package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/launcher/api"
)

// evidenceCmds are the commands about evidence. The first one is the default. For a profile
// that has the name of a command, the default command has to be written out: leasehold evidence
// list verify.
type evidenceCmds struct {
	List   evidenceCmd `cmd:"" default:"withargs" help:"List a profile's evidence, or fetch a bundle."`
	Export exportCmd   `cmd:"" help:"Save a bundle as one file that other people's tools open."`
	Verify verifyCmd   `cmd:"" help:"Check every hash and the chain of a profile's evidence, or of all."`
	Keygen keygenCmd   `cmd:"" help:"Make a private key for encrypted evidence, and print the recipient that belongs to it."`
}

type evidenceCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile."`
	ID          string     `name:"id" xor:"which" placeholder:"E" help:"Fetch this bundle: print its manifest, or with --out save all of it."`
	Last        bool       `xor:"which" help:"Fetch the newest bundle."`
	Out         string     `type:"path" placeholder:"DIR" help:"Save the manifest and the parts as files in this directory."`
	Identity    []string   `type:"path" placeholder:"FILE" help:"Open what is encrypted, with the private keys in this file; several by commas."`
	Stored      bool       `help:"Save what is encrypted as it is stored, as files with .age at the end of their names."`
}

// manifestName is the name of the file with a bundle's manifest.
const manifestName = "manifest.json"

// openedName is the name of the file with the decrypted manifest of an encrypted bundle.
const openedName = "manifest.opened.json"

// Run lists the bundles, or fetches one of them.
func (c *evidenceCmd) Run(a *app) error {
	listOnly := c.ID == "" && !c.Last
	switch {
	case c.Out != "" && listOnly:
		return exitWith(exitUsage, "--out needs to know the bundle: give --id or --last")
	case c.Stored && (c.Out == "" || len(c.Identity) > 0):
		return exitWith(exitUsage, "--stored is for --out, and without --identity")
	}
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		raw, err := sidecar.askAll(ctx, "v1", "profiles", string(c.Profile), "evidence")
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
	with, err := readIdentities(c.Identity)
	if err != nil {
		return err
	}
	bundle, err := c.choose(bundles)
	if err != nil {
		return err
	}
	raw, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "evidence", bundle.EvidenceID)
	if err != nil {
		return err
	}
	f := fetched{raw: raw, with: with}
	if f.sealed, err = evidence.Decode(bundle.EvidenceID, raw); err != nil {
		return err
	}
	f.clear = f.sealed
	if len(c.Identity) > 0 || c.Out != "" && !c.Stored {
		if f.clear, err = f.sealed.Open(with); err != nil {
			return lockedEvidence(err)
		}
	}
	if c.Out != "" {
		if err := c.save(ctx, a, sidecar, f); err != nil || !c.JSON {
			return err
		}
	}
	if len(c.Identity) > 0 {
		return a.printValue(f.clear)
	}
	return a.printJSON(raw)
}

type fetched struct {
	raw    []byte // the manifest as it was sealed
	sealed evidence.Manifest
	clear  evidence.Manifest // the decrypted manifest, if it was decrypted; otherwise the same
	with   *crypt.Identities
}

// choose finds the requested bundle. The bundles are sorted, newest first.
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
	t := newColumns(a.stdout, "EVIDENCE", "TOKEN", "AT", "REASON", "PARTS", "BYTES", "MISSING")
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

// save writes the bundle's files, or none. It replaces no file, and compares each part with
// its digest.
func (c *evidenceCmd) save(ctx context.Context, a *app, sidecar *client, f fetched) (err error) {
	for _, part := range f.sealed.Parts {
		if !isFileName(part.Name) || part.Name == manifestName || part.Name == openedName {
			return fmt.Errorf("evidence %s: part %q cannot be a file name: nothing was saved", f.sealed.EvidenceID, part.Name)
		}
	}
	// Only the user may read it: it contains screenshots and URLs of an account.
	if err := os.MkdirAll(c.Out, 0o700); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	saved := newFiles{dir: c.Out}
	defer func() {
		if err != nil {
			err = errors.Join(err, saved.remove())
		}
	}()
	if err := saved.write(manifestName, f.raw); err != nil {
		return err
	}
	if f.sealed.Encrypted() && !c.Stored {
		opened, err := json.MarshalIndent(f.clear, "", "  ")
		if err == nil {
			err = saved.write(openedName, append(opened, '\n'))
		}
		if err != nil {
			return err
		}
	}
	for _, part := range f.clear.Parts {
		if part.Missing != "" {
			a.warn("part %s is missing: %s", part.Name, part.Missing)
			continue
		}
		name, content, err := c.part(ctx, sidecar, f, part.Name)
		if err == nil {
			err = saved.write(name, content)
		}
		if err != nil {
			return err
		}
	}
	if c.JSON {
		return nil
	}
	for _, file := range saved.written {
		if _, err := fmt.Fprintf(a.stdout, "%s  %d bytes\n", printable(file.path), file.bytes); err != nil {
			return err
		}
	}
	return nil
}

// part reads one part, decrypted unless it is wanted as it is stored, and names its file.
func (c *evidenceCmd) part(ctx context.Context, sidecar *client, f fetched, name string) (file string, content []byte, err error) {
	stored, err := evidence.ReadPart(ctx, restReader{sidecar}, f.sealed, name)
	switch {
	case errors.Is(err, evidence.ErrDamaged):
		return "", nil, fmt.Errorf("%w: the part was changed or damaged: nothing was saved (leasehold evidence export --format zip --unverified saves what there is)", err)
	case err != nil:
		return "", nil, err
	case f.sealed.Encrypted() && c.Stored:
		return name + ".age", stored, nil
	}
	if content, err = f.sealed.OpenPart(f.with, name, stored); err != nil {
		return "", nil, lockedEvidence(err)
	}
	return name, content, nil
}

// newFiles are files of a directory that were written together.
type newFiles struct {
	dir     string
	written []newFile
}

type newFile struct {
	path  string
	bytes int
}

func (n *newFiles) write(name string, content []byte) error {
	path := filepath.Join(n.dir, name)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	n.written = append(n.written, newFile{path, len(content)})
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s is not complete: %w", path, err)
	}
	return nil
}

func (n *newFiles) remove() (err error) {
	for _, file := range n.written {
		err = errors.Join(err, os.Remove(file.path))
	}
	return err
}

// isFileName tells whether a name from outside is that of a visible file, and does not lead out
// of the directory to which it is joined.
func isFileName(name string) bool {
	return name != "" && name[0] != '.' && len(name) <= 255 && !strings.ContainsRune(name, '/') && printable(name) == name
}
