package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// processes returns the parent and the CPU time, with that of its ended children, of every process.
func processes() map[int]process {
	all := map[int]process{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		p := process{}
		p.parent, _ = strconv.Atoi(fields[1])
		for _, field := range fields[11:15] {
			ticks, _ := strconv.Atoi(field) // the kernel writes numbers
			p.cpu += time.Duration(ticks) * clockTick
		}
		all[pid] = p
	}
	return all
}

type process struct {
	parent int
	cpu    time.Duration
}

// below returns a process and its descendants, without some of them and theirs.
func below(all map[int]process, root int, without ...int) []int {
	family := []int{root}
	for i := 0; i < len(family); i++ {
		for pid, p := range all {
			if p.parent == family[i] && !slices.Contains(without, pid) {
				family = append(family, pid)
			}
		}
	}
	return family
}

// spentBy is the CPU time that a process and its descendants have used, ended ones too.
func spentBy(root int) (time.Duration, error) {
	all := processes()
	if _, ok := all[root]; !ok {
		return 0, fmt.Errorf("process %d has ended", root)
	}
	sum := time.Duration(0)
	for _, pid := range below(all, root) {
		sum += all[pid].cpu
	}
	return sum, nil
}

// memoryOf is the memory of the descendants of a process, in KiB.
func memoryOf(root int, without ...int) float64 {
	sum := 0.0
	for _, pid := range below(processes(), root, without...)[1:] {
		sum += pssOf(pid)
	}
	return sum
}

// pssOf is the memory of a process, pages of several processes divided among them, in KiB; zero if it has
// ended.
func pssOf(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	var kib float64
	_, rest, _ := strings.Cut(string(b), "\nPss:")
	_, _ = fmt.Sscan(rest, &kib) // the kernel writes a number
	return kib
}
