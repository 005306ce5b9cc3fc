package findings

import (
	"fmt"
	"slices"

	"leasehold/launcher/recovery/table"
)

// Pages merges the facts about open pages at the ends of one or more runs: the answer is yes if
// it is yes in any of them, else unknown if it is unknown in any of them or nobody looked.
func Pages(seen ...[]table.Fact) table.Inspection {
	var all table.Inspection
	for _, q := range table.PageQuestions {
		found := table.Fact{Name: q, Answer: table.Unknown, How: "nobody looked at the pages"}
		known := false
		for _, facts := range seen {
			i := slices.IndexFunc(facts, func(f table.Fact) bool { return f.Name == q })
			if i >= 0 && (!known || weight(q, facts[i].Answer) > weight(q, found.Answer)) {
				found, known = facts[i], true
			}
		}
		all = append(all, found)
	}
	return all
}

// weight orders answers: the one that speaks most against letting the profile go has the
// greatest weight.
func weight(question string, a table.Answer) int {
	against := table.Yes
	if question == table.PagesLookedAt {
		against = table.No
	}
	switch a {
	case against:
		return 2
	case table.Unknown:
		return 1
	}
	return 0
}

// Seen is the fact for one of PageQuestions. hows say where the pages that were looked at
// showed it; blind, which pages could not be looked at.
func Seen(question string, hows, blind []string) table.Fact {
	switch {
	case len(hows) == 1:
		return table.Fact{Name: question, Answer: table.Yes, How: hows[0]}
	case len(hows) > 1:
		return table.Fact{Name: question, Answer: table.Yes, How: fmt.Sprintf("%s; and %d more", hows[0], len(hows)-1)}
	case len(blind) > 0:
		return table.Fact{Name: question, Answer: table.Unknown, How: blind[0]}
	}
	return table.Fact{Name: question, Answer: table.No, How: "no open page or frame does"}
}
