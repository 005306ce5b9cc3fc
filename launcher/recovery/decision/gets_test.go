package decision

import (
	"strings"
	"testing"

	"leasehold/checkpoint"
)

func TestSigns(t *testing.T) {
	const site = "https://desk.example"
	found, other := []int{302}, "https://other.test/x"
	for _, tt := range []struct {
		name string
		get  Get
		want Sign
	}{
		{"a read", Get{Asked: "/tickets/7", Status: 200}, ""},
		{"a list sorted", Get{From: "/list?sort=a", Asked: "/list?sort=b", Status: 200}, ""},
		{"no content", Get{Asked: "/mark", Status: 204}, NoContent},
		{"no content to keep", Get{Asked: "/mark", Status: 205}, NoContent},
		{"an empty page", Get{Asked: "/mark", Status: 200, Empty: true}, NoContent},
		{"a picture to a press", Get{Asked: "/vote.gif?id=7", Status: 200, Picture: true}, Picture},
		{"a page that loads itself anew", Get{Asked: "/again", Status: 200, Reloaded: true}, Reloaded},
		{"asked first", Get{Asked: "/drop/7", Status: 200, Agreed: true}, Confirmed},
		{"not answered", Get{Asked: "/mark"}, Unanswered},

		{"sent back", Get{Asked: "/star/7", Final: "/list", Redirects: found, Status: 200}, Returned},
		{"sent back to another view of it", Get{From: "/list?page=2", Asked: "/star/7", Final: "/list?done=1", Redirects: []int{303}, Status: 200}, Returned},
		{"sent back through another page", Get{Asked: "/star/7", Final: "/list", Redirects: []int{302, 301}, Status: 200}, Returned},
		{"sent back after another site", Get{Asked: "/sso", Final: "/list", Redirects: []int{302, 307}, Status: 200}, Returned},
		{"sent back for good", Get{Asked: "/lists", Final: "/list", Redirects: []int{301}, Status: 200}, ""},
		{"its own address without the query", Get{Asked: "/list?add=7", Final: "/list", Redirects: found, Status: 200}, Returned},
		{"the next one", Get{Asked: "/next", Final: "/tickets/8", Redirects: found, Status: 200}, MovedOn},
		{"to another site", Get{Asked: "/out", Final: other, Redirects: found, Status: 200}, MovedOn},
		{"another view of what was asked for", Get{Asked: "/find?q=a", Final: "/find?id=7", Redirects: found, Status: 200}, MovedOn},
		{"a slash more", Get{Asked: "/tickets", Final: "/tickets/", Redirects: found, Status: 200}, ""},
		{"moved for good", Get{Asked: "/old", Final: "/new", Redirects: []int{308}, Status: 200}, ""},

		{"a nonce", Get{Asked: "/admin?action=trash&_wpnonce=8r2", Status: 200}, Guarded},
		{"a token against forgery", Get{Asked: "/out?csrf-token=x", Status: 200}, Guarded},
		{"under a framework's name", Get{Asked: "/out?__RequestVerificationToken=x", Status: 200}, Guarded},
		{"under the shortest name", Get{Asked: "/?_task=mail&_token=x", Status: 200}, Guarded},
		{"an empty one", Get{Asked: "/out?csrf=", Status: 200}, ""},
		{"a token of another kind", Get{Asked: "/file?token=x", Status: 200}, ""},

		{"refused", Get{Asked: "/star/7?csrf=x", Final: "/list", Redirects: found, Status: 403, Agreed: true}, ""},
		{"another site's", Get{Asked: other + "?csrf=x", Status: 204}, ""},
		{"no URL", Get{Asked: "about:blank", Status: 204}, ""},
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
			if got := g.Sign(); got != want {
				t.Errorf("%s, acted %v: %q, want %q", tt.name, acted, got, want)
			}
			if signTexts[want] == "" && want != "" {
				t.Errorf("%s has no text", want)
			}
		}
	}
	if got := (Get{Asked: site + "/mark", Final: site + "/mark", Acted: true, Status: 204}).Sign(); got != NoContent {
		t.Errorf("of a page that is not known: %q", got)
	}
}

// TestWritesByGetAreJudged: what a person decides follows from when such a GET came.
func TestWritesByGetAreJudged(t *testing.T) {
	write := checkpoint.Entry{Kind: checkpoint.KindGetWrite, Method: "GET", URL: "https://desk.example/next", Name: string(MovedOn)}
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
		{"alone", []checkpoint.Entry{write}, Task{}, ManualReview},
		{"in a step", []checkpoint.Entry{step("take"), write}, Task{}, ManualReview},
		{"before a safe checkpoint", []checkpoint.Entry{write, safe("a")}, resumable, Resume},
		{"after it", []checkpoint.Entry{safe("a"), write}, resumable, ManualReview},
		{"after one that declares it idempotent", []checkpoint.Entry{idempotent("a"), write}, resumable, Resume},
		{"declared harmless", []checkpoint.Entry{declared}, owned, Release},
		{"declared no more", []checkpoint.Entry{declared}, Task{}, ManualReview},
		{"that was not answered", []checkpoint.Entry{unanswered}, Task{}, ManualReview},
		{"that was not answered, before a safe checkpoint", []checkpoint.Entry{unanswered, safe("a")}, resumable, Resume},
	} {
		found := append(sane(), InspectTask(checkpoint.Summarize(tt.journal), tt.task)...)
		if d := Decide(found); d.Outcome != tt.want {
			t.Errorf("%s: %s %v, want %s", tt.name, d.Outcome, d.Reasons, tt.want)
		}
	}
	if !Touched(checkpoint.Summarize([]checkpoint.Entry{write}), Task{}) {
		t.Error("a task that changed something by GET touched nothing")
	}
	if a := InspectTask(checkpoint.Summarize([]checkpoint.Entry{write, unanswered}), Task{}).Answer(WritesByGet); a != Yes {
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
