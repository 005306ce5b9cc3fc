package witness

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
)

// directory is the witness of the profile's directory, and of the processes that use it.
type directory struct{ root *profiledir.Root }

func (d directory) Add(_ context.Context, c recovery.Capture, to recovery.Parts) {
	dir, unseen := d.root.Inspect(c.Record.ProfileID)
	users, err := dir.Users()
	to.PutJSON("processes.json", "processes", users, errors.Join(unseen, err))
	to.PutJSON("lock.json", "lock", dir, unseen)
}

func (d directory) Facts(_ context.Context, c recovery.Closed, shown *api.Inspection) []table.Fact {
	dir, err := d.root.Inspect(c.Profile)
	users, usersErr := dir.Users()
	if err != nil {
		users, usersErr = profiledir.Processes(c.Path)
	}
	gone := table.Fact{Name: table.BrowserGone}
	switch {
	case usersErr != nil:
		gone.Answer, gone.How = table.Unknown, usersErr.Error()
	case c.Problem != nil:
		gone.Answer, gone.How = table.Is(len(users) == 0), c.Problem.Error()
	default:
		gone.Answer = table.Is(len(users) == 0)
		gone.How = fmt.Sprintf("%d processes name the directory; it ended by %s", len(users), cmp.Or(c.File.CloseMethod, "unknown"))
	}
	shown.ForeignLock = dir.Singleton.Foreign()
	facts := []table.Fact{gone, unlocked(c.Lock.Retake(), dir.Singleton)}
	if err != nil {
		return append(facts, table.Fact{Name: table.DirectoryPresent, Answer: table.Unknown, How: err.Error()})
	}
	if c.File.NotStored != "" {
		dir.ClosedCleanly = profiledir.Fact{Answer: profiledir.No, How: c.File.NotStored}
	}
	return append(facts,
		fact(table.ClosedCleanly, dir.ClosedCleanly),
		fact(table.DirectoryPresent, dir.DirectoryPresent),
		local(dir.NetworkFilesystem),
		fact(table.SessionState, dir.SessionStatePresent),
	)
}

func fact(name string, f profiledir.Fact) table.Fact {
	return table.Fact{Name: name, Answer: table.Answer(f.Answer), How: f.How}
}

// local tells whether the directory is on this host's own disk, where the kernel's lock
// and the floor prove that nobody else is on it.
func local(network profiledir.Fact) table.Fact {
	f := table.Fact{Name: table.DirectoryLocal, Answer: table.Unknown, How: network.How}
	switch network.Answer {
	case profiledir.No:
		f.Answer = table.Yes
	case profiledir.Yes:
		f.Answer = table.No
		f.How += ": locks of other hosts may not show here"
	}
	return f
}

// unlocked tells whether anybody could still be using the directory: by the kernel's lock
// first, then by Chrome's own, which is left behind when Chrome is killed.
func unlocked(kernel error, own profiledir.Singleton) table.Fact {
	f := table.Fact{Name: table.DirectoryUnlocked, Answer: table.Yes, How: "the kernel's lock is the launcher's own"}
	switch {
	case kernel != nil:
		f.Answer, f.How = table.No, kernel.Error()
	case own.Present.Answer == profiledir.No:
	case own.OwnerAlive.Answer == profiledir.No:
		f.How += "; Chrome's SingletonLock is left over: " + own.OwnerAlive.How
	default:
		f.Answer, f.How = table.Unknown, "Chrome's SingletonLock is there: "+own.OwnerAlive.How
	}
	return f
}
