package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// play makes results from words such as "a+ b- c?": passed, failed, skipped.
func play(words string) results {
	r := results{}
	for word := range strings.FieldsSeq(words) {
		name, mark := word[:len(word)-1], word[len(word)-1:]
		r[name] = result{Verdict: map[string]verdict{"+": passed, "-": failed, "?": skipped}[mark], Said: "of " + name}
	}
	return r
}

func namesOf(list []difference) string {
	var names []string
	for _, d := range list {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}

func TestDifferencesAreToldFromFlakyTests(t *testing.T) {
	names := strings.Fields("both neither skipped real reverse flaky lost listed listedBack")
	onPort := []results{
		play("both+ neither- skipped? real+ reverse- flaky+ lost+ listed+ listedBack-"),
		play("real+ reverse- flaky+ lost+ listed+ listedBack-"),
		play("real+ reverse- lost+ listed+ listedBack-"),
		play("real+ reverse- lost+ listed+ listedBack-"),
	}
	through := []results{
		play("both+ neither- skipped? real- reverse+ flaky- listed- listedBack+"), // lost has no result
		play("real- reverse+ flaky+ listed- listedBack+"),
		play("real- reverse+ listed- listedBack+"),
		play("real- reverse+ listed- listedBack+"),
	}
	got, unused := count(names, onPort, through, []exception{except("listed.*", "on purpose"), except("bot.", "once"), except("elsewhere", "")})
	if got.both != 1 || got.neither != 1 || got.skipped != 1 {
		t.Errorf("%d passed and %d failed on both, %d skipped, want one of each", got.both, got.neither, got.skipped)
	}
	// An exception is for what passes on the port: the other way round nobody listed it.
	if is, want := namesOf(got.differ), "real reverse lost listedBack"; is != want {
		t.Errorf("differ: %s, want %s", is, want)
	}
	if is := namesOf(got.flaky); is != "flaky" {
		t.Errorf("flaky: %s", is)
	}
	if is := namesOf(got.listed); is != "listed" || got.listed[0].Reason != "on purpose" {
		t.Errorf("listed: %v", got.listed)
	}
	if len(unused) != 1 || !unused[0].names.MatchString("both") {
		t.Errorf("unused: %v, want the one whose test has no difference any more", unused)
	}
	var said strings.Builder
	got.tell(&said)
	for _, want := range []string{"port passed passed passed passed, sidecar failed failed failed failed\n    | of real", "lost\n    port passed passed passed passed, sidecar absent absent absent absent", "on purpose"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the account lacks %q:\n%s", want, said.String())
		}
	}
}

func TestATestWithoutAResultHasFailed(t *testing.T) {
	names := []string{"a", "b"}
	if got := unlike(names, play("a+ b+"), play("a+")); !slices.Equal(got, []string{"b"}) {
		t.Errorf("unlike: %v, want b", got)
	}
	if got := unlike(names, play("a+ b-"), play("a?")); len(got) != 0 {
		t.Errorf("unlike: %v, want none", got)
	}
}

func TestWhatIsLeftOutIsChosenByWholeNames(t *testing.T) {
	names := []string{"x.js › opens", "x.js › opens twice", "y.js › opens"}
	chosen, leftOut := choose(names, regexp.MustCompile("^x"), []exception{except("x.js › opens", "its own browser"), except("y.*", "never asked")})
	if !slices.Equal(chosen, []string{"x.js › opens twice"}) {
		t.Errorf("chosen: %q", chosen)
	}
	if len(leftOut) != 1 || leftOut["x.js › opens"] != "its own browser" {
		t.Errorf("left out: %q", leftOut)
	}
}

func TestEachRowOfTheTableHasAllColumns(t *testing.T) {
	var said strings.Builder
	table(&said, []row{{suite: "one 1.0", tally: tally{both: 3, listed: make([]difference, 2), leftOut: 4}}, {suite: "two 2.0", why: "cannot be fetched here"}})
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	for _, line := range lines {
		if strings.Count(line, "|") != strings.Count(lines[0], "|") {
			t.Errorf("%q has other columns than %q", line, lines[0])
		}
	}
	if want := "| one 1.0 | 3 | 0 | 0 | 2 | 0 | 0 | 4 |"; lines[2] != want {
		t.Errorf("%q, want %q", lines[2], want)
	}
	if !strings.Contains(lines[3], "two 2.0 | not played: cannot be fetched here") {
		t.Errorf("%q does not say why", lines[3])
	}
}

func TestSuitesArePickedByName(t *testing.T) {
	got, err := pick("cri, rod")
	if err != nil || len(got) != 2 || got[0].name != "cri" || got[1].name != "rod" {
		t.Errorf("%v %v, want cri and rod", got, err)
	}
	if got, err := pick(""); err != nil || len(got) != len(all) {
		t.Errorf("%v %v, want all", got, err)
	}
	if _, err := pick("rodd"); err == nil || !strings.Contains(err.Error(), "rod, cri") {
		t.Errorf("%v, want the names that there are", err)
	}
}

func TestEverySuiteSaysWhyTestsAreMissing(t *testing.T) {
	for _, s := range all {
		for _, e := range slices.Concat(s.leftOut, s.exceptions) {
			if len(e.Reason) < 20 || strings.HasSuffix(e.Reason, ".") {
				t.Errorf("%s: %s: %q is no reason", s.name, e.names, e.Reason)
			}
		}
	}
}
