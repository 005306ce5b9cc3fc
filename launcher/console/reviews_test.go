package console

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/recovery/findings"
	"leasehold/lease"
)

// alike gives the backend reviews of which some are alike: three of shops, two of others that sent nothing
// unknown, and some that stand alone.
func (b *backend) alike() {
	of := func(name, reason string, requests []api.UnsafeRequest, change func(*api.Profile, *api.Inspection)) {
		r := inReview(name, "ev_"+name, func(r *api.Profile) { r.Reason = reason })
		i := api.Inspection{Decision: lease.DecisionManualReview, UnsafeRequests: requests, Against: []api.Objection{
			{Fact: "unsafe_requests", Answer: "yes", Sentence: "Unsafe requests were sent."}, {Fact: "dialog_waits_for_answer", Answer: "yes", Sentence: "A dialog waits at " + hostile + "."},
		}}
		change(&r, &i)
		b.profiles = append(b.profiles, r)
		b.cases[name] = scene{inspection: i}
	}
	post := func(path string) api.UnsafeRequest {
		return api.UnsafeRequest{Method: "POST", URL: "https://shop.example" + path + "?n=1", Shape: "POST https://shop.example" + path + " json(query) query operation=Feed", Times: 3, Counts: "unsafe"}
	}
	nothing := func(*api.Profile, *api.Inspection) {}
	for _, name := range []string{"shop_1", "shop_2", "shop_3"} {
		of(name, "connection_lost", []api.UnsafeRequest{post("/graphql"), post("/cart"), post("/graphql")}, nothing)
	}
	of("shop_4", "connection_lost", []api.UnsafeRequest{post("/graphql")}, nothing)
	of("shop_5", "heartbeat_timeout", []api.UnsafeRequest{post("/graphql"), post("/cart")}, nothing)
	for _, name := range []string{"bank_1", "bank_2"} {
		of(name, "browser_crashed", nil, func(_ *api.Profile, i *api.Inspection) { i.Against = nil })
	}
	of("bank_3", "browser_crashed", nil, func(r *api.Profile, _ *api.Inspection) { r.OtherHome = "host-2" })
	of("bank_4", "browser_crashed", nil, func(_ *api.Profile, i *api.Inspection) { i.ForeignLock = "host-7" })
	of("bank_5", "browser_crashed", nil, func(_ *api.Profile, i *api.Inspection) { *i = api.Inspection{} })
}

func alikeBackend() *backend {
	b := &backend{cases: map[string]scene{}}
	b.alike()
	return b
}

