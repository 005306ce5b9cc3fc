package profiledir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"leasehold/internal/boottime"
	"leasehold/internal/procfs"
)

// Process is a living process that names a profile directory on its command line.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"`
	// Command is the command line, with its arguments separated by spaces.
	Command string `json:"command"`
	// Main is true for a browser's main process (or a wrapper that is about to
	// become one), false for the helpers that it started.
	Main bool `json:"main"`
}

// Processes returns the living processes with --user-data-dir=<profilePath> on their command
// line. They matter because a free lock does not mean that nobody writes to the profile:
// Chrome's helpers write too, may outlive its main process, and do not hold the lock. Processes
// does not find processes in another PID namespace, nor a browser that was given the directory
// by another path.
func Processes(profilePath string) ([]Process, error) {
	pids, err := procfs.PIDs()
	if err != nil {
		return nil, err
	}
	cannotTell := func(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) }
	var found []Process
	for _, pid := range pids {
		line, err := procfs.CommandLine(pid)
		if cannotTell(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		named, main := namesProfile(line, profilePath)
		if !named {
			continue
		}
		p, err := procfs.Read(pid)
		if cannotTell(err) || err == nil && !p.Alive() {
			continue
		}
		if err != nil {
			return nil, err
		}
		command := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		found = append(found, Process{PID: pid, StartTime: p.StartTime, Command: command, Main: main})
	}
	return found, nil
}

// namesProfile tells whether a command line has exactly the profile's path as its
// user-data-dir, and whether it is that of a main process. The arguments of the main
// process are separated by zero bytes; the helpers have rewritten theirs to one string
// joined with spaces.
func namesProfile(line []byte, path string) (named, main bool) {
	isBreak := func(b byte) bool { return b == 0 || b == ' ' }
	arg := []byte("--user-data-dir=" + path)
	for i := 0; ; {
		at := bytes.Index(line[i:], arg)
		if at < 0 {
			return false, false
		}
		at += i
		end := at + len(arg)
		if (at == 0 || isBreak(line[at-1])) && (end == len(line) || isBreak(line[end])) {
			break
		}
		i = end
	}
	return true, !bytes.Contains(line, []byte("\x00--type=")) && !bytes.Contains(line, []byte(" --type="))
}

// Left returns the browser that a launcher left on the profile: the noted one or, if there is
// no note, the main process that holds Chrome's part of the profile's lock. (A launcher that
// was killed right after it had started a browser has left no note.) Only a process that a
// launcher started can have inherited that lock. The session and token of such a browser are
// those of the record that was kept before it was started.
func (r *Root) Left(id string) (Running, bool, error) {
	run, noted, err := r.Running(id)
	if noted || err != nil {
		return run, noted, err
	}
	if _, own := r.parts(id); own {
		return Running{}, false, nil
	}
	if held, err := probe(r.file(id, sharedPart)); !held || err != nil {
		return Running{}, false, err
	}
	p, found, err := r.holder(id)
	if !found || err != nil {
		return Running{}, false, err
	}
	token, kept, err := r.Kept(id)
	return Running{PID: p.PID, StartTime: p.StartTime, BootID: boottime.ID(), SessionID: kept.SessionID, Token: token}, err == nil, err
}

// holder is the main process on the profile's directory that has the file of Chrome's part of
// the lock open.
func (r *Root) holder(id string) (Process, bool, error) {
	path, err := r.Path(id)
	if err != nil {
		return Process{}, false, err
	}
	all, err := Processes(path)
	if err != nil {
		return Process{}, false, err
	}
	lock, err := os.Stat(r.file(id, sharedPart))
	if err != nil {
		return Process{}, false, err
	}
	for _, p := range all {
		if !p.Main {
			continue
		}
		open, err := procfs.HasOpen(p.PID, lock)
		if err != nil || open {
			return p, open, err
		}
	}
	return Process{}, false, nil
}

// WaitUnused waits until no living process names the profile's directory. If ctx
// ends first, the error names those that do.
func (r *Root) WaitUnused(ctx context.Context, id string) error {
	path, err := r.Path(id)
	if err != nil {
		return err
	}
	const first, longest = 5 * time.Millisecond, 200 * time.Millisecond
	for pause := first; ; pause = min(2*pause, longest) {
		users, err := Processes(path)
		if err != nil || len(users) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("profile %s: still in use by %s: %w", id, pids(users), context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// pids lists processes for a message.
func pids(ps []Process) string {
	var b strings.Builder
	for i, p := range ps {
		if i == 0 {
			b.WriteString("pid ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(p.PID))
		if p.Main {
			b.WriteString(" (main)")
		}
	}
	return b.String()
}
