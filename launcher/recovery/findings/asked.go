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
	return t.Sites.Questions(sitesOf(s), t.domains())
}

// Rehearsals are the pages of those sites that are opened.
func Rehearsals(s checkpoint.Summary, t Task) []site.Question {
	return t.Sites.Rehearsals(sitesOf(s), t.domains())
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
	changed := table.Fact{Name: table.ProbeChanged, Answer: table.No, How: "no file about a site of the session has probes"}
	for _, q := range questions {
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
	return []table.Fact{same, changed}
}

// Asked are the facts about what sites said, beside what they said while nobody used the account.
// again has the answers to what was asked once more, when the account had settled. unchanged are the
// questions whose answers stayed what they were. says has the values, too, for the person who
// decides: what changed comes first.
func Asked(first, again []site.Compared) (facts []table.Fact, unchanged []site.Question, says []string) {
	var probes, identities []site.Compared
	var rest []string
	facts = Unasked(nil, "")
	for _, c := range first {
		if at := slices.IndexFunc(again, func(o site.Compared) bool { return o.ID() == c.ID() }); at >= 0 {
			equal, moved := c.Equal, c.Moved
			c = again[at]
			c.Equal, c.Moved = c.Equal && equal, c.Moved || moved
		}
		if c.Moved {
			says = append(says, c.Tell())
		} else {
			rest = append(rest, c.Tell())
		}
		if len(c.Wanted) > 0 {
			facts = append(facts, table.Fact{Name: table.WritesWaiting, Answer: table.Yes, How: c.Brief()})
		}
		switch {
		case c.Identity:
			identities = append(identities, c)
		case c.Opens && c.TakeText == "":
		default:
			probes = append(probes, c)
			if c.Equal {
				unchanged = append(unchanged, c.Question)
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
		facts[0] = worse(facts[0], table.Fact{Name: table.IdentityKept, Answer: answer, How: c.Brief()}, table.No)
	}
	for _, c := range probes {
		answer := table.No
		switch {
		case c.Moved && c.Alarms():
			answer = table.Yes
		case (c.Before == nil || c.State != site.Told) && c.Alarms():
			answer = table.Unknown
		}
		facts[1] = worse(facts[1], table.Fact{Name: table.ProbeChanged, Answer: answer, How: c.Brief()}, table.Yes)
	}
	if n := len(probes); n > 1 {
		facts[1].How += fmt.Sprintf("; %d of %d probes are as before", len(unchanged), n)
	}
	return facts, unchanged, append(says, rest...)
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

// Wanted are the requests among what the pages of a browser reported that may write, whether they left it
// or not, each once, in words without values: those that are not known to only read, and were
// made as the account.
func Wanted(reported []checkpoint.Entry, t Task) (wanted []string) {
	s := checkpoint.Summarize(reported)
	reads, stranger := harmless(t), anonymous(s, t)
	for _, e := range s.Unsafe {
		asks := e.Name == checkpoint.GraphQLQuery && e.Known != site.Write && !e.Sensitive && !SensitiveURL(e.URL, t)
		text := cmp.Or(e.Shape, strings.TrimSpace(e.Method+" "+redact.URL(e.URL)))
		if !asks && !reads(e) && !stranger(e) && !slices.Contains(wanted, text) {
			wanted = append(wanted, text)
		}
	}
	return wanted
}
