// Command mutants takes rules out of the code, one at a time, and runs the tests that have
// to notice: mutants [PATTERN]. It touches no file of the tree. docs/lab/mutants.md says more.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pattern := strings.Join(os.Args[1:], " ")
	if err := run(ctx, pattern); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

// run checks the list, then the tests on the code as it is, then the mutants that match
// the pattern.
func run(ctx context.Context, pattern string) error {
	root, err := exec.CommandContext(ctx, goCommand(), "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("where is the module? %w", err)
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	t := &tester{root: strings.TrimSpace(string(root)), dir: dir, contained: contained(ctx), limits: map[string]time.Duration{}}
	list, err := all(t.root)
	if err == nil {
		err = check(t.root, list)
	}
	if err == nil {
		list, err = matching(list, pattern)
	}
	if err == nil {
		err = t.first(ctx, list)
	}
	if err == nil {
		err = t.each(ctx, list)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// first runs the tests on the code as it is: they have to be there, and pass.
func (t *tester) first(ctx context.Context, list []Mutant) error {
	for _, m := range list {
		for _, c := range m.By {
			if t.limits[c.key()] != 0 {
				continue
			}
			begun := time.Now()
			v := t.unchanged(ctx, c)
			fmt.Printf("%-9s %6.1fs  %s\n", "as it is", time.Since(begun).Seconds(), c)
			if v.outcome != passed {
				return fmt.Errorf("the code as it is does not pass %s: %s", c, v.said)
			}
		}
	}
	return nil
}

// each runs the mutants, some at a time, and prints a line of each in the order of the list.
func (t *tester) each(ctx context.Context, list []Mutant) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	begun := time.Now()
	results, next := make([]chan result, len(list)), make(chan int)
	for i := range results {
		results[i] = make(chan result, 1)
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	for range jobs() {
		work.Go(func() {
			for i := range next {
				start := time.Now()
				v := t.mutated(ctx, list[i], i)
				results[i] <- result{v, time.Since(start)}
			}
		})
	}
	work.Go(func() {
		defer close(next)
		for i := range list {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	})
	var count tally
	for i, m := range list {
		select {
		case r := <-results[i]:
			word, said := count.add(m, r.verdict)
			fmt.Printf("%-9s %6.1fs  %s: %s  %s\n", word, r.took.Seconds(), m.File, m.Name, said)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	fmt.Printf("%d mutants in %v: %d caught, %d equivalent, %d wrong\n", len(list), time.Since(begun).Round(time.Second), count.caught, count.same, len(count.wrong))
	if len(count.wrong) > 0 {
		return errors.New("write the test that notices, or say in equivalent.go why nothing can:\n  " + strings.Join(count.wrong, "\n  "))
	}
	return nil
}

// result is a verdict and how long it took to come to.
type result struct {
	verdict
	took time.Duration
}

// tally counts what became of mutants.
type tally struct {
	caught, same int
	// wrong has those that survived, those that are called equivalent and are not, and those
	// that do not compile.
	wrong []string
}

// add counts a mutant, and returns what its line says.
func (t *tally) add(m Mutant, v verdict) (word, said string) {
	why := equivalent[m.Name]
	switch {
	case v.outcome == broken:
		t.wrong = append(t.wrong, m.Name+" ("+m.File+") is a mistake in the list: "+v.said)
		return "BROKEN", ""
	case v.outcome == failed && why == "":
		t.caught++
		return "caught", "by " + v.said
	case v.outcome == failed:
		t.wrong = append(t.wrong, m.Name+": it is said to be equivalent, and "+v.said+" notices it")
		return "caught", "by " + v.said
	case why != "":
		t.same++
		return "same", why
	}
	t.wrong = append(t.wrong, m.Name+" ("+m.File+"): no test notices")
	return "SURVIVED", ""
}

// jobs is how many mutants run at a time. Their builds and tests use one processor each, more
// or less.
func jobs() int {
	if n, err := strconv.Atoi(os.Getenv("MUTANTS_JOBS")); err == nil && n > 0 {
		return n
	}
	return max(1, runtime.NumCPU()/2)
}
