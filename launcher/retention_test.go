package launcher

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/storetest"
	"leasehold/lease"
)

// While another launcher has the id of this one, retention removes nothing and seals no anchor, and
// what lies in the spool stays there. Alone, the same launcher does all of that.
func TestALauncherOfAnotherIDRemovesNoEvidence(t *testing.T) {
	for name, alone := range map[string]bool{"alone": true, "another one has the id": false} {
		t.Run(name, func(t *testing.T) {
			must := mustIn(t)
			dir := t.TempDir()
			o := optionsIn(t, dir, evidence.Keys{})
			spool, err := evidence.OpenSpool(dir + "/spool")
			must(err)
			stored, err := evidence.ExistingDirStore(dir + "/evidence")
			must(err)
			_, first := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
			_, second := storetest.Seal(t, spool, "p", "ev_2", 2, first)
			must(o.Archive.Flush(t.Context()))
			storetest.Seal(t, spool, "p", "ev_3", 3, second)
			_, err = o.Store.Swap(t.Context(), lease.Entry{}, lease.Record{ProfileID: "p", State: lease.Available, Home: "here", Token: 3})
			must(err)
			if !alone {
				_, err := o.Store.SwapPresence(t.Context(), lease.PresenceEntry{}, lease.Presence{LauncherID: "here", Epoch: 7, TTLSeconds: 1000})
				must(err)
			}
			o.Chrome, o.SharedStore, o.Bundles = fakechrome.Binary(t), true, evidence.Retention{MaxAge: time.Hour}
			l, err := New(o)
			must(err)
			t.Cleanup(func() {
				l.cancel()
				l.work.Wait()
			})
			opened := make(chan struct{})
			l.work.Go(func() { l.host.Presence.Keep(opened, l.expiring) }) // without what else uploads and retains
			<-opened

			l.bundles.Upload(l.ctx)
			if l.bundles.Retain(l.ctx) != alone {
				t.Error("a round")
			}
			l.bundles.Upload(l.ctx)
			ids := func(list []evidence.Manifest, err error) (ids []string) {
				must(err)
				for _, m := range list {
					if !m.IsAnchor() {
						ids = append(ids, m.EvidenceID)
					}
				}
				return ids
			}
			want, waits := []string{"ev_3"}, []string{}
			if !alone {
				want, waits = []string{"ev_2", "ev_1"}, []string{"ev_3"}
			}
			if got := ids(stored.List(t.Context(), "")); !slices.Equal(got, want) {
				t.Errorf("stored: %q, want %q", got, want)
			}
			if got, err := spool.Sealed(); err != nil || !slices.Equal(got, waits) {
				t.Errorf("in the spool: %q, %v, want %q", got, err, waits)
			}
		})
	}
}

// TestTheLogSaysThatClocksDisagree, once, and once that they agree again; a store that is away says
// nothing about clocks.
func TestTheLogSaysThatClocksDisagree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		answers := []error{nil, &lease.ClockError{}, &lease.ClockError{}, lease.ErrUnavailable, &lease.ClockError{}, nil, nil}
		l := &Launcher{ctx: ctx, o: Options{Log: zerolog.New(&log), Now: func(context.Context) (time.Time, error) {
			err := answers[0]
			if answers = answers[1:]; len(answers) == 0 {
				cancel()
			}
			return time.Now(), err
		}}}
		l.watchClock()
		said := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(said) != 2 || !strings.Contains(said[0], "clocks disagree") || !strings.Contains(said[1], "agree again") {
			t.Errorf("said %q", said)
		}
	})
}
