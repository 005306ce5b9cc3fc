package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// ask asks the backend's console as curl would, with the operator's token.
func (b *backend) ask(method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:9333"+path, strings.NewReader(body))
	r.Host = "127.0.0.1:9333"
	r.Header.Set("Authorization", "Bearer "+token)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	b.handler().ServeHTTP(w, r)
	return w
}

func TestPagePolicyAllowsItselfAndNothingElse(t *testing.T) {
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
	for _, path := range []string{"/", "/hosts", "/queue", "/accounts", "/reviews", "/sites/shop", "/console/" + reviewed, "/console/nobody", "/console/" + reviewed + "/live"} {
		w := b.ask("GET", path, "")
		policy, body := w.Header().Get("Content-Security-Policy"), w.Body.String()
		for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'", "trusted-types 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: policy %q: want %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: policy %q allows too much", path, policy)
		}
		for _, kind := range []string{"style", "script"} {
			for _, part := range regexp.MustCompile(`(?s)<`+kind+`>(.*?)</`+kind+`>`).FindAllStringSubmatch(body, -1) {
				if want := kind + "-src " + hashOf(part[1]); !strings.Contains(policy, want) {
					t.Errorf("%s: policy %q: want %s, the hash of what the page has", path, policy, want)
				}
			}
		}
		for name, want := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s: %q, want %q", path, name, got, want)
			}
		}
	}
	for _, name := range []string{"base.css", "list.css", "profile.css", "live.css", "list.html", "hosts.html", "accounts.html", "reviews.html", "top.html", "profile.html", "live.html", "parts.html", "exports.html", "travel.html", "queue.html", "site.html"} {
		if external := regexp.MustCompile(`(?i)(https?:)?//[a-z]|<link[^>]+href="[^d{]|<script[^>]+src|@import|url\(`).FindString(strings.ReplaceAll(file(name), "chrome://inspect", "")); external != "" {
			t.Errorf("%s refers to another resource: %q", name, external)
		}
	}
	for _, name := range []string{"list.js", "profile.js", "live.js"} {
		if risky := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|\.href\s*=`).FindString(file(name)); risky != "" {
			t.Errorf("%s uses %s: what it shows is hostile", name, risky)
		}
	}
}

// TestWhoIsNotKnownIsAskedForAToken: in a browser by a page, which leads to where the person wanted to
// go; a program is answered as everywhere.
func TestWhoIsNotKnownIsAskedForAToken(t *testing.T) {
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
	v := open(t, b, "/?state=manual_review&token=not-the-one")
	if why := v.Text(`document.querySelector("#why").textContent`); !strings.Contains(why, "the token is nobody's here") {
		t.Errorf("the page says %q", why)
	}
	v.accessible("refused")
	v.photograph("refused")
	v.Focus(`#token`)
	v.Keys(token, kb.Enter)
	v.Until(`document.querySelector("#rows tr")?.dataset.id === "` + reviewed + `" && location.search.includes("state=manual_review")`)

	ask := func(accept string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest("GET", "http://127.0.0.1:9333/hosts", nil), httptest.NewRecorder()
		r.Host = "127.0.0.1:9333"
		r.Header.Set("Accept", accept)
		b.handler().ServeHTTP(w, r)
		return w
	}
	for accept, want := range map[string]string{"text/html,*/*;q=0.8": "text/html; charset=utf-8", "*/*": "application/problem+json"} {
		if w := ask(accept); w.Code != http.StatusUnauthorized || w.Header().Get("Content-Type") != want {
			t.Errorf("%s: %d %s, want 401 %s", accept, w.Code, w.Header().Get("Content-Type"), want)
		}
	}
}

// TestFormsOfOtherPlacesAreRefused: a form decides only where the browser says that it is the
// console's own.
func TestFormsOfOtherPlacesAreRefused(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for _, tt := range []struct {
		name   string
		header []string
		status int
	}{
		{"the console's own", []string{"Content-Type: " + form, "Origin: http://127.0.0.1:9333", "Sec-Fetch-Site: same-origin"}, http.StatusSeeOther},
		{"another origin's", []string{"Content-Type: " + form, "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"}, http.StatusForbidden},
		{"one that hides where it is", []string{"Content-Type: " + form, "Origin: null"}, http.StatusForbidden},
		{"one that says nothing", []string{"Content-Type: " + form}, http.StatusBadRequest},
		{"text", []string{"Content-Type: text/plain", "Origin: http://127.0.0.1:9333"}, http.StatusUnsupportedMediaType},
	} {
		b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
		w := b.ask("POST", "/console/"+reviewed+"/review", "lease_token=17&decision=keep&reviewer=Ada&note=x&evidence_id=evd_2", tt.header...)
		if decided := len(b.reviews) == 1; w.Code != tt.status || decided != (tt.status == http.StatusSeeOther) {
			t.Errorf("%s: %d, decided: %v, want %d", tt.name, w.Code, decided, tt.status)
		}
	}
}

