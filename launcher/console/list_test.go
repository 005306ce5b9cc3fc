package console

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// fleet are many profiles of some hosts: every twentieth waits for a person.
func fleet(n int) []api.Profile {
	var all []api.Profile
	for i := range n {
		r := api.Profile{Record: lease.Record{
			ProfileID: fmt.Sprintf("profile_us_%05d", i), AccountID: fmt.Sprintf("store_us_%05d", i), ProxyID: fmt.Sprintf("proxy-us-dallas-%02d", i%40), Token: lease.Token(i % 90),
			Home: fmt.Sprintf("host-%02d", i%12), State: lease.Available, OwnerWorkerID: fmt.Sprintf("worker-%d", i%60), TaskID: fmt.Sprintf("task_20260618_%04d", i),
			LastKnownURL: fmt.Sprintf("https://shop.example/account/orders/%d?view=active", i), LastKnownStep: "open_orders", Reason: "connection_closed", ReleasedAt: noon.Add(-time.Duration(i) * time.Minute),
		}}
		switch i % 20 {
		case 0:
			r.State, r.Reason, r.RecoveryStartedAt = lease.ManualReview, "connection_lost", noon.Add(-time.Duration(i)*time.Minute)
		case 1, 2, 3, 4, 5, 6:
			r.State, r.Reason, r.AcquiredAt = lease.Held, "", noon.Add(-time.Duration(i)*time.Second)
		case 7:
			r.State, r.Reason, r.SuspectedAt = lease.Quarantined, "heartbeat_timeout", noon.Add(-20*time.Second)
		case 8:
			r.State, r.Reason = lease.ResumePending, ""
		}
		all = append(all, r)
	}
	return all
}

// get asks for a page without a script, and returns what it shows.
func (b *backend) get(t *testing.T, path string, status int) string {
	t.Helper()
	w := b.ask("GET", path, "")
	if w.Code != status {
		t.Fatalf("%s: %d, want %d: %.2000s", path, w.Code, status, w.Body)
	}
	return w.Body.String()
}

var rowLink = regexp.MustCompile(`data-link="Href" href="/console/([^"?]+)(\?[^"]*)?">`)

// shownRows are the profiles in the rows of a page.
func shownRows(body string) string {
	body, _, _ = strings.Cut(body, "<template")
	var all []string
	for _, m := range rowLink.FindAllStringSubmatch(body, -1) {
		all = append(all, m[1])
	}
	return strings.Join(all, " ")
}

// TestAProfileWithoutItsDirectoryIsNotShownAsFree: it was archived, or somebody removed it.
func TestAProfileWithoutItsDirectoryIsNotShownAsFree(t *testing.T) {
	for reason, want := range map[string]string{"connection_closed": "available", api.ReasonArchived: "archived", api.ReasonRemoved: "removed"} {
		r := api.Profile{Record: lease.Record{ProfileID: "p", State: lease.Available, Reason: reason}}
		if row := rowOf(r, api.InHands{}, ""); row.StateText != want || api.StateShown(r.Record) != want {
			t.Errorf("%s: %q in the list, %q elsewhere, want %q", reason, row.StateText, api.StateShown(r.Record), want)
		}
	}
	if held := (api.Profile{Record: lease.Record{State: lease.Held, Reason: api.ReasonArchived}}); api.StateShown(held.Record) != "held" {
		t.Errorf("held, and shown as %s", api.StateShown(held.Record))
	}
}

