package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// signedInAs is a browser with a session cookie and one that lasts, both of this value, as far as the jar asks.
type signedInAs string

func (b signedInAs) Call(_ context.Context, _, _ string, _, result any) error {
	return json.Unmarshal([]byte(`{"cookies":[{"name":"sid","value":"`+string(b)+`","domain":"shop.example","path":"/","session":true},
		{"name":"lasts","value":"`+string(b)+`","domain":"shop.example","path":"/","expires":4102444800}]}`), result)
}

// kept are the cookies that the jar has of a profile, by the names of its files.
func (r *reading) kept(profile string) map[string]string {
	r.t.Helper()
	files, err := r.host.Jar.Export(profile)
	mustIn(r.t)(err)
	kept := map[string]string{}
	for name, content := range files {
		kept[name] = string(content)
	}
	return kept
}

// signIn has the jar keep the cookies of a browser, and returns them.
func (r *reading) signIn(profile, as string) map[string]string {
	r.t.Helper()
	mustIn(r.t)(r.host.Jar.KeepAll(r.t.Context(), signedInAs(as), profile))
	kept := r.kept(profile)
	if len(kept) != 2 {
		r.t.Fatalf("the jar has %v", kept)
	}
	return kept
}

// imported makes a profile of a new directory.
func (r *reading) imported(profile string) {
	r.t.Helper()
	_, err := r.ImportProfile(r.t.Context(), profile, api.ProfileImport{From: userDataDir(r.t)})
	mustIn(r.t)(err)
}

// After a browser that was warm has crashed, the jar has newer lasting cookies than the directory.
func TestACloneHasTheLastingCookiesToo(t *testing.T) {
	r, _ := startImporting(t)
	r.imported("p")
	want := r.signIn("p", "now")
	_, err := r.CloneProfile(t.Context(), "p", api.ProfileClone{To: "try"})
	mustIn(t)(err)
	if got := r.kept("try"); !maps.Equal(got, want) {
		t.Errorf("the clone has %v, want %v", got, want)
	}
}

// moved gives a profile to another launcher, and returns when the directory here is marked as left.
func (r *reading) moved(profile string) {
	r.t.Helper()
	e, err := lease.ChangeExisting(r.t.Context(), r.o.Store, profile, func(e lease.Entry) (lease.Record, error) {
		return e.Record.Move(lease.MoveRequest{To: "elsewhere", Move: lease.Move{ID: "m", Person: "ann", Directory: lease.DirectoryEmpty}}, e.Record.Token, time.Now())
	})
	mustIn(r.t)(err)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	var left *profiledir.DepartedError
	for !errors.As(r.o.Root.MayOpen(profile), &left) || left.Token != e.Record.HomeToken {
		mustIn(r.t)(context.Cause(ctx))
		time.Sleep(time.Millisecond)
	}
}

// rehomed brings a profile back from a home that gives it up at once.
func (r *reading) rehomed(profile string, how api.ProfileRehome) error {
	r.t.Helper()
	r.leases.set(hooks{swapped: func(next lease.Record) error {
		if next.MoveRequest == nil {
			return nil
		}
		_, err := lease.ChangeExisting(r.t.Context(), r.leases.Store, profile, func(e lease.Entry) (lease.Record, error) { return e.Record.GiveUp(time.Now()) })
		return err
	}})
	defer r.leases.set(hooks{})
	e, err := r.o.Store.Get(r.t.Context(), profile)
	mustIn(r.t)(err)
	how.Token, how.Person, how.Note, how.AcceptLoss, how.AskHome = e.Record.Token, "ann", "n", true, true
	_, err = r.RehomeProfile(r.t.Context(), profile, how)
	return err
}

// leave has a profile with a directory here move to another launcher.
func (r *reading) leave(profile string) {
	r.t.Helper()
	r.imported(profile)
	s, err := r.Acquire(r.t.Context(), api.Manifest{ProfileID: profile, WorkerID: "w", TaskID: "t"})
	mustIn(r.t)(err)
	r.end(s)
}

// The directory that a profile left here is as it was, and so are its session cookies.
func TestADirectoryThatWasLeftComesBackWithItsCookies(t *testing.T) {
	r, _ := startImporting(t)
	r.leave("p")
	want := r.signIn("p", "before")
	r.moved("p")
	mustIn(t)(r.rehomed("p", api.ProfileRehome{Left: true}))
	if got := r.kept("p"); !maps.Equal(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
}
