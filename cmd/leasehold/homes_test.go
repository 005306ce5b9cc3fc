package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/launcher/api"
)

func TestHomePattern(t *testing.T) {
	for _, c := range []struct {
		pattern, home string
		want          bool
	}{
		{"https://h2.example.com", "https://h2.example.com", true},
		{"https://h2.example.com/", "https://H2.example.com:443/pool", true},
		{"https://h2.example.com:9333", "https://h2.example.com:9333", true},
		{"https://h2.example.com:9333", "https://h2.example.com", false},
		{"https://h2.example.com", "http://h2.example.com", false},
		{"https://h2.example.com", "https://h2.example.com.evil.test", false},
		{"https://h2.example.com", "https://evilh2.example.com", false},
		{"https://*.example.com", "https://h2.example.com", true},
		{"https://*.example.com", "https://a.b.example.com", true},
		{"https://*.example.com", "https://example.com", false},
		{"https://*.example.com", "https://.example.com", false},
		{"https://*.example.com", "https://evilexample.com", false},
		{"https://*.example.com", "https://h2.example.com:9333", false},
		{"http://[::1]:9333", "http://[::1]:9333", true},
	} {
		p, err := parseHomePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(c.home)
		if err != nil {
			t.Fatal(err)
		}
		if p.matches(u) != c.want {
			t.Errorf("%s for %s: %v", c.pattern, c.home, !c.want)
		}
	}
}

// TestWhereAClientGoes: the address of a home is somebody else's word.
func TestWhereAClientGoes(t *testing.T) {
	for _, c := range []struct {
		base, token, trust, home string
		goes                     bool
	}{
		{"http://127.0.0.1:9333", "", "", "http://10.0.0.2:9333", true},
		{"http://127.0.0.1:9333", "secret", "", "http://10.0.0.2:9333", false},
		{"http://127.0.0.1:9333", "secret", "http://10.0.0.2:9333", "http://10.0.0.2:9333", true},
		{"http://127.0.0.1:9333", "secret", "", "http://127.0.0.1:9334", false}, // another user's, perhaps
		{"https://h1", "", "", "https://h2", true},
		{"https://h1", "", "", "http://h2", false},
		{"https://h1", "", "http://h2", "http://h2", true},
		{"https://h1", "", "", "file:///etc/passwd", false},
		{"https://h1", "", "", "https://user:x@h2", false},
		{"https://h1", "", "", "://", false},
	} {
		base, err := url.Parse(c.base)
		if err != nil {
			t.Fatal(err)
		}
		client := &client{sidecarAt: &sidecarAt{base: base}, token: c.token}
		if c.trust != "" {
			p, err := parseHomePattern(c.trust)
			if err != nil {
				t.Fatal(err)
			}
			client.trust = append(client.trust, p)
		}
		refused := &refusedError{problem: *api.Refuse(api.CodeWrongHome, "elsewhere").With("location", c.home)}
		refusal := &exitError{exitRefused, refused}
		if home, _ := homeIn(refusal); home != c.home {
			t.Errorf("%s is not found in the refusal", c.home)
		}
		err = client.moveTo(c.home, refusal)
		if (err == nil) != c.goes || client.moved != c.goes || (client.base.String() == c.home) != c.goes {
			t.Errorf("%+v: %v, asks %s", c, err, client.base)
		}
		if err != nil && (exitCode(err) != exitRefused || !errors.As(err, &refused)) {
			t.Errorf("%+v: %v, want the refusal in it", c, err)
		}
	}
}

// host is a sidecar of which a test reads what it was asked for sessions.
type host struct {
	*httptest.Server
	asked []hostAsked
}

type hostAsked struct {
	authorization string
	manifest      api.Manifest
}

// hosts serves sidecars. Each sends the first request for a session on to the next one, the last one to
// that of the number back, and grants the second. If back is -1 the last one grants its first, too.
func hosts(t *testing.T, count, back int, more map[string]any) []*host {
	t.Helper()
	all := make([]*host, count)
	for i := range all {
		all[i] = &host{}
		all[i].Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked := hostAsked{authorization: r.Header.Get("Authorization")}
			if err := json.NewDecoder(r.Body).Decode(&asked.manifest); err != nil {
				t.Error(err)
			}
			all[i].asked = append(all[i].asked, asked)
			to := i + 1
			if to == count {
				to = back
			}
			if len(all[i].asked) > 1 || to < 0 {
				_ = json.NewEncoder(w).Encode(api.Session{SessionID: "ses_1", ProfileID: "shop_1"})
				return
			}
			p := api.Refuse(api.CodeWrongHome, "elsewhere").With("location", all[to].URL)
			for k, v := range more {
				p = p.With(k, v)
			}
			w.WriteHeader(p.Status)
			_ = json.NewEncoder(w).Encode(p)
		}))
		t.Cleanup(all[i].Close)
	}
	return all
}

// TestARequestForAnyProfileGoesOn: to whom the user trusts, with its place in the queue.
func TestARequestForAnyProfileGoesOn(t *testing.T) {
	const secret = "0123456789abcdef"
	turn := map[string]any{"turn": "t1"}
	labelled, named := api.Manifest{Labels: map[string]string{"region": "us"}}, api.Manifest{ProfileID: "shop_1"}
	for _, c := range []struct {
		name     string
		manifest api.Manifest
		more     map[string]any
		token    string
		trusted  []int // by --trust-home
		back     int   // where the last of the three sends it
		asked    []int // how often each is asked
	}{
		{"without a token", labelled, turn, "", nil, -1, []int{1, 1, 1}},
		{"a token, and nobody is trusted", labelled, turn, secret, nil, -1, []int{1, 0, 0}},
		{"a token, and the second is trusted", labelled, turn, secret, []int{1}, -1, []int{1, 1, 0}},
		{"a token, and all are trusted", labelled, turn, secret, []int{1, 2}, -1, []int{1, 1, 1}},
		{"back to the one of --url", labelled, turn, secret, []int{1, 2}, 0, []int{2, 1, 1}},
		{"a named profile has one home", named, nil, "", nil, -1, []int{1, 1, 0}},
		{"a named profile, a token, and nobody is trusted", named, nil, secret, nil, -1, []int{1, 0, 0}},
	} {
		all := hosts(t, 3, c.back, c.more)
		flags := clientFlags{URL: all[0].URL}
		for _, i := range c.trusted {
			flags.TrustHome = append(flags.TrustHome, all[i].URL)
		}
		authorization := ""
		if c.token != "" {
			authorization = "Bearer " + c.token
			flags.TokenFile = filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(flags.TokenFile, []byte(c.token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		client, err := flags.client()
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = client.Acquire(t.Context(), c.manifest)
		total := 0
		for i, h := range all {
			if len(h.asked) != c.asked[i] {
				t.Errorf("%s: sidecar %d was asked %d times, want %d", c.name, i, len(h.asked), c.asked[i])
			}
			for n, asked := range h.asked {
				if asked.authorization != authorization {
					t.Errorf("%s: sidecar %d was shown %q", c.name, i, asked.authorization)
				}
				if want, _ := c.more["turn"].(string); i+n > 0 && asked.manifest.Turn != want {
					t.Errorf("%s: sidecar %d was asked with the turn %q, want %q", c.name, i, asked.manifest.Turn, want)
				}
			}
			total += c.asked[i]
		}
		if granted := total > 2; granted != (err == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.token != "" && err != nil && (!strings.Contains(err.Error(), "--trust-home") || exitCode(err) != exitRefused) {
			t.Errorf("%s: %v does not say what to add", c.name, err)
		}
	}
}
