package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// tally counts what became of a suite's tests.
type tally struct {
	both, neither, skipped int
	// listed differ as the list of exceptions has it, others differ and are on no list.
	listed, differ []difference
	// flaky had the same result on both sides when they were played again.
	flaky []difference
	// failed are those of neither, with what was said.
	failed []difference
	// leftOut were not played.
	leftOut int
}

// difference is a test that did not have the same results on both sides.
type difference struct {
	Name          string
	Port, Sidecar []result // of the first play and of those that repeated it
	Reason        string   // of the list of exceptions
}

// unlike returns the names of the tests whose results are not of the same kind on both
// sides, in order.
func unlike(names []string, onPort, through results) []string {
	var differ []string
	for _, name := range names {
		if of(onPort, name).Verdict.good() != of(through, name).Verdict.good() {
			differ = append(differ, name)
		}
	}
	return differ
}

// of is the result of a test, which may have none.
func of(r results, name string) result {
	if one, has := r[name]; has {
		return one
	}
	return result{Verdict: absent}
}

// good tells whether a test went as its suite wants it. One that ended its process, or has
// no result, did not.
func (v verdict) good() bool { return v == passed || v == skipped }

// count compares the first play on both sides with those that repeated what differed.
// A test differs if all plays did. Where one play had the same result on both sides, the
// test is flaky.
func count(names []string, onPort, through []results, exceptions []exception) (t tally, unused []exception) {
	met := map[int]bool{}
	differ := unlike(names, onPort[0], through[0])
	for _, name := range names {
		p, s := of(onPort[0], name).Verdict, of(through[0], name).Verdict
		switch {
		case slices.Contains(differ, name):
			continue
		case p == skipped || s == skipped:
			t.skipped++
		case p.good():
			t.both++
		default:
			t.neither++
			t.failed = append(t.failed, difference{Name: name, Port: []result{of(onPort[0], name)}, Sidecar: []result{of(through[0], name)}})
		}
	}
	for _, name := range differ {
		d := difference{Name: name}
		same := false
		for i := range onPort {
			p, playedThere := onPort[i][name]
			s, playedHere := through[i][name]
			if i > 0 && !playedThere && !playedHere {
				continue // an earlier play had shown that it is flaky
			}
			if !playedThere {
				p.Verdict = absent
			}
			if !playedHere {
				s.Verdict = absent
			}
			d.Port, d.Sidecar = append(d.Port, p), append(d.Sidecar, s)
			same = same || p.Verdict.good() == s.Verdict.good()
		}
		at := slices.IndexFunc(exceptions, func(e exception) bool { return e.covers(name, d) })
		switch {
		case same:
			t.flaky = append(t.flaky, d)
		case at >= 0:
			met[at] = true
			d.Reason = exceptions[at].Reason
			t.listed = append(t.listed, d)
		default:
			t.differ = append(t.differ, d)
		}
	}
	for i, e := range exceptions {
		if !met[i] && slices.ContainsFunc(names, e.names.MatchString) {
			unused = append(unused, e)
		}
	}
	return t, unused
}

// exception is a difference that stays: the sidecar does it on purpose.
type exception struct {
	names *regexp.Regexp
	// Reason says why, for the people who write clients.
	Reason string
}

// except names tests by the pattern of their whole names.
func except(names, reason string) exception {
	return exception{names: regexp.MustCompile(`^(?:` + names + `)$`), Reason: reason}
}

// covers tells whether the exception is for a test that only passes on the port.
func (e exception) covers(name string, d difference) bool {
	return e.names.MatchString(name) && d.Port[0].Verdict.good()
}

// choose returns the names that match, without those that are left out.
func choose(names []string, match *regexp.Regexp, out []exception) (chosen []string, leftOut map[string]string) {
	leftOut = map[string]string{}
	for _, name := range names {
		if !match.MatchString(name) {
			continue
		}
		if at := slices.IndexFunc(out, func(e exception) bool { return e.names.MatchString(name) }); at >= 0 {
			leftOut[name] = out[at].Reason
		} else {
			chosen = append(chosen, name)
		}
	}
	return chosen, leftOut
}

// tell writes what a person has to know of a suite's differences.
func (t tally) tell(w io.Writer) {
	sections := []struct {
		title string
		list  []difference
	}{
		{"differ, and are on no list", t.differ},
		{"differ on purpose", t.listed},
		{"flaky: the same on both sides when played again", t.flaky},
	}
	for _, s := range sections {
		if len(s.list) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s:\n", s.title)
		for _, d := range s.list {
			fmt.Fprintf(w, "  %s\n    port %s, sidecar %s\n", d.Name, verdicts(d.Port), verdicts(d.Sidecar))
			if d.Reason != "" {
				fmt.Fprintf(w, "    %s\n", d.Reason)
				continue
			}
			for _, one := range slices.Concat(d.Sidecar, d.Port) {
				if one.Said != "" {
					fmt.Fprintf(w, "    | %s\n", strings.ReplaceAll(strings.TrimSpace(one.Said), "\n", "\n    | "))
					break
				}
			}
		}
	}
}

// tellFailed writes the tests that failed on both sides, each with the first line of why.
func (t tally) tellFailed(w io.Writer) {
	for i, d := range t.failed {
		if i == 0 {
			fmt.Fprintln(w, "failed on both sides:")
		}
		said, _, _ := strings.Cut(d.Port[0].Said, "\n")
		fmt.Fprintf(w, "  %s\n    | %s\n", d.Name, said)
	}
}

func verdicts(of []result) string {
	var s []string
	for _, r := range of {
		s = append(s, string(r.Verdict))
	}
	return strings.Join(s, " ")
}

// row is a suite's line of the table.
type row struct {
	suite string
	// why says why the suite was not played.
	why string
	tally
}

// table writes the rows as docs/lab/chrome-port.md has them.
func table(w io.Writer, rows []row) {
	fmt.Fprintln(w, "| suite | passed on both | failed on both | differ, on no list | differ on purpose | flaky | skipped by the suite | left out |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range rows {
		if r.why != "" {
			fmt.Fprintf(w, "| %s | not played: %s | | | | | | |\n", r.suite, r.why)
			continue
		}
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d | %d |\n", r.suite, r.both, r.neither, len(r.differ), len(r.listed), len(r.flaky), r.skipped, r.leftOut)
	}
}

// reasons counts the tests that are left out by their reasons, in order.
func reasons(leftOut map[string]string) []string {
	counts := map[string]int{}
	for _, why := range leftOut {
		counts[why]++
	}
	var lines []string
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%d: %s", counts[why], why))
	}
	return lines
}
