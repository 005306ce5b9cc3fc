package natskv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// lastWatch is what is told to whoever watches a bucket on which nothing depends: fresh, then the
// last message of each key, complete, and then each message that follows.
type lastWatch struct {
	fresh, complete func()
	show            func(message)
}

// watchLast watches a bucket, and begins anew where it may have missed something. It returns nil
// when ctx ends, and otherwise the reason why the bucket cannot be used.
func (s *Store) watchLast(ctx context.Context, st *stream, w lastWatch) error {
	vain := uint64(0) // a message that a reader did not get: if it was removed, no other one does, either
	for {
		err := s.watchLastOnce(ctx, st, w, &vain)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the caller has ended it
		case !errors.Is(err, errBroken):
			return err
		}
		pause(ctx, minBackoff)
	}
}

func (s *Store) watchLastOnce(ctx context.Context, st *stream, w lastWatch, vain *uint64) error {
	info, err := s.refresh(ctx, st)
	if err == nil {
		err = st.drift(info.Config)
	}
	if err != nil {
		return err
	}
	losses := st.lossCount()
	newest := uint64(0)
	if info.State.Msgs > 0 && info.State.LastSeq != *vain {
		newest = info.State.LastSeq
	}
	w.fresh() // what is stored from now on is among the messages that follow, or comes after them
	f, err := s.follow(ctx, st, []string{keyPrefix(st) + ">"}, jetstream.DeliverLastPerSubjectPolicy)
	if err != nil {
		return err
	}
	defer f.stop(ctx)
	at, polled := uint64(0), uint64(0)
	show := func(m message) {
		at = m.Seq
		w.show(m)
	}
	for f.remaining > 0 || at < newest { // a replica that is behind says that nothing remains
		m, err := f.next(ctx, s.tryTime)
		if errors.Is(err, errQuiet) {
			*vain = newest
			err = fmt.Errorf("%w: its replica is at %d of %d", errBroken, at, newest)
		}
		if err != nil {
			return err
		}
		show(m)
	}
	at = max(at, info.State.LastSeq)
	w.complete()
	for before := at; ; before = at {
		poll := time.Now().Add(pollWait(true))
		for wait := time.Until(poll); wait > 0; wait = time.Until(poll) {
			m, err := f.next(ctx, wait)
			if errors.Is(err, errQuiet) {
				break
			}
			if err != nil {
				return err
			}
			show(m)
		}
		if info, err = s.refresh(ctx, st); err != nil {
			return err
		}
		if st.lossCount() != losses || at < polled && at == before {
			return fmt.Errorf("%w: it saw nothing after %d, where the bucket is at %d", errBroken, at, info.State.LastSeq)
		}
		polled = info.State.LastSeq
	}
}
