package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"leasehold/lease"
)

// calm lets the workers work without faults, until everything that a test run has to show
// has happened at least once. A host is lost again as long as no profile has moved for that.
func (h *harness) calm(ctx context.Context, rnd *rand.Rand) {
	sleep(ctx, calmTime)
	for deadline := time.Now().Add(unseenTime); time.Now().Before(deadline); sleep(ctx, 200*time.Millisecond) {
		left := h.unseen()
		if len(left) == 0 {
			return
		}
		if slices.Contains(left, movedFromLost) || slices.Contains(left, string(Moved)+" "+movedByItself) {
			if err := h.loseHost(ctx, rnd); err != nil {
				h.broken(Harness, "", "%v", err)
			}
			h.history.Add(Entry{Kind: Healed, Text: HostLost})
			sleep(ctx, 4*h.TTL)
		}
	}
}

// wanted are the entries that a test run has to show, as their kinds or as their kinds and texts.
func (h *harness) wanted() []string {
	var all []string
	for _, k := range []Kind{Granted, Released, Refused, Requested, Accepted, Published} {
		all = append(all, string(k))
	}
	if h.snapshots == nil {
		return all
	}
	for _, k := range []Kind{Found, Wrote, Opened, Queued} {
		all = append(all, string(k))
	}
	for _, way := range []string{byLabels, byAccount, byTurn, byRedirect, byPriority} {
		all = append(all, string(Asked)+" "+way)
	}
	for _, way := range []string{movedByItself, movedByOperator, movedByPerson} {
		all = append(all, string(Moved)+" "+way)
	}
	return append(all, movedFromLost, movedBack, snapshotMade, waitedFor)
}

// What a test run has to show that no single entry says.
const (
	movedFromLost = "a profile moved while its home was lost"
	movedBack     = "a profile came back to a home that it had left"
	snapshotMade  = "a snapshot was made"
	waitedFor     = "a request was granted after it waited"
)

// shown are what a history shows, by the names of wanted, and how often.
func shown(entries []Entry) map[string]int {
	n := map[string]int{}
	lost := map[string]bool{}
	homes := map[string]map[string]bool{} // by profile
	for _, e := range entries {
		n[string(e.Kind)]++
		n[string(e.Kind)+" "+e.Text]++
		switch {
		case e.Kind == Fault && e.Text == HostLost:
			lost[e.Launcher] = true
		case e.Kind == Healed && e.Text == HostLost:
			clear(lost)
		case e.Kind == Moved:
			if lost[e.Move.From] {
				n[movedFromLost]++
			}
			if homes[e.Profile] == nil {
				homes[e.Profile] = map[string]bool{}
			}
			homes[e.Profile][e.Move.From] = true
			if homes[e.Profile][e.Home] {
				n[movedBack]++
			}
		case e.Kind == Published && e.Event.Event == lease.EventSnapshotMade:
			n[snapshotMade]++
		case e.Kind == Granted && e.At.Sub(e.Since) > waitedLong && e.Waited:
			n[waitedFor]++
		}
	}
	return n
}

// waitedLong is longer than a grant takes for which nobody waits, on a quiet host.
const waitedLong = 2 * time.Second

// unseen returns what a test run has to show and is still missing.
func (h *harness) unseen() []string {
	have := shown(h.history.Entries())
	return slices.DeleteFunc(h.wanted(), func(what string) bool { return have[what] > 0 })
}
