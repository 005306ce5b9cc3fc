package recovery

import (
	"net/url"
	"slices"
	"strings"
	"unicode"

	"leasehold/checkpoint"
)

// sensitiveWords mark a page or a step after which nothing may be repeated or
// resumed without a person, wherever they stand as a word of a step's name or of
// a URL's path.
var sensitiveWords = set(
	"submit", "submitted", "checkout", "pay", "payment", "payments", "purchase", "buy", "order",
	"billing", "wallet", "payout", "payouts", "transfer", "withdraw", "withdrawal", "refund",
	"password", "passwd", "passcode", "mfa", "2fa", "totp", "otp", "verify", "verification",
	"challenge", "captcha", "recovery", "recover", "reset", "settings", "security", "kyc",
	"delete", "remove", "deactivate", "confirm", "publish", "send",
)

// editedThings are sensitive only while something is done to them.
var (
	editedThings = set("campaign", "campaigns", "budget", "ad", "ads", "account", "profile", "bid", "audience")
	editingWords = set("edit", "editing", "new", "create", "change", "update", "save", "set", "modify", "launch", "pause", "duplicate")
)

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// words splits a name at everything that is neither a letter nor a digit, and
// where a capital follows a small letter.
func words(s string) []string {
	var b strings.Builder
	small := false
	for _, r := range s {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = ' '
		case unicode.IsUpper(r) && small:
			b.WriteByte(' ')
		}
		small = unicode.IsLower(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}

// Words are those of the lists, as they are looked for.
func Words(lists ...[]string) []string {
	var all []string
	for _, list := range lists {
		for _, s := range list {
			all = append(all, words(s)...)
		}
	}
	return all
}

func sensitiveName(name string, more []string) bool {
	thing, edited := false, false
	for _, w := range words(name) {
		if sensitiveWords[w] || slices.Contains(more, w) {
			return true
		}
		thing = thing || editedThings[w]
		edited = edited || editingWords[w]
	}
	return thing && edited
}

// SensitiveURL tells whether a URL is one after which a person decides: by a
// pattern of the task's, in which * stands for anything, or by the words of its
// path. Ask with the URL as the browser has it: what is stored is redacted.
func SensitiveURL(raw string, t Task) bool {
	for _, pattern := range t.SensitiveURLs {
		if pattern != "" && matches(pattern, raw) {
			return true
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	// The route of a single-page application stands in the fragment.
	route, _, _ := strings.Cut(u.Fragment, "?")
	return sensitiveName(u.Path, t.SensitiveWords) || strings.HasPrefix(route, "/") && sensitiveName(route, t.SensitiveWords)
}

// sensitivePlace names the first step or page that is sensitive, or is empty.
func sensitivePlace(steps, pages []checkpoint.Entry, t Task) string {
	for _, e := range steps {
		if e.Sensitive || sensitiveName(e.Name, t.SensitiveWords) || sensitiveName(e.Action, t.SensitiveWords) {
			return "step " + e.Name
		}
	}
	for _, e := range pages {
		if e.Sensitive || SensitiveURL(e.URL, t) {
			return "page " + e.URL
		}
	}
	return ""
}

// matches tells whether the pattern, in which * stands for anything, is found in
// the URL.
func matches(pattern, raw string) bool {
	at := 0
	for _, part := range strings.Split(pattern, "*") {
		i := strings.Index(raw[at:], part)
		if i < 0 {
			return false
		}
		at += i + len(part)
	}
	return true
}
