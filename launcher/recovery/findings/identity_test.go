package findings

import (
	"encoding/base64"
	"strings"
	"testing"
)

// token is a JSON web token with these claims. Its signature means nothing.
func token(claims string) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"HS256","typ":"JWT"}`) + "." + part(claims) + ".c2lnbmF0dXJl"
}

func TestFormOfValue(t *testing.T) {
	for want, values := range map[ValueForm][]string{
		ValueEmpty: {"", `""`},
		ValuePlain: {
			"dark", "en-US", "1", "true", "1763801234", "accepted_all", "necessary:1|ads:0", "{%22theme%22:%22dark%22}", "EUR", "a=1&b=2",
			"koyu-tema", "göster",
		},
		ValueMixed: {"a1", "user-42", "GA1.2.123456789.1690000000", "v2.1"},
		ValueRandom: {
			"5f2b8c1e9d3a4f60b7c8", "s%3AXq3Zr8-vT0kL2m9Pw4Yb.abc", "550e8400-e29b-41d4-a716-446655440000", "hT9xQmZpLrKvWbNcYdFg7s2A",
			"AbCdEfGhIjKlMnOpQrStUv", "eyJ0aGVtZSI6ImRhcmsiLCJ4IjoxfQ==",
		},
		ValueSigned: {token(`{"sub":"17"}`), token(`{}`)},
	} {
		for _, v := range values {
			if got := FormOfValue(v); got != want {
				t.Errorf("%q: form %d, want %d", v, got, want)
			}
		}
	}
}

func TestCookiesAreJudgedByTheirForm(t *testing.T) {
	for _, tt := range []struct {
		name string
		form CookieForm
		want Identity
	}{
		{"a session's, as frameworks set it", CookieForm{HTTPOnly: true, Secure: true, Session: true, Value: ValueRandom}, IdentityLikely},
		{"a short one that no script reads", CookieForm{HTTPOnly: true, Value: ValueMixed}, IdentityLikely},
		{"a web token that scripts read", CookieForm{Value: ValueSigned}, IdentityLikely},
		{"a host's own", CookieForm{Secure: true, Prefixed: true, Value: ValueRandom}, IdentityLikely},
		{"a word that no script reads", CookieForm{HTTPOnly: true, Value: ValuePlain}, IdentityMaybe},
		{"PHP's, which scripts may read", CookieForm{Session: true, Value: ValueRandom}, IdentityMaybe},
		{"a long one that the site set", CookieForm{BySite: true, Value: ValueRandom}, IdentityMaybe},
		{"a visitor's number", CookieForm{Value: ValueMixed}, IdentityNone},
		{"a visitor's long number", CookieForm{Value: ValueRandom}, IdentityNone},
		{"a theme", CookieForm{BySite: true, Value: ValuePlain}, IdentityNone},
		{"of a site inside others", CookieForm{HTTPOnly: true, Partitioned: true, Value: ValueRandom}, IdentityNone},
		{"an empty one", CookieForm{HTTPOnly: true, Value: ValueEmpty}, IdentityNone},
	} {
		if got := tt.form.Identity(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestSubjectOfValue(t *testing.T) {
	ann, later := token(`{"iss":"https://id.example","sub":"ann","exp":1}`), token(`{"iss":"https://id.example","sub":"ann","exp":2}`)
	if a := SubjectOfValue(ann); a == "" || a != SubjectOfValue(later) {
		t.Errorf("one account: %q, %q", a, SubjectOfValue(later))
	}
	for _, other := range []string{token(`{"iss":"https://id.example","sub":"bob"}`), token(`{"iss":"https://other.example","sub":"ann"}`)} {
		if s := SubjectOfValue(other); s == "" || s == SubjectOfValue(ann) {
			t.Errorf("another account: %q", s)
		}
	}
	for _, none := range []string{"", "a.b.c", token(`{}`), token(`{"sub":null}`), strings.Repeat("ey.", 3), "eyJhbGciOiJIUzI1NiJ9.W10.x"} {
		if s := SubjectOfValue(none); s != "" {
			t.Errorf("%q names %q", none, s)
		}
	}
}

func FuzzValues(f *testing.F) {
	f.Add("dark")
	f.Add(token(`{"sub":"17"}`))
	f.Add("%zz\xff")
	f.Fuzz(func(t *testing.T, value string) {
		if form := FormOfValue(value); SubjectOfValue(value) != "" && form != ValueSigned && !strings.Contains(value, "%") && !strings.Contains(value, "+") {
			t.Errorf("%q names a subject, and has form %d", value, form)
		}
	})
}