// valuesOf are what the form of a page says of each review that can be selected.
func valuesOf(body string) (values []string) {
	for _, found := range regexp.MustCompile(`name="review" value="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		values = append(values, html.UnescapeString(found[1]))
	}
	return values
}

// decide sends the form of the page.
func (b *backend) decide(decision, name string, values ...string) *httptest.ResponseRecorder {
	form := url.Values{"review": values, "decision": {decision}, "reviewer": {name}, "note": {"the shop was down"}}
	return b.ask("POST", "/reviews", form.Encode(), "Content-Type: application/x-www-form-urlencoded", "Origin: http://127.0.0.1:9333")
}

// said is the text of an element of a page.
func said(w *httptest.ResponseRecorder, id string) string {
	found := regexp.MustCompile(`(?s)id="` + id + `">(.*?)</(p|div)>\n`).FindStringSubmatch(w.Body.String() + "\n")
	if found == nil {
		return ""
	}
	return strings.Join(strings.Fields(html.UnescapeString(regexp.MustCompile(`(?s)<[^>]*>`).ReplaceAllString(found[1], " "))), " ")
}

// TestReviewsThatAreAlike: those with the same reason and the same unknown shapes stand together, whatever
// the order and number of their requests; what is bound to one page stands alone, and says why.
func TestReviewsThatAreAlike(t *testing.T) {
	b := alikeBackend()
	body := b.get(t, "/reviews", 200)
	want := []string{"bank_1 17 9 ev_bank_1", "bank_2 17 9 ev_bank_2", "shop_1 17 9 ev_shop_1", "shop_2 17 9 ev_shop_2", "shop_3 17 9 ev_shop_3"}
	if got := valuesOf(body); !slices.Equal(slices.Sorted(slices.Values(got)), want) || got[0] != want[2] {
		t.Errorf("%q can be decided together, want %q, the larger group first", got, want)
	}
	for _, text := range []string{
		"3 because of <bdi>connection lost</bdi>", "<bdi>https://shop.example/cart</bdi>", "2 because of <bdi>browser crashed</bdi>", "No request of theirs is known to count.",
		"its home is contested", "a browser of another host may have it", "what its recovery found is not on this host", `href="/console/shop_5">shop_5</a>`, "A dialog waits at &lt;img",
	} {
		if !strings.Contains(body, text) {
			t.Errorf("the page lacks %s", text)
		}
	}
	if strings.Contains(body, "Unsafe requests were sent.") || strings.Contains(body, `" checked`) || strings.Count(body, "<td>nothing</td>") != 2 {
		t.Error("what is the same of all stands in each row, or something is selected before a person does it")
	}
	all := regexp.MustCompile(`href="(/reviews\?select=[^"]*)#`).FindStringSubmatch(body)
	if body := b.get(t, all[1], 200); strings.Count(body, `" checked`) != 3 {
		t.Errorf("%d are selected by the link, want the 3 of its group", strings.Count(body, `" checked`))
	}
	if list := b.get(t, "/?state=manual_review", 200); !strings.Contains(list, `<a href="/reviews">Decide alike ones together</a>`) || strings.Contains(b.get(t, "/", 200), "alike ones") {
		t.Error("the list of reviews, and only that, leads to the page")
	}
	b.who = principal.Principal{Name: "vic", Role: principal.Viewer, Profiles: principal.Patterns{"shop_*"}}
	if body := b.get(t, "/reviews", 200); len(valuesOf(body)) != 0 || strings.Contains(body, "bank_") || !strings.Contains(body, "You are vic") {
		t.Error("a viewer can decide, or sees profiles of others")
	}
	b.profiles = nil
	if body := b.get(t, "/reviews", 200); !strings.Contains(body, "No two that wait for a person are alike.") {
		t.Error("an empty page does not say so")
	}
}

// TestRequestsThatCountTellReviewsApart, whatever is known of them: who sent one is not beside who sent none, the
// page names it, and its sentence stays in the row unless all that count are requests of which nothing was known.
func TestRequestsThatCountTellReviewsApart(t *testing.T) {
	const pay = "POST https://bank.example/transfer json(sum)"
	sent := func(shape, known string) api.UnsafeRequest {
		return api.UnsafeRequest{Method: "POST", URL: "https://bank.example/transfer?n=1", Shape: shape, Known: known, Times: 1, Answer: "200 OK", Counts: "unsafe"}
	}
	harmless := sent(pay, "read")
	harmless.Counts = "harmless"
	const sentence = "<bdi>Unsafe requests were sent: 1 seen.</bdi>"
	for _, tt := range []struct {
		name     string
		request  api.UnsafeRequest
		answer   string
		together bool // with who sent none
		row      bool // the sentence is in the row
		says     string
	}{
		{"known to write", sent(pay, "write"), "yes", false, true, "<bdi>https://bank.example/transfer</bdi> <small><bdi>json(sum)</bdi></small> (known to write)"},
		{"known to read, and counts all the same", sent(pay, "read"), "yes", false, true, "(known to read)"},
		{"a shape without an origin", sent("POST {} json(sum)", ""), "yes", false, true, "(nothing was known of it)"},
		{"without a shape", sent("", ""), "yes", false, true, "(nothing was known of it)"},
		{"unknown", sent(pay, ""), "yes", false, false, "(nothing was known of it)"},
		{"harmless", harmless, "yes", true, true, "No request of theirs is known to count."},
		{"not known whether there was one", api.UnsafeRequest{}, "unknown", true, true, "No request of theirs is known to count."},
	} {
		b := &backend{cases: map[string]scene{}}
		for _, name := range []string{"paid_1", "paid_2", "none_1", "none_2"} {
			b.profiles = append(b.profiles, inReview(name, "ev_"+name, func(r *api.Profile) { r.Reason = "connection_lost" }))
			i := api.Inspection{Decision: lease.DecisionManualReview, Against: []api.Objection{{Fact: "dialog_waits_for_answer", Answer: "yes", Sentence: "A dialog waits."}}}
			if strings.HasPrefix(name, "paid") {
				i.UnsafeRequests = []api.UnsafeRequest{tt.request}
				i.Against = append(i.Against, api.Objection{Fact: "unsafe_requests", Answer: tt.answer, Sentence: "Unsafe requests were sent: 1 seen."})
			}
			b.cases[name] = scene{inspection: i}
		}
		body := b.get(t, "/reviews", 200)
		groups, want := strings.Count(body, `class="card together"`), 2
		if tt.together {
			want = 1
		}
		if in := strings.Count(body, sentence) == 2; groups != want || in != tt.row || !strings.Contains(body, tt.says) {
			t.Errorf("%s: %d groups, want %d; the sentence is in the rows: %v, want %v; says %q: %v", tt.name, groups, want, in, tt.row, tt.says, strings.Contains(body, tt.says))
		}
	}
}

