package launcher

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// watched is a context at whose every look something is done: a copy looks before each file.
type watched struct {
	context.Context
	look func()
}

func (c watched) Err() error {
	c.look()
	return c.Context.Err()
}

// A person's own Chrome may be opened while its directory is copied. What it writes then may be torn in the
// copy, so no profile is made of that.
func TestADirectoryThatChangesMeanwhileIsNotCopied(t *testing.T) {
	for _, way := range []string{"import", "rehome"} {
		for _, meanwhile := range []string{"nothing", "opened", "opened and closed"} {
			t.Run(way+", "+meanwhile, func(t *testing.T) {
				r := startReading(t, 2, func(o *Options) { o.ImportRoots = []string{os.TempDir()} })
				from := closedInOrder(t, "it")
				cookies := filepath.Join(from, "Default", "Cookies")
				mustIn(t)(os.WriteFile(cookies, []byte("before"), 0o600))
				made := filepath.Join(profiledir.GuardDir(r.o.Root.Dir()), map[string]string{"import": ".import-acct/profile", "rehome": ".arrival-acct"}[way])
				done := false
				ctx := watched{context.Background(), func() {
					if _, err := os.Lstat(made); err != nil || done {
						return
					}
					done = true
					switch meanwhile {
					case "opened":
						chrome := exec.Command("sh", "-c", "read line", "browser", "--user-data-dir="+from)
						in, err := chrome.StdinPipe()
						mustIn(t)(errors.Join(err, chrome.Start()))
						t.Cleanup(func() { _ = in.Close(); _ = chrome.Wait() }) // read fails at the end of its input
					case "opened and closed":
						mustIn(t)(os.WriteFile(cookies, []byte("what it wrote"), 0o600))
					}
				}}
				var err error
				if way == "import" {
					_, err = r.ImportProfile(ctx, "acct", api.ProfileImport{From: from})
				} else {
					before := r.profile(func(*lease.Record) {})
					r.leases.set(hooks{swapped: func(next lease.Record) error { // its home gives it up at once
						if next.MoveRequest == nil {
							return nil
						}
						_, err := lease.ChangeExisting(t.Context(), r.leases.Store, "acct", func(e lease.Entry) (lease.Record, error) { return e.Record.GiveUp(time.Now()) })
						return err
					}})
					_, err = r.RehomeProfile(ctx, "acct", api.ProfileRehome{Write: api.Write{Token: before.Token}, From: from, Person: "ann", Note: "n", AcceptLoss: true, AskHome: true})
				}
				if !done {
					t.Fatalf("nothing was seen at %s, %v", made, err)
				}
				_, missing := r.o.Root.Path("acct")
				if meanwhile == "nothing" {
					if err != nil || missing != nil {
						t.Errorf("%v, %v", err, missing)
					}
					return
				}
				if codeOf(err) != api.CodeConflict || !errors.Is(missing, profiledir.ErrNoProfile) {
					t.Errorf("%v, and its directory: %v", err, missing)
				}
				if _, err := os.Lstat(made); !os.IsNotExist(err) {
					t.Errorf("what was copied is left: %v", err)
				}
			})
		}
	}
}
