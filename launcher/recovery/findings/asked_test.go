package findings

import (
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
	"leasehold/launcher/recovery/table"
)

const askedFile = `identity: {get: /me, take: ["$.email"]}
probes:
  - {name: orders, get: /orders, take: ["$.total"], covers: ["POST /cart", "GET /favourite/*"]}
  - {name: inbox, get: /inbox, take: ["$.n"], alarm: false, covers: ["POST /read"]}
requests:
  - {shape: "POST /cart", is: write}
sensitive: ["/vip"]
`

func questions(t *testing.T) map[string]site.Question {
	all := map[string]site.Question{}
	for _, q := range Questions(checkpoint.Summary{Pages: []checkpoint.Entry{visit("https://shop.example/a?b")}}, Task{Sites: sites(t, askedFile)}) {
		all[q.ID()] = q
	}
	return all
}

// TestWhatSitesSayOfTheAccount: a changed answer is an alarm, an account that is not shown is one,
// and what is not known is never the same as before.
func TestWhatSitesSayOfTheAccount(t *testing.T) {
	t.Parallel()
	all := questions(t)
	digest := func(_, values string) string { return values }
	compared := func(id, was, now string) site.Compared {
		q := all[id]
		a := site.Answer{Question: q, State: site.Told, Picked: site.Picked{Values: now, Whole: true, Text: now}}
		switch now {
		case "-":
			a = site.Answer{Question: q, State: site.NotTold, How: "answered 401"}
		case "?":
			a = site.Answer{Question: q, State: site.NotHad, How: "answered 503"}
		}
		before := site.Kept{Means: q.Means(), Digest: was, Whole: true, Text: was}
		if was == "" {
			before = site.Kept{}
		}
		return site.Compare(a, before, digest)
	}
	for _, tt := range []struct {
		name      string
		first     []site.Compared
		again     []site.Compared
		kept      table.Answer
		changed   table.Answer
		unchanged string
		says      string
	}{
		{"nothing is asked", nil, nil, table.Yes, table.No, "", "no file"},
		{"all as before", []site.Compared{compared("shop", "ann", "ann"), compared("shop/orders", "14", "14"), compared("shop/inbox", "3", "3")}, nil, table.Yes, table.No, "shop/orders shop/inbox", "2 of 2 probes"},
		{"an order more", []site.Compared{compared("shop/orders", "14", "15"), compared("shop/inbox", "3", "3")}, nil, table.Yes, table.Yes, "shop/inbox", "orders: not what it was"},
		{"what is no alarm", []site.Compared{compared("shop/orders", "14", "14"), compared("shop/inbox", "3", "4")}, nil, table.Yes, table.No, "shop/orders", ""},
		{"one more a moment later", []site.Compared{compared("shop/orders", "14", "14")}, []site.Compared{compared("shop/orders", "14", "15")}, table.Yes, table.Yes, "", "not what it was"},
		{"one back a moment later", []site.Compared{compared("shop/orders", "14", "15")}, []site.Compared{compared("shop/orders", "14", "14")}, table.Yes, table.Yes, "", ""},
		{"the site is down", []site.Compared{compared("shop", "ann", "?"), compared("shop/orders", "14", "?")}, nil, table.Unknown, table.Unknown, "", "answered 503"},
		{"down a moment later", []site.Compared{compared("shop/orders", "14", "14")}, []site.Compared{compared("shop/orders", "14", "?")}, table.Yes, table.Unknown, "", "answered 503"},
		{"signed out", []site.Compared{compared("shop", "ann", "-"), compared("shop/orders", "14", "-")}, nil, table.No, table.Unknown, "", "answered 401"},
		{"another account", []site.Compared{compared("shop", "ann", "bob"), compared("shop/orders", "14", "14")}, nil, table.No, table.No, "shop/orders", ""},
		{"for the first time", []site.Compared{compared("shop", "", "ann"), compared("shop/orders", "", "14")}, nil, table.Yes, table.Unknown, "", "first time"},
	} {
		v := Asked(Told{tt.first, tt.again}, Told{tt.first, tt.again})
		facts, unchanged, says := v.Facts, v.Unchanged, v.Says
		found := table.Inspection(facts)
		var ids []string
		for _, q := range unchanged {
			ids = append(ids, q.ID())
		}
		if found.Answer(table.IdentityKept) != tt.kept || found.Answer(table.ProbeChanged) != tt.changed || strings.Join(ids, " ") != tt.unchanged || !strings.Contains(found.How(table.ProbeChanged), tt.says) {
			t.Errorf("%s: %+v, unchanged %q", tt.name, facts, ids)
		}
		if how := found.How(table.IdentityKept) + found.How(table.ProbeChanged); strings.Contains(how, "ann") || strings.Contains(how, "14") {
			t.Errorf("%s: a value stands in %q", tt.name, how)
		}
		if moved := tt.changed == table.Yes; moved && !strings.HasPrefix(says[0], "shop: orders: 14, now 15") && tt.name != "one back a moment later" || len(says) != len(tt.first) {
			t.Errorf("%s: a person is told %q", tt.name, says)
		}
		outcome := table.Decide(append(sane(), InspectTask(checkpoint.Summary{}, Task{})...).With(facts...)).Outcome
		if want := tt.kept == table.Yes && tt.changed != table.Yes; (outcome == table.Release) != want {
			t.Errorf("%s: %s", tt.name, outcome)
		}
	}
	for why, want := range map[string]table.Answer{"": table.Yes, "not asked: a person decides": table.Unknown} {
		if f := table.Inspection(Unasked([]site.Question{all["shop"]}, why)); f.Answer(table.IdentityKept) != want || f.Answer(table.ProbeChanged) != table.No {
			t.Errorf("%q: %+v", why, f)
		}
	}
}

