package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"leasehold/launcher/api"
)

// interruptsAt is an output that interrupts the command once it has printed a text.
type interruptsAt struct {
	bytes.Buffer
	text      string
	interrupt context.CancelFunc
}

func (w *interruptsAt) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.text) {
		w.interrupt()
	}
	return n, err
}

// TestCtrlCAnswersTheRequestThatTakePrinted, and none that its person has not read.
func TestCtrlCAnswersTheRequestThatTakePrinted(t *testing.T) {
	for name, tt := range map[string]struct {
		json           bool
		until, answers string
	}{
		"the one that waited":                       {until: "for: enter the code", answers: "ask_1"},
		"the one that came later":                   {until: "for: may I pay?", answers: "ask_2"},
		"the one in the answer that --json printed": {json: true, until: "enter the code", answers: "ask_1"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			now := api.Session{SessionID: "ses_1", ProfileID: "p", Token: 8, State: api.SessionServing, Person: &api.Person{Name: "Ann"}, Ask: &api.Ask{ID: "ask_1", Reason: "enter the code"}}
			later := now
			later.Ask = &api.Ask{ID: "ask_2", Reason: "may I pay?"}
			given := make(chan api.HandBack, 1)
			mux := http.NewServeMux()
			mux.HandleFunc("POST /v1/sessions/ses_1/take-over", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, now) })
			mux.HandleFunc("GET /v1/sessions/ses_1", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, later) })
			mux.HandleFunc("POST /v1/sessions/ses_1/hand-back", func(w http.ResponseWriter, r *http.Request) {
				var h api.HandBack
				if err := json.NewDecoder(r.Body).Decode(&h); err != nil {
					t.Error(err)
				}
				given <- h
				answer(w, http.StatusOK, later)
			})
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			c := &takeCmd{clientFlags: clientFlags{URL: server.URL, JSON: tt.json}, Profile: "p"}
			sidecar, err := c.client()
			if err != nil {
				t.Fatal(err)
			}
			out := &interruptsAt{text: tt.until, interrupt: interrupt}
			if err := c.have(ctx, &app{stdout: out, stderr: out}, sidecar, now, "Ann"); err != nil {
				t.Fatal(err)
			}
			if h := <-given; h.AskID != tt.answers {
				t.Errorf("handed back with %+v, want an answer to %s; printed\n%s", h, tt.answers, out)
			}
		})
	}
}
