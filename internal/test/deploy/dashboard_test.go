package deploy

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard has the members of Grafana's dashboards, schema version 39, that the file uses.
// One that is not here is a mistake, or has to be looked up and added.
type dashboard struct {
	Title         string         `json:"title"`
	UID           string         `json:"uid"`
	Description   string         `json:"description"`
	Tags          []string       `json:"tags"`
	Editable      bool           `json:"editable"`
	SchemaVersion int            `json:"schemaVersion"`
	Version       int            `json:"version"`
	Refresh       string         `json:"refresh"`
	Time          span           `json:"time"`
	Timezone      string         `json:"timezone"`
	GraphTooltip  int            `json:"graphTooltip"`
	Templating    list[variable] `json:"templating"`
	Annotations   list[struct{}] `json:"annotations"`
	Links         []struct{}     `json:"links"`
	Panels        []panel        `json:"panels"`
}

type span struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type list[T any] struct {
	List []T `json:"list"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type variable struct {
	Name       string          `json:"name"`
	Label      string          `json:"label"`
	Type       string          `json:"type"`
	Datasource *source         `json:"datasource"`
	Query      json.RawMessage `json:"query"` // a text or, of a query, an object
	Definition string          `json:"definition"`
	Refresh    int             `json:"refresh"`
	IncludeAll bool            `json:"includeAll"`
	Multi      bool            `json:"multi"`
	AllValue   string          `json:"allValue"`
	Current    json.RawMessage `json:"current"`
	Sort       int             `json:"sort"`
}

type panel struct {
	ID          int                      `json:"id"`
	Type        string                   `json:"type"`
	Title       string                   `json:"title"`
	Description string                   `json:"description"`
	Datasource  *source                  `json:"datasource"`
	GridPos     struct{ X, Y, W, H int } `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit       string  `json:"unit"`
			Min        float64 `json:"min"`
			Thresholds *struct {
				Mode  string `json:"mode"`
				Steps []struct {
					Color string   `json:"color"`
					Value *float64 `json:"value"`
				} `json:"steps"`
			} `json:"thresholds"`
		} `json:"defaults"`
		Overrides []struct{} `json:"overrides"`
	} `json:"fieldConfig"`
	Targets []struct {
		RefID        string  `json:"refId"`
		Datasource   *source `json:"datasource"`
		Expr         string  `json:"expr"`
		LegendFormat string  `json:"legendFormat"`
	} `json:"targets"`
	Options   json.RawMessage `json:"options"`
	Collapsed bool            `json:"collapsed"`
	Panels    []struct{}      `json:"panels"` // of a row that is folded
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

func TestDashboardShowsWhatThereIs(t *testing.T) {
	var d dashboard
	strict := json.NewDecoder(bytes.NewReader([]byte(read(t, "deploy/grafana-dashboard.json"))))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&d); err != nil {
		t.Fatal(err)
	}
	known, shown, ids := metrics(t), map[string]bool{}, map[int]bool{}
	for _, v := range d.Templating.List {
		for name := range known {
			shown[name] = shown[name] || names(v.Definition, name)
		}
		if v.Type == "query" && !strings.HasPrefix(v.Definition, "label_values(leasehold_ready") {
			t.Errorf("variable %s: %s", v.Name, v.Definition)
		}
	}
	for i, p := range d.Panels {
		if p.Title == "" || ids[p.ID] || !slices.Contains([]string{"row", "stat", "timeseries"}, p.Type) {
			t.Errorf("panel %d, %q, is a %s", p.ID, p.Title, p.Type)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s is at %+v", p.Title, g)
		}
		for _, q := range d.Panels[:i] {
			if o := q.GridPos; g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
				t.Errorf("%s and %s overlap", p.Title, q.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("%s shows nothing, or does not say what", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource == nil || target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: its source is %v, not the one that is chosen", p.Title, target.Datasource)
			}
			checkExpression(t, p.Title, target.Expr, known)
			if !strings.Contains(target.Expr, `job=~"$job",instance=~"$instance"`) {
				t.Errorf("%s: %s does not follow the choice of hosts", p.Title, target.Expr)
			}
			for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if label[1] != "instance" && !strings.Contains(target.Expr, "by ("+label[1]+")") {
					t.Errorf("%s: %s has no label %s", p.Title, target.Expr, label[1])
				}
			}
			for name := range known {
				shown[name] = shown[name] || names(target.Expr, name)
			}
		}
	}
	for name := range alertMetrics(t) {
		if !shown[name] {
			t.Errorf("%s has an alert, and is not on the dashboard", name)
		}
	}
}

// names tells whether an expression names a metric.
func names(expression, metric string) bool {
	return regexp.MustCompile(`\b` + metric + `\b`).MatchString(expression)
}

// alertMetrics are those that some alert reads.
func alertMetrics(t *testing.T) map[string]bool {
	all := map[string]bool{}
	for _, rule := range alerts(t) {
		for name := range metrics(t) {
			if names(rule.Expr, name) {
				all[name] = true
			}
		}
	}
	return all
}
