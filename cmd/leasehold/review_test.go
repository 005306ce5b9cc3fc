package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// terminal is what a person types at, and what reads it.
func terminal(t *testing.T) (person, stdin *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if stdin, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close() })
	return person, stdin
}

// TestAnApprovalAtATerminalIsAskedFor: who gives no token is shown what they approve, and says so.
func TestAnApprovalAtATerminalIsAskedFor(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for typed, approved := range map[string]bool{"y\n": true, "Yes\n": true, "\n": false, "n\n": false} {
		reviewed := false
		mux := http.NewServeMux()
		now := api.Profile{Record: lease.Record{ProfileID: "p", State: lease.ManualReview, Token: 43}}
		mux.HandleFunc("GET /v1/profiles/p", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, now) })
		mux.HandleFunc("POST /v1/profiles/p/review", func(w http.ResponseWriter, _ *http.Request) {
			reviewed = true
			answer(w, http.StatusOK, now)
		})
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		c := &reviewCmd{clientFlags: clientFlags{URL: server.URL}, Profile: "p", Decision: "approve", Reviewer: "ann"}
		sidecar, err := c.client()
		if err != nil {
			t.Fatal(err)
		}
		person, stdin := terminal(t)
		if _, err := person.WriteString(typed); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		_, err = c.ask(t.Context(), &app{stdin: stdin, stdout: &said, stderr: &said}, sidecar)
		if reviewed != approved || (err == nil) != approved || !bytes.Contains(said.Bytes(), []byte("approve p, token 43? y/N")) {
			t.Errorf("%q: approved %v, %v, and is shown\n%s", typed, reviewed, err, &said)
		}
	}
}
