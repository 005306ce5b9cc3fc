package deploy

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// interval is the time between two samples, and length how many intervals there are.
const (
	interval = time.Minute
	length   = 120
)

// series are what the store of a Prometheus has.
type series []*storage.SeriesEntry

// parseSeries reads series in Prometheus's own notation for tests, separated by semicolons.
// Each is of the host h. The last sample is repeated up to the end.
func parseSeries(t *testing.T, text string) series {
	t.Helper()
	var all series
	for one := range strings.SplitSeq(text, ";") {
		set, values, err := promql.ParseSeriesDesc(strings.TrimSpace(one))
		if err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		b := labels.NewBuilder(set).Set("job", "leasehold")
		if set.Get("instance") == "" {
			b.Set("instance", "h")
		}
		var samples []chunks.Sample
		for i := range length + 1 {
			value := values[min(i, len(values)-1)]
			if !value.Omitted {
				samples = append(samples, sample{time.Unix(0, 0).Add(time.Duration(i) * interval).UnixMilli(), value.Value})
			}
		}
		all = append(all, storage.NewListSeries(b.Labels(), samples))
	}
	return all
}

// Querier implements storage.Queryable.
func (s series) Querier(int64, int64) (storage.Querier, error) { return querier{s}, nil }

type querier struct{ all series }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &selected{at: -1}
	for _, one := range q.all {
		matches := true
		for _, m := range matchers {
			matches = matches && m.Matches(one.Lset.Get(m.Name))
		}
		if matches {
			set.series = append(set.series, one)
		}
	}
	return set
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

// selected implements storage.SeriesSet.
type selected struct {
	series series
	at     int
}

func (s *selected) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *selected) At() storage.Series                { return s.series[s.at] }
func (s *selected) Err() error                        { return nil }
func (s *selected) Warnings() annotations.Annotations { return nil }

// sample implements chunks.Sample.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
