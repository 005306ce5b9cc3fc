package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/launcher/api"
	"leasehold/launcher/monitor"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery/decision"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// profiles tells of profiles, sets what can be set, and makes, copies and puts aside
// their directories.
type profiles struct {
	*rooms
	grants  *grants
	exports chan struct{} // has an element for each export that is under way
}

// blank is the record of a profile that never had a lease.
func (ps *profiles) blank(profile string) (lease.Record, error) {
	floor, err := ps.o.Root.Floor(profile)
	var damaged *profiledir.DamagedError
	if errors.As(err, &damaged) { // the patrol puts it before a person
		return lease.Record{
			ProfileID: profile, State: lease.Quarantined, Token: damaged.Claimed, Home: cmp.Or(damaged.Home, ps.o.ID), Reason: lease.ReasonNotAuthentic, Settings: lease.Settings{MaxActiveRuns: 1},
		}.Public(), nil
	}
	if err != nil {
		return lease.Record{}, err
	}
	return lease.Record{ProfileID: profile, State: lease.Available, Token: floor, Home: ps.o.ID, Settings: lease.Settings{MaxActiveRuns: 1}}.Public(), nil
}

// Profile returns the record of a profile: while the store cannot be reached, as this launcher
// saw it last, and with since when. Nothing is decided by such a record.
func (ps *profiles) Profile(ctx context.Context, profileID string) (lease.Record, error) {
	asking, cancel := context.WithTimeout(ctx, ps.reach.patience())
	defer cancel()
	r, err := ps.stored(asking, profileID)
	if unavailable(err) {
		return ps.remembered(ctx, profileID, err)
	}
	return r, err
}

// unavailable tells whether an error says that the store cannot be reached.
func unavailable(err error) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Code == api.CodeStoreUnavailable
}

// stored returns the record of a profile as the store has it now, for somebody who does
// something with it.
func (ps *profiles) stored(ctx context.Context, profileID string) (lease.Record, error) {
	if err := lease.CheckProfileID(profileID); err != nil {
		return lease.Record{}, api.Invalid("profile_id", "%v", err)
	}
	entry, err := ps.o.Store.Get(ctx, profileID)
	if err == nil {
		return ps.shown(entry.Record).Public(), nil
	}
	if !errors.Is(err, lease.ErrNotFound) {
		return lease.Record{}, problem(err)
	}
	return ps.unseen(profileID)
}

// unseen returns the record of a profile of which there is at most a directory here.
func (ps *profiles) unseen(profileID string) (lease.Record, error) {
	if _, err := ps.o.Root.Path(profileID); err != nil {
		return lease.Record{}, api.Refuse(api.CodeUnknownProfile, "there is no profile %s", profileID)
	}
	return ps.noRecord(profileID)
}

// leastMemory is the lowest limit of a browser, in bytes: less than an empty one
// takes would end each at once.
const leastMemory = 128 << 20

// maxRuns bounds how many tasks share one browser.
const maxRuns = 64

// PutProfile creates a profile or changes its settings. Account and proxy can be set once:
// to change them would give the profile to another account. The record comes first: if
// that is refused there is no profile, and if this is cut short there is none that could
// go out without its proxy.
func (ps *profiles) PutProfile(ctx context.Context, profileID string, set api.ProfileSettings) (lease.Record, error) {
	if err := checkSettings(profileID, set); err != nil {
		return lease.Record{}, err
	}
	if _, err := ps.o.Root.Place(profileID); err != nil {
		return lease.Record{}, api.Invalid("profile_id", "%v", err)
	}
	gone, err := ps.gone(ctx, profileID)
	if err != nil {
		return lease.Record{}, err
	}
	if gone {
		r, err := ps.makeProfile(ctx, profileID, origin{
			set:     set,
			fill:    func(dir string) error { return os.Mkdir(dir, 0o700) },
			cookies: func() error { return ps.jar.Drop(profileID) },
		})
		if _, missing := ps.o.Root.Path(profileID); err == nil || missing != nil {
			return r, err
		} // else somebody has made it meanwhile
	}
	r, err := ps.putRecord(ctx, profileID, set, false)
	if err != nil {
		return lease.Record{}, err
	}
	if err := ps.create(profileID); err != nil {
		return lease.Record{}, fmt.Errorf("the settings are stored, but the directory is not made: ask again: %w", err)
	}
	return ps.shown(r).Public(), nil
}

