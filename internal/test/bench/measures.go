package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// side is one of the ways to the browser: its port, the launcher, or a plain relay.
type side struct {
	url     string
	client  *client
	session string // CDP session on a page of its own
	script  *playwright
	pages   string // URL of the page that makes many requests
	loads   int
}

// rig is one launcher with its browser, and all ways to it.
type rig struct {
	sidecar               *sidecar
	relay                 *relayProcess
	port, launcher, plain side // plain is by way of the relay
}

// sides are the ways to the browser, in the order of a table's columns.
func (r *rig) sides() [3]*side { return [3]*side{&r.port, &r.launcher, &r.plain} }

// measureOf is one measure. sample takes one sample on one side, in unit.
type measureOf struct {
	name   string
	unit   string
	goal   float64
	times  int // samples in each round; short samples close together see the same noise
	sample func(*side) (float64, error)
}

// portGoal is how much slower than Chrome's own port the launcher may be. In each of
// these measures it has to be faster than the relay, too.
const portGoal = 1.05

var measures = []measureOf{
	{"evaluate p50", "us", portGoal, 9, callsP50("", `Runtime.evaluate`, `{"expression":"1+1"}`)},
	{"Browser.getVersion p50", "us", portGoal, 9, callsP50("browser", `Browser.getVersion`, `{}`)},
	{"64 calls in flight", "ms", portGoal, 3, inFlight},
	{"10 MiB down", "ms", portGoal, 2, down},
	{"4 MiB up", "ms", portGoal, 4, up},
	{"20000 events", "ms", portGoal, 1, events},
	{"Playwright script", "ms", portGoal, 1, func(s *side) (float64, error) { return s.script.once() }},
}

func callsP50(on, method, params string) func(*side) (float64, error) {
	return func(s *side) (float64, error) {
		session := s.session
		if on == "browser" {
			session = ""
		}
		var took []float64
		for i := range 110 {
			begun := time.Now()
			if _, err := s.client.call(session, method, params); err != nil {
				return 0, err
			}
			if i >= 10 { // the first ones only warm up
				took = append(took, float64(time.Since(begun).Nanoseconds())/1e3)
			}
		}
		return median(took), nil
	}
}

const (
	window  = 64
	flights = 1000
)

func inFlight(s *side) (float64, error) {
	begun := time.Now()
	for sent, got := 0, 0; got < flights; {
		for sent < flights && sent-got < window {
			if _, err := s.client.send(s.session, "Runtime.evaluate", `{"expression":"1+1"}`); err != nil {
				return 0, err
			}
			sent++
		}
		msg, err := s.client.next()
		if err != nil {
			return 0, err
		}
		if bytes.HasPrefix(msg, idKey) {
			got++
		}
	}
	return ms(begun), nil
}

func down(s *side) (float64, error) { return large(s, `'x'.repeat(10485760)`, 10<<20) }

func up(s *side) (float64, error) { return large(s, `'`+strings.Repeat("x", 4<<20)+`'.length`, 0) }

func large(s *side, expression string, least int) (float64, error) {
	begun := time.Now()
	msg, err := s.client.call(s.session, "Runtime.evaluate", `{"expression":"`+expression+`","returnByValue":true}`)
	if err == nil && len(msg) < least {
		err = fmt.Errorf("%d bytes, want %d: %.200s", len(msg), least, msg)
	}
	return ms(begun), err
}

const manyEvents = 20000

var consoleEvent = []byte(`{"method":"Runtime.consoleAPICalled"`)

func events(s *side) (_ float64, err error) {
	if _, err := s.client.call(s.session, "Runtime.enable", `{}`); err != nil {
		return 0, err
	}
	begun := time.Now()
	if _, err := s.client.send(s.session, "Runtime.evaluate", fmt.Sprintf(`{"expression":"for(let i=0;i<%d;i++)console.log('event',i)"}`, manyEvents)); err != nil {
		return 0, err
	}
	for seen := 0; seen < manyEvents; {
		msg, err := s.client.next()
		if err != nil {
			return 0, err
		}
		if bytes.HasPrefix(msg, consoleEvent) {
			seen++
		}
	}
	took := ms(begun)
	for _, method := range []string{"Runtime.discardConsoleEntries", "Runtime.disable"} {
		if _, err := s.client.call(s.session, method, `{}`); err != nil {
			return 0, err
		}
	}
	return took, nil
}

