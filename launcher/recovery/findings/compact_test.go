package findings

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

// anyEntry draws an entry of which each field that a decision asks for takes few values, so
// that equal ones are frequent.
func anyEntry(rt *rapid.T, i int) checkpoint.Entry {
	e := checkpoint.Entry{
		Seq: uint64(i + 1), At: time.Unix(int64(i), 0).UTC(), Token: 1,
		Kind: rapid.SampledFrom([]checkpoint.Kind{
			checkpoint.KindURL, checkpoint.KindURL, checkpoint.KindFrame, checkpoint.KindStep, checkpoint.KindCheckpoint, checkpoint.KindRequest, checkpoint.KindRequest,
			checkpoint.KindAnswer, checkpoint.KindAnswer, checkpoint.KindForm, checkpoint.KindDownload, checkpoint.KindDialog, checkpoint.KindStorage, checkpoint.KindEvent, checkpoint.KindCrash, checkpoint.KindConnection,
			checkpoint.KindCookie, checkpoint.KindCookie, checkpoint.KindPerson,
		}).Draw(rt, "kind"),
	}
	switch e.Kind {
	case checkpoint.KindURL, checkpoint.KindFrame:
		e.URL = rapid.SampledFrom([]string{"https://a.example/", "https://a.example/list", "https://a.example/checkout", "https://b.example/", "about:blank"}).Draw(rt, "url")
		e.Target = rapid.SampledFrom([]string{"t1", "t2"}).Draw(rt, "target")
		e.Committed = rapid.Bool().Draw(rt, "committed")
		e.Sensitive = e.Kind == checkpoint.KindFrame || rapid.IntRange(0, 5).Draw(rt, "sensitive") == 0
	case checkpoint.KindStep:
		e.Name = rapid.SampledFrom([]string{"open", "read", "payment"}).Draw(rt, "name")
	case checkpoint.KindCheckpoint:
		e.Name = rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "name")
		e.Safe, e.Idempotent = rapid.Bool().Draw(rt, "safe"), rapid.Bool().Draw(rt, "idempotent")
	case checkpoint.KindRequest:
		e.Method = rapid.SampledFrom([]string{http.MethodPost, http.MethodPut, checkpoint.Websocket}).Draw(rt, "method")
		e.URL = rapid.SampledFrom([]string{"https://a.example/poll", "https://a.example/graphql"}).Draw(rt, "url")
		e.Type = rapid.SampledFrom([]string{"Fetch", "Ping", "Document"}).Draw(rt, "type")
		e.Name = rapid.SampledFrom([]string{"", checkpoint.GraphQLQuery}).Draw(rt, "name")
		e.Gesture = rapid.Bool().Draw(rt, "gesture")
		e.Declared = rapid.SampledFrom([]string{"", "", "POST https://a.example/poll"}).Draw(rt, "declared")
		e.Request = rapid.SampledFrom([]string{"", fmt.Sprint("r", i)}).Draw(rt, "request")
	case checkpoint.KindAnswer:
		e.URL = rapid.SampledFrom([]string{"https://a.example/", "https://a.example/list", "https://b.example/", "https://c.example/count"}).Draw(rt, "url")
		e.Status = rapid.SampledFrom([]int{200, 200, 204, 302, 401, 403, 404, 429, 503}).Draw(rt, "status")
		e.Target = rapid.SampledFrom([]string{"t1", "t2"}).Draw(rt, "target")
		e.RetryAfter = rapid.SampledFrom([]int64{0, 0, 60}).Draw(rt, "retry")
		switch rapid.IntRange(0, 4).Draw(rt, "of") {
		case 0:
			e.Committed = true
		case 1:
			e.Committed, e.Asked, e.Returns = true, "https://a.example/list", rapid.Bool().Draw(rt, "returns")
		case 2:
			e.Status, e.Asked, e.SignIn = 0, "https://a.example/list", "password"
			e.Failed = rapid.SampledFrom([]string{"", "no answer"}).Draw(rt, "failed")
		case 3:
			e.Page = rapid.SampledFrom([]string{"https://a.example/", "https://b.example/"}).Draw(rt, "page")
		}
		if e.Asked == "" && i > 0 && rapid.Bool().Draw(rt, "unsafe") { // the request may not be there
			e.Request = fmt.Sprint("r", i-1-rapid.IntRange(0, min(i-1, 5)).Draw(rt, "behind"))
			switch rapid.IntRange(0, 3).Draw(rt, "end") {
			case 0:
				e.Status, e.Failed, e.Ended = 0, "x", rapid.Bool().Draw(rt, "ended")
			case 1:
				e.Status, e.Anonymous, e.Committed = 0, true, false // what it carried, which is no document
			}
		}
	case checkpoint.KindCookie:
		e.Cookie = &checkpoint.CookieChange{
			What: rapid.SampledFrom([]checkpoint.CookieEvent{
				checkpoint.CookieDropped, checkpoint.CookieReplaced, checkpoint.CookieSetAgain, checkpoint.CookiesRead, checkpoint.CookiesUnread, checkpoint.CookiesGiven,
			}).Draw(rt, "what"),
			By:     rapid.SampledFrom([]checkpoint.CookieActor{checkpoint.BySite, checkpoint.ByWorker, checkpoint.ByScript}).Draw(rt, "by"),
			Cookie: rapid.SampledFrom([]string{"c", "d"}).Draw(rt, "cookie"), Domain: "a.example",
			Status: rapid.SampledFrom([]int{200, 302}).Draw(rt, "status"), Same: rapid.Bool().Draw(rt, "same"), Typed: rapid.Bool().Draw(rt, "typed"),
		}
	case checkpoint.KindPerson:
		e.Name = rapid.SampledFrom([]string{checkpoint.PersonTook, checkpoint.PersonHandedBack, "click", "text"}).Draw(rt, "name")
		e.Person = rapid.SampledFrom([]string{"Ann", "Bob"}).Draw(rt, "person")
	case checkpoint.KindDialog, checkpoint.KindForm, checkpoint.KindDownload, checkpoint.KindStorage:
		e.Name = rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "name")
	}
	return e
}

