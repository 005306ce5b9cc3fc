package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"leasehold/launcher/api"
	"leasehold/lease"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func rowsOf(records ...lease.Record) (rows []*Row) {
	for _, r := range records {
		rows = append(rows, NewRow(lease.Entry{Record: r}))
	}
	return rows
}

// names are the profiles of a page, in order.
func names(p api.ProfilePage) string {
	var all []string
	for _, r := range p.Items {
		all = append(all, r.ProfileID)
	}
	return strings.Join(all, " ")
}

func shop() []*Row {
	rows := rowsOf(
		lease.Record{ProfileID: "shop_1", State: lease.Held, AccountID: "store-1", OwnerWorkerID: "w-7", TaskID: "t-1", Home: "h1", LastKnownURL: "https://shop.example/checkout", AcquiredAt: noon.Add(-time.Minute)},
		lease.Record{ProfileID: "shop_2", State: lease.ManualReview, AccountID: "store-2", OwnerWorkerID: "w-8", Home: "h2", Reason: "heartbeat_timeout", RecoveryStartedAt: noon.Add(-time.Minute)},
		lease.Record{ProfileID: "shop_3", State: lease.ManualReview, Home: "h1", RecoveryStartedAt: noon.Add(-time.Hour), AccountID: "Store-1"},
		lease.Record{ProfileID: "bank_1", State: lease.Available, Home: "h1", ReleasedAt: noon.Add(-time.Second), LastKnownStep: "pay the BILL"},
		lease.Record{ProfileID: "bank_2", State: lease.Available, Home: "h1"},
		lease.Record{ProfileID: "bank_3", State: lease.Available, Home: "h1"},
		lease.Record{ProfileID: "q", State: lease.Quarantined, Home: "h2", SuspectedAt: noon},
		lease.Record{ProfileID: "r", State: lease.ResumePending, Home: "h2"},
	)
	rows[4].CoolUntil = noon.Add(time.Second)
	rows[5].Gone = true
	rows[6].Record.Labels, rows[7].Record.Labels = lease.Labels{"region": "us-east"}, lease.Labels{"region": "us-west", "tier": "1"}
	return rows
}

