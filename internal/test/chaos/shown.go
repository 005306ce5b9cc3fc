package chaos

import (
	"context"
	"slices"
	"time"

	"leasehold/lease"
)

// calm lets the workers work without faults, until everything that a test run has to show
// has happened at least once. What takes more than calm is left to travel.
func (h *harness) calm(ctx context.Context) {
	sleep(ctx, calmTime)
	for deadline := time.Now().Add(unseenTime); time.Now().Before(deadline); sleep(ctx, 200*time.Millisecond) {
		left := h.unseen()
		if len(slices.DeleteFunc(left, func(what string) bool { return slices.Contains(travelled, what) })) == 0 {
			return
		}
	}
}

// travelled is what travel has happen.
var travelled = []string{movedFromLost, movedBack, string(Moved) + " " + movedByItself, string(Moved) + " " + movedByOperator, string(Moved) + " " + movedByPerson, snapshotMade}

// travel has profiles move, where none did under faults, once no worker wants them any more: by
// the loss of their home, and by people.
func (h *harness) travel(ctx context.Context) {
	lacks := func() bool {
		return slices.ContainsFunc(h.unseen(), func(what string) bool { return slices.Contains(travelled, what) })
	}
	for deadline := time.Now().Add(unseenTime); lacks() && time.Now().Before(deadline); {
		for _, r := range h.people.roaming() {
			if !lacks() {
				return
			}
			if err := h.moveByLoss(ctx, r); err != nil {
				h.broken(Harness, r.ProfileID, "%v", err)
			}
		}
	}
}

// moveByLoss has a session end in order at a profile's home, loses that host, and asks for the
// profile elsewhere until it is had, or the host is back. Only an error of the harness is one.
func (h *harness) moveByLoss(ctx context.Context, r lease.Record) error {
	home := h.people.find(r.Home)
	if home == nil || h.people.uses(ctx, home, r.ProfileID) != nil {
		return nil
	}
	for deadline := time.Now().Add(readyTime); ; sleep(ctx, 100*time.Millisecond) {
		now := h.people.record(r.ProfileID)
		if now.Home != home.name || time.Now().After(deadline) { // somebody has moved it
			return nil
		}
		if now.MayMove() == nil {
			break
		}
	}
	if err := h.lose(ctx, home); err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * h.TTL); h.people.record(r.ProfileID).Home == home.name && time.Now().Before(deadline); {
		for _, other := range h.hosts {
			if other != home && !other.sharesWith(home.name) {
				_ = h.people.uses(ctx, other, r.ProfileID) // it is refused until its home counts as gone
			}
		}
		sleep(ctx, h.TTL/8)
	}
	err := home.start()
	h.history.Add(Entry{Kind: Healed, Text: HostLost})
	return err
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
	for _, k := range []Kind{Found, Wrote, Opened, Queued, Reader, ReaderFound, ReaderRequest, ReaderEnded} {
		all = append(all, string(k))
	}
	for _, way := range []string{byLabels, byAccount, byTurn, byRedirect, byPriority} {
		all = append(all, string(Asked)+" "+way)
	}
	for _, way := range []string{movedByItself, movedByOperator, movedByPerson} {
		all = append(all, string(Moved)+" "+way)
	}
	all = append(all, movedFromLost, movedBack, snapshotMade, waitedFor)
	if !h.Isolated { // no host can be lost
		all = slices.DeleteFunc(all, func(what string) bool { return slices.Contains(travelled, what) })
	}
	return all
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
