package deploy

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"

	"github.com/prometheus/prometheus/model/rulefmt"
	engine "github.com/prometheus/prometheus/promql"
)

const rulesFile = "deploy/prometheus-rules.yml"

// alerts are the rules of deploy/prometheus-rules.yml by name, as Prometheus reads them.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(root, rulesFile), false, model.UTF8Validation, promql, promslog.NewNopLogger())
	if len(errs) > 0 {
		t.Fatalf("the rules have errors: %v", errs)
	}
	all := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if _, twice := all[rule.Alert]; rule.Alert == "" || twice {
				t.Errorf("%q is no alert, or is there twice", rule.Alert)
			}
			all[rule.Alert] = rule
		}
	}
	return all
}

func TestAlertsSayWhatToDo(t *testing.T) {
	known, all, runbook := metrics(t), alerts(t), headings(t, "docs/runbook.md")
	for name, rule := range all {
		checkExpression(t, name, rule.Expr, known)
		anchor := strings.ToLower(name)
		if rule.Annotations["runbook_url"] != "docs/runbook.md#"+anchor || !runbook[anchor] {
			t.Errorf("%s: runbook_url %q; want the page with a heading of its name", name, rule.Annotations["runbook_url"])
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s: it does not say what it means: %v", name, rule.Annotations)
		}
		if severity := rule.Labels["severity"]; severity != "page" && severity != "ticket" {
			t.Errorf("%s: severity %q", name, severity)
		}
	}
	for anchor := range runbook {
		if _, ok := strings.CutPrefix(anchor, "leasehold"); ok && !hasAlert(all, anchor) {
			t.Errorf("docs/runbook.md has a heading %s, which is no alert", anchor)
		}
	}
}

func hasAlert(all map[string]rulefmt.Rule, anchor string) bool {
	for name := range all {
		if strings.ToLower(name) == anchor {
			return true
		}
	}
	return false
}

// pending tells whether an alert fires at the end of what the store has: its expression has
// to have had a result for as long as the rule says.
func pending(t *testing.T, q *engine.Engine, rule rulefmt.Rule, s series, end time.Time) bool {
	t.Helper()
	for at := end.Add(-time.Duration(rule.For)); !at.After(end); at = at.Add(interval) {
		query, err := q.NewInstantQuery(context.Background(), s, nil, rule.Expr, at)
		if err != nil {
			t.Fatal(err)
		}
		result := query.Exec(context.Background())
		vector, err := result.Vector()
		if err != nil {
			t.Fatal(err)
		}
		query.Close()
		if len(vector) == 0 {
			return false
		}
	}
	return true
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	q := engine.NewEngine(engine.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, Parser: promql})
	defer func() { _ = q.Close() }()
	all, end := alerts(t), time.Unix(0, 0).Add(length*interval)
	for name := range all {
		if len(situations[name].fires) == 0 || len(situations[name].quiet) == 0 {
			t.Errorf("%s: no series says when it fires, or when it does not", name)
		}
	}
	for name, one := range situations {
		rule, ok := all[name]
		if !ok {
			t.Errorf("there is no alert %s", name)
			continue
		}
		for want, situations := range map[bool][]string{true: one.fires, false: one.quiet} {
			for _, situation := range situations {
				if got := pending(t, q, rule, parseSeries(t, situation), end); got != want {
					t.Errorf("%s: it fires: %v, want %v, with\n%s", name, got, want, situation)
				}
			}
		}
	}
}

// TestProfilesOfAHomeThatIsCutOffAreShownOnce: it goes on to say how many it has, and another launcher counts them, too.
func TestProfilesOfAHomeThatIsCutOffAreShownOnce(t *testing.T) {
	q := engine.NewEngine(engine.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, Parser: promql})
	defer func() { _ = q.Close() }()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana-dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	const counts = `leasehold_profiles{state="manual_review",instance="a"} 2; leasehold_profiles{state="manual_review",instance="b"} 5; ` +
		`leasehold_profiles{state="inspected",instance="a"} 2; leasehold_profiles{state="inspected",instance="b"} 5; `
	sums := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if !strings.HasPrefix(target.Expr, "sum") || !names(target.Expr, "leasehold_profiles") {
				continue
			}
			sums++
			for _, c := range []struct {
				up, instance string
				want         float64
			}{
				{`leasehold_lease_store_up{instance="a"} 1; leasehold_lease_store_up{instance="b"} 1`, ".*", 7},
				{`leasehold_lease_store_up{instance="a"} 0; leasehold_lease_store_down_seconds{instance="a"} 100; leasehold_lease_store_up{instance="b"} 1`, ".*", 5},
				{`leasehold_lease_store_up{instance="a"} 0; leasehold_lease_store_down_seconds{instance="a"} 100; leasehold_lease_store_up{instance="b"} 0; leasehold_lease_store_down_seconds{instance="b"} 100`, ".*", 7}, // nobody counts for others
				{`leasehold_lease_store_up{instance="a"} 0; leasehold_lease_store_down_seconds{instance="a"} 100; leasehold_lease_store_up{instance="b"} 1`, "a", 2},
			} {
				expr := strings.NewReplacer("$job", ".*", "$instance", c.instance).Replace(target.Expr)
				query, err := q.NewInstantQuery(t.Context(), parseSeries(t, counts+c.up), nil, expr, time.Unix(0, 0).Add(length*interval))
				if err != nil {
					t.Fatal(err)
				}
				vector, err := query.Exec(t.Context()).Vector()
				if err != nil || len(vector) == 0 {
					t.Fatalf("%s: %v, %v", p.Title, vector, err)
				}
				for _, sum := range vector {
					if sum.F != c.want {
						t.Errorf("%s of %s: %v, want %v, with %s", p.Title, c.instance, sum.F, c.want, c.up)
					}
				}
				query.Close()
			}
		}
	}
	if sums == 0 {
		t.Error("no panel shows how many profiles there are")
	}
}
