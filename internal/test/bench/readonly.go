package main

import (
	"errors"
	"slices"
)

// readOnlyMeasures compare the load of a page with many requests in a session that may
// write and in one that is read-only, both through the launcher.
var readOnlyMeasures = []loadMeasure{
	{"500 requests, read_only (plain client)", 0, (*side).load},
	{"500 requests, read_only (Playwright)", 0, func(s *side) (float64, error) { return s.script.once() }},
}

// readOnly measures what read_only costs: two sessions of the same launcher, each with a
// browser of its own, load the same page in turn. In the table the session that may write
// stands in the column of the port.
func (r *rig) readOnly(o options) (results []result, err error) {
	if !slices.ContainsFunc(readOnlyMeasures, func(m loadMeasure) bool { return o.wants(m.name) }) {
		return nil, nil
	}
	pages, web, err := serve(serveRequests)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	var sides [2]*side
	var dirs [2]string
	for i, name := range []string{"bench-writes", "bench-reads"} {
		url, err := r.sidecar.sessionWith(name, map[string]any{"read_only": i == 1})
		if err != nil {
			return nil, err
		}
		sides[i], dirs[i] = &side{url: url, pages: pages}, r.sidecar.profileDir(name)
	}
	return r.compareLoads(o, readOnlyMeasures, sides, dirs)
}
