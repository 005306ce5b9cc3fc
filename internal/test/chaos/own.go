package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"time"

	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// visitorName is the worker of the harness's own: where a fault has to come at a certain moment of
// a session, that session is the harness's.
const visitorName = "visitor"

// errNotHad says that a session of the harness's own was not had, as on a host that is too busy. A
// fault that needs one does not happen then; a test run in which it never does has failed.
var errNotHad = errors.New("no session was had")

// visit has a session on a profile at its home, looks what is there, and asks until it has it, for
// a while.
func (h *harness) visit(ctx context.Context, rnd *rand.Rand, at *host, profile string) (*stay, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*h.TTL)
	defer cancel()
	w := &worker{
		workerConfig: workerConfig{ID: visitorName, Launcher: at.base, Name: at.name, Token: callersToken, Witness: h.witness.URL, TTL: h.TTL},
		rest:         at.sidecar, witness: &http.Client{Timeout: callTime}, rnd: rnd, resume: map[string]string{},
	}
	for ; ctx.Err() == nil; sleep(ctx, 100*time.Millisecond) {
		h.visits++
		m := api.Manifest{ProfileID: profile, WorkerID: w.ID, TaskID: fmt.Sprintf("%s-%d", w.ID, h.visits), Wait: api.Duration(2 * h.TTL), Priority: lease.MaxPriority}
		if task, waits := w.resume[profile]; waits {
			m.TaskID = task
			delete(w.resume, profile)
		}
		s := &stay{worker: w, rest: w.rest, profile: profile, task: m.TaskID}
		since := boottime.Now()
		if err := s.acquire(ctx, m, false); err != nil {
			var p *api.Problem
			if errors.As(err, &p) && p.Code == api.CodeInvalidRequest {
				return nil, err
			}
			if err := w.refused(m, err); err != nil {
				return nil, err
			}
			continue
		}
		if err := w.report(Entry{Kind: Granted, Profile: profile, Task: s.task, Token: s.token, Session: s.id, Since: since}); err != nil {
			return nil, err
		}
		if s.client == nil {
			continue
		}
		err := s.client.open(s.Witness + "/page?" + s.query("page").Encode())
		if err == nil {
			err = s.look()
		}
		if err == nil {
			return s, nil
		}
		s.client.Drop()
		if err := w.report(Entry{Kind: Closed, Profile: profile, Token: s.token, Session: s.id, Text: closeCode(err)}); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s at %s: %w", profile, at.name, errNotHad)
}

// looksAgain has a session that only looks what the one before left.
func (h *harness) looksAgain(ctx context.Context, rnd *rand.Rand, before *stay, at *host) error {
	s, err := h.visit(ctx, rnd, at, before.profile)
	if err != nil {
		return err
	}
	defer s.client.Drop()
	return s.release(ctx)
}

// hostWith is some host of which a condition holds, and that has profiles on its own disk.
func (h *harness) hostWith(rnd *rand.Rand, holds func(*host) bool) *host {
	all := slices.DeleteFunc(slices.Clone(h.hosts), func(host *host) bool { return host.shared || !holds(host) })
	return all[rnd.IntN(len(all))]
}

func inMemory(host *host) bool { return host.data.image == "" }

// anySettled is some profile that never leaves a host.
func anySettled(rnd *rand.Rand, host *host) string {
	all := host.settled()
	return all[rnd.IntN(len(all))]
}

// fillAtEnd has the disk be full from before a session stores something until after its end. What
// it stored is there, or its end is no release.
func (h *harness) fillAtEnd(ctx context.Context, rnd *rand.Rand) error {
	host := h.hostWith(rnd, inMemory)
	s, err := h.visit(ctx, rnd, host, anySettled(rnd, host))
	if err != nil {
		return err
	}
	defer s.client.Drop()
	h.log(FullAtEnd, host.name)
	err = host.data.fill()
	stop := stays(ctx, host.data.fill)
	if err == nil && s.keep() == nil { // otherwise the session was lost
		err = s.release(ctx)
	}
	stop()
	if err = errors.Join(err, host.data.free()); err != nil {
		return err
	}
	return h.looksAgain(ctx, rnd, s, host)
}

