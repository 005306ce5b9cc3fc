package recovery

import (
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/lease"
)

// chained is the record that is to be stored over another one, so that no bundle falls
// out of the profile's chain: where a bundle that names the new one was sealed meanwhile
// the record goes on to name that, and a bundle that the record named, and none names, is
// named by the next.
func (r *Recoverer) chained(stored, next lease.Record, log zerolog.Logger) lease.Record {
	head, err := r.o.Archive.Follow(next.ProfileID, newestBundle(stored), newestBundle(next))
	if err != nil {
		log.Warn().Err(err).Str("evidence", stored.EvidenceID).Msg("the profile's next bundle may not name this one: its chain of evidence forks")
	}
	next.EvidenceID, next.EvidenceSHA256 = head.EvidenceID, head.SHA256
	return next
}

func newestBundle(r lease.Record) evidence.Link {
	return evidence.Link{EvidenceID: r.EvidenceID, SHA256: r.EvidenceSHA256}
}
