package decision

import (
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint"
)

// TestWhatSpokeAgainst: what a person is told first follows from the table, and from nothing
// else.
func TestWhatSpokeAgainst(t *testing.T) {
	begin := []checkpoint.Entry{{Kind: checkpoint.KindStart}, visit("https://shop.example/")}
	read := checkpoint.Entry{Kind: checkpoint.KindCookie, Cookie: &checkpoint.CookieChange{What: checkpoint.CookiesRead}}
	sent := checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example/orders", Type: "Fetch", Gesture: true, Status: 502}
	gone := Fact{BrowserGone, Unknown, "the process list cannot be read"}
	locked := Fact{DirectoryUnlocked, No, "pid 7 has it"}
	unseen := Fact{UnsafeRequests, Unknown, "nobody watched."}
	for _, tt := range []struct {
		name    string
		entries []checkpoint.Entry
		task    Task
		other   []Fact // before what the task did
		besides []Caution
		want    []string // the beginnings of the sentences
	}{
		{"nothing", []checkpoint.Entry{read}, Task{}, nil, nil, nil},
		{"an order", []checkpoint.Entry{sent, read}, Task{}, nil, nil, []string{"Unsafe requests were sent: 1 seen, the last POST https://shop.example/orders (502 Bad Gateway)."}},
		{"an order since the checkpoint of a task that could resume", []checkpoint.Entry{safe("a"), sent, read}, Task{Resumable: true}, nil, nil,
			[]string{"Unsafe requests were sent since the last safe checkpoint: 1 seen"}},
		{"what was seen comes before what nobody knows", []checkpoint.Entry{sent, read}, Task{}, []Fact{gone, locked}, nil,
			[]string{"Unsafe requests were sent: ", "The profile directory is not proved unlocked: pid 7 has it.", "The browser is not proved gone, or nobody can tell: the process list cannot be read."}},
		{"a doubt about a yes", []checkpoint.Entry{read}, Task{}, []Fact{unseen}, nil, []string{"It is not known whether unsafe requests were sent: nobody watched."}},
		{"a caution", []checkpoint.Entry{read}, Task{}, []Fact{{Downloads, Yes, "1 seen"}}, []Caution{{Downloads, Yes}}, []string{"A person decides by configuration where downloads is yes: 1 seen."}},
		{"a caution about what speaks against it anyway", []checkpoint.Entry{sent, read}, Task{}, nil, []Caution{{UnsafeRequests, Yes}}, []string{"Unsafe requests were sent: "}},
	} {
		found := append(slices.Concat(tt.other, sane()), InspectTask(checkpoint.Summarize(append(begin[:2:2], tt.entries...)), tt.task)...)
		list := Against(found, tt.besides...)
		if len(list) != len(tt.want) {
			t.Errorf("%s: %+v, want %d", tt.name, list, len(tt.want))
			continue
		}
		for i, o := range list {
			if !strings.HasPrefix(o.Sentence, tt.want[i]) || o.Answer != found.Answer(o.Fact) {
				t.Errorf("%s: %+v, want %q", tt.name, o, tt.want[i])
			}
		}
		if decided := Decide(found, tt.besides...); (decided.Outcome == ManualReview) != (len(list) > 0) {
			t.Errorf("%s: %s, and against it speaks %+v", tt.name, decided.Outcome, list)
		}
	}
}

// TestEveryConditionMakesASentence: whatever is not met can be told, and says how it was found.
func TestEveryConditionMakesASentence(t *testing.T) {
	for _, c := range slices.Concat(sound, table[0].when, table[1].when, table[2].when, table[3].when) {
		for _, a := range []Answer{Yes, No, Unknown} {
			s := c.sentence(a, "as was seen")
			if !strings.HasSuffix(s, ": as was seen.") || strings.Contains(s, "  ") || s[0] < 'A' || s[0] > 'Z' {
				t.Errorf("%s is %s: %q", c.fact, a, s)
			}
		}
	}
}
