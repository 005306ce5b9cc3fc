package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/wording"
	"leasehold/evidence/recorder"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery/findings"
)

// moment is one thing that happened, as one line for a person. Its texts may come from a
// hostile page: the template escapes them, and plain cleans them.
type moment struct {
	At time.Time
	// Kind is one word for what it is; the style sheet knows some of them.
	Kind string
	Text string
	// Shown is Text without the origin of the page that the view begins with.
	Shown string
	// Note is the outcome, or what else one should know about it.
	Note string
	// Asked says that it asked something of the site or of a person: such moments are kept if a
	// list is cut.
	Asked bool
	// Warns says that it speaks against letting the profile go.
	Warns bool
	// Quiet says that it is a request that the inspection does not count.
	Quiet bool
	// Since says that the last safe checkpoint does not vouch for it.
	Since bool
	Times uint64
}

// weighed are the moments as the inspection judged them: a request that it does not count is quiet,
// and its note says why. Where nothing is decided, nothing speaks against it: decides tells whether
// something is.
func weighed(all []moment, requests []api.UnsafeRequest, decides bool) []moment {
	list := slices.Clone(all)
	for i := range list {
		m := &list[i]
		for _, r := range requests {
			if r.Counts != "" && r.Counts != "unsafe" && r.At.Equal(m.At) && strings.TrimSpace(r.Method+" "+r.URL) == m.Text {
				m.Quiet, m.Asked, m.Warns, m.Note = true, false, false, wording.Joined(m.Note, r.Counts)
				break
			}
		}
		m.Warns = m.Warns && decides
	}
	return list
}

// within are the moments as they are shown beside a page: URLs of its origin as their path.
func within(page string, all []moment) []moment {
	u, err := url.Parse(page)
	for i := range all {
		if all[i].Shown = all[i].Text; err == nil && u.Host != "" {
			all[i].Shown = strings.ReplaceAll(all[i].Text, u.Scheme+"://"+u.Host+"/", "/")
		}
	}
	return all
}

// quiet splits the moments into those that are not quiet, and those that are, each of these once.
func quiet(all []moment) (loud, background []moment) {
	for _, m := range all {
		if !m.Quiet {
			loud = append(loud, m)
			continue
		}
		at := slices.IndexFunc(background, func(b moment) bool { return b.Text == m.Text && b.Note == m.Note })
		if at < 0 {
			background = append(background, m)
			continue
		}
		background[at].Times += max(m.Times, 1)
	}
	return loud, background
}

// runs are the moments with each run of equal ones as one.
func runs(all []moment) (list []moment) {
	for _, m := range all {
		if last := len(list) - 1; last >= 0 && list[last].Kind == m.Kind && list[last].Text == m.Text && list[last].Note == m.Note && list[last].Since == m.Since {
			list[last].Times = max(list[last].Times, 1) + max(m.Times, 1)
			continue
		}
		list = append(list, m)
	}
	return list
}

// momentsOf turns a journal into moments, oldest first. An unsafe request includes its answer.
// commands are the last commands of the worker.
func momentsOf(entries []checkpoint.Entry, commands []recorder.CommandEntry) []moment {
	sum := checkpoint.Summarize(entries)
	answered, since := map[[2]uint64]checkpoint.Entry{}, map[[2]uint64]bool{}
	for _, e := range sum.Unsafe {
		answered[[2]uint64{e.Token, e.Seq}] = e
	}
	for _, e := range sum.UnsafeSince {
		since[[2]uint64{e.Token, e.Seq}] = true
	}
	var list []moment
	after := sum.LastSafe == nil
	for _, e := range entries {
		at := [2]uint64{e.Token, e.Seq}
		if request, ok := answered[at]; ok && e.Kind == checkpoint.KindRequest {
			e = request
		}
		m, told := momentOf(e)
		if told && !(e.Kind == checkpoint.KindForm && sent(sum.Unsafe, e)) {
			m.At, m.Times, m.Since = e.At, e.Times(), after || since[at]
			if m.Since && !after {
				m.Note = strings.TrimPrefix(m.Note+"; sent before the checkpoint, which cannot vouch for it", "; ")
			}
			list = append(list, m)
		}
		if s := sum.LastSafe; s != nil && e.Kind == checkpoint.KindCheckpoint && e.Seq == s.Seq && e.Token == s.Token {
			after = true
		}
	}
	for _, m := range typing(commands, entries) {
		m.Since = sum.LastSafe == nil || m.At.After(sum.LastSafe.At)
		list = append(list, m)
	}
	slices.SortStableFunc(list, func(a, b moment) int { return a.At.Compare(b.At) })
	return list
}

