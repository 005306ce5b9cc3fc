package main

import (
	"errors"
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
	shared := pssOf(s.cmd.Process.Pid)
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
