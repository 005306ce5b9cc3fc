package recovery

import (
	"context"

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

// Unnamed tells whether one of these bundles is newer than the one that the record names, as far as this host
// knows.
func (r *Recoverer) Unnamed(rec lease.Record, sealed []lease.Sealed) bool {
	head := newestBundle(rec)
	for _, s := range sealed {
		head, _ = r.o.Archive.Newer(rec.ProfileID, head, evidence.Link{EvidenceID: s.EvidenceID, SHA256: s.SHA256}) // Name meets the same error
	}
	return head != newestBundle(rec)
}

// Name puts the newest of these bundles into the profile's record, unless that names a newer one. Nothing else
// is changed.
func (r *Recoverer) Name(profile string, sealed []lease.Sealed, log zerolog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	_, err := lease.Change(ctx, r.o.Store, profile, func(e lease.Entry) (lease.Record, error) {
		if r.Elsewhere(e.Record) { // the other home's bundles have a chain of their own
			return e.Record, errAlready
		}
		next := e.Record
		for _, s := range sealed {
			named := next
			next.EvidenceID, next.EvidenceSHA256 = s.EvidenceID, s.SHA256
			next = r.chained(named, next, log)
		}
		if newestBundle(next) == newestBundle(e.Record) {
			return next, errAlready
		}
		return next, nil
	})
	return unless(errAlready, err)
}
