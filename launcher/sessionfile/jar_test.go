package sessionfile

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/signed"
	"leasehold/internal/test/testkey"
)

// browser answers the calls about cookies, and fails the test on every other.
type browser struct {
	t   *testing.T
	has string // the answer to Storage.getCookies
	got []cookie
	err error
}

func (b *browser) Call(_ context.Context, session, method string, params, result any) error {
	switch {
	case b.err != nil:
		return b.err
	case session != "":
		b.t.Errorf("%s on session %s", method, session)
	case method == "Storage.getCookies":
		return json.Unmarshal([]byte(b.has), result)
	case method == "Storage.setCookies":
		b.got = params.(map[string]any)["cookies"].([]cookie)
	default:
		b.t.Errorf("asked for %s", method)
	}
	return nil
}

func (b *browser) names() []string {
	var names []string
	for _, c := range b.got {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}

const cookies = `{"cookies":[
	{"name":"sid","value":"1","domain":"shop.example","path":"/","secure":true,"session":true,"expires":-1},
	{"name":"all","value":"2","domain":".shop.example","path":"/x","session":true,"expires":-1},
	{"name":"stays","value":"3","domain":"shop.example","path":"/","session":false,"expires":1900000000}]}`

func TestSessionCookiesAreHandedOn(t *testing.T) {
	j := NewJar(t.TempDir(), testkey.Key)
	before, after := &browser{t: t, has: cookies}, &browser{t: t, has: `{}`}
	if err := j.Keep(t.Context(), before, "p"); err != nil {
		t.Fatal(err)
	}
	if err := j.Restore(t.Context(), after, "p"); err != nil {
		t.Fatal(err)
	}
	if got := after.names(); !slices.Equal(got, []string{"all", "sid"}) {
		t.Fatalf("restored %v", got)
	}
	for _, c := range after.got {
		switch {
		case c.Expires != 0:
			t.Errorf("%s is no session cookie any more", c.Name)
		case c.Name == "sid" && (c.URL != "https://shop.example/" || c.Domain != ""):
			t.Errorf("a host's own cookie goes to %q %q", c.URL, c.Domain)
		case c.Name == "all" && c.Domain != ".shop.example":
			t.Errorf("a domain's cookie goes to %q", c.Domain)
		}
	}
	again := &browser{t: t}
	if err := j.Restore(t.Context(), again, "p"); err != nil || again.got != nil {
		t.Errorf("restored twice: %v, %v", again.got, err)
	}
}

// TestCookiesThatAreNotRestoredYetStay: a browser that ends before it got the saved
// cookies does not replace them by its own.
func TestCookiesThatAreNotRestoredYetStay(t *testing.T) {
	j := NewJar(t.TempDir(), testkey.Key)
	if err := j.Keep(t.Context(), &browser{t: t, has: cookies}, "p"); err != nil {
		t.Fatal(err)
	}
	failing := &browser{t: t, err: errors.New("gone")}
	if err := j.Restore(t.Context(), failing, "p"); err == nil {
		t.Fatal("restored into a browser that is gone")
	}
	if err := j.Keep(t.Context(), &browser{t: t, has: `{}`}, "p"); err != nil {
		t.Fatal(err)
	}
	next := &browser{t: t}
	if err := j.Restore(t.Context(), next, "p"); err != nil || len(next.got) != 2 {
		t.Errorf("%v, %v", next.got, err)
	}
}

// TestAWarmBrowsersCookies: after a crash all cookies are restored, and after a close
// in order only the session cookies, since Chrome kept the others.
func TestAWarmBrowsersCookies(t *testing.T) {
	j := NewJar(t.TempDir(), testkey.Key)
	warm := &browser{t: t, has: cookies}
	if err := j.KeepAll(t.Context(), warm, "p"); err != nil {
		t.Fatal(err)
	}
	crashed := &browser{t: t}
	if err := j.Restore(t.Context(), crashed, "p"); err != nil || !slices.Equal(crashed.names(), []string{"all", "sid", "stays"}) {
		t.Errorf("after a crash: %v, %v", crashed.names(), err)
	}
	if err := errors.Join(j.KeepAll(t.Context(), warm, "p"), j.KeepOfWarm(t.Context(), warm, "p", func() bool { return false }), j.ClosedInOrder("p")); err != nil {
		t.Fatal(err)
	}
	closed := &browser{t: t}
	if err := j.Restore(t.Context(), closed, "p"); err != nil || !slices.Equal(closed.names(), []string{"all", "sid"}) {
		t.Errorf("after a close: %v, %v", closed.names(), err)
	}
	robbed := &browser{t: t, has: `{}`}
	if err := errors.Join(j.KeepAll(t.Context(), warm, "p"), j.KeepOfWarm(t.Context(), robbed, "p", func() bool { return true })); err != nil {
		t.Fatal(err)
	}
	next := &browser{t: t}
	if err := j.Restore(t.Context(), next, "p"); err != nil || !slices.Equal(next.names(), []string{"all", "sid", "stays"}) {
		t.Errorf("after a close of a browser that lost them: %v, %v", next.names(), err)
	}
}

// TestNotedCookiesCountOnceTheyAreKept: noted cookies are restored only if the person's
// browser ended in order.
func TestNotedCookiesCountOnceTheyAreKept(t *testing.T) {
	j := NewJar(t.TempDir(), testkey.Key)
	person := &browser{t: t, has: cookies}
	next := &browser{t: t}
	if err := errors.Join(j.Note(t.Context(), person, "p"), j.Restore(t.Context(), next, "p")); err != nil || next.got != nil {
		t.Fatalf("%v, %v", next.got, err)
	}
	if err := errors.Join(j.KeepNoted("p"), j.Restore(t.Context(), next, "p")); err != nil || len(next.got) != 2 {
		t.Fatalf("%v, %v", next.got, err)
	}
	next.got = nil
	if err := errors.Join(j.Note(t.Context(), person, "p"), j.DropNoted("p"), j.KeepNoted("p"), j.Restore(t.Context(), next, "p")); err != nil || next.got != nil {
		t.Errorf("%v, %v", next.got, err)
	}
}

func TestACloneGetsTheCookies(t *testing.T) {
	longest := "q" + strings.Repeat(".a", 63) // its dots need more room in the name of a file
	j := NewJar(t.TempDir(), testkey.Key)
	for range 2 { // it has none at first
		files, err := j.Export("p")
		if err := errors.Join(err, j.Import(longest, files), j.Keep(t.Context(), &browser{t: t, has: cookies}, "p")); err != nil {
			t.Fatal(err)
		}
	}
	for _, profile := range []string{"p", longest} {
		b := &browser{t: t}
		if err := j.Restore(t.Context(), b, profile); err != nil || len(b.got) != 2 {
			t.Errorf("%s: %v, %v", profile, b.got, err)
		}
	}
}

// TestADamagedFileIsSetAside: none of its cookies get into a browser, and then the profile
// can be used.
func TestADamagedFileIsSetAside(t *testing.T) {
	j := NewJar(t.TempDir(), testkey.Key)
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(j.path("p"), []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t}
	for range 2 {
		if err := errors.Join(j.Restore(t.Context(), b, "p"), j.Check("q")); !errors.Is(err, signed.ErrNotAuthentic) || !errors.Is(j.Check("p"), signed.ErrNotAuthentic) {
			t.Errorf("restored: %v", err)
		}
	}
	if err := errors.Join(j.SetAside("p"), j.Check("p")); err != nil {
		t.Error(err)
	}
	if err := j.Restore(t.Context(), b, "p"); err != nil || b.got != nil {
		t.Errorf("%v, %v", b.got, err)
	}
}
