package cdpproxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"leasehold/internal/test/testchrome"
	"leasehold/lease"
)

// TestAwaitPictures: of a client and of the launcher, whose caller has left.
func TestAwaitPictures(t *testing.T) {
	s := script(t)
	o := observe(t, s)
	fence := open()
	c := connect(t, s.mux, fence, &handler{})
	awaited := func() <-chan struct{} {
		returned := make(chan struct{})
		go func() {
			s.mux.AwaitPictures(t.Context(), testchrome.Patience)
			close(returned)
		}()
		return returned
	}
	await := func(what string, returned <-chan struct{}) {
		t.Helper()
		select {
		case <-returned:
		case <-time.After(testchrome.Patience / 2):
			t.Fatalf("still waiting, %s", what)
		}
	}
	await("and nothing was asked for", awaited())

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
	returned := awaited()
	for _, a := range of {
		select {
		case <-returned:
			t.Fatal("a picture is owed")
		case <-time.After(10 * time.Millisecond):
		}
		s.say(`{"id":%d,"result":{"data":""},"sessionId":%q}`, a.ID, a.SessionID)
	}
	if m, err := c.next(); err != nil || m.ID != id {
		t.Errorf("the client got %+v, %v", m, err)
	}
	await("and all are there", returned)

	fence.Shut(lease.ErrExpired)
	if m := c.call("Page.captureScreenshot", "", nil); m.Error == nil {
		t.Errorf("behind a shut fence: %+v", m)
	}
	await("for one that was refused", awaited())
}