// sent tells whether a form is already included, as the request that submitted it.
func sent(requests []checkpoint.Entry, form checkpoint.Entry) bool {
	return slices.ContainsFunc(requests, func(r checkpoint.Entry) bool {
		return strings.EqualFold(r.Method, form.Method) && r.URL == form.URL
	})
}

// momentOf turns one entry into a moment; false if it means nothing to a person, or is shown elsewhere:
// the end, the answer to an unsafe request, which is shown with the request, and one that did not
// refuse, which shows in the page to which it led.
func momentOf(e checkpoint.Entry) (moment, bool) {
	l, ok := wording.Of(e)
	switch {
	case e.Kind == checkpoint.KindEnd, e.Kind == checkpoint.KindAnswer && e.SignIn == "" && (e.Request != "" || !refuses(e)):
		return moment{}, false
	}
	return moment{Kind: l.What, Text: l.Text, Note: wording.Joined(l.Notes...), Asked: l.Asked, Warns: l.Warns}, ok
}

// refuses tells whether an answer refuses what the account asked for.
func refuses(e checkpoint.Entry) bool {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusTooManyRequests, http.StatusUnavailableForLegalReasons:
		return true
	}
	return e.Committed && e.Status >= http.StatusBadRequest
}

// typing are the worker's commands that entered text, if the journal does not say into which
// fields. Consecutive commands to one page are one moment. What was typed is not kept anywhere.
func typing(commands []recorder.CommandEntry, journal []checkpoint.Entry) []moment {
	var list []moment
	var ends []recorder.CommandEntry // the last command of each moment
	target := ""
	for _, c := range commands {
		acts, types := findings.CommandEffect([]byte(c.Method), nil)
		switch last := len(list) - 1; {
		case types && last >= 0 && target == c.Target:
			list[last].Times++
			ends[last] = c
		case types:
			list, target = append(list, moment{At: c.At, Kind: "typed", Asked: true, Text: "into the page; what it was is not kept", Times: 1}), c.Target
			ends = append(ends, c)
		case acts:
			target = ""
		}
	}
	var untold []moment
	for i, m := range list {
		told := slices.ContainsFunc(journal, func(e checkpoint.Entry) bool {
			return e.Kind == checkpoint.KindTyped && e.Target == ends[i].Target && e.At.After(m.At.Add(-toldBefore)) && e.At.Before(ends[i].At.Add(toldAfter))
		})
		if !told {
			m.Note, m.Times = fmt.Sprintf("commands: %d", m.Times), 1
			untold = append(untold, m)
		}
	}
	return untold
}

// The journal reports typing into a field a moment after it, and once while it goes on.
const toldBefore, toldAfter = time.Minute, 2 * time.Second

// keptOf are the unsafe requests, and the fields that were typed into, that an inspection has
// kept. They are for a session whose journal cannot be read.
func keptOf(found api.Inspection) []moment {
	var list []moment
	for _, r := range found.UnsafeRequests {
		if r.SinceSafeCheckpoint {
			list = append(list, moment{At: r.At, Kind: "request", Text: r.Method + " " + r.URL, Note: wording.Joined(r.Content(), r.Answer, r.KnownBy), Asked: true, Warns: true, Since: true, Times: r.Times})
		}
	}
	for _, t := range found.Typed {
		if t.SinceSafeCheckpoint {
			e := checkpoint.Entry{Kind: checkpoint.KindTyped, Name: t.Field, URL: t.URL, Person: t.Person}
			list = append(list, moment{At: t.At, Kind: string(e.Kind), Text: wording.Typed(e), Asked: true, Since: true, Times: t.Times})
		}
	}
	slices.SortStableFunc(list, func(a, b moment) int { return a.At.Compare(b.At) })
	return list
}

// since are the moments for which the last safe checkpoint does not vouch, without those that
// say nothing about the site.
func since(all []moment) []moment {
	var list []moment
	for _, m := range all {
		if m.Since && m.Kind != wording.Begins && m.Kind != string(checkpoint.KindConnection) {
			list = append(list, m)
		}
	}
	return list
}

// foremost are at most n of the moments, in their order. Those that asked for something, or
// warn, are kept first, and later ones before earlier ones.
func foremost(all []moment, n int) []moment {
	if len(all) <= n {
		return all
	}
	keep := make([]bool, len(all))
	for _, wanted := range []bool{true, false} {
		for i := range slices.Backward(all) {
			if n > 0 && !keep[i] && (all[i].Asked || all[i].Warns) == wanted {
				keep[i] = true
				n--
			}
		}
	}
	var list []moment
	for i, m := range all {
		if keep[i] {
			list = append(list, m)
		}
	}
	return list
}