// TestStatesHaveWordsForPeople: the states of seconds are one, and who a profile is kept for is named.
func TestStatesHaveWordsForPeople(t *testing.T) {
	byHand := api.Profile{Record: lease.Record{State: lease.Held}}
	byHand.ByHand = &lease.ByHand{Holder: "Ada"}
	for _, tt := range []struct {
		r         api.Profile
		want, why string
	}{
		{api.Profile{Record: lease.Record{State: lease.ManualReview, Reason: "connection_lost"}}, "waits for a person", "connection lost"},
		{api.Profile{Record: lease.Record{State: lease.Quarantined, Reason: "heartbeat_timeout"}}, "checking", "quarantined · heartbeat timeout"},
		{api.Profile{Record: lease.Record{State: lease.ResumePending, TaskID: "price-run-6"}}, "reserved for price-run-6", ""},
		{api.Profile{Record: lease.Record{State: lease.Held}}, "held", ""},
		{byHand, "held by hand", ""},
	} {
		if row := rowOf(tt.r, api.InHands{}, ""); row.StateText != tt.want || row.Why != tt.why {
			t.Errorf("%s: %q, %q, want %q, %q", tt.r.State, row.StateText, row.Why, tt.want, tt.why)
		}
	}
	b := &backend{profiles: fleet(130)}
	body := b.get(t, "/", 200)
	if want := `href="/?state=suspected_stale&amp;state=quarantined&amp;state=inspected" class="chip checking">checking <b data-text="count-checking">7</b>`; !strings.Contains(body, want) {
		t.Errorf("the list does not have %s", want)
	}
	if rows := shownRows(b.get(t, "/?state=suspected_stale&state=quarantined&state=inspected", 200)); strings.Count(rows, " ") != 6 {
		t.Errorf("in recovery: %s, want seven", rows)
	}
}

