package recovery

import (
	"slices"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/sessionfile"
)

// TestJournalsAreMerged: a clock that was set back moves no entry to before the
// checkpoint that it came after.
func TestJournalsAreMerged(t *testing.T) {
	noon := time.Date(2026, 6, 18, 12, 0, 0, 0, time.UTC)
	entry := func(kind checkpoint.Kind, second int, name string) checkpoint.Entry {
		return checkpoint.Entry{Kind: kind, At: noon.Add(time.Duration(second) * time.Second), Name: name, Safe: kind == checkpoint.KindCheckpoint}
	}
	own := []checkpoint.Entry{entry(checkpoint.KindStart, 10, "a"), entry(checkpoint.KindCheckpoint, 20, "b"), entry(checkpoint.KindRequest, 5, "c")}
	for _, tt := range []struct {
		name string
		lost [][]checkpoint.Entry
		want string
	}{
		{"one run", nil, "abc"},
		{"another before it", [][]checkpoint.Entry{{entry(checkpoint.KindStart, 1, "x"), entry(checkpoint.KindStep, 2, "y")}}, "xyabc"},
		{"another beside it", [][]checkpoint.Entry{{entry(checkpoint.KindStart, 12, "x"), entry(checkpoint.KindStep, 30, "y")}}, "axbcy"},
		{"two, one with a clock set back", [][]checkpoint.Entry{{entry(checkpoint.KindStart, 15, "x"), entry(checkpoint.KindStep, 3, "y")}, {entry(checkpoint.KindStart, 16, "z")}}, "axyzbc"},
		{"one that saw nothing", [][]checkpoint.Entry{nil}, "abc"},
	} {
		entries := slices.Clone(own)
		c := steps{Case: Case{Journal: func() []checkpoint.Entry { return entries }}}
		for _, run := range tt.lost {
			c.Lost = append(c.Lost, sessionfile.LostRun{Journal: run})
		}
		got := ""
		all := c.journals()
		for _, e := range all {
			got += e.Name
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if sum := checkpoint.Summarize(all); len(sum.UnsafeSince) != 1 {
			t.Errorf("%s: the request came before the checkpoint", tt.name)
		}
		if !slices.EqualFunc(entries, own, func(a, b checkpoint.Entry) bool { return a.Name == b.Name }) {
			t.Errorf("%s: the journal itself was changed", tt.name)
		}
	}
}
