package launcher

import (
	"errors"
	"maps"
	"slices"

	"leasehold/launcher/sessionfile"
)

// keptCases is how many files of sessions that ended are kept.
const keptCases = 2000

// remember keeps what is to be known of a session that is over, and forgets the
// oldest ones where there are too many.
func (l *Launcher) remember(f sessionfile.File) error {
	err := l.cases.Save(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[f.SessionID] = f
	l.hashes[f.CapabilityHash] = f.SessionID
	if len(l.ended) <= keptCases {
		return err
	}
	var oldest []sessionfile.File
	for _, e := range l.ended {
		if e.Ended != "" {
			oldest = append(oldest, e)
		}
	}
	slices.SortFunc(oldest, func(a, b sessionfile.File) int { return a.AcquiredAt.Compare(b.AcquiredAt) })
	for _, e := range oldest[:min(len(oldest), keptCases/10)] {
		if running, ok, err := l.o.Root.Running(e.Manifest.ProfileID); err != nil || ok && running.SessionID == e.SessionID {
			continue // its files are those of a browser that may live
		}
		delete(l.ended, e.SessionID)
		delete(l.hashes, e.CapabilityHash)
		delete(l.late, e.SessionID)
		err = errors.Join(err, l.cases.Remove(e.SessionID))
	}
	return err
}

// tidyDumps bounds the crash dumps of sessions that are over.
func (l *Launcher) tidyDumps() error {
	l.mu.Lock()
	ended := slices.Collect(maps.Values(l.ended))
	l.mu.Unlock()
	return l.driver.TidyDumps(ended)
}