// judge decides about a journal where everything else is sound.
func judge(entries []checkpoint.Entry, t Task) (table.Inspection, table.Decision) {
	sum := checkpoint.Summarize(entries)
	i := append(InspectTask(sum, t), Observed(sum, false))
	i = append(i, sane()...) // the first answer counts
	return i, table.Decide(i)
}

// What is decided from a journal that was folded is what is decided from the whole one,
// fact by fact; where entries had to be left out, a person decides, or the decision is the
// same.
func TestDecisionFromACompactedJournal(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		task := Task{
			Resumable: rapid.Bool().Draw(rt, "resumable"), Harmless: []string{"POST https://a.example/poll"},
			ExpectedDomains: rapid.SampledFrom([][]string{nil, {"a.example"}}).Draw(rt, "domains"),
		}
		n := rapid.IntRange(0, 60).Draw(rt, "n")
		limits := checkpoint.Limits{Entries: rapid.IntRange(8, 40).Draw(rt, "limit"), Bytes: 1 << 20}
		var full, folded, bounded []checkpoint.Entry
		answered := map[string]bool{}
		for i := range n {
			e := anyEntry(rt, i)
			if e.Kind == checkpoint.KindAnswer && e.Request != "" {
				// A request ends once, and what it carried is known before.
				if answered[e.Request] {
					e.Request, e.Anonymous = "", false
				}
				answered[e.Request] = e.Status != 0 || e.Failed != ""
			}
			full = append(full, e)
			if folded = append(folded, e); rapid.IntRange(0, 10).Draw(rt, "compact") == 0 {
				folded = checkpoint.Compact(folded, checkpoint.DefaultLimits)
			}
			if bounded = append(bounded, e); len(bounded) > limits.Entries {
				bounded = checkpoint.Compact(bounded, limits)
			}
		}
		folded = checkpoint.Compact(folded, checkpoint.DefaultLimits)
		want, decided := judge(full, task)
		got, _ := judge(folded, task)
		for _, f := range want {
			if a := got.Answer(f.Name); a != f.Answer {
				rt.Fatalf("%s is %s (%s), and in the folded journal %s (%s)\n%s", f.Name, f.Answer, f.How, a, got.How(f.Name), dump(folded))
			}
		}
		if a, b := checkpoint.Summarize(full), checkpoint.Summarize(folded); a.LastURL != b.LastURL || a.LastStep != b.LastStep || a.SafeStep != b.SafeStep ||
			times(a.Unsafe) != times(b.Unsafe) || times(a.UnsafeSince) != times(b.UnsafeSince) || times(a.InFlight) != times(b.InFlight) || len(b.LeftOut) > 0 {
			rt.Fatalf("%+v\n%+v", a, b)
		}
		if _, d := judge(bounded, task); d.Outcome != decided.Outcome && d.Outcome != table.ManualReview {
			rt.Fatalf("decided %s, and from the bounded journal %s\n%s", decided.Outcome, d.Outcome, dump(bounded))
		}
		if len(bounded) > limits.Entries+24 { // what is never left out, and a mark for each kind
			rt.Fatalf("%d entries, want about %d", len(bounded), limits.Entries)
		}
	})
}

func dump(entries []checkpoint.Entry) string {
	return string(checkpoint.Encode(entries))
}
