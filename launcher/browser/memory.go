package browser

import (
	"slices"
	"time"

	"leasehold/internal/procfs"
)

// Memory is a reading of a browser's memory, as evidence shows it.
type Memory struct {
	LimitBytes uint64 `json:"limit_bytes"`
	UsedBytes  uint64 `json:"used_bytes"`
	// How is "cgroup", "pss", "private" or "rss", see memoryOf.
	How       string     `json:"how"`
	At        *time.Time `json:"at"`
	Processes []Share    `json:"processes,omitempty"`
}

// Share is what one process of a browser has in memory.
type Share struct {
	PID   int    `json:"pid"`
	Bytes uint64 `json:"bytes"`
	// How is "pss" or, where the kernel shows no more, "private".
	How string `json:"how"`
}

// memoryOf adds up what processes have in memory, counting no page twice. Where all of
// their resident pages together are below enough it returns that sum, which is more
// than they have and costs next to nothing; how is "rss" then.
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
			continue // it has ended
		}
		one := Share{PID: p.PID, How: "pss"}
		var err error
		if one.Bytes, err = procfs.Proportional(p.PID); err != nil {
			// What is shared counts once: with the process that has most of it.
			one.Bytes, one.How, how = m.Resident-min(m.Resident, m.Shared), "private", "private"
			common = max(common, m.Shared)
		}
		used += one.Bytes
		shares = append(shares, one)
	}
	slices.SortFunc(shares, func(a, b Share) int { return int(int64(b.Bytes) - int64(a.Bytes)) })
	return used + common, how, shares
}