// TestADecisionIsOnWhatThePageShowed: what somebody else decided meanwhile, under the same token, refuses it, and the
// page then shows that, to decide on.
func TestADecisionIsOnWhatThePageShowed(t *testing.T) {
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
	fields := func(body string) url.Values {
		form := url.Values{"decision": {"approve"}, "reviewer": {"Ben"}, "note": {"looked"}}
		_, body, _ = strings.Cut(body, `id="review"`)
		body, _, _ = strings.Cut(body, "</form>")
		for _, field := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(body, -1) {
			form.Set(field[1], field[2])
		}
		return form
	}
	decide := func(form url.Values) *httptest.ResponseRecorder {
		return b.ask("POST", "/console/"+reviewed+"/review", form.Encode(), "Content-Type: application/x-www-form-urlencoded", "Origin: http://127.0.0.1:9333")
	}
	read := fields(b.get(t, "/console/"+reviewed, http.StatusOK))
	if _, err := b.Review(t.Context(), reviewed, api.ReviewRequest{Decision: lease.ReviewKeep, Reviewer: "Ann", Note: "wait for the bank"}); err != nil {
		t.Fatal(err)
	}
	w := decide(read)
	if shown := w.Body.String(); w.Code != http.StatusConflict || !strings.Contains(shown, "has changed since it was read") || !strings.Contains(shown, "wait for the bank") {
		t.Fatalf("%d: a decision on what was read before another one: %q", w.Code, said(w, "problem"))
	}
	if w := decide(fields(w.Body.String())); w.Code != http.StatusSeeOther {
		t.Errorf("%d: a decision on what is shown now: %q", w.Code, said(w, "problem"))
	}
}

// TestThePageBehindAForm: where a form was sent to, a browser that asks for the address again is led to the profile's
// page, and what may have been done links to it: loading the page again would send the form once more.
func TestThePageBehindAForm(t *testing.T) {
	for _, form := range []string{"review", "hold", "check", "hand-back", "restore", "rehome", "teach"} {
		b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
		if w := b.ask("GET", "/console/"+reviewed+"/"+form+"?token="+token, ""); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/console/"+reviewed+"?token="+token {
			t.Errorf("GET %s: %d to %q", form, w.Code, w.Header().Get("Location"))
		}
	}
	const link = `<a href="/console/` + reviewed + `?token=` + token + `">Load the page again</a>`
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"the store does not answer", api.Refuse(api.CodeStoreUnavailable, "NATS is away"), true},
		{"it took too long", context.DeadlineExceeded, true},
		{"refused", api.Refuse(api.CodeStaleToken, "the current token is 18"), false},
	} {
		b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}, refuse: tt.err}
		for form, fields := range map[string]string{"review": "decision=keep&", "hold": "", "rehome": "directory=empty&"} {
			w := b.ask("POST", "/console/"+reviewed+"/"+form+"?token="+token, fields+"lease_token=17&reviewer=Ada", "Content-Type: application/x-www-form-urlencoded", "Origin: http://127.0.0.1:9333")
			if got := strings.Contains(w.Body.String(), link); got != tt.want || said(w, "problem") == "" {
				t.Errorf("%s, %s: %d %q; a link to the page: %v, want %v", tt.name, form, w.Code, said(w, "problem"), got, tt.want)
			}
		}
	}
	b := alikeBackend()
	b.refuse = api.Refuse(api.CodeStoreUnavailable, "NATS is away")
	if w := b.decide("keep", "Ada", "shop_1 17 9 ev_shop_1"); !strings.Contains(w.Body.String(), `<a href="/reviews">load the page again</a>`) {
		t.Errorf("%d: no link to the page of alike reviews: %q", w.Code, said(w, "not-known"))
	}
}

