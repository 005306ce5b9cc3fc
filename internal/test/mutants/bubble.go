package main

import "slices"

var (
	guard    = []Catcher{by("launcher/adopt", "TestEachBrowserHasAWaitOfItsOwn", "TestTheGuardEndsBrowsers")}
	shared   = []Catcher{by("launcher", "TestAForgottenProfileThatIsSharedWaits", "TestASharedDirectoryIsLookedAtThroughoutAGrant", "TestASharedDirectoryIsLookedAtBeforeItIsUsed")}
	settings = []Catcher{by("launcher", "TestSettingsMakeNoForgottenProfileFree")}
)

// ofBubble are rules about browsers that outlive a session, a connection or a launcher, and
// about the guard. What they are for shows only where launchers come and go: the tests of
// internal/test/bubble have to notice.
var ofBubble = slices.Concat(
	in("launcher/session/start.go", bubble,
		change{"bubble: a warm browser is handed to a task that it does not fit", `wanted != *s.slot.Fit() || s.manifest`, `wanted == (slots.Fit{}) || s.manifest`},
		change{"bubble: a warm browser is handed over and the floor stays", "\terr = errors.Join(err, s.slot.Lock().RaiseFloor(s.granted))\n\trest.Wait()", "\trest.Wait()"},
	),
	in("launcher/monitor/clear.go", bubble,
		change{"bubble: a browser is left for the next task with the pages of the last", "\t\tif err != nil || len(others) == 0 {\n", "\t\tif true {\n"},
	),
	in("launcher/slots/warm.go", bubble,
		change{"bubble: a warm browser waits for ever", "\t\tcase <-end.C:\n", "\t\tcase <-(chan int)(nil):\n"},
	),
	in("launcher/grant.go", bubble,
		change{"bubble: a person gets a warm browser", "\tif m.ByHand != nil {\n\t\tslot.CloseWarm(slots.WarmWanted, \"\")\n\t}\n", ""},
	),
	in("launcher/cluster/presence.go", bubble,
		change{"bubble: a session goes on although its lease has expired", ` && p.o.Clock() < p.before.Deadline`, ``},
	),
	in("launcher/adopt/resume.go", bubble,
		change{"bubble: a session goes on although its end had begun", `case f.Reason != "" || f.Ended != "" || f.Evidence.EvidenceID != "":`, `case false:`},
	),
	in("launcher/session/resume.go", bubble,
		change{"bubble: a session that went on counts as watched throughout", "\ts.file.Unseen = true // while there was no launcher\n", ""},
	),
	in("launcher/adopt/adopt.go", bubble,
		change{"bubble: every browser that was left counts as a warm one", `return kept.State == lease.Available && kept.EvidenceID != "" && len(kept.Runs) == 0`, `return kept.ProfileID != "-"`},
	),
	in("launcher/session/policy.go", bubble,
		change{"bubble: a worker whose connection broke is waited for without an end", `case f.dropped && !now.Before(f.endedAt.Add(p.grace)):`, `case false:`},
	),
	in("launcher/browser/still.go", bubble,
		change{"bubble: the account goes on while its worker is gone", "\tif err := n.Stop(ctx); err != nil {\n", "\tif err := ctx.Err(); err != nil {\n"},
	),
	in("launcher/adopt/guard.go", bubble,
		change{"bubble: the guard never ends a browser", `if len(due) > 0 {`, `if false {`},
		change{"bubble: the guard waits for nobody", `waits > 0 {`, `waits > timeout {`},
		change{"bubble: the guard takes every browser for a warm one", `if leftWarm(record) {`, `if true {`},
	),
	in("launcher/adopt/guard.go", guard,
		change{"the guard counts for a browser since it was left the first time", "\t\t\tdelete(a, profile)\n", ""},
		change{"the guard's bundle names a run that is over", "\trecord = ofRun(record, f)\n", ""},
	),
	in("launcher/acquire.go", shared,
		change{"a forgotten profile that is shared is healed at once", "\tif path, err := g.o.Root.Path(r.ProfileID); err == nil {\n\t\tif p := g.sharedReady(path); p != nil {\n\t\t\treturn e, p\n\t\t}\n\t}\n", ""},
	),
	in("launcher/transfer.go", shared,
		change{"a shared directory is copied although the store is young", "\treturn ps.grants.stillReady(path)\n", "\t_ = path\n\treturn nil\n"},
	),
	in("launcher/grant.go", shared,
		change{"a shared directory is granted although the store is young", `if err := g.stillReady(where); err != nil {`, `if err := g.stillReady(where); err != nil && where == "" {`},
		change{"a browser starts although the store was lost", "\terr = g.stillReady(path)\n", ""},
		change{"a session begins although the store was lost while its browser started", `errors.Join(err, g.stillReady(path), `, `errors.Join(err, `},
	),
	in("launcher/profiles.go", settings,
		change{"settings make a forgotten profile free", "\t\t\tif err := ps.notFree(r); err != nil {\n\t\t\t\treturn r, err\n\t\t\t}\n", ""},
	),
	in("cdpproxy/pipe_write.go", bubble,
		change{"bubble: a message is not checked at the pipe", "\tif fence != nil {\n\t\tif m.passedAt, err", "\tif fence != nil && false {\n\t\tif m.passedAt, err"},
	),
)
