//go:build linux

package main

import (
	"context"
	"path/filepath"
	"time"

	"leasehold/internal/durable"
	"leasehold/launcher/api"
)

// reserveFile is the name of the file in the data directory whose space is given back when the
// disk is full.
const reserveFile = "disk-reserve"

// fillEvery is the time between two checks of whether the reserve can be refilled.
const fillEvery = 15 * time.Second

// keepReserve keeps space free for evidence, journals and the embedded NATS.
func (s *service) keepReserve() (err error) {
	if s.reserve, err = durable.KeepReserve(filepath.Join(s.config.DataDir, reserveFile), int64(s.config.DiskReserve)); err != nil {
		return err
	}
	durable.UseReserve(s.reserve)
	s.stops.add("space that is kept free", func() error { durable.UseReserve(nil); return nil })
	s.stops.add("watch of the space that is kept free", background(func(ctx context.Context) {
		for s.fillReserve(); ctx.Err() == nil; s.fillReserve() {
			sleep(ctx, fillEvery)
		}
	}))
	return nil
}

// fillReserve takes the space again, as soon as there is more than enough.
func (s *service) fillReserve() {
	before := s.reserve.Left()
	switch whole, err := s.reserve.Fill(uint64(s.config.MinFreeDisk)); {
	case err != nil:
		s.log.Warn().Err(err).Msg("no space is kept free for evidence")
	case whole && before < s.reserve.Left():
		s.log.Debug().Int64("bytes", s.reserve.Left()).Msg("space is kept free for evidence")
	}
}

// ping asks the lease store whether it can be used. A problem of the embedded NATS is known
// here, and says more than that nobody answers.
func (s *service) ping(ctx context.Context) error {
	if s.embedded != nil {
		if problem := s.embedded.Problem(); problem != nil {
			return natsProblem(problem)
		}
	}
	return s.leases.Ping(ctx)
}

// reached tells whether the lease store is known to have been reached within the last while.
func (s *service) reached(while time.Duration) bool {
	return (s.embedded == nil || s.embedded.Problem() == nil) && s.leases.Reached(while)
}

// natsProblem is what callers are told about a problem of the embedded NATS.
func natsProblem(problem error) *api.Problem {
	p := api.Refuse(api.CodeStoreUnavailable, "%v; nothing is granted until then", problem)
	p.RetryAfter = 5
	return p
}
