package redact_test

import (
	"net/url"
	"strings"
	"testing"

	"leasehold/evidence/redact"
)

const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"

func TestURL(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "https://example.com/account/campaigns", "https://example.com/account/campaigns"},
		{"harmless query", "https://example.com/s?q=red+shoes&page=2#top", "https://example.com/s?q=REDACTED&page=2#top"},
		{"empty", "", ""},
		{"about", "about:blank", "about:blank"},
		{"port is no scheme", "localhost:8080/x", "localhost:8080/x"},
		{"token", "https://a.example/?token=s3cret", "https://a.example/?token=REDACTED"},
		{"several", "https://a.example/cb?code=s3cret&x=1&state=s3cret", "https://a.example/cb?code=REDACTED&x=1&state=REDACTED"},
		{"word of a name", "https://a.example/?reset_key=s3cret&monkey=7", "https://a.example/?reset_key=REDACTED&monkey=7"},
		{"camel case", "https://a.example/?accessToken=s3cret&authCode=s3cret", "https://a.example/?accessToken=REDACTED&authCode=REDACTED"},
		{"upper case", "https://a.example/?SIG=s3cret", "https://a.example/?SIG=REDACTED"},
		{"escaped name", "https://a.example/?pass%77ord=s3cret", "https://a.example/?pass%77ord=REDACTED"},
		{"name in brackets", "https://a.example/?user[password]=s3cret", "https://a.example/?user[password]=REDACTED"},
		{"array", "https://a.example/?token[]=s3cret", "https://a.example/?token[]=REDACTED"},
		{"number after the word", "https://a.example/?key1=s3cret", "https://a.example/?key1=REDACTED"},
		{"value with an equals sign", "https://a.example/?token=czNjcmV0==", "https://a.example/?token=REDACTED"},
		{"value with a slash", "https://a.example/?token=a/s3cret", "https://a.example/?token=REDACTED"},
		{"value with a question mark", "https://a.example/?token=a?s3cret", "https://a.example/?token=REDACTED"},
		{"empty value", "https://a.example/?token=&x=1", "https://a.example/?token=&x=1"},
		{"jwt by its looks", "https://a.example/?x=" + jwt, "https://a.example/?x=REDACTED"},
		{"jwt in the path", "https://a.example/verify/" + jwt + "/ok", "https://a.example/verify/REDACTED/ok"},
		{"jsessionid", "https://a.example/x;jsessionid=s3cret/y", "https://a.example/x;jsessionid=REDACTED/y"},
		{"user and password", "https://user:s3cret@a.example/x", "https://a.example/x"},
		{"user with an at sign", "https://user@s3cret@a.example/x", "https://a.example/x"},
		{"at sign in the path", "https://a.example/@someone", "https://a.example/@someone"},
		{"mail", "mailto:someone@a.example", "mailto:someone@a.example"},
		{"no slashes", "https:user:s3cret@a.example/", "https:a.example/"},
		{"backslashes", `https:\\user:s3cret@a.example\x`, `https:\\a.example\x`},
		{"relative", "//user:s3cret@a.example/x?key=s3cret", "//a.example/x?key=REDACTED"},
		{"fragment", "https://a.example/#access_token=s3cret&expires_in=3600", "https://a.example/#access_token=REDACTED&expires_in=3600"},
		{"fragment route", "https://a.example/#/login?token=s3cret&x=1", "https://a.example/#/login?token=REDACTED&x=1"},
		{"second fragment", "https://a.example/#a#token=s3cret", "https://a.example/#a#token=REDACTED"},
		{"newline in a name", "https://a.example/?tok\nen=s3cret", "https://a.example/?token=REDACTED"},
		{"data", "data:text/html,<b>s3cret</b>", "data:text/html,REDACTED"},
		{"data without a type", "data:s3cret", "data:REDACTED"},
		{"javascript", "JavaScript:f('s3cret')", "JavaScript:REDACTED"},
		{"blob", "blob:https://u:s3cret@a.example/1-2", "blob:https://a.example/1-2"},
		{"token in the path", "https://a.example/reset/a8f5f167f44f4964e6c998dee827110c/ok", "https://a.example/reset/REDACTED/ok"},
		{"token with an ending", "https://a.example/app.a8f5f167f44f4964.js", "https://a.example/app.REDACTED.js"},
		{"token under any name", "https://a.example/?ref=a8f5f167f44f4964&x=1", "https://a.example/?ref=REDACTED&x=1"},
		{"token after a sign", "https://a.example/?ref=ab-a8f5f167f44f4964", "https://a.example/?ref=REDACTED"},
		{"token in a fragment", "https://a.example/#a8f5f167f44f4964", "https://a.example/#REDACTED"},
		{"token in a path in a value", "https://a.example/?next=/reset/a8f5f167f44f4964", "https://a.example/?next=REDACTED"},
		{"long word", "https://a.example/internationalization/?q=internationalization", "https://a.example/internationalization/?q=REDACTED"},
		{"long number", "https://a.example/orders/1234567890123456", "https://a.example/orders/1234567890123456"},
		{"slug", "https://a.example/2026-06-18-the-10-best-shoes", "https://a.example/2026-06-18-the-10-best-shoes"},
		{"host like a token", "https://d1a8f5f167f44f4964e6.example/x", "https://d1a8f5f167f44f4964e6.example/x"},
		{"escapes", "https://a.example/%E4%B8%AD%E6%96%87%E5%AD%97%E7%AC%A6%E4%B8%B2", "https://a.example/%E4%B8%AD%E6%96%87%E5%AD%97%E7%AC%A6%E4%B8%B2"},
		{"typed without a name", "https://a.example/?red+shoes", "https://a.example/?REDACTED"},
		{"typed, in a route", "https://a.example/#/find?q=red+shoes", "https://a.example/#/find?q=REDACTED"},
		{"typed, as a fragment", "https://a.example/#red%20shoes", "https://a.example/#REDACTED"},
		{"text fragment", "https://a.example/#:~:text=red%20shoes", "https://a.example/#:~:text=REDACTED"},
		{"token as a name", "https://a.example/?a8f5f167f44f4964=", "https://a.example/?REDACTED="},
		{"numbers", "https://a.example/?order=20260618&pin=1234&card=4111&otp[]=492817&big=123456789", "https://a.example/?order=20260618&pin=REDACTED&card=REDACTED&otp[]=REDACTED&big=REDACTED"},
		{"view-source", "view-source:https://a.example/?sid=s3cret", "view-source:https://a.example/?sid=REDACTED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := redact.URL(c.in)
			if got != c.want {
				t.Errorf("URL(%q)\n got %q\nwant %q", c.in, got, c.want)
			}
			if again := redact.URL(got); again != got {
				t.Errorf("not stable: %q becomes %q", got, again)
			}
		})
	}
}

