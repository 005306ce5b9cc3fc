package findings

import (
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

// sane is an inspection that finds nothing wrong with the profile itself.
func sane() table.Inspection {
	var all table.Inspection
	for _, name := range []string{
		table.ChangedBySwap, table.TokenAdvanced, table.EvidenceStored, table.BrowserGone, table.DirectoryUnlocked,
		table.DirectoryPresent, table.ClosedCleanly, table.TrafficSeen, table.ProxyUnchanged, table.IdentityKept,
	} {
		all = append(all, table.Fact{Name: name, Answer: table.Yes})
	}
	return append(all, table.Fact{Name: table.ReviewFlag, Answer: table.No}, table.Fact{Name: table.SessionCheckFailed, Answer: table.No})
}

func visit(u string) checkpoint.Entry { return checkpoint.Entry{Kind: checkpoint.KindURL, URL: u} }
func step(n string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindStep, Name: n}
}
func post(u string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: u}
}
func sent(kind, method, u string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindRequest, Type: kind, Method: method, URL: u}
}

func safe(n string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: n, Safe: true}
}
func idempotent(n string) checkpoint.Entry {
	e := safe(n)
	e.Idempotent = true
	return e
}

func TestDecide(t *testing.T) {
	resumable := Task{Resumable: true}
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		task    Task
		want    string
	}{
		{"nothing happened", nil, Task{}, table.Release},
		{"only looked", []checkpoint.Entry{visit("http://shop/"), visit("http://shop/dashboard")}, Task{}, table.Release},
		{"looked, by steps", []checkpoint.Entry{visit("http://shop/"), step("open_list")}, Task{}, table.Retry},
		{"posted", []checkpoint.Entry{visit("http://shop/"), post("http://shop/api")}, Task{}, table.ManualReview},
		{"posted, then a safe checkpoint, not resumable", []checkpoint.Entry{post("/"), safe("a")}, Task{}, table.ManualReview},
		{"posted, then a safe checkpoint, resumable", []checkpoint.Entry{post("/"), safe("a"), visit("http://shop/list")}, resumable, table.Resume},
		{"began at a checkpoint, resumable", []checkpoint.Entry{safe("a"), visit("http://shop/list"), step("list")}, Task{Resumable: true, BeganAt: "a"}, table.Resume},
		{"began at a checkpoint, not resumable", []checkpoint.Entry{safe("a"), visit("http://shop/list"), step("list")}, Task{BeganAt: "a"}, table.ManualReview},
		{"began at a checkpoint, and only looked", []checkpoint.Entry{safe("a"), visit("http://shop/list")}, Task{BeganAt: "a"}, table.ManualReview},
		{"began at a checkpoint, and posted", []checkpoint.Entry{safe("a"), post("/")}, Task{Resumable: true, BeganAt: "a"}, table.ManualReview},
		{"posted after the checkpoint", []checkpoint.Entry{safe("a"), post("/")}, resumable, table.ManualReview},
		{"posted after a checkpoint that names no shape", []checkpoint.Entry{idempotent("a"), post("/")}, resumable, table.ManualReview},
		{"looked, by steps, and posted", []checkpoint.Entry{visit("http://shop/"), step("open_list"), post("http://shop/api")}, Task{}, table.ManualReview},
		{"sensitive after such a checkpoint", []checkpoint.Entry{idempotent("a"), step("submit_payment")}, resumable, table.ManualReview},
		{"a sensitive step", []checkpoint.Entry{step("submit_budget_change")}, Task{}, table.ManualReview},
		{"a sensitive step in camel case", []checkpoint.Entry{step("confirmPayout")}, Task{}, table.ManualReview},
		{"a step that says so", []checkpoint.Entry{{Kind: checkpoint.KindStep, Name: "x", Sensitive: true}}, Task{}, table.ManualReview},
		{"a checkout page", []checkpoint.Entry{visit("http://shop/checkout/2")}, Task{}, table.ManualReview},
		{"a list of campaigns", []checkpoint.Entry{visit("http://ads/account/campaigns")}, Task{}, table.Release},
		{"editing a campaign", []checkpoint.Entry{visit("http://ads/campaigns/7/edit")}, Task{}, table.ManualReview},
		{"a page that the manifest calls sensitive", []checkpoint.Entry{visit("http://shop/vip/1")}, Task{SensitiveURLs: []string{"/vip/*"}}, table.ManualReview},
		{"a sensitive page before the safe checkpoint", []checkpoint.Entry{visit("http://shop/checkout"), visit("http://shop/done"), safe("paid")}, resumable, table.Resume},
		{"still on it at the checkpoint", []checkpoint.Entry{visit("http://shop/checkout"), safe("filled")}, resumable, table.ManualReview},
		{"outside the expected domains", []checkpoint.Entry{visit("http://evil/")}, Task{ExpectedDomains: []string{"shop.example"}}, table.ManualReview},
		{"in a subdomain of one", []checkpoint.Entry{visit("http://www.shop.example/")}, Task{ExpectedDomains: []string{"shop.example"}}, table.Release},
		{"a domain that only looks alike", []checkpoint.Entry{visit("http://badshop.example/")}, Task{ExpectedDomains: []string{"shop.example"}}, table.ManualReview},
		{"a beacon to what counts visitors", []checkpoint.Entry{visit("http://shop/"), sent("Ping", "POST", "http://stats/collect")}, Task{}, table.ManualReview},
		{"a known collector", []checkpoint.Entry{sent("Fetch", "POST", "https://www.google-analytics.com/g/collect?v=REDACTED")}, Task{}, table.ManualReview},
		{"the browser's own report", []checkpoint.Entry{sent("CSPViolationReport", "POST", "http://shop/csp")}, Task{}, table.ManualReview},
		{"a page that polls", slices.Repeat([]checkpoint.Entry{sent("Fetch", "POST", "http://shop/api/list")}, 5), Task{}, table.ManualReview},
		{"a form", []checkpoint.Entry{sent("Document", "POST", "http://shop/api")}, Task{}, table.ManualReview},
		{"what nobody could see", []checkpoint.Entry{sent("", checkpoint.Unseen, "http://shop/notes/7")}, Task{}, table.ManualReview},
		{"a message on a websocket", []checkpoint.Entry{sent("", checkpoint.Websocket, "")}, Task{}, table.ManualReview},
		{"a search form", []checkpoint.Entry{{Kind: checkpoint.KindForm, Method: "GET", URL: "http://shop/find"}, visit("http://shop/find?q=REDACTED")}, Task{}, table.Release},
		{"a page that was sensitive before it was redacted", []checkpoint.Entry{{Kind: checkpoint.KindURL, URL: "http://shop/x?step=REDACTED", Sensitive: true}}, Task{}, table.ManualReview},
		{"still on it at the safe checkpoint", []checkpoint.Entry{{Kind: checkpoint.KindURL, URL: "http://shop/x?step=REDACTED", Sensitive: true}, safe("a")}, resumable, table.ManualReview},
		{"a route of a single-page application", []checkpoint.Entry{visit("http://shop/#/checkout/2")}, Task{}, table.ManualReview},
		{"a word of the task's own", []checkpoint.Entry{visit("http://shop/vip-zone/")}, Task{SensitiveWords: []string{"vip"}}, table.ManualReview},
		{"an unsafe checkpoint is none", []checkpoint.Entry{post("/"), {Kind: checkpoint.KindCheckpoint, Name: "a"}}, resumable, table.ManualReview},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := table.Decide(append(sane(), InspectTask(checkpoint.Summarize(tt.journal), tt.task)...))
			if d.Outcome != tt.want || len(d.Reasons) == 0 {
				t.Errorf("%s %q, want %s with reasons", d.Outcome, d.Reasons, tt.want)
			}
		})
	}
}

