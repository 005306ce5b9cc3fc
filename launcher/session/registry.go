package session

import (
	"errors"
	"maps"
	"slices"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// maxEnded is how many sessions that are over are remembered, and as many ephemeral ones.
const maxEnded = 2000

// resumeWait bounds how long a request waits until it is decided whether a session of an
// earlier launcher is resumed.
const resumeWait = 20 * time.Second

// Lookup finds a living session, or says how it ended. For a session of an earlier launcher it
// waits until it is decided whether it is resumed.
func (h *Registry) Lookup(sessionID string) (*Session, error) {
	if err := h.awaitResume(sessionID); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.living[sessionID]; s != nil {
		return s, nil
	}
	if f, ok := h.ended[sessionID]; ok {
		return nil, endedProblem(f)
	}
	if h.draining { // it may have been left to the next launcher
		return nil, leftProblem(sessionID)
	}
	return nil, api.Refuse(api.CodeUnknownSession, "no session %s is known here", sessionID)
}

// leftProblem refuses what is about a session that this launcher has left to the next one, or may have.
func leftProblem(sessionID string) *api.Problem {
	return api.Refuse(api.CodeShuttingDown, "the launcher is shutting down: ask for session %s when it is back", sessionID).With("session_id", sessionID)
}

func endedProblem(f sessionfile.File) *api.Problem {
	how := f.Ended
	if how == "" {
		how = "the launcher that served it is gone"
	}
	return api.Refuse(api.CodeSessionEnded, "session %s is over: %s", f.SessionID, how).
		With("session_id", f.SessionID).With("ended", how)
}

// Show describes a session, living or over.
func (h *Registry) Show(sessionID string) (api.Session, error) {
	s, err := h.Lookup(sessionID)
	if err == nil {
		return s.Show(), nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f, ok := h.ended[sessionID]
	if _, later := h.pending[sessionID]; !ok || later {
		return api.Session{}, err
	}
	return api.Session{
		SessionID: f.SessionID, ProfileID: f.Manifest.ProfileID, Token: f.Token, WorkerID: f.Manifest.WorkerID,
		Ephemeral: f.Manifest.Ephemeral, TaskID: f.Manifest.TaskID, State: api.SessionEnded, AcquiredAt: f.AcquiredAt, ExpiresAt: f.SeenAt, Ended: f.Ended,
		Released: f.Released, UnfinishedDownloads: f.UnfinishedDownloads, Principal: f.Principal, OpenerUID: f.OpenerUID,
	}, nil
}

// ByCapability finds a living session by the secret in a path.
func (h *Registry) ByCapability(capability string) (*Session, error) {
	h.mu.Lock()
	sessionID, ok := h.hashes[sessionfile.HashCapability(capability)]
	h.mu.Unlock()
	if !ok {
		return nil, api.Refuse(api.CodeUnknownSession, "no session has this capability")
	}
	s, err := h.Lookup(sessionID)
	if err == nil {
		s.file.learn(capability)
	}
	return s, err
}

// Of finds the living session of a profile, worker and task that the principal opened and that
// has not begun to end; nil if there is none. An empty profile stands for any. It waits for
// sessions of an earlier launcher. It finds an ephemeral session only if one is asked for, and
// no other session then.
func (h *Registry) Of(by principal.Principal, profile, worker, task string, ephemeral bool) *Session {
	h.mu.Lock()
	var pending []string
	for id, p := range h.pending {
		if m := p.file.Manifest; (profile == "" || m.ProfileID == profile) && m.WorkerID == worker && m.TaskID == task && by.Is(p.file.Principal) {
			pending = append(pending, id)
		}
	}
	h.mu.Unlock()
	for _, id := range pending {
		_ = h.awaitResume(id) // the search below shows the result
	}
	for _, s := range h.Living() {
		if (profile == "" || s.profile == profile) && s.manifest.WorkerID == worker && s.manifest.TaskID == task && s.manifest.Ephemeral == ephemeral && by.Is(s.manifest.Opener.Name) && !s.life.isEnding() {
			return s
		}
	}
	return nil
}

// OnProfile finds the living session with the lowest token on a profile; nil if there is none.
// Ephemeral sessions do not count, since they are on copies.
func (h *Registry) OnProfile(profile string) *Session {
	var first *Session
	for _, s := range h.Living() {
		if s.profile == profile && !s.ephemeral && (first == nil || s.token < first.token) {
			first = s
		}
	}
	return first
}

// Runs is how many living sessions share the profile's browser, and whether whoever has a sign-in link took one of
// them over.
func (h *Registry) Runs(profile string) (n int, byLink bool) {
	for _, s := range h.Living() {
		if s.profile != profile || s.ephemeral {
			continue
		}
		n++
		who := s.people.shown()
		byLink = byLink || who != nil && principal.IsLink(who.Principal)
	}
	return n, byLink
}

// ByID finds a living session; nil if there is none.
func (h *Registry) ByID(sessionID string) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.living[sessionID]
}

// Living are the living sessions.
func (h *Registry) Living() []*Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.living))
}

