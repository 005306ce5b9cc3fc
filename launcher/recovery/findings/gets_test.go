package findings

import (
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/launcher/recovery/table"
)

func TestSigns(t *testing.T) {
	const site = "https://desk.example"
	found, other := []int{302}, "https://other.test/x"
	for _, tt := range []struct {
		name string
		get  ledger.Get
		want Sign
	}{
		{"a read", ledger.Get{Asked: "/tickets/7", Status: 200}, ""},
		{"a list sorted", ledger.Get{From: "/list?sort=a", Asked: "/list?sort=b", Status: 200}, ""},
		{"no content", ledger.Get{Asked: "/mark", Status: 204}, NoContent},
		{"no content to keep", ledger.Get{Asked: "/mark", Status: 205}, NoContent},
		{"an empty page", ledger.Get{Asked: "/mark", Status: 200, Empty: true}, NoContent},
		{"a picture to a press", ledger.Get{Asked: "/vote.gif?id=7", Status: 200, Picture: true}, Picture},
		{"a page that loads itself anew", ledger.Get{Asked: "/again", Status: 200, Reloaded: true}, Reloaded},
		{"asked first", ledger.Get{Asked: "/drop/7", Status: 200, Agreed: true}, Confirmed},
		{"not answered", ledger.Get{Asked: "/mark"}, Unanswered},

		{"sent back", ledger.Get{Asked: "/star/7", Final: "/list", Redirects: found, Status: 200}, Returned},
		{"sent back to another view of it", ledger.Get{From: "/list?page=2", Asked: "/star/7", Final: "/list?done=1", Redirects: []int{303}, Status: 200}, Returned},
		{"sent back through another page", ledger.Get{Asked: "/star/7", Final: "/list", Redirects: []int{302, 301}, Status: 200}, Returned},
		{"sent back after another site", ledger.Get{Asked: "/sso", Final: "/list", Redirects: []int{302, 307}, Status: 200}, Returned},
		{"sent back for good", ledger.Get{Asked: "/lists", Final: "/list", Redirects: []int{301}, Status: 200}, ""},
		{"its own address without the query", ledger.Get{Asked: "/list?add=7", Final: "/list", Redirects: found, Status: 200}, Returned},
		{"the next one", ledger.Get{Asked: "/next", Final: "/tickets/8", Redirects: found, Status: 200}, MovedOn},
		{"to another site", ledger.Get{Asked: "/out", Final: other, Redirects: found, Status: 200}, MovedOn},
		{"another view of what was asked for", ledger.Get{Asked: "/find?q=a", Final: "/find?id=7", Redirects: found, Status: 200}, MovedOn},
		{"a slash more", ledger.Get{Asked: "/tickets", Final: "/tickets/", Redirects: found, Status: 200}, ""},
		{"moved for good", ledger.Get{Asked: "/old", Final: "/new", Redirects: []int{308}, Status: 200}, ""},

		{"a nonce", ledger.Get{Asked: "/admin?action=trash&_wpnonce=8r2", Status: 200}, Guarded},
		{"a token against forgery", ledger.Get{Asked: "/out?csrf-token=x", Status: 200}, Guarded},
		{"under a framework's name", ledger.Get{Asked: "/out?__RequestVerificationToken=x", Status: 200}, Guarded},
		{"under the shortest name", ledger.Get{Asked: "/?_task=mail&_token=x", Status: 200}, Guarded},
		{"an empty one", ledger.Get{Asked: "/out?csrf=", Status: 200}, ""},
		{"a token of another kind", ledger.Get{Asked: "/file?token=x", Status: 200}, ""},

		{"refused", ledger.Get{Asked: "/star/7?csrf=x", Final: "/list", Redirects: found, Status: 403, Agreed: true}, ""},
		{"another site's", ledger.Get{Asked: other + "?csrf=x", Status: 204}, ""},
		{"no URL", ledger.Get{Asked: "about:blank", Status: 204}, ""},
	} {
		for _, acted := range []bool{true, false} {
			g := tt.get
			g.Acted = acted
			if g.From == "" {
				g.From = "/list"
			}
			if g.Final == "" {
				g.Final = g.Asked
			}
			for _, u := range []*string{&g.From, &g.Asked, &g.Final} {
				if strings.HasPrefix(*u, "/") {
					*u = site + *u
				}
			}
			want := tt.want
			if !acted && want != Guarded {
				want = "" // what nobody caused is a read
			}
			if got := SignOf(g); got != want {
				t.Errorf("%s, acted %v: %q, want %q", tt.name, acted, got, want)
			}
			if signTexts[want] == "" && want != "" {
				t.Errorf("%s has no text", want)
			}
		}
	}
	if got := SignOf(ledger.Get{Asked: site + "/mark", Final: site + "/mark", Acted: true, Status: 204}); got != NoContent {
		t.Errorf("of a page that is not known: %q", got)
	}
}

