package incidents

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"leasehold/launcher/recovery/decision"
)

// Incident is one worker's session on a site, up to the moment at which the worker
// is killed.
type Incident struct {
	// Name is unique, and the profile's.
	Name string `yaml:"name"`
	Site string `yaml:"-"`
	// Killed names the moment, which is the end of the script.
	Killed string `yaml:"killed"`
	// Expect is the decision that an honest expert would make, who knows the site;
	// Why is what he would say.
	Expect string `yaml:"expect"`
	Why    string `yaml:"why"`
	// Sample has the incident run with the other tests, too.
	Sample bool `yaml:"sample"`

	Profile  Profile  `yaml:"profile"`
	Manifest Manifest `yaml:"manifest"`
	// Answers are the statuses of a request's first answers, by "METHOD /path": a
	// server that refuses has done nothing. Afterwards it does as always.
	Answers map[string][]int `yaml:"answers"`
	Script  []Action         `yaml:"script"`
}

// Profile is what its owner sets.
type Profile struct {
	HarmlessRequests []string `yaml:"harmless_requests"`
}

// Manifest is what the task says of itself.
type Manifest struct {
	Resumable       bool     `yaml:"resumable"`
	ExpectedDomains []string `yaml:"expected_domains"`
}

// Action is one thing that the worker does, or waits for: one of the fields.
type Action struct {
	Goto  string `yaml:"goto"`  // a path of the site, or a URL; until it is loaded
	Open  string `yaml:"open"`  // the same, without waiting
	Click string `yaml:"click"` // a selector
	Aside string `yaml:"aside"` // a selector, clicked with Ctrl held: into another tab
	Fill  *Fill  `yaml:"fill"`
	// Switch goes on in the tab that is open at the path or URL, once one is.
	Switch string `yaml:"switch"`
	// Apart goes on in a tab of a browser context of its own, at a path, as
	// Playwright's newContext does; Dispose ends that context, with all that is open
	// in it, and goes on in a new tab at the path.
	Apart   string `yaml:"apart"`
	Dispose string `yaml:"dispose"`
	// Close closes the tab, once another one is open at the path or URL.
	Close string `yaml:"close"`
	// Scroll turns the wheel until the page shows a text.
	Scroll string `yaml:"scroll"`
	// See waits until the page shows a text, as workers do: by script.
	See string `yaml:"see"`
	// Dialog waits for a dialog with the text; it stays open.
	Dialog string `yaml:"dialog"`

	Step       *Step       `yaml:"step"`
	Checkpoint *Checkpoint `yaml:"checkpoint"`

	// Hold has the site do what "METHOD /path" asks for, and never answer.
	Hold string `yaml:"hold"`
	// Arrives waits until the site got "[COUNT] METHOD /path"; the method of a
	// message is WEBSOCKET.
	Arrives string `yaml:"arrives"`
}

// Fill types a text into a field.
type Fill struct {
	Field string `yaml:"field"` // a selector
	Text  string `yaml:"text"`
}

// Step is a Lease.step.
type Step struct {
	Name      string `yaml:"name" json:"name"`
	Action    string `yaml:"action" json:"action,omitempty"`
	Sensitive bool   `yaml:"sensitive" json:"sensitive,omitempty"`
}

// Checkpoint is a Lease.checkpoint that is safe.
type Checkpoint struct {
	Name       string `yaml:"name" json:"name"`
	Idempotent bool   `yaml:"idempotent" json:"idempotent,omitempty"`
}

// Safe tells whether an expert would not ask a person.
func (i Incident) Safe() bool { return i.Expect != decision.ManualReview }

// file is what a file of the corpus has: the incidents of one site.
type file struct {
	Site      string     `yaml:"site"`
	Incidents []Incident `yaml:"incidents"`
}