// TestAnUnchangedAnswerCoversWhatItsFileSays, if that was answered, and nothing else.
func TestAnUnchangedAnswerCoversWhatItsFileSays(t *testing.T) {
	t.Parallel()
	b, all := sites(t, askedFile), questions(t)
	request := func(method, path string, status int) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindRequest, Method: method, URL: "https://shop.example" + path, Shape: method + " https://shop.example" + path + " form(a)", Status: status, Plain: true}
	}
	get := func(path string, sign Sign) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindGetWrite, Method: "GET", Name: string(sign), URL: "https://shop.example" + path, Shape: "GET https://shop.example" + path, Plain: true}
	}
	answered := request("POST", "/cart", 200)
	answered.Known, answered.KnownBy = site.Write, "shop: POST /cart is write"
	failed := request("POST", "/cart", 200)
	failed.Failed = "net::ERR_ABORTED"
	sensitive := answered
	sensitive.Sensitive = true
	hiding := answered
	hiding.Plain = site.Plain(shape.Request{Method: "POST", URL: answered.URL, Headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, Body: "a=1&_method=DELETE", Whole: true})
	abroad := answered
	abroad.URL = "https://pay.example/cart"
	both := []string{"shop/orders", "shop/inbox"}
	for _, tt := range []struct {
		name      string
		journal   []checkpoint.Entry
		unchanged []string
		want      string
	}{
		{"a write", []checkpoint.Entry{answered}, both, table.Release},
		{"a write, and the probe that covers it changed", []checkpoint.Entry{answered}, both[1:], table.ManualReview},
		{"a refused write", []checkpoint.Entry{request("POST", "/cart", 403)}, both, table.Release},
		{"an unanswered write", []checkpoint.Entry{request("POST", "/cart", 0)}, both, table.ManualReview},
		{"one that failed while it was answered", []checkpoint.Entry{failed}, both, table.ManualReview},
		{"a write at a sensitive place", []checkpoint.Entry{sensitive}, both, table.ManualReview},
		{"a write that names another method", []checkpoint.Entry{hiding}, both, table.ManualReview},
		{"a write at another site", []checkpoint.Entry{abroad}, both, table.ManualReview},
		{"what no probe covers", []checkpoint.Entry{request("POST", "/pay", 200)}, both, table.ManualReview},
		{"what it covers and what it does not", []checkpoint.Entry{answered, request("POST", "/pay", 200)}, both, table.ManualReview},
		{"after a checkpoint", []checkpoint.Entry{request("POST", "/pay", 200), safe("a"), answered}, both, table.Resume},
		{"a GET", []checkpoint.Entry{get("/favourite/7", MovedOn)}, both, table.Release},
		{"an unanswered GET", []checkpoint.Entry{get("/favourite/7", Unanswered)}, both, table.ManualReview},
		{"another GET", []checkpoint.Entry{get("/vote/7", MovedOn)}, both, table.ManualReview},
	} {
		task := Task{Resumable: true, Sites: b}
		for _, id := range tt.unchanged {
			task.Unchanged, task.UnchangedSinceSafe = append(task.Unchanged, all[id]), append(task.UnchangedSinceSafe, all[id])
		}
		if d := table.Decide(append(sane(), InspectTask(checkpoint.Summarize(tt.journal), task)...)); d.Outcome != tt.want {
			t.Errorf("%s: %s %q, want %s", tt.name, d.Outcome, d.Reasons, tt.want)
		}
	}
}

