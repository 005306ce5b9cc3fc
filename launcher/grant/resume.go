package grant

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// dataTimeout bounds how long the evidence store may take to give a checkpoint's data.
const dataTimeout = 10 * time.Second

// resumed is the checkpoint from which the task of a record in resume_pending goes on.
func (g *Service) resumed(ctx context.Context, r lease.Record) checkpoint.Entry {
	safe, err := g.safeCheckpoint(ctx, r)
	if err != nil {
		safe = checkpoint.Entry{Name: r.LastSafeCheckpoint}
		g.host.Log.Error().Err(err).Str("profile", r.ProfileID).Str("session", r.SessionID).Str("task", r.TaskID).
			Msg("the task is resumed without its checkpoint's data")
	}
	return safe
}

// safeCheckpoint is the checkpoint from which a task resumes, with the data that the task gave with it. It
// is in the journal of the lost session: on this host's disk or, if it is no longer there, in the evidence.
func (g *Service) safeCheckpoint(ctx context.Context, r lease.Record) (checkpoint.Entry, error) {
	entries, err := checkpoint.Read(g.o.Files.Journal(r.SessionID))
	if errors.Is(err, fs.ErrNotExist) && r.EvidenceID != "" {
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
	return checkpoint.Entry{}, errors.New("the journal of the lost session does not have the checkpoint " + r.LastSafeCheckpoint)
}
