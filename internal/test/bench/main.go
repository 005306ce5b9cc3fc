// Command bench measures what the launcher's data path costs, compared with Chrome's
// own debugging port, and with a plain relay before that port. One Chrome has both the
// port and the pipe, and the real sidecar, a process of its own, is on the pipe. Rounds
// on the three alternate, and the medians of the rounds' ratios are printed. It also
// measures how a session begins and ends, and what an idle sidecar costs.
//
// It does not judge the results. Where there is a goal, it is printed beside them.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == fakeArg {
		if len(os.Args) > 2 && os.Args[2] == "--version" {
			fmt.Println("Chromium 156.0.0.0 (scripted)")
			return
		}
		fakeChrome()
		return
	}
	if len(os.Args) == 5 && os.Args[1] == natsArg {
		if err := natsServer(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == relayArg {
		if err := relay(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.Func("launcher", "the leasehold binary to measure; given again, several in turn", func(s string) error {
		path, err := filepath.Abs(s)
		o.launchers = append(o.launchers, path)
		return err
	})
	flag.StringVar(&o.chrome, "chrome", "/usr/bin/chromium", "the browser")
	flag.StringVar(&o.clients, "clients", "internal/test/clients", "the folder with Playwright's node_modules")
	flag.IntVar(&o.rounds, "rounds", 9, "rounds of each measure; the median counts")
	flag.StringVar(&o.only, "only", "", "the measures to run, a comma-separated list of parts of their names")
	flag.IntVar(&o.sessions, "sessions", 200, "sessions with scripted browsers on one launcher; 0 for none")
	flag.IntVar(&o.ballast, "ballast", 300, "MiB of sites' data in a large or used profile")
	flag.IntVar(&o.lives, "lives", 100, "sessions whose lives are measured, one after the other and again ten at a time")
	flag.StringVar(&o.crowds, "crowds", "20,50", "numbers of sessions with a page of a site")
	flag.StringVar(&o.fleets, "fleets", "10,30,100", "numbers of launchers on one NATS of three servers")
	flag.IntVar(&o.profiles, "profiles", 10000, "profiles of a fleet")
	flag.IntVar(&o.grants, "grants", 1000, "grants of a fleet that are measured")
	flag.StringVar(&o.save, "save", "", "a file to save the results in")
	flag.StringVar(&o.compare, "compare", "", "a saved file to print beside the results")
	flag.Parse()
	stopOnSignal()
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	launchers       []string
	chrome, clients string
	rounds          int
	only            string
	sessions        int
	ballast, lives  int
	crowds, fleets  string
	profiles        int
	grants          int
	save, compare   string
}

func (o options) wants(name string) bool {
	return o.only == "" || slices.ContainsFunc(strings.Split(o.only, ","), func(part string) bool { return strings.Contains(name, part) })
}

// result is one line of the table. Ratios are the launcher's time divided by the
// port's.
type result struct {
	Name  string  `json:"name"`
	Goal  float64 `json:"goal,omitempty"` // for the ratio; zero for none
	Unit  string  `json:"unit"`
	Port  float64 `json:"port,omitempty"` // the port's value, or whatever else Value is compared with
	Value float64 `json:"value"`
	Ratio float64 `json:"ratio,omitempty"`
	Low   float64 `json:"low,omitempty"` // lowest and highest of the rounds' ratios
	High  float64 `json:"high,omitempty"`
	// Best is the ratio of the two sides' best rounds. Other programs disturb it less
	// than the median.
	Best float64 `json:"best,omitempty"`
	// Relay is the time by a plain relay before the port, RelayRatio that divided by the
	// port's, and OverRelay the launcher's time divided by the relay's: medians of the
	// same rounds. Zero where there is no relay.
	Relay      float64 `json:"relay,omitempty"`
	RelayRatio float64 `json:"relay_ratio,omitempty"`
	OverRelay  float64 `json:"over_relay,omitempty"`
}

func run(o options, out io.Writer) error {
	if len(o.launchers) == 0 {
		return errors.New("no launcher to measure: give -launcher bin/leasehold (make bench builds it)")
	}
	saved, err := load(o.compare)
	if err != nil {
		return err
	}
	all, measured := measure(o)
	for i, results := range all {
		if len(all) > 1 {
			fmt.Fprintf(out, "%s\n", o.launchers[i])
		}
		if err := show(out, results, saved); err != nil {
			return err
		}
	}
	if measured != nil || o.save == "" {
		return measured
	}
	return save(o.save, all[0])
}

// load reads the results that save wrote, by name. For an empty path there are none.
func load(path string) (map[string]result, error) {
	saved := map[string]result{}
	if path == "" {
		return saved, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []result
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%s: want what -save wrote: %w", path, err)
	}
	for _, r := range list {
		saved[r.Name] = r
	}
	return saved, nil
}

func save(path string, results []result) error {
	b, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o600)
}

func show(out io.Writer, results []result, saved map[string]result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "measure\tport\tlauncher\tratio\t[goal]\tbest\tlow..high\trelay\tits ratio\tto relay")
	if len(saved) > 0 {
		fmt.Fprint(w, "\tsaved\tnow/saved")
	}
	fmt.Fprintln(w)
	for _, r := range results {
		port, ratio, best, spread, goal, relay := "", "", "", "", "", "\t\t"
		if r.Port > 0 {
			port = fmt.Sprintf("%.4g %s", r.Port, r.Unit)
		}
		if r.Ratio > 0 {
			ratio, best, spread = fmt.Sprintf("%.2f", r.Ratio), fmt.Sprintf("%.2f", r.Best), fmt.Sprintf("%.2f..%.2f", r.Low, r.High)
		}
		if r.Goal > 0 {
			goal = fmt.Sprintf("[%.2f]", r.Goal)
		}
		if r.Relay > 0 {
			relay = fmt.Sprintf("%.4g %s\t%.2f\t%.2f", r.Relay, r.Unit, r.RelayRatio, r.OverRelay)
		}
		fmt.Fprintf(w, "%s\t%s\t%.4g %s\t%s\t%s\t%s\t%s\t%s", r.Name, port, r.Value, r.Unit, ratio, goal, best, spread, relay)
		if old, ok := saved[r.Name]; ok {
			was, now := old.Value, r.Value
			if r.Ratio > 0 && old.Ratio > 0 {
				was, now = old.Ratio, r.Ratio
			}
			fmt.Fprintf(w, "\t%.4g\t%.2f", was, now/was)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
