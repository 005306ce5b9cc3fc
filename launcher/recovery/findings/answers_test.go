package findings

import (
	"strings"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/wording"
	"leasehold/launcher/recovery/table"
)

// document is the answer that is a page's document.
func document(status int, u string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindAnswer, Method: "GET", Type: "Document", Committed: true, Target: "t", Status: status, URL: u}
}

// answer is what a page's script was answered.
func answer(status int, u, page string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindAnswer, Type: "Fetch", Target: "t", Status: status, URL: u, Page: page}
}

func with(e checkpoint.Entry, change func(*checkpoint.Entry)) checkpoint.Entry {
	change(&e)
	return e
}

// TestWhatSitesAnswered: which answers stand at the end, and what follows.
func TestWhatSitesAnswered(t *testing.T) {
	const home, list, api = "https://bank.example/", "https://bank.example/list", "https://bank.example/api/list"
	retry := func(seconds int64) func(*checkpoint.Entry) {
		return func(e *checkpoint.Entry) { e.RetryAfter = seconds }
	}
	sentTo := func(u string) checkpoint.Entry {
		return with(document(200, u), func(e *checkpoint.Entry) { e.Asked, e.Returns = list, true })
	}
	asks := func(field, problem string) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindAnswer, Target: "t", URL: "https://id.example/", Asked: list, SignIn: field, Failed: problem}
	}
	inBank, resumable := Task{ExpectedDomains: []string{"bank.example"}}, Task{Resumable: true}
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		task    Task
		outcome string
		yes     string // the fact of an answer that stands
	}{
		{"all is well", []checkpoint.Entry{document(200, home), answer(200, api, home)}, Task{}, table.Release, ""},
		{"nothing there", []checkpoint.Entry{document(404, home), answer(404, api, home)}, Task{}, table.Release, ""},
		{"broken", []checkpoint.Entry{document(500, home), answer(503, api, home)}, Task{}, table.Release, ""},

		{"a page is refused", []checkpoint.Entry{document(200, home), document(403, list)}, Task{}, table.ManualReview, table.SiteRefused},
		{"and another one is not", []checkpoint.Entry{document(403, list), document(200, home)}, Task{}, table.ManualReview, table.SiteRefused},
		{"and then it is not, whatever the query", []checkpoint.Entry{document(403, list+"?a=1"), document(200, list+"?a=2")}, Task{}, table.Release, ""},
		{"and then it leads elsewhere", []checkpoint.Entry{document(403, list), with(document(200, home), func(e *checkpoint.Entry) { e.Asked = list })}, Task{}, table.Release, ""},
		{"closed by law", []checkpoint.Entry{document(451, home)}, Task{}, table.ManualReview, table.SiteRefused},
		{"by the proxy", []checkpoint.Entry{document(407, home)}, Task{}, table.ManualReview, table.SiteRefused},

		{"the session is over", []checkpoint.Entry{document(200, home), answer(401, api, home)}, Task{}, table.ManualReview, table.SiteRefused},
		{"and the public page is there", []checkpoint.Entry{answer(401, api, home), document(200, home)}, Task{}, table.ManualReview, table.SiteRefused},
		{"and somebody signed in again", []checkpoint.Entry{answer(401, api, home), answer(200, api, home)}, Task{}, table.Release, ""},
		{"something is not allowed", []checkpoint.Entry{document(200, home), answer(403, api, home)}, Task{}, table.ManualReview, table.SiteRefused},
		{"and the next page does not ask for it", []checkpoint.Entry{answer(403, api, home), document(200, home)}, Task{}, table.Release, ""},
		{"and another page is there", []checkpoint.Entry{answer(403, api, home), with(document(200, home), func(e *checkpoint.Entry) { e.Target = "u" })}, Task{}, table.ManualReview, table.SiteRefused},
		{"a tracker of another site", []checkpoint.Entry{document(200, home), answer(403, "https://count.example.org/x", home)}, Task{}, table.Release, ""},
		{"another part of the site", []checkpoint.Entry{document(200, home), answer(401, "https://api.bank.example/x", home)}, Task{}, table.ManualReview, table.SiteRefused},
		{"a web worker of the site", []checkpoint.Entry{visit(home), answer(401, api, "")}, Task{}, table.ManualReview, table.SiteRefused},
		{"a web worker of another", []checkpoint.Entry{visit(home), answer(401, "https://count.example.org/x", "")}, Task{}, table.Release, ""},

		{"too often", []checkpoint.Entry{document(429, list)}, Task{}, table.ManualReview, table.SiteRefused},
		{"and then not", []checkpoint.Entry{document(429, list), document(200, home)}, Task{}, table.Release, ""},
		{"and its own page asks for more", []checkpoint.Entry{document(429, list), answer(200, api, list)}, Task{}, table.ManualReview, table.SiteRefused},
		{"too often, come again", []checkpoint.Entry{with(document(429, list), retry(60))}, Task{}, table.Release, table.AskedToWait},
		{"too often, come again tomorrow", []checkpoint.Entry{with(document(429, list), retry(86400))}, Task{}, table.ManualReview, table.SiteRefused},
		{"too much to do, come again", []checkpoint.Entry{with(document(503, list), retry(60))}, Task{}, table.Release, table.AskedToWait},

		{"sent to a sign-in", []checkpoint.Entry{document(200, home), sentTo("https://bank.example/in?next=/list")}, Task{}, table.ManualReview, table.SentToSignIn},
		{"and that page is there again", []checkpoint.Entry{sentTo("https://bank.example/in?next=/list"), document(200, "https://bank.example/in")}, Task{}, table.ManualReview, table.SentToSignIn},
		{"and then the page is there", []checkpoint.Entry{sentTo("https://bank.example/in?next=/list"), document(200, list)}, Task{}, table.Release, ""},
		{"a password is wanted", []checkpoint.Entry{document(200, "https://id.example/"), asks("password", "")}, Task{}, table.ManualReview, table.SentToSignIn},
		{"and then the page is there", []checkpoint.Entry{asks("password", ""), document(200, home)}, Task{}, table.Release, ""},
		{"nobody knows what is wanted", []checkpoint.Entry{asks("password", "the page did not answer in time")}, Task{}, table.ManualReview, ""},

		{"refused where the account is", []checkpoint.Entry{visit(home), document(403, home)}, inBank, table.ManualReview, table.SiteRefused},
		{"refused where the profile expects it, whatever the task names", []checkpoint.Entry{document(403, home), visit("https://news.example/")},
			Task{ExpectedDomains: []string{"news.example"}, ProfileDomains: []string{"bank.example"}}, table.ManualReview, table.SiteRefused},
		{"refused elsewhere", []checkpoint.Entry{document(403, "https://news.example/"), visit(home)}, inBank, table.Release, ""},
		{"refused by another site where the account is, too", []checkpoint.Entry{visit(home), answer(401, "https://api.other.example/x", home)},
			Task{ExpectedDomains: []string{"bank.example", "api.other.example"}}, table.ManualReview, table.SiteRefused},

		{"before the safe checkpoint", []checkpoint.Entry{visit(home), answer(401, api, home), safe("a")}, resumable, table.Resume, ""},
		{"after it", []checkpoint.Entry{visit(home), safe("a"), answer(401, api, home)}, resumable, table.ManualReview, table.SiteRefused},
		{"on the page that the task is on", []checkpoint.Entry{with(visit(list), func(e *checkpoint.Entry) { e.Target = "t" }), document(403, list), safe("a")}, resumable, table.ManualReview, table.SiteRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sum := checkpoint.Summarize(tt.journal)
			found := InspectTask(sum, tt.task)
			if d := table.Decide(append(sane(), found...)); d.Outcome != tt.outcome {
				t.Errorf("%s %q, want %s", d.Outcome, d.Reasons, tt.outcome)
			}
			for _, fact := range []string{table.SiteRefused, table.SentToSignIn, table.AskedToWait} {
				if got := found.Answer(fact); (got == table.Yes) != (fact == tt.yes) {
					t.Errorf("%s is %s: %s", fact, got, found.How(fact))
				}
			}
			if waits := !WaitUntil(sum, tt.task).IsZero(); waits != (tt.yes == table.AskedToWait) {
				t.Errorf("waits: %v", waits)
			}
		})
	}
}