// putRecord stores settings in the record of a profile, whose directory need not be there. remade
// says that the profile gets another directory than one that it had.
func (ps *profiles) putRecord(ctx context.Context, profileID string, set api.ProfileSettings, remade bool) (lease.Record, error) {
	if err := ps.healFirst(ctx, profileID); err != nil {
		return lease.Record{}, problem(err)
	}
	floor, err := ps.o.Root.Floor(profileID)
	if err != nil {
		return lease.Record{}, problem(err)
	}
	store := &numbered{Store: ps.o.Store}
	entry, err := lease.Change(ctx, store, profileID, func(e lease.Entry) (lease.Record, error) {
		r, was := e.Record, e.Record.State
		if was == "" {
			if err := ps.notFree(r); err != nil {
				return r, err
			}
			var err error
			if store.number, err = ps.mayMake(ctx, profileID); err != nil {
				return r, err
			}
			r.State, r.Home, r.Token, r.MaxActiveRuns = lease.Available, ps.o.ID, floor, 1
		}
		switch {
		case r.Home != "" && r.Home != ps.o.ID:
			return r, ps.patrol.Home(r)
		case set.Token != 0 && set.Token != r.Token:
			return r, ps.announcer.Stale(ctx, profileID, r.SessionID, set.Token, r.Token, "settings")
		case set.Token == 0 && !r.State.Free():
			return r, api.Refuse(api.CodeConflict, "profile %s is %s: its settings change with the current lease_token only", profileID, r.State).
				With("state", r.State).With("current_worker_id", r.OwnerWorkerID).With("current_task_id", r.TaskID).With("lease_expires_at", r.ExpiresAt)
		case set.MaxActiveRuns != nil && *set.MaxActiveRuns != r.MaxActiveRuns && !r.State.Free():
			return r, api.Refuse(api.CodeConflict, "profile %s is %s: max_active_runs changes when nobody uses it", profileID, r.State).
				With("state", r.State).With("current_worker_id", r.OwnerWorkerID).With("current_task_id", r.TaskID).With("lease_expires_at", r.ExpiresAt)
		case set.AccountID != nil && r.AccountID != "" && *set.AccountID != r.AccountID:
			return r, api.Refuse(api.CodeAccountMismatch, "profile %s belongs to account %s for good", profileID, r.AccountID).With("account_id", r.AccountID)
		}
		if err := ps.grants.checkProxySetting(r, set.ProxyID); err != nil {
			return r, err
		}
		if remade {
			if err := resumes(r); err != nil {
				return r, err
			}
			if was == lease.Available {
				var err error
				if r, err = r.Remake(principal.Of(ctx).Name, time.Now()); err != nil {
					return r, err
				}
			}
		}
		return applySettings(r, set), nil
	})
	if err != nil {
		return lease.Record{}, problem(err)
	}
	ps.o.Log.Info().Str("profile", profileID).Uint64("token", uint64(entry.Record.Token)).Str("principal", principal.Of(ctx).Name).Msg("profile set")
	if set.KeepWarm != nil && !*set.KeepWarm {
		ps.slots.CoolProfile(profileID, slots.WarmSetting)
	}
	return entry.Record, nil
}

