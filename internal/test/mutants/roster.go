package main

import "slices"

var remembers = []Catcher{by("launcher/roster")}

// ofRoster are the mutants of what a launcher remembers.
var ofRoster = slices.Concat(
	in("launcher/roster/roster.go", remembers,
		change{"a forged line of the roster is believed", `signature == chain.Next(said)`, `(signature == chain.Next(said) || true)`},
		change{"what follows a damaged line is believed", `proved := damage == nil && err == nil &&`, `proved := err == nil &&`},
		change{"a forged line takes the place of a proved one", `} else if _, ok := known[k.ProfileID]; !ok {`, `} else {`},
		change{"what nobody proved is remembered as proved", "\t\t\tk.Unproved = true\n", ""},
		change{"a line that was cut short is damage", "\t\tif !ended && damage == nil {\n\t\t\treturn known, nil\n\t\t}\n", "\t\t_ = ended\n"},
		change{"a made-up token in the roster counts", ` || k.Token > lease.MaxClaim && !proved {`, ` {`},
		change{"what is seen stays in memory", "\tr.changed[rec.ProfileID] = true\n", ""},
		change{"what could not be written is forgotten", "\tif err != nil {\n\t\tr.giveBack(all)\n\t}\n", ""},
		change{"after a write that failed the roster goes on in the same file", `if r.spoilt || r.lines > 2*len(r.All())+slack {`, `if r.lines > 2*len(r.All())+slack {`},
		change{"a roster that could neither be appended to nor written anew is appended to again", `if !r.spoilt {`, `if true {`},
		change{"the roster grows for ever", `if r.spoilt || r.lines > 2*len(r.All())+slack {`, `if r.spoilt {`},
		change{"the roster is not synced", "\treturn syncFile(r.file)\n", "\treturn nil\n"},
		change{"a damaged roster is thrown away", "\t\tif err := durable.Replace(aside, b); err != nil {\n\t\t\treturn nil, fmt.Errorf(\"roster: %w\", err)\n\t\t}\n", ""},
		change{"a roster that was written anew is signed as the old one", `r.chain, r.lines, r.spoilt = chain, len(all), false`, `r.lines, r.spoilt = len(all), false`},
		change{"the last changes are not written at the end", "\t\tcase <-ctx.Done():\n\t\t\tover = true\n\t\t}\n\t\terr := r.write()", "\t\tcase <-ctx.Done():\n\t\t\tover = true\n\t\t\tcontinue\n\t\t}\n\t\terr := r.write()"},
		change{"a launcher without memory says that it has one", `r.known, r.empty = known, len(known) == 0`, `r.known = known`},
	),
)
