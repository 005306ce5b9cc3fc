package principal

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"leasehold/internal/test/nofiles"
	"leasehold/internal/test/testlog"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, id string
		want        bool
	}{
		{"shop_1", "shop_1", true}, {"shop_1", "shop_10", false}, {"shop_*", "shop_", true}, {"shop_*", "shop_1", true}, {"shop_*", "xshop_1", false},
		{"*", "a", true}, {"*_1", "shop_1", true}, {"*_1", "shop_1x", false}, {"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "axbxc", true},
		{"a*b*c", "acb", false}, {"**", "x", true}, {"shop.1", "shopx1", false}, {"Shop_*", "shop_1", false}, {"a*bc*c", "abc", false}, {"a*bc*c", "abcc", true},
	} {
		if got := (Patterns{"never", c.pattern}).Match(c.id); got != c.want {
			t.Errorf("%q of %q: %v", c.pattern, c.id, got)
		}
	}
	if (Patterns{}).Match("a") || Patterns(nil).Match("") {
		t.Error("no pattern matches something")
	}
}

// TestAPatternMatchesWhatItStandsFor compares with ids that are made from a pattern.
func TestAPatternMatchesWhatItStandsFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.StringMatching(`[ab]{0,3}`), 1, 4).Draw(t, "parts")
		id := parts[0]
		for _, p := range parts[1:] {
			id += rapid.StringMatching(`[abc]{0,3}`).Draw(t, "between") + p
		}
		if pattern := strings.Join(parts, "*"); !matches(pattern, id) {
			t.Fatalf("%q does not match %q", pattern, id)
		}
	})
}

func TestEveryRoleMayWhatTheOneInItMay(t *testing.T) {
	for _, c := range [][2]Role{{Reviewer, Viewer}, {Operator, Reviewer}, {Operator, Worker}, {Admin, Operator}} {
		for _, row := range Table() {
			if row.Role != c[1] {
				continue
			}
			for _, right := range row.Rights {
				if !c[0].Has(right) {
					t.Errorf("a %s may not %s, which a %s may", c[0], right, c[1])
				}
			}
		}
	}
	nobody := Principal{Profiles: EveryProfile}
	for _, row := range Table() {
		for _, right := range row.Rights {
			if nobody.May(right, "p") || Role("root").Has(right) {
				t.Errorf("nobody may %s", right)
			}
			if (Principal{Role: row.Role}).May(right, "p") != (right == Describe) {
				t.Errorf("%s without patterns: %s", row.Role, right)
			}
		}
	}
}

func TestWhoOpenedASession(t *testing.T) {
	a, b, admin := Principal{Name: "a", Role: Worker}, Principal{Name: "b", Role: Admin}, Principal{Name: "c", Role: Admin}
	if !a.Is("a") || b.Is("a") || a.Is("") || !admin.Is("") || (Principal{}).Is("") {
		t.Error("a session is somebody else's")
	}
}

