package decision

import (
	"strings"
	"testing"

	"leasehold/checkpoint"
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
		want, since Answer
	}{
		{"nothing", []checkpoint.Entry{read}, Yes, Yes},
		{"nothing that could be read", []checkpoint.Entry{unread}, Unknown, Unknown},
		{"nobody looked", nil, Unknown, Unknown},
		{"looked again in vain", []checkpoint.Entry{read, unread}, Unknown, Unknown},
		{"looked again", []checkpoint.Entry{unread, read}, Yes, Yes},

		{"signed out by the site", []checkpoint.Entry{changed(dropped, site), read}, No, No},
		{"signed out by a script", []checkpoint.Entry{changed(dropped, script), read}, No, No},
		{"signed out by the worker", []checkpoint.Entry{changed(dropped, worker), read}, No, No},
		{"gone, by nobody knows whom", []checkpoint.Entry{changed(dropped, nobody), read}, No, No},
		{"run out", []checkpoint.Entry{changed(dropped, expiry), read}, No, No},
		{"one of two run out", []checkpoint.Entry{changed(dropped, expiry, kept), read}, Yes, Yes},
		{"of a site that nobody visited", []checkpoint.Entry{changed(dropped, site, elsewhere), read}, Yes, Yes},

		{"a rotating session", []checkpoint.Entry{changed(replaced, site), changed(replaced, site), read}, Yes, Yes},
		{"one that rotates with redirects, too", []checkpoint.Entry{changed(replaced, site, status(302)), changed(replaced, site), read}, Yes, Yes},
		{"exchanged or renewed by a redirect", []checkpoint.Entry{changed(replaced, site, status(302)), read}, Unknown, Unknown},
		{"another cookie rotates", []checkpoint.Entry{changed(replaced, site, status(302)), changed(replaced, site, other), read}, Unknown, Unknown},
		{"a token of the same account", []checkpoint.Entry{changed(replaced, site, status(302), ours), changed(replaced, worker, ours), read}, Yes, Yes},
		{"a token of another account", []checkpoint.Entry{changed(replaced, site, theirs), read}, No, No},
		{"a token of another account, by script", []checkpoint.Entry{changed(replaced, script, theirs), read}, No, No},
		{"after something was typed and sent", []checkpoint.Entry{changed(replaced, site, typed), read}, No, No},
		{"after that, by a redirect", []checkpoint.Entry{changed(replaced, site, typed, status(302)), read}, No, No},
		{"with a refusal", []checkpoint.Entry{changed(replaced, site, status(401)), read}, No, No},
		{"with an error of the site's own", []checkpoint.Entry{changed(replaced, site, status(500)), read}, Unknown, Unknown},
		{"by the worker", []checkpoint.Entry{changed(replaced, worker), read}, No, No},
		{"by the worker, and it rotates", []checkpoint.Entry{changed(replaced, site), changed(replaced, worker), read}, No, No},
		{"by an answer that nobody saw, and it rotates", []checkpoint.Entry{changed(replaced, site), changed(replaced, nobody), read}, Yes, Yes},
		{"by nobody knows whom", []checkpoint.Entry{changed(replaced, nobody), read}, Unknown, Unknown},

		{"dropped and there again, as it was", []checkpoint.Entry{changed(dropped, site), changed(again, site, same), read}, Yes, Yes},
		{"dropped and there again, as another", []checkpoint.Entry{changed(dropped, site), changed(again, site), read}, No, No},
		{"dropped and there again, for the same account", []checkpoint.Entry{changed(dropped, site), changed(again, site, ours), read}, Yes, Yes},
		{"signed in anew, and said to be safe", []checkpoint.Entry{changed(replaced, site, typed, status(302)), safe("in"), read}, No, Yes},
		{"signed out after it was safe", []checkpoint.Entry{safe("in"), changed(dropped, site), read}, No, No},
	} {
		found := InspectTask(checkpoint.Summarize(append(begin[:2:2], tt.entries...)), Task{})
		for name, want := range map[string]Answer{SessionKept: tt.want, SessionKeptSinceSafe: tt.since} {
			if got := found.Answer(name); got != want {
				t.Errorf("%s: %s is %s (%s), want %s", tt.name, name, got, found.how(name), want)
			}
		}
	}
	if got := InspectTask(checkpoint.Summarize(nil), Task{}).Answer(SessionKept); got != Yes {
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
		{"kept", []checkpoint.Entry{read}, Task{}, Release},
		{"kept, after work", []checkpoint.Entry{step("list"), read}, Task{}, Retry},
		{"kept since the checkpoint", []checkpoint.Entry{safe("a"), read}, Task{Resumable: true}, Resume},
		{"lost before the checkpoint", []checkpoint.Entry{gone, safe("a"), read}, Task{Resumable: true}, Resume},
		{"lost", []checkpoint.Entry{gone, read}, Task{}, ManualReview},
		{"lost, after work", []checkpoint.Entry{step("list"), gone, read}, Task{}, ManualReview},
		{"lost after the checkpoint", []checkpoint.Entry{safe("a"), gone, read}, Task{Resumable: true}, ManualReview},
		{"lost after one that declares what follows idempotent", []checkpoint.Entry{idempotent("a"), gone, read}, Task{Resumable: true}, ManualReview},
		{"not known", nil, Task{}, ManualReview},
	} {
		d := Decide(append(sane(), InspectTask(checkpoint.Summarize(append(begin[:2:2], tt.entries...)), tt.task)...))
		if d.Outcome != tt.want {
			t.Errorf("%s: %s %q, want %s", tt.name, d.Outcome, d.Reasons, tt.want)
		}
		if lost := strings.Contains(strings.Join(d.Reasons, "\n"), "account's session"); lost != (tt.want == ManualReview) {
			t.Errorf("%s: %q", tt.name, d.Reasons)
		}
	}
}

func TestWhatTheWorkerAskedOfCookies(t *testing.T) {
	by := func(method string, what checkpoint.CookieEvent) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindCookie, Method: method, Cookie: &checkpoint.CookieChange{What: what, By: checkpoint.ByWorker}}
	}
	found := InspectTask(checkpoint.Summarize([]checkpoint.Entry{by("Storage.getCookies", checkpoint.CookiesGiven)}), Task{})
	if found.Answer(CookiesGiven) != Yes || !strings.Contains(found.how(CookiesGiven), "Storage.getCookies") || found.Answer(CookiesWritten) != No {
		t.Errorf("given: %+v", found)
	}
	found = InspectTask(checkpoint.Summarize([]checkpoint.Entry{by("Network.setCookie", checkpoint.CookiesWritten)}), Task{})
	if found.Answer(CookiesGiven) != No || found.Answer(CookiesWritten) != Yes {
		t.Errorf("written: %+v", found)
	}
}
