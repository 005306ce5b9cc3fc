package accountcheck

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint/site"
	"leasehold/launcher/recovery/findings"
)

// TestAPageIsOpenedAndSendsNothing: what it wants to send is noted, and what it shows is picked out of
// what its scripts made.
func TestAPageIsOpenedAndSendsNothing(t *testing.T) {
	h, web := newHost(t), newDesk(t)
	book := web.book(t, `requests: [{shape: "POST /feed", is: read}]
rehearse:
  - {open: /draft, take_text: "#workspace"}
  - {open: /asks-always, take_text: "#workspace"}
  - {open: /page}
  - {open: /refused, take_text: "#workspace"}
  - {open: /down}
`)
	h.request.Questions = book.Rehearsals([]string{web.URL}, nil)
	h.request.Task, h.request.Known = findings.Task{Sites: book}, func() *site.Book { return book }
	f, err := h.checker().Run(t.Context(), h.request)
	if err != nil || len(f.Answers) != 5 {
		t.Fatalf("%+v, %v", f, err)
	}
	for i, want := range []string{
		"told Team A: POST " + web.URL + "/outbox json(text), POST " + web.URL + "/beacon", "told Team B: ", "told opened: ", "not_shown : ", "unknown : ",
	} {
		a := f.Answers[i]
		if got := fmt.Sprintf("%s %s: %s", a.State, a.Text, strings.Join(a.Wanted, ", ")); !strings.HasPrefix(got, want) || len(want) < 20 && got != want {
			t.Errorf("%s: %s (%s), want %s", a.URL, got, a.How, want)
		}
	}
	for i, a := range f.Answers {
		if want := i < 3; a.Opened != want {
			t.Errorf("%s was opened: %v (%s), want %v", a.URL, a.Opened, a.How, want)
		}
	}
	asked := web.took()
	if slices.ContainsFunc(asked, func(r string) bool { return !strings.HasPrefix(r, "GET ") }) || !slices.Contains(asked, "GET /draft") {
		t.Errorf("the site was asked %q", asked)
	}
	if n := strings.Count(strings.Join(asked, " "), "GET /draft"); n != 1 { // the websocket's handshake is one, too
		t.Errorf("%d times: %q", n, asked)
	}
}

// TestAPageThatIsOpenedSendsNoGETThatWrites, as the file of its site says, also where it is redirected to one.
func TestAPageThatIsOpenedSendsNoGETThatWrites(t *testing.T) {
	h, web := newHost(t), newDesk(t)
	book := web.book(t, `requests: [{shape: "GET /fav/*", is: write}, {shape: "GET /orders", is: write}]
probes: [{name: orders, get: /orders, take: ["$.n"]}]
rehearse: [{open: /replays}, {open: /moved}]
`)
	h.request.Questions = slices.Concat(book.Questions([]string{web.URL}, nil), book.Rehearsals([]string{web.URL}, nil))
	h.request.Task, h.request.Known = findings.Task{Sites: book}, func() *site.Book { return book }
	f, err := h.checker().Run(t.Context(), h.request)
	if err != nil || len(f.Answers) != 3 || f.Answers[0].State != site.Told {
		t.Fatalf("%+v, %v", f, err)
	}
	for _, a := range f.Answers[1:] {
		if !slices.Contains(a.Wanted, "GET "+web.URL+"/fav/{}") {
			t.Errorf("%s wants to send %q (%s)", a.URL, a.Wanted, a.How)
		}
	}
	asked := web.took()
	if slices.ContainsFunc(asked, func(r string) bool { return strings.HasPrefix(r, "GET /fav/") }) || !slices.Contains(asked, "GET /empty") {
		t.Errorf("the site was asked %q", asked)
	}
}

// TestAPageThatIsNotOpened: it leads to a sign-in, or there are too many.
func TestAPageThatIsNotOpened(t *testing.T) {
	h, web := newHost(t), newDesk(t)
	book := web.book(t, "rehearse: [{open: /of-the-account}, {open: /elsewhere}, {open: /page?a=1}, {open: /page?a=2}, {open: /page?a=3}, {open: /page?a=4}]")
	h.request.Questions = book.Rehearsals([]string{web.URL}, nil)
	h.request.Task, h.request.Known = findings.Task{Sites: book}, func() *site.Book { return book }
	f, err := h.checker().Run(t.Context(), h.request)
	if err != nil || len(f.Answers) != 6 {
		t.Fatalf("%+v, %v", f, err)
	}
	for i, want := range []struct {
		opened bool
		how    string
	}{
		{false, web.URL + "/of-the-account led to " + web.URL + "/login?next=REDACTED"},
		{true, "answered 200, at " + web.URL + "/page?id=REDACTED"}, {true, ""}, {true, ""}, {true, ""},
		{false, "at most 5 pages are opened"},
	} {
		if a := f.Answers[i]; a.Opened != want.opened || !strings.Contains(a.How, want.how) {
			t.Errorf("%s was opened: %v (%s), want %+v", a.URL, a.Opened, a.How, want)
		}
	}
	if a := f.Answers[0]; a.State != site.NotTold || a.Text != "" {
		t.Errorf("a sign-in shows %s %q", a.State, a.Text)
	}
}
