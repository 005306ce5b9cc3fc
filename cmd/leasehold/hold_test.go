package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// TestAHoldThatIsGrantedAtTheMomentOfTheSignalIsGivenBack: nobody would know of it, and the
// profile would be in use for an hour.
func TestAHoldThatIsGrantedAtTheMomentOfTheSignalIsGivenBack(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	released := make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/profiles/p/hold", func(w http.ResponseWriter, _ *http.Request) {
		interrupt() // the answer is on its way
		answer(w, http.StatusCreated, api.Session{SessionID: "ses_1", ProfileID: "p", Token: 8})
	})
	mux.HandleFunc("DELETE /v1/sessions/ses_1", func(w http.ResponseWriter, _ *http.Request) {
		released <- struct{}{}
		answer(w, http.StatusOK, api.Session{SessionID: "ses_1", ProfileID: "p", Token: 8, State: api.SessionEnded, Ended: "released"})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	seen := lease.Token(7)
	c := &holdCmd{clientFlags: clientFlags{URL: server.URL}, Profile: "p", Holder: "ann", For: time.Hour, Token: &seen}
	sidecar, err := c.client()
	if err != nil {
		t.Fatal(err)
	}
	var out, problems bytes.Buffer
	err = c.hold(ctx, &app{stdout: &out, stderr: &problems}, sidecar)
	select {
	case <-released:
	default:
		t.Errorf("it stays: %v, %s%s", err, &out, &problems)
	}
}
