package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A worker that writes without end has a journal of a few megabytes, in memory and on
// disk, and all that it did is counted.
func TestJournalIsBounded(t *testing.T) {
	// One case is as long as a real journal. Of the others a tenth shows the same.
	tenth := Limits{Entries: DefaultLimits.Entries / 10, Bytes: DefaultLimits.Bytes / 10, Data: DefaultLimits.Data}
	for _, c := range []struct {
		name   string
		limits Limits
		times  int
		entry  func(i int) Entry
		kind   Kind
	}{
		{"one request again and again", tenth, 2_000, func(int) Entry { return Entry{Kind: KindRequest, Method: "POST", URL: "https://a.example/beacon"} }, KindRequest},
		{"ever other requests", DefaultLimits, 20_000, func(i int) Entry {
			return Entry{Kind: KindRequest, Method: "POST", URL: fmt.Sprint("https://a.example/", i)}
		}, KindRequest},
		{"ever other steps", tenth, 2_000, func(i int) Entry { return Entry{Kind: KindStep, Name: fmt.Sprint("step ", i)} }, KindStep},
		{"large events", DefaultLimits, 40, func(i int) Entry {
			return Entry{Kind: KindEvent, Name: fmt.Sprint(i), Data: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}
		}, KindEvent},
		{"large checkpoints", DefaultLimits, 12, func(i int) Entry {
			return Entry{Kind: KindCheckpoint, Safe: true, Name: fmt.Sprint(i), Data: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}
		}, KindCheckpoint},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "s.journal")
			j, err := OpenWithin(path, c.limits)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			if _, err := j.Append(Entry{Kind: KindStart}); err != nil {
				t.Fatal(err)
			}
			largest := int64(0)
			for i := range c.times {
				e := c.entry(i)
				e.At = time.Unix(int64(i), 0).UTC()
				if _, err := j.Append(e); err != nil {
					t.Fatal(err)
				}
				if i%100 == 0 {
					largest = max(largest, fileSize(t, path))
				}
			}
			if largest = max(largest, fileSize(t, path)); largest > int64(c.limits.Bytes)+2<<20 {
				t.Errorf("the file had %d bytes", largest)
			}
			stored, err := Read(path)
			if err != nil || len(stored) != len(j.Entries()) || len(stored) > c.limits.Entries+1 {
				t.Fatalf("%d entries on disk, %d in memory, %v", len(stored), len(j.Entries()), err)
			}
			t.Logf("%d entries written, %d kept; the file had %d bytes at most", c.times, len(stored), largest)
			if n := counted(stored)[c.kind]; n != uint64(c.times) {
				t.Errorf("%d entries are counted, want %d", n, c.times)
			}
			if stored[0].Kind != KindStart {
				t.Errorf("it begins with %+v", stored[0])
			}
			if e, err := j.Append(c.entry(c.times)); err != nil || e.Seq != uint64(c.times)+2 {
				t.Errorf("the next entry has number %d, %v", e.Seq, err)
			}
		})
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// counted is how many entries of each kind there were, whatever became of them.
func counted(entries []Entry) map[Kind]uint64 {
	n := map[Kind]uint64{}
	for _, e := range entries {
		if e.Kind == KindOmitted {
			n[Kind(e.Name)] += e.Times()
			continue
		}
		n[e.Kind] += e.Times()
	}
	return n
}

// What is left out is said, and the last of what matters stays.
func TestCompactSaysWhatIsLeftOut(t *testing.T) {
	var entries []Entry
	add := func(e Entry) {
		e.Seq, e.At = uint64(len(entries)+1), time.Unix(int64(len(entries)), 0).UTC()
		entries = append(entries, e)
	}
	add(Entry{Kind: KindStart})
	for i := range 100 {
		add(Entry{Kind: KindEvent, Name: fmt.Sprint(i)})
		add(Entry{Kind: KindURL, URL: fmt.Sprint("https://a.example/", i), Sensitive: i == 3})
	}
	add(Entry{Kind: KindCheckpoint, Name: "cart", Safe: true, Data: json.RawMessage(`{"a":1}`)})
	got := Compact(entries, Limits{Entries: 20, Bytes: 1 << 20})
	sum := Summarize(got)
	if len(got) > 20 || sum.LastURL != "https://a.example/99" || sum.LastSafe == nil || string(sum.LastSafe.Data) != `{"a":1}` {
		t.Errorf("%d entries, %+v", len(got), sum)
	}
	if len(sum.LeftOut) != 1 || !strings.HasPrefix(sum.LeftOut[0].Text, fmt.Sprintf("%d entries of kind url left out", sum.LeftOut[0].Count)) {
		t.Errorf("left out: %+v", sum.LeftOut)
	}
	if n := counted(got); n[KindEvent] != 100 || n[KindURL] != 100 {
		t.Errorf("counted %v", n)
	}
	sensitive := false
	for _, e := range got {
		sensitive = sensitive || e.Sensitive
	}
	if !sensitive {
		t.Error("the sensitive page went before others")
	}
	again := Compact(got, Limits{Entries: 8, Bytes: 1 << 20})
	if n := counted(again); n[KindEvent] != 100 || n[KindURL] != 100 || n[KindOmitted] != 0 {
		t.Errorf("compacted twice, it counts %v", n)
	}
}

