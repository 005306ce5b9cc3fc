package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// TestAnInterruptedRequestSaysThatItWas, with the exit code that a shell gives to what a signal ended: the
// sidecar is there, and may have done what it was asked for.
func TestAnInterruptedRequestSaysThatItWas(t *testing.T) {
	nothing := &app{stdout: io.Discard, stderr: io.Discard}
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		ask    func(context.Context, *client) error
		done   string // what the error says of what may be done
	}{
		{"ask", syscall.SIGINT, func(ctx context.Context, sidecar *client) error {
			return (&askCmd{sessionFlags: sessionFlags{Session: "ses_1"}, Reason: "a code"}).ask(ctx, nothing, sidecar)
		}, "the request is withdrawn"},
		{"take", syscall.SIGINT, func(ctx context.Context, sidecar *client) error {
			_, err := (&takeCmd{}).take(ctx, sidecar, api.Session{SessionID: "ses_1"}, "ann", "")
			return err
		}, "it may be done all the same"},
		{"review", syscall.SIGTERM, func(ctx context.Context, sidecar *client) error {
			_, err := (&reviewCmd{Profile: "p", Reviewer: "ann", Decision: "keep", Token: 7}).ask(ctx, nothing, sidecar)
			return err
		}, "it may be done all the same: leasehold show p"},
		{"look", syscall.SIGINT, func(ctx context.Context, sidecar *client) error {
			_, err := sidecar.record(ctx, "p")
			return err
		}, ""},
		{"an answer that has begun", syscall.SIGINT, func(ctx context.Context, sidecar *client) error {
			_, _, err := sidecar.Ask(ctx, http.MethodGet, nil, nil, "begun")
			return err
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, stop := interruptible()
			defer stop()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && r.URL.Path == "/v1/sessions/ses_1" {
					answer(w, http.StatusOK, api.Session{SessionID: "ses_1", Token: 8})
					return
				}
				if r.URL.Path == "/begun" {
					_, _ = io.WriteString(w, "{")
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = io.Copy(io.Discard, r.Body) // the server sees only then that the client has gone
				if err := syscall.Kill(os.Getpid(), c.signal); err != nil {
					t.Error(err)
				}
				<-r.Context().Done()
			}))
			defer server.Close()
			sidecar, err := clientFlags{URL: server.URL}.client()
			if err != nil {
				t.Fatal(err)
			}
			err = c.ask(ctx, sidecar)
			if got, want := exitCode(err), exitSignal+int(c.signal); got != want {
				t.Errorf("exit code %d, want %d: %v", got, want, err)
			}
			if err == nil || strings.Contains(err.Error(), "--url") || !strings.HasSuffix(err.Error(), c.done) || c.done == "" && strings.Contains(err.Error(), "done") {
				t.Errorf("it says %v; want %q", err, c.done)
			}
		})
	}
}

// TestARequestThatTakesTooLongSaysSo: what it was for may be done all the same.
func TestARequestThatTakesTooLongSaysSo(t *testing.T) {
	token := lease.Token(7)
	hold := holdCmd{Profile: "p", Holder: "ann", For: time.Hour, Token: &token}
	for _, c := range []struct {
		name string
		ask  func(context.Context, *app, *client) error
		want string
	}{
		{"hold", func(ctx context.Context, a *app, sidecar *client) error { return hold.hold(ctx, a, sidecar) },
			"no answer in 2m0s; it may be done all the same: leasehold show p"},
		{"look", func(ctx context.Context, _ *app, sidecar *client) error {
			_, err := sidecar.record(ctx, "p")
			return err
		},
			"no answer in 2m0s"},
		{"part of the evidence", func(ctx context.Context, _ *app, sidecar *client) error {
			_, err := restReader{sidecar}.Manifest(ctx, "ev1")
			return err
		}, "no answer in 2m0s"},
	} {
		for _, begun := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				sidecar := askedBy(t, func(r *http.Request) (*http.Response, error) {
					if !begun {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					response := answered(t, r, http.StatusOK, nil)
					response.Body = io.NopCloser(endless{r.Context()})
					return response, nil
				})
				var out, problems bytes.Buffer
				err := c.ask(t.Context(), &app{stdout: &out, stderr: &problems}, sidecar)
				if exitCode(err) != exitFailure || !strings.HasSuffix(err.Error(), c.want) {
					t.Errorf("%s, begun %v: exit code %d, %v; want %q", c.name, begun, exitCode(err), err, c.want)
				}
			})
		}
	}
}

// endless is an answer of which nothing more comes.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, e.ctx.Err()
}

// TestASidecarThatIsNotThereIsAskedFor: then it is the address that is wrong, or nothing runs there.
func TestASidecarThatIsNotThereIsAskedFor(t *testing.T) {
	sidecar := askedBy(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	if _, err := sidecar.record(t.Context(), "p"); exitCode(err) != exitUnreachable || !strings.Contains(err.Error(), "is leasehold run running there (--url)?") {
		t.Errorf("exit code %d, %v", exitCode(err), err)
	}
}
