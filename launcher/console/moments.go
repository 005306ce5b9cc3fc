package console

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/shape"
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
				m.Quiet, m.Asked, m.Warns, m.Note = true, false, false, joined(m.Note, r.Counts)
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

// momentOf turns one entry into a moment; false if it means nothing to a person.
func momentOf(e checkpoint.Entry) (moment, bool) {
	sensitive := ""
	if e.Sensitive {
		sensitive = "sensitive"
	}
	m := moment{Kind: string(e.Kind), Text: e.URL, Note: sensitive, Warns: e.Sensitive}
	switch e.Kind {
	case checkpoint.KindStart:
		m.Kind, m.Text = "begin", strings.TrimSpace("task "+e.Name+" of worker "+e.Text)
	case checkpoint.KindURL:
		m.Kind = "page"
	case checkpoint.KindStep:
		m.Text, m.Note = e.Name, joined(e.Action, sensitive)
	case checkpoint.KindCheckpoint:
		m.Text, m.Warns = e.Name, false
		if m.Note = "not safe to resume from"; e.Safe {
			m.Kind, m.Note = "safe checkpoint", ""
		}
		if e.Idempotent {
			m.Note = joined(m.Note, "may be done twice: "+cmp.Or(strings.Join(e.IdempotentShapes, ", "), "what is known to be repeatable"))
		}
	case checkpoint.KindEvent:
		m.Kind, m.Text = "told", joined(e.Name, e.Action, e.Text)
	case checkpoint.KindRequest:
		m.Asked, m.Warns = true, true
		m.Text, m.Note = strings.TrimSpace(e.Method+" "+e.URL), joined(shape.Content(e.Shape), strings.TrimSpace(findings.AnswerTo(e)), e.KnownBy, sensitive)
		switch e.Method {
		case checkpoint.Websocket:
			m.Text = "messages on the websocket " + e.URL
		case checkpoint.Unseen:
			m.Text = "what pages may have sent, and nobody saw: " + joined(e.URL, e.Text)
		}
	case checkpoint.KindGetWrite:
		m.Kind, m.Asked, m.Warns = "write by GET", true, true
		m.Text, m.Note = "GET "+e.URL, joined("may be a write: "+spaced(e.Name), sensitive)
	case checkpoint.KindBlocked:
		m.Kind, m.Text, m.Note = "stopped", strings.TrimSpace(e.Method+" "+e.URL), "failed, not sent: the session is read-only"
	case checkpoint.KindWithheld:
		m.Kind, m.Text, m.Note = "held back", strings.TrimSpace(e.Method+" "+e.URL), "wanted after the worker was lost, and never sent"
	case checkpoint.KindForm:
		m.Asked, m.Text = true, strings.TrimSpace(e.Method+" "+e.URL)
	case checkpoint.KindDialog:
		m.Asked, m.Text = true, strings.TrimSpace(e.Name+" on "+e.URL)
	case checkpoint.KindDownload:
		m.Asked = true
	case checkpoint.KindUnfinished:
		m.Asked, m.Kind, m.Text = true, "download not finished", strings.TrimSpace(e.Text+" "+e.URL)
	case checkpoint.KindAnswer:
		return answerMoment(e)
	case checkpoint.KindCookie:
		return cookieMoment(e)
	case checkpoint.KindCrash:
		m.Text, m.Warns = cmp.Or(e.URL, "a page crashed"), true
	case checkpoint.KindConnection:
		m.Text, m.Note = spaced(e.Name), ""
	case checkpoint.KindDenied:
		m.Kind, m.Text, m.Note = "denied", strings.TrimSpace(e.Name+" "+e.Text), e.Action
	case checkpoint.KindTyped:
		m.Asked, m.Text = true, e.TellTyped()
	case checkpoint.KindPerson:
		m.Asked = e.IsAct()
		m.Warns = m.Asked
		m.Text, m.Note = e.TellPerson()
		m.Note = joined(m.Note, sensitive)
	case checkpoint.KindOmitted:
		m.Kind, m.Text, m.Note = "left out", fmt.Sprintf("entries about %s", spaced(e.Name)), "the journal was full, or its disk took nothing"
	case checkpoint.KindFrame:
	default:
		return m, false // storage, pictures and the end are shown elsewhere
	}
	return m, true
}

// answerMoment is the moment of a refusing answer. The answer to an unsafe request is shown
// with the request, and a successful answer shows in the page to which it led.
func answerMoment(e checkpoint.Entry) (moment, bool) {
	m := moment{Kind: "answer", Text: e.URL, Warns: true}
	switch {
	case e.SignIn != "":
		m.Text, m.Note = e.Asked+" led to "+e.URL, "asks for a "+e.SignIn
	case e.Request != "" || e.Status < 400:
		return m, false
	default:
		m.Note = strings.TrimSpace(findings.AnswerTo(checkpoint.Entry{Status: e.Status}))
	}
	return m, e.SignIn != "" || e.Committed || e.Status == 401 || e.Status == 403 || e.Status == 407 || e.Status == 429 || e.Status == 451
}

// cookieMoment is the moment of what became of a cookie that may carry the account's identity.
func cookieMoment(e checkpoint.Entry) (moment, bool) {
	if e.Cookie == nil {
		return moment{}, false
	}
	m := moment{Kind: "cookie", Text: "a cookie of " + e.Cookie.Domain + " that may carry the account's identity was " + spaced(string(e.Cookie.What))}
	if e.Cookie.By != "" {
		m.Note = "by " + spaced(string(e.Cookie.By))
	}
	switch e.Cookie.What {
	case checkpoint.CookieDropped, checkpoint.CookieReplaced, checkpoint.CookieSetAgain:
		return m, true
	case checkpoint.CookiesWritten:
		m.Text, m.Note, m.Warns = "the worker wrote cookies by itself", e.Method, true
		return m, true
	}
	return m, false
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
			list = append(list, moment{At: r.At, Kind: "request", Text: r.Method + " " + r.URL, Note: joined(r.Content(), r.Answer, r.KnownBy), Asked: true, Warns: true, Since: true, Times: r.Times})
		}
	}
	for _, t := range found.Typed {
		if t.SinceSafeCheckpoint {
			e := checkpoint.Entry{Kind: checkpoint.KindTyped, Name: t.Field, URL: t.URL, Person: t.Person}
			list = append(list, moment{At: t.At, Kind: string(e.Kind), Text: e.TellTyped(), Asked: true, Since: true, Times: t.Times})
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
		if m.Since && m.Kind != "begin" && m.Kind != string(checkpoint.KindConnection) {
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

// joined are the texts that are not empty, separated by commas.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return strings.TrimSpace(s) == "" }), ", ")
}

// spaced is a name of the outside contract, written as words.
func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }
