package httpapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// pageOf asks for a page as a client does.
func pageOf[T any](all []T, o order[T], query string) (list[T], error) {
	q, err := url.ParseQuery(query)
	return page(&call{query: q, queryErr: err}, all, o)
}

// walk reads a list page by page. between may change the list after each page.
func walk[T any](all []T, o order[T], limit int, between func([]T) []T) ([]T, error) {
	var got []T
	query := fmt.Sprint("limit=", limit)
	for {
		p, err := pageOf(all, o, query)
		if err != nil || len(p.Items) > limit {
			return got, fmt.Errorf("%d things, %w", len(p.Items), err)
		}
		got = append(got, p.Items...)
		if p.Next == nil {
			return got, nil
		}
		query = fmt.Sprint("limit=", limit, "&next=", url.QueryEscape(*p.Next))
		all = between(all)
	}
}

func events(n int) []lease.Event {
	var all []lease.Event
	for i := range n {
		// Clocks differ, and conflicts have no sequence.
		all = append(all, lease.Event{Event: "granted", Token: lease.Token(i / 3), Sequence: uint64(i % 3), At: time.Unix(int64(1000-i), 0)})
	}
	return all
}

// Whatever the size of a page, the pages are the list. What leaves meanwhile is not there;
// nothing is there twice, and nothing that stays is missing.
func TestPagesAreTheList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := events(rapid.IntRange(0, 40).Draw(rt, "n"))
		limit := rapid.IntRange(1, 20).Draw(rt, "limit")
		got, err := walk(all, historyOrder, limit, func(all []lease.Event) []lease.Event { return all })
		if err != nil || !slices.EqualFunc(got, all, func(a, b lease.Event) bool { return historyOrder.position(a) == historyOrder.position(b) }) {
			rt.Fatalf("%d of %d events, %v", len(got), len(all), err)
		}
		// The oldest events leave, and new ones come.
		left, total := 0, len(all)
		got, err = walk(all, historyOrder, limit, func(now []lease.Event) []lease.Event {
			go1 := rapid.IntRange(0, min(3, len(now))).Draw(rt, "leave")
			left += go1
			return now[go1:]
		})
		seen := map[string]bool{}
		for _, e := range got {
			if seen[historyOrder.position(e)] {
				rt.Fatalf("%+v is there twice", e)
			}
			seen[historyOrder.position(e)] = true
		}
		for _, e := range all[min(left, total):] {
			if err != nil || !seen[historyOrder.position(e)] {
				rt.Fatalf("%+v is missing, %v", e, err)
			}
		}
	})
}

// Bundles are told the newest first, also where one is removed between two pages.
func TestPagesOfBundles(t *testing.T) {
	var all []api.Bundle
	for i := range 9 {
		all = append(all, api.Bundle{EvidenceID: fmt.Sprint("ev_", i), Token: lease.Token(20 - i), At: time.Unix(int64(100-i), 0)})
	}
	got, err := walk(all, bundleOrder, 2, func(now []api.Bundle) []api.Bundle { return slices.Delete(slices.Clone(now), 1, 2) })
	if err != nil || len(got) != 9-3 && len(got) != 9 {
		t.Errorf("%d bundles, %v", len(got), err)
	}
	for i := 1; i < len(got); i++ {
		if got[i].Token >= got[i-1].Token {
			t.Errorf("out of order: %+v", got)
		}
	}
	if got[len(got)-1].EvidenceID != "ev_8" {
		t.Errorf("the last one is missing: %+v", got)
	}
}

