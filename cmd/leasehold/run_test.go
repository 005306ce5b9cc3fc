package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"leasehold/launcher/principal"
)

// soundConfig are settings that are accepted. The tests change single ones.
func soundConfig() RunConfig {
	return RunConfig{Listen: "127.0.0.1:9333", NATSListen: "127.0.0.1:4333", EvidenceStore: ownNATS, LeaseTTL: 30 * time.Second, HomeTimeout: time.Hour, OrphanTimeout: time.Minute}
}

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestComplete(t *testing.T) {
	off := false
	for name, one := range map[string]struct {
		config   func(*RunConfig)
		env      []string
		data     string
		profiles string
		headless bool
	}{
		"the user's home":     {env: []string{"HOME", "/h"}, data: "/h/.local/state/leasehold", profiles: "/h/.local/state/leasehold/profiles", headless: true},
		"a state directory":   {env: []string{"HOME", "/h", "XDG_STATE_HOME", "/s"}, data: "/s/leasehold", profiles: "/s/leasehold/profiles", headless: true},
		"a relative one":      {env: []string{"HOME", "/h", "XDG_STATE_HOME", "s"}, data: "/h/.local/state/leasehold", profiles: "/h/.local/state/leasehold/profiles", headless: true},
		"an X display":        {env: []string{"HOME", "/h", "DISPLAY", ":0"}, data: "/h/.local/state/leasehold", profiles: "/h/.local/state/leasehold/profiles"},
		"a Wayland display":   {env: []string{"HOME", "/h", "WAYLAND_DISPLAY", "w"}, data: "/h/.local/state/leasehold", profiles: "/h/.local/state/leasehold/profiles"},
		"windows without one": {config: func(c *RunConfig) { c.Headless = &off }, env: []string{"HOME", "/h"}, data: "/h/.local/state/leasehold", profiles: "/h/.local/state/leasehold/profiles"},
		"directories given":   {config: func(c *RunConfig) { c.DataDir, c.ProfilesDir = "/d", "/p" }, data: "/d", profiles: "/p", headless: true},
		"only the data given": {config: func(c *RunConfig) { c.DataDir = "/d" }, data: "/d", profiles: "/d/profiles", headless: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := soundConfig()
			if one.config != nil {
				one.config(&c)
			}
			got, err := c.Complete(environment(one.env...))
			if err != nil {
				t.Fatal(err)
			}
			if got.DataDir != one.data || got.ProfilesDir != one.profiles || *got.Headless != one.headless {
				t.Errorf("got %s, %s, headless %v; want %s, %s, %v", got.DataDir, got.ProfilesDir, *got.Headless, one.data, one.profiles, one.headless)
			}
		})
	}
}

func TestCompleteRefuses(t *testing.T) {
	if _, err := soundConfig().Complete(environment()); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("no home: %v, want exit code 2 and the flag", err)
	}
}

func TestReviewWhen(t *testing.T) {
	for value, ok := range map[string]bool{"downloads": true, "closed_cleanly=no": true, "dialog": false, "downloads=never": false} {
		c := soundConfig()
		c.DataDir, c.ReviewWhen = "/d", []string{value}
		_, err := c.Complete(environment())
		if ok != (err == nil) || err != nil && (exitCode(err) != exitUsage || !strings.Contains(err.Error(), "--review-when")) {
			t.Errorf("%s: %v", value, err)
		}
	}
	for gets, asked := range map[string]int{"signs": 0, "ask": 1} {
		if all, err := (RunConfig{GETs: gets}).cautions(); err != nil || len(all) != asked || asked == 1 && all[0].Fact != "gets_after_action_since_safe_checkpoint" {
			t.Errorf("--gets %s: %v, %v", gets, all, err)
		}
	}
}

// TestAdvertisingNeedsProofs: whoever comes through a proxy has the proxy's user. So where others
// come, and where a token is asked for, the sidecar's own user is nobody by the connection alone.
func TestAdvertisingNeedsProofs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url              string
		alone, withToken bool // whether it is accepted
		others           bool // whether the user of a connection proves nothing by itself
	}{
		{"", true, true, false},
		{"http://127.0.0.1:9333", true, true, false},
		{"http://localhost:9333/x", true, true, false},
		{"https://localhost", false, true, true}, // something speaks TLS for the sidecar
		{"https://browsers.example.com", false, true, true},
		{"http://browsers.example.com", false, false, true},
		{"http://10.0.0.1:9333", false, false, true},
	} {
		config := soundConfig()
		config.DataDir, config.AdvertiseURL = "/d", c.url
		if _, err := config.Complete(environment()); (err == nil) != c.alone {
			t.Errorf("%q alone: %v", c.url, err)
		}
		config.TokenFile = file
		if _, err := config.Complete(environment()); (err == nil) != c.withToken {
			t.Errorf("%q with a token: %v", c.url, err)
		}
		config.PlainText = true
		if _, err := config.Complete(environment()); err != nil {
			t.Errorf("%q with a token, where something else encrypts: %v", c.url, err)
		}
		for token, others := range map[string]bool{"": c.others, "0123456789abcdef": true} {
			config.Token, config.TokenFile = token, ""
			if token != "" {
				config.TokenFile = file
			}
			g, err := config.gate(zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			own := uint32(os.Geteuid())
			if p, err := g.Identify(principal.Proofs{UID: &own}); (err != nil) != others {
				t.Errorf("%q, with the token %q: the own user is %v, %v", c.url, token, p, err)
			}
		}
	}
}

