package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// pace is a worker's pause between two calls, and paced how long it goes on calling in
// all rounds together.
const (
	pace  = 100 * time.Millisecond
	paced = 6 * time.Second
)

// manySessions compares the calls of n sessions on one launcher, each with a scripted
// browser, with those of a single session at the same pace.
func manySessions(binary string, n int) (_ []result, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s, err := startSidecar(binary, self+" "+fakeArg, "--max-browsers", fmt.Sprint(n+1))
	if err != nil {
		return nil, err
	}
	clients := make([]*client, n)
	defer func() {
		for _, c := range clients {
			if c != nil {
				err = errors.Join(err, c.close())
			}
		}
		err = errors.Join(err, s.stop())
	}()
	before, err := s.memory()
	if err != nil {
		return nil, err
	}
	for i := range clients {
		url, err := s.session(fmt.Sprintf("bench-%d", i))
		if err != nil {
			return nil, err
		}
		if clients[i], err = dial(url); err != nil {
			return nil, err
		}
		if _, err := clients[i].call("", fakeMethod, `{}`); err != nil {
			return nil, err
		}
	}
	after, err := s.memory()
	if err != nil {
		return nil, err
	}
	var one, many []float64
	var ratios []float64
	for range 5 {
		o, err := atPace(clients[:1])
		if err != nil {
			return nil, err
		}
		m, err := atPace(clients)
		if err != nil {
			return nil, err
		}
		one, many, ratios = append(one, o), append(many, m), append(ratios, m/o)
	}
	idle, err := s.cpu()
	if err != nil {
		return nil, err
	}
	const pause = 3 * time.Second
	time.Sleep(pause)
	idleAfter, err := s.cpu()
	if err != nil {
		return nil, err
	}
	return []result{
		{
			Name: fmt.Sprintf("%d sessions p50, to one's", n), Unit: "us", Goal: 1.5, Port: median(one), Value: median(many),
			Ratio: median(ratios), Low: slices.Min(ratios), High: slices.Max(ratios), Best: slices.Min(many) / slices.Min(one),
		},
		{Name: fmt.Sprintf("memory per session (%d sessions)", n), Unit: "KiB", Value: (after - before) / float64(n)},
		{Name: fmt.Sprintf("CPU when idle (%d sessions)", n), Unit: "ms/s", Value: (idleAfter - idle).Seconds() * 1e3 / pause.Seconds()},
	}, nil
}

// atPace makes every client call with its own offset at the same pace, and returns the
// median time of a call in us.
func atPace(clients []*client) (float64, error) {
	var all sync.WaitGroup
	took := make([][]float64, len(clients))
	errs := make([]error, len(clients))
	end := time.Now().Add(paced / 5)
	for i, c := range clients {
		all.Go(func() {
			time.Sleep(pace * time.Duration(i) / time.Duration(len(clients)))
			for time.Now().Before(end) {
				begun := time.Now()
				if _, errs[i] = c.call("", fakeMethod, `{}`); errs[i] != nil {
					return
				}
				took[i] = append(took[i], float64(time.Since(begun).Nanoseconds())/1e3)
				time.Sleep(pace)
			}
		})
	}
	all.Wait()
	return median(slices.Concat(took...)), errors.Join(errs...)
}
