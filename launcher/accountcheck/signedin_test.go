package accountcheck

import (
	"testing"
	"time"

	"leasehold/checkpoint/site"
	"leasehold/internal/test/testkey"
	"leasehold/lease"
)

// TestWhatAnswersSayOfTheAccount is a table of the rule: the answer that says most against the account
// counts, and only sites of the profile do.
func TestWhatAnswersSayOfTheAccount(t *testing.T) {
	book, wrong := site.NewBook([]site.File{
		{Name: "shop", Origins: []string{"https://shop.example"}, Identity: &site.Probe{Get: "/me", Take: []string{"$.email"}}},
		{Name: "mail", Origins: []string{"https://mail.example"}, Identity: &site.Probe{Get: "/who", Take: []string{"$.name"}}},
	})
	if len(wrong) > 0 {
		t.Fatalf("the files about sites: %v, want none to be wrong", wrong)
	}
	answer := func(name, says string) site.Answer {
		q := book.Identities("https://"+name+".example/", nil, func(site.Question) bool { return false })[0]
		a := site.Answer{Question: q, State: site.Told, Picked: site.Picked{Values: says, Whole: true}}
		switch says {
		case "out":
			a.State, a.How = site.NotTold, "answered 401"
		case "down":
			a.State, a.How = site.NotHad, "answered 503"
		}
		return a
	}
	check := func(a Answer) Result { return Result{Answer: a, How: "GET /api/me"} }
	for _, tt := range []struct {
		name    string
		domains string
		check   Result
		answers []string // of shop, of mail; empty: not asked
		taken   bool
		want    lease.SignedIn
		another bool
		at      string
	}{
		{"nothing was asked", "shop.example", Result{}, []string{"", ""}, false, "", false, ""},
		{"the check says yes", "", check(SignedIn), []string{"", ""}, false, "yes", false, ""},
		{"the check says no", "", check(SignedOut), []string{"", ""}, false, "no", false, "https://api.example"},
		{"the check hangs", "", check(Unknown), []string{"", ""}, false, "unknown", false, ""},
		{"the same account", "shop.example", Result{}, []string{"ann", ""}, false, "yes", false, ""},
		{"no account", "shop.example", Result{}, []string{"out", ""}, false, "no", false, "https://shop.example"},
		{"the site is down", "shop.example", Result{}, []string{"down", ""}, false, "unknown", false, ""},
		{"another account", "shop.example", Result{}, []string{"bob", ""}, false, "no", true, "https://shop.example"},
		{"another account, signed in on purpose", "shop.example", Result{}, []string{"bob", ""}, true, "yes", false, ""},
		{"one of two sites", "example", Result{}, []string{"ann", "out"}, false, "no", false, "https://mail.example"},
		{"one of two is not known", "example", check(SignedIn), []string{"ann", "down"}, false, "unknown", false, ""},
		{"another account on one, none on the other", "example", check(SignedOut), []string{"bob", "out"}, false, "no", true, "https://shop.example"},
		{"a site that is not the profile's", "shop.example", Result{}, []string{"ann", "out"}, false, "yes", false, ""},
		{"no domains: a site that has shown the account", "", Result{}, []string{"out", "out"}, false, "no", false, "https://shop.example"},
		{"no domains: a site that never has", "", Result{}, []string{"", "out"}, false, "", false, ""},
	} {
		m := NewMemory(t.TempDir(), testkey.Key)
		must(t, m.Keep("p", 7, []site.Answer{answer("shop", "ann")}, time.Now()))
		r := lease.Record{ProfileID: "p"}
		if tt.domains != "" {
			r.ExpectedDomains = []string{tt.domains}
		}
		if tt.check.Answer != "" {
			r.SessionCheck = &lease.SessionCheck{URL: "https://api.example/me"}
		}
		var answers []site.Answer
		for i, name := range []string{"shop", "mail"} {
			if tt.answers[i] != "" {
				answers = append(answers, answer(name, tt.answers[i]))
			}
		}
		got := m.SignedIn(r, book, tt.check, answers, tt.taken)
		if got.SignedIn != tt.want || got.Another != tt.another || got.At != tt.at || (got.How == "") != (tt.want == "") {
			t.Errorf("%s: %+v", tt.name, got)
		}
		own := m.Own("p", answers)
		if others := len(answers) - len(own); (others == 1) != (tt.answers[0] == "bob") {
			t.Errorf("%s: %d answers are somebody else's", tt.name, others)
		}
	}
}
