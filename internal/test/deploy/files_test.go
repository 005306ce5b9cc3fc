package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the top of the project.
const root = "../../.."

// read returns a file of the project.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// metric is a row of docs/metrics.md.
type metric struct {
	kind   string
	labels []string
}

var quoted = regexp.MustCompile("`([^`]+)`")

// metrics are those of docs/metrics.md by name, with the series of histograms, and up, which
// Prometheus makes itself.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{"up": {kind: "gauge"}}
	for line := range strings.Lines(read(t, "docs/metrics.md")) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) < 3 {
			continue
		}
		name, m := quoted.FindStringSubmatch(cells[0])[1], metric{kind: cells[1]}
		if len(cells) == 5 {
			for _, label := range quoted.FindAllStringSubmatch(cells[3], -1) {
				m.labels = append(m.labels, label[1])
			}
		}
		if m.kind == "histogram" {
			all[name+"_sum"], all[name+"_count"] = m, m
			all[name+"_bucket"] = metric{m.kind, append(m.labels, "le")}
			continue
		}
		all[name] = m
	}
	if len(all) < 30 {
		t.Fatalf("docs/metrics.md has %d metrics only: %v", len(all), all)
	}
	return all
}

// headings are the anchors of a page's headings.
func headings(t *testing.T, path string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for line := range strings.Lines(read(t, path)) {
		if title := strings.TrimLeft(line, "#"); title != line {
			title = strings.ToLower(strings.TrimSpace(title))
			all[strings.ReplaceAll(regexp.MustCompile("[^a-z0-9 -]").ReplaceAllString(title, ""), " ", "-")] = true
		}
	}
	return all
}
