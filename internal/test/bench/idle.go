package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// How long a launcher has to settle after its start, and is then looked at.
const (
	settleTime = 20 * time.Second
	idleTime   = 20 * time.Second
)

// idle measures what a launcher costs that nobody uses, with its embedded NATS: memory, CPU,
// and how often its threads wake up.
func idle(o options, binary string) (_ []result, err error) {
	s, err := startSidecar(binary, o.chrome)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	time.Sleep(settleTime)
	slept, err := s.sleeps()
	if err != nil {
		return nil, err
	}
	cpu, err := s.cpu()
	if err != nil {
		return nil, err
	}
	time.Sleep(idleTime)
	sleptAfter, err := s.sleeps()
	if err != nil {
		return nil, err
	}
	cpuAfter, err := s.cpu()
	if err != nil {
		return nil, err
	}
	shared, err := s.size("smaps_rollup", "Pss")
	if err != nil {
		return nil, err
	}
	own, err := s.memory()
	if err != nil {
		return nil, err
	}
	return []result{
		{Name: "idle launcher: memory, pages of several processes divided among them", Unit: "MB", Goal: 28, Value: shared * 1024 / 1e6},
		{Name: "idle launcher: memory of its own (no files)", Unit: "MB", Value: own * 1024 / 1e6},
		{Name: "idle launcher: wake-ups", Unit: "/s", Goal: 15, Value: (sleptAfter - slept) / idleTime.Seconds()},
		{Name: "idle launcher: CPU", Unit: "ms/s", Goal: 1, Value: (cpuAfter - cpu).Seconds() * 1e3 / idleTime.Seconds()},
	}, nil
}

// size is one of the sizes in a file of the kernel's about the launcher's process, in KiB.
func (s *sidecar) size(file, field string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.cmd.Process.Pid, file))
	if err != nil {
		return 0, err
	}
	var kib float64
	_, rest, _ := strings.Cut(string(b), "\n"+field+":")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0, fmt.Errorf("%s of pid %d: %w", field, s.cmd.Process.Pid, err)
	}
	return kib, nil
}
