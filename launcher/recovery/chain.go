package recovery

import (
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/lease"
)

// chained returns the record next with the name of its newest bundle set so that no bundle
// falls out of the profile's chain when next is stored over the other record. If a bundle that
// follows next's was sealed meanwhile, the record names that one. If a bundle that the stored
// record named would not be followed by any other, the profile's next bundle names it.
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