func ms(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1e6 }

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// measure takes all measures, on every launcher in turn. With an error it returns the
// results so far.
func measure(o options) (all [][]result, err error) {
	all = make([][]result, len(o.launchers))
	var rigs []*rig
	defer func() {
		for _, r := range rigs {
			err = errors.Join(err, r.stop())
		}
	}()
	for _, binary := range o.launchers {
		r, err := newRig(o, binary)
		if err != nil {
			return all, err
		}
		rigs = append(rigs, r)
	}
	for _, m := range measures {
		if !o.wants(m.name) {
			continue
		}
		if m.name == "Playwright script" {
			for _, r := range rigs {
				if err := r.startPlaywright(o); err != nil {
					return all, err
				}
			}
		}
		results, err := m.run(o, rigs)
		if err != nil {
			return all, fmt.Errorf("%s: %w", m.name, err)
		}
		for i, r := range results {
			all[i] = append(all[i], r)
		}
	}
	for i, r := range rigs {
		observed, err := r.observed(o)
		if err != nil {
			return all, fmt.Errorf("what the observer costs: %w", err)
		}
		all[i] = append(all[i], observed...)
		reading, err := r.readOnly(o)
		if err != nil {
			return all, fmt.Errorf("what read_only costs: %w", err)
		}
		all[i] = append(all[i], reading...)
		pictures, err := r.pictures(o)
		if err != nil {
			return all, fmt.Errorf("what pictures cost: %w", err)
		}
		all[i] = append(all[i], pictures...)
		watched, err := r.watched(o)
		if err != nil {
			return all, fmt.Errorf("what watching costs: %w", err)
		}
		all[i] = append(all[i], watched...)
		keys, err := r.keyToPicture(o)
		if err != nil {
			return all, fmt.Errorf("key to picture: %w", err)
		}
		all[i] = append(all[i], keys...)
		costs, err := r.costs(o)
		if err != nil {
			return all, err
		}
		all[i] = append(all[i], costs...)
	}
	for i, binary := range o.launchers {
		if o.wants("warm handoff") {
			handed, err := handoffs(o, binary)
			if err != nil {
				return all, fmt.Errorf("warm handoff: %w", err)
			}
			all[i] = append(all[i], handed...)
		}
		for _, of := range []struct {
			name  string
			takes func(options, string) ([]result, error)
		}{
			{"cold session", coldSessions}, {"move", moves}, {"snapshot", largeSnapshots}, {"release", releases}, {"recovery", recoveries}, {"check", checks}, {"idle", idle},
			{"life of a session", lives}, {"used profile", usedProfile}, {"per GiB", crowds}, {"fleet", fleets},
		} {
			if !o.wants(of.name) {
				continue
			}
			more, err := of.takes(o, binary)
			if err != nil {
				return all, fmt.Errorf("%s: %w", of.name, err)
			}
			all[i] = append(all[i], more...)
		}
		if o.sessions > 0 && o.wants("sessions") {
			many, err := manySessions(binary, o.sessions)
			if err != nil {
				return all, fmt.Errorf("%d sessions: %w", o.sessions, err)
			}
			all[i] = append(all[i], many...)
		}
	}
	return all, nil
}

// run takes the rounds of one measure. Each round samples every launcher, its port and
// its relay, each of which comes first in turn.
func (m measureOf) run(o options, rigs []*rig) ([]result, error) {
	took := make([]taken, len(rigs))
	for round := range o.rounds*m.times + 1 {
		for i, r := range rigs {
			var t [3]float64
			sides := r.sides()
			for k := range sides {
				which := (k + round) % len(sides)
				var err error
				if t[which], err = m.sample(sides[which]); err != nil {
					return nil, err
				}
			}
			if round > 0 { // the first only warms up
				took[i].add(t[0], t[1], t[2])
			}
		}
	}
	results := make([]result, len(rigs))
	for i, t := range took {
		results[i] = t.result(m.name, m.unit, m.goal)
	}
	return results, nil
}

// taken is what the rounds of a measure took, on the port or whatever else the launcher is
// compared with, by the launcher, and by the relay where there is one.
type taken struct {
	port, launcher, relay          []float64
	ratios, relayRatios, overRelay []float64
}