// TestOthersAreNotSentToThemselves: beside a NATS of other hosts the sidecar says how these
// reach it, or that they do not.
func TestOthersAreNotSentToThemselves(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const here, there = "nats://127.0.0.1:4222", "tls://nats-1.example.com"
	for _, c := range []struct {
		nats, listen, advertise string
		ok                      bool
		told                    string
	}{
		{"", "127.0.0.1:9333", "", true, ""},
		{here, "127.0.0.1:9333", "", true, ""},
		{"nats://localhost:4222, nats://[::1]:4222", "127.0.0.1:9333", "", true, ""},
		{there, "127.0.0.1:9333", "", false, "http://127.0.0.1:9333 is"},
		{here + "," + there, "localhost:9333", "", false, "http://localhost:9333 is"},
		{there, "0.0.0.0:9333", "", false, "http://127.0.0.1:9333 is"},
		{there, "[::]:9333", "http://[::1]:9333", false, "http://[::1]:9333 is"},
		{there, "127.0.0.1:9333", "http://localhost:9333/x", false, "http://localhost:9333/x is"},
		{there, "10.0.0.1:9333", "", true, ""},
		{there, "0.0.0.0:9333", "http://10.0.0.1:9333", true, ""},
		{there, "127.0.0.1:9333", "none", true, ""},
		{"", "127.0.0.1:9333", "none", true, ""},
		{there, "127.0.0.1:9333", "nonsense", false, "nonsense"},
	} {
		config := soundConfig()
		config.DataDir, config.NATSURL, config.Listen, config.AdvertiseURL = "/d", c.nats, c.listen, c.advertise
		config.TokenFile, config.PlainText = file, true
		_, err := config.Complete(environment())
		if (err == nil) != c.ok || err != nil && (exitCode(err) != exitUsage || !strings.Contains(err.Error(), c.told) || !strings.Contains(err.Error(), "--advertise-url")) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestListenNeedsToken: without a token the sidecar listens only on addresses that no
// other host can reach, and without TLS only where that is said.
func TestListenNeedsToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("  0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, open := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "localhost:0": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "10.0.0.1:1": false, "example.com:1": false, "localhost.example.com:1": false,
	} {
		c := soundConfig()
		c.DataDir, c.Listen = "/d", address
		if _, err := c.Complete(environment()); (err == nil) != open {
			t.Errorf("%s without a token: %v", address, err)
		}
		c.TokenFile = file
		if _, err := c.Complete(environment()); (err == nil) != open || err != nil && !strings.Contains(err.Error(), "--insecure-plaintext") {
			t.Errorf("%s with a token and without TLS: %v", address, err)
		}
		c.PlainText = true
		got, err := c.Complete(environment())
		if err != nil {
			t.Errorf("%s with a token: %v", address, err)
		} else if got.Token != "0123456789abcdef" {
			t.Errorf("token %q", got.Token)
		}
	}
	for _, address := range []string{"", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:-1"} {
		c := soundConfig()
		c.DataDir, c.Listen = "/d", address
		if _, err := c.Complete(environment()); exitCode(err) != exitUsage {
			t.Errorf("%q: %v, want it refused", address, err)
		}
	}
}

func TestExitCode(t *testing.T) {
	for want, err := range map[int]error{
		exitDone:    nil,
		exitFailure: errors.New("x"),
		exitNATS:    errors.Join(exitWith(exitNATS, "x"), errors.New("y")),
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"plain", "a\x1b]0;t\x07b", "a\u009b31m", "\u202eevil", "a\xffb", "tab\tline\nend", "日本 é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := printable(s)
		if !utf8.ValidString(got) {
			t.Errorf("%q: %q is not UTF-8", s, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
				t.Errorf("%q: %q still holds %U", s, got, r)
			}
		}
		if again := printable(got); again != got {
			t.Errorf("%q: not stable: %q, then %q", s, got, again)
		}
	})
}

func FuzzReadSettings(f *testing.F) {
	known := []string{"cooldown", "listen"}
	for _, s := range []string{"", "listen: a", "listen: 1\ncooldown: true", "x: y", "- a", "listen: [", "listen: {a: b}", "a: &x [*x]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := readSettings(strings.NewReader(s), known)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error of several lines: %q", err)
		}
		for key := range got {
			if key != "listen" && key != "cooldown" {
				t.Errorf("%q: unknown key %q went through", s, key)
			}
		}
	})
}
