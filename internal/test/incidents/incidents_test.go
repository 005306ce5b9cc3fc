package incidents

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"leasehold/internal/test/clients"
	"leasehold/internal/test/sides"
	"leasehold/launcher/recovery/table"
)

// The parts of the corpus: the folder itself has the incidents that were made together
// with the rules. Those of the others were written by somebody who had not seen the
// rules. met was played since; unmet, novel and fresh, of which the last two have kinds of
// sites of which the others have none, are measures that are taken once, and not among all.
const (
	own   = "."
	met   = "met"
	unmet = "unmet"
	novel = "novel"
	fresh = "fresh"
	// On real applications: they are played by make real alone, with the shipped files about
	// their sites, or without them; realAway was put away until those were written.
	real     = "real"
	realAway = "real-away"
	// On sites where the account signs in first, with the files of their owners or without
	// them; examAway is the half that is put away.
	exam     = "exam"
	examAway = "exam-away"
)

// corpus loads parts of testdata/incidents.
func corpus(t *testing.T, parts ...string) []Incident {
	t.Helper()
	var all []Incident
	for _, part := range parts {
		some, err := Load(os.DirFS(filepath.Join("../../../testdata/incidents", part)))
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		all = append(all, some...)
	}
	return all
}

// choose returns the incidents that LEASEHOLD_CORPUS chooses: the sample if it is empty,
// with "all" (make corpus) all but those that are put away, with the name of a part that
// part, and with any other value those whose name contains it.
func choose(t *testing.T, which string) []Incident {
	t.Helper()
	var chosen []Incident
	switch which {
	case "":
		chosen = slices.DeleteFunc(corpus(t, own), func(i Incident) bool { return !i.Sample })
	case "all":
		chosen = corpus(t, own, met)
	case met, unmet, novel, fresh, real, realAway, exam, examAway:
		chosen = corpus(t, which)
	default:
		chosen = slices.DeleteFunc(corpus(t, own, met, novel, fresh, real, exam), func(i Incident) bool {
			return !strings.Contains(i.Name, which)
		})
	}
	if len(chosen) == 0 {
		t.Fatalf("LEASEHOLD_CORPUS=%s: no incident has that in its name", which)
	}
	return chosen
}

// atOnce is how many incidents run at a time: LEASEHOLD_CORPUS_AT_ONCE, or one more than
// the machine has processors.
func atOnce() int {
	if n, err := strconv.Atoi(os.Getenv("LEASEHOLD_CORPUS_AT_ONCE")); err == nil && n > 0 {
		return n
	}
	return runtime.NumCPU() + 1
}

// TestCorpus plays the incidents that LEASEHOLD_CORPUS chooses.
func TestCorpus(t *testing.T) {
	which := os.Getenv("LEASEHOLD_CORPUS")
	if os.Getenv("LEASEHOLD_CORPUS_DRY") != "" {
		t.Skip("LEASEHOLD_CORPUS_DRY is set: nothing is decided")
	}
	chosen := choose(t, which)
	s := sides.ForTest(t, "--reconnect-grace", "100ms", "--file-root", os.TempDir(), "--file-root", clients.Dir())
	begun := time.Now()
	report := Count(Run(t.Context(), s.URL, chosen, atOnce()))
	if which != "" {
		fmt.Printf("\n%s\nIt took %s.\n", report, time.Since(begun).Round(time.Second))
	}
	defer func() {
		if t.Failed() && which == "" {
			t.Log(report)
		}
	}()
	if !slices.Contains([]string{"", "all", met, unmet, novel, fresh, real, realAway, exam, examAway}, which) {
		report.Asked = nil // the share of so few incidents means nothing
	}
	most := maxAsked
	if which == realAway {
		most = maxAskedAway
	}
	for _, problem := range report.Problems(most) {
		t.Errorf("the report has a problem: %v", problem)
	}
	if which == "" && len(report.Asked)+len(report.Else) > 0 {
		t.Error("the sample has to be decided as expected")
	}
}

// least is how many incidents the corpus has to have.
const least = 40

func TestCorpusIsWhole(t *testing.T) {
	all := corpus(t, own)
	safe, sample := 0, 0
	bySite, byOutcome := map[string]int{}, map[string]int{}
	for _, i := range all {
		bySite[i.Site]++
		byOutcome[i.Expect]++
		if i.Safe() {
			safe++
		}
		if i.Sample {
			sample++
		}
	}
	if len(all) < least || safe*2 < len(all) || sample < 6 || sample > 12 {
		t.Errorf("%d incidents, %d of them safe, %d in the sample: want %d at least, half of them safe, 6 to 12 in the sample", len(all), safe, sample, least)
	}
	for name := range bySite {
		if bySite[name] < 3 {
			t.Errorf("site %s has %d incidents", name, bySite[name])
		}
	}
	for _, o := range outcomes {
		if byOutcome[o] < 3 {
			t.Errorf("%s is expected %d times", o, byOutcome[o])
		}
	}
}

