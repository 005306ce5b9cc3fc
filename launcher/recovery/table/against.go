package table

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Objection is one condition that kept a profile from being let go. It is meant for the person
// who decides instead of the table.
type Objection struct {
	Fact   string
	Answer Answer
	// Sentence says in words what spoke against it, and how that was found.
	Sentence string
}

// Against lists what spoke against letting a profile go: the unmet conditions of the row that
// was nearest to being met, then those of all rows, then the configured cautions. What was seen
// comes before what could not be found out. The list is empty if a row is met.
func Against(i Inspection, besides ...Caution) []Objection {
	var list []Objection
	for _, c := range slices.Concat(nearest(i), i.unmet(sound)) {
		if !slices.ContainsFunc(list, func(o Objection) bool { return o.Fact == c.fact }) {
			list = append(list, Objection{c.fact, i.Answer(c.fact), c.sentence(i.Answer(c.fact), i.How(c.fact))})
		}
	}
	for _, c := range besides {
		a := i.Answer(c.Fact)
		known := slices.ContainsFunc(list, func(o Objection) bool { return o.Fact == c.Fact })
		if !known && (a == c.Answer || a == Unknown) {
			list = append(list, Objection{c.Fact, a, sentence("a person decides by configuration where "+c.Fact+" is "+string(a), i.How(c.Fact))})
		}
	}
	slices.SortStableFunc(list, func(a, b Objection) int { return cmp.Compare(doubtful(a), doubtful(b)) })
	return list
}

// doubtful is 1 for what could not be found out, and 0 for what was seen.
func doubtful(o Objection) int {
	if o.Answer == Unknown {
		return 1
	}
	return 0
}

// nearest returns the unmet conditions of the row that has the fewest of them. Among equal rows
// it is the first, which the table would have taken.
func nearest(i Inspection) []condition {
	best := i.unmet(table[0].when)
	for _, row := range table[1:] {
		if unmet := i.unmet(row.when); len(unmet) < len(best) {
			best = unmet
		}
	}
	return best
}

// sentence says that the condition is not met. If the condition wants a no (want is No or
// notYes), its reason says what a yes means, so an unknown is a doubt about that. If it wants a
// yes, its reason says what is missing, and that holds for an unknown, too.
func (c condition) sentence(a Answer, how string) string {
	switch {
	case a != Unknown:
		return sentence(c.why, how)
	case c.want == No || c.want == notYes:
		return sentence("it is not known whether "+c.why, how)
	}
	return sentence(c.why+", or nobody can tell", how)
}

// sentence puts a statement and how it was found into one sentence.
func sentence(statement, how string) string {
	if how = strings.TrimRight(how, ". "); how != "" {
		statement += ": " + how
	}
	first, size := utf8.DecodeRuneInString(statement)
	return string(unicode.ToUpper(first)) + statement[size:] + "."
}
