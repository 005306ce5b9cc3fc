package console

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence/recorder"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// told are moments in short: kind, text and note, with what warns marked.
func told(list []moment) string {
	var lines []string
	for _, m := range list {
		line := m.Kind + " " + m.Text
		if m.Note != "" {
			line += " (" + m.Note + ")"
		}
		if m.Times > 1 {
			line += fmt.Sprintf(" x%d", m.Times)
		}
		if m.Warns {
			line += " !"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestWhatTheSafeCheckpointDoesNotVouchFor(t *testing.T) {
	const u = "https://shop.example/x"
	request := func(name string) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: u, Type: "Fetch", Request: name}
	}
	answered := func(name string, status int) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: u, Request: name, Status: status}
	}
	point := checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "cart", Safe: true}
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		want    string
	}{
		{"nothing", []checkpoint.Entry{{Kind: checkpoint.KindStart}, {Kind: checkpoint.KindConnection, Name: "opened"}}, ""},
		{"no checkpoint: everything", []checkpoint.Entry{{Kind: checkpoint.KindStep, Name: "a"}, request("1"), answered("1", 201)}, "step a\nrequest POST " + u + " (201 Created) !"},
		{"what came before it is vouched for", []checkpoint.Entry{{Kind: checkpoint.KindStep, Name: "a"}, request("1"), answered("1", 200), point, {Kind: checkpoint.KindStep, Name: "b"}}, "step b"},
		{"what was not answered then is not", []checkpoint.Entry{request("1"), point, answered("1", 500)}, "request POST " + u + " (500 Internal Server Error; sent before the checkpoint, which cannot vouch for it) !"},
		{"unanswered", []checkpoint.Entry{point, request("1")}, "request POST " + u + " (unanswered) !"},
		{"a checkpoint that is not safe ends nothing", []checkpoint.Entry{point, {Kind: checkpoint.KindStep, Name: "a"}, {Kind: checkpoint.KindCheckpoint, Name: "half"}}, "step a\ncheckpoint half (not safe to resume from)"},
		{"a form and its request are one", []checkpoint.Entry{{Kind: checkpoint.KindForm, Method: "POST", URL: u}, {Kind: checkpoint.KindRequest, Method: "POST", URL: u, Type: "Document", Request: "1"}, answered("1", 302)}, "request POST " + u + " (302 Found) !"},
		{"a form by GET", []checkpoint.Entry{{Kind: checkpoint.KindForm, Method: "GET", URL: u}}, "form GET " + u},
		{"equal ones", []checkpoint.Entry{{Kind: checkpoint.KindDialog, Name: "alert", URL: u, Count: 3}}, "dialog alert on " + u + " x3"},
		{"a person", []checkpoint.Entry{
			{Kind: checkpoint.KindPerson, Name: checkpoint.PersonTook, Person: "Ann", Principal: "uid:7", Text: "captcha"},
			{Kind: checkpoint.KindPerson, Name: "click", Person: "Ann", Principal: "uid:7", URL: u, Count: 4},
		}, "person Ann (uid:7) takes the session over (captcha)\nperson Ann (uid:7): click " + u + " x4 !"},
		{"a refusal", []checkpoint.Entry{{Kind: checkpoint.KindAnswer, Status: 403, URL: u}, {Kind: checkpoint.KindAnswer, Status: 404, URL: u}, {Kind: checkpoint.KindAnswer, Status: 200, URL: u, Committed: true}}, "answer " + u + " (403 Forbidden) !"},
		{"a sign-in", []checkpoint.Entry{{Kind: checkpoint.KindAnswer, Asked: u, URL: "https://id.example/", SignIn: "password", Status: 200}}, "answer " + u + " led to https://id.example/ (asks for a password) !"},
		{"a cookie", []checkpoint.Entry{{Kind: checkpoint.KindCookie, Cookie: &checkpoint.CookieChange{What: checkpoint.CookieDropped, By: checkpoint.BySite, Domain: "shop.example"}}, {Kind: checkpoint.KindCookie, Cookie: &checkpoint.CookieChange{What: checkpoint.CookiesRead}}}, "cookie a cookie of shop.example that may carry the account's identity was dropped (by site)"},
		{"messages, and what nobody saw", []checkpoint.Entry{{Kind: checkpoint.KindRequest, Method: checkpoint.Websocket, URL: u}, {Kind: checkpoint.KindRequest, Method: checkpoint.Unseen, URL: u}}, "request messages on the websocket " + u + " !\nrequest what pages may have sent, and nobody saw: " + u + " !"},
		{"sensitive, stopped, held back", []checkpoint.Entry{{Kind: checkpoint.KindURL, URL: u, Sensitive: true}, {Kind: checkpoint.KindBlocked, Method: "PUT", URL: u}, {Kind: checkpoint.KindWithheld, Method: "POST", URL: u}},
			"page " + u + " (sensitive) !\nstopped PUT " + u + " (failed, not sent: the session is read-only)\nheld back POST " + u + " (wanted after the worker was lost, and never sent)"},
	} {
		if got := told(since(momentsOf(numbered(tt.journal), nil))); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestTypingIsToldWithoutText(t *testing.T) {
	at := func(n int, method, target string) recorder.CommandEntry {
		return recorder.CommandEntry{At: noon.Add(time.Duration(n) * time.Second), Method: method, Target: target}
	}
	got := told(typing([]recorder.CommandEntry{
		at(1, "Input.insertText", "A"), at(2, "Network.enable", "A"), at(3, "Input.dispatchKeyEvent", "A"), at(4, "Input.dispatchMouseEvent", "A"),
		at(5, "Input.insertText", "A"), at(6, "Input.insertText", "B"),
	}, nil))
	line := "typed into the page; what it was is not kept (commands: %d)"
	if want := fmt.Sprintf(line+"\n"+line+"\n"+line, 2, 1, 1); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestFieldsAreToldInOrder: what was typed into stands before what was sent, and the worker's
// commands are told only where the journal does not tell into which field they typed.
func TestFieldsAreToldInOrder(t *testing.T) {
	at := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	typed := func(n int, f checkpoint.Field) checkpoint.Entry {
		return checkpoint.Entry{At: at(n), Kind: checkpoint.KindTyped, Name: string(f), URL: "https://a/", Target: "A"}
	}
	byAnn := typed(9, checkpoint.FieldCode)
	byAnn.Person, byAnn.Principal = "Ann", "uid:7"
	journal := []checkpoint.Entry{
		typed(1, checkpoint.FieldText), {At: at(2), Kind: checkpoint.KindCheckpoint, Name: "c", Safe: true},
		typed(3, checkpoint.FieldMail), typed(4, checkpoint.FieldPassword), {At: at(5), Kind: checkpoint.KindRequest, Method: "POST", URL: "https://a/"}, byAnn,
	}
	commands := []recorder.CommandEntry{
		{At: at(3), Method: "Input.insertText", Target: "A"}, {At: at(4), Method: "Input.insertText", Target: "A"},
		{At: at(5), Method: "Input.insertText", Target: "B"}, {At: at(200), Method: "Input.insertText", Target: "A"},
	}
	const line = "typed into the page; what it was is not kept (commands: 1)"
	want := "typed a mail address on https://a/\ntyped a password on https://a/\nrequest POST https://a/ !\n" + line + "\ntyped Ann (uid:7): a one-time code on https://a/\n" + line
	if got := told(since(momentsOf(numbered(journal), commands))); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	kept := api.Inspection{
		UnsafeRequests: []api.UnsafeRequest{{At: at(5), Method: "POST", URL: "https://a/", SinceSafeCheckpoint: true}},
		Typed:          []api.Typed{{At: at(1), Field: "text", URL: "https://a/"}, {At: at(4), Field: "password", URL: "https://a/", SinceSafeCheckpoint: true}},
	}
	if got, want := told(keptOf(kept)), "typed a password on https://a/\nrequest POST https://a/ !"; got != want {
		t.Errorf("without a journal: got %s\nwant %s", got, want)
	}
}

// TestWhatDoesNotCountIsQuiet: it stands once, below, with its number; and without a decision nothing
// speaks against one.
func TestWhatDoesNotCountIsQuiet(t *testing.T) {
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	request := func(s int, url string) checkpoint.Entry {
		return checkpoint.Entry{At: at(s), Kind: checkpoint.KindRequest, Method: "POST", URL: url}
	}
	all := momentsOf(numbered([]checkpoint.Entry{request(1, "https://a/beacon"), request(2, "https://a/save"), request(3, "https://a/save"), request(4, "https://a/beacon")}), nil)
	judged := []api.UnsafeRequest{
		{At: at(1), Method: "POST", URL: "https://a/beacon", Counts: "harmless"}, {At: at(2), Method: "POST", URL: "https://a/save", Counts: "unsafe"},
		{At: at(4), Method: "POST", URL: "https://a/beacon", Counts: "harmless"},
	}
	loud, background := quiet(runs(weighed(all, judged, true)))
	if got, want := told(loud)+"\n"+told(background), "request POST https://a/save x2 !\nrequest POST https://a/beacon (harmless) x2"; got != want {
		t.Errorf("in review: got %s\nwant %s", got, want)
	}
	if got, want := told(weighed(all, judged, false)[1:2]), "request POST https://a/save"; got != want {
		t.Errorf("of a free profile: got %s, want %s", got, want)
	}
}

func TestURLsOfThePageAreShownAsPaths(t *testing.T) {
	for text, want := range map[string]string{
		"POST https://shop.example/save": "POST /save", "POST https://shop.example.evil/save": "POST https://shop.example.evil/save", "https://pay.example/": "https://pay.example/",
	} {
		if got := within("https://shop.example/billing?x", []moment{{Text: text}})[0].Shown; got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestAShortListKeepsWhatAsked(t *testing.T) {
	var all []moment
	for i := range 2000 {
		all = append(all, moment{Kind: "step", Text: fmt.Sprint(i), Asked: i == 3 || i == 700})
	}
	var got []string
	for _, m := range foremost(all, 4) {
		got = append(got, m.Text)
	}
	if want := []string{"3", "700", "1998", "1999"}; !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
	if short := foremost(all[:3], 4); len(short) != 3 {
		t.Errorf("%d of 3", len(short))
	}
}

func TestIncidentsAndWhoDecidedThem(t *testing.T) {
	var got []string
	for _, i := range incidentsOf(story()) {
		line := fmt.Sprintf("%s %s %s open=%v", i.Worker, i.Reason, i.Decision, i.Open)
		for _, a := range i.Acts {
			line += fmt.Sprintf("; %s by %s (%s): %s", a.What, a.Who, a.Principal, a.Note)
		}
		got = append(got, line)
	}
	want := []string{
		"worker-9 connection_lost manual_review open=false; kept in review by Ada (uid:1000): asked the shop; approved by Grace (uid:1000): the order is there once",
		"worker-3 connection_lost manual_review open=true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// A hold during the review, in order: what was kept before is not kept again by it.
	kept := lease.Event{Event: "manual_review", State: lease.ManualReview, Reviewer: "Ada", Decision: "manual_review"}
	list := append(story(), kept,
		lease.Event{Event: "granted", State: lease.Held, Reason: lease.ReasonByHand, OwnerWorkerID: "Eve"},
		lease.Event{Event: "released", State: lease.ManualReview}, kept)
	open := incidentsOf(list)[1]
	if len(open.Acts) != 2 || open.Acts[0].What != actKept || open.Acts[1].What != actByHand || !open.Open {
		t.Errorf("after a hold: %+v", open)
	}
	// One that was taken back, since the worker was alive.
	alive := incidentsOf([]lease.Event{{Event: "suspected_stale", State: lease.SuspectedStale}, {Event: "granted", State: lease.Held, Reason: "reasserted"}})
	if len(alive) != 1 || alive[0].Open || alive[0].Decision != "" {
		t.Errorf("taken back: %+v", alive)
	}
}

func TestFilmstripIsOneLineOfTime(t *testing.T) {
	moments := momentsOf(session(), nil)
	stills := []still{{noon.Add(-270 * time.Second), "list", &picture{Part: "1"}}, {noon.Add(3 * time.Second), "end", &picture{Part: "2"}}}
	frames, cut := filmstrip(moments, stills, story()[10:15], noon)
	var got []string
	for _, f := range frames {
		line := fmt.Sprintf("%s %d after=%v", f.State, len(f.Moments), f.After)
		if f.Loss {
			line += " loss"
		}
		if f.Picture != nil {
			line += " picture " + f.Picture.Part
		}
		got = append(got, strings.TrimSpace(line))
	}
	if cut != 0 || len(frames) < 8 {
		t.Errorf("%d frames, %d cut", len(frames), cut)
	}
	loss := slices.IndexFunc(frames, func(f frame) bool { return f.Loss })
	if loss < 0 || !slices.IsSortedFunc(frames, func(a, b frame) int { return a.At.Compare(b.At) }) {
		t.Fatalf("no loss, or out of order: %s", strings.Join(got, "\n"))
	}
	for i, f := range frames {
		if f.After != (i >= loss) {
			t.Errorf("frame %d is after the loss: %v", i, f.After)
		}
	}
	var many []moment
	for i := range 500 {
		many = append(many, moment{At: noon.Add(time.Duration(i) * time.Second), Kind: "page", Text: fmt.Sprint(i)})
	}
	if frames, cut := filmstrip(many, nil, nil, time.Time{}); len(frames) != maxFrames || cut != 500-maxFrames || frames[0].Moments[0].Text != "0" || frames[1].Moments[0].Text != fmt.Sprint(500-maxFrames+1) {
		t.Errorf("%d frames, %d cut", len(frames), cut)
	}
}

func TestDeceivingCharactersAreShown(t *testing.T) {
	for text, want := range map[string]string{
		"plain é 語": "plain é 語", "a\u202egnp.exe": "a\ufffdgnp.exe", "a\x00b\nc": "a\ufffdb c", "zero\u200bwidth": "zero\ufffdwidth", strings.Repeat("x", 5000): strings.Repeat("x", longestText) + "…",
	} {
		if got := plain(text); got != want {
			t.Errorf("%.20q is shown as %.20q", text, got)
		}
	}
}