func TestFiltersAndOrders(t *testing.T) {
	yes, no := true, false
	for name, tt := range map[string]struct {
		q    api.ProfileQuery
		want string
	}{
		"all, by name":           {api.ProfileQuery{}, "bank_1 bank_2 bank_3 q r shop_1 shop_2 shop_3"},
		"backwards":              {api.ProfileQuery{Sort: "-name", Limit: 2}, "shop_3 shop_2"},
		"by attention":           {api.ProfileQuery{Sort: "attention"}, "shop_3 shop_2 q r shop_1 bank_1 bank_2 bank_3"},
		"by account":             {api.ProfileQuery{Sort: "account"}, "shop_3 shop_1 shop_2 bank_1 bank_2 bank_3 q r"},
		"by worker":              {api.ProfileQuery{Sort: "worker", Limit: 3}, "shop_1 shop_2 bank_1"},
		"by host":                {api.ProfileQuery{Sort: "-host", Limit: 3}, "shop_2 r q"},
		"the last change first":  {api.ProfileQuery{Sort: "changed", Limit: 4}, "q bank_1 shop_1 shop_2"},
		"states":                 {api.ProfileQuery{States: []lease.State{lease.Held, lease.Quarantined}}, "q shop_1"},
		"an account, exactly":    {api.ProfileQuery{AccountID: "store-1"}, "shop_1"},
		"accounts by a pattern":  {api.ProfileQuery{AccountID: "store-*"}, "shop_1 shop_2"},
		"a worker":               {api.ProfileQuery{WorkerID: "w-7"}, "shop_1"},
		"a task":                 {api.ProfileQuery{TaskID: "t-*"}, "shop_1"},
		"a host":                 {api.ProfileQuery{Host: "h2"}, "q r shop_2"},
		"part of a URL":          {api.ProfileQuery{URL: "example/check"}, "shop_1"},
		"words":                  {api.ProfileQuery{Words: "BANK bill"}, "bank_1"},
		"a state in words":       {api.ProfileQuery{Words: "manual review heartbeat"}, "shop_2"},
		"free":                   {api.ProfileQuery{Free: &yes}, "bank_1"},
		"not free":               {api.ProfileQuery{Free: &no, Words: "bank"}, "bank_2 bank_3"},
		"labels":                 {api.ProfileQuery{Labels: lease.Labels{"region": "us-*"}}, "q r"},
		"all of the labels":      {api.ProfileQuery{Labels: lease.Labels{"region": "us-*", "tier": "1"}}, "r"},
		"a label without value":  {api.ProfileQuery{Labels: lease.Labels{"region": ""}}, ""},
		"visible":                {api.ProfileQuery{Visible: func(p string) bool { return len(p) == 1 }}, "q r"},
		"a page":                 {api.ProfileQuery{Limit: 3, Offset: 6}, "shop_2 shop_3"},
		"a page behind the last": {api.ProfileQuery{Limit: 3, Offset: 60}, ""},
	} {
		if got := names(List(shop(), tt.q, noon)); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	out := shop()
	for i, change := range map[int]func(*lease.Record){
		0: func(r *lease.Record) { r.SignedIn, r.SignedInSince = lease.SignedInNo, noon },
		3: func(r *lease.Record) { r.SignedIn, r.SignedInSince = lease.SignedInNo, noon.Add(-time.Hour) },
		4: func(r *lease.Record) { r.SignedIn, r.AnotherAccount = lease.SignedInNo, true },
		6: func(r *lease.Record) { r.SignedIn, r.SignedInTriedAt = lease.SignedInYes, noon },
		7: func(r *lease.Record) { r.SignedIn = lease.SignedInYes },
	} {
		change(&out[i].Record)
	}
	out[1].Record.Reason, out[1].Record.State = api.ReasonArchived, lease.Available
	care := List(out, api.ProfileQuery{Sort: "signed_in", WithAccounts: true}, noon)
	if names(care) != "bank_2 bank_1 shop_1 bank_3 shop_3 q r shop_2" || !care.Accounts["bank_3"].Gone || len(care.Accounts) != 8 {
		t.Errorf("whose accounts need somebody: %s, %+v", names(care), care.Accounts)
	}
	of := List(out, api.ProfileQuery{SignedIn: lease.SignedInNo, States: []lease.State{lease.Available}}, noon)
	if names(of) != "bank_1 bank_2" || of.SignedIn[lease.SignedInNo] != 2 || of.SignedIn[lease.SignedInUnknown] != 2 || of.States[lease.Held] != 1 || of.States[lease.Available] != 2 || of.Accounts != nil {
		t.Errorf("signed out and free: %s, %+v, %+v: want what each of the two filters leaves", names(of), of.SignedIn, of.States)
	}
	asking := shop()
	asking[0].Hands.Ask = &api.Ask{Reason: "code", At: noon.Add(-30 * time.Minute)}
	if page := List(asking, api.ProfileQuery{Sort: "attention", Limit: 3}, noon); names(page) != "shop_1 shop_3 shop_2" || page.Asking != 1 || page.Hands["shop_1"].Ask == nil || len(page.Hands) != 1 {
		t.Errorf("with one that asks for a person: %s, %+v", names(page), page)
	}
	page := List(shop(), api.ProfileQuery{Words: "shop", States: []lease.State{lease.Held}, Limit: 1}, noon)
	if page.Total != 1 || page.Next != nil || page.States[lease.ManualReview] != 2 || page.States[lease.Held] != 1 || page.States[lease.Available] != 0 {
		t.Errorf("%+v: want one, and the counts of all states", page)
	}
}

// Whatever the order and the size of a page, the pages are the list, also where a profile
// goes between two of them: the others come once each.
func TestPagesAreTheList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var records []lease.Record
		for i := range rapid.IntRange(0, 40).Draw(rt, "n") {
			records = append(records, lease.Record{
				ProfileID: fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"a", "a-", "b."}).Draw(rt, "name"), i), State: rapid.SampledFrom(api.States).Draw(rt, "state"),
				AccountID: rapid.SampledFrom([]string{"", "x", "y"}).Draw(rt, "account"), Home: rapid.SampledFrom([]string{"", "h"}).Draw(rt, "home"),
				AcquiredAt: noon.Add(time.Duration(rapid.IntRange(-5, 5).Draw(rt, "at")) * time.Hour),
			})
		}
		rows := rowsOf(records...)
		q := api.ProfileQuery{Limit: rapid.IntRange(1, 9).Draw(rt, "limit"), Sort: rapid.SampledFrom([]string{"", "-"}).Draw(rt, "way") + rapid.SampledFrom(api.Sorts).Draw(rt, "sort")}
		gone, got := map[string]bool{}, map[string]int{}
		for {
			page := List(rows, q, noon)
			for _, r := range page.Items {
				got[r.ProfileID]++
			}
			if page.Next == nil {
				break
			}
			q.After = page.Next
			if i := rapid.IntRange(-3, len(rows)-1).Draw(rt, "gone"); i >= 0 {
				gone[rows[i].Record.ProfileID] = true
				rows = slices.Delete(rows, i, i+1)
			}
		}
		for _, r := range records {
			if n := got[r.ProfileID]; n > 1 || n == 0 && !gone[r.ProfileID] {
				rt.Fatalf("%s came %d times", r.ProfileID, n)
			}
		}
	})
}