// TestPersonDecidesByKeyboard: a person reads a profile of hostile pages, is refused once, and
// decides, without a mouse.
func TestPersonDecidesByKeyboard(t *testing.T) {
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}, refuse: api.Refuse(api.CodeStaleToken, "review with token 17: the current token is 18")}
	v := open(t, b, "/?token="+token)
	v.Focus(`#rows a`)
	v.Keys(kb.Enter)
	v.Until(`location.pathname === "/console/profile_us_021" && document.querySelector("#review")`)
	v.Until(`document.querySelector(".pictures img")?.naturalWidth === 640 && document.querySelectorAll(".film img").length === 2`)
	seen := v.Text(`document.querySelector("main").innerText`)
	for _, want := range []string{
		"waits for a person", "the worker worker-3 was lost", "Billing - Shop", "confirm: Change the budget?", "No picture: the renderer did not answer",
		"Since the last safe checkpoint, campaign_listed", "submit_budget_change", "POST https://shop.example/billing/save", "502 Bad Gateway", "confirm on /billing/edit",
		"into the page; what it was is not kept", "a text on /billing/edit", "a card's number or code on /billing/edit", "typed, not sent a card's number or code", "wanted after the worker was lost, and never sent",
		"Unsafe requests were sent: 1 seen", "This cannot be undone", "The worker was lost",
		"kept in review by Ada (uid:1000)", "asked the shop", "approved by Grace (uid:1000)", "the order is there once", cleanHostile,
	} {
		if !strings.Contains(seen, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if strings.Contains(seen, "All 54 facts") == false || strings.Contains(seen, "question 53") {
		t.Error("the facts are not folded away")
	}
	if strings.Index(seen, "Billing - Shop") > strings.Index(seen, "Since the last safe checkpoint") || strings.Index(seen, "Unsafe requests were sent") > strings.Index(seen, "Your decision") {
		t.Error("the page does not open on what decides it")
	}
	// A key chooses and leads to the name, and Tab to the note and the button.
	v.press('a')
	v.Keys("Ada", kb.Tab, "looked at the account", kb.Tab, kb.Enter)
	v.Until(`document.querySelector("#problem")?.textContent.includes("the current token is 18")`)
	if kept := v.Text(`document.querySelector("#reviewer").value + " " + document.querySelector("#note").value + " " + document.querySelector(":checked").value`); kept != "Ada looked at the account approve" {
		t.Errorf("after a refusal the form has %q", kept)
	}
	// The page stands where the form was sent to; what leads to the present state is its own address.
	b.mu.Lock()
	at := b.at(reviewed)
	b.profiles[at].Sequence++
	b.mu.Unlock()
	v.Until(`document.querySelector("#changed a")?.getAttribute("href") === "/console/profile_us_021?token=` + token + `"`)
	b.mu.Lock()
	b.profiles[at].Sequence--
	b.refuse = nil
	b.mu.Unlock()
	v.Focus(`#reviewer`)
	v.Keys(kb.Enter)
	v.Until(`document.querySelector("#reviewed")?.textContent.includes("looked at the account") && !document.querySelector("#review")`)
	if injected := v.Text(`document.querySelectorAll("img[src='x'], main script").length + " " + document.title`); injected != "0 profile_us_021: available - Leasehold" {
		t.Errorf("elements from hostile text, and the title: %q", injected)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	want := api.ReviewRequest{Write: api.Write{Token: 17}, Decision: "approve", Reviewer: "Ada", Note: "looked at the account", EvidenceID: "evd_2", Sequence: 9}
	if !slices.Equal(b.reviews, []api.ReviewRequest{want, want}) {
		t.Errorf("reviews %+v, want %+v twice", b.reviews, want)
	}
	if want := "POST /console/profile_us_021/review: 409"; !slices.Equal(b.refused, []string{want}) {
		t.Errorf("requests of the pages were refused: %q, want only %s", b.refused, want)
	}
}

// TestKeysChooseUnlessTheyAreSwitchedOff: a choice by key goes on at the note where the person's name
// is known, and what a key chose is not recorded by itself.
func TestKeysChooseUnlessTheyAreSwitchedOff(t *testing.T) {
	b := &backend{profiles: fleet(130)}
	v := open(t, b, "/console/profile_us_00020?token="+token)
	const chosen = `document.querySelector(":checked").value + " " + document.activeElement.id`
	v.press('a')
	if got := v.Text(chosen); got != "approve reviewer" {
		t.Errorf("after a: %s", got)
	}
	v.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#reviewer").value = "Ada"; document.activeElement.blur()`))
	v.press('k')
	if got := v.Text(chosen); got != "keep note" {
		t.Errorf("after k: %s", got)
	}
	v.Do(chromedp.Evaluate[chromedp.Void](`localStorage.setItem("leasehold.keys", "off")`), chromedp.Reload())
	v.Until(`document.readyState === "complete" && !document.querySelector(":checked")`)
	v.press('a')
	if got := v.Text(`String(document.querySelector(":checked"))`); got != "null" || len(b.reviews) > 0 {
		t.Errorf("keys that are switched off choose %s; decided: %v", got, b.reviews)
	}
	v.Do(chromedp.Evaluate[chromedp.Void](`localStorage.removeItem("leasehold.keys")`))
	v.Click(`.queue a:last-child`)
	v.Until(`location.pathname === "/" && document.querySelectorAll("#rows tr").length === 7`)
}

// views are the pages of the console as they are photographed, measured and tried for
// accessibility. says and misses are texts that each has to have.
func views() (b *backend, list []aView) {
	b = &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
	add := func(r api.Profile, c scene, says ...string) {
		b.profiles = append(b.profiles, r)
		b.cases[r.ProfileID] = c
		list = append(list, aView{r.ProfileID, says})
	}
	list = append(list, aView{reviewed, []string{"Your decision"}}, aView{"profile_us_020", []string{"The recovery is at work"}})

	hostileCase := usual("evd_h")
	long := strings.Repeat("https://shop.example/a very long path with "+hostile, 40)
	var steps []checkpoint.Entry
	for i := range 2000 {
		steps = append(steps, checkpoint.Entry{At: noon.Add(time.Duration(i-2000) * time.Second), Kind: checkpoint.KindStep, Name: fmt.Sprintf("step %d %s", i, long)})
	}
	hostileCase.parts["evd_h/journal.jsonl"] = checkpoint.Encode(numbered(append(steps, checkpoint.Entry{At: noon, Kind: checkpoint.KindRequest, Method: hostile, URL: long, Request: "r"})))
	bundle := &hostileCase.bundles[0]
	for i := range bundle.Pages {
		bundle.Pages[i].Title, bundle.Pages[i].URL, bundle.Pages[i].Dialog = long, long, long
	}
	for i := range 80 {
		bundle.Pages = append(bundle.Pages, api.BundlePage{URL: fmt.Sprint(i), Missing: long})
	}
	bundle.Parts[0].Bytes = 10 << 20
	for i := range hostileCase.inspection.Against {
		hostileCase.inspection.Against[i].Sentence = long
	}
	add(inReview("hostile", "evd_h", func(r *api.Profile) {
		r.OwnerWorkerID, r.TaskID, r.Reasons, r.LastKnownURL, r.LastKnownStep = hostile, long, slices.Repeat([]string{long}, 40), long, long
		r.Reason = hostile
	}), hostileCase, "Open the picture", "10.0 MiB", "All 300 in order (1702 earlier ones are in the journal)", "more are in the evidence below")

	add(inReview("bundle-gone", "evd_gone"), scene{events: story(), inspection: inspection()}, "The evidence evd_gone, which the record names, is not in the store", "Only what the inspection kept of it is known here", "502 Bad Gateway", "submit_budget_change")

	damaged := usual("evd_d")
	damaged.problems["evd_d/journal.jsonl"] = api.Refuse(api.CodeEvidenceDamaged, "part journal.jsonl: SHA-256 differs")
	damaged.problems["evd_d/screenshot-2.jpg"] = api.Refuse(api.CodeEvidenceDamaged, "part screenshot-2.jpg: SHA-256 differs")
	damaged.parts["evd_d/screenshot-1.jpg"] = []byte(hostile)
	damaged.parts["evd_d/look.json"] = []byte(hostile)
	add(inReview("bundle-damaged", "evd_d", func(r *api.Profile) { r.EvidenceSHA256 = strings.Repeat("0", 64) }), damaged,
		"The evidence is not what was sealed", "journal.jsonl cannot be read: part journal.jsonl: SHA-256 differs", "No picture: screenshot-1.jpg is not a picture", "No picture: part screenshot-2.jpg: SHA-256 differs",
		"look.json cannot be read")

	locked := usual("evd_l")
	locked.bundles[0].Locked, locked.bundles[0].Encrypted, locked.bundles[0].Pages, locked.bundles[0].Pictures = true, true, nil, nil
	add(inReview("bundle-locked", "evd_l"), locked, "The evidence is encrypted, and this sidecar has no key for it", "No picture can be shown")

	b.hosts = hundredHosts(2)
	b.hosts[0].LauncherID, b.hosts[1].LauncherID = "host-1", "host-2"
	for _, s := range []string{reviewed} {
		one := b.cases[s]
		one.snapshots = snapshots()
		b.cases[s] = one
	}
	stored := usual("evd_s")
	stored.snapshots = snapshots()
	add(inReview("stored", "evd_s", func(r *api.Profile) { r.State, r.Mobility = lease.Available, lease.MobilityFree }), stored,
		"Launcher host-1, this one.", "It may move to another host by itself", "3 snapshots, the newest of", "1 session since", "Go back to a snapshot: the newest is of")
	away := usual("evd_s")
	away.storeAway = true
	add(inReview("store-away", "evd_s"), away, "The profile's snapshots cannot be listed", "Which snapshots there are is not known")
	add(inReview("lost-host", "evd_s", func(r *api.Profile) { r.Home, r.HomeSilentSince = "host-2", noon }), stored,
		"Launcher host-2, which is gone: nothing was heard of it since 18 Jun 2026 12:00:00 UTC", "make the host of this launcher, host-1, its home", "Give it another home", "This cannot be undone")

	byHand := usual("evd_b")
	url := "http://127.0.0.1:41234"
	byHand.sessions = []api.Session{{SessionID: "ses_hand", ProfileID: "by-hand", Token: 18, Principal: "token", DedicatedURL: &url, ExpiresAt: noon}}
	add(inReview("by-hand", "evd_b", func(r *api.Profile) {
		r.State, r.SessionID = lease.Held, "ses_hand"
		r.ByHand = &lease.ByHand{Holder: "Eve", Note: "look", Since: noon, Review: &lease.OpenReview{EvidenceID: "evd_b"}}
	}), byHand, "held by hand", "127.0.0.1:41234", "Hand it back", "Use it here")

	asking := usual("evd_a")
	asking.sessions = []api.Session{{
		SessionID: "ses_asks", ProfileID: "asks", Token: 18, WorkerID: "worker-3",
		Ask:    &api.Ask{Reason: "the code that shop.example sent " + hostile, At: noon, Until: noon.Add(10 * time.Minute)},
		Person: &api.Person{Name: "Ben", Principal: "uid:7", Since: noon.Add(time.Minute)},
	}}
	add(inReview("asks", "evd_a", func(r *api.Profile) { r.State, r.SessionID = lease.Held, "ses_asks" }), asking,
		"asks for a person", "The worker waits for a person since", "the code that shop.example sent "+cleanHostile, "Ben has the session since", "Take over")

	return b, append(list, aView{"nobody", []string{"There is no page about it: there is no profile nobody"}})
}

// snapshots are those of a profile that was lost twice: the newest lacks the last session, the
// older ones two.
func snapshots() []api.Snapshot {
	made := func(id string, token lease.Token, before time.Duration) api.Snapshot {
		return api.Snapshot{ID: id, Token: token, CreatedAt: noon.Add(-before), ChromeVersion: "156.0.8078.79", Bytes: 300 << 20, Stored: 2 << 20}
	}
	return []api.Snapshot{made("snap_3", 12, 24*time.Hour), made("snap_2", 9, 50*time.Hour), made("snap_1", 7, 60*time.Hour)}
}

// TestGoingBack: an operator brings a snapshot back out of a review, or gives the profile of a lost
// host another home; who may not is not asked, and is refused.
func TestGoingBack(t *testing.T) {
	own := []string{"Content-Type: application/x-www-form-urlencoded", "Origin: http://127.0.0.1:9333"}
	b, _ := views()
	b.who = principal.Principal{Name: "op", Role: principal.Operator, Profiles: principal.EveryProfile}
	page := b.get(t, "/console/"+reviewed, 200)
	for _, want := range []string{
		`formaction="/console/profile_us_021/restore"`, `<option value="snap_3">newest: 17 Jun 2026 12:00:00 UTC, token 12, 1 session since</option>`, `<option value="snap_1">16 Jun 2026 00:00:00 UTC, token 7, 2 sessions since</option>`,
		"what <bdi>worker-3</bdi> did for <bdi>task_88</bdi>", "goes to the archive",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the review does not have %s", want)
		}
	}
	if w := b.ask("POST", "/console/"+reviewed+"/restore", "lease_token=17&snapshot=snap_2&reviewer=Ada&note=signed+out", own...); w.Code != http.StatusSeeOther {
		t.Errorf("restore: %d", w.Code)
	}
	if want := []api.ProfileRestore{{SnapshotID: "snap_2", Token: 17, Person: "Ada", Note: "signed out"}}; !slices.Equal(b.restored, want) {
		t.Errorf("restored %+v, want %+v", b.restored, want)
	}
	for form, why := range map[string]string{"lease_token=17&snapshot=snap_2": "want your name", "lease_token=17&reviewer=Ada": "choose the snapshot"} {
		if w := b.ask("POST", "/console/"+reviewed+"/restore", form, own...); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), why) || len(b.restored) != 1 {
			t.Errorf("%s: %d, want it refused: %s", form, w.Code, why)
		}
	}
	b.refuse = api.Refuse(api.CodeStaleToken, "restore with token 17: the current token is 18")
	if w := b.ask("POST", "/console/"+reviewed+"/restore", "lease_token=17&snapshot=snap_2&reviewer=Ada", own...); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "the current token is 18") || !strings.Contains(w.Body.String(), `<option value="snap_2" selected>`) {
		t.Errorf("a refused restore: %d", w.Code)
	}
	b.refuse = nil

	if w := b.ask("POST", "/console/lost-host/rehome", "lease_token=17&directory=snapshot&snapshot=snap_3&reviewer=Ada&note=dead&accept_loss=yes", own...); w.Code != http.StatusSeeOther {
		t.Errorf("rehome: %d %s", w.Code, w.Body)
	}
	if w := b.ask("POST", "/console/lost-host/rehome", "lease_token=17&directory=empty&reviewer=Ada&note=dead", own...); w.Code != http.StatusSeeOther {
		t.Errorf("rehome: %d %s", w.Code, w.Body)
	}
	want := []api.ProfileRehome{
		{Write: api.Write{Token: 17}, Snapshot: "snap_3", Person: "Ada", Note: "dead", AcceptLoss: true}, {Write: api.Write{Token: 17}, Empty: true, Person: "Ada", Note: "dead"},
	}
	if !slices.Equal(b.rehomed, want) {
		t.Errorf("rehomed %+v, want %+v", b.rehomed, want)
	}
	if w := b.ask("POST", "/console/lost-host/rehome", "lease_token=17&reviewer=Ada&note=dead", own...); w.Code != http.StatusBadRequest || len(b.rehomed) != 2 {
		t.Errorf("without a directory: %d", w.Code)
	}

	b.who = principal.Principal{Name: "rev", Role: principal.Reviewer, Profiles: principal.EveryProfile}
	if page := b.get(t, "/console/"+reviewed, 200); strings.Contains(page, "/restore") || !strings.Contains(page, "Your decision") || !strings.Contains(page, "snap_3") {
		t.Error("a reviewer is asked to restore, or does not see the snapshots")
	}
	if page := b.get(t, "/console/lost-host", 200); !strings.Contains(page, `action="/console/lost-host/rehome"`) {
		t.Error("a reviewer is not asked for another home")
	}
	b.who.Role = principal.Viewer
	if page := b.get(t, "/console/lost-host", 200); strings.Contains(page, "/rehome") || !strings.Contains(page, "Its home is gone") && !strings.Contains(page, "which is gone") {
		t.Error("a viewer is asked for another home, or does not see that it is gone")
	}
}

