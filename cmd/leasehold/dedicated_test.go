package main

import (
	"net/http"
	"testing"

	"github.com/rs/zerolog"
)

// With Chrome, a client's connections for discovery end with the browser. Those to a
// session's own port end with each answer, since the port stays open for longer.
func TestTheSessionsOwnPortKeepsNoConnectionOpen(t *testing.T) {
	d := dedicatedPorts{log: zerolog.Nop(), handler: func(string, string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	}}
	url, closePort, err := d.open("a", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closePort)
	resp, err := http.Get(url + "/json/version")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if !resp.Close {
		t.Errorf("the answer does not say that the connection ends: %v", resp.Header)
	}
}
