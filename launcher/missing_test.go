package launcher

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"leasehold/launcher/api"
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