// TestWhatPeopleDidWithoutDeciding stands beside the incident, as no decision.
func TestWhatPeopleDidWithoutDeciding(t *testing.T) {
	events := append(story(),
		lease.Event{Event: lease.EventSnapshotRestored, State: lease.ManualReview, At: noon.Add(time.Minute), Token: 18, Sequence: 90, Reviewer: "Ada", Note: "signed out", SnapshotID: "snap_3"},
		lease.Event{Event: lease.EventMoved, State: lease.ManualReview, At: noon.Add(2 * time.Minute), Token: 19, Sequence: 91, Person: "Grace"})
	all := incidentsOf(events)
	last := all[len(all)-1]
	var acts []string
	for _, a := range last.Acts {
		acts = append(acts, a.What+" "+a.Who)
	}
	if want := []string{"went back to a snapshot Ada", "given another home Grace"}; !last.Open || !slices.Equal(acts, want) {
		t.Errorf("open %v, acts %q, want %q", last.Open, acts, want)
	}
}

// aView is one page of the console, and what it has to say.
type aView struct {
	profile string
	says    []string
}

// tallest is how tall a page may be on a phone, with everything folded that folds, in CSS
// pixels.
const tallest = 4000

// TestViews: what each page shows of good and of hostile evidence, on a phone and elsewhere.
func TestViews(t *testing.T) {
	b, list := views()
	b.who = principal.Principal{Name: "token", Role: principal.Admin, Profiles: principal.EveryProfile}
	v := open(t, b, "/console/"+reviewed+"?token="+token)
	for _, one := range list {
		v.size(420, "light")
		v.Do(chromedp.Navigate(v.url + "/console/" + one.profile + "?token=" + token))
		seen := v.Text(`document.body.innerText`)
		for _, want := range one.says {
			if !strings.Contains(seen, want) {
				t.Errorf("%s does not say %q:\n%.3000s", one.profile, want, seen)
			}
		}
		if injected := v.Text(`document.querySelectorAll("img[src='x'], main script, main style, main iframe").length + (document.title === "owned" ? " owned" : "")`); injected != "0" {
			t.Errorf("%s: elements from hostile text: %s", one.profile, injected)
		}
		if wide := v.Number(`document.documentElement.scrollWidth`); wide > 420 {
			t.Errorf("%s is %d pixels wide at 420: %s", one.profile, wide, v.Text(`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 421 && !e.closest(".film, .tabs, .wide")).map(e => e.tagName + "." + e.className).slice(0, 5).join(" ")`))
		}
		if tall := v.Number(`document.documentElement.scrollHeight`); tall > tallest {
			t.Errorf("%s is %d pixels tall at 420, want at most %d", one.profile, tall, tallest)
		}
		// The others have the same parts, and are tried where they are photographed.
		if one.profile == reviewed || one.profile == "lost-host" || os.Getenv("LEASEHOLD_PHOTOS") != "" {
			v.accessible(one.profile)
		}
		v.photograph(one.profile)
	}
}

