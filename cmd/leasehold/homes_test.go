package main

import (
	"errors"
	"net/url"
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
		if homeIn(refusal) != c.home {
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
