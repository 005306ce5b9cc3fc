package httpapi

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// callers is a gate with a worker, one that may ask for a higher priority, a viewer of shops and
// an operator. The API token of each is its name.
func callers(t *testing.T) *principal.Gate {
	t.Helper()
	file := "tokens:\n"
	for _, line := range []string{
		"name: plain, role: worker, profiles: [\"*\"]", "name: hasty, role: worker, profiles: [\"*\"], max_priority: 3", "name: watcher, role: viewer, profiles: [\"shop_*\"]",
		"name: boss, role: operator, profiles: [\"*\"]",
	} {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "name: "), ",")
		file += fmt.Sprintf("  - {%s, sha256: \"%x\"}\n", line, sha256.Sum256([]byte(name)))
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := principal.NewGate(principal.Options{Own: uint32(os.Geteuid()), File: path, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// send sends a request with an API token.
func (f *fixture) send(token, method, path, body string) (*http.Response, string) {
	f.t.Helper()
	bodies["x"] = body
	defer delete(bodies, "x")
	return f.ask(f.Client(), operation{"x", method, path}, "Authorization: Bearer "+token)
}

func TestWhoMayAskForAPriority(t *testing.T) {
	f := serve(t, Options{Gate: callers(t)}, map[string]any{"Acquire": api.Refuse(api.CodeConflict, "held")})
	for _, tt := range []struct {
		who      string
		priority int
		want     int
	}{
		{"plain", 0, 409}, {"plain", -5, 409}, {"plain", 1, 403}, {"hasty", 3, 409}, {"hasty", 4, 403}, {"boss", 5, 409},
	} {
		r, body := f.send(tt.who, "POST", "/v1/sessions", fmt.Sprintf(`{"profile_id":"p","priority":%d}`, tt.priority))
		if r.StatusCode != tt.want {
			t.Errorf("%s asks for %d: %s %s, want %d", tt.who, tt.priority, r.Status, body, tt.want)
		}
		if p := problemOf(t, r, body); tt.want == 403 && (p.Field != "priority" || !strings.Contains(p.Detail, "max_priority")) {
			t.Errorf("%s: %+v", tt.who, p)
		}
	}
}

// An ephemeral session that may send what it wants is beside the lease: it is for those who manage
// the profile. One that only reads is for every worker.
func TestAnEphemeralSessionThatSends(t *testing.T) {
	f := serve(t, Options{Gate: callers(t)}, map[string]any{"Acquire": api.Refuse(api.CodeNoSnapshot, "none yet")})
	for _, tt := range []struct {
		who, more string
		want      int
	}{
		{"plain", `"ephemeral":true`, 409}, {"plain", `"ephemeral":true,"read_only":true`, 409}, {"plain", `"ephemeral":true,"read_only":false`, 403},
		{"plain", `"read_only":false`, 409}, {"boss", `"ephemeral":true,"read_only":false`, 409}, {"watcher", `"ephemeral":true`, 403},
	} {
		for _, of := range []string{`"profile_id":"shop_1"`, `"labels":{"region":"us"}`} {
			r, body := f.send(tt.who, "POST", "/v1/sessions", "{"+of+","+tt.more+"}")
			if r.StatusCode != tt.want {
				t.Errorf("%s asks for %s with %s: %s %s, want %d", tt.who, of, tt.more, r.Status, body, tt.want)
			}
			if p := problemOf(t, r, body); tt.who == "plain" && tt.want == 403 && (p.Field != "read_only" || !strings.Contains(p.Detail, "operator")) {
				t.Errorf("%s: %+v", tt.who, p)
			}
		}
	}
}

// Who waits is shown to those who may read the profile, or one of those that would do, and to
// who waits here. What keeps a place in the queue is shown to nobody.
func TestWhoSeesTheQueue(t *testing.T) {
	f := serve(t, Options{Gate: callers(t)}, map[string]any{"Queue": []api.Waiting{
		{TaskID: "bank", ProfileID: "bank_1", Candidates: []string{"bank_1"}, Principal: "somebody", Own: true, Arrival: 4},
		{TaskID: "shop", ProfileID: "shop_1", Candidates: []string{"shop_1"}, Principal: "somebody", Arrival: 3},
		{TaskID: "any", AccountID: "a", Candidates: []string{"bank_1", "shop_2"}, Principal: "somebody", Arrival: 2},
		{TaskID: "other", AccountID: "a", Candidates: []string{"bank_2"}, Principal: "somebody", Arrival: 1},
		{TaskID: "own", ProfileID: "bank_1", Candidates: []string{"bank_1"}, Principal: "plain", Own: true, Arrival: 6},
		{TaskID: "namesake", ProfileID: "bank_1", Candidates: []string{"bank_1"}, Principal: "plain", Arrival: 5},
	}})
	for _, tt := range []struct{ who, query, want string }{
		{"watcher", "", "any shop"}, {"plain", "", "own"}, {"boss", "", "other any shop bank namesake own"}, {"boss", "?profile_id=bank_1", "any bank namesake own"},
	} {
		r, body := f.send(tt.who, "GET", "//v1/queue"+tt.query, "")
		var listed struct{ Items []api.Waiting }
		if err := json.Unmarshal([]byte(body), &listed); err != nil || r.StatusCode != 200 {
			t.Fatalf("%s: %s %s", tt.who, r.Status, body)
		}
		var tasks []string
		for _, w := range listed.Items {
			tasks = append(tasks, w.TaskID)
		}
		if got := strings.Join(tasks, " "); got != tt.want {
			t.Errorf("%s sees %q, want %q", tt.who, got, tt.want)
		}
		if strings.Contains(body, "andidates") || strings.Contains(body, "rrival") {
			t.Errorf("%s", body)
		}
	}
}

// A request for any profile that another launcher has goes there with its place in the queue.
func TestARedirectKeepsThePlace(t *testing.T) {
	f := serve(t, Options{}, map[string]any{
		"Acquire": api.Refuse(api.CodeWrongHome, "elsewhere").With("location", "http://h2:9333").With("turn", "t+1"), "Version": chromium,
	})
	r, body := f.ask(f.Client(), operation{"connect", "GET", "/any/devtools/browser?worker=w&task=t&labels=region:us&turn=old"})
	if to := r.Header.Get("Location"); r.StatusCode != 307 || to != "ws://h2:9333/any/devtools/browser?labels=region%3Aus&task=t&turn=t%2B1&worker=w" {
		t.Errorf("%s to %s: %s", r.Status, to, body)
	}
	if calls := f.taken(); len(calls) != 1 || !strings.Contains(calls[0], `"labels":{"region":"us"}`) || !strings.Contains(calls[0], `"turn":"old"`) {
		t.Errorf("calls %q", calls)
	}
	f.taken()
	r, body = f.ask(f.Client(), operation{"version", "GET", "/any/json/version?worker=w&task=t&account_id=a"})
	if r.StatusCode != 200 || !strings.Contains(body, "/any/devtools/browser?account_id=a&task=t&worker=w\"") {
		t.Errorf("%s %s", r.Status, body)
	}
}

// get sends a request with an API token and a query.
func (f *fixture) get(token, path string) (status int, body string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.URL+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := f.Client().Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, string(b)
}

// TestSessionsOfAProfileElsewhere: who may see the profile, or use it, hears where it is in use.
func TestSessionsOfAProfileElsewhere(t *testing.T) {
	held := api.Profile{Record: lease.Record{ProfileID: "shop_1", State: lease.Held, LauncherID: "h2", Home: "h2"}}
	hosts := api.Hosts{Items: []api.Host{{Presence: lease.Presence{LauncherID: "h2", AdvertiseURL: "https://h2.example"}, Here: true}}}
	f := serve(t, Options{Gate: callers(t)}, map[string]any{"Sessions": []api.Session{}, "Profile": held, "Hosts": hosts})
	for _, who := range []string{"watcher", "plain", "boss"} {
		if code, body := f.get(who, "/v1/sessions?profile_id=shop_1"); code != 421 || !strings.Contains(body, `"location":"https://h2.example"`) {
			t.Errorf("%s: %d %s", who, code, body)
		}
	}
	f = serve(t, Options{Gate: callers(t)}, map[string]any{"Sessions": []api.Session{}}) // nothing else is asked
	if code, body := f.get("watcher", "/v1/sessions?profile_id=bank_1"); code != 200 || !strings.Contains(body, `"items":[]`) {
		t.Errorf("a viewer of shops, of a bank: %d %s", code, body)
	}
	held.State = lease.Available
	f = serve(t, Options{Gate: callers(t)}, map[string]any{"Sessions": []api.Session{}, "Profile": held})
	if code, body := f.get("boss", "/v1/sessions?profile_id=shop_1"); code != 200 || !strings.Contains(body, `"items":[]`) {
		t.Errorf("a profile that nobody has: %d %s", code, body)
	}
	mine := []api.Session{{SessionID: "s1", ProfileID: "shop_1"}, {SessionID: "s2", ProfileID: "shop_2"}}
	f = serve(t, Options{Gate: callers(t)}, map[string]any{"Sessions": mine})
	if code, body := f.get("boss", "/v1/sessions?profile_id=shop_2"); code != 200 || strings.Contains(body, `"s1"`) || !strings.Contains(body, `"s2"`) {
		t.Errorf("one that is here: %d %s", code, body)
	}
}
