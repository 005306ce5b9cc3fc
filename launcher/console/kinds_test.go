package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// TestKinds: each shape of which nothing was known is shown once, what came since the checkpoint first.
func TestKinds(t *testing.T) {
	const feed, save = "POST https://shop.example/graphql query operation=Feed", "POST https://shop.example/save form(a)"
	request := func(shape, answer string, change ...func(*api.UnsafeRequest)) api.UnsafeRequest {
		r := api.UnsafeRequest{Method: "POST", URL: "https://shop.example/x?q=1", Shape: shape, Times: 1, Answer: answer, Counts: "unsafe"}
		for _, c := range change {
			c(&r)
		}
		return r
	}
	since := func(r *api.UnsafeRequest) { r.SinceSafeCheckpoint = true }
	for _, tt := range []struct {
		name     string
		requests []api.UnsafeRequest
		want     string
	}{
		{"none", nil, ""},
		{"twice the same", []api.UnsafeRequest{request(feed, "200 OK"), request(feed, "500 Internal Server Error", func(r *api.UnsafeRequest) { r.Times = 3 })}, feed + " x4 200 OK|500 Internal Server Error"},
		{"what came since the checkpoint", []api.UnsafeRequest{request(feed, "200 OK"), request(save, "", since)}, save + " x1 no answer is possible since, " + feed + " x1 200 OK"},
		{"what was known", []api.UnsafeRequest{request(feed, "200 OK", func(r *api.UnsafeRequest) { r.Known = "write" })}, ""},
		{"what does not count", []api.UnsafeRequest{request(feed, "200 OK", func(r *api.UnsafeRequest) { r.Counts = "harmless" })}, ""},
		{"of an older sidecar", []api.UnsafeRequest{request("", "200 OK")}, ""},
	} {
		var got []string
		for _, k := range kindsOf(tt.requests, nil, nil) {
			text := fmt.Sprintf("%s x%d %s", k.Shape, k.Times, strings.Join(k.Answers, "|"))
			if k.Since {
				text += " since"
			}
			got = append(got, text)
			if k.Address != "https://shop.example/x" {
				t.Errorf("%s: at %s", tt.name, k.Address)
			}
		}
		if all := strings.Join(got, ", "); all != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, all, tt.want)
		}
	}
}

// TestAPersonTeaches: one button says for the whole site what requests do, and one takes it back; only
// for who may say so.
func TestAPersonTeaches(t *testing.T) {
	const feed = "POST https://shop.example/graphql json(operationName,query) query operation=Feed text=9c6fe4857704"
	page := func(b *backend) string { return b.ask("GET", "/console/"+reviewed, "").Body.String() }
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
	if shown := page(b); !strings.Contains(shown, "Only reads</button>") || strings.Contains(shown, "Take it back") || !strings.Contains(shown, "operation=Feed") {
		t.Errorf("no button says what requests do: %s", shown)
	}
	form := url.Values{"shape": {feed}, "is": {"read"}, "evidence_id": {"evd_2"}}.Encode()
	w := b.ask("POST", "/console/"+reviewed+"/teach", form, "Content-Type: application/x-www-form-urlencoded", "Origin: http://127.0.0.1:9333", "Sec-Fetch-Site: same-origin")
	want := api.SiteTeaching{Shape: feed, Is: "read", Incident: "evd_2"}
	if w.Code != http.StatusSeeOther || len(b.taught) != 1 || b.taught[0] != want {
		t.Errorf("%d, taught %+v, want %+v", w.Code, b.taught, want)
	}
	b.files = []api.Site{{File: site.File{Name: "shop", Origins: []string{"https://shop.example"}, Requests: []site.Line{{Shape: feed, Is: "read", SaidBy: "ada"}}}}}
	if shown := page(b); !strings.Contains(shown, "Take it back") || !strings.Contains(shown, "Only reads, says <bdi>ada</bdi>") {
		t.Errorf("what is known by now is not shown: %s", shown)
	}
	b.who = principal.Principal{Name: "rita", Role: principal.Reviewer, Profiles: principal.EveryProfile}
	if shown := page(b); strings.Contains(shown, "Take it back") || !strings.Contains(shown, "needs the role operator") {
		t.Errorf("a reviewer can teach: %s", shown)
	}
}

// TestCountsAreBesideTheButtons: how often a shape came in orderly sessions stands there, of a site with
// and without a file; only that the account always changed is said in red.
func TestCountsAreBesideTheButtons(t *testing.T) {
	const feed = "POST https://shop.example/graphql json(operationName,query) query operation=Feed text=9c6fe4857704"
	shop := site.File{Name: "lamps", Origins: []string{"https://shop.example"}}
	for _, tt := range []struct {
		name    string
		files   []api.Site
		under   string
		counted api.SiteShape
		want    string
	}{
		{"unchanged", nil, "shop-example", api.SiteShape{Sessions: 12, Accounts: 4, Unchanged: 11}, `<p class="dim">in 12 orderly sessions of 4 accounts, the account unchanged in 11</p>`},
		{"always changed", []api.Site{{File: shop}}, "lamps", api.SiteShape{Sessions: 3, Accounts: 1, Changed: 2}, `<p class="speaks">in 3 orderly sessions of 1 account, the account changed whenever a probe could tell: in 2</p>`},
		{"both", nil, "shop-example", api.SiteShape{Sessions: 99, Accounts: site.MaxAccounts, Unchanged: 90, Changed: 9}, `<p class="dim">in 99 orderly sessions of 10 or more accounts, the account unchanged in 90, changed in 9</p>`},
		{"no probe", nil, "shop-example", api.SiteShape{Sessions: 1, Accounts: 1}, `<p class="dim">in 1 orderly session of 1 account, in none could a probe tell whether the account changed</p>`},
	} {
		tt.counted.Shape = feed
		b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}, files: tt.files, counted: map[string][]api.SiteShape{tt.under: {tt.counted}}}
		if shown := b.ask("GET", "/console/"+reviewed, "").Body.String(); !strings.Contains(shown, tt.want) {
			t.Errorf("%s: the page lacks %s", tt.name, tt.want)
		}
	}
}

// TestReviewsFollowEachOther: by name, also for who has just decided one of them.
func TestReviewsFollowEachOther(t *testing.T) {
	all := []string{"a", "c", "e"}
	for _, tt := range []struct {
		profile, previous, next string
		place                   int
	}{
		{"a", "", "c", 1}, {"c", "a", "e", 2}, {"e", "c", "", 3}, {"b", "a", "c", 0}, {"f", "e", "", 0},
	} {
		v := view{dossier: &dossier{Reviews: all}}
		v.Record.ProfileID = tt.profile
		if v.neighbours(); v.Previous != tt.previous || v.Next != tt.next || v.Place != tt.place {
			t.Errorf("%s: %q %q %d, want %q %q %d", tt.profile, v.Previous, v.Next, v.Place, tt.previous, tt.next, tt.place)
		}
	}
}