// scripted is a store whose watch shows what a test says, and whose writes succeed.
type scripted struct {
	lease.Store // nil: what the catalog does not need
	show        chan lease.Sight
	shown       chan struct{}
	refuse      error
}

func (s *scripted) Watch(ctx context.Context, see func(lease.Sight)) error {
	for {
		select {
		case sight := <-s.show:
			see(sight)
			s.shown <- struct{}{}
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *scripted) Swap(_ context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	return lease.Entry{Record: next, Revision: prev.Revision + 1}, s.refuse
}

// TestACooldownFollowsNoWallClock: neither this host's, nor that of the launcher which wrote it. Its
// length is counted from the age of the write when it was first seen, and from then on the monotonic
// clock, in lists and for a record that is read later. With another token, or another end, it is
// another cooldown.
func TestACooldownFollowsNoWallClock(t *testing.T) {
	const days = 48 * time.Hour
	for name, tt := range map[string]struct {
		clock, age, left time.Duration // the writer's clock minus this host's
	}{
		"the clocks agree":                  {0, 0, time.Minute},
		"the writer was ahead":              {days, 0, time.Minute},
		"the writer was behind":             {-days, 0, time.Minute},
		"it was written a while ago":        {0, 20 * time.Second, 40 * time.Second},
		"a while ago, by one who was ahead": {days, 20 * time.Second, 40 * time.Second},
		"it is over":                        {days, time.Hour, time.Minute - time.Hour},
		"the store's clock went back":       {0, -days, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, begun := New(), time.Now()
				cooling := func(token lease.Token, length, age time.Duration) lease.Entry {
					at := begun.Add(tt.clock).UTC() // without a monotonic reading, as the store has it
					return lease.Entry{Age: age, Record: lease.Record{
						ProfileID: "p", State: lease.Available, Token: token, ReleasedAt: at.Round(0), AvailableAfter: at.Add(length).Round(0),
					}}
				}
				listed := func() time.Time {
					rows, _, _ := c.Rows()
					return rows[0].CoolUntil
				}
				e := cooling(7, time.Minute, tt.age)
				e.Revision = 1
				if got := c.CoolUntil(e).Sub(begun); got != tt.left {
					t.Errorf("before it is in the catalog: %v left, want %v", got, tt.left)
				}
				c.written(e)
				time.Sleep(10 * time.Second)
				e.Age, e.Revision = 0, 2
				c.see(lease.Sight{Entry: e}) // what the watch shows once more
				for what, got := range map[string]time.Time{"read": c.CoolUntil(e), "listed": listed()} {
					if left := got.Sub(begun); left != tt.left {
						t.Errorf("%s: it ends after %v, want %v", what, left, tt.left)
					}
				}
				for _, other := range []lease.Entry{cooling(8, time.Minute, 0), cooling(7, time.Hour, 0)} {
					if got := time.Until(c.CoolUntil(other)); got != other.Record.Cooldown() {
						t.Errorf("another cooldown: %v left, want %v", got, other.Record.Cooldown())
					}
				}
			})
		})
	}
	r := lease.Record{ProfileID: "p", Token: 7, ReleasedAt: noon}
	if got := New().CoolUntil(lease.Entry{Record: r}); !got.IsZero() {
		t.Errorf("none: %v", got)
	}
	r.AvailableAfter = noon.Add(time.Minute)
	if got := New().CoolUntil(lease.Entry{Record: r}); got.String() == got.Round(0).String() {
		t.Errorf("%v has no reading of the monotonic clock", got)
	}
}

