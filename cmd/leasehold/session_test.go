package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"leasehold/launcher/api"
)

// releasing asks a sidecar, which answers as the handlers do, to release a session.
func releasing(t *testing.T, deletes, gets http.HandlerFunc) (s api.Session, said string, err error) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("DELETE /v1/sessions/ses_1", deletes)
	mux.HandleFunc("GET /v1/sessions/ses_1", gets)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	sidecar, err := clientFlags{URL: server.URL}.client()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	mine := &leasedSession{Session: api.Session{SessionID: "ses_1", ProfileID: "p", Token: 8}, sidecar: sidecar}
	s, err = mine.end(&app{stderr: &stderr}, api.Release{Outcome: outcomeSucceeded})
	return s, stderr.String(), err
}

func noLook(t *testing.T) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("it asked for the session without a need") }
}

// TestAReleaseOutlivesARestartOfTheSidecar: asked once, a task that succeeded would be judged as that
// of a lost worker.
func TestAReleaseOutlivesARestartOfTheSidecar(t *testing.T) {
	released := api.Session{SessionID: "ses_1", ProfileID: "p", Token: 8, State: api.SessionEnded, Released: true, Ended: "released"}
	for name, restarts := range map[string]http.HandlerFunc{
		"no answer":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"shutting down": func(w http.ResponseWriter, _ *http.Request) { refuse(w, api.Refuse(api.CodeShuttingDown, "it ends")) },
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s, said, err := releasing(t, func(w http.ResponseWriter, r *http.Request) {
				if asked++; asked == 1 {
					restarts(w, r)
					return
				}
				answer(w, http.StatusOK, released)
			}, noLook(t))
			if err != nil || !s.Released || !strings.Contains(said, "ses_1") {
				t.Errorf("%+v, %v: %s", s, err, said)
			}
		})
	}
}

// TestAReleaseWhoseAnswerWasLostIsFound: asked again, the sidecar refuses, since the session is over.
func TestAReleaseWhoseAnswerWasLostIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		now  []api.Session // at each look
		fine bool
	}{
		"released":          {[]api.Session{{State: api.SessionEnded, Released: true, Ended: "released"}}, true},
		"still recovering":  {[]api.Session{{State: api.SessionRecovering}, {State: api.SessionEnded, Released: true, Ended: "released"}}, true},
		"ended another way": {[]api.Session{{State: api.SessionEnded, Ended: "launcher_shutdown"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked, looked := 0, 0
			s, _, err := releasing(t, func(w http.ResponseWriter, _ *http.Request) {
				if asked++; asked == 1 {
					panic(http.ErrAbortHandler)
				}
				refuse(w, api.Refuse(api.CodeSessionEnded, "session ses_1 is over"))
			}, func(w http.ResponseWriter, _ *http.Request) {
				answer(w, http.StatusOK, c.now[looked])
				looked++
			})
			if c.fine != (err == nil) || c.fine != s.Released || looked != len(c.now) || !c.fine && !refusedWith(err, api.CodeSessionEnded) {
				t.Errorf("%+v, %v, after %d looks", s, err, looked)
			}
		})
	}
}

// TestARefusedReleaseIsNotAskedAgain: the answer is final.
func TestARefusedReleaseIsNotAskedAgain(t *testing.T) {
	asked := 0
	_, said, err := releasing(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		refuse(w, api.Refuse(api.CodeStaleToken, "it has a higher one"))
	}, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, api.Session{State: api.SessionEnded, Ended: api.ReasonHeartbeat})
	})
	if !refusedWith(err, api.CodeStaleToken) || asked != 1 || said != "" {
		t.Errorf("asked %d times: %v %s", asked, err, said)
	}
}
