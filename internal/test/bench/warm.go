package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// handoffs measures the time from a task's request to its first CDP answer, from a warm
// browser and from one that is started for it. Both use the same profile and alternate.
// The time for the release does not count. It measures two kinds of requests: the
// websocket upgrade alone, and POST followed by the upgrade, as schedulers do it.
func handoffs(o options, binary string) (_ []result, err error) {
	s, err := startSidecar(binary, o.chrome, "--keep-warm-min-memory", "0")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	ways := []struct {
		name string
		// first returns the time until a task's first answer. keep is the task's
		// keep_warm.
		first func(task string, keep bool) (time.Duration, error)
	}{
		{"warm handoff: request to first CDP answer, p50", func(task string, keep bool) (time.Duration, error) { return s.first(task, handoffProfile, keep) }},
		{"the same in two steps (POST /v1/sessions), p50", s.twoSteps},
	}
	var results []result
	for w, way := range ways {
		var cold, warm, ratios []float64
		for round := range o.rounds + 1 {
			var took [1 + handoffsOfOne]float64
			// The first task finds no warm browser. All but the last keep it warm.
			for k := range took {
				d, err := way.first(fmt.Sprintf("%d-%d-%d", w, round, k), k < handoffsOfOne)
				if err != nil {
					return nil, err
				}
				took[k] = float64(d.Nanoseconds()) / 1e6
			}
			if next := median(took[1:]); round > 0 {
				cold, warm, ratios = append(cold, took[0]), append(warm, next), append(ratios, next/took[0])
			}
		}
		results = append(results, result{
			Name: way.name, Unit: "ms", Port: median(cold), Value: median(warm),
			Ratio: median(ratios), Low: slices.Min(ratios), High: slices.Max(ratios), Best: slices.Min(warm) / slices.Min(cold),
		})
	}
	return results, nil
}

const (
	handoffProfile = "handoff"
	// handoffsOfOne is how many tasks in a row get the browser that the first one
	// started. The first of them finds it still busy with its start.
	handoffsOfOne = 5
)

// taskURL is the URL by which a task connects that wants a session of the profile.
func (s *sidecar) taskURL(task, profile string, keep bool) string {
	return fmt.Sprintf("%s/devtools/browser/%s?create=true&wait=60s&worker=bench&task=%s&keep_warm=%t", strings.Replace(s.url, "http", "ws", 1), profile, task, keep)
}

// first connects in one step, waits for one answer, and closes.
func (s *sidecar) first(task, profile string, keep bool) (time.Duration, error) {
	begun := time.Now()
	c, err := dial(s.taskURL(task, profile, keep))
	if err != nil {
		return 0, err
	}
	return s.answered(c, begun)
}

// twoSteps does the same after POST /v1/sessions, as schedulers do.
func (s *sidecar) twoSteps(task string, keep bool) (time.Duration, error) {
	body, err := json.Marshal(map[string]any{
		"profile_id": handoffProfile, "worker_id": "bench", "task_id": task, "create": true, "wait": "60s", "on_close": "release", "keep_warm": keep,
	})
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	resp, err := http.Post(s.url+"/v1/sessions", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	var r struct {
		CDPURL string `json:"cdp_url"`
		Detail string `json:"detail"`
	}
	err = errors.Join(json.NewDecoder(resp.Body).Decode(&r), resp.Body.Close())
	if err == nil && r.CDPURL == "" {
		err = fmt.Errorf("no session: %s %s", resp.Status, r.Detail)
	}
	if err != nil {
		return 0, err
	}
	c, err := dial(r.CDPURL)
	if err != nil {
		return 0, err
	}
	return s.answered(c, begun)
}

// answered returns the time from begun until the first answer. It returns when the
// session has ended.
func (s *sidecar) answered(c *client, begun time.Time) (time.Duration, error) {
	_, err := c.call("", "Browser.getVersion", `{}`)
	took := time.Since(begun)
	return took, s.over(c, err)
}

// over closes the connection of a session, and returns when that has ended.
func (s *sidecar) over(c *client, err error) error {
	if err = errors.Join(err, c.close()); err != nil {
		return err
	}
	for deadline := time.Now().Add(answerTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get(s.url + "/v1/sessions")
		if err != nil {
			return err
		}
		var list struct{ Items []struct{} }
		if err := errors.Join(json.NewDecoder(resp.Body).Decode(&list), resp.Body.Close()); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			// As between real tasks, the browser has a moment to close its pages.
			time.Sleep(200 * time.Millisecond)
			return nil
		}
	}
	return errors.New("the session does not end")
}
