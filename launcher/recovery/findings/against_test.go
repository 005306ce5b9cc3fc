package findings

import (
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

// TestWhatSpokeAgainst: what a person is told first follows from the table, and from nothing
// else.
func TestWhatSpokeAgainst(t *testing.T) {
	begin := []checkpoint.Entry{{Kind: checkpoint.KindStart}, visit("https://shop.example/")}
	read := checkpoint.Entry{Kind: checkpoint.KindCookie, Cookie: &checkpoint.CookieChange{What: checkpoint.CookiesRead}}
	sent := checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example/orders", Type: "Fetch", Gesture: true, Status: 502}
	gone := table.Fact{Name: table.BrowserGone, Answer: table.Unknown, How: "the process list cannot be read"}
	locked := table.Fact{Name: table.DirectoryUnlocked, Answer: table.No, How: "pid 7 has it"}
	unseen := table.Fact{Name: table.UnsafeRequests, Answer: table.Unknown, How: "nobody watched."}
	for _, tt := range []struct {
		name    string
		entries []checkpoint.Entry
		task    Task
		other   []table.Fact // before what the task did
		besides []table.Caution
		want    []string // the beginnings of the sentences
	}{
		{"nothing", []checkpoint.Entry{read}, Task{}, nil, nil, nil},
		{"an order", []checkpoint.Entry{sent, read}, Task{}, nil, nil, []string{"Unsafe requests were sent: 1 seen, the last POST https://shop.example/orders (502 Bad Gateway)."}},
		{"an order since the checkpoint of a task that could resume", []checkpoint.Entry{safe("a"), sent, read}, Task{Resumable: true}, nil, nil,
			[]string{"Unsafe requests were sent since the last safe checkpoint: 1 seen"}},
		{"what was seen comes before what nobody knows", []checkpoint.Entry{sent, read}, Task{}, []table.Fact{gone, locked}, nil,
			[]string{"Unsafe requests were sent: ", "The profile directory is not proved unlocked: pid 7 has it.", "The browser is not proved gone, or nobody can tell: the process list cannot be read."}},
		{"a doubt about a yes", []checkpoint.Entry{read}, Task{}, []table.Fact{unseen}, nil, []string{"It is not known whether unsafe requests were sent: nobody watched."}},
		{"a caution", []checkpoint.Entry{read}, Task{}, []table.Fact{{Name: table.Downloads, Answer: table.Yes, How: "1 seen"}}, []table.Caution{{Fact: table.Downloads, Answer: table.Yes}}, []string{"A person decides by configuration where downloads is yes: 1 seen."}},
		{"a caution about what speaks against it anyway", []checkpoint.Entry{sent, read}, Task{}, nil, []table.Caution{{Fact: table.UnsafeRequests, Answer: table.Yes}}, []string{"Unsafe requests were sent: "}},
	} {
		found := append(slices.Concat(tt.other, sane()), InspectTask(checkpoint.Summarize(append(begin[:2:2], tt.entries...)), tt.task)...)
		list := table.Against(found, tt.besides...)
		if len(list) != len(tt.want) {
			t.Errorf("%s: %+v, want %d", tt.name, list, len(tt.want))
			continue
		}
		for i, o := range list {
			if !strings.HasPrefix(o.Sentence, tt.want[i]) || o.Answer != found.Answer(o.Fact) {
				t.Errorf("%s: %+v, want %q", tt.name, o, tt.want[i])
			}
		}
		if decided := table.Decide(found, tt.besides...); (decided.Outcome == table.ManualReview) != (len(list) > 0) {
			t.Errorf("%s: %s, and against it speaks %+v", tt.name, decided.Outcome, list)
		}
	}
}
