package catalog

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/queue"
	"leasehold/lease"
)

// List returns the page of the rows that a query asks for. It is a pure function of the rows
// and now.
func List(rows []*Row, q api.ProfileQuery, now time.Time) api.ProfilePage {
	page := api.ProfilePage{Items: []api.Profile{}, States: map[lease.State]int{}, SignedIn: map[lease.SignedIn]int{}, Hands: map[string]api.InHands{}}
	words := strings.Fields(strings.ToLower(q.Words))
	var found []*Row
	for _, r := range rows {
		if !matches(r, q, words, now) {
			continue
		}
		inState := len(q.States) == 0 || slices.Contains(q.States, r.Record.State)
		if inState {
			page.SignedIn[r.Record.SignedIn]++
		}
		if q.SignedIn != "" && q.SignedIn != r.Record.SignedIn {
			continue
		}
		page.States[r.Record.State]++
		if r.Hands.Ask != nil {
			page.Asking++
		}
		if inState {
			found = append(found, r)
		}
	}
	page.Total = len(found)
	sorted := inOrder(found, q.Sort)
	from := max(q.Offset, 0)
	if q.After != nil {
		order := comparison(q.Sort)
		from, _ = slices.BinarySearchFunc(sorted, *q.After, func(p positioned, at string) int {
			return cmp.Or(order(p.position, at), -1) // an entry at the position itself is behind it
		})
	}
	sorted = sorted[min(from, len(sorted)):]
	if q.Limit > 0 && len(sorted) > q.Limit {
		sorted = sorted[:q.Limit]
		page.Next = &sorted[q.Limit-1].position
	}
	page.Items = slices.Grow(page.Items, len(sorted))
	if q.WithAccounts {
		page.Accounts = make(map[string]api.AccountCare, len(sorted))
	}
	for _, p := range sorted {
		page.Items = append(page.Items, api.Profile{Record: p.row.Record})
		if q.WithAccounts {
			r := p.row.Record
			r.AvailableAfter = p.row.CoolUntil
			page.Accounts[r.ProfileID] = api.AccountCare{NextCheck: r.NextCheck(), Gone: p.row.Gone}
		}
		if p.row.Hands != (api.InHands{}) {
			page.Hands[p.row.Record.ProfileID] = p.row.Hands
		}
	}
	return page
}

// matches tells whether a query asks for a row, whatever its state and whether its account is signed
// in.
func matches(r *Row, q api.ProfileQuery, words []string, now time.Time) bool {
	rec := &r.Record
	if !is(q.AccountID, rec.AccountID) || !is(q.WorkerID, rec.OwnerWorkerID) || !is(q.TaskID, rec.TaskID) || !is(q.Host, rec.Home) || !strings.Contains(rec.LastKnownURL, q.URL) {
		return false
	}
	if q.Free != nil && *q.Free != isFree(r, now) {
		return false
	}
	if !queue.HasLabels(rec.Labels, q.Labels) {
		return false
	}
	for _, w := range words {
		if !strings.Contains(r.text, w) {
			return false
		}
	}
	return q.Visible == nil || q.Visible(rec.ProfileID)
}

// is tells whether a value is the wanted one, or matches it if that is a pattern.
func is(wanted, value string) bool {
	return wanted == "" || principal.Patterns{wanted}.Match(value)
}

// isFree tells whether a task of which nothing is known could get the profile now.
func isFree(r *Row, now time.Time) bool {
	return r.Record.State == lease.Available && !r.Gone && !r.NotNow && !r.Record.SignedOut() && !now.Before(r.CoolUntil)
}

// positioned is a row with its position in an order, as a text that sorts in that order. The
// position stays valid when the row is gone.
type positioned struct {
	position string
	row      *Row
}

func inOrder(rows []*Row, sort string) []positioned {
	all := make([]positioned, len(rows))
	position := positions[cmp.Or(strings.TrimPrefix(sort, "-"), api.SortName)]
	for i, r := range rows {
		all[i] = positioned{position(r), r}
	}
	order := comparison(sort)
	slices.SortFunc(all, func(a, b positioned) int { return order(a.position, b.position) })
	return all
}

