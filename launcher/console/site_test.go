package console

import (
	"strings"
	"testing"

	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// shop gives the backend a site with a file, counts and answers.
func (b *backend) shop() {
	f := site.File{
		Name: "shop", Origins: []string{"https://shop.example", "https://*.shop.example"},
		Requests: []site.Line{
			{Shape: "POST https://shop.example/graphql json(operationName,query,variables) query operation=Feed text=9c6fe4857704", Is: site.Read, SaidBy: "ada", SaidAt: noon, Incident: "ev_1"},
			{Shape: "POST /cart", Is: site.Write, Repeatable: true, SaidBy: "the file shop.yaml", SaidAt: noon},
		},
		Identity: &site.Probe{Get: "/api/me", Take: []string{"$.email"}},
		Probes:   []site.Probe{{Name: "orders", Get: "/api/orders?limit=1", Take: []string{"$.total"}}, {Name: "inbox", Get: "/inbox", TakeText: "#unread", Alarm: new(bool)}},
	}
	b.files = []api.Site{{File: f, Revision: 4}}
	b.counted = map[string][]api.SiteShape{"shop": {
		{Shape: "POST https://shop.example/cart form(id)", Sessions: 900, Accounts: 9, Changed: 800, LastAt: noon, Is: site.Write},
		{Shape: "POST https://shop.example/<b>like</b>/{} form(on)", Sessions: 4, Accounts: 2, Changed: 3, LastAt: noon},
		{Shape: "POST https://shop.example/search form(q)", Sessions: 120, Accounts: 10, Unchanged: 117, LastAt: noon, Proposed: site.Read},
	}}
	for i, profile := range []string{"shop_1", "shop_2", "shop_3", "shop_4", "shop_5", "shop_6", "secret"} {
		b.answers = append(b.answers, api.SiteAnswer{Question: "shop/orders", ProfileID: profile, Text: "14 <i>lamp</i>", At: noon.AddDate(0, 0, i), Moved: i == 0})
	}
	b.answers = append(b.answers, api.SiteAnswer{Question: "shop", ProfileID: "shop_1", At: noon}, api.SiteAnswer{Question: "shop/inbox", ProfileID: "shop_1", Text: "3", At: noon})
}

// TestAPageForEachSite: what is known and who said so, what was counted of what is not, and what the site
// is asked, with the last answers of the profiles that the user may see.
func TestAPageForEachSite(t *testing.T) {
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
	b.shop()
	if review := b.ask("GET", "/console/"+reviewed, "").Body.String(); !strings.Contains(review, `<a href="/sites/shop">What is known of shop</a>`) {
		t.Error("the review does not lead to the page of its site")
	}
	b.who = principal.Principal{Name: "rita", Role: principal.Reviewer, Profiles: []string{"shop_*"}}
	w := b.ask("GET", "/sites/shop", "")
	page := w.Body.String()
	for _, want := range []string{
		"operation=Feed text=9c6fe4857704 is read", "<bdi>ada</bdi>", "after <bdi>ev_1</bdi>", "POST /cart is write, repeatable", "the file shop.yaml",
		"search form(q)", "the account unchanged in 117", "proposed: it only reads", `<p class="speaks">in 4 orderly sessions of 2 accounts`, "&lt;b&gt;like",
		"/api/me", "/api/orders?limit=1", "shop_6", "14 &lt;i&gt;lamp", "1 more", "no alarm", "never seen to change",
	} {
		if w.Code != 200 || !strings.Contains(page, want) {
			t.Errorf("%d: the page lacks %s", w.Code, want)
		}
	}
	for _, no := range []string{"secret", "800", "<i>", "<b>like"} {
		if strings.Contains(page, no) {
			t.Errorf("the page has %s", no)
		}
	}
	if strings.Index(page, "search form(q)") > strings.Index(page, "&lt;b&gt;like") {
		t.Error("what came in more sessions is not first")
	}
	b.files = nil
	if page := b.ask("GET", "/sites/shop", "").Body.String(); !strings.Contains(page, "It has no file yet.") || !strings.Contains(page, "search form(q)") {
		t.Error("a site without a file does not show what was counted")
	}
	if w := b.ask("GET", "/sites/other", ""); w.Code != 404 {
		t.Errorf("nothing is known of other: %d", w.Code)
	}
}

// TestTheLastIncidentsAreDecidedAgainOnDemand: beside each decision stands what it would be with the file, or
// why that cannot be told.
func TestTheLastIncidentsAreDecidedAgainOnDemand(t *testing.T) {
	b := &backend{profiles: records()}
	b.shop()
	page := b.ask("GET", "/sites/shop?token="+token, "").Body.String()
	if !strings.Contains(page, `href="?again=1&amp;token=`+token+`#again"`) || strings.Contains(page, "incidents that went") {
		t.Error("the page does not offer it, or does it unasked")
	}
	if page := b.ask("GET", "/sites/shop?again=1", "").Body.String(); !strings.Contains(page, "This launcher keeps no incident of it.") {
		t.Error("the page does not say that there is none")
	}
	b.replay()
	page = b.ask("GET", "/sites/shop?again=1&token="+token, "").Body.String()
	for _, want := range []string{
		"of 3 incidents that went to a person, 1 would be let go; of 1 that were let go, 1 would go to a person; 1 cannot be told again.",
		`<a href="/console/shop_1?token=` + token + `">`, "<b>would be let go: release</b>", `<p class="speaks"><b>a person would decide</b>`, "cannot be told again: the line &#34;&lt;b&gt;&#34; has a condition",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	b.files = nil
	if page := b.ask("GET", "/sites/shop?again=1", "").Body.String(); strings.Contains(page, "last incidents") {
		t.Error("a site without a file has nothing to decide by")
	}
}

// replay gives the backend incidents that were decided again.
func (b *backend) replay() {
	b.replayed = []api.IncidentReplayed{
		{EvidenceID: "evd_4", ProfileID: "shop_1", At: noon, Decided: "manual_review", Would: "release", Reasons: []string{"the task never touched account state"}},
		{EvidenceID: "evd_3", ProfileID: "shop_2", At: noon.AddDate(0, 0, -1), Decided: "release", Would: "manual_review"},
		{EvidenceID: "evd_2", ProfileID: "shop_3", At: noon.AddDate(0, 0, -2), Decided: "manual_review", Would: "manual_review"},
		{EvidenceID: "evd_1", ProfileID: "shop_1", At: noon.AddDate(0, 0, -3), Decided: "manual_review", Doubt: `the line "<b>" has a condition, and what was sent is not kept`},
	}
}