// TestTheCatalogFollowsTheStore: what the watch shows, this launcher's own writes, and a
// watch that begins anew because the store went back.
func TestTheCatalogFollowsTheStore(t *testing.T) {
	s := &scripted{show: make(chan lease.Sight), shown: make(chan struct{})}
	c := New()
	store := Watched(s, c)
	watching := 0
	go func() {
		_ = store.Watch(t.Context(), func(lease.Sight) { watching++ }) // it ends with the test
	}()
	show := func(sights ...lease.Sight) {
		for _, sight := range sights {
			s.show <- sight
			<-s.shown
		}
	}
	record := func(profile string, token lease.Token, revision uint64) lease.Sight {
		return lease.Sight{Entry: lease.Entry{Record: lease.Record{ProfileID: profile, State: lease.Held, Token: token}, Revision: revision}}
	}
	want := func(what, texts string, complete bool) {
		t.Helper()
		rows, is, _ := c.Rows()
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprintf("%s/%d", r.Record.ProfileID, r.Record.Token))
		}
		slices.Sort(got)
		if now := strings.Join(got, " "); now != texts || is != complete {
			t.Errorf("%s: %s, complete %v, want %s, %v", what, now, is, texts, complete)
		}
	}
	show(lease.Sight{Fresh: true}, record("p", 1, 5), record("q", 1, 6))
	want("before all is shown", "p/1 q/1", false)
	changed := c.Changed()
	show(lease.Sight{Complete: true})
	want("at first", "p/1 q/1", true)
	select {
	case <-changed:
	default:
		t.Error("nobody was told of a change")
	}
	swap := func(profile string, token lease.Token, revision uint64) {
		prev := lease.Entry{Record: lease.Record{ProfileID: profile}, Revision: revision - 1}
		if _, err := store.Swap(t.Context(), prev, lease.Record{ProfileID: profile, State: lease.Held, Token: token}); !errors.Is(err, s.refuse) {
			t.Errorf("error %v, want %v", err, s.refuse)
		}
	}
	swap("p", 2, 9)
	want("an own write", "p/2 q/1", true)
	show(record("p", 1, 8))
	want("what was stored before the own write, and is shown after it", "p/2 q/1", true)
	show(record("p", 3, 12))
	swap("p", 2, 10) // its answer comes late
	want("an own write that somebody wrote over", "p/3 q/1", true)
	s.refuse = lease.ErrUnavailable
	swap("q", 9, 20)
	want("a write that is not known to be stored", "p/3 q/1", true)
	show(lease.Sight{Entry: lease.Entry{Record: lease.Record{ProfileID: "q"}, Revision: 13}})
	want("a record that was deleted", "p/3", true)

	show(record("q", 5, 14), lease.Sight{Fresh: true, Stepped: true})
	want("while the watch begins anew", "p/3 q/5", false)
	s.refuse = nil
	swap("p", 4, 3) // the store that went back counts from a lower revision
	show(record("r", 1, 2), lease.Sight{Complete: true})
	want("after the store went back", "p/4 r/1", true)
}

// tenThousand are the profiles of a hundred hosts.
func tenThousand() []*Row {
	var rows []*Row
	for i := range 10000 {
		state := lease.Available
		switch i % 50 {
		case 0:
			state = lease.ManualReview
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
			state = lease.Held
		}
		rows = append(rows, NewRow(lease.Entry{Record: lease.Record{
			ProfileID: fmt.Sprintf("profile_us_%05d", i), AccountID: fmt.Sprintf("store_us_%05d", i), ProxyID: fmt.Sprintf("proxy-us-%d", i%100), State: state,
			OwnerWorkerID: fmt.Sprintf("worker-%d", i%500), TaskID: fmt.Sprintf("task_%d", i), Home: fmt.Sprintf("host-%02d", i%100), LauncherID: fmt.Sprintf("host-%02d", i%100),
			LastKnownURL: fmt.Sprintf("https://shop.example/orders/%d?view=all", i), LastKnownStep: "open_orders", Reason: "connection_closed",
			AcquiredAt: noon.Add(-time.Duration(i) * time.Second), RecoveryStartedAt: noon.Add(-time.Duration(i) * time.Second), ReleasedAt: noon.Add(-time.Duration(i) * time.Second),
		}}))
	}
	return rows
}

// BenchmarkFirstPage is what the first page of ten thousand profiles costs: as the console
// opens, and searched.
func BenchmarkFirstPage(b *testing.B) {
	rows := tenThousand()
	for name, q := range map[string]api.ProfileQuery{
		"attention": {Sort: api.SortAttention, Limit: 50},
		"words":     {Sort: api.SortAttention, Limit: 50, Words: "orders/77 open"},
		"account":   {AccountID: "store_us_0*", Limit: 50},
		"all":       {},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if List(rows, q, noon).Total == 0 {
					b.Fatal("nothing found")
				}
			}
		})
	}
}