// TestASiteIsWaitedFor: until the last that asked for it.
func TestASiteIsWaitedFor(t *testing.T) {
	at := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	asks := func(u string, seconds int64) checkpoint.Entry {
		return with(document(429, u), func(e *checkpoint.Entry) { e.At, e.RetryAfter = at, seconds })
	}
	sum := checkpoint.Summarize([]checkpoint.Entry{asks("https://a.example/", 90), asks("https://b.example/", 30)})
	if got := WaitUntil(sum, Task{}); !got.Equal(at.Add(90 * time.Second)) {
		t.Errorf("until %v", got)
	}
}

// named is an unsafe request, and ended how it ended.
func named(name, u string) checkpoint.Entry {
	return with(sent("Fetch", "POST", u), func(e *checkpoint.Entry) { e.Request = name })
}
func ended(name string, status int, failed string, known bool) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindAnswer, Request: name, Status: status, Failed: failed, Ended: known}
}

// TestACheckpointVouchesForWhatWasAnswered: requests in flight at the safe checkpoint count
// as since it.
func TestACheckpointVouchesForWhatWasAnswered(t *testing.T) {
	const u = "https://bank.example/pay-slip"
	for _, tt := range []struct {
		name     string
		journal  []checkpoint.Entry
		outcome  string
		answer   string
		inFlight string // of the fact about what was sent since
	}{
		{"answered", []checkpoint.Entry{named("r", u), ended("r", 200, "", false), safe("a")}, table.Resume, "200 OK", ""},
		{"answered badly", []checkpoint.Entry{named("r", u), ended("r", 500, "", false), safe("a")}, table.Resume, "500 Internal Server Error", ""},
		{"never left", []checkpoint.Entry{named("r", u), ended("r", 0, "net::ERR_NAME_NOT_RESOLVED", true), safe("a")}, table.Resume, "failed: net::ERR_NAME_NOT_RESOLVED", ""},
		{"in flight", []checkpoint.Entry{named("r", u), safe("a")}, table.ManualReview, "unanswered", "1 of them"},
		{"answered later", []checkpoint.Entry{named("r", u), safe("a"), ended("r", 200, "", false)}, table.ManualReview, "200 OK", "1 of them"},
		{"canceled", []checkpoint.Entry{named("r", u), ended("r", 0, "canceled", false), safe("a")}, table.ManualReview, "failed, and not known what became of it: canceled", "1 of them"},
		{"its page was gone", []checkpoint.Entry{named("r", u), ended("r", 0, checkpoint.AnswerUnseen, false), safe("a")}, table.ManualReview, "not known: its page was gone", "1 of them"},
		{"in flight at an earlier checkpoint only", []checkpoint.Entry{named("r", u), safe("a"), ended("r", 200, "", false), safe("b")}, table.Resume, "200 OK", ""},
		{"sent after it", []checkpoint.Entry{safe("a"), named("r", u), ended("r", 200, "", false)}, table.ManualReview, "200 OK", ""},
		{"what follows may be done again, but this came before", []checkpoint.Entry{named("r", u), idempotent("a")}, table.ManualReview, "unanswered", "1 of them"},
		{"without an answer of its own", []checkpoint.Entry{post(u), safe("a")}, table.Resume, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			task := Task{Resumable: true}
			for _, entries := range [][]checkpoint.Entry{tt.journal, checkpoint.Compact(tt.journal, checkpoint.DefaultLimits)} {
				sum := checkpoint.Summarize(entries)
				found := InspectTask(sum, task)
				if d := table.Decide(append(sane(), found...)); d.Outcome != tt.outcome {
					t.Errorf("%s %q, want %s", d.Outcome, d.Reasons, tt.outcome)
				}
				if how := found.How(table.UnsafeSinceSafe); (tt.inFlight != "") != (found.Answer(table.UnansweredAtSafe) == table.Yes) || !strings.Contains(how, tt.inFlight) {
					t.Errorf("%s", how)
				}
				list := Requests(sum, task)
				if len(list) != 1 || wording.Answer(list[0].Entry) != tt.answer || list[0].Counts != "unsafe" {
					t.Errorf("%+v", list)
				}
			}
		})
	}
}

