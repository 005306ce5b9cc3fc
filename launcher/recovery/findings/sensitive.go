package findings

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"leasehold/checkpoint"
	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
)

// sensitiveWords mark a page or a step after which nothing may be repeated or resumed without a
// person. Any whole word of a step's name or of a URL's path matches. Lists that people only
// read (orders, campaigns, transactions) are not among them.
var sensitiveWords = set(
	// After a submit, and actions that cannot be undone.
	"submit", "submitted", "submission", "confirm", "confirmation", "publish", "send", "delete", "remove", "deactivate", "unsubscribe", "revoke",
	// Checkout and money.
	"checkout", "checkouts", "pay", "payment", "payments", "purchase", "buy", "order", "placeorder", "billing", "wallet", "wallets",
	"payout", "payouts", "payee", "payees", "transfer", "transfers", "withdraw", "withdrawal", "withdrawals", "deposit", "topup", "refund", "refunds",
	"beneficiary", "beneficiaries", "3ds", "3dsecure", "sca",
	// Account settings.
	"settings", "preferences", "options", "security",
	// Verification, password, MFA, recovery.
	"verify", "verification", "challenge", "captcha", "kyc", "password", "passwords", "passwd", "passcode", "passkey", "passkeys",
	"mfa", "2fa", "2sv", "twofactor", "2factor", "secondfactor", "multifactor", "totp", "otp", "onetime", "smscode", "backupcode", "backupcodes",
	"authenticator", "recovery", "recover", "reset", "forgot", "reauth",
)

// sensitivePairs are words that are sensitive only together, in any order: a thing, and
// something that is done to it or happens to it.
var sensitivePairs = []struct{ things, doings map[string]bool }{
	// Campaigns and accounts, while something is done to them.
	{
		set("campaign", "campaigns", "budget", "budgets", "ad", "ads", "adset", "adsets", "adgroup", "adgroups", "creative", "creatives", "targeting",
			"account", "accounts", "profile", "profiles", "bid", "bids", "audience", "audiences", "email", "phone", "address", "addresses", "card", "cards",
			"bank", "subscription", "subscriptions", "member", "members", "webhook", "webhooks"),
		set("edit", "editing", "editor", "new", "create", "add", "change", "update", "save", "set", "modify", "launch", "pause", "duplicate", "invite", "close", "cancel", "link"),
	},
	// A failed login.
	{
		set("login", "signin", "logon", "auth", "authentication", "credentials"),
		set("failed", "fail", "failure", "error", "invalid", "wrong", "incorrect", "denied", "rejected", "locked", "blocked", "attempt", "attempts"),
	},
}

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// words splits a name into lower-case words: at everything that is neither a letter nor
// a digit, and between a small letter and a capital.
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

// Words splits the entries of lists into words, in the form in which names are compared with
// them.
func Words(lists ...[]string) []string {
	var all []string
	for _, list := range lists {
		for _, s := range list {
			all = append(all, words(s)...)
		}
	}
	return all
}

// nameWords are the words of a name, and each two of them as one: log-in, top up.
func nameWords(name string) []string {
	found := words(name)
	for i := range len(found) - 1 {
		found = append(found, found[i]+found[i+1])
	}
	return found
}

func hasWord(name string, list []string) bool {
	return slices.ContainsFunc(nameWords(name), func(w string) bool { return slices.Contains(list, w) })
}

func sensitiveName(name string, more []string) bool {
	if hasWord(name, more) {
		return true
	}
	found := nameWords(name)
	has := func(list map[string]bool) bool {
		return slices.ContainsFunc(found, func(w string) bool { return list[w] })
	}
	if has(sensitiveWords) {
		return true
	}
	for _, p := range sensitivePairs {
		if has(p.things) && has(p.doings) {
			return true
		}
	}
	return false
}

// SensitiveURL tells whether a person has to decide after this URL was open: because the task or
// what is known of its site says so, see NamedSensitive, or because of a word in the route that it
// names, unless it is said to be one that only reads.
// The URL has to be the browser's own; the stored one is redacted.
func SensitiveURL(raw string, t Task) bool {
	return NamedSensitive(raw, t) || slices.ContainsFunc(routes(raw), func(route string) bool { return sensitiveName(route, nil) }) && !t.saysItReads(raw)
}

// saysItReads tells whether the profile's owner, or the file of its site, says that opening a URL
// only reads.
func (t Task) saysItReads(raw string) bool {
	if t.Sites.JudgesGETs() {
		get := shape.Request{Method: http.MethodGet, URL: raw, Whole: true}
		if t.Sites.Judge(get, shape.Of(get)).Is == site.Read {
			return true
		}
	}
	return slices.ContainsFunc(t.Harmless, func(text string) bool {
		if !strings.HasPrefix(text, http.MethodGet+" ") {
			return false
		}
		h, err := ParseHarmless(text)
		return err == nil && h.Covers(Sent{Method: http.MethodGet, URL: raw, Whole: true})
	})
}

// NamedSensitive tells whether the URL matches one of the task's patterns, in which * stands for
// anything, has one of the task's own words, or is a sensitive place by what is known of its site.
func NamedSensitive(raw string, t Task) bool {
	return patterned(raw, t) || t.Sites.Sensitive(raw) || slices.ContainsFunc(routes(raw), func(route string) bool { return hasWord(route, t.SensitiveWords) })
}

// routes are the parts of a URL that say which page of a site it is: the path, the fragment of a
// single-page application, and the parameters in which many sites name a page or an action.
func routes(raw string) []string {
	u, err := url.Parse(raw)
	if err != nil {
		return nil
	}
	found := []string{u.Path}
	if route, _, _ := strings.Cut(u.Fragment, "?"); strings.HasPrefix(route, "/") {
		found = append(found, route)
	}
	for name, values := range u.Query() {
		if routeNames[strings.ToLower(name)] {
			found = append(found, values...)
		}
	}
	return found
}

// routeNames are the parameters that name a page or an action. Others have what somebody looked
// for, or where to go next.
var routeNames = set("page", "action", "act", "do", "route", "r", "rest_route", "view", "screen", "tab", "section", "step", "mode", "op", "cmd", "_action", "_task", "wc-ajax")

// sensitivePlace names the first step or page that is sensitive; empty if there is none.
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

// matches tells whether the URL contains the pattern, in which * stands for anything.
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