// Through the surface: without limit all of it up to the maximum, and what cannot be meant
// is refused with the name of the field.
func TestPagedAnswers(t *testing.T) {
	var records []api.Profile
	for i := range maxPage + 5 {
		records = append(records, api.Profile{Record: lease.Record{ProfileID: fmt.Sprintf("p%05d", i), State: lease.Available}})
	}
	f := serve(t, Options{}, map[string]any{"ListProfiles": records, "History": events(4), "Evidence": []api.Bundle{}, "Sessions": []api.Session{}})
	get := func(path string) (int, list[json.RawMessage], api.Problem) {
		r, body := f.request("GET", path, "")
		var l list[json.RawMessage]
		var p struct{ Code, Field string }
		_ = json.Unmarshal([]byte(body), &l)
		_ = json.Unmarshal([]byte(body), &p)
		return r.StatusCode, l, api.Problem{Code: p.Code, Field: p.Field}
	}
	if status, l, _ := get("/v1/profiles"); status != 200 || len(l.Items) != maxPage || l.Next == nil {
		t.Errorf("%d, %d profiles, next %v", status, len(l.Items), l.Next)
	} else if _, rest, _ := get("/v1/profiles?next=" + *l.Next); len(rest.Items) != 5 || rest.Next != nil {
		t.Errorf("the last page has %d profiles, next %v", len(rest.Items), rest.Next)
	}
	if status, l, _ := get("/v1/profiles/p/history?limit=3"); status != 200 || len(l.Items) != 3 || l.Next == nil || l.Truncated {
		t.Errorf("%d, %d events, next %v, truncated %v", status, len(l.Items), l.Next, l.Truncated)
	}
	for _, path := range []string{"/v1/profiles", "/v1/sessions", "/v1/profiles/p/history", "/v1/profiles/p/evidence"} {
		for query, field := range map[string]string{
			"limit=-1": "limit", "limit=0": "limit", "limit=1001": "limit", "limit=": "limit", "limit=x": "limit", "limit=1&limit=2": "limit",
			"next=": "next", "next=%25": "next", "next=a=": "next", "limit=1;": "",
		} {
			if status, _, p := get(path + "?" + query); status != 400 || p.Code != api.CodeInvalidRequest || p.Field != field {
				t.Errorf("%s?%s: %d %+v, want 400 and field %q", path, query, status, p, field)
			}
		}
	}
	if status, _, p := get("/v1/evidence/ev_1/part?stored=maybe"); status != 400 || p.Field != "stored" {
		t.Errorf("stored=maybe: %d %+v", status, p)
	}
}

func TestTruncatedHistory(t *testing.T) {
	conflict, first, later := lease.Event{Event: lease.EventConflict}, lease.Event{Event: "granted", Sequence: 1}, lease.Event{Event: "released", Sequence: 2}
	for _, c := range []struct {
		events []lease.Event
		want   bool
	}{
		{nil, false}, {[]lease.Event{first, later}, false}, {[]lease.Event{first, conflict}, false},
		{[]lease.Event{later}, true}, {[]lease.Event{conflict, later}, true}, {[]lease.Event{conflict}, true},
	} {
		if truncated(c.events) != c.want {
			t.Errorf("%+v: want %v", c.events, c.want)
		}
	}
}

// A cursor may be anything.
func FuzzNext(f *testing.F) {
	all := events(10)
	first, _ := pageOf(all, historyOrder, "limit=3")
	f.Add("3", *first.Next)
	f.Add("-1", "")
	f.Fuzz(func(t *testing.T, limit, next string) {
		p, err := pageOf(all, historyOrder, url.Values{"limit": {limit}, "next": {next}}.Encode())
		if err == nil && (len(p.Items) > maxPage || len(p.Items) > len(all)) {
			t.Fatalf("%d things", len(p.Items))
		}
	})
}

// A list of items that are large has fewer of them on a page, and the rest by its cursor.
func TestALargePageIsCut(t *testing.T) {
	var all []lease.Event
	for i := range maxPageBytes>>20 + 2 {
		all = append(all, lease.Event{Event: lease.EventGranted, Token: lease.Token(i + 1), Sequence: uint64(i + 1), Note: strings.Repeat("n", 1<<20)})
	}
	seen, cursor := 0, ""
	for pages := 1; ; pages++ {
		query := url.Values{}
		if cursor != "" {
			query.Set("next", cursor)
		}
		got, err := page(&call{query: query}, all, historyOrder)
		if err != nil || len(got.Items) == 0 || len(got.Items) > maxPageBytes>>20 {
			t.Fatalf("page %d: %d items, %v", pages, len(got.Items), err)
		}
		for _, e := range got.Items {
			if seen++; e.Sequence != uint64(seen) {
				t.Fatalf("page %d: event %d comes as number %d", pages, e.Sequence, seen)
			}
		}
		if got.Next == nil {
			break
		}
		cursor = *got.Next
	}
	if seen != len(all) {
		t.Errorf("%d events on all pages, want %d", seen, len(all))
	}
}
