package api

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/problems.md")

const problemsPage = "../../docs/problems.md"

func problemsText() string {
	var b strings.Builder
	b.WriteString(`# Problems

What the sidecar refuses, it refuses as [RFC 9457](https://www.rfc-editor.org/rfc/rfc9457) says, with the media type
` + "`application/problem+json`" + `: over REST and at a websocket upgrade alike. The ` + "`code`" + ` is stable, and programs branch on it;
` + "`detail`" + ` is for people, names what is wrong and says what to do. Where it is known when to ask again, there is a header
` + "`Retry-After` and a member `retry_after_seconds`" + `.

What each client shows of a refusal is in [clients](clients.md); how a session that had begun ends, with its close
codes, under [ends](clients.md#ends). This page is made of the code. After a change, write it anew:
` + "`go test ./launcher/api -run TestThePageShowsEveryProblem -update`" + `.

| status | code | when, and what to do |
| --- | --- | --- |
`)
	codes := slices.SortedFunc(maps.Keys(statuses), func(a, b string) int {
		return cmp.Or(cmp.Compare(statuses[a], statuses[b]), cmp.Compare(a, b))
	})
	for _, code := range codes {
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", statuses[code], code, linked(Meanings[code]))
	}
	b.WriteString(`
Members that belong to a code, such as ` + "`current_worker_id`" + `, stand beside these; ` + "`/openapi.json`" + ` of a running sidecar
describes them all.
`)
	return b.String()
}

var page = regexp.MustCompile(`\bdocs/(\w+)\.md`)

// linked makes links of the names of pages.
func linked(text string) string { return page.ReplaceAllString(text, "[$1]($1.md)") }

func TestThePageShowsEveryProblem(t *testing.T) {
	for code := range statuses {
		if m := Meanings[code]; !strings.HasSuffix(m, ".") || strings.Contains(m, "|") {
			t.Errorf("%s means %q: want sentences without |, in meanings.go", code, m)
		}
	}
	for code := range Meanings {
		if statuses[code] == 0 {
			t.Errorf("%s has a meaning and no status", code)
		}
	}
	want := problemsText()
	if *update {
		if err := os.WriteFile(problemsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(problemsPage)
	if err != nil || string(got) != want {
		t.Errorf("docs/problems.md is not what the code has (%v): run this test with -update", err)
	}
}
