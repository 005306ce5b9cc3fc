package launcher

import (
	"strings"
	"testing"
	"time"

	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/lease"
)

func writing(m *api.Manifest) { m.ReadOnly = new(false) }

// ended waits until a session is over, and returns how it ended.
func (r *reading) ended(s api.Session) string {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		shown, err := r.Session(s.SessionID)
		if err != nil || shown.State == api.SessionEnded {
			return shown.Ended
		}
		if time.Now().After(deadline) {
			r.t.Fatal("it goes on")
		}
	}
}

// A launcher that has lost its presence in the lease store may not hear that an account has to stand still.
// A reader that may send something ends then, and none begins; one that only reads goes on.
func TestAReaderThatWritesDependsOnThePresence(t *testing.T) {
	r := startReading(t, 3, func(o *Options) { o.Timing.TTL = time.Hour }) // no worker is silent for too long
	r.held()
	reader, err := r.read(nil)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := r.read(writing)
	if err != nil {
		t.Fatal(err)
	}
	fence := r.host.Sessions.ByID(writer.SessionID).Fence()
	if left := fence.Deadline().Sub(boottime.Now()); left > time.Hour {
		t.Errorf("its fence is open for %v, however long the launcher may act", left)
	}
	r.leases.set(hooks{presence: func() error { return lease.ErrUnavailable }})
	r.host.Presence.StoreReset() // it is renewed now
	if how := r.ended(writer); !strings.Contains(how, api.ReasonLeaseLost) {
		t.Errorf("it ended: %s", how)
	}
	if fence.Check() == nil {
		t.Error("its fence is open")
	}
	if s, err := r.read(writing); codeOf(err) != api.CodeStoreUnavailable {
		t.Errorf("a reader that may send something begins without a presence: %s, %v", s.SessionID, err)
	}
	another, err := r.read(nil)
	if err != nil {
		t.Fatalf("one that only reads: %v", err)
	}
	r.end(another)
	r.end(reader)
	r.unused()
}
