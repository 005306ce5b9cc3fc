package grant

import (
	"context"
	"errors"
	"time"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/queue"
	"leasehold/launcher/session"
	"leasehold/launcher/slots"
	"leasehold/launcher/travel"
	"leasehold/lease"
)

// An ephemeral session runs on a copy of the profile's newest snapshot. It takes no lease,
// touches neither the profile's directory nor its record, and is possible on any launcher that
// reaches the profile store, whichever launcher is the profile's home.

// read begins an ephemeral session. It waits for a place on this host for as long as the
// manifest says.
func (g *Service) read(ctx context.Context, m api.Manifest) (*session.Session, error) {
	if g.host.Snapshots == nil {
		return nil, api.Refuse(api.CodeNoProfileStore, "this sidecar has no profile store, and so no snapshot to make an ephemeral session of: start it with --profile-store and --profile-key")
	}
	try := g.tryRead
	if m.AnyProfile() {
		var down proxiesDown
		try = func(ctx context.Context, m api.Manifest, place *slots.Waiter) (*session.Session, error) {
			return g.tryReadAny(ctx, m, place, &down)
		}
	}
	deadline := time.Now().Add(time.Duration(m.Wait))
	place := &slots.Waiter{Entrant: queue.Entrant{Principal: m.Opener.Name, Worker: m.WorkerID, Priority: m.Priority}}
	defer g.host.Slots.LeaveQueue(place)
	for {
		changed := g.host.Slots.Changed()
		if m.OneShot {
			if s := g.host.Sessions.Of(principal.Of(ctx), m.ProfileID, m.WorkerID, m.TaskID, true); s != nil && g.isOf(s, m) {
				return s, s.Limits().Narrow(m)
			}
		}
		s, err := try(ctx, m, place)
		var p *api.Problem
		if err == nil || !errors.As(host.Problem(err), &p) || m.Wait == 0 || !canEnd(p) {
			return s, err
		}
		if time.Until(deadline) <= 0 {
			return nil, api.Refuse(api.CodeWaitTimeout, "waited %v, and still: %s", time.Duration(m.Wait), p.Detail).With("last_code", p.Code)
		}
		if p := g.host.Slots.QueueUp(place, p); p != nil {
			return nil, p
		}
		if err := wait(ctx, changed, deadline); err != nil {
			return nil, err
		}
	}
}

// tryRead makes one attempt, with the record as it is when the browser starts. If it returns no
// session, it has left nothing behind.
func (g *Service) tryRead(ctx context.Context, m api.Manifest, place *slots.Waiter) (*session.Session, error) {
	for {
		s, err := g.tryReadOnce(ctx, m, place)
		if !errors.Is(err, errRecordMoved) || ctx.Err() != nil {
			return s, err
		}
	}
}

// tryReadOnce is tryRead with the proxy of the record as it is once the snapshot is here. It returns
// errRecordMoved if the record has another one by the time the copy is made.
func (g *Service) tryReadOnce(ctx context.Context, m api.Manifest, place *slots.Waiter) (*session.Session, error) {
	r, _, err := g.toRead(ctx, m)
	if err != nil {
		return nil, err
	}
	sessionID := id.New("ses")
	slot := g.host.Slots.OccupyEphemeral(sessionID)
	if slot == nil {
		return nil, api.Refuse(api.CodeShuttingDown, "the launcher is shutting down: ask again when it is back")
	}
	if p := slot.TakePlace(place); p != nil {
		slot.Vacate()
		return nil, p
	}
	begun := time.Now()
	s, err := g.openReader(ctx, m, r, sessionID, slot)
	if err != nil {
		return nil, err
	}
	g.metrics.reads.Observe(time.Since(begun).Seconds())
	return s, nil
}

// toRead returns the profile's record, if the task may have an ephemeral session of the
// profile, and the presence on which one depends that may send something.
func (g *Service) toRead(ctx context.Context, m api.Manifest) (r lease.Record, presence *lease.Keeper, _ error) {
	e, err := g.host.Store.Get(ctx, m.ProfileID)
	r = e.Record
	switch {
	case errors.Is(err, lease.ErrNotFound) || err == nil && r.State == "":
		return r, nil, api.Refuse(api.CodeUnknownProfile, "there is no profile %s", m.ProfileID)
	case err != nil:
		return r, nil, err
	}
	if p := g.unreadable(r, m); p != nil {
		return r, nil, p
	}
	if writes(r, m) {
		presence, err = g.host.Granting()
	}
	return r, presence, err
}

