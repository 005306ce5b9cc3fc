package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// TestAHoldThatIsGrantedAtTheMomentOfTheSignalIsGivenBack: nobody would know of it, and the
// profile would be in use for an hour. The command does not say that the profile is free if it is not.
func TestAHoldThatIsGrantedAtTheMomentOfTheSignalIsGivenBack(t *testing.T) {
	for ended, code := range map[string]int{"released": 0, "chrome was killed": exitRefused} {
		ctx, interrupt := context.WithCancel(t.Context())
		released := make(chan struct{}, 1)
		mux := http.NewServeMux()
		mux.HandleFunc("POST /v1/profiles/p/hold", func(w http.ResponseWriter, _ *http.Request) {
			interrupt() // the answer is on its way
			answer(w, http.StatusCreated, api.Session{SessionID: "ses_1", ProfileID: "p", Token: 8})
		})
		mux.HandleFunc("DELETE /v1/sessions/ses_1", func(w http.ResponseWriter, _ *http.Request) {
			released <- struct{}{}
			answer(w, http.StatusOK, api.Session{SessionID: "ses_1", ProfileID: "p", Token: 8, State: api.SessionEnded, Ended: ended, Released: code == 0})
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
		if said := strings.Contains(out.String(), "handed back"); exitCode(err) != code || said != (code == 0) {
			t.Errorf("%s: exit code %d, %v, and it says %q", ended, exitCode(err), err, &out)
		}
	}
}