// TestAPageSaysThatItsProfileChanged: what a person reads stays, and the page says what is new.
func TestAPageSaysThatItsProfileChanged(t *testing.T) {
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
	v := open(t, b, "/console/"+reviewed+"?token="+token)
	v.Focus(`#note`)
	v.Keys("half")
	b.mu.Lock()
	b.profiles[3].Token, b.profiles[3].Sequence = 18, 10
	b.mu.Unlock()
	v.Until(`document.querySelector("#changed").textContent.includes("token 18")`)
	if typed := v.Text(`document.querySelector("#note").value`); typed != "half" {
		t.Errorf("what was typed became %q", typed)
	}
}

// TestHoldAndHandBack: a person who is not sure opens the profile by hand, and hands it back.
func TestHoldAndHandBack(t *testing.T) {
	own := []string{"Content-Type: application/x-www-form-urlencoded", "Origin: http://127.0.0.1:9333"}
	b, _ := views()
	if w := b.ask("POST", "/console/"+reviewed+"/hold", "lease_token=17&reviewer=Ada&note=look", own...); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/console/"+reviewed {
		t.Errorf("hold: %d to %q", w.Code, w.Header().Get("Location"))
	}
	if want := []api.HoldRequest{{Write: api.Write{Token: 17}, Holder: "Ada", Note: "look"}}; !slices.Equal(b.holds, want) {
		t.Errorf("holds %+v, want %+v", b.holds, want)
	}
	for _, tt := range []struct {
		name   string
		who    principal.Principal
		status int
	}{
		{"another reviewer", principal.Principal{Name: "eve", Role: principal.Reviewer, Profiles: principal.EveryProfile}, http.StatusForbidden},
		{"who opened it", principal.Principal{Name: "token", Role: principal.Reviewer, Profiles: principal.EveryProfile}, http.StatusSeeOther},
		{"an admin", principal.Principal{Name: "root", Role: principal.Admin, Profiles: principal.EveryProfile}, http.StatusSeeOther},
	} {
		b.who, b.released = tt.who, nil
		w := b.ask("POST", "/console/by-hand/hand-back", "lease_token=18", own...)
		if handed := len(b.released) == 1 && b.released[0] == (api.Release{Write: api.Write{Token: 18}, Outcome: "by_hand"}); w.Code != tt.status || handed != (tt.status == http.StatusSeeOther) {
			t.Errorf("%s: %d %+v, want %d", tt.name, w.Code, b.released, tt.status)
		}
	}
	b.refuse = api.Refuse(api.CodeWrongHome, "the profile lives on host-2")
	if w := b.ask("POST", "/console/"+reviewed+"/hold", "lease_token=17&reviewer=Ada", own...); w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "the profile lives on host-2") || !strings.Contains(w.Body.String(), `value="Ada"`) {
		t.Errorf("a refused hold: %d", w.Code)
	}
}

