package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/internal/s3bucket"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

type copyStoreCmd struct {
	clientFlags `embed:""`
	From        string   `required:"" placeholder:"URL" help:"The store to copy, which stays as it is: file:///path, s3://bucket/prefix?... or nats://host:port."`
	FromKey     string   `required:"" type:"path" placeholder:"FILE" help:"Its key."`
	To          string   `required:"" placeholder:"URL" help:"The store to copy to, at another place: a new one, or one that is there."`
	ToKey       string   `required:"" type:"path" placeholder:"FILE" help:"Its key: another one (leasehold profiles keygen makes it), or the same."`
	Profile     []string `placeholder:"P" help:"The profile to copy; may be given several times. No sidecar is asked then (default: all that the sidecar knows)."`
	ProfileFile string   `name:"profiles-from" type:"path" placeholder:"FILE" help:"File with the names of all profiles, one a line; - is the standard input. No sidecar is asked then."`
	Creds       string   `name:"nats-creds" type:"path" placeholder:"FILE" help:"Credentials for nats://..."`
	CA          string   `name:"nats-ca" type:"path" placeholder:"FILE" help:"Certificates (PEM) of those who sign that of nats://..."`
	Replicas    int      `name:"nats-replicas" placeholder:"N" help:"Copies of a new store on the servers of --to nats://..., 1, 3 or 5 (default: 3 in a cluster, else 1)."`
}

// storeCopy is the JSON document that the command prints.
type storeCopy struct {
	OK    bool            `json:"ok"`
	Items []profileCopied `json:"items"`
	// Unnamed is how many profiles in the old store were not named.
	Unnamed int `json:"unnamed_profiles"`
}

type profileCopied struct {
	snapshots.Copied
	Error string `json:"error,omitempty"`
}

// toCopy is a profile that is to be copied.
type toCopy struct {
	id string
	// record is the profile's, if the sidecar was asked.
	record *lease.Record
}

// Run copies profile by profile. A problem with one profile does not keep the others from being
// copied.
func (c *copyStoreCmd) Run(a *app) error {
	ctx, stop := interruptible()
	defer stop()
	if err := c.check(); err != nil {
		return err
	}
	profiles, err := c.profiles(ctx, a)
	if err != nil {
		return c.printProblem(a, err)
	}
	progress := a.progress()
	defer progress.end()
	from, to, closeBoth, err := c.open(ctx, progress)
	if err != nil {
		return err
	}
	done, worst := c.copyAll(ctx, a, progress, from, to, profiles)
	if err := closeBoth(); err != nil && worst == nil {
		worst = err
	}
	progress.end()
	if c.JSON {
		if err := a.printValue(done); err != nil {
			return err
		}
	}
	return worst
}

// check refuses what cannot work.
func (c *copyStoreCmd) check() error {
	if len(c.Profile) > 0 && c.ProfileFile != "" {
		return exitWith(exitUsage, "--profile and --profiles-from: want one of them")
	}
	if c.Replicas < 0 || c.Replicas > 5 || c.Replicas%2 == 0 && c.Replicas != 0 {
		return exitWith(exitUsage, "--nats-replicas %d: want 1, 3 or 5", c.Replicas)
	}
	places := map[string]string{}
	for flag, raw := range map[string]string{"--from": c.From, "--to": c.To} {
		at, err := placeOf(raw)
		if err != nil {
			return exitWith(exitUsage, "%s: %w", flag, err)
		}
		places[flag] = at
	}
	from, to := places["--from"], places["--to"]
	if from == to || strings.HasPrefix(from, "/") && (strings.HasPrefix(to, from+"/") || strings.HasPrefix(from, to+"/")) {
		return exitWith(exitUsage, "--from and --to are the same place, or one is inside of the other: a store keeps its key for good, want another place for the new one")
	}
	return nil
}

// placeOf names the place of a store: two URLs of the same store have the same place, as far as
// can be seen.
func placeOf(raw string) (string, error) {
	switch scheme, rest, _ := strings.Cut(raw, "://"); scheme {
	case "file":
		dir, err := storeDir(raw)
		if err != nil {
			return "", err
		}
		for there, missing := dir, ""; ; there, missing = filepath.Dir(there), filepath.Join(filepath.Base(there), missing) {
			real, err := filepath.EvalSymlinks(there)
			if err == nil {
				return filepath.Join(real, missing), nil
			}
			if there == filepath.Dir(there) {
				return dir, nil
			}
		}
	case "s3":
		cfg, err := s3bucket.ParseURL(raw)
		return fmt.Sprintf("s3 %s %s %s", cfg.Endpoint, cfg.Bucket, cfg.Prefix), err
	case "nats":
		if rest == "" {
			return "", errors.New("nats:// alone is the NATS of a sidecar: name its server, nats://host:port")
		}
		return "nats " + maskUser(raw), nil
	}
	return "", errors.New("want file:///path, s3://bucket/prefix or nats://host:port")
}