// TestTheListWithoutAScript: filters, pages and orders are links and a form.
func TestTheListWithoutAScript(t *testing.T) {
	b := &backend{profiles: fleet(130)}
	first := b.get(t, "/", 200)
	if rows := shownRows(first); strings.Count(rows, " ") != 49 || !strings.HasPrefix(rows, "profile_us_00120 profile_us_00100 profile_us_00080") {
		t.Errorf("the list begins with %.200s, want what waits longest for a person", rows)
	}
	for _, want := range []string{"<title>(7) Leasehold</title>", "130 profiles, 42 held, 7 waiting for a person", "1 to 50 of 130", `href="/?page=2" rel="next"`, `href="/?state=manual_review"`, `aria-sort="ascending"><a href="/?sort=-attention">State`} {
		if !strings.Contains(first, want) {
			t.Errorf("the first page does not have %s", want)
		}
	}
	for path, want := range map[string]string{
		"/?state=manual_review&size=25&sort=name":                  "profile_us_00000 profile_us_00020 profile_us_00040 profile_us_00060 profile_us_00080 profile_us_00100 profile_us_00120",
		"/?q=orders%2F77&sort=name":                                "profile_us_00077",
		"/?account_id=store_us_0001*&sort=-name&size=25&free=true": "profile_us_00019 profile_us_00018 profile_us_00017 profile_us_00016 profile_us_00015 profile_us_00014 profile_us_00013 profile_us_00012 profile_us_00011 profile_us_00010",
		"/?worker=worker-59&sort=name":                             "profile_us_00059 profile_us_00119",
		"/?host=host-03&task=*_0003":                               "profile_us_00003",
		"/?url=orders/129":                                         "profile_us_00129",
		"/?page=4":                                                 "",
		"/?q=nobody":                                               "",
	} {
		if got := shownRows(b.get(t, path, 200)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if last := b.get(t, "/?page=3&state=available&state=held&token="+token, 200); !strings.Contains(last, "101 to 109 of 109") ||
		!strings.Contains(last, `href="/?page=2&amp;state=available&amp;state=held&amp;token=`+token+`" rel="prev"`) || strings.Contains(last, `rel="next"`) ||
		!strings.Contains(last, `<input type="hidden" name="state" value="held">`) || !strings.Contains(last, `<input type="hidden" name="token" value="`+token+`">`) {
		t.Errorf("the last page: %s", last[strings.LastIndex(last, "<nav"):])
	}
	if wrong := b.get(t, "/?state=busy&q=x", 400); !strings.Contains(wrong, "That cannot be asked for") || !strings.Contains(wrong, "1 to 50 of 130") {
		t.Errorf("a state that is none: %.3000s", wrong)
	}
	if none := b.get(t, "/?q=nobody", 200); !strings.Contains(none, "No profile matches.") || !strings.Contains(none, `<a href="/">Show all</a>`) {
		t.Error("a search without a result does not say so")
	}
	b.hands = map[string]api.InHands{
		"profile_us_00001": {SessionID: "ses_2", Ask: &api.Ask{Reason: "the code from the SMS", At: noon.Add(-48 * time.Hour)}}, "profile_us_00002": {Person: &api.Person{Name: "Ada", Since: noon}},
	}
	if asks := b.get(t, "/", 200); !strings.HasPrefix(shownRows(asks), "profile_us_00001 profile_us_00120") || !strings.Contains(asks, "the code from the SMS") || !strings.Contains(asks, `href="/console/profile_us_00001/live?session=ses_2"`) || !strings.Contains(asks, "7 waiting for a person, 1 asking for a person") {
		t.Error("the list does not begin with the worker that asks for a person")
	}
	if has := b.get(t, "/?q=us_00002", 200); !strings.Contains(has, "a person has it") || !strings.Contains(has, ">Ada<") {
		t.Error("the list does not say which person has a session")
	}
	b.profiles = nil
	if none := b.get(t, "/", 200); !strings.Contains(none, "No profiles yet.") || !strings.Contains(none, "<title>Leasehold</title>") {
		t.Error("an empty list does not say so")
	}
}

// TestTheListShowsWhatMayBeSeen, and says since when it may be old.
func TestTheListShowsWhatMayBeSeen(t *testing.T) {
	b := &backend{profiles: fleet(30), who: principal.Principal{Name: "vic", Role: principal.Viewer, Profiles: principal.Patterns{"*_00001", "*_00020"}}}
	b.stale, b.notReady = noon, api.Refuse(api.CodeStoreUnavailable, "the NATS server is away")
	body := b.get(t, "/", 200)
	if rows := shownRows(body); rows != "profile_us_00020 profile_us_00001" || !strings.Contains(body, "2 profiles, 1 held, 1 waiting for a person") {
		t.Errorf("a viewer of two profiles sees %s", rows)
	}
	for _, want := range []string{"cannot be reached since 12:00:00 UTC", "not ready: the NATS server is away"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestALineOfAReviewHasItsPicture: that of the page that was used last, as far as there is one.
func TestALineOfAReviewHasItsPicture(t *testing.T) {
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
	list := b.get(t, "/", 200)
	if src := `src="/console/` + reviewed + `/picture"`; strings.Count(list, src) != 1 || strings.Count(list, "/picture") != 1 {
		t.Errorf("want one picture, %s", src)
	}
	w := b.ask("GET", "/console/"+reviewed+"/picture?token="+token, "")
	if got, want := w.Header().Get("Location"), "/v1/evidence/evd_2/screenshot-1.jpg?token="+token; w.Code != http.StatusSeeOther || got != want {
		t.Errorf("%d %s, want %s", w.Code, got, want)
	}
	c := usual("evd_2")
	c.bundles[0].Pages[1].Missing = "the page is sensitive"
	b.cases[reviewed] = c
	if w := b.ask("GET", "/console/"+reviewed+"/picture", ""); w.Code != http.StatusNotFound {
		t.Errorf("a page without a picture: %d", w.Code)
	}
}

// TestAProfileWhileTheStoreIsAway is shown as it was seen last, with since when.
func TestAProfileWhileTheStoreIsAway(t *testing.T) {
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
	for i := range b.profiles {
		b.profiles[i].StaleSince = noon
	}
	body := b.get(t, "/console/"+reviewed, 200)
	for _, want := range []string{`role="alert">The lease store (NATS) cannot be reached since 12:00:00 UTC.`, "nothing can be decided until the store answers", "Your decision"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}

// TestOnlyWhatChangesIsSent, to a page that is open.
func TestOnlyWhatChangesIsSent(t *testing.T) {
	b := &backend{profiles: fleet(300)}
	srv := httptest.NewServer(b.handler())
	defer srv.Close()
	r, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/updates?sort=name&size=100&page=2&token="+token, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReaderSize(response.Body, 1<<20)
	next := func() (c struct {
		Order []string
		Rows  map[string]listRow
		Texts map[string]string
	}) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := json.Unmarshal([]byte(data), &c); err != nil {
					t.Fatal(err)
				}
				return c
			}
		}
	}
	if all := next(); len(all.Order) != 100 || len(all.Rows) != 100 || all.Order[0] != "profile_us_00100" || all.Texts["range"] != "101 to 200 of 300" {
		t.Fatalf("at first %d rows, %+v", len(all.Rows), all.Texts)
	}
	b.change(func() { b.profiles[150].LastKnownURL = "https://shop.example/moved" })
	if c := next(); c.Order != nil || len(c.Rows) != 1 || c.Rows["profile_us_00150"].LastURL != "https://shop.example/moved" || len(c.Texts) != 0 {
		t.Errorf("after a change of one row: %+v", c)
	}
	b.change(func() { b.profiles[5].State = lease.ManualReview }) // on another page
	if c := next(); c.Order != nil || len(c.Rows) != 0 || c.Texts["count-manual_review"] != "16" || c.Texts["waiting"] != "16" {
		t.Errorf("after a change on another page: %+v", c)
	}
	b.change(func() { b.profiles = slices.Delete(b.profiles, 0, 1) })
	if c := next(); len(c.Order) != 100 || len(c.Rows) != 1 || c.Rows["profile_us_00200"].ID == "" {
		t.Errorf("after a profile has gone: %d in order, %d rows", len(c.Order), len(c.Rows))
	}
}

// TestPagesThatHearOfChangesAreBounded: one more is served, and does not change by itself.
func TestPagesThatHearOfChangesAreBounded(t *testing.T) {
	p := Handler(&backend{}, zerolog.Nop()).(*pages)
	for range maxOpen {
		p.following <- struct{}{}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/updates", nil)
	r.Pattern = "GET /updates"
	if p.ServeHTTP(w, r); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more page: %d", w.Code)
	}
}

// TestTheListInABrowser: it is searched and gone through by keys alone, opens rows, and
// changes by itself, without losing what has the focus.
func TestTheListInABrowser(t *testing.T) {
	b := &backend{profiles: append(records(), fleet(130)...)}
	v := open(t, b, "/?token="+token)
	if list := v.Text(`document.body.textContent`); !strings.Contains(v.Text(`document.body.innerHTML`), "data-slot") || strings.Contains(list, hostile) {
		t.Error("the list shows characters that deceive")
	}
	v.Until(`document.querySelector("#rows time[datetime]")?.title`)

	// What the script makes of a row is what the server makes of it, once its picture, which
	// nobody has, is found missing.
	const missing = `document.querySelector("#rows img[src]")?.hidden`
	const markup = `[...document.querySelectorAll("#rows tr")].map(r => r.outerHTML.replace(/<time.*?<\/time>/g, "")).join("\n")`
	see := func() {
		v.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#rows img[src]").scrollIntoView()`)) // pictures out of sight are not fetched
		v.Until(missing)
	}
	see()
	before := v.Text(markup)
	v.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#rows").replaceChildren()`))
	v.Do(chromedp.Evaluate[chromedp.Void](`document.dispatchEvent(new Event("visibilitychange"))`)) // it listens anew, and gets everything
	v.Until(`document.querySelectorAll("#rows tr").length === 50`)
	see()
	after := strings.SplitAfter(v.Text(markup), "</tr>")
	for i, row := range strings.SplitAfter(before, "</tr>") {
		if i >= len(after) || after[i] != row {
			t.Fatalf("row %d of the server:\n%s\nthe script makes of it:\n%s", i, row, after[min(i, len(after)-1)])
		}
	}
	b.change(func() { b.profiles[b.at(reviewed)].LastKnownStep = "once_more" })
	v.Until(`document.querySelector("#rows").textContent.includes("once_more")`)
	if v.Text(missing+`.toString()`) != "true" {
		t.Error("a picture that could not be had is shown again when its row changes")
	}

	// Keys.
	v.Keys("j", "j", "k", "j")
	if focused := v.Text(`document.activeElement.textContent`); focused != v.Text(`document.querySelectorAll("#rows th a")[1].textContent`) {
		t.Errorf("the second row was to have the focus, and %q has it", focused)
	}
	second := v.Text(`document.activeElement.textContent`)
	b.change(func() {
		at := b.at("profile_us_00001")
		b.profiles[at].State, b.profiles[at].RecoveryStartedAt = lease.ManualReview, noon.Add(-100*time.Hour)
	})
	v.Until(`document.querySelector("#rows tr").dataset.id === "profile_us_00001" && document.title.startsWith("(9)")`)
	if said := v.Text(`document.querySelector("#said").textContent`); said != "9 profiles wait for a person" {
		t.Errorf("a screen reader is told %q", said)
	}
	if focused := v.Text(`document.activeElement.textContent`); focused != second {
		t.Errorf("%q had the focus, and %q has it after a change", second, focused)
	}
	v.Keys("n")
	const ready = ` && document.readyState === "complete" && document.querySelector("#rows time[datetime]")?.title`
	v.Until(`location.search.includes("page=2")` + ready)
	v.Keys("/", "orders/77", kb.Enter)
	v.Until(`location.search.includes("orders%2F77") && document.querySelectorAll("#rows tr").length === 1` + ready)
	v.Keys("j", kb.Enter)
	v.Until(`location.pathname === "/console/profile_us_00077"`)
	v.Do(chromedp.Navigate(v.url + "/?token=" + token + "&state=held"))
	v.Until(`true` + ready)
	v.Click(`#rows tr:nth-child(3) td:nth-child(2)`)
	v.Until(`location.pathname.startsWith("/console/")`)
	v.Do(chromedp.Navigate(v.url + "/?token=" + token))
	v.Until(`true` + ready)
	v.Keys("?")
	v.Until(`document.querySelector("#keys").open && document.activeElement.tagName === "SUMMARY"`)
	v.Keys("h")
	v.Until(`location.pathname === "/hosts"`)
	v.Do(chromedp.Navigate(v.url+"/?token="+token+"#profile_us_018"), chromedp.Reload()) // a link of an earlier version
	v.Until(`location.pathname === "/console/profile_us_018"`)
}

// hundredHosts are launchers in every state.
func hundredHosts(n int) []api.Host {
	var all []api.Host
	for i := range n {
		h := api.Host{Here: true, Own: i == 0, States: map[lease.State]int{lease.Available: 80, lease.Held: 6}, Presence: lease.Presence{
			LauncherID: fmt.Sprintf("host-%02d", i), AdvertiseURL: fmt.Sprintf("https://browsers-%02d.example.com:9333", i), HeartbeatAt: noon.Add(-time.Minute),
			Host: lease.HostReport{Name: fmt.Sprintf("node-%02d", i), Places: 12, Browsers: 8, Warm: 2, MemoryTotal: 64 << 30, MemoryAvailable: 21 << 30},
		}}
		switch i {
		case 1:
			h.Here, h.States = false, map[lease.State]int{lease.ManualReview: 3, lease.Quarantined: 4}
		case 2:
			h.Here, h.Closed, h.ClosedBy = false, true, "host-00"
		case 3:
			h.Here, h.Closed, h.ClosedBy = false, true, "host-03"
		case 4:
			h.Presence.Host = lease.HostReport{}
		case 5:
			h.Presence.Host.Places, h.Presence.Host.Waiting = 0, 3
		}
		all = append(all, h)
	}
	return all
}

// TestHosts: each launcher with what it says of its host, and whether it is here.
func TestHosts(t *testing.T) {
	b := &backend{hosts: hundredHosts(100), profiles: fleet(3), cases: map[string]scene{"asks": {sessions: []api.Session{
		{SessionID: "ses_asks", ProfileID: "asks", WorkerID: "worker-3", State: api.SessionServing, Ask: &api.Ask{Reason: "the code from the SMS"}, Person: &api.Person{Name: "Ben"}},
	}}}}
	body := b.get(t, "/hosts?token="+token, 200)
	text := regexp.MustCompile(`(?s)<[^>]*>|\s+`).ReplaceAllString(body, " ")
	text = regexp.MustCompile(`\s+`).ReplaceAllString(text, " ")
	for _, want := range []string{
		"100 hosts, 97 here", "host-00 node-00 · https://browsers-00.example.com:9333 this host", "host-01 node-01 · https://browsers-01.example.com:9333 silent it did not renew its presence 18 Jun 11:59 UTC 8 of 12 2 21.0 of 64.0 GiB free 7, 0 held 3 waiting for a person",
		"went silent noticed by host-00", "has ended", "not told", "8, no limit", "3 requests in the queue", "profile_us_018 worker-7",
		"NATS answers this host.", "asks for a person: the code from the SMS", "Ben has it by hand",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %.3000s", want, text)
		}
	}
	if !strings.Contains(body, `aria-label="Places that are taken" high="0.9" value="0.67"`) || !strings.Contains(body, `aria-label="Memory in use" high="0.9" value="0.67"`) {
		t.Error("no bar says how full a host is")
	}
	if !strings.Contains(body, `href="/?host=host-01&amp;token=`+token+`"`) {
		t.Error("a host does not lead to its profiles")
	}
	b.change(func() { b.stale, b.notReady = noon, errors.New("away") })
	if away := b.get(t, "/hosts?token="+token, 200); !strings.Contains(away, "NATS does not answer this host since 12:00:00 UTC") {
		t.Error("the page of hosts does not say that NATS is away")
	}
	b.who = principal.Principal{Name: "vic", Role: principal.Viewer, Profiles: principal.Patterns{"bank_*"}}
	if body := b.get(t, "/hosts", 200); strings.Contains(body, "worker-7") || !strings.Contains(body, "It has none.") {
		t.Error("a viewer sees sessions of others' profiles")
	}
}

// waiters are requests of many workers, for a profile or for any of some.
func waiters(n int) []api.Waiting {
	var all []api.Waiting
	for i := range n {
		w := api.Waiting{
			ProfileID: fmt.Sprintf("profile_us_%05d", i%9), WorkerID: fmt.Sprintf("worker-%d", i), TaskID: fmt.Sprintf("task_20260618_%04d", i), Principal: "uid:1000", Priority: i%3 - 1,
			LauncherID: fmt.Sprintf("host-%02d", i%2), Since: noon.Add(-time.Duration(i) * time.Minute), Position: 1 + i/9, Profiles: 1, Arrival: uint64(100 + i),
		}
		w.Candidates = []string{w.ProfileID}
		if i%4 == 3 {
			w.ProfileID, w.AccountID, w.Labels, w.Profiles = "", "store_us_*", lease.Labels{"region": "us-east", "tier": hostile[:40]}, 2
			w.Candidates = []string{"profile_us_00001", "profile_us_00002"}
		}
		all = append(all, w)
	}
	return all
}

// TestTheQueue: who waits for what, as far as the one who looks may know, and how many places there
// are. It follows what happens.
func TestTheQueue(t *testing.T) {
	b := &backend{hosts: hundredHosts(4), waiting: waiters(12)}
	body := b.get(t, "/queue?token="+token, 200)
	text := regexp.MustCompile(`(?s)<[^>]*>|\s+`).ReplaceAllString(body, " ")
	text = regexp.MustCompile(`\s+`).ReplaceAllString(text, " ")
	for _, want := range []string{
		"12 requests in the queue", "8 of 12 places on 1 host are taken, 2 of them by warm browsers.", "profile_us_00000 worker-0 task_20260618_0000 1 -1 18 Jun 12:00:00 UTC host-00",
		"any of 2 profiles account store_us_* · region:us-east", "profile_us_00000 worker-9 task_20260618_0009 2 -1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %.3000s", want, text)
		}
	}
	if !strings.Contains(body, `href="/console/profile_us_00000?token=`+token+`"`) || !strings.Contains(body, `href="/?account_id=store_us_%2A&amp;label=region%3Aus-east`) {
		t.Error("what is waited for is no link")
	}
	b.who = principal.Principal{Name: "vic", Role: principal.Viewer, Profiles: principal.Patterns{"*_00001"}}
	if body := b.get(t, "/queue", 200); strings.Contains(body, "worker-0<") || !strings.Contains(body, "worker-1<") || !strings.Contains(body, "worker-3<") || !strings.Contains(body, "5 requests in the queue") {
		t.Errorf("a viewer of one profile sees %.3000s", body)
	}
	b.waiting, b.who = nil, principal.Principal{}
	if body := b.get(t, "/queue", 200); !strings.Contains(body, "Nobody waits for a profile.") {
		t.Error("an empty queue does not say so")
	}

	v := open(t, b, "/queue?token="+token)
	v.Until(`document.querySelector("[data-text=none]").textContent === "Nobody waits for a profile."`)
	b.change(func() { b.waiting = waiters(2) })
	v.Until(`document.querySelectorAll("#rows tr").length === 2 && document.querySelector("[data-text=none]").hidden && document.querySelector("#rows time").title`)
	b.change(func() { b.waiting = b.waiting[1:] })
	v.Until(`document.querySelectorAll("#rows tr").length === 1 && document.querySelector("#rows tr").innerText.includes("worker-1")`)
}

