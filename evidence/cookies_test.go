package evidence_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"leasehold/evidence"
)

const jar = `{"cookies":[
	{"name":"sid","value":"s3cret-1","domain":"a.example","path":"/","expires":1,"session":false},
	{"name":"lang","value":"en","domain":"a.example","path":"/"},
	{"name":"sid","value":"s3cret-2","domain":".b.example","path":"/x"}]}`

func digestOf(t *testing.T, cookies string, salt string) evidence.CookieDigests {
	t.Helper()
	b, err := evidence.CookieDigest(json.RawMessage(cookies), []byte(salt))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("s3cret")) {
		t.Errorf("a value is in it: %s", b)
	}
	var d evidence.CookieDigests
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCookieDigest(t *testing.T) {
	const salt = "0123456789abcdef"
	base := digestOf(t, jar, salt)
	if base.Cookies != 3 || len(base.Domains) != 2 || base.Domains["a.example"].Cookies != 2 || base.Domains[".b.example"].Cookies != 1 {
		t.Fatalf("counted %+v", base)
	}
	for _, c := range []struct {
		name, from, to string
		a, b           bool // whether the domains' digests stay
	}{
		{"expiry", `"expires":1`, `"expires":2`, true, true},
		{"value", "s3cret-1", "s3cret-9", false, true},
		{"path", `"/x"`, `"/y"`, true, false},
		{"name", "lang", "lung", false, true},
		{"partition", `"path":"/x"`, `"path":"/x","partitionKey":{"topLevelSite":"https://c.example"}`, true, false},
		{"bytes that move from name to value", `"lang","value":"en"`, `"lange","value":"n"`, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := digestOf(t, strings.Replace(jar, c.from, c.to, 1), salt)
			if a := d.Domains["a.example"] == base.Domains["a.example"]; a != c.a {
				t.Errorf("a.example the same: %v", a)
			}
			if b := d.Domains[".b.example"] == base.Domains[".b.example"]; b != c.b {
				t.Errorf(".b.example the same: %v", b)
			}
			if (d.Digest == base.Digest) != (c.a && c.b) {
				t.Error("the digest of all does not say the same")
			}
		})
	}
	var r struct {
		Cookies []json.RawMessage `json:"cookies"`
	}
	if err := json.Unmarshal([]byte(jar), &r); err != nil {
		t.Fatal(err)
	}
	r.Cookies[0], r.Cookies[2] = r.Cookies[2], r.Cookies[0]
	turned, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if digestOf(t, string(turned), salt).Digest != base.Digest {
		t.Error("the order of the cookies matters")
	}
	if digestOf(t, jar, "another salt, as long").Digest == base.Digest {
		t.Error("the salt does not matter")
	}
	if d := digestOf(t, `{"cookies":[]}`, salt); d.Cookies != 0 || len(d.Domains) != 0 {
		t.Errorf("no cookies: %+v", d)
	}
	for _, c := range []struct{ cookies, salt string }{{jar, "short"}, {jar, ""}, {"{", salt}, {`{"cookies":7}`, salt}} {
		if _, err := evidence.CookieDigest(json.RawMessage(c.cookies), []byte(c.salt)); err == nil {
			t.Errorf("CookieDigest(%.10q, %q) was not refused", c.cookies, c.salt)
		}
	}
}

func FuzzCookieDigest(f *testing.F) {
	f.Add([]byte(jar))
	f.Add([]byte(`{"cookies":[{"partitionKey":null},{}]}`))
	f.Fuzz(func(t *testing.T, cookies []byte) {
		_, _ = evidence.CookieDigest(cookies, make([]byte, 32))
	})
}
