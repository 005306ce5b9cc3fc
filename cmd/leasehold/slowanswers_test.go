package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// roundTrip answers the requests of a client in its own process, so that a test can have its own time.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answered is the answer to a request, with v as its JSON document.
func answered(t *testing.T, r *http.Request, status int, v any) *http.Response {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Request: r, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(b))}
}

// askedBy is a client whose requests answers answers.
func askedBy(t *testing.T, answers roundTrip) *client {
	t.Helper()
	sidecar, err := clientFlags{URL: "http://127.0.0.1:9333"}.client()
	if err != nil {
		t.Fatal(err)
	}
	sidecar.http = &http.Client{Transport: answers}
	return sidecar
}

// TestADirectoryMayTakeLongToCome: a sidecar that copies a directory, or fetches a snapshot, drops what it
// has of it when the client goes away, so a time limit of the client's would never let a large one come.
func TestADirectoryMayTakeLongToCome(t *testing.T) {
	const takes = time.Hour
	for name, ask := range map[string]func(context.Context, *app, *client) error{
		"move": func(ctx context.Context, a *app, sidecar *client) error {
			_, err := (&moveCmd{Profile: "p", Person: "ann", Token: 7}).ask(ctx, a, sidecar)
			return err
		},
		"rehome": func(ctx context.Context, a *app, sidecar *client) error {
			_, err := (&rehomeCmd{Profile: "p", Person: "ann", Token: 7, Note: "gone", Snapshot: "newest"}).ask(ctx, a, sidecar)
			return err
		},
		"exec": func(_ context.Context, _ *app, sidecar *client) error {
			_, _, err := (&execCmd{}).askForSession(sidecar, api.Manifest{ProfileID: "p"}, make(chan os.Signal))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sidecar := askedBy(t, func(r *http.Request) (*http.Response, error) {
					select {
					case <-time.After(takes):
						return answered(t, r, http.StatusOK, api.Profile{Record: lease.Record{ProfileID: "p"}}), nil
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
				})
				var out, problems bytes.Buffer
				if err := ask(t.Context(), &app{stdout: &out, stderr: &problems}, sidecar); err != nil {
					t.Errorf("%v, exit code %d; %s%s", err, exitCode(err), &out, &problems)
				}
			})
		})
	}
}