func TestURLInsideOfURLs(t *testing.T) {
	in := "https://a.example/login?next=" + url.QueryEscape("https://u:s3cret@b.example/?x=1&token=s3cret")
	for range 3 {
		got := redact.URL(in)
		if strings.Contains(got, "s3cret") || strings.Contains(got, "b.example") {
			t.Fatalf("URL(%q) = %q", in, got)
		}
		in = "https://a.example/login?next=" + url.QueryEscape(in)
	}
}

// Pages choose their URLs: redacting one must not take time or space far beyond its
// length.
func TestURLIsNotSlowed(t *testing.T) {
	for _, part := range []string{"=", "&", "?", "#", "a=", "%", "%3D", "%25", "a=%3D&", "//@", "blob:", "http://", " ", "eyJ.", ";a=//@?"} {
		in := "https://a.example/?x=" + strings.Repeat(part, 20_000)
		if got := redact.URL(in); len(got) > 10*len(in) {
			t.Errorf("%q: %d bytes become %d", part, len(in), len(got))
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, s := range []string{
		"https://u:p@a.example/x;sid=1?token=a&next=https%3A%2F%2Fb%2F%3Fkey%3D1#access_token=x", "data:text/html,x", "javascript:x",
		"blob:blob:blob:https://a", "?a=b=c=d=e=f=g=h=i", "//@", "%", "?%=%", "view-source:view-source:?x=%25%32%35", "a?" + jwt, "?x= y ", "#?#?",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := redact.URL(s)
		if twice := redact.URL(once); twice != once {
			t.Fatalf("URL(%q) = %q, and of that %q", s, once, twice)
		}
		secret := redact.URL("https://a.example/?token=Pl4nted&x=" + url.QueryEscape(s))
		if strings.Contains(secret, "Pl4nted") && !strings.Contains(s, "Pl4nted") {
			t.Fatalf("%q has the secret", secret)
		}
	})
}
