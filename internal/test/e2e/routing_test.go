package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/lease"
)

// answered is what a request for a session was answered.
type answered struct {
	code int
	body map[string]any
	err  error
}

func (a answered) text(name string) string {
	s, _ := a.body[name].(string)
	return s
}

// asks asks a launcher for a session, without failing the test.
func asks(t *testing.T, base string, manifest map[string]any) answered {
	b, err := json.Marshal(manifest)
	if err != nil {
		return answered{err: err}
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", base+"/v1/sessions", bytes.NewReader(b))
	if err != nil {
		return answered{err: err}
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answered{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	a := answered{code: resp.StatusCode}
	if b, a.err = io.ReadAll(resp.Body); a.err == nil {
		a.err = json.Unmarshal(b, &a.body)
	}
	if a.err == nil && a.code == 201 {
		go beats(t.Context(), base, a)
	}
	return a
}

// beats keeps a session that nobody connects to, until it is released.
func beats(ctx context.Context, base string, a answered) {
	for {
		body := fmt.Sprintf(`{"lease_token":%v}`, a.body["lease_token"])
		r, err := http.NewRequestWithContext(ctx, "POST", base+"/v1/sessions/"+a.text("session_id")+"/heartbeat", strings.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return
		}
		_ = resp.Body.Close()
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return
		}
		if resp.StatusCode != 200 {
			return
		}
	}
}

// follows asks, and goes on where it is sent, as the documentation says.
func follows(t *testing.T, base string, manifest map[string]any) answered {
	manifest = maps.Clone(manifest)
	for range 4 {
		a := asks(t, base, manifest)
		if a.code != 421 || a.text("turn") == "" {
			return a
		}
		base, manifest["turn"] = a.text("location"), a.text("turn")
	}
	return answered{err: fmt.Errorf("sent on and on")}
}

// async asks in the background.
func async(ask func() answered) <-chan answered {
	got := make(chan answered, 1)
	go func() { got <- ask() }()
	return got
}

// giveBack ends the session of a grant, at the launcher that has it.
func (s *sidecar) giveBack(t *testing.T, a answered) {
	t.Helper()
	body := map[string]any{"lease_token": a.body["lease_token"], "outcome": "succeeded"}
	if code := s.call(t, "DELETE", "/v1/sessions/"+a.text("session_id"), body, nil); code != 200 {
		t.Fatalf("release of %v: %d", a.body, code)
	}
}

// awaitQueue waits until a launcher shows the tasks that wait, in this order.
func (s *sidecar) awaitQueue(t *testing.T, tasks string) {
	t.Helper()
	eventually(t, "the queue to be "+tasks, func() error {
		var queue struct {
			Items []struct {
				TaskID string `json:"task_id"`
			}
		}
		if code := s.call(t, "GET", "/v1/queue", nil, &queue); code != 200 {
			return fmt.Errorf("%d", code)
		}
		var all []string
		for _, w := range queue.Items {
			all = append(all, w.TaskID)
		}
		if got := strings.Join(all, " "); got != tasks {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

func (s *sidecar) label(t *testing.T, profile string, labels map[string]string) {
	t.Helper()
	if code := s.call(t, "PUT", "/v1/profiles/"+profile, map[string]any{"labels": labels, "account_id": "of-" + profile}, nil); code != 200 {
		t.Fatalf("labels of %s: %d", profile, code)
	}
}

// TestAnyProfileThatFits: a request for labels gets a profile of its own host, is sent on to
// another host, and waits for whichever is free first.
func TestAnyProfileThatFits(t *testing.T) {
	t.Parallel()
	home, other := pair(t, fakeBrowsers(t)...)
	home.label(t, "us_1", map[string]string{"region": "us-east"})
	home.label(t, "eu_1", map[string]string{"region": "eu"})
	other.label(t, "us_2", map[string]string{"region": "us-west"})
	free := func(s *sidecar, want ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%v to be free", want), func() error {
			var listed struct{ Items []lease.Record }
			if code := s.call(t, "GET", "/v1/profiles?free=true&label=region:us-*", nil, &listed); code != 200 {
				return fmt.Errorf("%d", code)
			}
			var got []string
			for _, r := range listed.Items {
				got = append(got, r.ProfileID)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("%q are", got)
			}
			return nil
		})
	}
	free(home, "us_1", "us_2")
	free(other, "us_1", "us_2")
	us := func(task string, more ...string) map[string]any {
		m := map[string]any{"labels": map[string]string{"region": "us-*"}, "worker_id": "w", "task_id": task}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	one := asks(t, home.URL, us("one"))
	if one.code != 201 || one.text("profile_id") != "us_1" {
		t.Fatalf("%+v", one)
	}
	sent := asks(t, home.URL, us("two"))
	if sent.code != 421 || sent.text("code") != "wrong_home" || sent.text("home_launcher") != "other" || sent.text("location") != other.URL || sent.text("profile_id") != "us_2" {
		t.Fatalf("%+v", sent)
	}
	other.awaitQueue(t, "two")
	// It is kept for the request that was sent there.
	if a := asks(t, other.URL, map[string]any{"profile_id": "us_2", "task_id": "thief"}); a.code != 409 || a.text("reason") != "queue" {
		t.Errorf("a request that came later: %+v", a)
	}
	two := asks(t, other.URL, us("two", "turn", sent.text("turn")))
	if two.code != 201 || two.text("profile_id") != "us_2" {
		t.Fatalf("%+v", two)
	}
	free(home)
	eventually(t, "the refusal", func() error {
		a := asks(t, home.URL, us("none"))
		if a.code != 409 || a.text("code") != "profile_lock_conflict" || fmt.Sprint(a.body["candidates"]) != "map[profile_lock_conflict:2]" {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	if a := asks(t, home.URL, map[string]any{"labels": map[string]string{"region": "mars"}}); a.code != 404 || a.text("code") != "unknown_profile" || !strings.Contains(a.text("detail"), "region:mars") {
		t.Errorf("nothing fits: %+v", a)
	}
	// Two wait at home: the first goes to the other host, where a profile is free first.
	third := async(func() answered { return follows(t, home.URL, us("three", "wait", "60s")) })
	other.awaitQueue(t, "three")
	fourth := async(func() answered { return follows(t, home.URL, us("four", "wait", "60s")) })
	other.awaitQueue(t, "three four")
	home.awaitQueue(t, "three four")
	if out, _, code := home.cli(t, "queue"); code != 0 || !strings.Contains(out, "region:us-*") || !strings.Contains(out, "three") {
		t.Errorf("leasehold queue: %d\n%s", code, out)
	}
	other.giveBack(t, two)
	three := <-third
	if three.code != 201 || three.text("profile_id") != "us_2" {
		t.Errorf("the first who waited: %+v", three)
	}
	home.giveBack(t, one)
	if a := <-fourth; a.code != 201 || a.text("profile_id") != "us_1" {
		t.Errorf("the second who waited: %+v", a)
	}
	home.awaitQueue(t, "")
	// The command for agents goes to the other host by itself, and stays there with this session.
	agent := home.agent(t)
	fifth := make(chan called, 1)
	go func() {
		fifth <- agent.call(t, "lease_profile", map[string]any{"labels": map[string]any{"region": "us-*"}, "task_id": "five", "wait_seconds": 60})
	}()
	home.awaitQueue(t, "five")
	other.giveBack(t, three)
	if c := <-fifth; c.refused || !strings.Contains(c.text, `"profile_id":"us_2"`) || !strings.Contains(c.text, strings.TrimPrefix(other.URL, "http://")) {
		t.Errorf("an agent that waited: %s", c.text)
	}
	agent.does(t, "step", map[string]any{"name": "there"}, nil)
	agent.does(t, "release", nil, nil)
}

// awaitFree waits until a launcher shows a profile as free.
func (s *sidecar) awaitFree(t *testing.T, profile string) {
	t.Helper()
	eventually(t, profile+" to be seen", func() error {
		var listed struct{ Items []lease.Record }
		s.call(t, "GET", "/v1/profiles?free=true&q="+profile, nil, &listed)
		if len(listed.Items) == 0 {
			return fmt.Errorf("it is not")
		}
		return nil
	})
}
