package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// atOnce is how many lives go on at the same time in the second half of the measure.
const atOnce = 10

// life is one session as browserarena measures it: it is created, a client connects and opens a page of a
// site, and it is released. Each step has its time in milliseconds.
type life struct {
	create, connect, goTo, release float64
}

func (l life) all() float64 { return l.create + l.connect + l.goTo + l.release }

// lives measures the lives of sessions, one after the other and ten at a time, each on a profile of its
// own, beside the same Chrome with the same arguments that is started by hand with a new directory. Of
// both it counts how many succeeded, and what a session costs: seconds of the processor, by all processes
// of the way, and seconds in which it has a GiB of memory.
func lives(o options, binary string) (_ []result, err error) {
	s, err := startSidecar(binary, o.chrome, "--keep-warm-min-memory", "0")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	hand, err := s.byHand(o.chrome)
	if err != nil {
		return nil, err
	}
	page, web, err := serve(servePage)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	pid := s.cmd.Process.Pid
	var results []result
	for _, mode := range []struct {
		name   string
		atOnce int
	}{{"in a row", 1}, {fmt.Sprintf("%d at a time", atOnce), atOnce}} {
		byHand, err := manyLives(o.lives, mode.atOnce, childrens, func() float64 { return memoryOf(os.Getpid(), pid) }, func(n int) (life, error) {
			return hand.live(filepath.Join(s.dir, fmt.Sprintf("hand-%d-%d", mode.atOnce, n)), page)
		})
		if err != nil {
			return nil, fmt.Errorf("by hand, %s: %w", mode.name, err)
		}
		through, err := manyLives(o.lives, mode.atOnce, func() (time.Duration, error) { return spentBy(pid) }, func() float64 { return pssOf(pid) + memoryOf(pid) }, func(n int) (life, error) {
			return s.live(fmt.Sprintf("life-%d-%d", mode.atOnce, n), page)
		})
		if err != nil {
			return nil, fmt.Errorf("through the launcher, %s: %w", mode.name, err)
		}
		of := "life of a session, " + mode.name
		for _, step := range []struct {
			name string
			took func(life) float64
		}{
			{"create", func(l life) float64 { return l.create }}, {"connect", func(l life) float64 { return l.connect }},
			{"goto", func(l life) float64 { return l.goTo }}, {"release", func(l life) float64 { return l.release }}, {"all", life.all},
		} {
			results = append(results, result{Name: of + ", " + step.name + ", p50 (port: by hand)", Unit: "ms", Port: byHand.p50(step.took), Value: through.p50(step.took)})
		}
		results = append(results,
			result{Name: fmt.Sprintf("%s, succeeded of %d", of, o.lives), Port: float64(len(byHand.lives)), Value: float64(len(through.lives))},
			result{Name: of + ", sessions in a minute", Unit: "/min", Port: byHand.each(60 / byHand.took.Seconds()), Value: through.each(60 / through.took.Seconds())},
			result{Name: of + ", 1000 of them, processor", Unit: "s", Port: byHand.cpu.Seconds() / float64(o.lives) * 1e3, Value: through.cpu.Seconds() / float64(o.lives) * 1e3},
			result{Name: of + ", 1000 of them, memory", Unit: "GiB s", Port: byHand.gibSeconds / float64(o.lives) * 1e3, Value: through.gibSeconds / float64(o.lives) * 1e3})
		for _, failed := range []error{byHand.failed, through.failed} {
			if failed != nil {
				fmt.Fprintln(os.Stderr, "bench:", of+":", failed)
			}
		}
	}
	return results, nil
}

// lived is what became of many lives.
type lived struct {
	lives      []life // those that succeeded
	failed     error  // why the first other one did not
	took, cpu  time.Duration
	gibSeconds float64
}

func (l lived) each(per float64) float64 { return float64(len(l.lives)) * per }

func (l lived) p50(of func(life) float64) float64 {
	took := make([]float64, len(l.lives))
	for i, one := range l.lives {
		took[i] = of(one)
	}
	return median(took)
}

// childrens is the CPU time of the processes that this one has started and that have ended.
func childrens() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// manyLives has n sessions live, atOnce at a time. spent is the CPU time of all that takes part, and memory
// is what it has now, in KiB.
func manyLives(n, atOnce int, spent func() (time.Duration, error), memory func() float64, live func(n int) (life, error)) (l lived, _ error) {
	before, err := spent()
	if err != nil {
		return l, err
	}
	begun := time.Now()
	over, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		for last := begun; ; {
			select {
			case <-over:
				return
			case <-time.After(500 * time.Millisecond):
			}
			now := time.Now()
			l.gibSeconds += memory() / (1 << 20) * now.Sub(last).Seconds()
			last = now
		}
	}()
	var mu sync.Mutex
	_ = parallel(n, atOnce, func(i int) error { // one that fails is counted, and ends no others
		one, err := live(i + 1)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			l.lives = append(l.lives, one)
		} else if l.failed == nil {
			l.failed = err
		}
		return nil
	})
	l.took = time.Since(begun)
	close(over)
	<-sampled
	after, err := spent()
	l.cpu = after - before
	return l, err
}

// live has one session live, through the launcher.
func (s *sidecar) live(profile, page string) (l life, _ error) {
	begun := time.Now()
	g, err := s.grant(profile)
	if err != nil {
		return l, err
	}
	l.create = ms(begun)
	begun = time.Now()
	c, err := dial(g.CDPURL)
	if err != nil {
		return l, err
	}
	l.connect = ms(begun)
	if err := l.visit(c, page); err != nil {
		return l, err
	}
	begun = time.Now()
	if err := s.release(g); err != nil {
		return l, err
	}
	l.release = ms(begun)
	_ = c.net.Close() // the launcher has closed it
	return l, nil
}

// visit has the browser answer, which belongs to the connection, and opens the page in the tab that is there.
func (l *life) visit(c *client, page string) error {
	begun := time.Now()
	if _, err := c.call("", "Browser.getVersion", `{}`); err != nil {
		return err
	}
	l.connect += ms(begun)
	begun = time.Now()
	session, err := c.openPage()
	if err != nil { // by hand there is none
		if session, err = c.page(); err != nil {
			return err
		}
	}
	err = c.goTo(session, page)
	l.goTo = ms(begun)
	return err
}

// live has one browser live that is started by hand, with a new directory.
func (h *byHand) live(dir, page string) (l life, err error) {
	begun := time.Now()
	err = h.with(dir, func(c *client) error {
		l.create = ms(begun)
		err := l.visit(c, page)
		begun = time.Now()
		return err
	})
	l.release = ms(begun)
	return l, errors.Join(err, os.RemoveAll(dir))
}
