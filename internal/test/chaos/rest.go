package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"leasehold/launcher/api"
)

// sidecar is the REST surface of one launcher.
type sidecar struct {
	base, token string
	http        *http.Client
}

func newSidecar(base, token string) *sidecar {
	return &sidecar{base: base, token: token, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// answers waits until a launcher that was started serves its API, whatever it answers. It may end
// and be started again before that, as where no store answers.
func (s *sidecar) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unseenTime)
	defer cancel()
	for ; ; sleep(ctx, 100*time.Millisecond) {
		err := s.call(ctx, 3*time.Second, http.MethodGet, "/readyz", nil, nil)
		if err == nil || errors.As(err, new(*api.Problem)) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the launcher at %s does not answer: %w", s.base, err)
		}
	}
}

// call makes a request within the time limit, and decodes the answer into result if
// that is not nil. A refusal is returned as an *api.Problem.
func (s *sidecar) call(ctx context.Context, limit time.Duration, method, path string, body, result any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, r)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		var p api.Problem
		if json.Unmarshal(b, &p) != nil || p.Code == "" {
			return fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, b)
		}
		return &p
	case result != nil:
		return json.Unmarshal(b, result)
	}
	return nil
}
