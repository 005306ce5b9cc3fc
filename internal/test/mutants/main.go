// Command mutants takes rules out of the code, one at a time, and runs the tests that have
// to notice: mutants [PATTERN]. It touches no file of the tree. docs/mutants.md says more.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
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
	t := &tester{root: strings.TrimSpace(string(root)), dir: dir, limits: map[string]time.Duration{}}
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

// each runs the mutants, and prints a line of each.
func (t *tester) each(ctx context.Context, list []Mutant) error {
	var wrong []string
	caught, known := 0, 0
	begun := time.Now()
	for _, m := range list {
		start := time.Now()
		v := t.mutated(ctx, m)
		why := equivalent[m.Name]
		said := v.said
		word := "caught"
		switch {
		case v.outcome == broken:
			return fmt.Errorf("mutant %q in %s: %s", m.Name, m.File, v.said)
		case v.outcome == failed && why == "":
			caught++
		case v.outcome == failed:
			wrong = append(wrong, m.Name+": it is said to be equivalent, and "+v.said+" notices it")
		case why != "":
			known++
			word, said = "same", why
		default:
			word = "SURVIVED"
			wrong = append(wrong, m.Name+" ("+m.File+"): no test notices")
		}
		fmt.Printf("%-9s %6.1fs  %s: %s  %s\n", word, time.Since(start).Seconds(), m.File, m.Name, said)
	}
	fmt.Printf("%d mutants in %v: %d caught, %d equivalent, %d wrong\n", len(list), time.Since(begun).Round(time.Second), caught, known, len(wrong))
	if len(wrong) > 0 {
		return errors.New("write the test that notices, or say in the list why nothing can:\n  " + strings.Join(wrong, "\n  "))
	}
	return nil
}
