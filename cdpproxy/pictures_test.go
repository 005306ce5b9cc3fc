package cdpproxy_test

import (
	"context"
	"errors"
	"testing"

	"leasehold/lease"
)

// TestPicturesAreOwed: by a client and by the launcher, whose caller has left, until the browser
// answers.
func TestPicturesAreOwed(t *testing.T) {
	s := script(t)
	o := observe(t, s)
	fence := open()
	c := connect(t, s.mux, fence, &handler{})
	owed := func(want bool, when string) {
		t.Helper()
		if s.mux.OwesPictures() != want {
			t.Fatalf("a picture is owed: %v, %s", !want, when)
		}
	}
	owed(false, "and nothing was asked for")
	left, leave := context.WithCancel(t.Context())
	leave()
	if err := o.Call(left, "", "Page.captureScreenshot", nil, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want %v", err, context.Canceled)
	}
	id := c.send("Page.captureScreenshot", "", nil)
	var of []asked
	for len(of) < 2 {
		of = append(of, s.heard()...)
	}
	for _, a := range of {
		owed(true, "before all are answered")
		s.say(`{"id":%d,"result":{"data":""},"sessionId":%q}`, a.ID, a.SessionID)
	}
	if m, err := c.next(); err != nil || m.ID != id {
		t.Errorf("the client got %+v, %v", m, err)
	}
	owed(false, "and all are there")

	fence.Shut(lease.ErrExpired)
	if m := c.call("Page.captureScreenshot", "", nil); m.Error == nil {
		t.Errorf("behind a shut fence: %+v", m)
	}
	owed(false, "and the only one was refused")
}
