package main

import (
	"context"
	"path/filepath"
	"time"

	"leasehold/internal/durable"
	"leasehold/launcher/api"
)

// spareFile is the name of the file in the data directory whose space is given back when
// the disk is full.
const spareFile = "disk-reserve"

// fillEvery is the time between two looks at whether the spare can be made whole again.
const fillEvery = 15 * time.Second

// keepSpare keeps space free for evidence, journals and the embedded NATS.
func (s *service) keepSpare() (err error) {
	if s.spare, err = durable.KeepSpare(filepath.Join(s.config.DataDir, spareFile), int64(s.config.DiskReserve)); err != nil {
		return err
	}
	durable.UseSpare(s.spare)
	s.stops.add("space that is kept free", func() error { durable.UseSpare(nil); return nil })
	s.stops.add("watch of the space that is kept free", background(func(ctx context.Context) {
		for s.fillSpare(); ctx.Err() == nil; s.fillSpare() {
			sleep(ctx, fillEvery)
		}
	}))
	return nil
}

// fillSpare takes the space again, once there is more than enough.
func (s *service) fillSpare() {
	before := s.spare.Left()
	switch whole, err := s.spare.Fill(uint64(s.config.MinFreeDisk)); {
	case err != nil:
		s.log.Warn().Err(err).Msg("no space is kept free for evidence")
	case whole && before < s.spare.Left():
		s.log.Debug().Int64("bytes", s.spare.Left()).Msg("space is kept free for evidence")
	}
}

// ping asks the lease store whether it can be used. What is wrong with the embedded NATS
// is known here, and says more than that nobody answers.
func (s *service) ping(ctx context.Context) error {
	if s.embedded != nil {
		if problem := s.embedded.Problem(); problem != nil {
			return natsProblem(problem)
		}
	}
	return s.leases.Ping(ctx)
}

// natsProblem is what callers are told of a problem of the embedded NATS.
func natsProblem(problem error) *api.Problem {
	p := api.Refuse(api.CodeStoreUnavailable, "%v; nothing is granted until then", problem)
	p.RetryAfter = 5
	return p
}