// profiles are those that are named, or those whose records the sidecar has.
func (c *copyStoreCmd) profiles(ctx context.Context, a *app) (all []toCopy, err error) {
	flag, names := "--profile", c.Profile
	if c.ProfileFile != "" {
		flag = "--profiles-from"
		if names, err = readNames(c.ProfileFile, a.stdin); err != nil {
			return nil, exitWith(exitUsage, "%s: %w", flag, err)
		}
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if err := lease.CheckProfileID(id); err != nil {
			return nil, exitWith(exitUsage, "%s: %w", flag, err)
		}
		all = append(all, toCopy{id: id})
	}
	if len(all) > 0 || c.ProfileFile != "" {
		return all, nil
	}
	sidecar, err := c.client()
	if err != nil {
		return nil, err
	}
	raw, err := sidecar.askAll(ctx, "v1", "profiles")
	if err != nil {
		return nil, fmt.Errorf("the names of the profiles, which the store does not know (without a sidecar, name them with --profile or --profiles-from): %w", err)
	}
	records, err := read[list[lease.Record]](raw)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(records.Items, func(a, b lease.Record) int { return strings.Compare(a.ProfileID, b.ProfileID) })
	for _, r := range records.Items {
		all = append(all, toCopy{r.ProfileID, &r})
	}
	return all, nil
}

// readNames reads a file with names, one a line.
func readNames(path string, stdin io.Reader) ([]string, error) {
	var content []byte
	var err error
	if path == "-" {
		content, err = io.ReadAll(stdin)
	} else {
		content, err = os.ReadFile(path)
	}
	return strings.Fields(string(content)), err
}

// open opens both stores, and finds out whether they have the keys.
func (c *copyStoreCmd) open(ctx context.Context, progress *progress) (from, to *snapshots.Store, closeBoth func() error, err error) {
	var closers []func() error
	closeBoth = func() error {
		var err error
		for _, one := range closers {
			err = errors.Join(err, one())
		}
		return err
	}
	fail := func(flag string, err error) (*snapshots.Store, *snapshots.Store, func() error, error) {
		return nil, nil, nil, errors.Join(storeProblem(flag, err), closeBoth())
	}
	fromKey, err := snapshots.ReadKey(c.FromKey)
	if err != nil {
		return nil, nil, nil, exitWith(exitUsage, "--from-key: %w", err)
	}
	toKey, err := snapshots.ReadKey(c.ToKey)
	if err != nil {
		return nil, nil, nil, exitWith(exitUsage, "--to-key: %w", err)
	}
	source, closeSource, err := c.objects(ctx, c.From)
	if err != nil {
		return fail("--from", err)
	}
	closers = append(closers, closeSource)
	from = snapshots.New(progress.ofObjects(source), fromKey)
	if err := from.CheckThere(ctx); err != nil {
		return fail("--from", err)
	}
	target, closeTarget, err := c.objects(ctx, c.To)
	if err != nil {
		return fail("--to", err)
	}
	closers = append(closers, closeTarget)
	to = snapshots.New(target, toKey)
	err = checkSnapshots(ctx, target, to)
	if errors.Is(err, snapshots.ErrWrongKey) && snapshots.New(target, fromKey).CheckThere(ctx) == nil {
		err = fmt.Errorf("%w, which --from-key has: a store keeps its key for good, want another place for the new one", err)
	}
	if err != nil {
		return fail("--to", err)
	}
	return from, to, closeBoth, nil
}