// TestAFreeProfileIsOpenedByHand: where somebody wants to sign an account in; and one that is kept for a
// task says for which, and how to give it up.
func TestAFreeProfileIsOpenedByHand(t *testing.T) {
	b := &backend{profiles: []api.Profile{
		{Record: lease.Record{ProfileID: "new", State: lease.Available, Token: 4}}, {Record: lease.Record{ProfileID: "kept", State: lease.ResumePending, Token: 5, TaskID: "price-run-6", ResumeFrom: "listed"}},
	}}
	if body := b.ask("GET", "/console/new", "").Body.String(); !strings.Contains(body, `action="/console/new/hold"`) || !strings.Contains(body, `name="lease_token" value="4"`) {
		t.Error("a free profile cannot be opened by hand")
	}
	body := b.ask("GET", "/console/kept", "").Body.String()
	for _, want := range []string{"reserved for price-run-6", "from <b><bdi>listed</bdi></b>", "leasehold exec --profile kept --task price-run-6 -- true"} {
		if !strings.Contains(body, want) {
			t.Errorf("a profile that is kept for a task does not say %s", want)
		}
	}
	if strings.Contains(body, "There is nothing to decide") || strings.Contains(body, "/hold") {
		t.Error("a profile that is kept for a task looks like a free one")
	}
}

