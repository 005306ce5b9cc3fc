package launcher

import (
	"context"
	"encoding/json"
	"maps"
	"testing"

	"leasehold/launcher/api"
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