// TestWritesByGetAreJudged: what a person decides follows from when such a GET came.
func TestWritesByGetAreJudged(t *testing.T) {
	write := checkpoint.Entry{Kind: checkpoint.KindGetWrite, Method: "GET", URL: "https://desk.example/next", Name: string(MovedOn)}
	write.Shape, write.Plain = "GET https://desk.example/next", true
	named := idempotent("a")
	named.IdempotentShapes = []string{"GET /next"}
	declared := write
	declared.Declared = "GET https://desk.example/next"
	unanswered := write
	unanswered.Name = string(Unanswered)
	resumable, owned := Task{Resumable: true}, Task{Harmless: []string{declared.Declared}}
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		task    Task
		want    string
	}{
		{"alone", []checkpoint.Entry{write}, Task{}, table.ManualReview},
		{"in a step", []checkpoint.Entry{step("take"), write}, Task{}, table.ManualReview},
		{"before a safe checkpoint", []checkpoint.Entry{write, safe("a")}, resumable, table.Resume},
		{"after it", []checkpoint.Entry{safe("a"), write}, resumable, table.ManualReview},
		{"after one that declares something idempotent", []checkpoint.Entry{idempotent("a"), write}, resumable, table.ManualReview},
		{"after one that names it", []checkpoint.Entry{named, write}, resumable, table.Resume},
		{"declared harmless", []checkpoint.Entry{declared}, owned, table.Release},
		{"declared no more", []checkpoint.Entry{declared}, Task{}, table.ManualReview},
		{"that was not answered", []checkpoint.Entry{unanswered}, Task{}, table.ManualReview},
		{"that was not answered, before a safe checkpoint", []checkpoint.Entry{unanswered, safe("a")}, resumable, table.Resume},
	} {
		found := append(sane(), InspectTask(checkpoint.Summarize(tt.journal), tt.task)...)
		if d := table.Decide(found); d.Outcome != tt.want {
			t.Errorf("%s: %s %v, want %s", tt.name, d.Outcome, d.Reasons, tt.want)
		}
	}
	if !Touched(checkpoint.Summarize([]checkpoint.Entry{write}), Task{}) {
		t.Error("a task that changed something by GET touched nothing")
	}
	if a := InspectTask(checkpoint.Summarize([]checkpoint.Entry{write, unanswered}), Task{}).Answer(table.WritesByGet); a != table.Yes {
		t.Errorf("one with a sign and one without an answer: %s", a)
	}
}

func TestAGetIsDeclaredHarmless(t *testing.T) {
	h, err := ParseHarmless("GET https://desk.example/next")
	if err != nil || !h.Covers(Sent{Method: "GET", URL: "https://desk.example/next", Whole: true}) {
		t.Errorf("%v, %v", h, err)
	}
	if h.Covers(Sent{Method: "POST", URL: "https://desk.example/next", Whole: true}) {
		t.Error("it covers a POST")
	}
	if _, err := ParseHarmless("GET https://desk.example/next a=b"); err == nil {
		t.Error("a GET has no fields")
	}
}
