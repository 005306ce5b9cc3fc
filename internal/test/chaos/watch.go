package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"leasehold/internal/boottime"
	"leasehold/internal/procfs"
)

// browserProcess is a process with a profile directory below the harness's own
// directory in its command line.
type browserProcess struct {
	procfs.Process
	dir  string
	main bool
}

// browserProcesses lists the processes of browsers on profiles below a directory.
func browserProcesses(below string) ([]browserProcess, error) {
	pids, err := procfs.PIDs()
	if err != nil {
		return nil, err
	}
	var found []browserProcess
	for _, pid := range pids {
		line, err := procfs.CommandLine(pid)
		if err != nil {
			continue // the process has ended
		}
		_, rest, ok := bytes.Cut(line, []byte("--user-data-dir="))
		if !ok {
			continue
		}
		dir := string(rest[:len(rest)-len(bytes.TrimLeftFunc(rest, func(r rune) bool { return r != 0 && r != ' ' }))])
		if !strings.HasPrefix(dir, below) {
			continue // such as the browser on an empty profile that describes the protocol
		}
		if p, err := procfs.Read(pid); err == nil && p.Alive() {
			found = append(found, browserProcess{p, dir, !bytes.Contains(line, []byte("--type="))})
		}
	}
	return found, nil
}

// watcher checks every lookEvery that no two browsers run on one directory, nor two of one
// profile in different places, and reports each browser that was started.
type watcher struct {
	below   string
	history *History
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu       sync.Mutex
	looks    int
	reported map[string]bool
	seen     map[int]uint64 // the start times of browsers, by pid
}

const lookEvery = 50 * time.Millisecond

func startWatcher(below string, h *History) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{below: below, history: h, cancel: cancel, reported: map[string]bool{}, seen: map[int]uint64{}}
	w.done.Go(func() {
		for ctx.Err() == nil {
			w.look()
			sleep(ctx, lookEvery)
		}
	})
	return w
}

func (w *watcher) stop() {
	w.cancel()
	w.done.Wait()
}

func (w *watcher) look() {
	all, err := browserProcesses(w.below)
	if err != nil {
		w.history.Add(Entry{Kind: Broken, Text: Harness + ": " + err.Error()})
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	first := map[string]browserProcess{} // by profile: one may be on the disks of two hosts
	for _, p := range all {
		if !p.main || ofReader(p) { // that one is on a copy of its own
			continue
		}
		if w.seen[p.PID] != p.StartTime && isBrowser(p) {
			w.seen[p.PID] = p.StartTime
			w.history.Add(Entry{Kind: Opened, Profile: profileOf(p), Since: boottime.Instant(procfs.Ticks(p.StartTime)), Home: w.owner(p), Text: p.dir})
		}
		other, two := first[profileOf(p)]
		if !two {
			first[profileOf(p)] = p
			continue
		}
		if !isBrowser(p) || !isBrowser(other) {
			continue
		}
		e := Entry{Kind: Broken, Profile: profileOf(p), Text: fmt.Sprintf("%s: pids %d and %d", TwoBrowsers, other.PID, p.PID)}
		if p.dir != other.dir {
			e.Kind, e.Text = Doubled, fmt.Sprintf("pid %d on %s and pid %d on %s", other.PID, other.dir, p.PID, p.dir)
		}
		if !w.reported[e.Text] {
			w.reported[e.Text] = true
			w.history.Add(e)
		}
	}
}

// owner is the host whose disk the directory of a browser is on: the first part of its path.
func (w *watcher) owner(p browserProcess) string {
	rel, err := filepath.Rel(w.below, p.dir)
	if err != nil {
		return ""
	}
	host, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
	return host
}

// isBrowser tells whether the process is still a browser's main process. A browser's
// fork that is about to become a helper looks the same for a moment, but has only one
// thread.
func isBrowser(p browserProcess) bool {
	const fewThreads = 3
	now, err := procfs.Read(p.PID)
	if err != nil || !now.Alive() || now.StartTime != p.StartTime {
		return false
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID))
	if err != nil || len(threads) <= fewThreads {
		return false
	}
	line, err := procfs.CommandLine(p.PID)
	return err == nil && bytes.Contains(line, []byte("--user-data-dir="+p.dir)) && !bytes.Contains(line, []byte("--type="))
}
