// Command suites runs the test suites of others on Chromium's own port and through the
// sidecar, and compares the results by the tests' names: make suites. It ends with status 1
// if a test differs that is on no list. docs/lab/chrome-port.md says more, and has the last table.
//
// Both sides have browsers with the arguments that the sidecar gives to its own. Suites
// that start Chrome get a stand-in for it (standin). What differs is played again on both
// sides, up to three times: a test that has the same result on both sides once is flaky.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"leasehold/launcher/chrome"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.suites, "suites", "", "the suites to run, by names, separated by spaces or commas; all without it")
	flag.StringVar(&o.match, "match", "", "only tests whose names match this pattern")
	flag.StringVar(&o.checkouts, "dir", "", "folder with checkouts of the suites' repositories; what is missing there is cloned")
	flag.StringVar(&o.work, "work", "bin/suites", "where the suites are prepared, and kept")
	flag.StringVar(&o.launcher, "launcher", "bin/leasehold", "the sidecar's binary")
	flag.Parse()
	differ, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
	}
	if err != nil || differ {
		stop()
		os.Exit(1)
	}
}

type options struct{ suites, match, checkouts, work, launcher string }

// again is how often a test that differs is played again.
const again = 3

// errNotHere is why a suite cannot be played on this machine.
var errNotHere = errors.New("cannot be fetched here")

// player plays the tests of one suite, which has been prepared.
type player interface {
	// list returns the full names of all tests.
	list(ctx context.Context) ([]string, error)
	// play plays the tests of these names on the browsers of one side. A test that got
	// no result has none in the results.
	play(ctx context.Context, s *side, names []string) (results, error)
	// close ends what prepare began.
	close() error
}

// suite is a test suite of somebody else.
type suite struct {
	name, version string
	prepare       func(ctx context.Context, p *place) (player, error)
	// leftOut are tests that say nothing about a browser that somebody else started, or
	// that end the suite: with the reasons.
	leftOut []exception
	// exceptions pass on the port only, on purpose.
	exceptions []exception
	// alone says that its tests count the connections of a browser: the runner has none.
	alone bool
}

// place is where suites are prepared.
type place struct {
	checkouts string // may be empty
	work      string // absolute
	source    string // the directory of this package
	chrome    string
	standin   string // the binary
}

// side is one way to the browser.
type side struct {
	name string
	*desk
	// env is the environment of a suite's process.
	env []string
}

func run(ctx context.Context, o options) (differ bool, err error) {
	match, err := regexp.Compile(o.match)
	if err != nil {
		return false, err
	}
	chosen, err := pick(o.suites)
	if err != nil {
		return false, err
	}
	p := &place{checkouts: o.checkouts}
	if p.chrome, err = chrome.Find(""); err != nil {
		return false, err
	}
	if p.work, err = filepath.Abs(o.work); err != nil {
		return false, err
	}
	if err := os.MkdirAll(p.work, 0o755); err != nil {
		return false, err
	}
	source, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "leasehold/internal/test/suites").Output()
	if err != nil {
		return false, fmt.Errorf("where is this package? %w", err)
	}
	p.source = strings.TrimSpace(string(source))
	dir, err := os.MkdirTemp("", "suites-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p.standin = filepath.Join(dir, "chrome")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", p.standin, "leasehold/internal/test/suites/standin").CombinedOutput(); err != nil {
		return false, fmt.Errorf("the stand-in for Chrome: %w\n%s", err, out)
	}
	s, err := startSidecar(o.launcher, dir, p.work)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	// The first answer takes a browser's start, for which a suite's client does not wait on a
	// busy host: docs/clients.md says to ask once before.
	if _, err := s.ask(ctx, http.MethodGet, "/profiles/any/json/protocol", nil); err != nil {
		return false, err
	}
	onPort, err := p.side("port", port{binary: p.chrome, dir: filepath.Join(dir, "port")}, dir)
	if err != nil {
		return false, err
	}
	defer onPort.close()
	through, err := p.side("sidecar", s, dir)
	if err != nil {
		return false, err
	}
	through.env = append(through.env, "WSPIPE_SIDECAR="+strings.TrimPrefix(s.URL, "http://"))
	defer through.close()
	var rows []row
	for _, one := range chosen {
		r, err := one.run(ctx, p, match, onPort, through)
		switch {
		case errors.Is(err, errNotHere):
			r.why = err.Error()
			fmt.Printf("%s: not played: %v\n", one.name, err)
		case err != nil:
			return true, fmt.Errorf("%s: %w", one.name, err)
		}
		differ = differ || len(r.differ) > 0
		rows = append(rows, r)
	}
	fmt.Println()
	table(os.Stdout, rows)
	return differ, nil
}

// pick returns the suites of these names, all without any.
func pick(names string) ([]suite, error) {
	wanted := strings.FieldsFunc(names, func(r rune) bool { return r == ' ' || r == ',' })
	if len(wanted) == 0 {
		return all, nil
	}
	var chosen []suite
	for _, name := range wanted {
		at := slices.IndexFunc(all, func(s suite) bool { return s.name == name })
		if at < 0 {
			var known []string
			for _, s := range all {
				known = append(known, s.name)
			}
			return nil, fmt.Errorf("no suite is named %q: there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

func (p *place) side(name string, o opener, dir string) (*side, error) {
	d, err := newDesk(o, filepath.Join(dir, name+".socket"))
	if err != nil {
		return nil, err
	}
	return &side{name: name, desk: d, env: append(os.Environ(), "STANDIN_SOCKET="+d.socket, "STANDIN_CHROME="+p.chrome)}, nil
}

// run plays a suite on both sides, and again what differs.
func (s suite) run(ctx context.Context, p *place, match *regexp.Regexp, onPort, through *side) (r row, err error) {
	r.suite = s.name + " " + s.version
	onPort.alone.Store(s.alone)
	through.alone.Store(s.alone)
	fmt.Printf("== %s\n", r.suite)
	it, err := s.prepare(ctx, p)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, it.close()) }()
	names, err := it.list(ctx)
	if err != nil {
		return r, err
	}
	chosen, leftOut := choose(names, match, s.leftOut)
	fmt.Printf("%d of %d tests, %d left out\n", len(chosen), len(names), len(leftOut))
	for _, line := range reasons(leftOut) {
		fmt.Println("  left out,", line)
	}
	var sides [2][]results
	for play, left := 0, chosen; play <= again && len(left) > 0; play++ {
		for i, to := range []*side{onPort, through} {
			begun := time.Now()
			got, err := it.play(ctx, to, left)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return r, fmt.Errorf("on the %s: %w", to.name, err)
			}
			sides[i] = append(sides[i], got)
			fmt.Printf("%s: %s in %.0f s\n", to.name, summary(left, got), time.Since(begun).Seconds())
		}
		left = unlike(left, sides[0][play], sides[1][play])
	}
	if len(chosen) > 0 {
		var unused []exception
		r.tally, unused = count(chosen, sides[0], sides[1], s.exceptions)
		r.tellFailed(os.Stdout)
		r.tell(os.Stdout)
		for _, e := range unused {
			fmt.Printf("no test met this exception: %s\n", e.names)
		}
	}
	r.leftOut = len(leftOut)
	return r, nil
}

func summary(names []string, got results) string {
	counts := map[verdict]int{}
	for _, name := range names {
		counts[of(got, name).Verdict]++
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[v], v))
	}
	return strings.Join(parts, ", ")
}