// checkSettings refuses settings that are wrong by themselves.
func checkSettings(profileID string, set api.ProfileSettings) error {
	if err := lease.CheckProfileID(profileID); err != nil {
		return api.Invalid("profile_id", "%v", err)
	}
	if m := set.Mobility; m != nil && *m != lease.MobilityPinned && *m != lease.MobilityFree {
		return api.Invalid("mobility", "%q: want %s or %s", *m, lease.MobilityPinned, lease.MobilityFree)
	}
	if set.MaxActiveRuns != nil && (*set.MaxActiveRuns < 1 || *set.MaxActiveRuns > maxRuns) {
		return api.Invalid("max_active_runs", "want 1 to %d", maxRuns)
	}
	if m := set.BrowserMemory; m != nil && *m != 0 && *m < leastMemory {
		return api.Invalid("browser_memory_bytes", "%d: want %d (%s) or more, or 0 for the host's own limit", *m, uint64(leastMemory), humanize.IBytes(leastMemory))
	}
	for _, list := range []struct {
		name  string
		items *[]string
	}{{"expected_domains", set.ExpectedDomains}, {"sensitive_urls", set.SensitiveURLs}, {"sensitive_words", set.SensitiveWords}, {"harmless_requests", set.HarmlessRequests}} {
		if list.items != nil && (len(*list.items) > 100 || slices.ContainsFunc(*list.items, func(s string) bool { return len(s) > 256 })) {
			return api.Invalid(list.name, "want at most 100 entries of at most 256 bytes")
		}
	}
	if set.FenceHeaderOrigins != nil {
		if err := checkOrigins(*set.FenceHeaderOrigins); err != nil {
			return err
		}
	}
	if c := set.SessionCheck; c != nil && *c != (lease.SessionCheck{}) {
		if err := c.Validate(); err != nil {
			return api.Invalid("session_check", "%v", err)
		}
	}
	if set.Labels != nil {
		if err := set.Labels.Check(); err != nil {
			return api.Invalid("labels", "%v", err)
		}
	}
	return checkHarmless(set.HarmlessRequests)
}

// maxOrigins is how many origins may get the token.
const maxOrigins = 20

// checkOrigins refuses origins that Chrome writes in another way, or that are none.
func checkOrigins(origins []string) error {
	for _, o := range origins {
		if !monitor.CheckOrigin(o) {
			return api.Invalid("fence_header_origins", "%.200q: want an origin such as https://queue.example:8443: lower case, no path, and no port that is the scheme's own", o)
		}
	}
	if len(origins) > maxOrigins {
		return api.Invalid("fence_header_origins", "want at most %d", maxOrigins)
	}
	return nil
}

// applySettings puts what is set into a record.
func applySettings(r lease.Record, set api.ProfileSettings) lease.Record {
	if set.MaxActiveRuns != nil {
		r.MaxActiveRuns = *set.MaxActiveRuns
	}
	if set.AccountID != nil {
		r.AccountID = *set.AccountID
	}
	if set.ProxyID != nil {
		r.ProxyID = *set.ProxyID
	}
	if set.ExpectedDomains != nil {
		r.ExpectedDomains = *set.ExpectedDomains
	}
	if set.SensitiveURLs != nil {
		r.SensitiveURLs = *set.SensitiveURLs
	}
	if set.SensitiveWords != nil {
		r.SensitiveWords = *set.SensitiveWords
	}
	if set.KeepWarm != nil {
		r.KeepWarm = set.KeepWarm
	}
	if set.BrowserMemory != nil {
		r.BrowserMemory = *set.BrowserMemory
	}
	if set.Mobility != nil {
		r.Mobility = *set.Mobility
	}
	if set.ReadOnly != nil {
		r.ReadOnly = *set.ReadOnly
	}
	if set.FenceHeaderOrigins != nil {
		r.FenceHeaderOrigins = *set.FenceHeaderOrigins
	}
	if set.HarmlessRequests != nil {
		r.HarmlessRequests = *set.HarmlessRequests
	}
	if set.Labels != nil {
		r.Labels = maps.Clone(*set.Labels)
	}
	if set.SessionCheck != nil {
		r.SessionCheck = set.SessionCheck
		if set.SessionCheck.URL == "" {
			r.SessionCheck = nil
		}
	}
	return r
}

// checkHarmless refuses declarations that cannot be read, or that could never apply.
func checkHarmless(list *[]string) error {
	if list == nil {
		return nil
	}
	for _, text := range *list {
		h, err := decision.ParseHarmless(text)
		if err != nil {
			return api.Invalid("harmless_requests", "%v", err)
		}
		if decision.SensitiveURL(h.URL(), decision.Task{}) {
			return api.Invalid("harmless_requests", "%q: its URL is a sensitive one: requests to it count, whatever is declared", text)
		}
	}
	return nil
}

