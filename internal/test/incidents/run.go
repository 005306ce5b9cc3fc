package incidents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	known "leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// Result is the outcome of one incident.
type Result struct {
	Incident Incident
	Decided  string
	Reasons  []string
	// Changed are the effects on the account that make every decision other than
	// manual_review wrong, because it would ignore or repeat them.
	Changed []string
	// Touched are all effects on the account.
	Touched []string
	// Problem is why the incident could not be run to its end.
	Problem error
}

// Unsafe tells whether the account was released, retried or resumed although a person
// should have been asked, by the expectation or by what the site recorded.
func (r Result) Unsafe() bool {
	return r.Decided != table.ManualReview && (!r.Incident.Safe() || len(r.Changed) > 0)
}

// Asked tells whether a person was asked without need.
func (r Result) Asked() bool { return r.Decided == table.ManualReview && r.Incident.Safe() }

// incidentTimeout bounds one incident, which usually takes a few seconds.
const incidentTimeout = 2 * time.Minute

// Run runs incidents on the sidecar at a URL, at most atOnce at a time, and returns
// their results in the same order. Of those on a site about which there is a file, one is run at a
// time: what is expected_domains of one incident would be asked of the sites of the others.
func Run(ctx context.Context, sidecar string, incidents []Incident, atOnce int) []Result {
	results := make([]Result, len(incidents))
	places := make(chan struct{}, atOnce)
	turns := map[string]*sync.Mutex{}
	for _, name := range members {
		turns[name] = &sync.Mutex{}
	}
	var running sync.WaitGroup
	for n, i := range incidents {
		running.Go(func() {
			if turn := turns[i.Site]; turn != nil {
				turn.Lock()
				defer turn.Unlock()
			}
			places <- struct{}{}
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(ctx, incidentTimeout)
			defer cancel()
			results[n] = runOne(ctx, sidecar, i)
		})
	}
	running.Wait()
	return results
}

// runOne runs one incident: the script, the kill, and the wait for the decision.
func runOne(ctx context.Context, sidecar string, i Incident) Result {
	result, err := runToEnd(ctx, sidecar, i)
	result.Incident, result.Problem = i, err
	return result
}

func runToEnd(ctx context.Context, sidecar string, i Incident) (result Result, err error) {
	s, err := newSite(i)
	if err != nil {
		return result, err
	}
	defer s.close()
	set := api.ProfileSettings{HarmlessRequests: &[]string{}}
	for _, text := range i.Profile.HarmlessRequests {
		method, rest, _ := strings.Cut(text, " ")
		*set.HarmlessRequests = append(*set.HarmlessRequests, method+" "+s.url(rest))
	}
	if s.app != nil {
		wide := "1280x900" // in a narrow one phpMyAdmin's navigation covers its page
		set.Viewport = &wide
	}
	if err := call(ctx, http.MethodPut, sidecar+"/v1/profiles/"+i.Name, set, nil); err != nil {
		return result, err
	}
	if len(i.Known) > 0 {
		about := known.File{Origins: []string{strings.TrimSuffix(s.url("/"), "/")}, Requests: i.Known}
		if err := call(ctx, http.MethodPut, sidecar+"/v1/sites/"+i.Name, api.SitePut{File: about}, nil); err != nil {
			return result, err
		}
	}
	about, err := s.about()
	if err != nil {
		return result, err
	}
	if about != nil {
		about.Name = i.Name
		file := sidecar + "/v1/sites/" + i.Name
		if err := call(ctx, http.MethodPut, file, api.SitePut{File: *about}, nil); err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, call(context.WithoutCancel(ctx), http.MethodDelete, file, nil, nil)) }()
	}
	if len(s.signIn()) > 0 {
		if err := signIn(ctx, sidecar, s, i); err != nil {
			return result, fmt.Errorf("signing in: %w", err)
		}
		if s.app == nil {
			s.begin(i.Answers)
		}
	}
	d, err := enter(ctx, sidecar, i)
	if err != nil {
		return result, err
	}
	p, err := play(ctx, d, s, i)
	if err != nil {
		return result, err
	}
	p.worker.kill()
	r, err := awaitDecision(ctx, sidecar, i.Name)
	if err != nil {
		return result, err
	}
	result.Decided, result.Reasons = r.Decision, r.Reasons
	truth, err := s.truth()
	if err != nil {
		return result, err
	}
	for n, e := range truth {
		result.Touched = append(result.Touched, e.What)
		if r.Decision != table.Resume || n >= p.checkpointed && !(p.idempotent && e.Again) {
			result.Changed = append(result.Changed, e.What)
		}
	}
	return result, nil
}

// awaitDecision waits for the end of a profile's recovery.
func awaitDecision(ctx context.Context, sidecar, profile string) (lease.Record, error) {
	for {
		var r lease.Record
		if err := call(ctx, http.MethodGet, sidecar+"/v1/profiles/"+profile, nil, &r); err != nil {
			return r, err
		}
		switch r.State {
		case lease.Available, lease.ResumePending, lease.ManualReview:
			return r, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return r, fmt.Errorf("the profile is %s (%s): %w", r.State, r.Reason, ctx.Err())
		}
	}
}

// call makes a request to the sidecar's REST surface, and decodes the answer into
// result if that is not nil.
func call(ctx context.Context, method, address string, body, result any) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, r)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, address, resp.Status, b)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(b, result)
}
