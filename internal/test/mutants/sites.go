package main

import "slices"

// known are the tests of what is known of sites.
var known = []Catcher{by("checkpoint/site"), by("checkpoint/shape")}

// ofSites are the mutants of how requests are judged by what is known of their sites.
var ofSites = slices.Concat(in("checkpoint/site/book.go", known,
	change{"sites: a line of a read need not be certain", `if certain || l.is == Write && l.touches(*said, known) {`, `if certain || l.touches(*said, known) {`},
	change{"sites: what may be meant is repeatable", `Repeatable: l.repeat && certain,`, `Repeatable: l.repeat,`},
	change{"sites: another method in a header is overlooked", `|| overridden(r.Headers) || hides`, `|| hides`},
	change{"sites: a mutation in a form is overlooked", ` || overridden(r.Headers) || hidesMutation(r) {`, ` || overridden(r.Headers) {`},
	change{"sites: a line of a read need not name a mutation", ` && (is != Read || p.NamesMutations(said))`, ``},
	change{"sites: another method in a field is overlooked", `len(other) > 0 && !l.override {`, `len(other) < 0 {`},
	change{"sites: conditions hold for what is not known as a whole", `f.Whole && !slices.ContainsFunc(l.where`, `!slices.ContainsFunc(l.where`},
	change{"sites: a name that occurs twice is equal to its first value", `return !one || !w.is(values[0])`, `return !one && len(values) == 0 || !w.is(values[0])`},
	change{"sites: what is said to be absent may be there", "\t\tif w.condition.Absent {\n\t\t\treturn len(values) > 0\n\t\t}\n\t\treturn !one", "\t\tif w.condition.Absent {\n\t\t\treturn false\n\t\t}\n\t\treturn !one"},
	change{"sites: an expression matches a part of the value", `"^(?:" + w.condition.Matches + ")$"`, `w.condition.Matches`},
	change{"sites: a part of a query makes a place sensitive", `if !slices.Contains(found, v) {`, `if len(found) == 0 && v != "" {`},
), in("checkpoint/site/baseline.go", known,
	change{"sites: an answer at rest counts whoever used the profile since", `(rest.Token == 0 || rest.Token != token)`, `false`},
), in("checkpoint/shape/pattern.go", known,
	change{"sites: one operation of a list is enough for a read", `len(q.ops) > 0 && !slices.ContainsFunc(q.ops, func(op []string) bool { return !p.namesOp(op, namesMessage) })`, `slices.ContainsFunc(q.ops, func(op []string) bool { return p.namesOp(op, namesMessage) })`},
	change{"sites: a message may have a second name", `!p.namesOp(op, namesMessage)`, `!p.namesOp(op, nil)`},
	change{"sites: a line without an operation covers all", `return !q.doesMore()`, `return true`},
	change{"sites: a cut body is a whole one", ` || q.unread() {`, ` {`},
	change{"sites: any origin is that of a pattern", "\tif p.origin != \"\" && !OriginMatches(p.origin, q.origin) {\n\t\treturn false\n\t}\n", ""},
	change{"sites: a star stands for what a server reads in another way", `return star && !odd && glob`, `return star && (!odd || true) && glob`},
), in("launcher/sites/sites.go", []Catcher{by("launcher/sites")},
	change{"sites: what the store forgot is not told again", "\t\t\tif v.revision == 0 {\n\t\t\t\ttasks", "\t\t\tif false {\n\t\t\t\ttasks"},
	change{"sites: a file that somebody changed is told again", `case stays, s.gone[name].revision`, `case s.gone[name].revision`},
	change{"sites: a file that somebody removed is told again", `s.gone[name].revision != 0 && !t.anew: // removed`, `false: // removed`},
	change{"sites: a change is based on any revision", `if revision != Any && revision != v.revision {`, `if false {`},
))
