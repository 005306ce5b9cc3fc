package decision

import (
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint"
)

func TestSignsOfDocuments(t *testing.T) {
	const site = "https://desk.example"
	for _, tt := range []struct {
		name string
		get  Get
		want Sign
	}{
		{"a link", Get{From: "/", Asked: "/tickets/7", Status: 200}, ""},
		{"a list sorted", Get{From: "/list?sort=a", Asked: "/list?sort=b", Status: 200}, ""},
		{"sent back", Get{From: "/list", Asked: "/star/7", Final: "/list", Redirects: []int{302}, Status: 200}, Returned},
		{"sent back to another view of it", Get{From: "/list?page=2", Asked: "/star/7", Final: "/list?done=1", Redirects: []int{303}, Status: 200}, Returned},
		{"sent back through another page", Get{From: "/list", Asked: "/star/7", Final: "/list", Redirects: []int{302, 302}, Status: 200}, Returned},
		{"sent back, with the way back in the address", Get{From: "/news", Asked: "/vote?id=7&goto=/news", Final: "/news", Redirects: []int{302}, Status: 200}, Returned},
		{"sent back for good", Get{From: "/list", Asked: "/lists", Final: "/list", Redirects: []int{301}, Status: 200}, ""},
		{"sent back after another site", Get{From: "/list", Asked: "/sso", Final: "/list", Redirects: []int{302, 302}, Detour: true, Status: 200}, ""},
		{"a slash more", Get{From: "/list", Asked: "/list/", Final: "/list", Redirects: []int{302}, Status: 200}, ""},
		{"the logo", Get{From: "/list", Asked: "/", Final: "/list", Redirects: []int{302}, Status: 200}, ""},
		{"the first of its pages", Get{From: "/docs/intro", Asked: "/docs", Final: "/docs/intro", Redirects: []int{302}, Status: 200}, ""},
		{"sent to another page", Get{From: "/list", Asked: "/old-help", Final: "/help", Redirects: []int{302}, Status: 200}, ""},
		{"a command to sign in, which is done", Get{From: "/inbox", Asked: "/login", Final: "/inbox", Redirects: []int{302}, Status: 200, Commanded: true}, ""},
		{"the same with the way back", Get{From: "/inbox", Asked: "/login?next=/inbox", Final: "/inbox", Redirects: []int{302}, Status: 200, Commanded: true}, ""},
		{"a command that names something", Get{From: "/inbox", Asked: "/archive?mail=x", Final: "/inbox", Redirects: []int{302}, Status: 200, Commanded: true}, Returned},
		{"a command that names it in the path", Get{From: "/inbox", Asked: "/mails/17/archive", Final: "/inbox", Redirects: []int{302}, Status: 200, Commanded: true}, Returned},

		{"the next one", Get{From: "/", Asked: "/suivant", Final: "/tickets/8", Redirects: []int{302}, Status: 200}, Chosen},
		{"the next one, by a command", Get{Asked: "/suivant", Final: "/tickets/8", Redirects: []int{302}, Status: 200, Commanded: true}, Chosen},
		{"a new draft", Get{From: "/docs", Asked: "/docs/new", Final: "/docs/3f9a2b7c1d", Redirects: []int{302}, Status: 200}, Chosen},
		{"in a query", Get{From: "/", Asked: "/cart/open", Final: "/basket?id=991", Redirects: []int{307}, Status: 200}, Chosen},
		{"one that was seen before", Get{From: "/", Asked: "/suivant", Final: "/tickets/8", Redirects: []int{302}, Status: 200, Shown: true}, ""},
		{"the page's own number", Get{From: "/tickets/8", Asked: "/answer", Final: "/answers/8", Redirects: []int{302}, Status: 200}, ""},
		{"after the fifth the sixth", Get{From: "/posts/5", Asked: "/posts/5/next", Final: "/posts/6", Redirects: []int{302}, Status: 200}, ""},
		{"a search that finds one", Get{From: "/", Asked: "/find?q=shoe", Final: "/products/7", Redirects: []int{302}, Status: 200, Form: true}, ""},
		{"a form that is no search", Get{From: "/dhcp", Asked: "/apply?range=2", Status: 200, Form: true, Sets: true}, Unjudged},
		{"the same to another site", Get{From: "/dhcp", Asked: "https://other.test/apply?range=2", Final: "https://other.test/apply?range=2", Status: 200, Form: true, Sets: true}, ""},
		{"the same, refused", Get{From: "/dhcp", Asked: "/apply?range=2", Status: 403, Form: true, Sets: true}, ""},
		{"the start", Get{Asked: "/", Final: "/boards/12", Redirects: []int{302}, Status: 200, Commanded: true}, ""},
		{"a place of one's own", Get{From: "/", Asked: "/dashboard", Final: "/org/17/dashboard", Redirects: []int{302}, Status: 200}, ""},
		{"a sign-in first", Get{From: "/", Asked: "/keys", Final: "/enter?state=123456ab&back=%2Fkeys", Redirects: []int{302}, Status: 200}, ""},
		{"a title", Get{From: "/", Asked: "/today", Final: "/2026/11/22/the-title-of-it", Redirects: []int{302}, Status: 200}, ""},
		{"a product's name", Get{From: "/", Asked: "/deal", Final: "/p/phone-15-pro-max", Redirects: []int{302}, Status: 200}, ""},

		{"no content", Get{From: "/", Asked: "/mark", Status: 204}, NoContent},
		{"refused", Get{From: "/list", Asked: "/star/7", Final: "/list", Redirects: []int{302}, Status: 403}, ""},
		{"asked first", Get{From: "/", Asked: "/drop/7", Status: 200, Agreed: true}, Confirmed},
		{"asked first, for another site", Get{From: "/", Asked: "https://other.test/", Final: "https://other.test/", Status: 200, Agreed: true}, ""},
		{"no answer", Get{From: "/", Asked: "/mark"}, ""},
	} {
		g := tt.get
		g.Document = true
		for _, u := range []*string{&g.From, &g.Asked, &g.Final} {
			if strings.HasPrefix(*u, "/") {
				*u = site + *u
			}
		}
		if g.Final == "" {
			g.Final = g.Asked
		}
		if got := g.Sign(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestSignsOfScripts(t *testing.T) {
	const page = "https://desk.example/list"
	toggle := Pressed{Own: true, Values: 1}
	for _, tt := range []struct {
		name    string
		asked   string
		status  int
		pressed *Pressed
		agreed  bool
		want    Sign
	}{
		{"only the control changed", "/relay?p=1", 200, &toggle, false, Toggled},
		{"nothing changed", "/keep", 200, &Pressed{}, false, NothingShown},
		{"nothing changed where one can see", "/keep", 200, &Pressed{Opaque: true}, false, ""},
		{"a list, and nothing changed", "/prefetch", 200, &Pressed{Values: -1}, false, ""},
		{"a value or two were shown", "/price", 200, &Pressed{Elsewhere: Yes, Values: 2, Told: Yes}, false, Unjudged},
		{"a value or two of what was chosen", "/price?of=b", 200, &Pressed{Elsewhere: Yes, Values: 2, Told: Yes, Choice: true}, false, ""},
		{"more was shown", "/offer", 200, &Pressed{Elsewhere: Yes, Values: 4, Told: Yes}, false, ""},
		{"something else was shown", "/close", 200, &Pressed{Elsewhere: Yes, Values: 2}, false, Acknowledged},
		{"much was answered", "/item", 200, &Pressed{Elsewhere: Yes, Values: 7}, false, ""},
		{"a list was answered", "/items", 200, &Pressed{Elsewhere: Yes, Values: -1}, false, ""},
		{"no content", "/gone", 204, &Pressed{Elsewhere: Yes}, false, NoContent},
		{"a link", "/spa", 200, &Pressed{Link: true}, false, ""},
		{"a search", "/find?q=x", 200, &Pressed{Field: true}, false, ""},
		{"asked first", "/drop", 200, &Pressed{Elsewhere: Yes, Values: 9}, true, Confirmed},
		{"refused", "/keep", 403, &toggle, false, ""},
		{"no answer", "/keep", 0, &toggle, false, ""},
		{"nothing was pressed", "/keep", 200, nil, false, ""},
		{"what counts visitors", "/metrics/collect?e=1", 204, &Pressed{}, false, ""},
		{"another site", "https://other.test/keep", 200, &toggle, false, ""},

		{"another answer may have changed something", "/item", 200, &Pressed{Elsewhere: Unknown, Values: 7}, false, Unjudged},
		{"it told nothing of a short one", "/close", 200, &Pressed{Own: true, Elsewhere: Unknown, Values: 2}, false, Acknowledged},
		{"it may have told it", "/relay?p=1", 200, &Pressed{Own: true, Elsewhere: Unknown, Values: 1, Told: Unknown}, false, Unjudged},
		{"it may have told it, and more changed", "/relay?p=1", 200, &Pressed{Elsewhere: Yes, Values: 1, Told: Unknown}, false, Unjudged},
		{"it may have told it of many, and more changed", "/item", 200, &Pressed{Elsewhere: Yes, Values: 7, Told: Unknown}, false, ""},
		{"it told what no other one has", "/item", 200, &Pressed{Elsewhere: Unknown, Values: 7, Told: Yes}, false, ""},
		{"the answer could not be read", "/keep", 200, &Pressed{Lost: true}, false, Unjudged},
	} {
		asked := tt.asked
		if strings.HasPrefix(asked, "/") {
			asked = "https://desk.example" + asked
		}
		g := Get{From: page, Asked: asked, Final: asked, Status: tt.status, Pressed: tt.pressed, Agreed: tt.agreed}
		if got := g.Sign(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := (Get{From: page, Asked: "https://desk.example/star/7", Final: page, Redirects: []int{303}, Status: 200, Pressed: &Pressed{Elsewhere: Yes, Values: -1}}).Sign(); got != Returned {
		t.Errorf("a script that is sent to its own page: %q", got)
	}
}

// TestWhatNobodySawIsNoRead: a GET whose end was not seen is no read, unless what is known of
// it says so.
func TestWhatNobodySawIsNoRead(t *testing.T) {
	const site = "https://desk.example"
	for _, tt := range []struct {
		name string
		get  Get
		want Sign
	}{
		{"its page was gone", Get{Asked: "/keep", Status: 200, Pressed: &Pressed{Values: 1}}, Unjudged},
		{"no answer", Get{Asked: "/keep", Pressed: &Pressed{Lost: true}}, Unjudged},
		{"a list", Get{Asked: "/items", Status: 200, Pressed: &Pressed{Values: -1}}, ""},
		{"a link", Get{Asked: "/keep", Pressed: &Pressed{Link: true}}, ""},
		{"a search", Get{Asked: "/keep", Pressed: &Pressed{Field: true}}, ""},
		{"refused", Get{Asked: "/keep", Status: 403, Pressed: &Pressed{}}, ""},
		{"another site", Get{Asked: "https://other.test/", Pressed: &Pressed{}}, ""},
		{"what counts visitors", Get{Asked: "/metrics/collect?e=1", Pressed: &Pressed{}}, ""},
		{"no content", Get{Asked: "/keep", Status: 204, Pressed: &Pressed{}}, NoContent},
		{"asked first", Get{Asked: "/keep", Status: 200, Agreed: true, Pressed: &Pressed{}}, Confirmed},
		{"a document", Get{Document: true, Asked: "/keep"}, Unjudged},
		{"a document of another site", Get{Document: true, Asked: "https://other.test/"}, ""},
	} {
		g := tt.get
		if g.From, g.Unseen = site+"/list", "its page was gone"; strings.HasPrefix(g.Asked, "/") {
			g.Asked = site + g.Asked
		}
		g.Final = g.Asked
		if got := g.Sign(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestNotices(t *testing.T) {
	words := Page{Letters: 40}
	for url, want := range map[string]bool{
		"https://school.example/here?k=8r2": true, "https://list.example/out/a81f3c99e0": true,
		"https://list.example/out": false, "https://news.example/the-10-best-phones-15": false, "https://school.example/lesson/3": false,
	} {
		if got := IsNotice(url, words); got != want {
			t.Errorf("%s: %t, want %t", url, got, want)
		}
	}
	for _, p := range []Page{{Controls: 1, Letters: 40}, {Letters: 5000}, {}} {
		if IsNotice("https://school.example/here?k=8r2", p) {
			t.Errorf("%+v is no notice", p)
		}
	}
}

// TestWritesByGetAreJudged: what a person decides follows from when such a GET came.
func TestWritesByGetAreJudged(t *testing.T) {
	write := checkpoint.Entry{Kind: checkpoint.KindGetWrite, Method: "GET", URL: "https://desk.example/next", Name: string(Chosen)}
	declared := write
	declared.Declared = "GET https://desk.example/next"
	unjudged := write
	unjudged.Name, unjudged.Text = string(Unjudged), "its page was gone"
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
		{"that nobody could judge", []checkpoint.Entry{unjudged}, Task{}, ManualReview},
		{"that nobody could judge, in a step", []checkpoint.Entry{step("take"), unjudged}, Task{}, ManualReview},
		{"that nobody could judge, before a safe checkpoint", []checkpoint.Entry{unjudged, safe("a")}, resumable, Resume},
		{"that nobody could judge, after it", []checkpoint.Entry{safe("a"), unjudged}, resumable, ManualReview},
	} {
		found := append(sane(), InspectTask(checkpoint.Summarize(tt.journal), tt.task)...)
		if d := Decide(found); d.Outcome != tt.want {
			t.Errorf("%s: %s %v, want %s", tt.name, d.Outcome, d.Reasons, tt.want)
		}
	}
	if !Touched(checkpoint.Summarize([]checkpoint.Entry{write}), Task{}) {
		t.Error("a task that changed something by GET touched nothing")
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

func TestEachSignIsExplained(t *testing.T) {
	for _, s := range []Sign{Returned, Chosen, NoContent, Confirmed, Toggled, NothingShown, Acknowledged, Reloaded, Notice} {
		if signTexts[s] == "" {
			t.Errorf("%s has no text", s)
		}
	}
}

func FuzzValuesOf(f *testing.F) {
	for body, count := range map[string]int{
		"": 0, `{"ok":true}`: 1, `{"ok":true,"id":17,"by":"Ann"}`: 3, `OK`: 1, `17`: 1, `[]`: -1, `{"items":[]}`: -1, `{"a":{"b":null}}`: 1,
		`<p>done</p>`: -1, "two\nlines": -1, strings.Repeat("x", 100): -1, `{"a":1}{"b":2}`: 1,
	} {
		if _, got := ValuesOf(body, 64); got != count {
			f.Errorf("%q has %d values, want %d", body, got, count)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		texts, count := ValuesOf(body, 64)
		if texts == nil || len(texts) > max(count, 0) || slices.ContainsFunc(texts, func(s string) bool { return len(s) > 64 || s == "" }) {
			t.Errorf("%q: %q, %d", body, texts, count)
		}
	})
}
