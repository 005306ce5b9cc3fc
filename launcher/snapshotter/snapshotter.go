// Package snapshotter makes snapshots of the profiles whose home this launcher is: after each
// session that ended in order, and of profiles that nobody has used yet. It works in the
// background, under the token that the profile has.
//
// Nothing waits for it. It reads a profile while the profile is vacant. A request for the
// profile meanwhile gets it at once, and what was read is thrown away, since Chrome may have
// begun to write. What could not be done is done later: when the profile is vacant again, or at
// the next look at all profiles.
package snapshotter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/internal/durable"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// Options configure a Snapshotter.
type Options struct {
	LauncherID string
	// Dir is the snapshotter's own directory, in the data directory.
	Dir string
	// KeepFree is how many bytes have to stay free on its disk.
	KeepFree  uint64
	Snapshots *snapshots.Store
	Retention snapshots.Retention
	// Now is launcher.Options.Now.
	Now    func(context.Context) (time.Time, error)
	Leases lease.Store
	// MayAct tells whether this launcher may act on the profile of a record.
	MayAct func(lease.Record) error
	// Known returns all records that are known; it may be out of date.
	Known func() []lease.Record
	Slots *slots.Table
	Root  *profiledir.Root
	Jar   sessionfile.Jar
	// Chrome returns the version of this host's Chrome, as it is now.
	Chrome func(context.Context) (string, error)

	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

const (
	// atOnce is how many profiles are read and sealed at a time.
	atOnce = 4
	// sealTimeout bounds one seal, even a first upload over a slow line.
	sealTimeout = 30 * time.Minute
	askTimeout  = 30 * time.Second
	// lookEvery is the time between two looks at all profiles.
	lookEvery = time.Minute
	// ageEvery is the time between two looks for old snapshots of all profiles, the first of which is ageFirst
	// after the start.
	ageEvery = 24 * time.Hour
	ageFirst = time.Hour
)

// Snapshotter makes the snapshots. Its methods are safe for concurrent use.
type Snapshotter struct {
	o       Options
	places  chan struct{} // has room for atOnce
	metrics metrics

	mu      sync.Mutex
	pending map[string]*task // by profile
	wake    chan struct{}    // has room for one
	idle    chan struct{}    // closed and replaced when a task is over
	failed  map[string]failure
	highest map[string]highest // by profile
	// tidy are the profiles of which the store has no chunk that no snapshot uses.
	tidy map[string]bool
}

// task is what has to be done for a profile.
type task struct {
	running bool
	again   bool // it became vacant again while it ran
	age     bool // old snapshots leave, whether or not another one follows
}

// failure says that a snapshot of a profile could not be made.
type failure struct {
	times int
	retry time.Time // when it is tried again at the earliest
}

// New returns a snapshotter; Run does the work. New removes what an earlier process has left.
func New(o Options) (*Snapshotter, error) {
	s := &Snapshotter{
		o: o, places: make(chan struct{}, atOnce), pending: map[string]*task{}, wake: make(chan struct{}, 1), idle: make(chan struct{}),
		failed: map[string]failure{}, highest: map[string]highest{}, tidy: map[string]bool{},
	}
	s.metrics = newMetrics(s, o.Metrics)
	if err := snapshots.SweepSpool(s.spool()); err != nil {
		return nil, fmt.Errorf("profile store: %w", err)
	}
	o.Slots.OnVacated(s.Vacated)
	return s, nil
}

func (s *Snapshotter) spool() string { return filepath.Join(s.o.Dir, "spool") }

func (s *Snapshotter) index(profile string) string {
	return filepath.Join(s.o.Dir, lease.FileName(profile)+".index")
}

// Vacated says that a profile became vacant. It does not wait.
func (s *Snapshotter) Vacated(profile string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failed, profile) // it has changed, so what failed before may succeed now
	s.want(profile)
}

