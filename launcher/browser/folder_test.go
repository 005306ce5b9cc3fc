package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"leasehold/launcher/profiledir"
)

// TestChromeOpensTheFolderThatIsInspected: in a user-data-dir with two of Chrome's own profiles, it
// opens the one that was used last, writes the account's cookies there, and goes on to do so when
// a person used the other one.
func TestChromeOpensTheFolderThatIsInspected(t *testing.T) {
	h := newHost(t, Options{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		title := "nobody"
		if c, err := r.Cookie("login"); err == nil {
			title = c.Value
		}
		http.SetCookie(w, &http.Cookie{Name: "login", Value: "ann", MaxAge: 3600})
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<title>%s</title>`, title)
	}))
	t.Cleanup(web.Close)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	state := filepath.Join(h.path, "Local State")
	for _, folder := range []string{"Default", "Profile 1"} {
		must(os.Mkdir(filepath.Join(h.path, folder), 0o700))
	}
	must(os.WriteFile(state, []byte(`{"profile":{"last_used":"Profile 1"}}`), 0o600))
	for _, want := range []string{"nobody", "ann"} {
		b := h.start()
		h.open(b, web.URL)
		if got := h.titles(b, want); !slices.Contains(got, want) {
			t.Errorf("the pages are %q, want %q", got, want)
		}
		_, err := b.Close(profile, nil, h.options.Log)
		must(err)
		if cookies, err := h.root.Cookies(profile); err != nil || len(cookies) != 1 {
			t.Errorf("the folder has %d cookies, %v", len(cookies), err)
		}
		in, err := h.root.Inspect(profile)
		must(err)
		if in.ClosedCleanly.Answer != profiledir.Yes || in.SessionStatePresent.Answer != profiledir.Yes {
			t.Errorf("inspected: %+v, %+v", in.ClosedCleanly, in.SessionStatePresent)
		}
		if _, err := os.Stat(filepath.Join(h.path, "Default", "Cookies")); err == nil {
			t.Error("the other folder was opened")
		}
		// What a person leaves who looks into the other one.
		var local map[string]any
		raw, err := os.ReadFile(state)
		must(err)
		must(json.Unmarshal(raw, &local))
		local["profile"].(map[string]any)["last_used"] = "Default"
		raw, err = json.Marshal(local)
		must(err)
		must(os.WriteFile(state, raw, 0o600))
		must(h.lock.Unlock())
	}
}
