package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

var promql = parser.NewParser(parser.Options{})

// scraped are the labels that Prometheus adds.
var scraped = []string{labels.MetricName, "job", "instance"}

// checkExpression wants every metric and label of an expression on docs/metrics.md, and
// counters, and nothing else, to be counted over a time.
func checkExpression(t *testing.T, where, text string, known map[string]metric) {
	t.Helper()
	expr, err := promql.ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %s: %v", where, text, err)
		return
	}
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			m, ok := known[n.Name]
			if !ok {
				t.Errorf("%s: %s is not on docs/metrics.md", where, n.Name)
			}
			for _, matcher := range n.LabelMatchers {
				if !slices.Contains(slices.Concat(scraped, m.labels), matcher.Name) {
					t.Errorf("%s: %s has no label %s", where, n.Name, matcher.Name)
				}
			}
		case *parser.Call:
			overTime := n.Func.Name == "rate" || n.Func.Name == "increase"
			for _, arg := range n.Args {
				if matrix, ok := arg.(*parser.MatrixSelector); ok {
					name := matrix.VectorSelector.(*parser.VectorSelector).Name
					if counts := known[name].kind == "counter" || strings.HasSuffix(name, "_bucket"); counts != overTime {
						t.Errorf("%s: %s of %s, a %s", where, n.Func.Name, name, known[name].kind)
					}
				}
			}
		}
		return nil
	})
}
