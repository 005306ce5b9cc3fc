package export

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// about is what the launcher's records say of a bundle's session.
type about struct {
	// inspection is what the recovery of this session found; nil if the session was not
	// inspected, or if another one was inspected since.
	inspection *api.Inspection
	events     []lease.Event // those of the session, the oldest first
	review     *lease.Review // how it was decided, if this is the last that was
	unknown    string        // why records could not be read; "" where they could
}

// about reads the records that belong to a bundle, and the head of its profile's chain.
func (from Source) about(ctx context.Context, m evidence.Manifest) (about, evidence.Link, error) {
	record, err := from.Records.Profile(ctx, m.ProfileID)
	if isProblem(err) { // evidence may outlive its profile
		return about{unknown: err.Error()}, evidence.Link{}, nil
	}
	if err != nil {
		return about{}, evidence.Link{}, err
	}
	var a about
	head := evidence.Link{EvidenceID: record.EvidenceID, SHA256: record.EvidenceSHA256}
	if r := record.Review; r != nil && r.EvidenceID == m.EvidenceID {
		a.review = r
	}
	if a.events, a.inspection, err = from.ofSession(ctx, m); isProblem(err) {
		a.unknown, err = err.Error(), nil
	}
	return a, head, err
}

// ofSession returns the events that are about a bundle's session, and what its recovery found
// if no other session was inspected since.
func (from Source) ofSession(ctx context.Context, m evidence.Manifest) ([]lease.Event, *api.Inspection, error) {
	all, err := from.Records.History(ctx, m.ProfileID)
	if err != nil {
		return nil, nil, err
	}
	var events []lease.Event
	inspected := false
	for _, e := range all {
		ours := e.EvidenceID == m.EvidenceID || m.SessionID != "" && e.SessionID == m.SessionID
		if ours {
			events = append(events, e)
		}
		if e.State == lease.Inspected {
			inspected = ours
		}
	}
	if !inspected {
		return events, nil, nil
	}
	found, err := from.Records.Inspection(ctx, m.ProfileID)
	return events, &found, err
}

func isProblem(err error) bool {
	var p *api.Problem
	return errors.As(err, &p)
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