// File is what is known of a session that is over, or is pending.
func (h *Registry) File(sessionID string) (sessionfile.File, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, ok := h.ended[sessionID]
	return f, ok
}

// Left is File, with what the guard of an earlier launcher has done since the file was read. The error says
// that the file cannot be read again; what is known is returned all the same.
func (h *Registry) Left(sessionID string) (f sessionfile.File, known bool, err error) {
	f, known = h.File(sessionID)
	disk, err := h.o.Files.Read(sessionID)
	switch {
	case err != nil || !known:
	case f.Reason == "":
		f = disk
	case disk.Evidence.EvidenceID == "":
	case f.Evidence.EvidenceID == "" || f.CloseMethod == "" && disk.CloseMethod != "": // its end had begun before
		f.Evidence, f.CloseMethod, f.Unseen = disk.Evidence, disk.CloseMethod, f.Unseen || disk.Unseen
		f.NotStored, f.CookiesLost = disk.NotStored, disk.CookiesLost
	}
	return f, known, err
}

// Sealed are the bundles that the files of the record's sessions name. Where the profile was elsewhere since,
// the bundles of that home follow those of here.
func (h *Registry) Sealed(r lease.Record) (sealed []lease.Sealed) {
	for _, sessionID := range r.Sessions() {
		f, known, err := h.Left(sessionID)
		if known && err == nil && f.Evidence.EvidenceID != "" && (r.Moved == nil || r.Moved.Token <= f.Token) {
			sealed = append(sealed, f.Evidence)
		}
	}
	return sealed
}

// Identify tells which profile and token a session has, or had.
func (h *Registry) Identify(sessionID string) (f sessionfile.File, known bool) {
	if s := h.ByID(sessionID); s != nil {
		return sessionfile.File{SessionID: s.id, Token: s.token, Manifest: s.manifest, Principal: s.manifest.Opener.Name}, true
	}
	return h.File(sessionID)
}

// Drain ends every session in the way in which the launcher ends. It may be called again.
func (h *Registry) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	for _, s := range h.living {
		s.life.update(h.drains)
	}
}

func (h *Registry) drains(f *facts) {
	f.draining, f.leaving = true, h.o.LeaveOnExit != nil && h.o.LeaveOnExit()
}

// Draining tells whether Drain was called.
func (h *Registry) Draining() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.draining
}

// Enter adds a session that was granted to the living ones, and serves it until its end.
func (h *Registry) Enter(s *Session) {
	s.slot.Enter(s)
	s.browser.LimitWrites(0) // of a run whose worker was lost before
	h.mu.Lock()
	defer h.mu.Unlock()
	h.living[s.id] = s
	h.hashes[s.file.get().CapabilityHash] = s.id
	delete(h.ended, s.id)
	if h.draining {
		s.life.update(h.drains)
	}
	h.metrics.sessions.Inc()
	if !s.ephemeral {
		s.pictures.begin(s.recording.entries())
	} else {
		h.metrics.readers.Inc()
	}
	h.work.Go(s.run)
}

// leave takes a session out of the living ones.
func (h *Registry) leave(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.living, s.id)
}

// Remember keeps what has to be known of a session that is over, and forgets the oldest ones of its
// kind if there are too many.
func (h *Registry) Remember(f sessionfile.File) error {
	err := h.o.Files.Save(f)
	if f.Ended != "" {
		err = errors.Join(err, h.o.FileRoots.Remove(f.Manifest.ProfileID, f.SessionID))
	}
	return errors.Join(err, h.keep(f))
}