// want arranges that a profile is looked at. The caller holds s.mu.
func (s *Snapshotter) want(profile string) {
	if t := s.pending[profile]; t != nil {
		t.again = t.running
		return
	}
	s.pending[profile] = &task{}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run makes snapshots until ctx ends, and waits for those that are being made.
func (s *Snapshotter) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	old := time.NewTimer(ageFirst)
	defer old.Stop()
	s.lookAtAll()
	for {
		s.start(ctx, &work)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			s.lookAtAll()
		case <-old.C:
			s.age()
			old.Reset(ageEvery)
		case <-s.wake:
		}
	}
}

// lookAtAll arranges that all profiles are looked at that have changed since their last
// snapshot.
func (s *Snapshotter) lookAtAll() {
	now := time.Now()
	for _, r := range s.o.Known() {
		if !s.due(r) {
			continue
		}
		s.mu.Lock()
		if now.After(s.failed[r.ProfileID].retry) {
			s.want(r.ProfileID)
		}
		s.mu.Unlock()
	}
}

// age arranges that old snapshots leave, also those of profiles that nobody uses any more: no other one follows them.
func (s *Snapshotter) age() {
	for _, r := range s.o.Known() {
		if r.Home != s.o.LauncherID {
			continue
		}
		s.mu.Lock()
		s.want(r.ProfileID)
		s.pending[r.ProfileID].age = true
		s.mu.Unlock()
	}
}

// due tells whether a snapshot has to be made of a profile.
func (s *Snapshotter) due(r lease.Record) bool {
	return r.Home == s.o.LauncherID && r.AtRest() && !r.HasSnapshot() && s.o.MayAct(r) == nil
}

func (s *Snapshotter) start(ctx context.Context, work *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for profile, t := range s.pending {
		if t.running || ctx.Err() != nil {
			continue
		}
		select {
		case s.places <- struct{}{}:
		default:
			return // a task that ends wakes Run
		}
		t.running = true
		age := t.age
		work.Go(func() {
			if age {
				s.removeOld(ctx, profile)
			}
			err := s.make(ctx, profile)
			<-s.places
			s.over(ctx, profile, t, err)
		})
	}
}

func (s *Snapshotter) over(ctx context.Context, profile string, t *task, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, profile)
	if t.again {
		s.want(profile)
	}
	if err == nil {
		delete(s.failed, profile)
	} else {
		f := s.failed[profile]
		f.times++
		f.retry = time.Now().Add(min(time.Minute<<min(f.times, 6), time.Hour))
		s.failed[profile] = f
		if ctx.Err() == nil {
			s.o.Log.Warn().Err(err).Str("profile", profile).Time("next_try", f.retry).Msg("no snapshot was made of the profile")
		}
	}
	close(s.idle)
	s.idle = make(chan struct{})
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Drain waits until all waiting tasks are done, or ctx ends.
func (s *Snapshotter) Drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		left, idle := len(s.pending), s.idle
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("%d profiles have no snapshot yet: %w", left, context.Cause(ctx))
		}
	}
}

