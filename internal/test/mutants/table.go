package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// rules are the tests of the decision. The test that compares the table with
// docs/recovery.md does not count.
var rules = []Catcher{by("launcher/recovery/findings"), by("launcher/recovery/table").without("TestPeopleReadTheTable")}

const tableFile = "launcher/recovery/table/decide.go"

// ofDecision are the mutants of how the table is applied, and of the facts.
var ofDecision = append(in(tableFile, rules,
	change{"unknown counts as no where only no counts against it", `(c.want != notNo || a == No)`, `(c.want != notNo || a != Yes)`},
	change{"unknown counts as yes where only yes counts against it", `(c.want != notYes || a == Yes)`, `(c.want != notYes || a != No)`},
	change{"unknown does not go to a person by configuration", `a == c.Answer || a == Unknown {`, `a == c.Answer {`},
	change{"configuration releases what the table does not", `met >= 0 && len(broken) == 0:`, `met >= 0 && (len(broken) == 0 || len(besides) > 0):`},
	change{"one broken condition is none", `met >= 0 && len(broken) == 0:`, `met >= 0 && len(broken) <= 1:`},
	change{"what was seen is hidden by a broken condition", `append(broken, i.failing(least)...)`, `append(broken, i.failing(least[:0])...)`},
	change{"a row with one broken condition decides", `return len(i.unmet(r.when)) == 0 })`, `return len(i.unmet(r.when)) <= 1 })`},
), slices.Concat(in("launcher/recovery/table/facts.go", rules,
	change{"a question that was not asked is answered with no", "\treturn Unknown\n}\n\n// How", "\treturn No\n}\n\n// How"},
), in("launcher/recovery/findings/inspect.go", rules,
	change{"what nobody knows of a task touches nothing", `return found.Answer(q) != table.No })`, `return found.Answer(q) == table.Yes })`},
	change{"a task touches nothing by a GET", `asked := []string{table.UnsafeSinceSafe, table.WritesByGetSinceSafe, `, `asked := []string{table.UnsafeSinceSafe, `},
	change{"a checkpoint vouches for sensitive places that came later", `sensitivePlace(s.StepsSince, s.PagesSince, t)`, `sensitivePlace(nil, nil, t)`},
	change{"a checkpoint vouches for requests that came later", `sorted(s.UnsafeSince, s, afterSafe)`, `sorted(s.InFlight, s, t)`},
	change{"a task that typed a card touches nothing", `table.PersonActedSince, table.PaymentTypedSince, `, `table.PersonActedSince, `},
	change{"a checkpoint vouches for a card that was typed later", `paymentTyped(table.PaymentTypedSince, s.TypedSince)`, `paymentTyped(table.PaymentTypedSince, nil)`},
	change{"only the last field that was typed into may be one of a card", `for _, e := range slices.Backward(typed) {`, `for _, e := range typed[max(len(typed)-1, 0):] {`},
), in("launcher/recovery/findings/requests.go", rules,
	change{"every checkpoint declares something idempotent", `if s.LastSafe == nil || !s.LastSafe.Idempotent {`, `if s.LastSafe == nil {`},
	change{"what a checkpoint declares covers all", `if len(others) == 0 {`, `if len(others) >= 0 {`},
	change{"a write by GET is always covered", `slices.Concat(r.counted, writes), again`, `slices.Concat(r.counted, writes[:0]), again`},
	change{"a line that was taken back speaks for a request", `e.Known == site.Read && stands(e, t)`, `e.Known == site.Read`},
	change{"a line that was taken back makes a request repeatable", `e.Repeatable && stands(e, t)`, `e.Repeatable`},
	change{"a query that is known as a write only asks", `e.Known != site.Write && e.Method`, `e.Method`},
	change{"what is known as a write is nobody's without cookies", ` && e.Known != site.Write && !saidToWrite(e, t)` + "\n", ` && !saidToWrite(e, t)` + "\n"},
))...)

// ofTyped is what a journal that is full keeps.
var ofTyped = in("checkpoint/compact.go", rules,
	change{"a journal that is full forgets that a card was typed", "\t\t\tc.kept[i], paid = pays && !paid, paid || pays\n", "\t\t\tpaid = paid || pays\n"},
)

// decisionTable are the mutants of the decision: each condition of the table left out, and
// each of those that every outcome needs made one that unknown passes. They are made from
// the table's source.
func decisionTable(root string) ([]Mutant, error) {
	list := slices.Concat(ofDecision, ofTyped)
	source, err := os.ReadFile(filepath.Join(root, tableFile))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, tableFile, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	text := func(from, to token.Pos) string {
		return string(source[set.Position(from).Offset:set.Position(to).Offset])
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if decl, ok := n.(*ast.FuncDecl); ok && decl != nil {
			return false
		}
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		switch spec.Names[0].Name {
		case "sound", "askingNothing":
			for _, c := range conditions(spec) {
				fact, want := c.Elts[0].(*ast.Ident).Name, c.Elts[1].(*ast.Ident)
				whole := text(c.Pos(), c.End()) + ",\n"
				list = append(list, Mutant{fmt.Sprintf("every decision without %s", fact), tableFile, whole, "", rules})
				if accepts := map[string]string{"Yes": "notNo", "No": "notYes"}[want.Name]; accepts != "" {
					looser := text(c.Pos(), want.Pos()) + accepts + text(want.End(), c.End()) + ",\n"
					list = append(list, Mutant{fmt.Sprintf("every decision with %s unknown", fact), tableFile, whole, looser, rules})
				}
			}
		case "table":
			for i, e := range spec.Values[0].(*ast.CompositeLit).Elts {
				row := e.(*ast.CompositeLit)
				outcome := row.Elts[0].(*ast.Ident).Name
				for _, c := range conditions(row) {
					// The row's own text is in front, since conditions stand in several rows.
					from, to := text(row.Pos(), c.Pos()), text(row.Pos(), c.End())
					name := fmt.Sprintf("row %d, %s, without %s", i+1, outcome, c.Elts[0].(*ast.Ident).Name)
					list = append(list, Mutant{name, tableFile, to + ",\n", from + "\n", rules})
				}
			}
		}
		return false
	})
	if want := 40; len(list) < want {
		return nil, fmt.Errorf("only %d mutants are made of the decision table, want at least %s: is it written in another way?", len(list), strconv.Itoa(want))
	}
	return list, nil
}

// conditions are the literals below a node that look like a condition of the table: two
// names and a text.
func conditions(n ast.Node) (all []*ast.CompositeLit) {
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || len(lit.Elts) != 3 {
			return true
		}
		_, first := lit.Elts[0].(*ast.Ident)
		_, second := lit.Elts[1].(*ast.Ident)
		_, third := lit.Elts[2].(*ast.BasicLit)
		if first && second && third {
			all = append(all, lit)
			return false
		}
		return true
	})
	return all
}