// TestASoundIsMadeByChoice when more wait for a person than before, whether the page is seen or not.
func TestASoundIsMadeByChoice(t *testing.T) {
	b := &backend{profiles: fleet(30)}
	v := open(t, b, "/?token="+token)
	v.Do(chromedp.Evaluate[chromedp.Void](`window.heard = 0; const start = OscillatorNode.prototype.start; OscillatorNode.prototype.start = function (...a) { window.heard++; return start.apply(this, a); }`))
	more := func(state lease.State) {
		b.change(func() { b.profiles[2].State, b.profiles[2].RecoveryStartedAt = state, noon })
	}
	more(lease.ManualReview)
	v.Until(`document.title.startsWith("(3)")`)
	if heard := v.Number(`window.heard`); heard != 0 {
		t.Errorf("%d sounds without having asked for one", heard)
	}
	more(lease.Held)
	v.Until(`document.title.startsWith("(2)")`)
	v.Click(`#sound`)
	v.Until(`window.heard === 1`) // so that it is known how it sounds
	more(lease.ManualReview)
	v.Until(`document.title.startsWith("(3)") && window.heard === 2`)
	more(lease.Held)
	v.Until(`document.title.startsWith("(2)")`)
	if heard := v.Number(`window.heard`); heard != 2 {
		t.Errorf("%d sounds, the last when fewer waited", heard)
	}
	// Who asked for it is called from elsewhere, too. Without it a page that nobody sees says no number.
	away := func(is bool) {
		v.Do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`Object.defineProperty(document, "hidden", { configurable: true, value: %v }); document.dispatchEvent(new Event("visibilitychange"))`, is)))
	}
	away(true)
	more(lease.ManualReview)
	v.Until(`document.title.startsWith("(3)") && window.heard === 3`)
	away(false)
	v.Click(`#sound`)
	v.Until(`!document.querySelector("#sound").checked`)
	away(true)
	if title := v.Text(`document.title`); title != "Leasehold" {
		t.Errorf("a page that hears nothing has the title %q", title)
	}
	more(lease.Held)
	away(false)
	v.Until(`document.title.startsWith("(2)")`)
}

