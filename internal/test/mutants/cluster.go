package main

import "slices"

var young = []Catcher{by("launcher/cluster")}

// ofCluster are the mutants of what is made in a store that may have forgotten something.
var ofCluster = slices.Concat(
	in("launcher/cluster/young.go", young,
		change{"a young store is used at once", "\tif left <= 0 {\n", "\tif left <= p.o.Timing.GrantDelay() {\n"},
		change{"a store that nobody has seen is old", "\tif !p.seen {\n", "\tif false {\n"},
		change{"a store that went back is old", "\tif s.Stepped {\n", "\tif false {\n"},
		change{"a store that was lost, as nobody has said yet, is old", `p.seen && p.number != sight.Number`, `false`},
		change{"a profile may be made in any store", `return sight.Number, nil`, `return 0, nil`},
		change{"a store that forgot something is old", "\tp.young = p.o.Clock()\n}", "}"},
		change{"every store is young at first sight", `now.Add(-min(s.Age, 2*p.o.Timing.GrantDelay()))`, `now`},
		change{"the age of a store counts as long as its host has been up", `p.young = max(p.young, now.Add(-min(s.Age, 2*p.o.Timing.GrantDelay())))`, `p.young = max(p.young, now.Add(-s.Age))`},
		change{"a store of this launcher alone is waited for", "\tif !p.o.SharedStore {\n\t\treturn 0, nil\n\t}\n", ""},
		change{"homes get no time to say what they remember", `p.o.Timing.GrantDelay()/2`, `0`},
		change{"others speak for a home before the store was seen", `return p.seen && p.o`, `return p.o`},
	),
	in("launcher/cluster/young.go", bubble,
		change{"the first who asks makes what the store forgot", "\tif left <= 0 {\n", "\tif left <= p.o.Timing.TTL {\n"},
	),
	in("launcher/cluster/sameid.go", young,
		change{"a stay counts as over in a store that forgot it", "\tif c.leases > last {\n", "\tif false {\n"},
		change{"a copy of a data directory takes the original's id", `!p.o.SharedStore && last <= epoch`, `last <= epoch`},
		change{"who opened the same epoch in a store that forgot it is taken for this launcher", `!opened.Equal(c.presence.Presence.OpenedAt) {`, `false {`},
	),
	in("launcher/cluster/writer.go", young,
		change{"what a later stay under this id had is taken for one's own", `r.LauncherID == p.o.LauncherID && r.PresenceEpoch > k.Epoch():`, `false:`},
		change{"a launcher without a presence writes what it likes", `err != nil && !w.p.ends(prev.Record) {`, `err != nil && false {`},
		change{"a session of a lost presence cannot end", `err != nil && !w.p.ends(prev.Record) {`, `err != nil {`},
	),
	in("launcher/cluster/patrol.go", young,
		change{"a launcher that waits for another one of its id recovers its sessions", "\tif p.o.Presence.MayAct(r) != nil {\n\t\treturn true\n\t}\n", ""},
		change{"a launcher that waits for another one of its id takes steps with leases", "\tif p.o.Presence.MayAct(r) != nil {\n\t\treturn\n\t}\n", ""},
		change{"a profile is abandoned without a bundle", `left = leftBehind{r.Token, p.nothingLeft(r)}`, `left = leftBehind{r.Token, lease.Sealed{EvidenceID: "ev_none"}}`},
		change{"any launcher that sees the directory heals its profile", `if r.Home != "" && r.Home != p.o.LauncherID {`, `if false {`},
		change{"a profile is abandoned while no bundle can be sealed", `if left.bundle.EvidenceID == "" {`, `if false {`},
	),
	in("launcher/cluster/patrol.go", bubble,
		change{"nobody looks after what a launcher left unfinished", `r.Home == p.o.LauncherID && (r.Unfinished() || p.leftOpen`, `r.Home == p.o.LauncherID && (p.leftOpen`},
	),
)
