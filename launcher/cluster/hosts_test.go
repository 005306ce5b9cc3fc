package cluster

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/lease"
)

// TestWhoIsHere: a launcher is here as long as its presence is seen to change, by this
// host's own clock, and not closed.
func TestWhoIsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		p := NewPatrol(t.Context(), &work, PatrolOptions{LauncherID: "here", Metrics: prometheus.NewRegistry()})
		show := func(nonce string, closed bool) {
			p.learn([]lease.PresenceEntry{{Presence: lease.Presence{LauncherID: "other", TTLSeconds: 30, Nonce: nonce, Closed: closed, HeartbeatAt: time.Unix(1, 0)}}})
		}
		want := func(what string, here bool) {
			t.Helper()
			if all := p.Hosts(); len(all) != 1 || all[0].Here != here {
				t.Errorf("%s: %+v, want here: %v", what, all, here)
			}
		}
		show("a", false)
		want("at first", true)
		time.Sleep(20 * time.Second)
		show("a", false)
		want("after a while without a change", true)
		time.Sleep(11 * time.Second)
		show("a", false)
		want("after its time", false)
		show("b", false)
		want("renewed", true)
		show("c", true)
		want("closed", false)
		p.learn(nil)
		if all := p.Hosts(); len(all) != 0 {
			t.Errorf("%+v, want none", all)
		}
	})
}