// objects opens the objects of a store. The caller calls close.
func (c *copyStoreCmd) objects(ctx context.Context, raw string) (_ snapshots.Objects, close func() error, _ error) {
	if !strings.HasPrefix(raw, ownNATS) {
		return openObjects(raw, nil, 0)
	}
	target := natsd.Target{URL: raw, Creds: c.Creds, CA: c.CA}
	if err := checkNATS(target); err != nil {
		return nil, nil, &exitError{exitUsage, err}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	nc, err := natsd.Dial(ctx, target, zerolog.Nop())
	if err == nil && natsd.Embedded(nc) {
		nc.Close()
		err = errors.New("it is the NATS inside a sidecar, which serves subscribers only: the store in it can be read by that sidecar alone")
	}
	if err != nil {
		return nil, nil, &exitError{exitNATS, err}
	}
	objects, _, err := openObjects(ownNATS, nc, replicasOf(nc, c.Replicas))
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return objects, func() error { nc.Close(); return nil }, nil
}

// storeProblem is why a store cannot be used, with its exit code.
func storeProblem(flag string, err error) error {
	code := exitCode(err)
	switch {
	case errors.Is(err, s3bucket.ErrUnfit), errors.Is(err, snapshots.ErrNoStore), errors.Is(err, snapshots.ErrWrongKey), errors.Is(err, snapshots.ErrFormat):
		code = exitUsage
	case errors.Is(err, snapshots.ErrDamaged):
		code = exitEvidence
	}
	return exitWith(code, "%s: %w", flag, err)
}

// copyAll copies the profiles, and prints the result of each. The error is about all of them.
func (c *copyStoreCmd) copyAll(ctx context.Context, a *app, progress *progress, from, to *snapshots.Store, profiles []toCopy) (storeCopy, error) {
	done, names := storeCopy{OK: true, Items: []profileCopied{}}, []string{}
	failed, damaged := 0, 0
	for n, p := range profiles {
		progress.begin(fmt.Sprintf("profile %d of %d", n+1, len(profiles)), "pieces")
		names = append(names, p.id)
		item := profileCopied{}
		var err error
		item.Copied, err = to.CopyFrom(ctx, from, p.id)
		if ctx.Err() != nil {
			done.OK = false
			return done, exitWith(exitFailure, "interrupted at profile %s: what is copied stays, and the same command goes on", p.id)
		}
		if errors.Is(err, snapshots.ErrNoSnapshot) && len(c.Profile) == 0 && (p.record == nil || p.record.SnapshotID == "") {
			continue // it never had one
		}
		if err == nil && p.record != nil {
			err = hasNamed(ctx, to, *p.record)
		}
		if err != nil {
			item.Error = err.Error()
		}
		switch {
		case !item.Whole(), errors.Is(err, snapshots.ErrDamaged), errors.Is(err, snapshots.ErrIncomplete):
			damaged++
		case err != nil:
			failed++
		}
		done.Items = append(done.Items, item)
		c.show(a, progress, item)
	}
	var err error
	if len(c.Profile) == 0 {
		done.Unnamed, err = from.Others(ctx, names)
	}
	done.OK = failed+damaged+done.Unnamed == 0 && err == nil
	switch {
	case err != nil:
		return done, storeProblem("--from", err)
	case failed > 0:
		return done, exitWith(exitFailure, "%d of %d profiles are not copied as they are", failed+damaged, len(done.Items))
	case done.Unnamed > 0:
		return done, exitWith(exitFailure, "--from has %d profiles that nobody named, neither a file nor the sidecar, and that are not copied: name them with --profile", done.Unnamed)
	case damaged > 0:
		return done, exitWith(exitEvidence, "%d of %d profiles have snapshots that are damaged, which are not copied", damaged, len(done.Items))
	}
	return done, nil
}

// hasNamed returns an error unless the store has the snapshot that a profile's record names, or
// a later one.
func hasNamed(ctx context.Context, to *snapshots.Store, r lease.Record) error {
	if r.SnapshotID == "" {
		return nil
	}
	made, err := to.List(ctx, r.ProfileID)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	if len(made) > 0 && made[0].Token >= r.SnapshotToken || slices.ContainsFunc(made, func(s snapshots.Snapshot) bool { return s.ID == r.SnapshotID }) {
		return nil
	}
	return fmt.Errorf("profile %s: its record names snapshot %s of token %d, and --from does not have it whole: is that the store which its sidecar uses?", r.ProfileID, r.SnapshotID, r.SnapshotToken)
}

// show prints the result of a profile.
func (c *copyStoreCmd) show(a *app, progress *progress, item profileCopied) {
	if !c.JSON {
		left := ""
		if item.Left > 0 {
			left = fmt.Sprintf(", %d left, which --to has removed", item.Left)
		}
		progress.print(a.stdout, "%s: %d snapshots copied, %d there before%s, %s sent", item.ProfileID, len(item.Copied.Copied), item.There, left, humanize.IBytes(item.Stored))
		for _, s := range item.Damaged {
			for _, problem := range s.Problems {
				progress.print(a.stdout, "%s: %s is damaged, and is not copied: %s", item.ProfileID, s.ID, problem)
			}
		}
	}
	if item.Error != "" {
		progress.print(a.stderr, "leasehold: %s", item.Error)
	}
}
