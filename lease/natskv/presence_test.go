package natskv

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/internal/boottime"
	"leasehold/lease"
)

func TestPresence(t *testing.T) {
	s := single(t)
	ctx := t.Context()
	const l = "host-1.example"
	own := lease.Presence{LauncherID: l, BootID: "b", TTLSeconds: 30}
	nothing, err := s.Presence(ctx, l)
	if err != nil || nothing != (lease.PresenceEntry{}) {
		t.Errorf("presence of nobody: %+v, %v", nothing, err)
	}
	if all, err := s.Presences(ctx); err != nil || all == nil || len(all) != 0 {
		t.Errorf("presences of nobody: %v, %v", all, err)
	}
	opened, err := s.SwapPresence(ctx, nothing, nothing.Presence.Open(own, 4, t0))
	if err != nil || opened.Revision == 0 || opened.Presence.Nonce == "" || opened.Presence.Epoch != 5 {
		t.Fatalf("opened: %+v, %v", opened, err)
	}
	got, err := s.Presence(ctx, l)
	if err != nil || got != opened {
		t.Errorf("presence: %+v, %v; want %+v", got, err, opened)
	}
	renewed, err := s.SwapPresence(ctx, opened, opened.Presence)
	if err != nil || renewed.Revision <= opened.Revision || renewed.Presence.Nonce == opened.Presence.Nonce {
		t.Errorf("renewed: %+v, %v", renewed, err)
	}
	for name, prev := range map[string]lease.PresenceEntry{"older revision": opened, "nobody": {}} {
		_, err := s.SwapPresence(ctx, prev, own)
		var moved *lease.PresenceMovedError
		if !errors.As(err, &moved) || moved.Launcher != l || moved.Current == nil || *moved.Current != renewed {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"empty":    second2(s.Presence(ctx, "")),
		"dot":      second2(s.Presence(ctx, ".x")),
		"space":    second2(s.SwapPresence(ctx, lease.PresenceEntry{}, lease.Presence{LauncherID: "a b"})),
		"too long": second2(s.SwapPresence(ctx, lease.PresenceEntry{}, lease.Presence{LauncherID: strings.Repeat("x", 129)})),
		"wildcard": second2(s.Presence(ctx, "*")),
		"another":  second2(s.SwapPresence(ctx, renewed, lease.Presence{LauncherID: "host-2"})),
	} {
		if kindOf(err) != "refused" || !strings.Contains(err.Error(), "launcher") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A value that is no presence changes nothing, as with records.
	if err := s.nc.PublishRequest("$JS.API.INFO", "$KV."+Hosts+"."+launcherKey(l), nil); err != nil {
		t.Fatal(err)
	}
	var top lease.PresenceEntry
	soon(t, func() error {
		if top, err = s.Presence(ctx, l); err == nil && top.Revision <= renewed.Revision {
			return fmt.Errorf("revision %d, no answer of the server yet", top.Revision)
		}
		return err
	})
	if top.Presence != renewed.Presence {
		t.Errorf("below something foreign: %+v, want %+v", top, renewed)
	}
	if all, err := s.Presences(ctx); err != nil || len(all) != 1 || all[0] != top {
		t.Errorf("presences: %+v, %v", all, err)
	}
	if _, err := s.SwapPresence(ctx, top, top.Presence); err != nil {
		t.Errorf("renewal over something foreign: %v", err)
	}
	if err := bucketOf(t, s, Hosts).Delete(ctx, launcherKey(l)); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Presence(ctx, l); err != nil || p != (lease.PresenceEntry{}) {
		t.Errorf("deleted: %+v, %v", p, err)
	}
	if all, err := s.Presences(ctx); err != nil || len(all) != 0 {
		t.Errorf("presences, the only one deleted: %+v, %v", all, err)
	}
	if _, err := s.SwapPresence(ctx, lease.PresenceEntry{}, own); err != nil {
		t.Errorf("opened over a deleted one: %v", err)
	}
}

// There are more launchers than one answer of the server can have.
func TestManyPresences(t *testing.T) {
	s := single(t)
	const n = 1100
	want := map[string]uint64{}
	for i := range n {
		l := lease.Presence{LauncherID: "host." + strconv.Itoa(i)}
		stored, err := s.SwapPresence(patient(t), lease.PresenceEntry{}, l)
		if err != nil {
			t.Fatal(err)
		}
		want[l.LauncherID] = stored.Revision
	}
	if _, err := s.lastOfEach(t.Context(), s.hosts); !errors.Is(err, errTooMany) {
		t.Errorf("in one answer: %v", err)
	}
	all, err := s.Presences(patient(t))
	if err != nil || len(all) != n {
		t.Fatalf("%d presences, %v", len(all), err)
	}
	for _, p := range all {
		if want[p.Presence.LauncherID] != p.Revision {
			t.Errorf("%s: revision %d, want %d", p.Presence.LauncherID, p.Revision, want[p.Presence.LauncherID])
		}
	}
}

// Several launchers close the presence of one that seems silent, while that one renews it
// after all. One write is stored, and all others learn the current entry.
func TestClosersOfAPresence(t *testing.T) {
	srv := start(t, t.TempDir())
	var stores []*Store
	for range 4 {
		stores = append(stores, open(t, inProcess(t, srv)))
	}
	own := lease.Presence{LauncherID: "l", TTLSeconds: 30}
	for range 30 {
		prev, err := stores[0].Presence(patient(t), "l")
		if err != nil {
			t.Fatal(err)
		}
		opened, err := stores[0].SwapPresence(patient(t), prev, prev.Presence.Open(own, 0, t0))
		if err != nil || opened.Presence.Epoch != prev.Presence.Epoch+1 || opened.Presence.Closed {
			t.Fatalf("opened: %+v, %v", opened, err)
		}
		var wg sync.WaitGroup
		won := make(chan lease.PresenceEntry, len(stores))
		for i, s := range stores {
			wg.Go(func() {
				next := opened.Presence // the launcher's renewal
				if i > 0 {
					next = opened.Presence.Close("l", "closer-"+strconv.Itoa(i), opened.Presence.Epoch, time.Now())
				}
				stored, err := s.SwapPresence(patient(t), opened, next)
				var moved *lease.PresenceMovedError
				switch {
				case err == nil:
					won <- stored
				case !errors.As(err, &moved) || moved.Current == nil || moved.Current.Revision <= opened.Revision:
					t.Errorf("error %v, want a *lease.MovedError with a later current revision than %d", err, opened.Revision)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d winners", len(won))
		}
		if got, err := stores[0].Presence(patient(t), "l"); err != nil || got != <-won {
			t.Errorf("presence: %+v, %v", got, err)
		}
	}
}

// A lease.Keeper on the real store renews its presence, and learns when it was closed.
func TestKeeperOnTheStore(t *testing.T) {
	s := single(t)
	start := time.Now()
	k, err := lease.Keep(t.Context(), lease.Presence{LauncherID: "l"}, lease.PresenceEntry{}, 0, lease.KeeperOptions{
		Store: s, Timing: lease.Timing{TTL: 30 * time.Second},
		Clock: func() boottime.Instant { return boottime.Instant(time.Since(start)) }, Expiring: func(time.Duration) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Stop()
	opened, err := s.Presence(patient(t), "l")
	if err != nil || opened.Presence.Epoch != k.Epoch() {
		t.Fatalf("presence: %+v, %v", opened, err)
	}
	k.RenewNow()
	// written returns the presence as soon as the keeper has written it again.
	written := func(before uint64) (now lease.PresenceEntry) {
		t.Helper()
		soon(t, func() error {
			now, err = s.Presence(patient(t), "l")
			if err == nil && (now.Revision == 0 || now.Revision == before) {
				err = fmt.Errorf("revision %d, as before; the keeper: %v", now.Revision, context.Cause(k.Context()))
			}
			return err
		})
		return now
	}
	written(opened.Revision)
	// The store loses the presence, and the keeper writes it again with the same epoch.
	deleteStream(t, s.hosts.stream)
	k.RenewNow()
	renewed := written(0)
	if renewed.Presence.Epoch != opened.Presence.Epoch {
		t.Errorf("written again: %+v", renewed)
	}
	for {
		_, err = s.SwapPresence(patient(t), renewed, renewed.Presence.Close("l", "other", renewed.Presence.Epoch, time.Now()))
		var moved *lease.PresenceMovedError
		if !errors.As(err, &moved) {
			break
		}
		renewed = *moved.Current
	}
	if err != nil {
		t.Fatal(err)
	}
	k.RenewNow()
	<-k.Context().Done()
	if cause := context.Cause(k.Context()); !errors.Is(cause, lease.ErrExpired) {
		t.Errorf("closed: %v", cause)
	}
}
