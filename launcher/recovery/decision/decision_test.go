package decision

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint"
)

// sane is an inspection that finds nothing wrong with the profile itself.
func sane() Inspection {
	return Inspection{
		{ChangedBySwap, Yes, ""}, {TokenAdvanced, Yes, ""}, {EvidenceStored, Yes, ""}, {BrowserGone, Yes, ""}, {DirectoryUnlocked, Yes, ""},
		{DirectoryPresent, Yes, ""}, {ClosedCleanly, Yes, ""}, {TrafficSeen, Yes, ""}, {ProxyUnchanged, Yes, ""}, {ReviewFlag, No, ""}, {SessionCheckFailed, No, ""},
	}
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
		{"nothing happened", nil, Task{}, Release},
		{"only looked", []checkpoint.Entry{visit("http://shop/"), visit("http://shop/dashboard")}, Task{}, Release},
		{"looked, by steps", []checkpoint.Entry{visit("http://shop/"), step("open_list")}, Task{}, Retry},
		{"posted", []checkpoint.Entry{visit("http://shop/"), post("http://shop/api")}, Task{}, ManualReview},
		{"posted, then a safe checkpoint, not resumable", []checkpoint.Entry{post("/"), safe("a")}, Task{}, ManualReview},
		{"posted, then a safe checkpoint, resumable", []checkpoint.Entry{post("/"), safe("a"), visit("http://shop/list")}, resumable, Resume},
		{"posted after the checkpoint", []checkpoint.Entry{safe("a"), post("/")}, resumable, ManualReview},
		{"posted after a checkpoint that declares what follows idempotent", []checkpoint.Entry{idempotent("a"), post("/")}, resumable, Resume},
		{"the same of a task that cannot resume", []checkpoint.Entry{idempotent("a"), post("/")}, Task{}, ManualReview},
		{"looked, by steps, and posted", []checkpoint.Entry{visit("http://shop/"), step("open_list"), post("http://shop/api")}, Task{}, ManualReview},
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
		{"a beacon to what counts visitors", []checkpoint.Entry{visit("http://shop/"), sent("Ping", "POST", "http://stats/collect")}, Task{}, ManualReview},
		{"a known collector", []checkpoint.Entry{sent("Fetch", "POST", "https://www.google-analytics.com/g/collect?v=REDACTED")}, Task{}, ManualReview},
		{"the browser's own report", []checkpoint.Entry{sent("CSPViolationReport", "POST", "http://shop/csp")}, Task{}, ManualReview},
		{"a page that polls", slices.Repeat([]checkpoint.Entry{sent("Fetch", "POST", "http://shop/api/list")}, 5), Task{}, ManualReview},
		{"a form", []checkpoint.Entry{sent("Document", "POST", "http://shop/api")}, Task{}, ManualReview},
		{"what nobody could see", []checkpoint.Entry{sent("", checkpoint.Unseen, "http://shop/notes/7")}, Task{}, ManualReview},
		{"a message on a websocket", []checkpoint.Entry{sent("", checkpoint.Websocket, "")}, Task{}, ManualReview},
		{"a search form", []checkpoint.Entry{{Kind: checkpoint.KindForm, Method: "GET", URL: "http://shop/find"}, visit("http://shop/find?q=REDACTED")}, Task{}, Release},
		{"a page that was sensitive before it was redacted", []checkpoint.Entry{{Kind: checkpoint.KindURL, URL: "http://shop/x?step=REDACTED", Sensitive: true}}, Task{}, ManualReview},
		{"still on it at the safe checkpoint", []checkpoint.Entry{{Kind: checkpoint.KindURL, URL: "http://shop/x?step=REDACTED", Sensitive: true}, safe("a")}, resumable, ManualReview},
		{"a route of a single-page application", []checkpoint.Entry{visit("http://shop/#/checkout/2")}, Task{}, ManualReview},
		{"a word of the task's own", []checkpoint.Entry{visit("http://shop/vip-zone/")}, Task{SensitiveWords: []string{"vip"}}, ManualReview},
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

// TestNoConditionHidesWhatWasSent: what was seen is among the reasons, whatever else speaks
// against letting the profile go. What is only unknown, and what no row needs, is not.
func TestNoConditionHidesWhatWasSent(t *testing.T) {
	unclean := Inspection{{ClosedCleanly, No, "it was killed"}}
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		task    Task
		found   []Fact
		reasons []string
	}{
		{"sent", []checkpoint.Entry{post("/order")}, Task{}, nil, []string{"did not close cleanly", "unsafe requests were sent"}},
		{"nothing sent", nil, Task{}, nil, []string{"did not close cleanly"}},
		{"sent before the safe checkpoint", []checkpoint.Entry{post("/order"), safe("a")}, Task{Resumable: true}, nil, []string{"did not close cleanly"}},
		{"nobody watched", nil, Task{}, []Fact{{UnsafeRequests, Unknown, "nobody watched"}}, []string{"did not close cleanly"}},
	} {
		found := append(slices.Clone(unclean), tt.found...) // the first answer counts
		found = append(append(found, sane()...), InspectTask(checkpoint.Summarize(tt.journal), tt.task)...)
		d := Decide(found)
		if d.Outcome != ManualReview || len(d.Reasons) != len(tt.reasons) {
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
	for fact, against := range map[string][]Answer{
		CookiesWhole: {No}, InExpectedDomains: {No}, SiteRefused: {Yes, Unknown}, SentToSignIn: {Yes, Unknown}, SessionCheckFailed: {Yes, Unknown},
	} {
		for _, a := range []Answer{Yes, No, Unknown} {
			found := Inspection{{fact, a, "as it was found"}} // the first answer counts
			found = append(append(found, sane()...), InspectTask(checkpoint.Summarize(nil), Task{})...)
			want := Release
			if slices.Contains(against, a) {
				want = ManualReview
			}
			if d := Decide(found); d.Outcome != want || want == ManualReview && len(d.Reasons) != 1 {
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
	if a := InspectTask(sum, Task{}).Answer(SentToSignIn); a != Unknown || !Touched(sum, Task{}) {
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

func TestParseCaution(t *testing.T) {
	for in, want := range map[string]Caution{"downloads": {Downloads, Yes}, "closed_cleanly=no": {ClosedCleanly, No}, "dialogs=unknown": {Dialogs, Unknown}} {
		if got, err := ParseCaution(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "downloads=", "downloads=maybe"} {
		if _, err := ParseCaution(in); err == nil {
			t.Errorf("%q is taken", in)
		}
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
		plain := Decide(found)
		outcomes[plain.Outcome] = true
		for _, q := range Questions {
			for _, a := range []Answer{Yes, No, Unknown} {
				got := Decide(found, Caution{q, a})
				hit := found.Answer(q) == a || found.Answer(q) == Unknown
				if hit && got.Outcome != ManualReview || !hit && got.Outcome != plain.Outcome {
					t.Errorf("%s=%s on %s: %s %q", q, a, plain.Outcome, got.Outcome, got.Reasons)
				}
			}
		}
	}
	if len(outcomes) != 4 {
		t.Errorf("only the outcomes %v were tried", outcomes)
	}
}

// TestEveryQuestionIsKnown checks that each fact has a name that can be configured.
func TestEveryQuestionIsKnown(t *testing.T) {
	seen := map[string]bool{}
	for _, q := range Questions {
		if seen[q] {
			t.Errorf("%s stands twice", q)
		}
		seen[q] = true
	}
	for _, f := range append(sane(), InspectTask(checkpoint.Summarize(nil), Task{})...) {
		if !seen[f.Name] {
			t.Errorf("%s is not among the questions", f.Name)
		}
	}
	for _, row := range append([]row{{when: sound}}, table...) {
		for _, c := range row.when {
			if !seen[c.fact] {
				t.Errorf("%s decides, and is not among the questions", c.fact)
			}
		}
	}
}

// TestPeopleReadTheTable checks that docs/recovery.md shows the table as it is.
func TestPeopleReadTheTable(t *testing.T) {
	b, err := os.ReadFile("../../../docs/recovery.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- recovery table -->\n", "<!-- end of recovery table -->"
	_, rest, found := strings.Cut(string(b), begin)
	shown, _, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("docs/recovery.md has no table between %q and %q", begin, end)
	}
	if want := drawTable(); shown != want {
		t.Errorf("docs/recovery.md does not show the table: put this between the markers\n%s", want)
	}
}

// drawTable draws each row as an item of a list, with a line for each condition. A row
// in a single line would be too long to read.
func drawTable() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Version %d.\n\n", Version)
	n := 0
	draw := func(outcome, because string, when []condition) {
		n++
		fmt.Fprintf(&b, "%d. %s: %s. Only when\n", n, outcome, because)
		for _, c := range when {
			fmt.Fprintf(&b, "   - `%s` is %s\n", c.fact, c.want)
		}
	}
	draw("any but `manual_review`", "nobody is on the profile, it is whole, what was done on it was seen, no site refuses the account, and its pages ask for nothing", sound)
	for _, r := range table {
		draw("`"+r.outcome+"`", r.because, r.when)
	}
	fmt.Fprintf(&b, "%d. `manual_review`, always: the reasons are the conditions that were not met\n", n+1)
	return b.String()
}