// TestMistakesInTheCorpusAreNamed: each mistake in the data gives an error that names
// it.
func TestMistakesInTheCorpusAreNamed(t *testing.T) {
	const right = `site: shop
incidents:
  - name: shop-one
    killed: at the end
    expect: release
    why: it only looked around
    script:
      - goto: /
      - apart: /
`
	if all, err := Load(fstest.MapFS{"shop.yaml": {Data: []byte(right)}}); err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	for name, tt := range map[string]struct{ was, is, want string }{
		"an unknown field":       {"killed:", "kiled:", "kiled"},
		"an unknown site":        {"site: shop", "site: market", "market"},
		"another site's name":    {"name: shop-one", "name: bank-one", "begin with shop-"},
		"no moment":              {"killed: at the end", "killed: ''", "killed"},
		"an unknown outcome":     {"release", "relase", "relase"},
		"no reason":              {"it only looked around", "ok", "why"},
		"two things at once":     {"- goto: /", "- goto: /\n        click: a", "one thing"},
		"nothing to do":          {"- goto: /", "- scroll: ''", "one thing"},
		"no script":              {"- goto: /", "[]", "script"},
		"an arrival of nothing":  {"- goto: /", "- arrives: 3 /x", "arrives"},
		"a hold of nothing":      {"- goto: /", "- hold: /x", "hold"},
		"an unknown worker":      {"expect:", "worker: lynx\n    expect:", "lynx"},
		"an unknown mood":        {"expect:", "mood: sad\n    expect:", "sad"},
		"a cut of nothing":       {"- goto: /", "- cut: /x", "cut"},
		"a request beside":       {"- goto: /", "- beside: POST /x", "Playwright"},
		"Selenium's context":     {"expect:", "worker: selenium\n    expect:", "contexts"},
		"a command of nothing":   {"- goto: /", "- cdp: { params: { a: 1 } }", "method"},
		"a declaration of a PUT": {"expect:", "profile: {harmless_requests: [PUT http://shop.localhost/x]}\n    expect:", "PUT"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(right, tt.was, tt.is, 1)
			if _, err := Load(fstest.MapFS{"shop.yaml": {Data: []byte(changed)}}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want an error with %s", err, tt.want)
			}
		})
	}
	twice := fstest.MapFS{"shop.yaml": {Data: []byte(right + strings.TrimPrefix(right, "site: shop\nincidents:\n"))}}
	if _, err := Load(twice); err == nil || !strings.Contains(err.Error(), "shop-one") {
		t.Errorf("a name that stands twice: %v", err)
	}
	if _, err := Load(fstest.MapFS{"bank.yaml": {Data: []byte(right)}}); err == nil {
		t.Error("a file with another site's name is taken")
	}
}

func TestReport(t *testing.T) {
	one := func(expect, decided string, changed ...string) Result {
		return Result{Incident: Incident{Name: "x", Expect: expect, Why: "because"}, Decided: decided, Changed: changed, Touched: changed, Reasons: []string{"so"}}
	}
	many := slices.Repeat([]Result{one(table.Release, table.Release)}, 18)
	for name, tt := range map[string]struct {
		results  []Result
		problems []string
	}{
		"all as expected":                     {append(many, one(table.ManualReview, table.ManualReview, "an order")), nil},
		"one of ten asked for nothing":        {append(many, one(table.Retry, table.ManualReview), one(table.Retry, table.ManualReview)), nil},
		"more than that":                      {append(many[:9:9], one(table.Retry, table.ManualReview), one(table.Retry, table.ManualReview)), []string{"2 of 11"}},
		"let go on":                           {append(many, one(table.ManualReview, table.Retry)), []string{"1 unsafe"}},
		"the site knows better than the data": {append(many, one(table.Release, table.Release, "an order")), []string{"1 unsafe", "1 expectations"}},
		"resumed after it changed":            {append(many, one(table.Resume, table.Resume, "an order")), []string{"1 unsafe"}},
		"not played to its end":               {append(many, Result{Incident: Incident{Name: "y"}, Problem: errors.New("no page")}), []string{"no page"}},
		"another safe way":                    {append(many, one(table.Retry, table.Release)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			problems := Count(tt.results).Problems(maxAsked)
			if len(problems) != len(tt.problems) {
				t.Fatalf("%q, want %q", problems, tt.problems)
			}
			for i, want := range tt.problems {
				if !strings.Contains(problems[i], want) {
					t.Errorf("%q, want %q", problems[i], want)
				}
			}
		})
	}
	drawn := Count([]Result{one(table.Retry, table.ManualReview), one(table.Release, table.Release)}).String()
	for _, want := range []string{"| release | 1 | 0 | 0 | 0 |", "| retry | 0 | 0 | 0 | 1 |", "2 incidents, 2 of them safe. Unsafe releases: 0.", "(50.0 %)", "x: expected retry (because), decided manual_review: so"} {
		if !strings.Contains(drawn, want) {
			t.Errorf("%s\nwant %q", drawn, want)
		}
	}
}