// cutPower cuts the power of a host whose disk is an image, right after a session on it ended in
// order: what was only in the memory of its kernel is lost.
func (h *harness) cutPower(ctx context.Context, rnd *rand.Rand) error {
	host := h.hostWith(rnd, func(host *host) bool { return !inMemory(host) })
	s, err := h.visit(ctx, rnd, host, anySettled(rnd, host))
	if err != nil {
		return err
	}
	defer s.client.Drop()
	if s.keep() == nil { // otherwise the session was lost
		if err := s.release(ctx); err != nil {
			return err
		}
	}
	sleep(ctx, between(rnd, 0, 500*time.Millisecond))
	h.log(PowerCut, host.name)
	running, err := h.processesOf(host)
	if err != nil {
		return err
	}
	for _, pid := range running {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
	}
	if err := errors.Join(host.data.cutPower(), h.ends(ctx, host), host.data.remount(), host.start()); err != nil {
		return err
	}
	return h.looksAgain(ctx, rnd, s, host)
}

// readySoon is how long a launcher may still say that it is ready when its host has no room.
const readySoon = 10 * time.Second

// fillFiles leaves a launcher's disk no inodes. It says that it is not ready then, and grants
// nothing.
func (h *harness) fillFiles(ctx context.Context, rnd *rand.Rand) error {
	all := slices.DeleteFunc(slices.Clone(h.hosts), func(host *host) bool { return !inMemory(host) })
	host := all[rnd.IntN(len(all))]
	h.log(NoInodes, host.name)
	err := host.data.fillFiles()
	stop := stays(ctx, host.data.fillFiles)
	for deadline := time.Now().Add(readySoon); err == nil && host.call(ctx, callTime, http.MethodGet, "/readyz", nil, nil) == nil; sleep(ctx, 100*time.Millisecond) {
		if time.Now().After(deadline) {
			h.broken(ReadyInVain, "", "%s, %v after its disk had no inodes left", host.name, readySoon)
			break
		}
	}
	sleep(ctx, h.long(rnd))
	stop()
	return errors.Join(err, host.data.free())
}

// hangStores ends a launcher in order while no store answers it: NATS, with leases, events and
// evidence, and that of the snapshots. It ends within its bound.
func (h *harness) hangStores(ctx context.Context, rnd *rand.Rand) error {
	host := h.anyHost(rnd)
	for deadline := time.Now().Add(8 * h.TTL); time.Now().Before(deadline); sleep(ctx, 100*time.Millisecond) {
		if used, err := h.browsersOf(host); err != nil || len(used) > 0 {
			break
		}
	}
	h.log(StoresHang, host.name)
	var heals []func() error
	var errs []error
	begun := func(heal func() error, err error) {
		errs = append(errs, err)
		if err == nil {
			heals = append(heals, heal)
		}
	}
	if h.snapshots != nil {
		begun(h.snapshots.hang())
	}
	begun(h.net.cut(host.endpoint, h.store.endpoints()...))
	for _, n := range h.store.endpoints() {
		begun(h.net.cut(n, host.endpoint))
	}
	h.drain(host)
	for _, heal := range heals {
		errs = append(errs, heal())
	}
	return errors.Join(append(errs, host.start())...)
}

