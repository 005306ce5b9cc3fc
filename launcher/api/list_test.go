package api

import (
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"leasehold/lease"
)

func TestParseProfileQuery(t *testing.T) {
	yes := true
	for text, want := range map[string]ProfileQuery{
		"":                              {},
		"q=&state=&free=&sort=&limit=7": {},
		"q=+Shop++18+&url=checkout":     {Words: "Shop  18", URL: "checkout"},
		"account_id=a*&worker=w&task=t&host=h&sort=-changed&free=true": {AccountID: "a*", WorkerID: "w", TaskID: "t", Host: "h", Sort: "-changed", Free: &yes},
		"label=region:us-*&label=&label=tier:":                         {Labels: lease.Labels{"region": "us-*", "tier": ""}},
		"state=held&state=manual_review,held":                          {States: []lease.State{lease.Held, lease.ManualReview}},
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseProfileQuery(values); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, field := range map[string]string{
		"state=busy": "state", "sort=random": "sort", "sort=--name": "sort", "free=perhaps": "free", "free=1&free=0": "free", "worker=a&worker=b": "worker", "label=us": "label", "label=a:1&label=a:2": "label", "label=a:x,b:y": "label", "q=" + strings.Repeat("x", 301): "q",
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		var p *Problem
		if _, err := ParseProfileQuery(values); !errors.As(err, &p) || p.Field != field {
			t.Errorf("%s: %v, want field %s", text, err, field)
		}
	}
}

func FuzzParseProfileQuery(f *testing.F) {
	for _, seed := range []string{"state=held&q=x", "sort=-name&free=1", "state=,,held", "url=%00&worker=*", "label=a:b&label=c:*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := ParseProfileQuery(values)
		if err != nil {
			return
		}
		again, err := ParseProfileQuery(q.Filters())
		if err != nil || !reflect.DeepEqual(q, again) {
			t.Errorf("%q: %+v, and written again %+v, %v", text, q, again, err)
		}
	})
}
