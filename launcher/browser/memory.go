package browser

import (
	"slices"
	"time"

	"leasehold/internal/procfs"
)

// Memory is a reading of a browser's memory, for its evidence.
type Memory struct {
	LimitBytes uint64 `json:"limit_bytes"`
	UsedBytes  uint64 `json:"used_bytes"`
	// How says how it was measured: "cgroup", or a result of memoryOf.
	How       string     `json:"how"`
	At        *time.Time `json:"at"`
	Processes []Share    `json:"processes,omitempty"`
}

// Share is the memory of one process of a browser.
type Share struct {
	PID   int    `json:"pid"`
	Bytes uint64 `json:"bytes"`
	// How is "pss", or "private" if the kernel does not show the proportional share.
	How string `json:"how"`
}

// memoryOf adds up the memory of processes; how says what was added up. If the sum of
// their resident pages ("rss") is at most enough, that is the result. It counts shared
// pages several times, but costs next to nothing. Otherwise each page counts once: the
// result is the sum of the proportional shares ("pss"). Where the kernel does not show
// the share of a process, its private pages are added instead, and the shared ones once
// for all such processes ("private").
func memoryOf(ps []procfs.Process, enough uint64) (used uint64, how string, shares []Share) {
	found := map[int]procfs.Memory{}
	for _, p := range ps {
		if m, err := procfs.ReadMemory(p.PID); err == nil {
			found[p.PID] = m
			used += m.Resident
		}
	}
	if used <= enough {
		return used, "rss", nil
	}
	used, how = 0, "pss"
	var common uint64
	for _, p := range ps {
		m, ok := found[p.PID]
		if !ok {
			continue // the process has ended
		}
		one := Share{PID: p.PID, How: "pss"}
		var err error
		if one.Bytes, err = procfs.Proportional(p.PID); err != nil {
			// Shared pages count once: as many as the process with the most of them
			// has.
			one.Bytes, one.How, how = m.Resident-min(m.Resident, m.Shared), "private", "private"
			common = max(common, m.Shared)
		}
		used += one.Bytes
		shares = append(shares, one)
	}
	slices.SortFunc(shares, func(a, b Share) int { return int(int64(b.Bytes) - int64(a.Bytes)) })
	return used + common, how, shares
}