// TestWhatIsClosedStaysClosed: a sensitive page that was closed is not open at a later checkpoint, however much
// was left out in between.
func TestWhatIsClosedStaysClosed(t *testing.T) {
	for name, limits := range map[string]Limits{"half": {Entries: 200, Bytes: 1 << 20}, "nearly all": {Entries: 8, Bytes: 1 << 20}} {
		entries := []Entry{
			{Kind: KindStart}, {Kind: KindURL, URL: "https://a.example/", Target: "A"},
			{Kind: KindURL, URL: "https://a.example/pay", Target: "P", Sensitive: true, Committed: true},
			{Kind: KindFrame, URL: "https://card.example/", Target: "P", Sensitive: true},
			{Kind: KindClosed, Target: "P"},
		}
		for i := range 400 {
			entries = append(entries, Entry{Kind: KindEvent, Name: fmt.Sprint(i)}, Entry{Kind: KindURL, URL: fmt.Sprint("https://a.example/", i), Target: "B", Committed: true}, Entry{Kind: KindClosed, Target: fmt.Sprint("T", i)})
		}
		for i := range entries {
			entries[i].Seq, entries[i].At = uint64(i+1), time.Unix(int64(i), 0).UTC()
		}
		got := append(Compact(entries, limits), Entry{Kind: KindCheckpoint, Name: "done", Safe: true})
		if len(got) > limits.Entries {
			t.Errorf("%s: %d entries", name, len(got))
		}
		for _, e := range Summarize(got).PagesSince {
			if e.Target == "P" {
				t.Errorf("%s: it is open: %+v", name, e)
			}
		}
		if n := counted(got)[KindClosed]; n != 401 {
			t.Errorf("%s: %d that were closed are counted", name, n)
		}
	}
}

// Equal entries are one, with the times of the first and the last, on either side of the
// last safe checkpoint.
func TestFold(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	post := Entry{Kind: KindRequest, Method: "POST", URL: "/a"}
	on := func(e Entry, s int64) Entry { e.At = at(s); return e }
	got := Compact([]Entry{
		on(post, 1), on(Entry{Kind: KindCheckpoint, Name: "c", Safe: true}, 2), on(post, 3),
		on(Entry{Kind: KindCheckpoint, Name: "d", Safe: true}, 4), on(post, 5), on(Entry{Kind: KindStep, Name: "x"}, 6), on(post, 7),
	}, DefaultLimits)
	if len(got) != 5 || got[1].Count != 2 || got[1].First != at(1) || got[1].At != at(3) || got[4].Count != 2 || got[4].First != at(5) || got[4].At != at(7) {
		t.Errorf("%+v", got)
	}
}

// Whatever is appended, the journal on disk is that in memory, counts everything, and
// numbers rise.
func TestCompactedJournalOnDisk(t *testing.T) {
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		path := filepath.Join(dir, fmt.Sprint(runs))
		limits := Limits{Entries: rapid.IntRange(8, 20).Draw(rt, "entries"), Bytes: rapid.IntRange(600, 3000).Draw(rt, "bytes"), Data: 100}
		j, err := OpenWithin(path, limits)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = j.Close() }()
		want := map[Kind]uint64{}
		for i := range rapid.IntRange(1, 30).Draw(rt, "n") {
			e := Entry{
				At:   time.Unix(int64(i), 0).UTC(),
				Kind: rapid.SampledFrom([]Kind{KindURL, KindStep, KindCheckpoint, KindEvent, KindRequest, KindConnection, KindPicture}).Draw(rt, "kind"),
				Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name"), Safe: rapid.Bool().Draw(rt, "safe"),
			}
			want[e.Kind]++
			if _, err := j.Append(e); err != nil {
				rt.Fatal(err)
			}
			if rapid.IntRange(0, 15).Draw(rt, "reopen") == 0 {
				if err := j.Close(); err != nil {
					rt.Fatal(err)
				}
				if j, err = OpenWithin(path, limits); err != nil {
					rt.Fatal(err)
				}
			}
		}
		stored, err := Read(path)
		if err != nil || len(stored) != len(j.Entries()) || len(stored) > limits.Entries+24 {
			rt.Fatalf("%d entries on disk, %d in memory, limits %+v, %v", len(stored), len(j.Entries()), limits, err)
		}
		got := counted(stored)
		for kind, n := range want {
			if got[kind] != n {
				rt.Fatalf("%d of kind %s, want %d: %+v", got[kind], kind, n, stored)
			}
		}
		for i := 1; i < len(stored); i++ {
			if stored[i].Kind != KindOmitted && stored[i-1].Kind != KindOmitted && stored[i].Seq <= stored[i-1].Seq {
				rt.Fatalf("numbers do not rise: %+v", stored)
			}
		}
	})
}
