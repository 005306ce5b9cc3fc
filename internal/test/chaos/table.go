package chaos

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"leasehold/lease"
)

// printTable prints what happened and what was violated.
func printTable(out io.Writer, h *harness, entries []Entry, found []Violation, took time.Duration) {
	kinds := map[Kind]int{}
	texts := map[Kind]map[string]int{}
	decisions := map[string]int{}
	ambiguous := map[string]int{}
	for _, e := range entries {
		kinds[e.Kind]++
		if texts[e.Kind] == nil {
			texts[e.Kind] = map[string]int{}
		}
		texts[e.Kind][e.Text]++
		if e.Kind == Published && e.Event.Decision != "" && e.Event.Event == string(e.Event.State) && e.Event.Reviewer == "" {
			decisions[e.Event.Decision]++
		}
		if e.Kind == Unknown {
			ambiguous["no answer to "+e.Text]++
		}
	}
	exits := map[string]int{}
	for _, host := range h.hosts {
		for status, n := range host.exits {
			exits[fmt.Sprintf("status %d", status)] += n
		}
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	section := func(name string, counts map[string]int) {
		for i, k := range sortedKeys(counts) {
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(t, "%s\t%s\t%d\n", name, k, counts[k])
		}
	}
	row := func(name, what string, n int) { fmt.Fprintf(t, "%s\t%s\t%d\n", name, what, n) }
	fmt.Fprintf(t, "seed %d, %d NATS nodes, %d launchers, TTL %v, %v of faults, %v in all\n", h.Seed, h.Nodes, len(h.hosts), h.TTL, h.Duration, took.Round(time.Second))
	for i, f := range h.Faults {
		name := ""
		if i == 0 {
			name = "faults"
		}
		row(name, f, texts[Fault][f])
	}
	possible := h.Possible()
	for _, f := range (Here{Isolated: true, Images: true, Nodes: h.Nodes}).Possible() {
		switch {
		case !slices.Contains(possible, f):
			fmt.Fprintf(t, "not available here\t%s\t-\n", f)
		case !slices.Contains(h.Faults, f):
			fmt.Fprintf(t, "left out\t%s\t-\n", f)
		}
	}
	row("grants", "", kinds[Granted])
	row("releases", "answered", kinds[Released])
	if h.snapshots != nil {
		have := shown(entries)
		section("asked", texts[Asked])
		row("waiters", "granted after they waited", have[waitedFor])
		row("", "seen at another launcher", kinds[Queued])
		row("", "of the last probe, served", kinds[Served])
		section("moves", texts[Moved])
		row("", "of these, while the home was lost", have[movedFromLost])
		row("", "of these, back to a home of before", have[movedBack])
		section("moves refused", texts[NotMoved])
		row("snapshots", "made", have[snapshotMade])
		section("snapshots verified", texts[Checked])
		row("state", "written at the end of a session", kinds[Wrote])
		row("", "looked for in a later one", kinds[Found])
		row("browsers started", "", kinds[Opened])
		row("readers", "had", kinds[Reader])
		row("", "that looked what the profile has", kinds[ReaderFound])
		row("", "released", kinds[ReaderEnded])
		row("", "requests", kinds[ReaderRequest])
		section("readers refused", texts[ReaderRefused])
	}
	section("recoveries", decisions)
	row("reviews", "approved", kinds[Reviewed])
	section("refusals", texts[Refused])
	section("connections lost", texts[Closed])
	section("late writes refused", texts[Fenced])
	row("writes accepted", "", kinds[Accepted])
	row("witness requests", "", kinds[Requested])
	row("looks for two browsers", "", h.watcher.looks)
	row("events seen", "", kinds[Published])
	section("ambiguous", ambiguous)
	section("launchers that ended by themselves", exits)
	violations := map[string]int{}
	for _, v := range found {
		violations[v.Kind]++
	}
	for i, k := range Violations {
		name := ""
		if i == 0 {
			name = "violations"
		}
		row(name, k, violations[k])
	}
	_ = t.Flush() // writing to the harness's own output does not fail
	printViolations(out, h, found)
}

// maxPrinted is how many violations are printed in full.
const maxPrinted = 12

func printViolations(out io.Writer, h *harness, found []Violation) {
	for i, v := range found {
		if i == maxPrinted {
			fmt.Fprintf(out, "\nand %d more\n", len(found)-maxPrinted)
			break
		}
		fmt.Fprintf(out, "\nVIOLATED %s: %s %s\n", v.Kind, v.Profile, v.Text)
		related := slices.Clone(v.Related)
		slices.SortStableFunc(related, func(a, b Entry) int { return int(a.At.Sub(b.At)) })
		for _, e := range related {
			fmt.Fprintf(out, "  %s\n", e.describe())
		}
	}
	if len(found) > 0 {
		fmt.Fprintf(out, "\nlogs and history: %s\n", h.LogDir)
	}
}

// describe returns an entry in one line.
func (e Entry) describe() string {
	at := time.Duration(e.At).Round(time.Millisecond)
	if e.Event != nil {
		return fmt.Sprintf("%v %s epoch %d #%d %s token %d sequence %d state %s reason %s session %s launcher %s", at, e.Kind, e.Epoch, e.StreamSeq,
			e.Event.Event, e.Event.Token, e.Event.Sequence, e.Event.State, e.Event.Reason, e.Event.SessionID, e.Event.LauncherID)
	}
	text := fmt.Sprintf("%v %s", at, e.Kind)
	if e.Token != lease.Token(0) {
		text += fmt.Sprintf(" token %d", e.Token)
	}
	for _, s := range []string{e.Session, e.Worker, e.Launcher, e.Text} {
		if s != "" {
			text += " " + s
		}
	}
	return text
}
