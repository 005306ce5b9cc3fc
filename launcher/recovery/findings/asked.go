package findings

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence/redact"
	"leasehold/launcher/recovery/table"
)

// Questions are what the sites of a session are asked about its account: those of its pages, those to
// which it sent something, and those in the domains of the account.
func Questions(s checkpoint.Summary, t Task) []site.Question {
	return t.Sites.Questions(sitesOf(s), t.Domains())
}

// Rehearsals are the pages of those sites that are opened.
func Rehearsals(s checkpoint.Summary, t Task) []site.Question {
	return t.Sites.Rehearsals(sitesOf(s), t.Domains())
}

// sitesOf are the roots of the sites that a session had to do with.
func sitesOf(s checkpoint.Summary) (urls []string) {
	seen := map[string]bool{}
	for _, e := range slices.Concat(s.Pages, s.Unsafe, s.Writes) {
		u, err := url.Parse(e.URL)
		if err != nil || u.Host == "" || seen[u.Scheme+u.Host] {
			continue
		}
		seen[u.Scheme+u.Host] = true
		urls = append(urls, u.Scheme+"://"+u.Host+"/")
	}
	return urls
}

// Unasked are the facts about what sites say, while they were not asked: with a reason if they will
// not be.
func Unasked(questions []site.Question, why string) []table.Fact {
	same := table.Fact{Name: table.IdentityKept, Answer: table.Yes, How: "no file about a site of the session says how to ask whose account it is"}
	changed := table.Fact{Name: table.ProbeChanged, Answer: table.No, How: noProbes}
	rehearsed := table.Fact{Name: table.Rehearsed, Answer: table.Yes, How: "no file about a site of the session names a page to open"}
	for _, q := range questions {
		if q.Opens {
			rehearsed.How = "not opened yet"
			if why != "" {
				rehearsed.Answer, rehearsed.How = table.No, why
			}
		}
		if q.Opens && q.TakeText == "" {
			continue
		}
		f, answer := &changed, table.No
		if q.Identity {
			f, answer = &same, table.Yes
		}
		f.Answer, f.How = answer, "not asked yet"
		if why != "" {
			f.Answer, f.How = table.Unknown, why
		}
	}
	since := changed
	since.Name = table.ProbeChangedSinceSafe
	return []table.Fact{same, changed, since, rehearsed}
}

const noProbes = "no file about a site of the session has probes"

// Told are answers beside earlier ones: those to the first questions, and those to what was asked once
// more, when the account had settled.
type Told struct{ First, Again []site.Compared }

// merged are the answers, those that were given twice with what speaks more against the account.
func (t Told) merged() (all []site.Compared) {
	for _, c := range t.First {
		if again, ok := of(t.Again, c); ok {
			equal, moved := c.Equal, c.Moved
			c = again
			c.Equal, c.Moved = c.Equal && equal, c.Moved || moved
		}
		all = append(all, c)
	}
	return all
}

func of(all []site.Compared, c site.Compared) (site.Compared, bool) {
	at := slices.IndexFunc(all, func(o site.Compared) bool { return o.ID() == c.ID() })
	if at < 0 {
		return site.Compared{}, false
	}
	return all[at], true
}

// Verdict is what the answers of sites say about an account.
type Verdict struct {
	Facts []table.Fact
	// Unchanged are the questions whose answers stayed what they were before the session, and
	// UnchangedSinceSafe those whose answers stayed what they were at its last safe checkpoint.
	Unchanged, UnchangedSinceSafe []site.Question
	// Says has the values, too, for the person who decides: what changed comes first.
	Says []string
}

// Asked is what sites said, beside what they said before the session, and beside what they said at its
// last safe checkpoint: what has changed since that has changed since the session began, too, and of what is
// not known since that, it is not known since the session began.
func Asked(before, safe Told) (v Verdict) {
	var probes, sinceSafe, identities []site.Compared
	var rest []string
	v.Facts = Unasked(nil, "")
	since := safe.merged()
	for _, c := range before.merged() {
		later, known := of(since, c)
		if known && !c.Moved && (later.Moved || later.From.Earlier && c.Before != nil) {
			c = later
		}
		if c.Moved {
			v.Says = append(v.Says, c.Tell())
		} else {
			rest = append(rest, c.Tell())
		}
		if known && c.Moved && later.From != c.From {
			v.Says[len(v.Says)-1] += "; " + later.Since()
		}
		if len(c.Wanted) > 0 {
			v.Facts = append(v.Facts, table.Fact{Name: table.WritesWaiting, Answer: table.Yes, How: c.Brief()})
		}
		if c.Opens {
			v.Facts[3] = worse(v.Facts[3], table.Fact{Name: table.Rehearsed, Answer: table.Is(c.Opened), How: c.Site + ": " + c.Name + ": " + c.How}, table.No)
		}
		switch {
		case c.Identity:
			identities = append(identities, c)
		case c.Opens && c.TakeText == "":
		default:
			probes = append(probes, c)
			if known {
				sinceSafe = append(sinceSafe, later)
			}
		}
	}
	for _, c := range identities {
		answer := table.Yes
		switch {
		case c.Moved || c.State == site.NotTold:
			answer = table.No
		case c.State != site.Told:
			answer = table.Unknown
		}
		v.Facts[0] = worse(v.Facts[0], table.Fact{Name: table.IdentityKept, Answer: answer, How: c.Brief()}, table.No)
	}
	v.Facts[1], v.Unchanged = probesChanged(v.Facts[1], probes)
	v.Facts[2], v.UnchangedSinceSafe = probesChanged(v.Facts[2], sinceSafe)
	v.Says = append(v.Says, rest...)
	return v
}