// make makes a snapshot of a profile, if one is due. If it returns no error, nothing more has
// to be done now.
func (s *Snapshotter) make(ctx context.Context, profile string) error {
	if s.o.Slots.Find(profile) != nil { // its slot is occupied, or its browser is warm: Vacated reports the end of that
		return nil
	}
	// This is checked first, since many profiles may be made ahead of their use.
	if s.empty(profile) {
		return nil
	}
	r, err := s.record(ctx, profile)
	if err != nil || !s.due(r) {
		return err
	}
	begun := time.Now()
	content, about, opened, err := s.read(ctx, r)
	switch {
	case errors.Is(err, slots.ErrWanted), errors.Is(err, snapshots.ErrChanged):
		s.metrics.results.WithLabelValues(resultAbandoned).Inc()
		s.o.Log.Debug().Err(err).Str("profile", profile).Uint64("token", uint64(r.Token)).Msg("a snapshot was given up, since the profile is wanted: the next session's end brings another")
		return nil
	case err != nil:
		return s.cannot(ctx, r, err)
	case content == nil:
		return nil
	}
	read := time.Since(begun)
	made, err := s.seal(ctx, content, about)
	if errors.Is(err, snapshots.ErrFull) {
		if err = s.retain(ctx, r, snapshots.Snapshot{ProfileID: profile, Token: about.Token}); err == nil {
			made, err = s.seal(ctx, content, about)
		}
	}
	if err = errors.Join(err, content.Close()); err != nil {
		s.setTidy(profile, false)
		if errors.Is(err, snapshots.ErrStale) { // the next attempt, which comes at once, reads all files
			s.Vacated(profile)
			return nil
		}
		if stale, ok := errors.AsType[*snapshots.StaleTokenError](err); ok {
			s.metrics.results.WithLabelValues(resultRefused).Inc()
			s.overtaken(profile, stale.Current)
			s.o.Log.Warn().Err(err).Str("profile", profile).Msg("a snapshot came too late")
			return nil
		}
		return s.cannot(ctx, r, err)
	}
	s.metrics.made(made)
	s.o.Log.Info().Str("profile", profile).Uint64("token", uint64(made.Token)).Str("session", made.SessionID).Str("snapshot", made.ID).
		Int("files", made.Files).Uint64("bytes", made.Bytes).Uint64("stored_bytes", made.Stored).Dur("reading", read).Dur("took", time.Since(begun)).Msg("snapshot made")
	if err := s.name(ctx, made, opened); err != nil {
		return err
	}
	return s.retain(ctx, r, made)
}

// cannot counts an attempt that failed. On a full disk nothing that may leave waits for the next snapshot, which
// may need its room: neither old snapshots, nor what the attempt has sent.
func (s *Snapshotter) cannot(ctx context.Context, r lease.Record, err error) error {
	s.metrics.results.WithLabelValues(resultFailed).Inc()
	if durable.Full(err) {
		err = errors.Join(err, s.retain(ctx, r, snapshots.Snapshot{ProfileID: r.ProfileID, Token: r.Token}))
	}
	return err
}

// empty tells whether the profile's directory contains nothing that could be lost.
func (s *Snapshotter) empty(profile string) bool {
	path, err := s.o.Root.Path(profile)
	if err != nil {
		return errors.Is(err, profiledir.ErrNoProfile)
	}
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

func (s *Snapshotter) record(ctx context.Context, profile string) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	e, err := s.o.Leases.Get(ctx, profile)
	if errors.Is(err, lease.ErrNotFound) {
		return lease.Record{}, nil
	}
	return e.Record, err
}