// healFirst restores a record that the store forgot, before settings are written
// over what it has.
func (ps *profiles) healFirst(ctx context.Context, profileID string) error {
	entry, err := ps.o.Store.Get(ctx, profileID)
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		return err
	}
	entry.Record.ProfileID = profileID
	_, err = ps.grants.healed(ctx, entry)
	return err
}

// notFree refuses to make a record of a profile that the store forgot while it was in use, or
// waited for its recovery or for a person: whoever is at work on it here, so that it could not
// be healed, restates it.
func (ps *profiles) notFree(r lease.Record) error {
	if _, home, err := ps.recoverer.Forgot(r); err != nil {
		return err
	} else if home != "" {
		return ps.patrol.Home(lease.Record{ProfileID: r.ProfileID, Home: home})
	}
	healed, forgotten := ps.recoverer.Forgotten(r)
	if !forgotten || healed.State.Free() {
		return nil
	}
	p := api.Refuse(api.CodeConflict, "the lease store has forgotten profile %s, which is %s, and it is being restored: ask again in a moment", r.ProfileID, healed.State).
		With("state", healed.State).With("lease_token", healed.Token)
	p.RetryAfter = 1
	return p
}

// History returns the profile's events, oldest first, up to its state at least.
func (ps *profiles) History(ctx context.Context, profileID string) ([]lease.Event, error) {
	if _, err := ps.Profile(ctx, profileID); err != nil {
		return nil, err
	}
	entry, err := ps.o.Store.Get(ctx, profileID) // before the stream: what it lacks then is still to come
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		return nil, problem(err)
	}
	events, err := ps.o.Store.History(ctx, profileID)
	if err != nil {
		return nil, problem(err)
	}
	return withOutbox(events, entry.Record.Outbox), nil
}

// withOutbox adds the events that are not on the stream yet, so that whoever has seen a
// state finds the event that led to it.
func withOutbox(events, outbox []lease.Event) []lease.Event {
	for _, e := range outbox {
		there := func(p lease.Event) bool { return p.Sequence == e.Sequence && p.Token == e.Token }
		if !slices.ContainsFunc(events, there) {
			events = append(events, e)
		}
	}
	return events
}

// accepted leaves out the pictures that count for nothing: those that no bundle names, and
// whose session is neither living nor in recovery by the record. A holder that was fenced
// may have left such pictures.
func accepted(manifests []evidence.Manifest, r lease.Record) []evidence.Manifest {
	named := map[string]bool{}
	for _, m := range manifests {
		for _, p := range m.Pictures {
			named[p.EvidenceID] = true
		}
	}
	return slices.DeleteFunc(manifests, func(m evidence.Manifest) bool {
		return m.IsPicture() && !named[m.EvidenceID] && (!r.Unfinished() || !slices.Contains(r.Sessions(), m.SessionID))
	})
}

// Evidence lists the profile's bundles, newest first.
func (ps *profiles) Evidence(ctx context.Context, profileID string) ([]api.Bundle, error) {
	record, err := ps.Profile(ctx, profileID)
	if err != nil {
		return nil, err
	}
	manifests, err := ps.o.Archive.List(ctx, profileID)
	if err != nil {
		return nil, err
	}
	bundles := []api.Bundle{}
	for _, m := range accepted(manifests, record) {
		encrypted := m.Encrypted()
		m, opened := ps.o.Archive.Opened(m)
		b := api.Bundle{
			Encrypted: encrypted, Locked: !opened,
			EvidenceID: m.EvidenceID, Token: lease.Token(m.LeaseToken), At: m.At, RecoveryReason: m.RecoveryReason,
			LastKnownURL: m.LastKnownURL, LastKnownStep: m.LastKnownStep, Checkpoint: m.Checkpoint, Parts: []api.Part{},
			SessionID: m.SessionID, Pages: pagesOf(m), Pictures: picturesOf(m),
		}
		for _, p := range m.Parts {
			b.Parts = append(b.Parts, api.Part{Name: p.Name, Kind: p.Kind, Bytes: p.Bytes, SHA256: p.SHA256, Missing: p.Missing})
		}
		bundles = append(bundles, b)
	}
	return bundles, nil
}