// writes tells whether an ephemeral session of the profile may send something.
func writes(r lease.Record, m api.Manifest) bool { return !m.WantsReadOnly() && !r.ReadOnly }

// unreadable refuses an ephemeral session that the profile's record does not allow the task.
func (g *Service) unreadable(r lease.Record, m api.Manifest) *api.Problem {
	if p := mappingRefusal(r, m); p != nil {
		return p
	}
	if writes(r, m) {
		if p := host.StandsStill(r, "an ephemeral session of it has to be read-only"); p != nil {
			return p
		}
	}
	if r.SnapshotID == "" {
		return api.Refuse(api.CodeNoSnapshot, "profile %s has no snapshot yet: one is made when a session of it ends in order, and when it was imported or cloned", r.ProfileID)
	}
	return nil
}

// openReader makes the copy and starts a browser on it. If it fails, it vacates the slot.
func (g *Service) openReader(ctx context.Context, m api.Manifest, r lease.Record, sessionID string, slot *slots.Slot) (*session.Session, error) {
	c, proxyID, err := g.copyToRead(ctx, m, r, sessionID, slot)
	if err != nil {
		slot.Vacate()
		return nil, err
	}
	r, presence, err := g.toRead(ctx, m)
	if err == nil && r.ProxyID != proxyID {
		err = errRecordMoved
	}
	if err != nil {
		err = errors.Join(err, c.Discard())
		slot.Vacate()
		return nil, err
	}
	// From here on a caller who goes away does not stop the start.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	s := g.host.Sessions.NewReader(m, sessionID, r, c, slot, id.Secret(), presence)
	if err := s.OpenReader(ctx); err != nil {
		return nil, s.UndoReader(err)
	}
	s.Begin()
	g.host.Sessions.Enter(s)
	g.dismissWriter(s) // it did not hear of changes of the record meanwhile
	return s, nil
}

// copyToRead makes a copy of the profile's newest snapshot, and chooses the proxy: it has to be
// the profile's, whose id is returned; if that one does not answer, there is no session.
func (g *Service) copyToRead(ctx context.Context, m api.Manifest, r lease.Record, sessionID string, slot *slots.Slot) (_ session.Copy, proxyID string, _ error) {
	unpacked, release, err := g.o.Readers.Unpack(ctx, r.ProfileID, r.UsualSnapshot())
	if p := new(api.Problem); errors.As(travel.SnapshotProblem(err), &p) && p.Code == api.CodeNotFound {
		// A newer snapshot may have replaced it since the record was read.
		if r, _, err = g.toRead(ctx, m); err == nil {
			unpacked, release, err = g.o.Readers.Unpack(ctx, r.ProfileID, r.UsualSnapshot())
		}
	}
	if err != nil {
		return session.Copy{}, "", readProblem(err)
	}
	defer release()
	if r, _, err = g.toRead(ctx, m); err != nil { // the fetch may have taken minutes
		return session.Copy{}, "", err
	}
	proxy, err := g.chooseProxy(ctx, r, m, unpacked.Dir)
	if err != nil {
		return session.Copy{}, "", err
	}
	slot.UseProxy(proxy)
	c, err := g.o.Readers.Make(ctx, unpacked, sessionID)
	if err != nil {
		return session.Copy{}, "", readProblem(err)
	}
	return session.Copy{
		Path: c.Path, Lock: c.Lock, Root: c.Root(), Jar: c.Jar, Discard: c.Discard, Leave: c.Leave,
		SnapshotID: unpacked.Snapshot.ID, SnapshotToken: unpacked.Snapshot.Token,
	}, r.ProxyID, nil
}

// readProblem turns an error of making a copy into a refusal.
func readProblem(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, lease.ErrUnavailable) {
		return err
	}
	return travel.SnapshotProblem(err)
}

// reasonStandsStill is the reason for ending an ephemeral session that could send something
// while its account has to stand still.
const reasonStandsStill = "account_stands_still"

func (g *Service) dismissWriter(s *session.Session) {
	reader := s.Reader()
	if reader == nil || !reader.Writes() {
		return
	}
	if r, known := g.host.Catalog.Record(s.Profile()); known && host.StillCode(r) != "" {
		reader.Dismiss(reasonStandsStill)
	}
}

// DismissWriters ends, until ctx ends, every ephemeral session that is not read-only, as soon
// as its profile's account has to stand still.
func (g *Service) DismissWriters(ctx context.Context) {
	for {
		changed := g.host.Catalog.Changed()
		for _, s := range g.host.Sessions.Living() {
			g.dismissWriter(s)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
