package launcher

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// A profile whose directory is missing is not had as an empty one, whoever asks, and its session cookies stay:
// it goes on once the directory is back, or once a person says what comes into its place.
func TestAProfileWhoseDirectoryIsMissingIsNotMadeAnew(t *testing.T) {
	r, _ := startImporting(t)
	ctx := admin(t.Context())
	r.leave("another")
	for profile, back := range map[string]func(profile, was string) error{
		"brought-back": func(profile, was string) error { return os.Rename(was, filepath.Join(r.o.Root.Dir(), profile)) },
		"imported": func(profile, was string) error {
			_, err := r.ImportProfile(ctx, profile, api.ProfileImport{From: was})
			return err
		},
		"begun-anew": func(profile, _ string) error {
			e, err := r.o.Store.Get(ctx, profile)
			mustIn(t)(err)
			_, err = r.RehomeProfile(ctx, profile, api.ProfileRehome{Write: api.Write{Token: e.Record.Token}, Empty: true, AcceptLoss: true, Person: "ann", Note: "the disk died"})
			return err
		},
	} {
		t.Run(profile, func(t *testing.T) {
			r.leave(profile)
			mustIn(t)(r.snapshotter.Drain(ctx))
			cookies := r.signIn(profile, "now")
			place := filepath.Join(r.o.Root.Dir(), profile)
			was := filepath.Join(t.TempDir(), "was")
			mustIn(t)(os.Rename(place, was))
			// One that it had earlier is in the archive, as after a restore.
			mustIn(t)(os.MkdirAll(filepath.Join(profiledir.GuardDir(r.o.Root.Dir()), "archive", profile+"@20260101T000000.000000000Z"), 0o700))
			for who, ask := range map[string]func() error{
				"a task": func() error {
					_, err := r.Acquire(ctx, api.Manifest{ProfileID: profile, WorkerID: "w", TaskID: "t"})
					return err
				},
				"a task that makes profiles": func() error {
					_, err := r.Acquire(ctx, api.Manifest{ProfileID: profile, WorkerID: "w", TaskID: "t", Create: true})
					return err
				},
				"a task that waits": func() error { // nothing that it could wait for gives the directory back
					_, err := r.Acquire(ctx, api.Manifest{ProfileID: profile, WorkerID: "w", TaskID: "t", Wait: api.Duration(time.Second)})
					return err
				},
				"who clones another profile": func() error {
					_, err := r.CloneProfile(ctx, "another", api.ProfileClone{To: profile})
					return err
				},
				"an operator": func() error { _, err := r.PutProfile(ctx, profile, api.ProfileSettings{}); return err },
			} {
				var refused *api.Problem
				if err := ask(); !errors.As(err, &refused) || refused.Code != api.CodeConflict || refused.More["reason"] != api.ReasonDirectoryMissing {
					t.Errorf("%s: %v", who, err)
				}
				if _, err := os.Lstat(place); !os.IsNotExist(err) {
					t.Fatalf("%s: there is a directory: %v", who, err)
				}
				if got := r.kept(profile); !maps.Equal(got, cookies) {
					t.Fatalf("%s: its session cookies are %v, want %v", who, got, cookies)
				}
			}
			if shown, err := r.Profile(ctx, profile); err != nil || shown.Reason != api.ReasonDirectoryMissing {
				t.Errorf("shown as %s, %v", shown.Reason, err)
			}
			mustIn(t)(back(profile, was))
			s, err := r.Acquire(ctx, api.Manifest{ProfileID: profile, WorkerID: "w", TaskID: "t"})
			mustIn(t)(err)
			r.end(s)
		})
	}
}

// In a review, settings change also where the directory is missing: whoever changes them is told that, and what
// to do about it, which is not to ask again.
func TestSettingsOfAProfileInReviewWhoseDirectoryIsMissing(t *testing.T) {
	r, _ := startImporting(t)
	ctx := admin(t.Context())
	r.leave("p")
	mustIn(t)(r.snapshotter.Drain(ctx))
	mustIn(t)(os.Rename(filepath.Join(r.o.Root.Dir(), "p"), filepath.Join(t.TempDir(), "was")))
	e, err := lease.Change(ctx, r.o.Store, "p", func(e lease.Entry) (lease.Record, error) {
		e.Record.State = lease.ManualReview
		return e.Record, nil
	})
	mustIn(t)(err)
	locale := "de-DE"
	_, err = r.PutProfile(ctx, "p", api.ProfileSettings{Token: e.Record.Token, Locale: &locale})
	p, is := api.ProblemIn(err)
	if !is || p.More["reason"] != api.ReasonDirectoryMissing || !strings.HasPrefix(p.Detail, "the settings are stored") || strings.Contains(p.Detail, "ask again") {
		t.Errorf("%v", err)
	}
	if e, err := r.o.Store.Get(ctx, "p"); err != nil || e.Record.Locale != locale {
		t.Errorf("stored is %q, %v", e.Record.Locale, err)
	}
}
