package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJournalOutlivesItsWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "s.journal")
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []Entry{{Kind: KindURL, URL: "http://a/"}, {Kind: KindCheckpoint, Name: "one", Safe: true}, {Kind: KindRequest, Method: "POST"}} {
		e.At, e.Token = time.Unix(1, 0).UTC(), 7
		if _, err := j.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	// The writer was killed in the middle of a line.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":4,"kind":"ste`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	e, err := again.Append(Entry{Kind: KindStep, Name: "two"})
	if err != nil || e.Seq != 4 {
		t.Fatalf("seq %d, %v", e.Seq, err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := Read(path)
	if err != nil || len(entries) != 4 || entries[3].Name != "two" || entries[0].Token != 7 {
		t.Fatalf("%d entries, %v: %+v", len(entries), err, entries)
	}
	if b := Encode(entries); len(Parse(b)) != 4 {
		t.Errorf("encoded: %s", b)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAFirstLineThatWasCutIsLeftBehind: what follows it is not lost with it.
func TestAFirstLineThatWasCutIsLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.journal")
	if err := os.WriteFile(path, []byte(`{"seq":1,"kind":"ste`), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(Entry{Kind: KindStep, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, err := Read(path); err != nil || len(entries) != 1 || entries[0].Name != "one" {
		t.Errorf("%+v, %v", entries, err)
	}
}

func TestSummary(t *testing.T) {
	s := Summarize([]Entry{
		{Kind: KindURL, URL: "a"}, {Kind: KindRequest, Method: "POST"}, {Kind: KindStep, Name: "one"},
		{Kind: KindCheckpoint, Name: "c1", Safe: true}, {Kind: KindCheckpoint, Name: "unsafe"},
		{Kind: KindStep, Name: "two"}, {Kind: KindURL, URL: "b"}, {Kind: KindURL, URL: "b"}, {Kind: KindDownload, URL: "f"},
	})
	if s.LastURL != "b" || s.LastStep != "two" || s.LastSafe.Name != "c1" || len(s.Unsafe) != 1 || len(s.UnsafeSince) != 0 || len(s.StepsSince) != 1 {
		t.Errorf("%+v", s)
	}
	// The page that was open at the checkpoint counts as one after it.
	if len(s.PagesSince) != 3 || s.PagesSince[0].URL != "a" || len(s.Pages) != 2 || len(s.Did) != 1 {
		t.Errorf("since %+v, all %+v", s.PagesSince, s.Pages)
	}
}

// TestACheckpointOfAnEarlierSession names the step of that session, and what comes after it is of this one.
func TestACheckpointOfAnEarlierSession(t *testing.T) {
	begun := []Entry{{Kind: KindStart}, {Kind: KindCheckpoint, Name: "ordered", Safe: true, ResumeFrom: "order"}, {Kind: KindStep, Name: "list"}}
	if s := Summarize(begun); s.LastSafe == nil || s.LastSafe.Name != "ordered" || s.SafeStep != "order" || s.LastStep != "list" || len(s.StepsSince) != 1 {
		t.Errorf("%+v", s)
	}
	if s := Summarize(append(begun, Entry{Kind: KindCheckpoint, Name: "listed", Safe: true})); s.LastSafe.Name != "listed" || s.SafeStep != "list" {
		t.Errorf("after the session's own: %+v", s)
	}
}

// A frame is open as long as its page has the same document.
func TestFramesOfASummary(t *testing.T) {
	frame := Entry{Kind: KindFrame, Target: "a", URL: "/checkout/card", Sensitive: true}
	safe := Entry{Kind: KindCheckpoint, Name: "c", Safe: true}
	for _, c := range []struct {
		name    string
		between []Entry
		open    bool
	}{
		{"nothing", nil, true},
		{"the same document", []Entry{{Kind: KindURL, Target: "a", URL: "/pay#2"}}, true},
		{"another page's document", []Entry{{Kind: KindURL, Target: "b", URL: "/", Committed: true}}, true},
		{"another document", []Entry{{Kind: KindURL, Target: "a", URL: "/done", Committed: true}}, false},
		{"another document, reported twice", []Entry{{Kind: KindURL, Target: "a", URL: "/done"}, {Kind: KindURL, Target: "a", URL: "/done", Committed: true}}, false},
	} {
		s := Summarize(slices.Concat([]Entry{{Kind: KindURL, Target: "a", URL: "/pay", Committed: true}, frame}, c.between, []Entry{safe}))
		if open := slices.ContainsFunc(s.PagesSince, func(e Entry) bool { return e.Kind == KindFrame }); open != c.open {
			t.Errorf("%s: open %v, %+v", c.name, open, s.PagesSince)
		}
	}
}

// What each page shows is open as long as that page is, whichever page went somewhere last.
func TestPagesOfASummary(t *testing.T) {
	at := func(target, url string) Entry { return Entry{Kind: KindURL, Target: target, URL: url, Committed: true} }
	closed := func(target string) Entry { return Entry{Kind: KindClosed, Target: target} }
	frame := Entry{Kind: KindFrame, Target: "a", URL: "/card", Sensitive: true}
	safe := Entry{Kind: KindCheckpoint, Name: "c", Safe: true}
	for _, c := range []struct {
		name   string
		before []Entry
		want   string
	}{
		{"one page", []Entry{at("a", "/pay")}, "/pay"},
		{"another page went on", []Entry{at("a", "/pay"), at("b", "/list")}, "/pay /list"},
		{"both did", []Entry{at("a", "/pay"), at("b", "/list"), at("a", "/done")}, "/list /done"},
		{"it is closed", []Entry{at("a", "/pay"), frame, at("b", "/list"), closed("a")}, "/list"},
		{"it is closed, and was the last", []Entry{at("b", "/list"), at("a", "/pay"), closed("a")}, "/list /pay"},
		{"a frame in it", []Entry{at("a", "/shop"), frame, at("b", "/list")}, "/shop /list /card"},
		{"a worker is closed", []Entry{at("a", "/pay"), at("b", "/list"), closed("w")}, "/pay /list"},
		{"two checkpoints", []Entry{at("a", "/pay"), safe, at("b", "/list")}, "/pay /list"},
	} {
		var got []string
		for _, e := range Summarize(append(c.before, safe)).PagesSince {
			got = append(got, e.URL)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "\n", "{\"seq\":1,\"kind\":\"url\"}\n\n{", "{\"seq\":2,\"kind\":\"step\"}\n{\"seq\":1,\"kind\":\"step\"}\n", "{\"seq\":-1}\n", "{\"seq\":18446744073709551615,\"kind\":\"\"}\n",
		"{\"seq\":1,\"kind\":7}\n", "null\n[]\n", "{\"seq\":1,\"at\":\"never\"}\n", "{\"seq\":1,\"kind\":\"request\",\"data\":{\"a\":[[[]]]}}\n\x00\x00\x00", "\xff\xfe{\"seq\":1}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if entries := Parse(b); len(Parse(Encode(entries))) != len(entries) {
			t.Fatalf("the entries of %q are not the same after encoding", b)
		}
	})
}