// Load reads every file of a folder. What is wrong is said of each.
func Load(folder fs.FS) ([]Incident, error) {
	names, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Incident
	var wrong error
	seen := map[string]string{}
	for _, name := range names {
		b, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, err
		}
		incidents, err := decode(b)
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", name, err))
		}
		for _, i := range incidents {
			if first, ok := seen[i.Name]; ok {
				wrong = errors.Join(wrong, fmt.Errorf("%s: incident %s stands in %s, too", name, i.Name, first))
			}
			seen[i.Name] = name
		}
		if site := strings.TrimSuffix(path.Base(name), ".yaml"); len(incidents) > 0 && incidents[0].Site != site {
			wrong = errors.Join(wrong, fmt.Errorf("%s: site %q: want that of the file's name", name, incidents[0].Site))
		}
		all = append(all, incidents...)
	}
	return all, wrong
}

// decode reads one file.
func decode(b []byte) ([]Incident, error) {
	var f file
	if err := yaml.UnmarshalWithOptions(b, &f, yaml.Strict()); err != nil {
		return nil, err
	}
	var wrong error
	if sites[f.Site] == nil {
		wrong = fmt.Errorf("site %q is not known", f.Site)
	}
	for i := range f.Incidents {
		f.Incidents[i].Site = f.Site
		if err := f.Incidents[i].check(); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("incident %d, %s: %w", i+1, f.Incidents[i].Name, err))
		}
	}
	return f.Incidents, wrong
}

// check finds the first thing that is missing, or that cannot be.
func (i Incident) check() error {
	switch {
	case !strings.HasPrefix(i.Name, i.Site+"-"):
		return fmt.Errorf("name: want it to begin with %s-", i.Site)
	case i.Killed == "":
		return errors.New("killed: want the moment at which the worker is killed")
	case !slices.Contains(outcomes, i.Expect):
		return fmt.Errorf("expect: %q: want one of %s", i.Expect, strings.Join(outcomes, ", "))
	case len(i.Why) < 20:
		return errors.New("why: want a sentence")
	case len(i.Script) == 0:
		return errors.New("script: want at least one action")
	}
	for _, text := range i.Profile.HarmlessRequests {
		if _, err := decision.ParseHarmless(text); err != nil {
			return fmt.Errorf("harmless_requests: %w", err)
		}
	}
	for request := range i.Answers {
		if !isRequest(strings.Fields(request)) {
			return fmt.Errorf("answers: %q: want METHOD /path", request)
		}
	}
	for n, a := range i.Script {
		if err := a.check(); err != nil {
			return fmt.Errorf("action %d: %w", n+1, err)
		}
	}
	return nil
}

func (a Action) check() error {
	var set []string
	v := reflect.ValueOf(a)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			set = append(set, v.Type().Field(i).Name)
		}
	}
	if len(set) != 1 {
		return fmt.Errorf("want one thing to do, got %v", set)
	}
	if a.Arrives != "" {
		if _, _, err := arrival(a.Arrives); err != nil {
			return err
		}
	}
	if a.Hold != "" && !isRequest(strings.Fields(a.Hold)) {
		return fmt.Errorf("hold: %q: want METHOD /path", a.Hold)
	}
	return nil
}

// arrival reads "[COUNT] METHOD /path".
func arrival(s string) (request string, times int, err error) {
	parts := strings.Fields(s)
	times = 1
	if len(parts) == 3 {
		times, err = strconv.Atoi(parts[0])
		parts = parts[1:]
	}
	if err != nil || len(parts) != 2 || times < 1 || !isRequest(parts) {
		return "", 0, fmt.Errorf("arrives: %q: want [COUNT] METHOD /path", s)
	}
	return strings.Join(parts, " "), times, nil
}

// isRequest tells whether it is METHOD /path.
func isRequest(parts []string) bool {
	return len(parts) == 2 && strings.Trim(parts[0], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && strings.HasPrefix(parts[1], "/")
}

// outcomes are the decisions, in the order of the table.
var outcomes = []string{decision.Release, decision.Retry, decision.Resume, decision.ManualReview}
