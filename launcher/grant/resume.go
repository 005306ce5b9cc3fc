package grant

import (
	"context"
	"errors"
	"slices"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/launcher/api"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// dataTimeout bounds how long the evidence store may take to give a checkpoint's data.
const dataTimeout = 10 * time.Second

// resumed is the checkpoint from which the task of a record in resume_pending goes on. It refuses the
// grant while the evidence store, which alone has the checkpoint's data, cannot be reached, and where this
// sidecar has no identity that opens what is there: a task that goes on without its data repeats what it did.
// What is gone, or damaged, comes back by no waiting: the task goes on with the checkpoint's name. Nobody else
// gets the profile, so that without that no person could have it back.
func (g *Service) resumed(ctx context.Context, r lease.Record) (checkpoint.Entry, error) {
	safe, err := g.safeCheckpoint(ctx, r)
	switch {
	case err == nil:
		return safe, nil
	case !isAny(err, evidence.ErrNotFound, evidence.ErrDamaged, errNoCheckpoint, errJournalChanged):
		then := ""
		if errors.Is(err, crypt.ErrNoKey) {
			then = ": start this sidecar with the identity that opens it (--evidence-identity), and ask again"
		}
		p := api.Refuse(api.CodeEvidenceStore, "the data of checkpoint %q, from which task %s resumes, is in evidence %s: %v%s",
			r.LastSafeCheckpoint, r.TaskID, r.EvidenceID, err, then)
		p.RetryAfter = api.ShortRetry
		return checkpoint.Entry{}, p
	}
	g.host.Log.Error().Err(err).Str("profile", r.ProfileID).Str("session", r.SessionID).Str("task", r.TaskID).
		Msg("the task is resumed without its checkpoint's data")
	return checkpoint.Entry{Name: r.LastSafeCheckpoint}, nil
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

var (
	errNoCheckpoint   = errors.New("the journal of the lost session does not have its last safe checkpoint")
	errJournalChanged = errors.New("the journal on this host's disk is not the one with which the lost session ended")
)

// safeCheckpoint is the checkpoint from which a task resumes, with the data that the task gave with it. It
// is in the journal of the lost session: on this host's disk or, if it is no longer there as it was at the
// session's end, in the evidence.
func (g *Service) safeCheckpoint(ctx context.Context, r lease.Record) (checkpoint.Entry, error) {
	entries, err := g.leftJournal(r.SessionID)
	if err != nil && r.EvidenceID != "" {
		ctx, cancel := context.WithTimeout(ctx, dataTimeout)
		defer cancel()
		var b []byte
		if b, _, err = g.host.Archive.Content(ctx, r.EvidenceID, witness.JournalPart); err == nil {
			entries = checkpoint.Parse(b)
		}
	}
	if err != nil {
		return checkpoint.Entry{}, err
	}
	if safe := checkpoint.Summarize(entries).LastSafe; safe != nil && safe.Name == r.LastSafeCheckpoint {
		return *safe, nil
	}
	return checkpoint.Entry{}, errNoCheckpoint
}

// leftJournal is the journal that a session left on this host's disk.
func (g *Service) leftJournal(sessionID string) ([]checkpoint.Entry, error) {
	f, err := g.o.Files.Read(sessionID)
	if err != nil {
		return nil, err
	}
	entries, err := checkpoint.Read(g.o.Files.Journal(sessionID))
	if err == nil && !f.EndedWith(entries) {
		err = errJournalChanged
	}
	return entries, err
}
