package incidents

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/recovery/decision"
	"leasehold/lease"
)

// Result is what became of an incident.
type Result struct {
	Incident Incident
	Decided  string
	Reasons  []string
	// Changed is what happened to the account that a decision other than
	// manual_review would take for granted, or repeat.
	Changed []string
	// Touched is everything that happened to it.
	Touched []string
	// Problem is why the incident could not be played to its end.
	Problem error
}

// Unsafe tells whether the account was let go on where it should not.
func (r Result) Unsafe() bool {
	return r.Decided != decision.ManualReview && (!r.Incident.Safe() || len(r.Changed) > 0)
}

// Asked tells whether a person was asked for nothing.
func (r Result) Asked() bool { return r.Decided == decision.ManualReview && r.Incident.Safe() }

// patience bounds one incident, which takes a few seconds.
const patience = 60 * time.Second

// Run plays incidents on a sidecar, so many at a time, and returns the results in
// their order. sidecar is its URL.
func Run(ctx context.Context, sidecar string, incidents []Incident, atOnce int) []Result {
	results := make([]Result, len(incidents))
	places := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for n, i := range incidents {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			results[n] = play(ctx, sidecar, i)
		})
	}
	running.Wait()
	return results
}

// play runs one incident: the script, the kill, and what the sidecar makes of it.
func play(ctx context.Context, sidecar string, i Incident) Result {
	result, err := playOut(ctx, sidecar, i)
	result.Incident, result.Problem = i, err
	return result
}

func playOut(ctx context.Context, sidecar string, i Incident) (result Result, _ error) {
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
	if err := ask(ctx, http.MethodPut, sidecar+"/v1/profiles/"+i.Name, set, nil); err != nil {
		return result, err
	}
	manifest := api.Manifest{
		WorkerID: "worker-7", TaskID: "task_1", ProfileID: i.Name,
		Resumable: i.Manifest.Resumable, ExpectedDomains: i.Manifest.ExpectedDomains,
	}
	w, err := connect(ctx, strings.Replace(sidecar, "http", "ws", 1)+"/devtools/browser/"+url.PathEscape(i.Name)+"?"+manifest.Query().Encode())
	if err != nil {
		return result, err
	}
	checkpointed, idempotent := 0, false
	for n, a := range i.Script {
		if err := w.do(ctx, s, a); err != nil {
			w.kill()
			return result, fmt.Errorf("action %d: %w", n+1, err)
		}
		if a.Checkpoint != nil {
			checkpointed, idempotent = len(s.truth()), a.Checkpoint.Idempotent
		}
	}
	w.kill()
	r, err := decided(ctx, sidecar, i.Name)
	if err != nil {
		return result, err
	}
	result.Decided, result.Reasons = r.Decision, r.Reasons
	truth := s.truth()
	for n, e := range truth {
		result.Touched = append(result.Touched, e.What)
		if r.Decision != decision.Resume || n >= checkpointed && !(idempotent && e.Again) {
			result.Changed = append(result.Changed, e.What)
		}
	}
	return result, nil
}

// decided waits for the end of a profile's recovery.
func decided(ctx context.Context, sidecar, profile string) (lease.Record, error) {
	for {
		var r lease.Record
		if err := ask(ctx, http.MethodGet, sidecar+"/v1/profiles/"+profile, nil, &r); err != nil {
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

// ask makes a request of the sidecar's REST surface.
func ask(ctx context.Context, method, address string, body, result any) error {
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
