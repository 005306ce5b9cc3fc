// Package recovery ends what runs on a profile, in one order for all ways of ending: evidence,
// quarantine, close, inspect, decide. Package decision makes the decision; this package has the
// effects.
package recovery

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence"
	"leasehold/internal/id"
	"leasehold/internal/signed"
	"leasehold/internal/tracing"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/roster"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// Options are what a Recoverer works with.
type Options struct {
	LauncherID string
	DataDir    string      // for the inspections and incidents that are kept
	Key        *signed.Key // signs them
	Root       *profiledir.Root
	Jar        sessionfile.Jar
	Archive    *evidence.Archive
	// Store has the records; nil for the guard, which makes no transitions.
	Store lease.Store
	// Roster is what this launcher remembers; nil for the guard.
	Roster *roster.Roster
	// SharedReady refuses, with an api.Problem, a profile's directory that another host could have
	// open: what the store forgot is not stated again before that host had time to state it; nil:
	// no directory is shared.
	SharedReady func(path string) error
	// Stored is the highest token of a profile that the profile store has shown so far, which is
	// zero if it was not asked; nil: there is no profile store.
	Stored func(profile string) lease.Token
	// Witnesses lists the witnesses of a session with this browser, which may be nil.
	Witnesses  func(Browser) []Witness
	ReviewWhen []table.Caution // more facts that send a profile to a person
	Sites      site.Source     // what is known of sites
	// Checker asks sites about the accounts of profiles; nil: nobody does.
	Checker  Checker
	Cooldown time.Duration // after a recovery
	// KeepPasts is how long recoveries are kept to be decided again; zero: as long as there is room.
	KeepPasts time.Duration
	// WroteLate tells whether the worker of a session wrote after it was fenced.
	WroteLate func(sessionID string) bool

	Log     zerolog.Logger
	Metrics prometheus.Registerer
	Tracer  *tracing.Tracer // nil: no spans are made
}

// Recoverer ends what runs on the profiles of one host. Its methods may be called concurrently
// for different profiles; the caller occupies the profile.
type Recoverer struct {
	o          Options
	evidence   prometheus.Histogram
	recoveries *prometheus.CounterVec // by decision
	heals      prometheus.Counter
	distrusts  *prometheus.CounterVec // by reason
	recalls    prometheus.Counter
	contests   prometheus.Counter
}

// New returns a recoverer.
func New(o Options) *Recoverer {
	r := &Recoverer{
		o:          o,
		evidence:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "leasehold_evidence_seconds", Help: "Time to capture and store a bundle.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 12)}),
		recoveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_recoveries_total", Help: "Recoveries that ended, by decision."}, []string{"decision"}),
		heals:      prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_heals_total", Help: "Profiles restored after the lease store forgot them."}),
		distrusts:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_distrusted_total", Help: "Profiles that went to a person because what this host kept of them could not be believed, by reason."}, []string{"reason"}),
		recalls:    prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_recalls_total", Help: "Profiles of other launchers that this one stated again after the lease store forgot them."}),
		contests:   prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_contests_total", Help: "Profiles that went to a person because two launchers are known as their home."}),
	}
	if o.Witnesses == nil {
		r.o.Witnesses = func(Browser) []Witness { return nil }
	}
	o.Metrics.MustRegister(r.evidence, r.recoveries, r.heals, r.distrusts, r.recalls, r.contests)
	return r
}

// storeTimeout bounds each write to the lease store and to the evidence store.
const storeTimeout = 10 * time.Second

// Manifest begins the manifest of a new bundle with what the record says. The record names the
// bundle before this one.
func (r *Recoverer) Manifest(rec lease.Record, now time.Time) evidence.Manifest {
	return evidence.Manifest{
		EvidenceID: id.New("ev"), ProfileID: rec.ProfileID, SessionID: rec.SessionID, AccountID: rec.AccountID, LauncherID: r.o.LauncherID, At: now,
		OldWorkerID: rec.OwnerWorkerID, OldTaskID: rec.TaskID, Principal: rec.Principal, ProxyID: rec.ProxyID,
		PreviousEvidenceID: rec.EvidenceID, PreviousManifestSHA256: rec.EvidenceSHA256,
	}
}

// Seal seals a bundle and stores it. If the store cannot be reached, the bundle waits in the
// spool, and counts as stored. The result is the zero value if there is no bundle, or if it
// cannot be sealed, which is logged: it is discarded then, since who tries again makes another one.
func (r *Recoverer) Seal(b *evidence.Bundle, log zerolog.Logger) lease.Sealed {
	if b == nil {
		return lease.Sealed{}
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	m, sum, err := r.o.Archive.Save(ctx, b)
	if err != nil {
		log.Error().Err(errors.Join(err, b.Discard())).Msg("evidence not stored")
		return lease.Sealed{}
	}
	r.evidence.Observe(time.Since(begun).Seconds())
	log.Info().Str("evidence", m.EvidenceID).Int("parts", len(m.Parts)).Str("reason", m.RecoveryReason).Msg("evidence stored")
	return lease.Sealed{EvidenceID: m.EvidenceID, SHA256: sum}
}

// Latest brings a record's last URL, step and checkpoint up to a journal's.
func Latest(r lease.Record, entries []checkpoint.Entry) lease.Record {
	sum := checkpoint.Summarize(entries)
	if sum.LastURL != "" {
		r.LastKnownURL = sum.LastURL
	}
	if sum.LastStep != "" {
		r.LastKnownStep = sum.LastStep
	}
	if sum.LastSafe != nil {
		r.LastSafeCheckpoint = sum.LastSafe.Name
	}
	return r
}
