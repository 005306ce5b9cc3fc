package main

import (
	"strings"
	"testing"
)

func TestReportsAreReadLineByLine(t *testing.T) {
	raw := `{"name":"a.js › one","verdict":"passed"}
{"name":"a.js › two","verdict":"failed","error":"no browser"}
{"name":"a.js › two › deep","verdict":"skipped"}
{"name":"a.js › one","verdict":"failed","error":"its hook"}
{"name":"a.js › cut o`
	got, err := readReports([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	want := results{
		"a.js › one":        {Verdict: failed, Said: "its hook"},
		"a.js › two":        {Verdict: failed, Said: "no browser"},
		"a.js › two › deep": {Verdict: skipped},
	}
	if len(got) != len(want) {
		t.Errorf("%d results, want %d: %v", len(got), len(want), got)
	}
	for name, one := range want {
		if got[name] != one {
			t.Errorf("%s: %v, want %v", name, got[name], one)
		}
	}
}

func TestReportsThatSayNothingAreRefused(t *testing.T) {
	for name, raw := range map[string]string{
		"no JSON":    "passed\n",
		"no name":    `{"verdict":"passed"}` + "\n",
		"no verdict": `{"name":"a"}` + "\n",
		"another":    `{"name":"a","verdict":"timedOut"}` + "\n",
	} {
		if got, err := readReports([]byte(raw)); err == nil {
			t.Errorf("%s: %v, want an error", name, got)
		} else if !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v, want the line's number", name, err)
		}
	}
}

func TestGoTestsOutputIsRead(t *testing.T) {
	for _, c := range []struct {
		name, output string
		want         results
		broke        string
	}{
		{"in order", `=== RUN   TestA
--- PASS: TestA (0.01s)
=== RUN   TestB
    b_test.go:3: no page
--- FAIL: TestB (1.00s)
=== RUN   TestC
--- SKIP: TestC (0.00s)
FAIL
`, results{"TestA": {Verdict: passed}, "TestB": {Verdict: failed, Said: "    b_test.go:3: no page\n"}, "TestC": {Verdict: skipped}}, ""},
		{"parts of a test", `=== RUN   TestA
=== RUN   TestA/part
--- PASS: TestA (0.01s)
    --- PASS: TestA/part (0.00s)
PASS
`, results{"TestA": {Verdict: passed}}, ""},
		{"a panic in a test", `=== RUN   TestA
--- PASS: TestA (0.01s)
=== RUN   TestB
panic: timeout after 1m0s
`, results{"TestA": {Verdict: passed}}, "TestB"},
		{"a panic after the verdict", `=== RUN   TestA
--- FAIL: TestA (0.01s)
panic: oh [recovered]
`, results{"TestA": {Verdict: failed}}, ""},
		{"a test that goes on after others were begun", `=== RUN   TestA
=== PAUSE TestA
=== RUN   TestB
--- PASS: TestB (0.01s)
=== CONT  TestA
panic: oh
`, results{"TestB": {Verdict: passed}}, "TestA"},
		{"nothing", "", results{}, ""},
	} {
		got, broke := readGoTest([]byte(c.output))
		if broke != c.broke {
			t.Errorf("%s: %q ended the process, want %q", c.name, broke, c.broke)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		for name, one := range c.want {
			if got[name] != one {
				t.Errorf("%s: %s %v, want %v", c.name, name, got[name], one)
			}
		}
	}
}
