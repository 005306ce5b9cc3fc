package recovery

import (
	"strings"
	"testing"

	"leasehold/checkpoint"
)

// sane is an inspection that finds nothing wrong with the profile itself.
func sane() Inspection {
	return Inspection{
		{ChangedBySwap, Yes, ""}, {TokenAdvanced, Yes, ""}, {EvidenceStored, Yes, ""}, {BrowserGone, Yes, ""}, {DirectoryUnlocked, Yes, ""},
		{DirectoryPresent, Yes, ""}, {ClosedCleanly, Yes, ""}, {TrafficSeen, Yes, ""}, {ProxyUnchanged, Yes, ""}, {ReviewFlag, No, ""},
	}
}

func visit(u string) checkpoint.Entry { return checkpoint.Entry{Kind: checkpoint.KindURL, URL: u} }
func step(n string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindStep, Name: n}
}
func post(u string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: u}
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
		{"nothing happened", nil, Task{}, Release},
		{"only looked", []checkpoint.Entry{visit("http://shop/"), visit("http://shop/dashboard")}, Task{}, Release},
		{"looked, by steps", []checkpoint.Entry{visit("http://shop/"), step("open_list")}, Task{}, Retry},
		{"posted", []checkpoint.Entry{visit("http://shop/"), post("http://shop/api")}, Task{}, ManualReview},
		{"posted, then a safe checkpoint, not resumable", []checkpoint.Entry{post("/"), safe("a")}, Task{}, ManualReview},
		{"posted, then a safe checkpoint, resumable", []checkpoint.Entry{post("/"), safe("a"), visit("http://shop/list")}, resumable, Resume},
		{"posted after the checkpoint", []checkpoint.Entry{safe("a"), post("/")}, resumable, ManualReview},
		{"posted after a checkpoint that declares what follows idempotent", []checkpoint.Entry{idempotent("a"), post("/")}, resumable, Resume},
		{"sensitive after such a checkpoint", []checkpoint.Entry{idempotent("a"), step("submit_payment")}, resumable, ManualReview},
		{"a sensitive step", []checkpoint.Entry{step("submit_budget_change")}, Task{}, ManualReview},
		{"a sensitive step in camel case", []checkpoint.Entry{step("confirmPayout")}, Task{}, ManualReview},
		{"a step that says so", []checkpoint.Entry{{Kind: checkpoint.KindStep, Name: "x", Sensitive: true}}, Task{}, ManualReview},
		{"a checkout page", []checkpoint.Entry{visit("http://shop/checkout/2")}, Task{}, ManualReview},
		{"a list of campaigns", []checkpoint.Entry{visit("http://ads/account/campaigns")}, Task{}, Release},
		{"editing a campaign", []checkpoint.Entry{visit("http://ads/campaigns/7/edit")}, Task{}, ManualReview},
		{"a page that the manifest calls sensitive", []checkpoint.Entry{visit("http://shop/vip/1")}, Task{SensitiveURLs: []string{"/vip/*"}}, ManualReview},
		{"a sensitive page before the safe checkpoint", []checkpoint.Entry{visit("http://shop/checkout"), visit("http://shop/done"), safe("paid")}, resumable, Resume},
		{"still on it at the checkpoint", []checkpoint.Entry{visit("http://shop/checkout"), safe("filled")}, resumable, ManualReview},
		{"outside the expected domains", []checkpoint.Entry{visit("http://evil/")}, Task{ExpectedDomains: []string{"shop.example"}}, ManualReview},
		{"in a subdomain of one", []checkpoint.Entry{visit("http://www.shop.example/")}, Task{ExpectedDomains: []string{"shop.example"}}, Release},
		{"a domain that only looks alike", []checkpoint.Entry{visit("http://badshop.example/")}, Task{ExpectedDomains: []string{"shop.example"}}, ManualReview},
		{"an unsafe checkpoint is none", []checkpoint.Entry{post("/"), {Kind: checkpoint.KindCheckpoint, Name: "a"}}, resumable, ManualReview},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := Decide(append(sane(), InspectTask(checkpoint.Summarize(tt.journal), tt.task)...))
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
		for _, a := range []Answer{Yes, No, Unknown, ""} {
			if a == f.Answer {
				continue
			}
			in := sane()
			in[i].Answer = a
			if a == "" {
				in = append(in[:i], in[i+1:]...)
			}
			d := Decide(append(in, task...))
			if d.Outcome != ManualReview || len(d.Reasons) != 1 {
				t.Errorf("%s %q: %s %q", f.Name, a, d.Outcome, d.Reasons)
			}
		}
	}
}

func TestWords(t *testing.T) {
	if got := strings.Join(words("submitBudget_change-2FA/now"), " "); got != "submit budget change 2fa now" {
		t.Error(got)
	}
}
