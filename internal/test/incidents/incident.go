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

	known "leasehold/checkpoint/site"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
)

// Incident is one worker's session on a site, up to the moment when the worker is
// killed.
type Incident struct {
	// Name is unique. The profile has the same name.
	Name string `yaml:"name"`
	Site string `yaml:"-"`
	// Killed describes that moment, which is the end of the script.
	Killed string `yaml:"killed"`
	// Expect is the decision of an honest expert who knows the site. Why is the
	// expert's reason.
	Expect string `yaml:"expect"`
	Why    string `yaml:"why"`
	// Sample says that the incident also runs with the other tests.
	Sample bool `yaml:"sample"`
	// Worker is the client that the worker uses: one of programs, or a plain websocket
	// if it is empty.
	Worker string `yaml:"worker"`
	// Mood is how the site behaves this time: one of its moods, or as usual.
	Mood string `yaml:"mood"`

	Profile Profile `yaml:"profile"`
	// Known is what the file about the site says of its requests.
	Known    []known.Line `yaml:"known"`
	Manifest Manifest     `yaml:"manifest"`
	// Answers are the statuses of the first answers to a request, by "METHOD /path".
	// With such an answer the site does nothing; later requests are handled as usual.
	Answers map[string][]int `yaml:"answers"`
	Script  []Action         `yaml:"script"`
}

// Profile has the settings of the profile's owner.
type Profile struct {
	HarmlessRequests []string `yaml:"harmless_requests"`
}

// Manifest is the part of the task's manifest that an incident may set.
type Manifest struct {
	Resumable       bool     `yaml:"resumable"`
	ExpectedDomains []string `yaml:"expected_domains"`
}

// Action is one thing that the worker does or waits for. Exactly one field is set.
type Action struct {
	Goto  string `yaml:"goto"`  // navigates to a path of the site, or a URL, and waits for the load
	Open  string `yaml:"open"`  // the same without waiting
	Click string `yaml:"click"` // a selector of the element to click
	Aside string `yaml:"aside"` // a selector, clicked with Ctrl held, so that a link opens another tab
	Fill  *Fill  `yaml:"fill"`
	// Switch waits for a tab at the path or URL, and goes on in it.
	Switch string `yaml:"switch"`
	// Apart goes on in a tab of a new browser context, at a path, like Playwright's
	// newContext. Dispose closes that context with everything in it, and goes on in a
	// new tab at the path.
	Apart   string `yaml:"apart"`
	Dispose string `yaml:"dispose"`
	// Close opens another tab at the path or URL, goes on in it, and closes the current
	// one.
	Close string `yaml:"close"`
	// Scroll turns the mouse wheel until the page shows the text.
	Scroll string `yaml:"scroll"`
	// Type types into what has the focus, key by key, also within frames and closed
	// shadow roots. Press presses one key: Enter, Tab, Escape or a letter.
	Type  string `yaml:"type"`
	Press string `yaml:"press"`
	// Attach is a selector of a file field, which gets a small file.
	Attach string `yaml:"attach"`
	// Run evaluates an expression in the page, without waiting for a promise.
	Run string `yaml:"run"`
	// CDP sends a command to the page.
	CDP *Command `yaml:"cdp"`
	// Beside is "METHOD /path": the worker itself makes the request, with the cookies of
	// the browser, like Playwright's page.request.
	Beside string `yaml:"beside"`
	// See waits until the page shows the text, which the worker checks by script.
	See string `yaml:"see"`
	// Dialog waits for a dialog with the text, which stays open.
	Dialog string `yaml:"dialog"`
	// Accept waits for a dialog with the text, and says yes to it.
	Accept string `yaml:"accept"`

	Step       *Step       `yaml:"step"`
	Checkpoint *Checkpoint `yaml:"checkpoint"`

	// Hold makes the site carry out "METHOD /path" without ever answering it.
	Hold string `yaml:"hold"`
	// Cut makes the site carry out "METHOD /path", and then end the connection without
	// an answer.
	Cut string `yaml:"cut"`
	// Idle waits for so many milliseconds.
	Idle int `yaml:"idle"`
	// Arrives is "[COUNT] METHOD /path": it waits until the site got that many such
	// requests. The method of a websocket message is WEBSOCKET.
	Arrives string `yaml:"arrives"`
}