// TestMoreRequestsThanAreListed: what the page cannot name all of keeps its sentence, with the number.
func TestMoreRequestsThanAreListed(t *testing.T) {
	for _, n := range []int{maxKinds, maxKinds + 1, findings.MaxListed} {
		i := api.Inspection{Decision: lease.DecisionManualReview, Against: []api.Objection{{Fact: "unsafe_requests", Answer: "yes", Sentence: "Unsafe requests were sent."}}}
		for k := range n {
			url := fmt.Sprintf("https://shop.example/%c%c", 'a'+k/20, 'a'+k%20)
			if n == findings.MaxListed {
				url = "https://shop.example/a"
			}
			i.UnsafeRequests = append(i.UnsafeRequests, api.UnsafeRequest{Method: "POST", URL: url, Shape: "POST " + url, Times: 1, Counts: "unsafe"})
		}
		b := &backend{cases: map[string]scene{}}
		for _, name := range []string{"a", "b"} {
			b.profiles, b.cases[name] = append(b.profiles, inReview(name, "ev_"+name)), scene{inspection: i}
		}
		if got := strings.Contains(b.get(t, "/reviews", 200), "<td><bdi>Unsafe requests were sent.</bdi></td>"); got != (n > maxKinds) {
			t.Errorf("%d requests: the sentence is in the rows: %v", n, got)
		}
	}
}

// TestReviewsAreDecidedTogether: each by itself, as the person saw it. One that changed meanwhile is refused
// and named, and so is all of a form that is sent twice.
func TestReviewsAreDecidedTogether(t *testing.T) {
	b := alikeBackend()
	b.profiles[b.at("shop_2")].Sequence = 10 // it was kept by somebody else meanwhile
	seen := []string{"shop_1 17 9 ev_shop_1", "shop_2 17 9 ev_shop_2", "shop_3 17 9 ev_shop_3"}
	w := b.decide("keep", "Ada", seen...)
	if w.Code != http.StatusConflict || said(w, "done") != "Kept in review: shop_1 , shop_3" || said(w, "not-done") != "Not decided: shop_2 : profile shop_2 has changed since it was read" {
		t.Errorf("%d: done: %q, not: %q", w.Code, said(w, "done"), said(w, "not-done"))
	}
	for i, profile := range []string{"shop_1", "shop_2", "shop_3"} {
		if want := (api.ReviewRequest{Write: api.Write{Token: 17}, Decision: "keep", Reviewer: "Ada", Note: "the shop was down", EvidenceID: "ev_" + profile, Sequence: 9}); b.reviews[i] != want {
			t.Errorf("%s is decided by %+v, want %+v", profile, b.reviews[i], want)
		}
	}
	if w := b.decide("keep", "Ada", seen...); w.Code != http.StatusConflict || said(w, "done") != "" || strings.Count(said(w, "not-done"), "has changed since") != 3 {
		t.Errorf("sent twice: %d: done: %q, not: %q", w.Code, said(w, "done"), said(w, "not-done"))
	}
	now := valuesOf(b.get(t, "/reviews", 200))
	w = b.decide("approve", "Ada", slices.Concat(now[:3], now[:1], []string{"gone 1 1 ev"})...)
	if w.Code != http.StatusConflict || said(w, "done") != "Approved: shop_1 , shop_2 , shop_3" || !strings.Contains(said(w, "not-done"), "there is no profile gone") {
		t.Errorf("approved: %d: done: %q, not: %q", w.Code, said(w, "done"), said(w, "not-done"))
	}
	if w := b.decide("approve", "Ada", now[:3]...); strings.Count(said(w, "not-done"), "is available, not in manual_review") != 3 {
		t.Errorf("approved twice: %q", said(w, "not-done"))
	}
	if w := b.decide("keep", "Ada", "bank_1 17 9 ev_bank_1", "bank_2 17 9 ev_bank_2"); w.Code != http.StatusOK || said(w, "not-done") != "" {
		t.Errorf("all decided: %d: not: %q", w.Code, said(w, "not-done"))
	}
}

