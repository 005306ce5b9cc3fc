package console

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// accounts are profiles in each case of the page of accounts, in the order that it has them in.
func accounts() []api.Profile {
	now := time.Now()
	snapshot := id.New("snap")
	of := func(name string, change func(*api.Profile)) api.Profile {
		r := api.Profile{Record: lease.Record{ProfileID: name, AccountID: "mail_" + name, ProxyID: "proxy-eu-4", Home: "host-1", State: lease.Available, Token: 9, Settings: lease.Settings{SessionCheck: &lease.SessionCheck{}, CheckEvery: lease.Duration(time.Hour)}}}
		r.SignedIn, r.SignedInSince, r.SignedInCheckedAt, r.SignedInHow = lease.SignedInYes, now.Add(-50*time.Hour), now.Add(-20*time.Minute), "the answer is 200"
		change(&r)
		return r
	}
	out := func(r *api.Profile) {
		r.SignedIn, r.SignInAt, r.SignedInHow = lease.SignedInNo, "https://mail.example", "the answer leads to /login "+hostile[:40]
	}
	return []api.Profile{
		of("acct_another", func(r *api.Profile) { out(r); r.AnotherAccount = true }),
		of("acct_out", func(r *api.Profile) {
			out(r)
			r.SnapshotID, r.SnapshotToken, r.SnapshotSignedOut, r.SignedInSnapshotID = snapshot, 9, true, "snap_0"
		}),
		of("acct_out_held", func(r *api.Profile) { out(r); r.State, r.SignedInSince = lease.Held, now.Add(-time.Hour) }),
		of("acct_gone", func(r *api.Profile) { r.SnapshotID, r.SnapshotToken, r.SignedInSnapshotID = snapshot, 8, snapshot }),
		of("acct_review", func(r *api.Profile) { r.State, r.Reason = lease.ManualReview, "connection_lost" }),
		of("acct_silent", func(r *api.Profile) { r.SignedInTriedAt = now.Add(-time.Minute) }),
		of("acct_new", func(r *api.Profile) { r.Account, r.CheckEvery = lease.Account{}, 0 }),
		of("acct_nobody", func(r *api.Profile) { r.Account, r.SessionCheck = lease.Account{}, nil }),
		of("acct_asks", func(r *api.Profile) { r.State = lease.Held }),
		of("acct_away", func(r *api.Profile) { r.Home = "host-2" }),
		of("acct_fine", func(r *api.Profile) { r.SnapshotID, r.SnapshotToken, r.SignedInSnapshotID = snapshot, 9, snapshot }),
		of("acct_x_archived", func(r *api.Profile) { r.Reason = api.ReasonArchived }),
	}
}

func accountsBackend() *backend {
	return &backend{
		profiles: accounts(), gone: []string{"acct_gone"}, silent: map[string]time.Time{"host-2": noon}, cases: map[string]scene{},
		hands: map[string]api.InHands{"acct_asks": {SessionID: "ses_2", Ask: &api.Ask{Reason: "the code", At: noon, Until: noon}}},
	}
}

// rowsOfPage are the rows of a page's table as texts, each with where its link or button leads.
func rowsOfPage(body string) (rows []string) {
	body, _, _ = strings.Cut(body, `<template id="row">`)
	for _, row := range regexp.MustCompile(`(?s)<tr data-id.*?</tr>`).FindAllString(body, -1) {
		row = regexp.MustCompile(`(?s)<(\w+)[^>]* hidden>.*?</\w+>`).ReplaceAllString(row, "")
		row = regexp.MustCompile(`(?s)<time[^>]*class="sub narrow.*?</time>`).ReplaceAllString(row, "")
		row = regexp.MustCompile(`(?:href|formaction)="([^"]*)"[^>]*>`).ReplaceAllString(row, `>[$1] `)
		rows = append(rows, strings.Join(strings.Fields(regexp.MustCompile(`(?s)<[^>]*>`).ReplaceAllString(row, " ")), " "))
	}
	return rows
}

// TestAccounts: those first that need somebody, each with what is known of it and the one thing that is to
// be done.
func TestAccounts(t *testing.T) {
	b := accountsBackend()
	rows := rowsOfPage(b.get(t, "/accounts?token="+token, 200))
	const page = "/console/acct_"
	for i, want := range [][]string{
		{"acct_another mail_acct_another another account at https://mail.example", "[" + page + "another?token=" + token + "#by-hand] Sign in"},
		{"acct_out", "signed out at https://mail.example · the answer leads to /login &lt;img", "host-1 proxy proxy-eu-4", "signed out; an older one is signed in", "[" + page + "out?token=" + token + "#by-hand] Sign in"},
		{"acct_out_held", "signed out", "when it is free", "none held"},
		{"acct_gone", "signed in", "signed in · used since its directory is gone [" + page + "gone?token=" + token + "#lives] Restore"},
		{"acct_review", "waits for a person [" + page + "review?token=" + token + "#choice] Decide"},
		{"acct_silent", "signed in the last check had no answer", "[" + page + "silent/check?token=" + token + "] Check now"},
		{"acct_new", "not known after its next session", "[" + page + "new/check?token=" + token + "] Check now"},
		{"acct_nobody", "not known never: no site is asked host-1 proxy proxy-eu-4 none"},
		{"acct_asks", "asks for a person [" + page + "asks/live?token=" + token + "&amp;session=ses_2] Take over"},
		{"acct_away", "host-2", "its home is gone [" + page + "away?token=" + token + "#rehome] Give it a home"},
		{"acct_fine", "signed in", " UTC host-1", "UTC signed in [" + page + "fine/check?token=" + token + "] Check now"},
		{"acct_x_archived", "archived"},
	} {
		for _, text := range want {
			if i >= len(rows) || !strings.Contains(rows[i], text) || !strings.HasPrefix(rows[i], "["+page) {
				t.Errorf("row %d lacks %q: %q", i, text, rows[min(i, len(rows)-1)])
			}
		}
	}
	for at, row := range map[int]string{2: "held", 7: "none", 11: "archived"} {
		if !strings.HasSuffix(rows[at], row) {
			t.Errorf("there is something to do: %q", rows[at])
		}
	}
	if body := b.get(t, "/accounts?signed_in=no&token="+token, 200); len(rowsOfPage(body)) != 3 || !strings.Contains(body, `signed in <b data-text="count-yes">7</b>`) || !strings.Contains(body, "12 accounts, 3 signed out") {
		t.Errorf("signed out: %q", rowsOfPage(body))
	}
	if body := b.get(t, "/accounts?signed_in=perhaps&token="+token, 400); len(rowsOfPage(body)) != 12 || !strings.Contains(body, "want yes, no or unknown") {
		t.Error("what cannot be asked for is not said")
	}
}

