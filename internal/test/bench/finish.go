package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// opened is a session that was opened over REST, with a client on a page of it.
type opened struct {
	sidecar *sidecar
	profile string
	id      string
	token   uint64
	client  *client
}

// open opens a session on a profile, and a page with a form and a list in it.
func (s *sidecar) open(profile, page string, more map[string]any) (*opened, error) {
	manifest := map[string]any{"profile_id": profile, "worker_id": "bench", "task_id": "bench-" + profile, "create": true, "wait": "60s"}
	for k, v := range more {
		manifest[k] = v
	}
	var r granted
	if err := s.rest(http.MethodPost, "/v1/sessions", manifest, &r); err != nil {
		return nil, err
	}
	c, err := dial(r.CDPURL)
	if err != nil {
		return nil, err
	}
	session, err := c.page()
	if err != nil {
		return nil, err
	}
	if err := c.goTo(session, page); err != nil {
		return nil, err
	}
	return &opened{s, profile, r.SessionID, r.LeaseToken, c}, nil
}

// goTo opens a page in the tab of a CDP session, and returns when it is loaded.
func (c *client) goTo(session, page string) error {
	for _, command := range [][2]string{{"Page.enable", `{}`}, {"Page.navigate", `{"url":"` + page + `"}`}} {
		if _, err := c.call(session, command[0], command[1]); err != nil {
			return err
		}
	}
	const loaded = `{"expression":"new Promise((done) => document.readyState == 'complete' ? done(location.href) : addEventListener('load', () => done(location.href)))","awaitPromise":true}`
	for {
		msg, err := c.call(session, "Runtime.evaluate", loaded)
		if err != nil {
			return err
		}
		if bytes.Contains(msg, []byte(page)) {
			return nil
		}
	}
}

// rest makes a REST call, and decodes its answer unless into is nil.
func (s *sidecar) rest(method, path string, body, into any) error {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequest(method, s.url+path, &content)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: answerTimeout}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		var p struct{ Detail string }
		_ = json.NewDecoder(resp.Body).Decode(&p)
		return fmt.Errorf("%s %s: %s %s", method, path, resp.Status, p.Detail)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// releases measures how long the proper end of a session takes: from the worker's DELETE
// to its answer, which comes when the evidence is sealed and stored, the browser closed or
// left open for the next task, and the lease released.
func releases(o options, binary string) (_ []result, err error) {
	s, err := startSidecar(binary, o.chrome, "--keep-warm-min-memory", "0")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	page, web, err := serve(servePage)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	var results []result
	for _, way := range []struct {
		name string
		warm bool
	}{{"release with its evidence, browser closed, p50", false}, {"release with its evidence, browser kept warm, p50", true}} {
		var took, cpu []float64
		for round := range o.rounds + 1 {
			on, err := s.open(fmt.Sprintf("release-%t", way.warm), page, map[string]any{"keep_warm": way.warm})
			if err != nil {
				return nil, err
			}
			before, err := s.cpu()
			if err != nil {
				return nil, err
			}
			begun := time.Now()
			if err := s.rest(http.MethodDelete, fmt.Sprintf("/v1/sessions/%s?lease_token=%d&outcome=succeeded", on.id, on.token), nil, nil); err != nil {
				return nil, err
			}
			d := ms(begun)
			after, err := s.cpu()
			if err != nil {
				return nil, err
			}
			_ = on.client.net.Close() // the launcher has closed it
			if round > 0 {
				took, cpu = append(took, d), append(cpu, (after-before).Seconds()*1e3)
			}
		}
		results = append(results, result{Name: way.name, Unit: "ms", Goal: 150, Value: median(took)},
			result{Name: way.name + ", launcher's CPU", Unit: "ms", Value: median(cpu)})
	}
	return results, nil
}

// recoveries measures how long the recovery of a lost worker takes: from the end of its
// connection, without a close handshake, until the profile is decided about. It has no
// time to come back, which would only be added.
func recoveries(o options, binary string) (_ []result, err error) {
	s, err := startSidecar(binary, o.chrome, "--reconnect-grace", "0s", "--cooldown", "0s")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	page, web, err := serve(servePage)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	var took []float64
	for round := range o.rounds + 1 {
		on, err := s.open("recovery", page, nil)
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		if err := on.client.net.Close(); err != nil {
			return nil, err
		}
		if err := on.decided(); err != nil {
			return nil, err
		}
		if round > 0 {
			took = append(took, ms(begun))
		}
	}
	return []result{{Name: "recovery of a lost worker, loss to decision, p50", Unit: "ms", Goal: 3000, Value: median(took)}}, nil
}

// decided waits until the profile of a lost worker, which changed nothing, is free again.
func (o *opened) decided() error {
	for deadline := time.Now().Add(answerTimeout); ; time.Sleep(5 * time.Millisecond) {
		var r struct {
			State    string `json:"state"`
			Decision string `json:"decision"`
			Reason   string `json:"reason"`
		}
		if err := o.sidecar.rest(http.MethodGet, "/v1/profiles/"+o.profile, nil, &r); err != nil {
			return err
		}
		switch {
		case r.State == "available" && r.Decision != "":
			return nil
		case r.State == "manual_review" || time.Now().After(deadline):
			return fmt.Errorf("profile %s: %s %s (%s), want it available again", o.profile, r.State, r.Decision, r.Reason)
		}
	}
}