// TestDoubtGoesToAPerson turns each answer about the profile itself, in turn,
// into every other one, and leaves it out.
func TestDoubtGoesToAPerson(t *testing.T) {
	task := InspectTask(checkpoint.Summarize(nil), Task{})
	for i, f := range sane() {
		for _, a := range []table.Answer{table.Yes, table.No, table.Unknown, ""} {
			if a == f.Answer {
				continue
			}
			in := sane()
			in[i].Answer = a
			if a == "" {
				in = append(in[:i], in[i+1:]...)
			}
			d := table.Decide(append(in, task...))
			if d.Outcome != table.ManualReview || len(d.Reasons) != 1 {
				t.Errorf("%s %q: %s %q", f.Name, a, d.Outcome, d.Reasons)
			}
		}
	}
}

// TestNoConditionHidesWhatWasSent: what was seen is among the reasons, whatever else speaks
// against letting the profile go. What is only unknown, and what no row needs, is not.
func TestNoConditionHidesWhatWasSent(t *testing.T) {
	unclean := table.Inspection{{Name: table.ClosedCleanly, Answer: table.No, How: "it was killed"}}
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		task    Task
		found   []table.Fact
		reasons []string
	}{
		{"sent", []checkpoint.Entry{post("/order")}, Task{}, nil, []string{"did not close cleanly", "unsafe requests were sent"}},
		{"nothing sent", nil, Task{}, nil, []string{"did not close cleanly"}},
		{"sent before the safe checkpoint", []checkpoint.Entry{post("/order"), safe("a")}, Task{Resumable: true}, nil, []string{"did not close cleanly"}},
		{"nobody watched", nil, Task{}, []table.Fact{{Name: table.UnsafeRequests, Answer: table.Unknown, How: "nobody watched"}}, []string{"did not close cleanly"}},
	} {
		found := append(slices.Clone(unclean), tt.found...) // the first answer counts
		found = append(append(found, sane()...), InspectTask(checkpoint.Summarize(tt.journal), tt.task)...)
		d := table.Decide(found)
		if d.Outcome != table.ManualReview || len(d.Reasons) != len(tt.reasons) {
			t.Errorf("%s: %s %q, want %q", tt.name, d.Outcome, d.Reasons, tt.reasons)
			continue
		}
		for i, r := range tt.reasons {
			if !strings.Contains(d.Reasons[i], r) {
				t.Errorf("%s: %q, want %q", tt.name, d.Reasons[i], r)
			}
		}
	}
}