// TestWhatAPageThatWasOpenedWantsToSend is for a person, and what only reads is not meant; what it shows is
// compared as the answers of probes are.
func TestWhatAPageThatWasOpenedWantsToSend(t *testing.T) {
	t.Parallel()
	b := sites(t, "rehearse: [{open: /, take_text: h1}, {open: /b}]\nrequests: [{shape: POST /feed, is: read}]\n")
	task := Task{Sites: b, ExpectedDomains: []string{"shop.example"}}
	post := func(path string) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example" + path + "?id=5f2b8c1e9d3a4f60", Blocked: true, Failed: "net::ERR_BLOCKED_BY_CLIENT"}
	}
	feed, query := post("/feed"), post("/graphql")
	feed.Known, feed.KnownBy = site.Read, "shop: POST /feed is read"
	query.Name = checkpoint.GraphQLQuery
	abroad := checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: "https://count.example/", Anonymous: true}
	if got, want := strings.Join(Wanted([]checkpoint.Entry{post("/draft"), feed, query, abroad, post("/draft")}, task), " | "), "POST https://shop.example/draft?id=REDACTED"; got != want {
		t.Errorf("wanted are %q, want %q", got, want)
	}
	known := checkpoint.Entry{Method: "GET", URL: "https://shop.example/fav/7", Shape: "GET https://shop.example/fav/{}", Known: site.Write, KnownBy: "shop: GET /fav/* is write"}
	sent, failed := known, known
	sent.Kind, sent.Name, failed.Kind = checkpoint.KindGetWrite, string(Known), checkpoint.KindBlocked
	for _, e := range []checkpoint.Entry{sent, failed} {
		if got := Wanted([]checkpoint.Entry{e}, task); !slices.Equal(got, []string{known.Shape}) {
			t.Errorf("of a GET that is known to write (%s) is wanted %q", e.Kind, got)
		}
	}
	guarded := sent
	guarded.Name, guarded.Known, guarded.KnownBy = string(Guarded), site.Read, "shop: POST /feed is read"
	if got := Wanted([]checkpoint.Entry{guarded}, task); len(got) > 0 {
		t.Errorf("of one that is known to read is wanted %q", got)
	}
	pages := Rehearsals(checkpoint.Summary{}, task)
	if len(pages) != 2 || len(Questions(checkpoint.Summary{}, task)) != 0 {
		t.Fatalf("%+v", pages)
	}
	compared := func(q site.Question, was, now string, wanted ...string) site.Compared {
		return site.Compare(site.Answer{Question: q, State: site.Told, Opened: true, Picked: site.Picked{Values: now, Whole: true, Text: now}, Wanted: wanted},
			site.Kept{Means: q.Means(), Digest: was, Whole: true, Text: was}, func(_, values string) string { return values })
	}
	missed := func(q site.Question, state site.State) []site.Compared {
		return []site.Compared{compared(pages[0], "A", "A"), site.Compare(site.Answer{Question: q, State: state}, site.Kept{}, nil)}
	}
	for _, tt := range []struct {
		name    string
		first   []site.Compared
		waiting bool
		changed table.Answer
		outcome string
	}{
		{"nothing", []site.Compared{compared(pages[0], "A", "A"), compared(pages[1], "[]", "[]")}, false, table.No, table.Release},
		{"a draft", []site.Compared{compared(pages[1], "[]", "[]", "POST /draft")}, true, table.No, table.ManualReview},
		{"another workspace", []site.Compared{compared(pages[0], "A", "B")}, false, table.Yes, table.ManualReview},
		{"a page that could not be opened", missed(pages[1], site.NotHad), false, table.No, table.ManualReview},
		{"a page that was refused", missed(pages[1], site.NotTold), false, table.No, table.ManualReview},
	} {
		v := Asked(Told{First: tt.first}, Told{First: tt.first})
		facts, says := v.Facts, v.Says
		found := append(sane(), InspectTask(checkpoint.Summary{}, Task{})...).With(facts...)
		if d := table.Decide(found); (found.Answer(table.WritesWaiting) == table.Yes) != tt.waiting || found.Answer(table.ProbeChanged) != tt.changed || d.Outcome != tt.outcome {
			t.Errorf("%s: %s %q; %q; %+v", tt.name, d.Outcome, d.Reasons, says, facts)
		}
	}
	for why, want := range map[string]string{"": table.Release, "no browser could be started": table.ManualReview} {
		found := append(sane(), InspectTask(checkpoint.Summary{}, Task{})...).With(Unasked(pages[1:], why)...)
		if d := table.Decide(found); d.Outcome != want {
			t.Errorf("not opened, %q: %s %q, want %s", why, d.Outcome, d.Reasons, want)
		}
	}
}