// probesChanged is the fact whether answers to probes changed, and the questions of which it is known that their
// answers did not.
func probesChanged(f table.Fact, probes []site.Compared) (_ table.Fact, unchanged []site.Question) {
	equal := 0
	for _, c := range probes {
		answer := table.No
		switch {
		case c.Moved && c.Alarms():
			answer = table.Yes
		case (c.Before == nil || c.State != site.Told) && c.Alarms():
			answer = table.Unknown
		}
		f = worse(f, table.Fact{Name: f.Name, Answer: answer, How: c.Brief()}, table.Yes)
		if c.Equal {
			equal++
		}
		if c.Equal && !c.From.Earlier {
			unchanged = append(unchanged, c.Question)
		}
	}
	if n := len(probes); n > 1 {
		f.How += fmt.Sprintf("; %d of %d probes are as before", equal, n)
	}
	return f, unchanged
}

// ActedOn tells whether a session sent anything, or may have, that can have changed the answer to a
// question since the safe checkpoint with this number in its journal; 0: since it began. What was under
// way at the checkpoint counts.
func ActedOn(entries []checkpoint.Entry, since uint64, t Task, q site.Question) bool {
	s := checkpoint.Summarize(slices.DeleteFunc(slices.Clone(entries), func(e checkpoint.Entry) bool { return e.Kind == checkpoint.KindCheckpoint && e.Seq > since }))
	writes, _ := split(s.WritesSince, quiet(t))
	return len(s.LeftOut) > 0 || slices.ContainsFunc(slices.Concat(sorted(s.UnsafeSince, s, t).counted, writes), func(e checkpoint.Entry) bool {
		return e.URL == "" || q.Owns(e.URL)
	})
}

// worse is the fact of the two that says more against the account, and tells both if they say the
// same. bad is the answer that speaks against it.
func worse(f, o table.Fact, bad table.Answer) table.Fact {
	weight := func(a table.Answer) int { return map[table.Answer]int{table.Unknown: 1, bad: 2}[a] }
	switch a, b := weight(f.Answer), weight(o.Answer); {
	case strings.HasPrefix(f.How, "no file") || b > a:
		return o
	case b == a && b > 0:
		f.How += "; " + o.How
	}
	return f
}

// LedToSignIn says in words which sign-in the page of a browser was sent to, as it reported that, or may have
// been; empty: to none.
func LedToSignIn(reported []checkpoint.Entry, t Task) string {
	for _, one := range stand(checkpoint.Summarize(reported), t) {
		if one.kind == signIn || one.kind == signInUnknown {
			return fmt.Sprintf("%s led to %s, as to a sign-in", redact.URL(one.answer.Asked), redact.URL(one.answer.URL))
		}
	}
	return ""
}

// Wanted are the requests among what the pages of a browser reported that may write, whether they left it
// or not, each once, in words without values: those that are not known to only read, and were
// made as the account. A GET is among them if it is known to write, or shows a sign of that.
func Wanted(reported []checkpoint.Entry, t Task) (wanted []string) {
	s := checkpoint.Summarize(reported)
	reads, stranger := harmless(t), anonymous(s, t)
	failed := slices.DeleteFunc(slices.Clone(reported), func(e checkpoint.Entry) bool { return e.Kind != checkpoint.KindBlocked || e.Known != site.Write })
	for _, e := range slices.Concat(s.Unsafe, s.Writes, failed) {
		asks := e.Name == checkpoint.GraphQLQuery && e.Known != site.Write && !e.Sensitive && !SensitiveURL(e.URL, t)
		text := cmp.Or(e.Shape, strings.TrimSpace(e.Method+" "+redact.URL(e.URL)))
		if !asks && !reads(e) && !stranger(e) && !slices.Contains(wanted, text) {
			wanted = append(wanted, text)
		}
	}
	return wanted
}