func comparison(sort string) func(a, b string) int {
	if strings.HasPrefix(sort, "-") {
		return func(a, b string) int { return strings.Compare(b, a) }
	}
	return strings.Compare
}

// positions are the positions of a row in each order. Each ends with the profile's name, so
// that no two are the same. A separator that sorts before everything else keeps "a" before
// "a-b".
var positions = map[string]func(*Row) string{
	api.SortName:    func(r *Row) string { return r.Record.ProfileID },
	api.SortAccount: func(r *Row) string { return filled(r.Record.AccountID) + "\x00" + r.Record.ProfileID },
	api.SortHost:    func(r *Row) string { return filled(r.Record.Home) + "\x00" + r.Record.ProfileID },
	api.SortWorker:  func(r *Row) string { return filled(r.Record.OwnerWorkerID) + "\x00" + r.Record.ProfileID },
	api.SortAttention: func(r *Row) string {
		rank, since := attention(r)
		return strconv.Itoa(rank) + timeText(since) + "\x00" + r.Record.ProfileID
	},
	api.SortSignedIn: func(r *Row) string {
		rank, since := accountRank(r)
		return strconv.Itoa(rank) + timeText(since) + "\x00" + r.Record.ProfileID
	},
	api.SortChanged: func(r *Row) string {
		return backwards(timeText(Since(r.Record))) + "\x00" + r.Record.ProfileID
	},
}

// filled makes an empty text sort last.
func filled(text string) string { return cmp.Or(text, "\uffff") }

// attention is how much a profile needs attention: the least number comes first, and among
// equals the one that has waited longest. A worker that asks waits for minutes, a review for hours.
func attention(r *Row) (rank int, since time.Time) {
	if r.Hands.Ask != nil {
		return 0, r.Hands.Ask.At
	}
	switch r.Record.State {
	case lease.ManualReview:
		return 1, Since(r.Record)
	case lease.SuspectedStale, lease.Quarantined, lease.Inspected:
		return 2, Since(r.Record)
	case lease.ResumePending:
		return 3, time.Time{}
	case lease.Held:
		return 4, time.Time{}
	}
	return 5, time.Time{}
}

// accountRank is how much a profile's account needs somebody: the least number comes first, and among
// equals the one that has needed it for the longest time.
func accountRank(r *Row) (rank int, since time.Time) {
	switch rec := r.Record; {
	case api.StateShown(rec) != string(rec.State): // it was archived or removed
		return 7, time.Time{}
	case rec.AnotherAccount:
		return 0, rec.SignedInSince
	case rec.SignedOut():
		return 1, rec.SignedInSince
	case r.Gone:
		return 2, time.Time{}
	case rec.State == lease.ManualReview:
		return 3, Since(rec)
	case !rec.SignedInTriedAt.IsZero():
		return 4, rec.SignedInTriedAt
	case rec.SignedIn != lease.SignedInYes:
		return 5, time.Time{}
	}
	return 6, time.Time{}
}

// Since is since when a profile has been in its state, according to its record.
func Since(r lease.Record) time.Time {
	switch r.State {
	case lease.Held:
		return r.AcquiredAt
	case lease.SuspectedStale:
		return r.SuspectedAt
	case lease.Quarantined, lease.Inspected, lease.ManualReview:
		if r.RecoveryStartedAt.IsZero() {
			return r.SuspectedAt
		}
		return r.RecoveryStartedAt
	}
	since := r.ReleasedAt
	for _, at := range []time.Time{r.RecoveryStartedAt, r.AcquiredAt} {
		if at.After(since) {
			since = at
		}
	}
	if r.Review != nil && r.Review.At.After(since) {
		since = r.Review.At
	}
	return since
}

// timeText is a time as a text that sorts as times do; the zero time sorts first.
func timeText(t time.Time) string {
	var digits [19]byte
	n := uint64(0)
	if !t.IsZero() {
		n = uint64(max(t.UnixNano(), 0))
	}
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return string(digits[:])
}

// backwards is a text of digits that sorts in reverse.
func backwards(digits string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '9' - (r - '0')
		}
		return r
	}, digits)
}