// TestAViewerSeesNoForm: who may not decide is not asked to.
func TestAViewerSeesNoForm(t *testing.T) {
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}, who: principal.Principal{Name: "vic", Role: principal.Viewer, Profiles: principal.EveryProfile}}
	if body := b.ask("GET", "/console/"+reviewed, "").Body.String(); strings.Contains(body, "<form") || !strings.Contains(body, "You are vic") {
		t.Error("a viewer is asked to decide")
	}
}

// TestWhatIsNotKnownIsNotCalledNotDone: the store did not answer to what may be stored, or a browser takes
// longer to close than a page can wait.
func TestWhatIsNotKnownIsNotCalledNotDone(t *testing.T) {
	own := []string{"Content-Type: application/x-www-form-urlencoded", "Origin: http://127.0.0.1:9333"}
	away := api.Refuse(api.CodeStoreUnavailable, "NATS does not answer")
	b, _ := views()
	b.refuse = away
	w := b.ask("POST", "/console/"+reviewed+"/review", "lease_token=17&decision=keep&reviewer=Ada", own...)
	if got := said(w, "problem"); w.Code != away.Status || !strings.HasPrefix(got, "It is not known whether this was done: NATS does not answer.") {
		t.Errorf("a decision: %d %q", w.Code, got)
	}
	b.refuse, b.who = context.DeadlineExceeded, principal.Principal{Name: "token", Role: principal.Reviewer, Profiles: principal.EveryProfile}
	w = b.ask("POST", "/console/by-hand/hand-back", "lease_token=18", own...)
	if got := said(w, "problem"); !strings.HasPrefix(got, "The browser is being closed") {
		t.Errorf("a hand-back: %d %q", w.Code, got)
	}
	b = alikeBackend()
	b.refuse = away
	w = b.decide("keep", "Ada", "shop_1 17 9 ev_shop_1")
	if got := said(w, "not-known"); w.Code != http.StatusConflict || !strings.Contains(got, "shop_1 : NATS does not answer") || said(w, "not-done") != "" {
		t.Errorf("several decisions: %d %q, not decided: %q", w.Code, got, said(w, "not-done"))
	}
}
