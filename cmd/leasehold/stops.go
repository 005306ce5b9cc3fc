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

// stopTimeout bounds how long all parts together may take to stop, and lastTimeout how long each
// of them is waited for when that time is over. The service manager kills what takes longer.
const (
	stopTimeout = 75 * time.Second
	lastTimeout = 200 * time.Millisecond
)

// run stops every part, the last one first. One that hangs is left behind.
func (s *stopList) run() error {
	end := time.Now().Add(stopTimeout)
	var errs error
	for _, part := range slices.Backward(s.parts) {
		if err := within(max(time.Until(end), lastTimeout), part.stop); err != nil {
			s.log.Error().Err(err).Str("part", part.name).Msg("not stopped cleanly")
			errs = errors.Join(errs, fmt.Errorf("stopping the %s: %w", part.name, err))
		}
	}
	return errs
}

// within calls stop, and returns an error if that has not returned after a time.
func within(atMost time.Duration, stop func() error) error {
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	select {
	case err := <-stopped:
		return err
	case <-time.After(atMost):
		return fmt.Errorf("it has not ended after %s, and is left behind", atMost.Round(time.Millisecond))
	}
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

func ignore(expected, err error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
