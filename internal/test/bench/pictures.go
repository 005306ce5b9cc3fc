package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// pictured are checkpoints, and with each a picture, in a row.
const pictured = 6

// betweenPictures is more than the launcher leaves between two of them.
const betweenPictures = 1100 * time.Millisecond

func (s *side) checkpoint() error {
	_, err := s.client.call(s.session, "Lease.checkpoint", `{"name":"bench"}`)
	return err
}

// pictures measures what the pictures of a living session cost: the CPU that one
// takes, of the launcher with its NATS and of Chrome, and what a Playwright script
// notices that has one taken while it runs.
func (r *rig) pictures(o options) (results []result, err error) {
	const each, script = "CPU per picture", "Playwright script while pictured"
	if o.wants(each) {
		page, web, err := serve(servePage)
		if err != nil {
			return nil, err
		}
		defer func() { _ = web.Close() }()
		s := &r.launcher
		if _, err := s.client.call(s.session, "Page.navigate", `{"url":"`+page+`"}`); err != nil {
			return nil, err
		}
		time.Sleep(2 * betweenPictures) // that of the navigation itself
		var spent [2][2]float64         // without and with; launcher and Chrome
		for with := range 2 {
			own, _, err := r.spent()
			if err != nil {
				return nil, err
			}
			chrome, err := treeCPU(r.sidecar.profileDir(profile))
			if err != nil {
				return nil, err
			}
			for range pictured {
				if with == 1 {
					if err := s.checkpoint(); err != nil {
						return nil, err
					}
				}
				time.Sleep(betweenPictures)
			}
			ownAfter, _, err := r.spent()
			if err != nil {
				return nil, err
			}
			chromeAfter, err := treeCPU(r.sidecar.profileDir(profile))
			if err != nil {
				return nil, err
			}
			spent[with] = [2]float64{(ownAfter - own).Seconds() * 1e3, chromeAfter - chrome}
		}
		for i, of := range []string{"launcher", "Chrome"} {
			results = append(results, result{Name: fmt.Sprintf("%s (%s)", each, of), Unit: "ms", Value: (spent[1][i] - spent[0][i]) / pictured})
		}
	}
	if !o.wants(script) {
		return results, nil
	}
	p, err := newPlaywright(o.clients, r.launcher.url, servePage)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	var took [2][]float64
	var ratios []float64
	for round := range o.rounds + 1 {
		var t [2]float64
		for k := range 2 {
			with := (k + round) % 2
			time.Sleep(betweenPictures)
			if with == 1 {
				if err := r.launcher.checkpoint(); err != nil {
					return nil, err
				}
			}
			if t[with], err = p.once(); err != nil {
				return nil, err
			}
		}
		if round == 0 { // warm
			continue
		}
		took[0], took[1], ratios = append(took[0], t[0]), append(took[1], t[1]), append(ratios, t[1]/t[0])
	}
	return append(results, result{
		Name: script, Unit: "ms", Port: median(took[0]), Value: median(took[1]), Ratio: median(ratios),
		Low: slices.Min(ratios), High: slices.Max(ratios), Best: slices.Min(took[1]) / slices.Min(took[0]),
	}), nil
}