// Fill types a text into a field.
type Fill struct {
	Field string `yaml:"field"` // a selector of the field
	Text  string `yaml:"text"`
}

// Command is a command of the DevTools protocol.
type Command struct {
	Method string         `yaml:"method"`
	Params map[string]any `yaml:"params"`
}

// Step has the parameters of Lease.step.
type Step struct {
	Name      string `yaml:"name" json:"name"`
	Action    string `yaml:"action" json:"action,omitempty"`
	Sensitive bool   `yaml:"sensitive" json:"sensitive,omitempty"`
}

// Checkpoint has the parameters of Lease.checkpoint, for a safe one.
type Checkpoint struct {
	Name       string `yaml:"name" json:"name"`
	Idempotent any    `yaml:"idempotent" json:"idempotent,omitempty"` // true, or a list of shapes
}

// Safe tells whether the expert would decide without asking a person.
func (i Incident) Safe() bool { return i.Expect != table.ManualReview }

// file is one file of the corpus: the incidents of one site.
type file struct {
	Site      string     `yaml:"site"`
	Incidents []Incident `yaml:"incidents"`
}

// Load reads every file of a folder. The error names every mistake in all of them.
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

// decode parses one file.
func decode(b []byte) ([]Incident, error) {
	var f file
	if err := yaml.UnmarshalWithOptions(b, &f, yaml.Strict()); err != nil {
		return nil, err
	}
	var wrong error
	if sites[f.Site] == nil && applications[f.Site] == nil {
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

// check returns an error for the first field that is missing or not valid.
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
	case i.Worker != "" && !slices.Contains(programs, i.Worker):
		return fmt.Errorf("worker: %q: want one of %s", i.Worker, strings.Join(programs, ", "))
	case i.Mood != "" && !slices.Contains(moods[i.Site], i.Mood):
		return fmt.Errorf("mood: %q: the site knows %q", i.Mood, moods[i.Site])
	}
	for _, text := range i.Profile.HarmlessRequests {
		if _, err := findings.ParseHarmless(text); err != nil {
			return fmt.Errorf("harmless_requests: %w", err)
		}
	}
	for request := range i.Answers {
		if !isRequest(strings.Fields(request)) {
			return fmt.Errorf("answers: %q: want METHOD /path", request)
		}
	}
	for n, a := range i.Script {
		if err := a.check(i.Worker); err != nil {
			return fmt.Errorf("action %d: %w", n+1, err)
		}
	}
	return nil
}

func (a Action) check(worker string) error {
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
	for field, request := range map[string]string{"hold": a.Hold, "cut": a.Cut, "beside": a.Beside} {
		if request != "" && !isRequest(strings.Fields(request)) {
			return fmt.Errorf("%s: %q: want METHOD /path", field, request)
		}
	}
	switch {
	case a.Beside != "" && worker != playwright:
		return errors.New("beside: want a worker on Playwright")
	case a.Apart+a.Dispose != "" && worker == selenium:
		return errors.New("apart, dispose: Selenium has no browser contexts")
	case a.CDP != nil && a.CDP.Method == "":
		return errors.New("cdp: want a method")
	}
	return nil
}

// arrival parses "[COUNT] METHOD /path".
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

// isRequest tells whether the parts are METHOD and /path.
func isRequest(parts []string) bool {
	return len(parts) == 2 && strings.Trim(parts[0], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && strings.HasPrefix(parts[1], "/")
}

// outcomes are the decisions, in the order of the report's table.
var outcomes = []string{table.Release, table.Retry, table.Resume, table.ManualReview}