// TestAChangeBeforeTheSafeCheckpoint speaks against everything but resume; one after it, also if the answer
// is again what it was before the session, against everything.
func TestAChangeBeforeTheSafeCheckpoint(t *testing.T) {
	t.Parallel()
	orders := questions(t)["shop/orders"]
	compared := func(was, now string) Told {
		a := site.Answer{Question: orders, State: site.Told, Picked: site.Picked{Values: now, Whole: true, Text: now}}
		return Told{First: []site.Compared{site.Compare(a, site.Kept{Means: orders.Means(), Digest: was, Whole: true, Text: was}, func(_, values string) string { return values })}}
	}
	cart := checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example/cart", Shape: "POST https://shop.example/cart form(a)", Status: 200, Plain: true}
	journals := map[string][]checkpoint.Entry{"no checkpoint": {step("a")}, "a safe one": {step("a"), safe("b")}, "a safe one, and what the probe covers": {step("a"), cart, safe("b"), cart}}
	for _, tt := range []struct {
		grant, safe, now string
		since, sinceSafe table.Answer
		outcomes         map[string]string
	}{
		{"14", "14", "14", table.No, table.No, map[string]string{"no checkpoint": table.Retry, "a safe one": table.Resume, "a safe one, and what the probe covers": table.Resume}},
		{"14", "15", "15", table.Yes, table.No, map[string]string{"no checkpoint": table.ManualReview, "a safe one": table.Resume, "a safe one, and what the probe covers": table.Resume}},
		{"14", "14", "15", table.Yes, table.Yes, map[string]string{"no checkpoint": table.ManualReview, "a safe one": table.ManualReview, "a safe one, and what the probe covers": table.ManualReview}},
		{"14", "15", "14", table.Yes, table.Yes, map[string]string{"no checkpoint": table.ManualReview, "a safe one": table.ManualReview, "a safe one, and what the probe covers": table.ManualReview}},
	} {
		v := Asked(compared(tt.grant, tt.now), compared(tt.safe, tt.now))
		found := table.Inspection(v.Facts)
		if found.Answer(table.ProbeChanged) != tt.since || found.Answer(table.ProbeChangedSinceSafe) != tt.sinceSafe {
			t.Errorf("%+v: %+v", tt, v.Facts)
		}
		for name, journal := range journals {
			task := Task{Resumable: true, Sites: sites(t, askedFile), Unchanged: v.Unchanged, UnchangedSinceSafe: v.UnchangedSinceSafe}
			d := table.Decide(append(sane(), InspectTask(checkpoint.Summarize(journal), task)...).With(v.Facts...))
			if d.Outcome != tt.outcomes[name] {
				t.Errorf("%s, %s, %s with %s: %s %q, want %s", tt.grant, tt.safe, tt.now, name, d.Outcome, d.Reasons, tt.outcomes[name])
			}
		}
	}
}

// TestWhatASessionDidBeforeItsSiteAnswered may be in the answer.
func TestWhatASessionDidBeforeItsSiteAnswered(t *testing.T) {
	t.Parallel()
	b, orders := sites(t, strings.Replace(askedFile, "requests:\n", "requests:\n  - {shape: \"POST /feed\", is: read}\n", 1)), questions(t)["shop/orders"]
	feed := post("https://shop.example/feed")
	feed.Known, feed.KnownBy = site.Read, "shop: POST /feed is read"
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		since   uint64
		want    bool
	}{
		{"nothing", nil, 0, false},
		{"a page was opened", []checkpoint.Entry{visit("https://shop.example/")}, 0, false},
		{"a request", []checkpoint.Entry{post("https://shop.example/cart")}, 0, true},
		{"one to another site", []checkpoint.Entry{post("https://pay.example/cart")}, 0, false},
		{"requests that nobody saw", []checkpoint.Entry{{Kind: checkpoint.KindRequest, Method: checkpoint.Unseen}}, 0, true},
		{"a GET that looks like a write", []checkpoint.Entry{{Kind: checkpoint.KindGetWrite, Name: string(MovedOn), URL: "https://shop.example/toggle"}}, 0, true},
		{"before the checkpoint, and answered", []checkpoint.Entry{named("r", "https://shop.example/cart"), ended("r", 200, "", true), safe("a")}, 3, false},
		{"under way at the checkpoint", []checkpoint.Entry{named("r", "https://shop.example/cart"), safe("a"), ended("r", 200, "", true)}, 2, true},
		{"after it", []checkpoint.Entry{safe("a"), post("https://shop.example/cart")}, 1, true},
		{"after it, with another one since", []checkpoint.Entry{safe("a"), post("https://shop.example/cart"), safe("b")}, 1, true},
		{"at the grant, before a checkpoint", []checkpoint.Entry{post("https://shop.example/cart"), safe("a")}, 0, true},
	} {
		for i := range tt.journal {
			tt.journal[i].Seq = uint64(i + 1)
		}
		if got := ActedOn(tt.journal, tt.since, Task{Sites: b}, orders); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if ActedOn([]checkpoint.Entry{feed}, 0, Task{Sites: b}, orders) {
		t.Error("what is known to read counts")
	}
}

