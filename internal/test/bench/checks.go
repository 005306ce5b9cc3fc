package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// checks measures what it costs to ask a site whether the account of a profile that nobody uses is signed
// in: from the request to the answer, with the start and the end of the browser that asks, and the
// processor time of the launcher and of what it has started. From that follows what the launcher uses for
// a thousand profiles that are checked every quarter of an hour, beside the browsers.
func checks(o options, binary string) (_ []result, err error) {
	s, err := startSidecar(binary, o.chrome)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	page, web, err := serve(servePage)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	const profile = "checked"
	if err := s.rest(http.MethodPut, "/v1/profiles/"+profile, map[string]any{"session_check": map[string]any{"url": page}}, nil); err != nil {
		return nil, err
	}
	var took, own, others []float64
	for round := range o.rounds + 1 {
		cpu, err := s.cpu()
		if err != nil {
			return nil, err
		}
		waited, err := s.childrensCPU()
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		var said struct {
			SignedIn string `json:"signed_in"`
			How      string `json:"how"`
		}
		if err := s.rest(http.MethodPost, "/v1/profiles/"+profile+"/check", nil, &said); err != nil {
			return nil, err
		}
		d := ms(begun)
		if said.SignedIn != "yes" {
			return nil, fmt.Errorf("the check of %s says %q (%s), want yes", page, said.SignedIn, said.How)
		}
		cpuAfter, err := s.cpu()
		if err != nil {
			return nil, err
		}
		waitedAfter, err := s.childrensCPU()
		if err != nil {
			return nil, err
		}
		if round > 0 { // the first makes the profile
			took, own, others = append(took, d), append(own, (cpuAfter-cpu).Seconds()*1e3), append(others, (waitedAfter-waited).Seconds()*1e3)
		}
	}
	const profiles, every = 1000, 15 * time.Minute
	return []result{
		{Name: "check of an account, request to answer, p50", Unit: "ms", Value: median(took)},
		{Name: "check of an account, launcher's CPU", Unit: "ms", Value: median(own)},
		{Name: "check of an account, CPU of its browser", Unit: "ms", Value: median(others)},
		{Name: "1000 accounts checked every 15 min, launcher's CPU", Unit: "% of a core", Goal: 10, Value: median(own) * profiles / (every.Seconds() * 1e3) * 100},
	}, nil
}

// clockTick is the unit of times in /proc/PID/stat, which is the same on all of Linux.
const clockTick = 10 * time.Millisecond

// childrensCPU is the CPU time of the processes that the launcher started and that have ended, with
// theirs.
func (s *sidecar) childrensCPU() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	var user, system time.Duration
	if fields := strings.Fields(rest); len(fields) > 14 {
		_, err = fmt.Sscan(fields[13]+" "+fields[14], &user, &system)
	} else {
		err = errors.New("it has too few fields")
	}
	if err != nil {
		return 0, fmt.Errorf("times of the children of pid %d: %w", s.cmd.Process.Pid, err)
	}
	return (user + system) * clockTick, nil
}
