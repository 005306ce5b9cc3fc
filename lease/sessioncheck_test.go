package lease

import (
	"strings"
	"testing"
)

func TestSessionChecksAreValidated(t *testing.T) {
	for _, c := range []SessionCheck{
		{URL: "https://shop.example/api/me"}, {URL: "http://127.0.0.1:8080/", Status: 204}, {URL: "https://shop.example/me?x=1", Status: 403, Text: "ann"},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for what, c := range map[string]SessionCheck{
		"url": {}, "complete": {URL: "/me"}, "such as": {URL: "file:///etc/passwd"}, "without user": {URL: "https://ann:secret@shop.example/"},
		"fragment": {URL: "https://shop.example/#/me"}, "status 503": {URL: "https://shop.example/", Status: 503}, "status 101": {URL: "https://shop.example/", Status: 101},
		"256 bytes": {URL: "https://shop.example/", Text: strings.Repeat("x", 257)}, "url \"https": {URL: "https://shop.example/" + strings.Repeat("x", 2048)},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v, want something of %q", c, err, what)
		}
	}
	if (SessionCheck{}).WantStatus() != 200 || (SessionCheck{Status: 204}).WantStatus() != 204 {
		t.Error("the status that proves it is another one")
	}
}
