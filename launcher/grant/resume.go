package grant

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// dataTimeout bounds how long the evidence store may take to give a checkpoint's data.
const dataTimeout = 10 * time.Second

// resumeOf is what the task of a record in resume_pending is told.
func (g *Service) resumeOf(ctx context.Context, r lease.Record) *api.Resume {
	data, err := g.checkpointData(ctx, r)
	if err != nil {
		g.host.Log.Error().Err(err).Str("profile", r.ProfileID).Str("session", r.SessionID).Str("task", r.TaskID).
			Msg("the task is resumed without its checkpoint's data")
	}
	return &api.Resume{From: r.ResumeFrom, Checkpoint: r.LastSafeCheckpoint, Data: data}
}

// checkpointData is the data that the task gave with the checkpoint from which it resumes; nil:
// it gave none. It is in the journal of the lost session: on this host's disk or, if it is no
// longer there, in the evidence.
func (g *Service) checkpointData(ctx context.Context, r lease.Record) (json.RawMessage, error) {
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
		return nil, err
	}
	if safe := checkpoint.Summarize(entries).LastSafe; safe != nil && safe.Name == r.LastSafeCheckpoint {
		return safe.Data, nil
	}
	return nil, errors.New("the journal of the lost session does not have the checkpoint " + r.LastSafeCheckpoint)
}