// TestWhatNeverLeftTheBrowser changed nothing, unlike what failed on its way.
func TestWhatNeverLeftTheBrowser(t *testing.T) {
	for _, tt := range []struct {
		name    string
		blocked bool
		outcome string
	}{
		{"blocked", true, table.Release},
		{"nobody was there", false, table.ManualReview},
	} {
		change := with(named("r", "https://shop.example/order"), func(e *checkpoint.Entry) { e.Method = "PUT" })
		end := ended("r", 0, "net::ERR_BLOCKED_BY_CLIENT", true)
		end.Blocked = tt.blocked
		sum := checkpoint.Summarize(checkpoint.Compact([]checkpoint.Entry{change, end}, checkpoint.DefaultLimits))
		found := InspectTask(sum, Task{})
		if d := table.Decide(append(sane(), found...)); d.Outcome != tt.outcome {
			t.Errorf("%s: %s %q, want %s", tt.name, d.Outcome, d.Reasons, tt.outcome)
		}
		if list := Requests(sum, Task{}); len(list) != 1 || (list[0].Counts == "blocked") != tt.blocked || strings.Contains(found.How(table.UnsafeRequests), "never left the browser") != tt.blocked {
			t.Errorf("%s: %+v, %s", tt.name, list, found.How(table.UnsafeRequests))
		}
	}
}

