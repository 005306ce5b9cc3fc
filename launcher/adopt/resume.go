package adopt

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/session"
	"leasehold/launcher/slots"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// errNotYet says that it cannot be known yet whether a session may go on.
var errNotYet = errors.New("the launcher has no presence yet")

// resumable says why the session of the record cannot go on here; nil if it can. It has no
// effects.
func (a *Adopter) resumable(r lease.Record) error {
	f, known := a.o.Sessions.File(r.SessionID)
	switch {
	case a.o.Sessions.Draining():
		return errors.New("the launcher is draining")
	case !known:
		return errors.New("there is no session file")
	case f.Reason != "" || f.Ended != "" || f.Evidence.EvidenceID != "":
		return errors.New("its end had begun")
	case f.Token != r.Token:
		return fmt.Errorf("it had token %d, the profile has %d", f.Token, r.Token)
	case !a.o.Presence.Continues(r.PresenceEpoch):
		return errors.New("its lease expired while no launcher was there")
	}
	k, err := a.o.Presence.Current()
	if err != nil {
		return fmt.Errorf("%w: %w", errNotYet, err)
	}
	if _, err := r.Continue(f.Token, a.o.Sessions.Request(f.Manifest, r.SessionID, k, 0), time.Now()); err != nil {
		return fmt.Errorf("the lease is %s, with %d runs: %w", r.State, len(r.Runs), err)
	}
	return nil
}

// resume goes on with the session of the record, if it may and its browser can be driven.
// Otherwise nothing was changed except the presence to which the lease is attached, and the
// session has to be recovered.
func (a *Adopter) resume(slot *slots.Slot, r lease.Record, path string, lock *profiledir.Lock, b *browser.Browser, seen *entryBuffer, log zerolog.Logger) bool {
	err := a.resumable(r)
	switch {
	case err != nil:
	case b == nil:
		err = errors.New("its browser is gone")
	case !b.Driven():
		err = errors.New("its browser cannot be driven")
	case !b.HasPipeLog():
		err = errors.New("it is not known what its clients left open")
	default:
		err = a.sameProxy(slot, r)
	}
	var s *session.Session
	if err == nil {
		s, err = a.sessionOf(slot, r, path, lock, b)
	}
	if err != nil {
		log.Info().AnErr("why", err).Msg("the session does not go on: it is recovered")
		return false
	}
	seen.passTo(slot.Note)
	a.adoptions.Inc()
	s.Resumed()
	a.o.Sessions.Known(s.ID())
	return true
}

// sessionOf resumes the lease, and makes a session from what is on disk.
func (a *Adopter) sessionOf(slot *slots.Slot, r lease.Record, path string, lock *profiledir.Lock, b *browser.Browser) (*session.Session, error) {
	k, err := a.o.Presence.Current()
	if err != nil {
		return nil, err
	}
	f, _ := a.o.Sessions.File(r.SessionID)
	t := session.Resumption{
		Record: r, Path: path, Slot: slot, Lock: lock, Browser: b, Keeper: k,
		Request:   a.o.Sessions.Request(f.Manifest, r.SessionID, k, 0),
		Continues: func() bool { return a.o.Presence.Continues(r.PresenceEpoch) },
	}
	if _, kept, err := a.o.Root.Kept(r.ProfileID); err == nil {
		t.DropCookies = leftWarm(kept) // the launcher was killed during a handover
	}
	if running, ok, err := a.o.Root.Running(r.ProfileID); err == nil && ok {
		t.StartedFor = running.SessionID
	}
	slot.UseProxy(a.o.Proxies.Find(r.ProxyID)) // see sameProxy
	return a.o.Sessions.Resume(t)
}

// sameProxy says why the browser of an earlier launcher's session does not use the proxy of its
// profile; nil if it does.
func (a *Adopter) sameProxy(slot *slots.Slot, r lease.Record) error {
	now, err := a.proxyOf(r)
	if err != nil {
		return err
	}
	if now != nil && now.NeedsRelay() && !slot.HasRelay() {
		return fmt.Errorf("the way to proxy %s could not be opened again", r.ProxyID)
	}
	return nil
}

// proxyOf is the configured proxy of a profile, nil where it has none, if the browser of the record's
// session was started with that one. Otherwise the error says why not.
func (a *Adopter) proxyOf(r lease.Record) (*proxies.Proxy, error) {
	f, _ := a.o.Sessions.File(r.SessionID)
	now := a.o.Proxies.Find(r.ProxyID)
	if fact := witness.ProxyFact(r, f.Manifest.ProxyID, f.Proxy, now, a.o.Proxies == nil); fact.Answer != table.Yes {
		return nil, errors.New(fact.How)
	}
	return now, nil
}

// entryBuffer keeps what is seen in a browser until it is known which journal it belongs to.
type entryBuffer struct {
	mu   sync.Mutex
	kept []checkpoint.Entry
	to   func(checkpoint.Entry)
}

func (b *entryBuffer) add(e checkpoint.Entry) {
	b.mu.Lock()
	to := b.to
	if to == nil {
		b.kept = append(b.kept, e)
	}
	b.mu.Unlock()
	if to != nil {
		to(e)
	}
}

// passTo passes on what was kept and, from now on, everything else.
func (b *entryBuffer) passTo(to func(checkpoint.Entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.kept {
		to(e)
	}
	b.kept, b.to = nil, to
}
