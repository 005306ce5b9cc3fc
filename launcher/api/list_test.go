package api

import (
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

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

// TestWhatPeopleDoFirst: of the sessions of one profile, in whatever order they are listed.
func TestWhatPeopleDoFirst(t *testing.T) {
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	ask := func(minutes int) *Ask { return &Ask{At: noon.Add(time.Duration(minutes) * time.Minute)} }
	inOrder := []Session{
		{SessionID: "waits", Ask: ask(1)}, {SessionID: "waits later", Ask: ask(2)}, {SessionID: "waits later, too", Ask: ask(2)},
		{SessionID: "is answered", Ask: ask(0), Person: &Person{Since: noon}}, {SessionID: "is taken", Person: &Person{Since: noon}},
	}
	for i, first := range inOrder {
		for _, later := range inOrder[i:] {
			for _, listed := range [][]Session{{first, later}, {later, first}} {
				if got := (InHands{}).Or(Session{SessionID: "works"}).Or(listed[0]).Or(listed[1]); got != (InHands{first.SessionID, first.Ask, first.Person}) {
					t.Errorf("of %s and %s: %s", first.SessionID, later.SessionID, got.SessionID)
				}
			}
		}
	}
	if got := (InHands{}).Or(Session{SessionID: "works"}); got != (InHands{}) {
		t.Errorf("there is something to do with %+v", got)
	}
}
