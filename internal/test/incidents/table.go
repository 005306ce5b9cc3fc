package incidents

import (
	"fmt"
	"slices"
	"strings"

	"leasehold/launcher/recovery/table"
)

// Report sums up the results.
type Report struct {
	Results []Result
	Safe    int // incidents for which the expert would not ask a person
	// Unsafe are the results for which Result.Unsafe is true, and Asked those for which
	// Result.Asked is true. Else are the others whose decision differs from the expected
	// one, without harm.
	Unsafe, Asked, Else []Result
	// Wrong are incidents whose expectation contradicts what the site recorded. Broken
	// are incidents that could not be run to their end.
	Wrong, Broken []Result
}

// Count makes the report of results.
func Count(results []Result) Report {
	r := Report{Results: results}
	for _, one := range results {
		if one.Problem != nil {
			r.Broken = append(r.Broken, one)
			continue
		}
		if one.Incident.Safe() {
			r.Safe++
			if one.Incident.Expect != table.Resume && len(one.Touched) > 0 {
				r.Wrong = append(r.Wrong, one)
			}
		}
		switch {
		case one.Unsafe():
			r.Unsafe = append(r.Unsafe, one)
		case one.Asked():
			r.Asked = append(r.Asked, one)
		case one.Decided != one.Incident.Expect:
			r.Else = append(r.Else, one)
		}
	}
	return r
}

// The shares of safe incidents that may go to a person, in percent: usually, and of those that were put
// away until what is known of their sites was written.
const (
	maxAsked     = 10
	maxAskedAway = 25
)

// Problems returns why the report is not acceptable. It is empty if the report is good. At most that
// share of the safe incidents may go to a person, in percent.
func (r Report) Problems(maxAsked int) []string {
	var all []string
	if len(r.Unsafe) > 0 {
		all = append(all, fmt.Sprintf("%d unsafe releases, want 0", len(r.Unsafe)))
	}
	if len(r.Asked)*100 > maxAsked*r.Safe {
		all = append(all, fmt.Sprintf("%d of %d safe ones went to a person, want at most %d %%", len(r.Asked), r.Safe, maxAsked))
	}
	if len(r.Wrong) > 0 {
		all = append(all, fmt.Sprintf("%d expectations are wrong: the account was touched", len(r.Wrong)))
	}
	for _, one := range r.Broken {
		all = append(all, fmt.Sprintf("incident %s was not played to its end: %v", one.Incident.Name, one.Problem))
	}
	return all
}

// String returns the confusion matrix, the counts, and each disagreement with the
// sidecar's reasons.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| expected \\ decided | %s |\n| --- |%s\n", strings.Join(outcomes, " | "), strings.Repeat(" ---: |", len(outcomes)))
	for _, expected := range outcomes {
		fmt.Fprintf(&b, "| %s |", expected)
		for _, decided := range outcomes {
			n := len(slices.DeleteFunc(slices.Clone(r.Results), func(one Result) bool {
				return one.Incident.Expect != expected || one.Decided != decided
			}))
			fmt.Fprintf(&b, " %d |", n)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n%d incidents, %d of them safe. Unsafe releases: %d. Safe ones that went to a person: %d (%.1f %%).\n",
		len(r.Results), r.Safe, len(r.Unsafe), len(r.Asked), 100*float64(len(r.Asked))/float64(max(r.Safe, 1)))
	for _, list := range []struct {
		title   string
		results []Result
	}{{"Unsafe releases", r.Unsafe}, {"Safe ones that went to a person", r.Asked}, {"Decided otherwise, without harm", r.Else}, {"Expectations that are wrong", r.Wrong}} {
		if len(list.results) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s:\n\n", list.title)
		for _, one := range list.results {
			fmt.Fprintf(&b, "- %s: expected %s (%s), decided %s: %s", one.Incident.Name, one.Incident.Expect, one.Incident.Why, one.Decided, strings.Join(one.Reasons, "; "))
			if len(one.Touched) > 0 {
				fmt.Fprintf(&b, " [%s]", strings.Join(one.Touched, ", "))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