// setClockAhead restarts a launcher with a wall clock that is ahead, and later with the right one.
// No evidence is removed meanwhile that was there.
func (h *harness) setClockAhead(ctx context.Context, rnd *rand.Rand) error {
	host := h.anyHost(rnd)
	epoch, _ := h.store.generation()
	before := h.olderEvidence(ctx)
	h.log(ClockAhead, fmt.Sprintf("%s, %d bundles", host.name, len(before)))
	restart := func(o odd) error {
		h.drain(host)
		host.is(o)
		return host.start()
	}
	err := restart(odd{ahead: true})
	if err == nil {
		err = host.answers(ctx)
	}
	sleep(ctx, h.long(rnd))
	for _, e := range before {
		why := h.fetch(ctx, e.Event.EvidenceID)
		if now, _ := h.store.generation(); now != epoch {
			break // it may have gone with the store
		}
		if errors.As(why, new(*api.Problem)) {
			h.broken(AheadRemoved, e.Profile, "evidence %s of token %d: %v", e.Event.EvidenceID, e.Event.Token, why)
		}
	}
	return errors.Join(err, restart(odd{}))
}

// mostEvidence is how many bundles are looked for.
const mostEvidence = 10

// olderEvidence are the last events of this epoch that name a bundle which is there, and is not the
// newest of its profile.
func (h *harness) olderEvidence(ctx context.Context) (older []Entry) {
	epoch, wall := h.store.generation()
	newest, known := map[string]string{}, map[string]bool{}
	for _, e := range slices.Backward(h.history.Entries()) {
		if e.Kind != Published || e.Epoch != epoch || e.Made.Before(wall) || e.Event.EvidenceID == "" || known[e.Event.EvidenceID] {
			continue
		}
		known[e.Event.EvidenceID] = true
		if newest[e.Profile] == "" {
			newest[e.Profile] = e.Event.EvidenceID
			continue
		}
		if h.fetch(ctx, e.Event.EvidenceID) == nil {
			older = append(older, e)
		}
		if len(older) == mostEvidence || len(known) > 4*mostEvidence {
			break
		}
	}
	return older
}

// splitStore restarts a launcher that takes a server which stands alone for one of its store's. It
// grants nothing.
func (h *harness) splitStore(ctx context.Context, rnd *rand.Rand) error {
	host, alone := h.hostWith(rnd, func(*host) bool { return true }), h.store.stranger
	h.drain(host)
	err := errors.Join(alone.begin(ctx), h.store.ready(ctx))
	if err == nil {
		host.is(odd{stranger: alone.url()})
		h.history.Add(Entry{Kind: Fault, Text: SplitStore, Launcher: host.name, Wall: h.history.wall(boottime.Now())})
		if err = host.start(); err == nil {
			err = host.answers(ctx)
		}
		sleep(ctx, h.long(rnd))
		if host.call(ctx, callTime, http.MethodGet, "/readyz", nil, nil) == nil {
			h.broken(SplitGrant, "", "%s is ready", host.name)
		}
		h.drain(host)
		h.history.Add(Entry{Kind: SplitEnded, Launcher: host.name, Wall: h.history.wall(boottime.Now())})
		held, heldErr := alone.held(ctx)
		for _, r := range held {
			h.broken(SplitGrant, r.ProfileID, "token %d is %s at the server that stands alone", r.Token, r.State)
		}
		err = errors.Join(err, heldErr)
	}
	host.is(odd{})
	return errors.Join(err, alone.kill(), host.start())
}

// checkSplit checks that a launcher grants nothing and starts no browser while its servers are not
// one store.
func (c *checker) checkSplit(history []Entry) {
	var split, ended Entry
	for _, e := range history {
		switch {
		case e.Kind == Fault && e.Text == SplitStore:
			split, ended = e, Entry{}
		case e.Kind == SplitEnded:
			ended = e
		case split.At == 0:
		case e.Kind == Opened && e.Home == split.Launcher && e.Since > split.At && (ended.At == 0 || e.Since < ended.At):
			c.add(SplitGrant, e.Profile, fmt.Sprintf("%s starts a browser on %s", split.Launcher, e.Text), split, e)
		case e.Kind == Published && e.Event.Event == lease.EventGranted && e.Event.LauncherID == split.Launcher &&
			e.Made.After(split.Wall) && (ended.At == 0 || e.Made.Before(ended.Wall)):
			c.add(SplitGrant, e.Profile, fmt.Sprintf("%s grants token %d", split.Launcher, e.Event.Token), split, e)
		}
	}
}