// TestOnlyWhoMayDecidesTogether: the role is asked for the form, and a pattern for each profile in it.
func TestOnlyWhoMayDecidesTogether(t *testing.T) {
	b := alikeBackend()
	b.who = principal.Principal{Name: "rita", Role: principal.Reviewer, Profiles: principal.Patterns{"shop_1", "bank_*"}}
	if got := valuesOf(b.get(t, "/reviews", 200)); !slices.Equal(got, []string{"bank_1 17 9 ev_bank_1", "bank_2 17 9 ev_bank_2"}) {
		t.Errorf("she may select %q", got)
	}
	w := b.decide("approve", "Rita", "shop_1 17 9 ev_shop_1", "shop_2 17 9 ev_shop_2")
	if w.Code != http.StatusConflict || said(w, "done") != "Approved: shop_1" || !strings.Contains(said(w, "not-done"), `no pattern of yours is of profile "shop_2"`) || len(b.reviews) != 1 {
		t.Errorf("%d: done: %q, not: %q, %d decisions", w.Code, said(w, "done"), said(w, "not-done"), len(b.reviews))
	}
}

// TestAWrongFormDecidesNothing, says why, and keeps what was filled in.
func TestAWrongFormDecidesNothing(t *testing.T) {
	const one = "shop_1 17 9 ev_shop_1"
	var many []string
	for i := range maxTogether + 1 {
		many = append(many, fmt.Sprintf("p%d 1 1 ev", i))
	}
	for why, w := range map[string]func(*backend) *httptest.ResponseRecorder{
		"Select the reviews":       func(b *backend) *httptest.ResponseRecorder { return b.decide("keep", "Ada") },
		"51 reviews are selected":  func(b *backend) *httptest.ResponseRecorder { return b.decide("keep", "Ada", many...) },
		"Choose what is to happen": func(b *backend) *httptest.ResponseRecorder { return b.decide("burn", "Ada", one) },
		"Not done: reviewer: want": func(b *backend) *httptest.ResponseRecorder { return b.decide("keep", " ", one) },
	} {
		b := alikeBackend()
		if w := w(b); w.Code != http.StatusBadRequest || !strings.HasPrefix(said(w, "problem"), why) || len(b.reviews) > 0 || !strings.Contains(w.Body.String(), "the shop was down") {
			t.Errorf("%s: %d %q, %d decisions", why, w.Code, said(w, "problem"), len(b.reviews))
		}
	}
	for _, value := range []string{"shop_1", "shop_1 17 9", "shop_1 x 9 ev", "shop_1 17 0 ev", "shop_1 17 9 ev more"} {
		b := alikeBackend()
		if w := b.decide("keep", "Ada", value); w.Code != http.StatusConflict || !strings.Contains(said(w, "not-done"), "shop_1 : review: want") || len(b.reviews) > 0 {
			t.Errorf("%q: %d %q", value, w.Code, said(w, "not-done"))
		}
	}
}

// TestReviewsAreDecidedByKeys: in a browser, without a mouse.
func TestReviewsAreDecidedByKeys(t *testing.T) {
	b := alikeBackend()
	v := open(t, b, "/?state=manual_review&token="+token)
	v.Click(`.together a`)
	v.Until(`location.pathname === "/reviews" && document.querySelectorAll("[name=review]").length === 5`)
	v.Focus(`[name=review]`)
	v.Keys(" ", kb.Tab, kb.Tab, " ")
	v.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("[name=decision][value=approve]").focus()`))
	v.Keys(" ", kb.Tab, "Ada", kb.Tab, "looked at two", kb.Tab, kb.Enter)
	v.Until(`document.querySelector("#done")?.innerText === "Approved: shop_1, shop_2"`)
	if len(b.reviews) != 2 || b.reviews[1].Note != "looked at two" {
		t.Errorf("decided: %+v", b.reviews)
	}
	if name := v.Text(`document.querySelector("[name=reviewer]").value`); name != "Ada" {
		t.Errorf("the name became %q", name)
	}
}
