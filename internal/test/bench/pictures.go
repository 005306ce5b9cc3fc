package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// pictureCount is how many checkpoints follow one another. With each a picture is taken.
const pictureCount = 6

// betweenPictures is longer than the launcher's own pause between two pictures.
const betweenPictures = 1100 * time.Millisecond

func (s *side) checkpoint() error {
	_, err := s.client.call(s.session, "Lease.checkpoint", `{"name":"bench"}`)
	return err
}

// pictures measures what the pictures of a living session cost: the CPU time of one
// picture, of the launcher with its NATS and of Chrome, and the delay of a Playwright
// script during which a picture is taken.
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
		time.Sleep(2 * betweenPictures) // the navigation itself causes a picture, too
		var spent [2][2]float64         // without and with pictures; of launcher and Chrome
		for with := range 2 {
			own, _, err := r.spent()
			if err != nil {
				return nil, err
			}
			chrome, err := treeCPU(r.sidecar.profileDir(profile))
			if err != nil {
				return nil, err
			}
			for range pictureCount {
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
			results = append(results, result{Name: fmt.Sprintf("%s (%s)", each, of), Unit: "ms", Value: (spent[1][i] - spent[0][i]) / pictureCount})
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
		if round == 0 { // it only warms up
			continue
		}
		took[0], took[1], ratios = append(took[0], t[0]), append(took[1], t[1]), append(ratios, t[1]/t[0])
	}
	return append(results, result{
		Name: script, Unit: "ms", Port: median(took[0]), Value: median(took[1]), Ratio: median(ratios),
		Low: slices.Min(ratios), High: slices.Max(ratios), Best: slices.Min(took[1]) / slices.Min(took[0]),
	}), nil
}
