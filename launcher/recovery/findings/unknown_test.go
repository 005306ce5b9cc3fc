package findings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
)

// TestUnknownShapesAreCounted: each once for a session, with what the probes of its own site showed; not
// what is known, nor what sites outside the account's domains got.
func TestUnknownShapesAreCounted(t *testing.T) {
	t.Parallel()
	request := func(u, known string) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: u, Shape: "POST " + u, Known: known, KnownBy: "shop: POST /a is " + known}
	}
	blocked := request("https://shop.example/blocked", "")
	blocked.Blocked = true
	journal := []checkpoint.Entry{
		request("https://shop.example/like", ""), request("https://shop.example/like", ""), request("https://shop.example/buy", site.Write), blocked,
		request("https://own.example/save", ""), request("https://stats.example/hit", ""),
	}
	orders := questions(t)["shop/orders"]
	task := Task{Sites: sites(t, askedFile), ExpectedDomains: []string{"own.example"}}
	for _, tt := range []struct {
		answers []site.Compared
		shop    string
	}{
		{nil, "1 session, 0 unchanged, 0 changed"},
		{[]site.Compared{{Answer: site.Answer{Question: orders}, Equal: true}}, "1 session, 1 unchanged, 0 changed"},
		{[]site.Compared{{Answer: site.Answer{Question: orders}, Moved: true}}, "1 session, 0 unchanged, 1 changed"},
	} {
		var got []string
		for name, tally := range Unknown(checkpoint.Summarize(journal), task, tt.answers, "profile_1", time.Unix(7, 0)) {
			for shp, c := range tally {
				got = append(got, fmt.Sprintf("%s: %s: %d session, %d unchanged, %d changed", name, shp, c.Sessions, c.Unchanged, c.Changed))
				if len(c.Accounts) != 1 || strings.Contains(c.Accounts[0], "profile") || !c.LastAt.Equal(time.Unix(7, 0)) {
					t.Errorf("%s: %+v", shp, c)
				}
			}
		}
		slices.Sort(got)
		want := []string{"own-example: POST https://own.example/save: 1 session, 0 unchanged, 0 changed", "shop: POST https://shop.example/like: " + tt.shop}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