// read reads a vacant profile; nil if it is not in a state of which snapshots are made. opened is the
// record's Opened then. The error is slots.ErrWanted if somebody wanted the profile meanwhile.
func (s *Snapshotter) read(ctx context.Context, r lease.Record) (_ *snapshots.Content, about snapshots.About, opened uint64, err error) {
	ctx, done := s.o.Slots.WhileVacant(ctx, r.ProfileID)
	defer done()
	defer func() {
		// An error found while somebody else has the profile is not a failure of the snapshot.
		if err != nil && errors.Is(context.Cause(ctx), slots.ErrWanted) {
			err = slots.ErrWanted
		}
	}()
	path, err := s.o.Root.Path(r.ProfileID)
	if errors.Is(err, profiledir.ErrNoProfile) {
		return nil, about, 0, nil
	}
	if err == nil {
		err = s.o.Root.MayOpen(r.ProfileID)
	}
	var departed *profiledir.DepartedError
	var arriving *profiledir.ArrivingError
	if errors.As(err, &departed) || errors.As(err, &arriving) {
		return nil, about, 0, nil // this is not the profile's present state
	}
	if err != nil {
		return nil, about, 0, err
	}
	// The record that was read may be older than a session that has begun and ended meanwhile.
	now, err := s.record(ctx, r.ProfileID)
	if cause := context.Cause(ctx); cause != nil {
		return nil, about, 0, cause
	}
	if err != nil {
		return nil, about, 0, err
	}
	if now.Token != r.Token || !s.due(now) {
		return nil, about, 0, nil // it became vacant, so it will be looked at again
	}
	if user, err := profiledir.FindUser(path); err != nil || user != nil {
		if err == nil {
			err = fmt.Errorf("it is in use by %s, without a lease", user)
		}
		return nil, about, 0, fmt.Errorf("profile %s: %w", r.ProfileID, err)
	}
	// What is in doubt goes to a person, who may take a snapshot of before instead.
	if why, err := s.o.Root.Replaced(r.ProfileID); err != nil || why != "" {
		if err == nil {
			err = fmt.Errorf("want the directory as its last browser left it: %s", why)
		}
		return nil, about, 0, fmt.Errorf("profile %s: %w", r.ProfileID, err)
	}
	facts, err := s.o.Root.Inspect(r.ProfileID)
	if err != nil {
		return nil, about, 0, err
	}
	if facts.ClosedCleanly.Answer != profiledir.Yes {
		return nil, about, 0, fmt.Errorf("profile %s: want one that Chrome closed in order: %s", r.ProfileID, facts.ClosedCleanly.How)
	}
	about = snapshots.About{
		Token: r.Token, SessionID: r.SessionID, LauncherID: s.o.LauncherID, ChromeVersion: profiledir.LastVersion(path), CreatedAt: time.Now().UTC(),
	}
	if about.ChromeVersion == "" {
		if about.ChromeVersion, err = s.o.Chrome(ctx); err != nil {
			return nil, about, 0, err
		}
	}
	if about.Extras, err = s.o.Jar.Export(r.ProfileID); err != nil {
		return nil, about, 0, err
	}
	content, err := s.o.Snapshots.Read(ctx, r.ProfileID, path, snapshots.ReadOptions{Spool: s.spool(), Index: s.index(r.ProfileID), KeepFree: s.o.KeepFree})
	if err != nil {
		return nil, about, 0, err
	}
	// The cookies were read before this: whoever wanted the profile since may have changed
	// them.
	if cause := context.Cause(ctx); cause != nil {
		return nil, about, 0, errors.Join(cause, content.Close())
	}
	return content, about, now.Opened, nil
}

func (s *Snapshotter) seal(ctx context.Context, content *snapshots.Content, about snapshots.About) (snapshots.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	return s.o.Snapshots.Seal(ctx, content, about)
}

// name makes the profile's record name the snapshot, which was read when the record's Opened was
// opened, if the record still has the snapshot's token.
func (s *Snapshotter) name(ctx context.Context, made snapshots.Snapshot, opened uint64) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	e, err := lease.Change(ctx, s.o.Leases, made.ProfileID, func(e lease.Entry) (lease.Record, error) {
		if _, err := s.o.Root.Path(made.ProfileID); err != nil { // checked after the record was read: whoever removes the directory changes the record after that
			return e.Record, err
		}
		return e.Record.Snapshotted(made.ID, made.Token, opened)
	})
	if errors.Is(err, profiledir.ErrNoProfile) {
		s.o.Log.Debug().Str("profile", made.ProfileID).Str("snapshot", made.ID).Msg("the record does not name the snapshot, since its directory was put aside or removed")
		return nil
	}
	if _, ok := errors.AsType[*lease.FencedError](err); ok { // the next session goes on with the profile
		s.o.Log.Debug().Str("profile", made.ProfileID).Str("snapshot", made.ID).Err(err).Msg("the record does not name the snapshot, since it is of an earlier session")
		return nil
	}
	if err != nil {
		return fmt.Errorf("profile %s: its record does not name snapshot %s: %w", made.ProfileID, made.ID, err)
	}
	s.keep(e.Record)
	err = s.o.Leases.Announce(ctx, lease.Event{
		Event: lease.EventSnapshotMade, ProfileID: made.ProfileID, Token: made.Token, At: made.CreatedAt, SessionID: made.SessionID, LauncherID: made.LauncherID, SnapshotID: made.ID,
	})
	if err != nil {
		s.o.Log.Warn().Err(err).Str("profile", made.ProfileID).Msg("event of a snapshot is not known to be published")
	}
	return nil
}