func unknownEvidence(err error, evidenceID, part string) error {
	if errors.Is(err, evidence.ErrNotFound) {
		return api.Refuse(api.CodeNotFound, "there is no evidence %s", strings.TrimSuffix(evidenceID+"/"+part, "/"))
	}
	if errors.Is(err, evidence.ErrDamaged) {
		return api.Refuse(api.CodeEvidenceDamaged, "%v", err)
	}
	if errors.Is(err, crypt.ErrNoKey) {
		return api.Refuse(api.CodeEvidenceEncrypted, "%v: this sidecar has no identity of these (--evidence-identity); with ?stored=true the part comes as it is stored, and leasehold evidence --identity opens it", err)
	}
	return err
}

// EvidenceManifest returns a bundle's manifest as it was sealed.
func (ps *profiles) EvidenceManifest(ctx context.Context, evidenceID string) (json.RawMessage, error) {
	b, err := ps.o.Archive.Manifest(ctx, evidenceID)
	return b, unknownEvidence(err, evidenceID, "")
}

// EvidencePart returns one part of a bundle, and its media type: in clear, or as it is
// stored.
func (ps *profiles) EvidencePart(ctx context.Context, evidenceID, part string, stored bool) ([]byte, string, error) {
	read := ps.o.Archive.Content
	if stored {
		read = ps.o.Archive.Stored
	}
	b, mediaType, err := read(ctx, evidenceID, part)
	return b, mediaType, unknownEvidence(err, evidenceID, part)
}

// Review applies a person's decision to a profile in manual review.
func (ps *profiles) Review(ctx context.Context, profileID string, req api.ReviewRequest) (lease.Record, error) {
	if _, err := ps.Profile(ctx, profileID); err != nil {
		return lease.Record{}, err
	}
	switch {
	case req.Decision != lease.ReviewApprove && req.Decision != lease.ReviewKeep:
		return lease.Record{}, api.Invalid("decision", "%q: want approve or keep", req.Decision)
	case req.Reviewer == "":
		return lease.Record{}, api.Invalid("reviewer", "want the name of who decides")
	case len(req.Note) > maxNote:
		return lease.Record{}, api.Invalid("note", "it has %d bytes: want at most %d", len(req.Note), maxNote)
	}
	entry, err := lease.Change(ctx, ps.o.Store, profileID, func(e lease.Entry) (lease.Record, error) {
		if e.Record.State != lease.ManualReview {
			return e.Record, api.Refuse(api.CodeNotInReview, "profile %s is %s, not in manual_review", profileID, e.Record.State).With("state", e.Record.State)
		}
		return e.Record.Reviewed(lease.Review{
			Decision: req.Decision, Reviewer: req.Reviewer, Principal: principal.Of(ctx).Name, Note: req.Note, TokenSeen: req.Token,
			EvidenceID: req.EvidenceID, Home: req.Home,
		}, ps.o.Cooldown, time.Now())
	})
	var fenced *lease.FencedError
	if errors.As(err, &fenced) {
		return lease.Record{}, ps.announcer.Stale(ctx, profileID, entry.Record.SessionID, req.Token, fenced.Current, "review")
	}
	var incident *lease.IncidentError
	if errors.As(err, &incident) {
		return lease.Record{}, api.Refuse(api.CodeStaleToken, "%v", err).With("current_token", entry.Record.Token).With("evidence_id", incident.Current)
	}
	var home *lease.HomeError
	if errors.As(err, &home) {
		return lease.Record{}, api.Invalid("home", "%v", err)
	}
	if err != nil {
		return lease.Record{}, problem(err)
	}
	ps.o.Log.Info().Str("profile", profileID).Uint64("token", uint64(entry.Record.Token)).Str("decision", req.Decision).Str("reviewer", req.Reviewer).Str("principal", principal.Of(ctx).Name).Msg("reviewed")
	ps.slots.Wake()
	return ps.shown(entry.Record).Public(), nil
}

// Inspection returns what the profile's last recovery found.
func (ps *profiles) Inspection(ctx context.Context, profileID string) (api.Inspection, error) {
	if _, err := ps.Profile(ctx, profileID); err != nil {
		return api.Inspection{}, err
	}
	return ps.recoverer.Inspection(profileID)
}
