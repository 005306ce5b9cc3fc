package differ

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestAScriptThatIsWrongIsRefusedWithItsLine(t *testing.T) {
	for source, want := range map[string]string{
		"":                                       "first comment",
		"# nothing":                              "no steps",
		"# x\nfly b":                             `"fly" is no verb`,
		"# x\nopen b\nopen b":                    "x.cdp:3: want open",
		"# x\nb call Browser.getVersion":         "no open connection",
		"# x\nopen b\nb/$s call A.b":             "$s was not named",
		"# x\nopen b\nlet s result.a":            "after something was waited for",
		"# x\nopen b\nb call nothing":            "want call METHOD",
		"# x\nopen b\nb frame round x":           "want frame",
		"# x\nopen b\nb wait Page.a a":           "want wait",
		"# x\nopen b\nclose b many":              "want close",
		"# x\nopen b\nset Page":                  "want set",
		"# x\nhttp GET json":                     "want http",
		"# x\nopen b\nb jump":                    "want b call",
		"# x\nopen b\nb/s call Page.enable":      "want a name with a $",
		"# x\ntab T $site/":                      "want tab",
		"# x\nopen b\nsettle now":                "want settle alone",
		"# x\nopen b\nb call A.b\nlet S id":      "want let",
		"# x\nopen b\nb call A.b\nlet s a{}":     "want let",
		"# x\nopen b\nb call A.b\nopen c $s":     "was not named",
		"# x\nopen p page":                       "want open",
		"# x\nopen b\nend c":                     "want end",
		"# x\nopen b\nb wait":                    "want wait",
		"# x\nopen b\ndrop b c":                  "want drop",
		"# x\nopen b\nmask {}":                   "want mask",
		"# x\nopen b\nb call A.b {\"a\":\"$x\"}": "$x was not named",
	} {
		if _, err := Parse("x", source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
	}
}

// FuzzParse: no text makes the parser panic, and what it takes for a step names only what
// was named before.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/scripts/*.cdp")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files[:min(20, len(files))] {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("# x\nopen b\nclose b 1000 why\nb frame start x")
	f.Fuzz(func(t *testing.T, source string) {
		s, err := Parse("x", source)
		if err != nil {
			return
		}
		opened := map[string]bool{}
		for _, st := range s.steps {
			if st.verb == "open" {
				opened[st.conn] = true
			}
			if st.conn != "" && !opened[st.conn] {
				t.Errorf("%s: not open", st)
			}
		}
	})
}

// TestWhatDiffersFromPlayToPlayIsReplaced: ids get the number of their first appearance,
// and all else stays as it is.
func TestWhatDiffersFromPlayToPlayIsReplaced(t *testing.T) {
	const id, other = "0123456789ABCDEF0123456789ABCDEF", "FEDCBA9876543210FEDCBA9876543210"
	p := &Play{values: map[string]string{"t": id, "downloads": "/downloads", "n": "1"}, host: "127.0.0.1:1", socket: "ws://127.0.0.1:1/devtools/browser/x"}
	pl := newPlainer(p, &Script{Name: "x", masks: []string{"data"}})
	for _, c := range []struct{ in, want string }{
		{`{"targetId":"` + id + `", "x" : 1.50}`, `{"targetId":"$t", "x" : 1.50}`},
		{`{"a":["` + other + `","` + other + `"],"u":"ws://127.0.0.1:1/devtools/page/` + other + `"}`, `{"a":["<id 1>","<id 1>"],"u":"ws://<port>/devtools/page/<id 1>"}`},
		{`{"scriptId":"7","executionContextId":7}`, `{"scriptId":"<script 1>","executionContextId":<world 1>}`},
		{`{"context":{"id":8},"id":8}`, `{"context":{"id":<world 2>},"id":8}`},
		{`{"timestamp":1.5,"data":{"a":[1]},"e":"\u00e9"}`, `{"timestamp":<timestamp>,"data":<data>,"e":"\u00e9"}`},
		{`{"childIds":["5","6","5"]}`, `{"childIds":["<node 1>","<node 2>","<node 1>"]}`},
		{`not json ` + id, `not json $t`},
		{`{"requestId":null,"objectId":""}`, `{"requestId":null,"objectId":""}`},
	} {
		if got := pl.plain([]byte(c.in)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.in, got, c.want)
		}
	}
}

// FuzzPlain: a JSON text stays one of the same form, whatever is in it.
func FuzzPlain(f *testing.F) {
	f.Add(`{"a":[1,{"b":"c\"d"}],"requestId":"1.2"}`)
	f.Add(`[}`)
	f.Add(`{"a":`)
	f.Fuzz(func(t *testing.T, in string) {
		pl := newPlainer(&Play{values: map[string]string{"downloads": "/downloads"}, host: "h", socket: "ws://h/s"}, &Script{Name: "x"})
		if got := pl.plain([]byte(in)); in != "" && strings.TrimRight(in, " \r\n") != "" && got == "" {
			t.Errorf("%q became nothing", in)
		}
	})
}

// TestExceptionsAreWhole: each has a name of its own and a reason, and explains one kind
// of line.
func TestExceptionsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Exceptions {
		if seen[e.Name] || len(e.Reason) < 20 || !strings.HasSuffix(e.Reason, ".") || len(e.Scripts) == 0 {
			t.Errorf("%+v", e)
		}
		if e.added == nil && e.port == nil && e.through == nil && e.Name != attachedChanges {
			t.Errorf("%s explains nothing", e.Name)
		}
		seen[e.Name] = true
	}
}

var section = regexp.MustCompile(`(?s)<!-- differences -->\n(.*?)<!-- end of differences -->`)

// TestThePageShowsTheExceptions compares docs/lab/chrome-port.md with the list of exceptions.
func TestThePageShowsTheExceptions(t *testing.T) {
	var want strings.Builder
	want.WriteString("| what | why |\n| --- | --- |\n")
	for _, e := range Exceptions {
		want.WriteString("| " + e.Name + " | " + e.Reason + " |\n")
	}
	page, err := os.ReadFile("../../../docs/lab/chrome-port.md")
	if err != nil {
		t.Fatal(err)
	}
	found := section.FindSubmatch(page)
	if found == nil || string(found[1]) != want.String() {
		t.Errorf("between the markers of docs/lab/chrome-port.md belongs:\n%s", want.String())
	}
}