// TestRequestsForNobody: one that carried nothing of the account does not speak for it.
func TestRequestsForNobody(t *testing.T) {
	anonymous := func(change func(*checkpoint.Entry)) []checkpoint.Entry {
		return []checkpoint.Entry{with(named("r", "https://count.example.org/hit"), change), {Kind: checkpoint.KindAnswer, Request: "r", Anonymous: true}, ended("r", 200, "", false)}
	}
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		outcome string
	}{
		{"a script's", anonymous(func(*checkpoint.Entry) {}), table.Release},
		{"a beacon", anonymous(func(e *checkpoint.Entry) { e.Type = "Ping" }), table.Release},
		{"a PUT", anonymous(func(e *checkpoint.Entry) { e.Method = "PUT" }), table.Release},
		{"to the site of a page that was open", append(anonymous(func(*checkpoint.Entry) {}), visit("https://www.example.org/")), table.ManualReview},
		{"to an expected domain", anonymous(func(e *checkpoint.Entry) { e.URL = "https://api.home.example/x" }), table.ManualReview},
		{"to a sensitive place", anonymous(func(e *checkpoint.Entry) { e.URL = "https://pay.example/charge/confirm" }), table.ManualReview},
		{"of which nothing is known", anonymous(func(*checkpoint.Entry) {})[:1], table.ManualReview},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := InspectTask(checkpoint.Summarize(tt.journal), Task{ExpectedDomains: []string{"home.example"}})
			if tt.outcome == table.Release {
				found = append(table.Inspection{{Name: table.InExpectedDomains, Answer: table.Yes, How: ""}}, found...)
			}
			if d := table.Decide(append(sane(), found...)); d.Outcome != tt.outcome {
				t.Errorf("%s %q, want %s", d.Outcome, d.Reasons, tt.outcome)
			}
			if found.Answer(table.Anonymous) != table.Is(tt.outcome == table.Release) {
				t.Errorf("%+v", found)
			}
		})
	}
}
