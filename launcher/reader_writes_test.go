package launcher

import (
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/launcher/snapshots"
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

// The record of a profile may be changed while its snapshot is fetched, which takes minutes, and while the copy
// is made. A reader begins by the record as it is then: through its proxy or not at all, read-only, and not
// where its account has to stand still by now.
func TestAReaderBeginsByTheRecordOfNow(t *testing.T) {
	for what, change := range map[string]func(*lease.Record){
		api.CodeBrowserStartFailed: func(rec *lease.Record) { rec.ProxyID = "down" },
		api.CodeAccountMismatch:    func(rec *lease.Record) { rec.AccountID = "bob" },
		api.CodeInReview:           func(rec *lease.Record) { rec.State = lease.ManualReview },
		"read-only":                func(rec *lease.Record) { rec.ReadOnly = true },
	} {
		for _, when := range []string{"while the snapshot is fetched", "while the copy is made"} {
			t.Run(what+" "+when, func(t *testing.T) {
				objects := &onGet{Objects: snapshots.OpenDir(filepath.Join(t.TempDir(), "held-up"))}
				r := startReading(t, 1, func(o *Options) { o.Snapshots = snapshots.New(objects, snapshots.NewKey()) })
				s := r.snapshot(here, 7, nil)
				set := func(rec *lease.Record) { rec.SnapshotID, rec.SnapshotToken, rec.AccountID = s.ID, 7, "ann" }
				r.profile(set)
				changed := sync.OnceFunc(func() {
					r.leases.set(hooks{})
					r.profile(func(rec *lease.Record) { set(rec); change(rec) })
				})
				if when == "while the snapshot is fetched" {
					objects.run = func(string) { changed() }
				} else { // seen at the first look after it
					var looks atomic.Int32
					r.leases.set(hooks{get: func(profile string) {
						if profile == "acct" && looks.Add(1) == 3 {
							changed()
						}
					}})
				}
				got, err := r.read(func(m *api.Manifest) { writing(m); m.AccountID = "ann" })
				if what == "read-only" && err == nil {
					if !got.ReadOnly {
						t.Error("it may send something")
					}
					r.end(got)
				} else if codeOf(err) != what {
					t.Errorf("%+v, %v; want %s", got, err, what)
				}
				r.unused()
			})
		}
	}
}
