package main

import "slices"

var (
	seals   = []Catcher{by("launcher/snapshots")}
	streams = []Catcher{by("launcher/snapshots/natsobjects")}
	takes   = []Catcher{by("launcher/snapshotter"), by("launcher/slots", "TestWhoOccupiesAProfileEndsItsVacancy")}
	naming  = []Catcher{by("lease", "TestARecordNamesASnapshotOfItsOwnToken", "TestASnapshotIsRestoredUnderAHigherToken", "TestWhatNobodyUsedYetIsAtRest", "TestAnotherDirectoryIsNotTheOneBefore")}
	clones  = []Catcher{by("launcher", "TestTheAccountStandsStillForClonesToo")}
	remade  = []Catcher{by("launcher", "TestWhatIsMadeHasASnapshotAtOnce", "TestAnotherDirectoryIsTold", "TestAMakingThatIsCutShortLeavesTheFloorBehindByOne", "TestATaskResumesInItsOwnDirectoryOnly")}
)

// ofSnapshots are rules of who may seal a profile, and when.
var ofSnapshots = slices.Concat(
	in("launcher/snapshots/head.go", seals,
		change{"a stale holder seals a profile", `if token < h.Token {`, `if token < h.Token && false {`},
	),
	in("launcher/snapshots/dir.go", seals,
		change{"a list that somebody else replaced is written over", `case versionOf(old) != version:`, `case false:`},
	),
	in("launcher/snapshots/read.go", seals,
		change{"a profile that changed while it was read is sealed", `if !slices.Equal(before, after) {`, `if !slices.Equal(before, after) && false {`},
	),
	in("launcher/snapshots/retain.go", seals,
		change{"the newest snapshot is removed for its age", `case newer == 0, slices.Contains(r.Also, s.ID):`, `case slices.Contains(r.Also, s.ID):`},
		change{"the snapshot that a record names is removed", `case newer == 0, slices.Contains(r.Also, s.ID):`, `case newer == 0:`},
		change{"what a later holder stores is collected", `lease.Token(n) <= token`, `(lease.Token(n) <= token || true)`},
		change{"what a snapshot has is collected", `if used[key] || !ofToken`, `if !ofToken`},
	),
	in("launcher/snapshots/retain.go", []Catcher{by("launcher/snapshotter", "TestChecksPushOutNoSession")},
		change{"snapshots after checks push out those of sessions", ` || later[0].Token == s.Token)`, `)`},
	),
	in("lease/snapshot.go", []Catcher{by("lease", "TestABrowserWithoutASessionOutdatesTheSnapshot")},
		change{"a snapshot has what a check changed later", ` && r.SnapshotOpened == r.Opened`, ``},
	),
	in("launcher/accounts/check.go", []Catcher{by("launcher", "TestACheckIsFollowedByASnapshot", "TestNothingIsCheckedThatIsNotNoted")},
		change{"a check is not noted before its browser", "\t\treturn e.Record.Open()\n", "\t\treturn e.Record, nil\n"},
	),
	in("launcher/snapshots/natsobjects/natsobjects.go", streams,
		change{"the stream takes a list that somebody else replaced", `, jetstream.WithExpectLastSequencePerSubject(sequence))`, `, []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(sequence)}[:0]...)`},
	),
	in("launcher/snapshotter/snapshotter.go", []Catcher{by("launcher/snapshotter", "TestWhatHasNoSnapshot")},
		change{"a directory that was left for another home is in a snapshot", `err = s.o.Root.MayOpen(r.ProfileID)`, `err = nil`},
	),
	in("launcher/snapshotter/snapshotter.go", []Catcher{by("launcher/snapshotter", "TestWhatFailedAttemptsLeaveIsCollected")},
		change{"what a failed attempt left stays where all snapshots stay", `len(removed) == 0 && !tidy {`, `len(removed) == 0 && tidy {`},
	),
	in("launcher/slots/slots.go", takes,
		change{"a profile is read on while somebody has it", "\tt.slots[profile] = s\n\tt.endVacancy(profile)\n", "\tt.slots[profile] = s\n"},
	),
	in("launcher/snapshotter/snapshotter.go", takes,
		change{"a snapshot that the profile's move names is removed", "\t\tkeep.Also = append(keep.Also, now.Moved.SnapshotID)\n", ""},
		change{"snapshots are removed while a person decides", `if now.MoveRequest != nil || !now.State.Free() && now.State != lease.Held {`, `if now.MoveRequest != nil {`},
		change{"snapshots are removed while another launcher asks for the profile", `if now.MoveRequest != nil || !now.State.Free()`, `if !now.State.Free()`},
	),
	in("launcher/travel/clone.go", clones,
		change{"a profile whose account stands still is cloned", `that could act beside it until that is decided"); p != nil {`, `that could act beside it until that is decided"); p != nil && false {`},
		change{"a clone is made although its account has to stand still since", "\t\t\t_, err = t.toClone(ctx, profileID) // by now the account may have to stand still\n", ""},
	),
	in("launcher/travel/rehome.go", []Catcher{by("launcher", "TestNoOtherProfilesUndecidedDirectoryIsGivenToOne")},
		change{"a profile gets the directory of another one that a person has to judge", `t.lockSource(ctx, from, r.ProfileID)`, `profiledir.LockSource(from)`},
	),
	in("launcher/travel/transfer.go", remade,
		change{"what is sealed of the directory before counts for another one", "\tt.overtake(ctx, r.ProfileID, r.Token)\n", ""},
		change{"the floor stays behind makings that are cut short", "\t\tif err := t.catchUp(ctx, lock); err != nil {\n\t\t\treturn err\n\t\t}\n", ""},
	),
	in("launcher/host/directory.go", remade,
		change{"a task resumes in another directory", "\tif r.State != lease.ResumePending {\n", "\tif true {\n"},
	),
	in("launcher/travel/making.go", remade,
		change{"a clone that was removed is set up again as it was", "\tif gone {\n", "\tif gone && false {\n"},
	),
	in("launcher/grant/grant.go", remade,
		change{"a task that resumes makes its directory", "\tif err := host.Resumes(entry.Record); err != nil {\n\t\treturn entry, false, err\n\t}\n", ""},
	),
	in("lease/snapshot.go", naming,
		change{"a record names a snapshot of an earlier session", `if token != r.Token || !r.AtRest() {`, `if !r.AtRest() {`},
		change{"a profile whose session began counts as one that nobody used", `inOrder := r.SessionID == "" || !r.ReleasedAt.IsZero()`, `inOrder := true`},
		change{"another directory keeps the token of the one before", "\tif err := r.raise(0); err != nil {\n\t\treturn r, err\n\t}\n\tr.Reason, r.Decision", "\tr.Reason, r.Decision"},
		change{"nobody is told of another directory", `r.transition(Remade, r.State, now, EventRemade)`, `r.transition(Remade, r.State, now)`},
		change{"a restore does not raise the token", "\tif err := r.raise(0); err != nil {\n\t\treturn r, err\n\t}\n\tif r.State == Available {", "\tif r.State == Available {"},
	),
)
