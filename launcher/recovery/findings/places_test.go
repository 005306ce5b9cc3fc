package findings

import (
	"testing"

	"leasehold/checkpoint"
)

func TestSensitiveFrames(t *testing.T) {
	const page = "https://www.shop.co.uk/cart"
	task := Task{SensitiveURLs: []string{"widget.example/*/pay-now"}, SensitiveWords: []string{"ledger"}, ExpectedDomains: []string{"pay.example"}}
	for frame, want := range map[string]bool{
		"https://www.shop.co.uk/checkout":               true,
		"https://secure.shop.co.uk:8443/checkout/step1": true,
		"https://www.shop.co.uk/ledger":                 true,
		"https://www.shop.co.uk/app#/wallet":            true,
		"https://www.shop.co.uk/list":                   false,
		"https://other.co.uk/checkout":                  false, // co.uk is a public suffix, not a site
		"https://www.google.com/recaptcha/verify":       false,
		"https://js.stripe.com/v3/payment-element":      false,
		"https://ads.example/send":                      false,
		"https://pay.example/checkout":                  true, // the task is expected there
		"https://eu.pay.example/checkout":               true,
		"https://widget.example/de/pay-now":             true, // the task named it
		"https://widget.example/checkout":               false,
		"about:srcdoc":                                  false,
		"about:blank":                                   false,
		"data:text/html,<h1>checkout</h1>":              false,
		"":                                              false,
		"https://192.0.2.1/checkout":                    false,
	} {
		if got := SensitiveFrame(frame, page, task); got != want {
			t.Errorf("%s in %s: %v, want %v", frame, page, got, want)
		}
	}
	for _, c := range []struct {
		frame, page string
		want        bool
	}{
		{"http://127.0.0.1:8080/checkout", "http://127.0.0.1:9090/", true},
		{"http://127.0.0.2/checkout", "http://127.0.0.1/", false},
		{"http://localhost/checkout", "http://localhost/", true},
		{"https://a.github.io/checkout", "https://b.github.io/", false},
		{"https://a.example/checkout", "about:blank", false},
	} {
		if got := SensitiveFrame(c.frame, c.page, Task{}); got != c.want {
			t.Errorf("%s in %s: %v, want %v", c.frame, c.page, got, c.want)
		}
	}
}

func TestSensitiveSteps(t *testing.T) {
	for _, c := range []struct {
		step checkpoint.Entry
		want bool
	}{
		{checkpoint.Entry{Name: "open_list"}, false},
		{checkpoint.Entry{Name: "open_list", Sensitive: true}, true},
		{checkpoint.Entry{Name: "open_list", Action: "submit"}, true},
		{checkpoint.Entry{Name: "change_password"}, true},
		{checkpoint.Entry{Name: "read_ledger"}, true},
	} {
		if got := SensitiveStep(c.step, Task{SensitiveWords: []string{"ledger"}}); got != c.want {
			t.Errorf("%+v: %v, want %v", c.step, got, c.want)
		}
	}
}

func TestSite(t *testing.T) {
	for a, b := range map[string]string{
		"https://www.shop.example/x":    "https://shop.example/",
		"https://a.shop.co.uk":          "https://b.shop.co.uk/",
		"http://127.0.0.1:9/":           "http://127.0.0.1:10/",
		"https://[::1]:9/":              "https://[::1]/",
		"http://localhost/":             "http://localhost:8080/x",
		"https://ann.github.io/profile": "https://ann.github.io/",
	} {
		if Site(a) != Site(b) {
			t.Errorf("%s and %s: %s, %s", a, b, Site(a), Site(b))
		}
	}
	for a, b := range map[string]string{
		"https://a.co.uk/":       "https://b.co.uk/",
		"http://127.0.0.1/":      "http://10.0.0.1/",
		"https://ann.github.io/": "https://bob.github.io/",
		"about:blank":            "https://shop.example/",
		"https://myshop.example": "https://shop.example",
	} {
		if Site(a) == Site(b) {
			t.Errorf("%s and %s are one site: %s", a, b, Site(a))
		}
	}
}
