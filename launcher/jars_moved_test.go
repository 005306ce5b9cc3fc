package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
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
	_, err = r.RehomeProfile(admin(r.t.Context()), profile, how)
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

// admin may do everything.
func admin(ctx context.Context) context.Context {
	return principal.In(ctx, principal.Principal{Name: "ann", Role: principal.Admin, Profiles: []string{"*"}})
}

// archived puts a profile aside, and returns where its directory is.
func (r *reading) archived(profile string) string {
	r.t.Helper()
	at, err := r.ArchiveProfile(r.t.Context(), profile, api.ProfileArchive{})
	mustIn(r.t)(err)
	return at.Path
}

// broughtBack says that a profile without a directory has these cookies once it is made of that one.
func (r *reading) broughtBack(profile, from string, want map[string]string) {
	r.t.Helper()
	_, err := r.ImportProfile(admin(r.t.Context()), profile, api.ProfileImport{From: from})
	mustIn(r.t)(err)
	if got := r.kept(profile); !maps.Equal(got, want) {
		r.t.Errorf("%s of %s has %v, want %v", profile, from, got, want)
	}
}

// A restore that is cut short before the record says so leaves the directory of the snapshot in its place. A
// person decides about the profile, and nobody gets it before.
func TestARestoreThatIsCutShortGoesToAPerson(t *testing.T) {
	r, _ := startImporting(t)
	r.imported("acct")
	e, err := r.o.Store.Get(t.Context(), "acct")
	mustIn(t)(err)
	restore := api.ProfileRestore{Token: e.Record.Token, SnapshotID: r.sealed(e.Record.Token, "snapshot").ID, Person: "ann", Note: "n"}
	r.leases.set(hooks{swap: func(next lease.Record) error {
		if next.Reason == lease.ReasonSnapshotRestored {
			panic("killed")
		}
		return nil
	}})
	func() {
		defer func() { _ = recover() }()
		_, err := r.RestoreProfile(t.Context(), "acct", restore)
		t.Errorf("it was not killed: %v", err)
	}()
	r.leases.set(hooks{})
	if s, err := r.Acquire(t.Context(), api.Manifest{ProfileID: "acct", WorkerID: "w", TaskID: "t"}); err == nil {
		t.Fatalf("a worker got it: %+v", s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for e.Record.State != lease.ManualReview {
		mustIn(t)(context.Cause(ctx))
		time.Sleep(10 * time.Millisecond)
		e, err = r.o.Store.Get(ctx, "acct")
		mustIn(t)(err)
	}
	inspection, err := r.Inspection(ctx, "acct")
	if err != nil || !strings.Contains(fmt.Sprint(inspection.Reasons), "a restore was cut short") {
		t.Errorf("the person is told %q, %v", inspection.Reasons, err)
	}
	// The same restore, once more, from the review: it is believed.
	restore.Token = e.Record.Token
	_, err = r.RestoreProfile(t.Context(), "acct", restore)
	mustIn(t)(err)
	if why, err := r.o.Root.Replaced("acct"); err != nil || why != "" {
		t.Errorf("a restore that is complete is not believed: %q, %v", why, err)
	}
}

// A directory in the archive has its own session cookies, whatever became of the profile since. Otherwise two
// logins would be mixed.
func TestEachArchivedDirectoryHasItsOwnCookies(t *testing.T) {
	r, _ := startImporting(t)
	r.imported("acct")
	before := r.signIn("acct", "before")
	e, err := r.o.Store.Get(t.Context(), "acct")
	mustIn(t)(err)
	restored, err := r.RestoreProfile(t.Context(), "acct", api.ProfileRestore{Token: e.Record.Token, SnapshotID: r.sealed(e.Record.Token, "snapshot").ID, Person: "ann", Note: "n"})
	mustIn(t)(err)
	snapshot := r.kept("acct")
	if len(snapshot) != 1 || maps.Equal(snapshot, before) {
		t.Fatalf("restored, it has %v", snapshot)
	}
	second := r.archived("acct")
	r.broughtBack("acct", restored.Kept, before)
	after := r.signIn("acct", "after")
	third := r.archived("acct")
	r.broughtBack("acct", second, snapshot)
	r.broughtBack("other", third, after)
	r.archived("acct")
	r.broughtBack("acct", third, after)
	mustIn(t)(r.host.Jar.Drop("acct"))
	none := r.archived("acct")
	r.broughtBack("acct", third, after)
	r.archived("acct")
	r.broughtBack("acct", none, nil)
}

// The directory that a profile left here goes to the archive when another one comes, with its cookies, and
// may come back from there.
func TestADirectoryThatIsReplacedKeepsItsCookies(t *testing.T) {
	r, _ := startImporting(t)
	r.leave("p")
	want := r.signIn("p", "before")
	r.moved("p")
	mustIn(t)(r.rehomed("p", api.ProfileRehome{Empty: true}))
	if got := r.kept("p"); len(got) != 0 {
		t.Errorf("an empty directory has cookies: %v", got)
	}
	archived, err := filepath.Glob(filepath.Join(r.o.Root.Dir(), ".leasehold", "archive", "p@*", "Local State"))
	if err != nil || len(archived) != 1 {
		t.Fatalf("in the archive: %v, %v", archived, err)
	}
	from := filepath.Dir(archived[0])
	r.broughtBack("other", from, want)
	r.moved("p")
	mustIn(t)(r.rehomed("p", api.ProfileRehome{From: from}))
	if got := r.kept("p"); !maps.Equal(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
}

// What is beside an archived directory is believed only as this launcher wrote it. A version that kept nothing
// there has the directory come back with the cookies that were kept of its profile last.
func TestCookiesBesideAnArchivedDirectoryThatAreNotItsOwn(t *testing.T) {
	r, _ := startImporting(t)
	r.imported("p")
	r.signIn("p", "first")
	first := r.archived("p")
	r.imported("p")
	last := r.signIn("p", "second")
	r.archived("p")
	mustIn(t)(os.WriteFile(first+".cookies", []byte(`{"session-cookies":"W10="}`), 0o600))
	for _, profile := range []string{"p", "other"} {
		_, err := r.ImportProfile(admin(t.Context()), profile, api.ProfileImport{From: first})
		_, missing := r.o.Root.Path(profile)
		if codeOf(err) != api.CodeInvalidRequest || !strings.Contains(err.Error(), first+".cookies") || !errors.Is(missing, profiledir.ErrNoProfile) {
			t.Errorf("%s: %v, and its directory: %v", profile, err, missing)
		}
	}
	if got := r.kept("p"); !maps.Equal(got, last) {
		t.Errorf("after it was refused it has %v", got)
	}
	mustIn(t)(os.Remove(first + ".cookies"))
	r.broughtBack("p", first, last)
	r.broughtBack("other", first, nil)
}

// The session cookies of the directory that was left, which this launcher has not written, do not keep another
// one from its place.
func TestADirectoryComesThoughTheCookiesBeforeAreForged(t *testing.T) {
	r, _ := startImporting(t)
	r.leave("p")
	r.signIn("p", "before")
	r.moved("p")
	jar, err := filepath.Glob(filepath.Join(r.o.DataDir, "session-cookies", "p.json"))
	if err != nil || len(jar) != 1 {
		t.Fatalf("%v, %v", jar, err)
	}
	mustIn(t)(os.WriteFile(jar[0], []byte("[]"), 0o600))
	mustIn(t)(r.rehomed("p", api.ProfileRehome{Empty: true}))
	if got := r.kept("p"); len(got) != 0 {
		t.Errorf("it has %v", got)
	}
	if _, err := os.Lstat(jar[0] + ".refused"); err != nil {
		t.Error(err)
	}
}

// A making that is cut short when the jar has the cookies of the new directory already leaves the archived one
// its own.
func TestAMakingThatIsCutShortLeavesTheArchivedCookies(t *testing.T) {
	r, _ := startImporting(t)
	r.imported("source")
	r.signIn("source", "another")
	r.imported("p")
	want := r.signIn("p", "before")
	from := r.archived("p")
	place := filepath.Join(r.o.Root.Dir(), "p")
	for name, other := range map[string]func() error{
		"clone": func() error {
			_, err := r.CloneProfile(t.Context(), "source", api.ProfileClone{To: "p"})
			return err
		},
		"import": func() error {
			_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: userDataDir(t)})
			return err
		},
	} {
		r.leases.set(hooks{swapped: func(next lease.Record) error { // a directory that is not empty is not replaced
			return os.MkdirAll(filepath.Join(place, "in the way"), 0o700)
		}})
		err := other()
		r.leases.set(hooks{})
		if err == nil || maps.Equal(r.kept("p"), want) {
			t.Fatalf("%s: it was not cut short behind its cookies: %v", name, err)
		}
		mustIn(t)(os.RemoveAll(place))
		r.broughtBack("p", from, want)
		from = r.archived("p")
	}
}