// TestWhatCountsAgainstEveryOutcome, of the answers that another part of the inspection finds:
// a session that would be released goes to a person with one of them, and with no other.
func TestWhatCountsAgainstEveryOutcome(t *testing.T) {
	for fact, against := range map[string][]table.Answer{
		table.CookiesWhole: {table.No}, table.InExpectedDomains: {table.No}, table.SiteRefused: {table.Yes, table.Unknown}, table.SentToSignIn: {table.Yes, table.Unknown}, table.SessionCheckFailed: {table.Yes, table.Unknown},
	} {
		for _, a := range []table.Answer{table.Yes, table.No, table.Unknown} {
			found := table.Inspection{{Name: fact, Answer: a, How: "as it was found"}} // the first answer counts
			found = append(append(found, sane()...), InspectTask(checkpoint.Summarize(nil), Task{})...)
			want := table.Release
			if slices.Contains(against, a) {
				want = table.ManualReview
			}
			if d := table.Decide(found); d.Outcome != want || want == table.ManualReview && len(d.Reasons) != 1 {
				t.Errorf("%s is %s: %s %q, want %s", fact, a, d.Outcome, d.Reasons, want)
			}
		}
	}
}

// TestWhatNobodyKnowsCountsAsTouched: a task of which it is not known whether a site asked it
// to sign in has to be judged.
func TestWhatNobodyKnowsCountsAsTouched(t *testing.T) {
	asked := checkpoint.Entry{Kind: checkpoint.KindAnswer, Target: "t", URL: "https://id.example/", Asked: "https://bank.example/list", SignIn: "password", Failed: "the page did not answer in time"}
	sum := checkpoint.Summarize([]checkpoint.Entry{visit("https://bank.example/"), asked})
	if a := InspectTask(sum, Task{}).Answer(table.SentToSignIn); a != table.Unknown || !Touched(sum, Task{}) {
		t.Errorf("%s, touched: %v", a, Touched(sum, Task{}))
	}
	if Touched(checkpoint.Summarize([]checkpoint.Entry{visit("https://bank.example/")}), Task{}) {
		t.Error("a task that only looked")
	}
}

func TestWords(t *testing.T) {
	if got := strings.Join(words("submitBudget_change-2FA/now"), " "); got != "submit budget change 2fa now" {
		t.Errorf("words %q, want %q", got, "submit budget change 2fa now")
	}
}

// TestConfigurationOnlyAddsCaution tries every caution on inspections of each
// outcome: the decision stays, or a person makes it.
func TestConfigurationOnlyAddsCaution(t *testing.T) {
	outcomes := map[string]bool{}
	for _, journal := range [][]checkpoint.Entry{
		nil, {step("a")}, {safe("a")}, {post("http://shop/")}, {{Kind: checkpoint.KindDownload}},
	} {
		found := append(sane(), InspectTask(checkpoint.Summarize(journal), Task{Resumable: true})...)
		plain := table.Decide(found)
		outcomes[plain.Outcome] = true
		for _, q := range table.Questions {
			for _, a := range []table.Answer{table.Yes, table.No, table.Unknown} {
				got := table.Decide(found, table.Caution{Fact: q, Answer: a})
				hit := found.Answer(q) == a || found.Answer(q) == table.Unknown
				if hit && got.Outcome != table.ManualReview || !hit && got.Outcome != plain.Outcome {
					t.Errorf("%s=%s on %s: %s %q", q, a, plain.Outcome, got.Outcome, got.Reasons)
				}
			}
		}
	}
	if len(outcomes) != 4 {
		t.Errorf("only the outcomes %v were tried", outcomes)
	}
}

// TestEveryAnswerHasItsQuestion checks that each fact has a name that can be configured.
func TestEveryAnswerHasItsQuestion(t *testing.T) {
	for _, f := range append(sane(), InspectTask(checkpoint.Summarize(nil), Task{})...) {
		if !slices.Contains(table.Questions, f.Name) {
			t.Errorf("%s is not among the questions", f.Name)
		}
	}
}