func (t *taken) add(port, launcher, relay float64) {
	t.port, t.launcher, t.ratios = append(t.port, port), append(t.launcher, launcher), append(t.ratios, launcher/port)
	if relay > 0 {
		t.relay, t.relayRatios, t.overRelay = append(t.relay, relay), append(t.relayRatios, relay/port), append(t.overRelay, launcher/relay)
	}
}

func (t *taken) result(name, unit string, goal float64) result {
	return result{
		Name: name, Unit: unit, Goal: goal, Port: median(t.port), Value: median(t.launcher),
		Ratio: median(t.ratios), Low: slices.Min(t.ratios), High: slices.Max(t.ratios),
		Best:  slices.Min(t.launcher) / slices.Min(t.port),
		Relay: median(t.relay), RelayRatio: median(t.relayRatios), OverRelay: median(t.overRelay),
	}
}

const profile = "bench"

func newRig(o options, binary string) (_ *rig, err error) {
	r := &rig{}
	if r.sidecar, err = startSidecar(binary, o.chrome+" --remote-debugging-port=0"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if r.launcher.url, err = r.sidecar.session(profile); err != nil {
		return nil, err
	}
	if r.port.url, err = r.sidecar.portURL(profile); err != nil {
		return nil, err
	}
	if r.relay, r.plain.url, err = startRelay(r.port.url); err != nil {
		return nil, err
	}
	for _, s := range r.sides() {
		if s.client, err = dial(s.url); err != nil {
			return nil, err
		}
		if s.session, err = s.client.page(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *rig) stop() error {
	var err error
	for _, s := range r.sides() {
		if s.script != nil {
			err = errors.Join(err, s.script.stop())
		}
		if s.client != nil {
			err = errors.Join(err, s.client.close())
		}
	}
	return errors.Join(err, r.relay.stop(), r.sidecar.stop())
}

// costs measures processor time, wake-ups and memory of the launcher's process.
func (r *rig) costs(o options) ([]result, error) {
	var results []result
	const calls = 4000
	for _, load := range []struct {
		name   string
		sample func(*side) (float64, error)
		n      float64
	}{
		{"per call", func(s *side) (float64, error) {
			for range calls {
				if _, err := s.client.call(s.session, "Runtime.evaluate", `{"expression":"1+1"}`); err != nil {
					return 0, err
				}
			}
			return 0, nil
		}, calls},
		{"per call, 64 in flight", inFlight, flights},
		{"per event", events, manyEvents},
	} {
		if !o.wants("CPU " + load.name) {
			continue
		}
		before, err := r.sidecar.cpu()
		if err != nil {
			return nil, err
		}
		slept, err := r.sidecar.sleeps()
		if err != nil {
			return nil, err
		}
		if _, err := load.sample(&r.launcher); err != nil {
			return nil, err
		}
		after, err := r.sidecar.cpu()
		if err != nil {
			return nil, err
		}
		sleptAfter, err := r.sidecar.sleeps()
		if err != nil {
			return nil, err
		}
		results = append(results,
			result{Name: "CPU " + load.name, Unit: "us", Value: float64((after - before).Nanoseconds()) / 1e3 / load.n},
			result{Name: "wake-ups " + load.name, Unit: "", Value: (sleptAfter - slept) / load.n})
	}
	if name := "CPU when idle"; o.wants(name) {
		before, err := r.sidecar.cpu()
		if err != nil {
			return nil, err
		}
		const pause = 3 * time.Second
		time.Sleep(pause)
		after, err := r.sidecar.cpu()
		if err != nil {
			return nil, err
		}
		results = append(results, result{Name: name, Unit: "ms/s", Value: (after - before).Seconds() * 1e3 / pause.Seconds()})
	}
	if name := "memory per connection"; o.wants(name) {
		before, err := r.sidecar.memory()
		if err != nil {
			return nil, err
		}
		const conns = 50
		var open []*client
		for range conns {
			c, err := dial(r.launcher.url)
			if err != nil {
				return nil, err
			}
			open = append(open, c)
			for range 20 {
				if _, err := c.call("", "Browser.getVersion", `{}`); err != nil {
					return nil, err
				}
			}
		}
		after, err := r.sidecar.memory()
		if err != nil {
			return nil, err
		}
		for _, c := range open {
			if err := c.close(); err != nil {
				return nil, err
			}
		}
		results = append(results, result{Name: name, Unit: "KiB", Value: (after - before) / conns})
	}
	return results, nil
}
