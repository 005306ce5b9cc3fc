package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// stopList has what was started, to be stopped in reverse order.
type stopList struct {
	log   zerolog.Logger
	parts []startedPart
}

type startedPart struct {
	name string
	stop func() error
}

func (s *stopList) add(name string, stop func() error) {
	s.parts = append(s.parts, startedPart{name, stop})
}

// run stops every part, the last one first.
func (s *stopList) run() error {
	var errs error
	for _, part := range slices.Backward(s.parts) {
		if err := part.stop(); err != nil {
			s.log.Error().Err(err).Str("part", part.name).Msg("not stopped cleanly")
			errs = errors.Join(errs, fmt.Errorf("stopping the %s: %w", part.name, err))
		}
	}
	return errs
}

// background calls work in a goroutine. The returned function ends the context of work
// and waits until work has returned.
func background(work func(ctx context.Context)) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	return func() error {
		cancel()
		<-done
		return nil
	}
}

// sleep returns after the time, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// ignore drops an error that is expected.
func ignore(expected, err error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