// TestListsAreAccessible, look as they should, and fit their screens.
func TestListsAreAccessible(t *testing.T) {
	b := &backend{profiles: append(records(), fleet(300)...), hosts: hundredHosts(30), waiting: waiters(40), cases: map[string]scene{reviewed: usual("evd_2")}}
	b.hands = map[string]api.InHands{"profile_us_00001": {Ask: &api.Ask{At: noon, Until: time.Now().Add(time.Hour), Reason: "the code that the shop sent to the phone"}}}
	b.shop()
	b.replay()
	all := accountsBackend()
	b.profiles, b.gone, b.silent = append(all.profiles, b.profiles...), all.gone, all.silent
	maps.Copy(b.hands, all.hands)
	b.alike()
	v := open(t, b, "/healthz?token="+token)
	photos := os.Getenv("LEASEHOLD_PHOTOS") != ""
	for _, one := range []struct {
		name, path string
		always     bool // else where it is photographed
	}{
		{"list", "/?", false}, {"list-filtered", "/?state=manual_review&account_id=store*&q=task&", true}, {"list-none", "/?q=nobody&", false},
		{"list-wrong", "/?state=busy&", false}, {"list-stale", "/?size=25&", false}, {"hosts", "/hosts?", true}, {"queue", "/queue?", true}, {"accounts", "/accounts?q=acct&", true}, {"reviews", "/reviews?", true}, {"site", "/sites/shop?", true}, {"site-again", "/sites/shop?again=1&", true},
	} {
		if one.name == "list-stale" {
			b.change(func() { b.stale, b.notReady = noon, errors.New("away") })
		}
		v.Do(chromedp.Navigate(v.url + one.path + "token=" + token))
		for _, width := range []int{3840, 360} {
			v.size(width, "light")
			if wide := v.Number(`document.documentElement.scrollWidth`); wide > width {
				t.Errorf("%s is %d pixels wide at %d: %s", one.name, wide, width, v.Text(`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll")).map(e => e.tagName + "." + e.className).slice(0, 5).join(" ")`))
			}
		}
		if one.name == "list-filtered" && !strings.Contains(v.Text(`document.querySelector("#rows tr").innerText`), "days") { // the page is 360 pixels wide now
			t.Errorf("a phone is not shown since when a profile waits: %q", v.Text(`document.querySelector("#rows tr").innerText`))
		}
		if one.always || photos {
			v.accessible(one.name)
		}
		v.photograph(one.name)
	}
}