// keep is Remember for what is kept only in memory.
func (h *Registry) keep(f sessionfile.File) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended[f.SessionID] = f
	h.hashes[f.CapabilityHash] = f.SessionID
	n := 0
	for _, e := range h.ended {
		if e.Manifest.Ephemeral == f.Manifest.Ephemeral {
			n++
		}
	}
	if n <= maxEnded {
		return err
	}
	open, known := h.undecided()
	if !known && !f.Manifest.Ephemeral { // a later end forgets them
		return err
	}
	var oldest []sessionfile.File
	for _, e := range h.ended {
		if e.Ended != "" && e.Manifest.Ephemeral == f.Manifest.Ephemeral && !open[e.SessionID] {
			oldest = append(oldest, e)
		}
	}
	slices.SortFunc(oldest, func(a, b sessionfile.File) int { return a.AcquiredAt.Compare(b.AcquiredAt) })
	for _, e := range oldest[:min(len(oldest), maxEnded/10)] {
		if running, ok, err := h.o.Root.Running(e.Manifest.ProfileID); err != nil || ok && running.SessionID == e.SessionID {
			continue // its files belong to a browser that may live
		}
		err = errors.Join(err, h.drop(e))
	}
	return err
}

// undecided are the sessions that records name about which nothing is decided yet: their files may be
// needed for that. known is false if not all records are known.
func (h *Registry) undecided() (sessions map[string]bool, known bool) {
	sessions = map[string]bool{}
	if h.o.Records == nil {
		return sessions, true
	}
	records, known := h.o.Records()
	for _, r := range records {
		if r.State == lease.Available {
			continue
		}
		for _, id := range r.Sessions() {
			sessions[id] = true
		}
		for _, run := range r.IncidentRuns() {
			sessions[run.SessionID] = true
		}
		if r.ByHand != nil && r.ByHand.Review != nil {
			sessions[r.ByHand.Review.SessionID] = true
		}
	}
	return sessions, known
}

// drop forgets a session that is over, and removes its files. The caller holds mu.
func (h *Registry) drop(f sessionfile.File) error {
	delete(h.ended, f.SessionID)
	delete(h.hashes, f.CapabilityHash)
	h.o.Announcer.forget(f.SessionID)
	return h.o.Files.Remove(f.SessionID)
}

// forget forgets a session that was not granted, with its files.
func (h *Registry) forget(f sessionfile.File) error {
	h.mu.Lock()
	err := h.drop(f)
	h.mu.Unlock()
	return errors.Join(err, h.o.FileRoots.Remove(f.Manifest.ProfileID, f.SessionID))
}

// ForgetUngranted forgets the sessions of which an earlier launcher did not learn whether they
// were granted, and of which the record of their profile now says that they are not, or are over:
// it has their token or a higher one, and does not name them.
func (h *Registry) ForgetUngranted(record func(profile string) lease.Record) error {
	h.mu.Lock()
	var unanswered []sessionfile.File
	for _, f := range h.ended {
		if f.Reason == api.ReasonUnanswered && f.Ended == "" {
			unanswered = append(unanswered, f)
		}
	}
	h.mu.Unlock()
	var errs error
	for _, f := range unanswered {
		if r := record(f.Manifest.ProfileID); r.Token >= f.Token && !slices.Contains(r.Sessions(), f.SessionID) {
			errs = errors.Join(errs, h.forget(f))
		}
	}
	return errs
}

// tidyDumps bounds the crash dumps of sessions that are over.
func (h *Registry) tidyDumps() error {
	h.mu.Lock()
	ended := slices.Collect(maps.Values(h.ended))
	h.mu.Unlock()
	return h.o.Driver.TidyDumps(ended)
}

// awaitResume returns when it is decided whether a session of an earlier launcher is resumed.
func (h *Registry) awaitResume(sessionID string) error {
	h.mu.Lock()
	p, waits := h.pending[sessionID]
	h.mu.Unlock()
	if !waits {
		return nil
	}
	late := time.NewTimer(resumeWait)
	defer late.Stop()
	select {
	case <-p.known:
		return nil
	case <-late.C:
	case <-h.ctx.Done():
	}
	problem := api.Refuse(api.CodeStoreUnavailable, "session %s of the launcher before is not adopted yet: ask again", sessionID).With("session_id", sessionID)
	problem.RetryAfter = 1
	return problem
}

// Known says that it is decided whether a session of an earlier launcher is resumed.
func (h *Registry) Known(sessionID string) {
	h.KnownWhere(func(f sessionfile.File) bool { return f.SessionID == sessionID })
}

// KnownWhere says that it is decided whether the matching sessions of an earlier launcher are
// resumed.
func (h *Registry) KnownWhere(match func(sessionfile.File) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, p := range h.pending {
		if match(p.file) {
			delete(h.pending, id)
			close(p.known)
		}
	}
}