// keep puts the record into the copy that the home keeps. It occupies the profile for as long
// as that takes; if somebody else has the profile, the next grant keeps the record.
func (s *Snapshotter) keep(r lease.Record) {
	slot := s.o.Slots.OccupyVacant(r.ProfileID)
	if slot == nil {
		return
	}
	defer slot.Vacate()
	lock, err := s.o.Root.Lock(r.ProfileID)
	if err == nil {
		err = errors.Join(lock.RaiseFloor(r), lock.Unlock())
	}
	var fenced *lease.FencedError
	if err != nil && !errors.As(err, &fenced) { // a later session's record is there already
		s.o.Log.Warn().Err(err).Str("profile", r.ProfileID).Msg("the home's copy of the record does not name the snapshot")
	}
}

// retain removes snapshots that need not be kept. While a profile is being decided about, or
// another launcher asks for it, all are kept: any of them may be the one that is wanted. It is
// called again after the next snapshot, or before it, if the list or the disk has no room for it, and once a day.
func (s *Snapshotter) retain(ctx context.Context, r lease.Record, made snapshots.Snapshot) error {
	now, err := s.record(ctx, made.ProfileID)
	if err != nil {
		return fmt.Errorf("profile %s: which snapshots are needed is not known, and all stay: %w", made.ProfileID, err)
	}
	if now.MoveRequest != nil || !now.State.Free() && now.State != lease.Held {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	keep := s.o.Retention
	keep.Also = append([]string{made.ID, r.SnapshotID, now.SnapshotID, now.SignedInSnapshotID}, keep.Also...)
	if now.Moved != nil {
		keep.Also = append(keep.Also, now.Moved.SnapshotID)
	}
	at := time.Now()
	if s.o.Now != nil {
		if at, err = s.o.Now(ctx); err != nil {
			s.o.Log.Warn().Err(err).Str("profile", made.ProfileID).Msg("no snapshot is removed for its age")
			keep.KeepFor = 0
		}
	}
	removed, err := s.o.Snapshots.Retain(ctx, made.ProfileID, made.Token, keep, at)
	s.mu.Lock()
	tidy := s.tidy[made.ProfileID]
	s.mu.Unlock()
	if err == nil && len(removed) == 0 && !tidy { // a failed attempt, now or earlier, may have left something
		err = s.o.Snapshots.Collect(ctx, made.ProfileID, made.Token)
	}
	if _, ok := errors.AsType[*snapshots.StaleTokenError](err); ok {
		return nil // the later holder does it
	}
	if len(removed) > 0 {
		s.o.Log.Info().Str("profile", made.ProfileID).Strs("snapshots", removed).Msg("old snapshots removed")
	}
	s.setTidy(made.ProfileID, err == nil)
	return err
}

// removeOld removes snapshots that need not be kept of a profile whose home is here.
func (s *Snapshotter) removeOld(ctx context.Context, profile string) {
	r, err := s.record(ctx, profile)
	if err == nil && r.Home == s.o.LauncherID && s.o.MayAct(r) == nil {
		err = s.retain(ctx, r, snapshots.Snapshot{ProfileID: profile, Token: r.Token})
	}
	if err != nil && ctx.Err() == nil {
		s.o.Log.Warn().Err(err).Str("profile", profile).Msg("old snapshots of the profile stay until tomorrow")
	}
}

// setTidy notes whether the store may have chunks of the profile that no snapshot uses.
func (s *Snapshotter) setTidy(profile string, tidy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidy[profile] = tidy
}
