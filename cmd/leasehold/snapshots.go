package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/objects"
	"leasehold/internal/s3bucket"
	"leasehold/launcher/api"
	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshots/natsobjects"
	"leasehold/lease"
)

// openObjects opens the store of profiles. The number of copies is for nats://.
func openObjects(raw string, nc *nats.Conn, copies int) (objects.Objects, func() error, error) {
	return opener[objects.Objects]{
		dir: func(path string) (objects.Objects, error) { return snapshots.OpenDir(path), nil },
		bucket: func(cfg s3bucket.Config) (objects.Objects, func(), error) {
			b, err := s3bucket.Open("profile store", cfg)
			if err != nil {
				return nil, nil, err
			}
			return b, b.Close, nil
		},
		stream: func(js jetstream.JetStream) objects.Objects {
			return natsobjects.New(js, natsobjects.Config{Replicas: copies})
		},
	}.open(raw, nc)
}

type profileKeygenCmd struct {
	Out string `arg:"" type:"path" name:"file" help:"The new file with the key."`
}

// Run writes the file.
func (c *profileKeygenCmd) Run(a *app) error {
	if _, err := snapshots.WriteKey(c.Out); err != nil {
		return fmt.Errorf("keygen: %w", err)
	}
	fmt.Fprintf(a.stdout, "%s: keep a copy elsewhere, without it the profiles in the store are lost\n", printable(c.Out))
	return nil
}

type snapshotsCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile."`
}

// Run prints the list.
func (c *snapshotsCmd) Run(a *app) error {
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
		return sidecar.askFor(ctx, http.MethodGet, nil, "v1", "profiles", string(c.Profile), "snapshots")
	}, func(made list[api.Snapshot]) error {
		t := newColumns(a.stdout, "SNAPSHOT", "TOKEN", "MADE", "SIZE", "STORED", "CHROME", "SESSION")
		for _, s := range made.Items {
			t.row(s.ID, s.Token, s.CreatedAt.UTC().Format(time.RFC3339), humanize.IBytes(s.Bytes), humanize.IBytes(s.Stored), s.ChromeVersion, s.SessionID)
		}
		return t.flush()
	})
}

type restoreCmd struct {
	clientFlags `embed:""`
	Profile     profileArg   `arg:"" help:"The profile, which nobody uses."`
	Snapshot    string       `required:"" placeholder:"ID" help:"The snapshot to bring back (leasehold profiles snapshots lists them), or newest."`
	Person      string       `placeholder:"NAME" help:"Who decides; it stands in the event (default: $$USER)."`
	Note        string       `help:"Why; it stands in the event."`
	Token       *lease.Token `placeholder:"N" help:"The lease token that was seen: another is refused (default: the one shown now)."`
}

// Run asks the sidecar to put the snapshot back, with the profile's present token if none was
// given.
func (c *restoreCmd) Run(a *app) error {
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
		token, err := seenToken(ctx, a, sidecar, c.Profile, c.Token)
		if err != nil {
			return nil, err
		}
		name := cmp.Or(c.Person, os.Getenv("USER"))
		return sidecar.askFor(ctx, http.MethodPost, api.ProfileRestore{SnapshotID: c.Snapshot, Token: token, Person: name, Note: c.Note}, "v1", "profiles", string(c.Profile), "restore")
	}, func(done api.Restored) error {
		fmt.Fprintf(a.stdout, "%s: %s, with snapshot %s under token %d\n", printable(done.ProfileID), printable(string(done.State)), printable(done.SnapshotID), done.Token)
		if done.Kept != "" {
			fmt.Fprintf(a.stdout, "the state before is kept in %s\n", printable(done.Kept))
		}
		return nil
	})
}

type verifySnapshotsCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile."`
	Snapshot    string     `placeholder:"ID" help:"The one snapshot to verify (default: all)."`
}

// Run asks the sidecar to read every byte.
func (c *verifySnapshotsCmd) Run(a *app) error {
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		raw, err := sidecar.askFor(ctx, http.MethodPost, api.ProfileVerify{SnapshotID: c.Snapshot}, "v1", "profiles", string(c.Profile), "verify")
		if err != nil {
			return a.printAnswer(raw, err)
		}
		found, err := read[api.SnapshotsChecked](raw)
		if err != nil {
			return err
		}
		if c.JSON {
			err = a.printAnswer(raw, nil)
		} else {
			for _, s := range found.Snapshots {
				result := "whole"
				if len(s.Problems) > 0 {
					result = "damaged"
				}
				fmt.Fprintf(a.stdout, "%s: %s\n", printable(s.ID), result)
				for _, problem := range s.Problems {
					fmt.Fprintf(a.stdout, "    %s\n", printable(problem))
				}
			}
			fmt.Fprintf(a.stdout, "%d pieces with %s read\n", found.Chunks, humanize.IBytes(found.Bytes))
		}
		if err == nil && !found.Whole() {
			err = exitWith(exitEvidence, "snapshots of %s are damaged: the next session's end stores the profile anew", c.Profile)
		}
		return err
	})
}