// TestAccountsShowWhatMayBeSeen: the profiles of the user's patterns, and what their role may do.
func TestAccountsShowWhatMayBeSeen(t *testing.T) {
	b := accountsBackend()
	for role, want := range map[principal.Role]string{
		principal.Viewer:   "",
		principal.Reviewer: "Sign in Decide Check now",
		principal.Operator: "Sign in Restore Decide Check now",
	} {
		b.who = principal.Principal{Name: "vic", Role: role, Profiles: principal.Patterns{"acct_out", "acct_gone", "acct_review", "acct_fine"}}
		body := b.get(t, "/accounts", 200)
		var offered []string
		for _, row := range rowsOfPage(body) {
			offered = append(offered, regexp.MustCompile(`(Sign in|Restore|Decide|Check now)$`).FindString(row))
		}
		if got := strings.Join(slices.DeleteFunc(offered, func(s string) bool { return s == "" }), " "); got != want || len(rowsOfPage(body)) != 4 || strings.Contains(body, "acct_another") || !strings.Contains(body, "4 accounts, 1 signed out") {
			t.Errorf("%s is offered %q, want %q, on %d rows", role, got, want, len(rowsOfPage(body)))
		}
	}
}

// TestAnAccountIsCheckedNow: by keys and without a mouse, and the page shows the answer where it was; a
// refusal is said there.
func TestAnAccountIsCheckedNow(t *testing.T) {
	b := accountsBackend()
	form := []string{"Content-Type: application/x-www-form-urlencoded", "Origin: http://127.0.0.1:9333"}
	if w := b.ask("POST", "/console/acct_new/check?token="+token, "back=signed_in%3Dunknown%26token%3Dother%26page%3Dx", form...); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/accounts?signed_in=unknown&token="+token {
		t.Errorf("%d to %s", w.Code, w.Header().Get("Location"))
	}
	b.refuse = api.Refuse(api.CodeConflict, "profile acct_silent is in use")
	if w := b.ask("POST", "/console/acct_silent/check", "back=signed_in%3Dyes", form...); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "acct_silent was not checked: profile acct_silent is in use.") || !strings.Contains(w.Body.String(), `value="signed_in=yes"`) {
		t.Errorf("a refused check: %d", w.Code)
	}
	b.refuse = nil

	v := open(t, b, "/accounts?q=acct_s&token="+token)
	v.Until(`document.querySelector("#rows tr")?.innerText.includes("had no answer")`)
	v.Keys("j", kb.Tab, kb.Enter)
	v.Until(`location.search.includes("q=acct_s") && document.readyState === "complete" && document.querySelector("#rows tr")?.innerText.includes("signed in") && !document.querySelector("#rows tr").innerText.includes("had no answer")`)
	if want := []string{"acct_new", "acct_silent", "acct_silent"}; !slices.Equal(b.checked, want) {
		t.Errorf("checked %q, want %q", b.checked, want)
	}
	// The script makes the rows that the server makes, and what happens is shown by itself.
	v.Do(chromedp.Navigate(v.url + "/accounts?token=" + token))
	v.Until(`document.querySelectorAll("#rows tr").length === 12 && document.querySelector("#rows time[datetime]").title`)
	const markup = `[...document.querySelectorAll("#rows tr")].map(r => r.outerHTML.replace(/<time.*?<\/time>/g, "")).join("\n")`
	before := v.Text(markup)
	v.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#rows").replaceChildren(); document.dispatchEvent(new Event("visibilitychange"))`))
	v.Until(`document.querySelectorAll("#rows tr").length === 12`)
	if after := v.Text(markup); after != before {
		t.Errorf("the script makes rows of its own:\n%s\nthe server:\n%s", after, before)
	}
	b.change(func() {
		r := &b.profiles[b.at("acct_fine")]
		r.Record = r.Checked(lease.Checked{SignedIn: lease.SignedInNo, How: "h", At: "https://mail.example"}, time.Now())
	})
	v.Until(`[...document.querySelectorAll("#rows tr")].findIndex(r => r.dataset.id === "acct_fine" && r.innerText.includes("Sign in")) === 3`)
	v.Keys("l")
	v.Until(`location.pathname === "/"`)
}