func TestParseUser(t *testing.T) {
	for text, want := range map[string]string{
		"1000=worker:shop_*": "uid:1000 worker [shop_*]", "0=admin": "uid:0 admin [*]", "7=viewer:a:b_*": "uid:7 viewer [a b_*]", " 7 = admin:x": "uid:7 admin [x]",
	} {
		p, err := ParseUser(text)
		if got := fmt.Sprint(p.Name, " ", p.Role, " ", p.Profiles); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"": "want UID=ROLE", "1000": "want UID=ROLE", "bob=worker:*": "want UID=ROLE", "-1=admin": "want UID=ROLE", "4294967296=admin": "want UID=ROLE", "1=root:*": "want one of worker, viewer",
		"1=worker": "no profiles", "1=worker:": "no profiles", "1=worker:a/b": "want 1 to 128", "65534=admin": "user namespace", "1=admin:": "",
	} {
		_, err := ParseUser(text)
		if says == "" {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

func entry(name, token, role, profiles string) string {
	return fmt.Sprintf("  - {name: %s, sha256: \"%x\", role: %s, profiles: [%s]}\n", name, Hash(token), role, profiles)
}

func TestBadFilesAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		"tokens: 5": "want a list tokens", "token: []": "want a list tokens", "tokens: [{name: a, nme: b}]": "want a list tokens",
		"tokens:\n" + entry("a:b", "t", "worker", "x"):                                                                           `name "a:b"`,
		"tokens:\n" + entry("token-file", "t", "worker", "x"):                                                                    "--token-file",
		"tokens:\n" + entry("a", "t", "boss", "x"):                                                                               `role "boss"`,
		"tokens:\n" + entry("a", "t", "worker", ""):                                                                              "no profiles",
		"tokens:\n" + entry("a", "t", "worker", `"a b"`):                                                                         "profiles",
		"tokens: [{name: a, sha256: abc, role: worker, profiles: [x]}]":                                                          "64 hexadecimal digits",
		"tokens: [{name: a, sha256: the-token-itself-by-mistake, role: worker, profiles: [x]}]":                                  "64 hexadecimal digits",
		"tokens:\n" + entry("a", "t", "worker", "x") + entry("a", "u", "admin", "x"):                                             "one name is one principal",
		"tokens:\n" + entry("a", "t", "worker", "x") + entry("b", "t", "worker", "x"):                                            "the same token",
		"certificates: [{name: a, role: worker, profiles: [x]}]":                                                                 "want subject",
		"certificates: [{name: a, subject: c, role: worker, profiles: [x]}, {name: b, subject: c, role: worker, profiles: [x]}]": "named twice",
	} {
		_, err := parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
		if err != nil && strings.Contains(err.Error(), "the-token-itself") {
			t.Errorf("the error quotes the file: %v", err)
		}
	}
	k, err := parse(nil)
	if err != nil || len(k.tokens)+len(k.certificates) > 0 {
		t.Errorf("an empty file: %+v, %v", k, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("tokens:\n" + entry("a", "t", "worker", "shop_*") + "certificates:\n  - {name: b, subject: c, role: admin, profiles: [\"*\"]}\n"))
	f.Add([]byte("tokens: &a [*a]"))
	f.Add([]byte("tokens: [{name: [}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parse(b)
		if err != nil {
			return
		}
		for _, e := range k.tokens {
			if CheckName(e.p.Name) != nil || len(With(Describe)) == 0 || e.p.Role == "" || len(e.p.Profiles) == 0 {
				t.Errorf("%+v", e)
			}
		}
	})
}

func FuzzParseUser(f *testing.F) {
	for _, s := range []string{
		"1000=worker:shop_*", "", "1000", "1000=", "=worker:*", "1000=worker", "1000=worker:", "1000=nobody:*", "-1=worker:*", "4294967296=worker:*",
		"65534=viewer:*", "0=admin:*", "1000=worker:a,b,*c*", "1000=worker:../x", "1000=worker:*=viewer:*", " 1000 = worker : * ",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParseUser(text); err == nil && (p.UID == nil || *p.UID == overflowUID || p.Role == "" || len(p.Profiles) == 0) {
			t.Errorf("%q: %+v", text, p)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestProofs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, "tokens:\n"+entry("a", "old-a", "worker", "shop_*")+entry("a", "new-a", "worker", "shop_*")+entry("b", "of-b", "viewer", "x")+
		"certificates:\n  - {name: c, subject: runner, role: worker, profiles: [x]}\n  - {name: d, subject: \"spiffe://h/d\", role: worker, profiles: [x]}\n")
	named, err := ParseUser("7=worker:x")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Own: 1000, Users: []Principal{named}, Token: "of-token-file", File: path, Log: zerolog.Nop()}
	g, err := NewGate(o)
	if err != nil {
		t.Fatal(err)
	}
	o.OnlyNamedUsers = true
	strict, err := NewGate(o)
	if err != nil {
		t.Fatal(err)
	}
	uid := func(n uint32) *uint32 { return &n }
	cert := func(cn string, uris ...string) *x509.Certificate {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: cn}}
		for _, text := range uris {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		return c
	}
	for _, c := range []struct {
		name   string
		gate   *Gate
		proofs Proofs
		want   string // the name, or what the refusal says
	}{
		{"own user", g, Proofs{UID: uid(1000)}, "uid:1000"},
		{"root", g, Proofs{UID: uid(0)}, "uid:0"},
		{"named user", g, Proofs{UID: uid(7)}, "uid:7"},
		{"another user", g, Proofs{UID: uid(8)}, "!--allow-uid 8=worker:PATTERN"},
		{"another host", g, Proofs{}, "!show a token"},
		{"the kernel says nothing", g, Proofs{NoUID: errors.New("no netlink")}, "!no netlink"},
		{"a token", g, Proofs{Tokens: []string{"old-a"}}, "a"},
		{"the next token of the same", g, Proofs{Tokens: []string{"new-a"}}, "a"},
		{"both", g, Proofs{Tokens: []string{"old-a", "new-a"}}, "a"},
		{"two of two", g, Proofs{Tokens: []string{"old-a", "of-b"}}, "!two tokens"},
		{"a right and a wrong one", g, Proofs{Tokens: []string{"old-a", "x"}}, "!nobody's"},
		{"a hash is no token", g, Proofs{Tokens: []string{fmt.Sprintf("%x", Hash("old-a"))}}, "!nobody's"},
		{"the one of --token-file", g, Proofs{Tokens: []string{"of-token-file"}}, TokenFileName},
		{"a token before the user", g, Proofs{Tokens: []string{"of-b"}, UID: uid(1000)}, "b"},
		{"a wrong token of the own user", g, Proofs{Tokens: []string{"x"}, UID: uid(1000)}, "!nobody's"},
		{"an empty token of the own user", g, Proofs{Tokens: []string{""}, UID: uid(1000)}, "!nobody's"},
		{"a certificate", g, Proofs{Certificate: cert("runner"), UID: uid(1000)}, "c"},
		{"a URI", g, Proofs{Certificate: cert("x", "spiffe://h/x", "spiffe://h/d")}, "d"},
		{"two in one", g, Proofs{Certificate: cert("runner", "spiffe://h/d")}, "!of c and of d"},
		{"nobody's certificate, of the own user", g, Proofs{Certificate: cert("x"), UID: uid(1000)}, "!no entry"},
		{"a certificate without names", g, Proofs{Certificate: cert("")}, "!no entry"},
		{"a token before a certificate", g, Proofs{Certificate: cert("x"), Tokens: []string{"of-b"}}, "b"},
		{"own user through a proxy", g, Proofs{UID: uid(1000), Proxied: true}, "!through a proxy"},
		{"named user through a proxy", g, Proofs{UID: uid(7), Proxied: true}, "!through a proxy"},
		{"a token through a proxy", g, Proofs{UID: uid(1000), Proxied: true, Tokens: []string{"of-b"}}, "b"},
		{"advertised: own user", strict, Proofs{UID: uid(1000)}, "!proves nothing by itself"},
		{"advertised: root", strict, Proofs{UID: uid(0)}, "!proves nothing by itself"},
		{"advertised: named user", strict, Proofs{UID: uid(7)}, "uid:7"},
	} {
		p, err := c.gate.Identify(c.proofs)
		says, refused := strings.CutPrefix(c.want, "!")
		var unknown *UnknownError
		switch {
		case !refused && (err != nil || p.Name != c.want):
			t.Errorf("%s: %v, %v, want %s", c.name, p, err, c.want)
		case refused && (!errors.As(err, &unknown) || !strings.Contains(err.Error(), says) || p.Name != ""):
			t.Errorf("%s: %v, %v, want a refusal with %q", c.name, p, err, says)
		case slices.Contains([]string{"uid:0", "uid:1000", TokenFileName}, c.want) && p.Role != Admin:
			t.Errorf("%s: the role is %s, want admin", c.name, p.Role)
		case !refused && c.proofs.Proxied && p.UID != nil:
			t.Errorf("%s: the proxy's user is taken for the caller's", c.name)
		}
	}
}

func TestTheFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, "tokens:\n"+entry("a", "one", "worker", "x"))
	log := &testlog.Buffer{}
	g, err := NewGate(Options{File: path, Token: "fixed", Log: zerolog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	valid := func(when string, tokens ...string) {
		t.Helper()
		for _, token := range []string{"one", "two", "fixed"} {
			_, err := g.Identify(Proofs{Tokens: []string{token}})
			if want := strings.Contains(strings.Join(tokens, " "), token); (err == nil) != want {
				t.Errorf("%s: token %s: %v, want valid: %v", when, token, err, want)
			}
		}
	}
	valid("at first", "one", "fixed")
	write(t, path, "tokens:\n"+entry("bb", "two", "worker", "x"))
	valid("changed", "two", "fixed")
	if _, ok := g.Known(Principal{Name: "a"}); ok {
		t.Error("who was taken out is known")
	}
	write(t, path, "tokens: broken")
	valid("broken", "two", "fixed")
	if err := os.WriteFile(path, []byte("tokens:\n"+entry("a", "one", "worker", "x")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	valid("readable by others", "two", "fixed")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	valid("private again", "one", "fixed")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	valid("gone", "one", "fixed")
	write(t, path, "")
	valid("empty", "fixed")
	for text, times := range map[string]int{"cannot be used": 2, "cannot be read": 1, "read again": 3, "chmod 600": 1} {
		if n := strings.Count(log.String(), text); n != times {
			t.Errorf("%q is logged %d times, want %d:\n%s", text, n, times, log)
		}
	}
	for _, secret := range []string{"broken", fmt.Sprintf("%x", Hash("one"))} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log quotes the file:\n%s", log)
		}
	}
}

// TestWhoIsKnownLater: by the kind of proof that identified them, as long as the file has one.
func TestWhoIsKnownLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	const certificates = "certificates:\n  - {name: %s, subject: runner, role: reviewer, profiles: [x]}\n"
	write(t, path, "tokens:\n"+entry("c", "of-c", "reviewer", "x")+fmt.Sprintf(certificates, "c"))
	g, err := NewGate(Options{File: path, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	byToken, err := g.Identify(Proofs{Tokens: []string{"of-c"}})
	if err != nil {
		t.Fatal(err)
	}
	byCertificate, err := g.Identify(Proofs{Certificate: &x509.Certificate{Subject: pkix.Name{CommonName: "runner"}}})
	if err != nil {
		t.Fatal(err)
	}
	known := func(when string, token, certificate bool) {
		t.Helper()
		for p, want := range map[*Principal]bool{&byToken: token, &byCertificate: certificate} {
			if now, known := g.Known(*p); known != want || known && now.Role != p.Role {
				t.Errorf("%s: who showed %s is known: %v, as %+v", when, p.Proof, known, now)
			}
		}
	}
	known("both are there", true, true)
	write(t, path, fmt.Sprintf(certificates, "c"))
	known("without the token", false, true)
	write(t, path, "tokens:\n"+entry("c", "of-c", "reviewer", "x")+fmt.Sprintf(certificates, "another"))
	known("the certificate is another's", true, false)
}

// TestAFileThatCouldNotBeOpenedIsReadLater: without another edit.
func TestAFileThatCouldNotBeOpenedIsReadLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, "tokens:\n"+entry("a", "one", "worker", "x"))
	log := &testlog.Buffer{}
	g, err := NewGate(Options{File: path, Log: zerolog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "tokens:\n"+entry("a", "another", "worker", "x"))
	valid := func() bool {
		_, err := g.Identify(Proofs{Tokens: []string{"one"}})
		return err == nil
	}
	nofiles.During(t, func() {
		for range 2 {
			if !valid() {
				t.Error("a file that cannot be opened takes tokens out")
			}
		}
	})
	if valid() {
		t.Error("a token that was taken out stays valid, since the file could not be opened once")
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 1 {
		t.Errorf("that it cannot be read is logged %d times, want once:\n%s", n, log)
	}
}

func TestAFileThatOthersReadIsRefusedAtStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, "")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := NewGate(Options{File: path, Log: zerolog.Nop()}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("%v, want that it says chmod 600", err)
	}
}