// TestAnAnswerFromBeforeTheSafeCheckpoint proves nothing of what came after it: a cart that was filled before the
// checkpoint, and ordered after it, is as empty as it was at the grant. It is an alarm all the same, if it changed.
func TestAnAnswerFromBeforeTheSafeCheckpoint(t *testing.T) {
	t.Parallel()
	book := sites(t, "probes: [{name: cart, get: /cart, take: [\"$.count\"], covers: [\"POST /cart\", \"POST /cart/*\"]}]\n")
	q := book.Questions([]string{"https://shop.example/"}, nil)[0]
	post := func(path string) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example" + path, Shape: "POST https://shop.example" + path + " form(a)", Status: 200, Plain: true}
	}
	named := safe("filled")
	named.Seq = 9
	journal := []checkpoint.Entry{step("a"), post("/cart"), named, post("/cart/order")}
	kept := func(count string) map[string]site.Kept {
		return map[string]site.Kept{q.ID(): {Means: q.Means(), Digest: count, Whole: true, Text: count, Token: 7}}
	}
	grant := site.Baseline{Told: kept("0")}
	const why = "the site answered 429"
	for _, tt := range []struct {
		name    string
		all     []site.Baseline
		now     string
		changed table.Answer
		want    string
		says    string
	}{
		{"the checkpoint has no answer", []site.Baseline{grant, {Checkpoint: 9, Name: "filled", Missing: map[string]string{q.ID(): why}}}, "0", table.No, table.ManualReview,
			"compared with the answer at the grant: at checkpoint filled " + why + ", so that it covers nothing"},
		{"nobody asked at the checkpoint", []site.Baseline{grant}, "0", table.No, table.ManualReview, "it was not asked at the last safe checkpoint, so that it covers nothing"},
		{"an earlier checkpoint has one", []site.Baseline{grant, {Checkpoint: 4, Name: "early", Told: kept("0")}}, "0", table.No, table.ManualReview, "so that it covers nothing"},
		{"only an answer at rest is there", nil, "0", table.No, table.ManualReview, "so that it covers nothing"},
		{"the checkpoint has the answer", []site.Baseline{grant, {Checkpoint: 9, Name: "filled", Told: kept("0")}}, "0", table.No, table.Resume, ""},
		{"and another one than now", []site.Baseline{grant, {Checkpoint: 9, Name: "filled", Told: kept("1")}}, "0", table.Yes, table.ManualReview, "1, now 0"},
		{"it is not what it was at the grant", []site.Baseline{grant}, "1", table.Yes, table.ManualReview, "0, now 1"},
	} {
		told := func(since uint64) Told {
			before, from := site.Before(q, kept("0")[q.ID()], 7, tt.all, since)
			c := site.Compare(site.Answer{Question: q, State: site.Told, Picked: site.Picked{Values: tt.now, Whole: true, Text: tt.now}}, before, func(_, values string) string { return values })
			c.From = from
			return Told{First: []site.Compared{c}}
		}
		v := Asked(told(0), told(9))
		task := Task{Resumable: true, Sites: book, Unchanged: v.Unchanged, UnchangedSinceSafe: v.UnchangedSinceSafe}
		found := append(sane(), InspectTask(checkpoint.Summarize(journal), task)...).With(v.Facts...)
		if d := table.Decide(found); d.Outcome != tt.want || found.Answer(table.ProbeChangedSinceSafe) != tt.changed || !strings.Contains(strings.Join(v.Says, "\n"), tt.says) {
			t.Errorf("%s: %s %q, changed %s, %q; want %s, %s, %q", tt.name, d.Outcome, d.Reasons, found.Answer(table.ProbeChangedSinceSafe), v.Says, tt.want, tt.changed, tt.says)
		}
	}
}
