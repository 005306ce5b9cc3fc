package findings

import (
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

// changed is an entry about the cookie c of shop.example.
func changed(what checkpoint.CookieEvent, by checkpoint.CookieActor, change ...func(*checkpoint.CookieChange)) checkpoint.Entry {
	c := checkpoint.CookieChange{What: what, By: by, Cookie: "c", Domain: "shop.example"}
	if by == checkpoint.BySite {
		c.Status = 200
	}
	for _, f := range change {
		f(&c)
	}
	return checkpoint.Entry{Kind: checkpoint.KindCookie, Method: "GET", URL: "https://shop.example/x", Cookie: &c}
}

func TestWhetherTheSessionIsStillTheAccounts(t *testing.T) {
	const dropped, replaced, again = checkpoint.CookieDropped, checkpoint.CookieReplaced, checkpoint.CookieSetAgain
	const site, script, worker, expiry, nobody = checkpoint.BySite, checkpoint.ByScript, checkpoint.ByWorker, checkpoint.ByExpiry, checkpoint.ByUnknown
	status := func(n int) func(*checkpoint.CookieChange) {
		return func(c *checkpoint.CookieChange) { c.Status = n }
	}
	typed := func(c *checkpoint.CookieChange) { c.Typed = true }
	same := func(c *checkpoint.CookieChange) { c.Same = true }
	kept := func(c *checkpoint.CookieChange) { c.Kept = true }
	ours := func(c *checkpoint.CookieChange) { c.Subject = checkpoint.SubjectSame }
	theirs := func(c *checkpoint.CookieChange) { c.Subject = checkpoint.SubjectOther }
	other := func(c *checkpoint.CookieChange) { c.Cookie = "d" }
	elsewhere := func(c *checkpoint.CookieChange) { c.Domain = ".ads.example" }
	read := checkpoint.Entry{Kind: checkpoint.KindCookie, Cookie: &checkpoint.CookieChange{What: checkpoint.CookiesRead}}
	unread := checkpoint.Entry{Kind: checkpoint.KindCookie, Cookie: &checkpoint.CookieChange{What: checkpoint.CookiesUnread}}
	begin := []checkpoint.Entry{{Kind: checkpoint.KindStart}, visit("https://www.shop.example/")}

	for _, tt := range []struct {
		name        string
		entries     []checkpoint.Entry
		want, since table.Answer
	}{
		{"nothing", []checkpoint.Entry{read}, table.Yes, table.Yes},
		{"nothing that could be read", []checkpoint.Entry{unread}, table.Unknown, table.Unknown},
		{"nobody looked", nil, table.Unknown, table.Unknown},
		{"looked again in vain", []checkpoint.Entry{read, unread}, table.Unknown, table.Unknown},
		{"looked again", []checkpoint.Entry{unread, read}, table.Yes, table.Yes},

		{"signed out by the site", []checkpoint.Entry{changed(dropped, site), read}, table.No, table.No},
		{"signed out by a script", []checkpoint.Entry{changed(dropped, script), read}, table.No, table.No},
		{"signed out by the worker", []checkpoint.Entry{changed(dropped, worker), read}, table.No, table.No},
		{"gone, by nobody knows whom", []checkpoint.Entry{changed(dropped, nobody), read}, table.No, table.No},
		{"run out", []checkpoint.Entry{changed(dropped, expiry), read}, table.No, table.No},
		{"one of two run out", []checkpoint.Entry{changed(dropped, expiry, kept), read}, table.Yes, table.Yes},
		{"of a site that nobody visited", []checkpoint.Entry{changed(dropped, site, elsewhere), read}, table.Yes, table.Yes},

		{"a rotating session", []checkpoint.Entry{changed(replaced, site), changed(replaced, site), read}, table.Yes, table.Yes},
		{"one that rotates with redirects, too", []checkpoint.Entry{changed(replaced, site, status(302)), changed(replaced, site), read}, table.Yes, table.Yes},
		{"exchanged or renewed by a redirect", []checkpoint.Entry{changed(replaced, site, status(302)), read}, table.Unknown, table.Unknown},
		{"another cookie rotates", []checkpoint.Entry{changed(replaced, site, status(302)), changed(replaced, site, other), read}, table.Unknown, table.Unknown},
		{"a token of the same account", []checkpoint.Entry{changed(replaced, site, status(302), ours), changed(replaced, worker, ours), read}, table.Yes, table.Yes},
		{"a token of another account", []checkpoint.Entry{changed(replaced, site, theirs), read}, table.No, table.No},
		{"a token of another account, by script", []checkpoint.Entry{changed(replaced, script, theirs), read}, table.No, table.No},
		{"after something was typed and sent", []checkpoint.Entry{changed(replaced, site, typed), read}, table.No, table.No},
		{"after that, by a redirect", []checkpoint.Entry{changed(replaced, site, typed, status(302)), read}, table.No, table.No},
		{"with a refusal", []checkpoint.Entry{changed(replaced, site, status(401)), read}, table.No, table.No},
		{"with an error of the site's own", []checkpoint.Entry{changed(replaced, site, status(500)), read}, table.Unknown, table.Unknown},
		{"by the worker", []checkpoint.Entry{changed(replaced, worker), read}, table.No, table.No},
		{"by the worker, and it rotates", []checkpoint.Entry{changed(replaced, site), changed(replaced, worker), read}, table.No, table.No},
		{"by an answer that nobody saw, and it rotates", []checkpoint.Entry{changed(replaced, site), changed(replaced, nobody), read}, table.Yes, table.Yes},
		{"by nobody knows whom", []checkpoint.Entry{changed(replaced, nobody), read}, table.Unknown, table.Unknown},

		{"dropped and there again, as it was", []checkpoint.Entry{changed(dropped, site), changed(again, site, same), read}, table.Yes, table.Yes},
		{"dropped and there again, as another", []checkpoint.Entry{changed(dropped, site), changed(again, site), read}, table.No, table.No},
		{"dropped and there again, for the same account", []checkpoint.Entry{changed(dropped, site), changed(again, site, ours), read}, table.Yes, table.Yes},
		{"signed in anew, and said to be safe", []checkpoint.Entry{changed(replaced, site, typed, status(302)), safe("in"), read}, table.No, table.Yes},
		{"signed out after it was safe", []checkpoint.Entry{safe("in"), changed(dropped, site), read}, table.No, table.No},
	} {
		found := InspectTask(checkpoint.Summarize(append(begin[:2:2], tt.entries...)), Task{})
		for name, want := range map[string]table.Answer{table.SessionKept: tt.want, table.SessionKeptSinceSafe: tt.since} {
			if got := found.Answer(name); got != want {
				t.Errorf("%s: %s is %s (%s), want %s", tt.name, name, got, found.How(name), want)
			}
		}
	}
	if got := InspectTask(checkpoint.Summarize(nil), Task{}).Answer(table.SessionKept); got != table.Yes {
		t.Errorf("a session without a page: %s", got)
	}
}

// TestALostSessionGoesToAPerson: a session that may not be the account's is let go by no row.
func TestALostSessionGoesToAPerson(t *testing.T) {
	begin := []checkpoint.Entry{{Kind: checkpoint.KindStart}, visit("https://shop.example/")}
	read := checkpoint.Entry{Kind: checkpoint.KindCookie, Cookie: &checkpoint.CookieChange{What: checkpoint.CookiesRead}}
	gone := changed(checkpoint.CookieDropped, checkpoint.BySite)
	for _, tt := range []struct {
		name    string
		entries []checkpoint.Entry
		task    Task
		want    string
	}{
		{"kept", []checkpoint.Entry{read}, Task{}, table.Release},
		{"kept, after work", []checkpoint.Entry{step("list"), read}, Task{}, table.Retry},
		{"kept since the checkpoint", []checkpoint.Entry{safe("a"), read}, Task{Resumable: true}, table.Resume},
		{"lost before the checkpoint", []checkpoint.Entry{gone, safe("a"), read}, Task{Resumable: true}, table.Resume},
		{"lost", []checkpoint.Entry{gone, read}, Task{}, table.ManualReview},
		{"lost, after work", []checkpoint.Entry{step("list"), gone, read}, Task{}, table.ManualReview},
		{"lost after the checkpoint", []checkpoint.Entry{safe("a"), gone, read}, Task{Resumable: true}, table.ManualReview},
		{"lost after one that declares what follows idempotent", []checkpoint.Entry{idempotent("a"), gone, read}, Task{Resumable: true}, table.ManualReview},
		{"not known", nil, Task{}, table.ManualReview},
	} {
		d := table.Decide(append(sane(), InspectTask(checkpoint.Summarize(append(begin[:2:2], tt.entries...)), tt.task)...))
		if d.Outcome != tt.want {
			t.Errorf("%s: %s %q, want %s", tt.name, d.Outcome, d.Reasons, tt.want)
		}
		if lost := strings.Contains(strings.Join(d.Reasons, "\n"), "account's session"); lost != (tt.want == table.ManualReview) {
			t.Errorf("%s: %q", tt.name, d.Reasons)
		}
	}
}

func TestWhatTheWorkerAskedOfCookies(t *testing.T) {
	by := func(method string, what checkpoint.CookieEvent) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindCookie, Method: method, Cookie: &checkpoint.CookieChange{What: what, By: checkpoint.ByWorker}}
	}
	found := InspectTask(checkpoint.Summarize([]checkpoint.Entry{by("Storage.getCookies", checkpoint.CookiesGiven)}), Task{})
	if found.Answer(table.CookiesGiven) != table.Yes || !strings.Contains(found.How(table.CookiesGiven), "Storage.getCookies") || found.Answer(table.CookiesWritten) != table.No {
		t.Errorf("given: %+v", found)
	}
	found = InspectTask(checkpoint.Summarize([]checkpoint.Entry{by("Network.setCookie", checkpoint.CookiesWritten)}), Task{})
	if found.Answer(table.CookiesGiven) != table.No || found.Answer(table.CookiesWritten) != table.Yes {
		t.Errorf("written: %+v", found)
	}
}
