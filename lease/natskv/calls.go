package natskv

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"leasehold/lease"
)

// Launchers ask each other on these subjects, which only they may use.
const callSubject = "$LEASEHOLD.call."

// maxCall bounds a question and an answer, in bytes.
const maxCall = 64 << 10

// Call asks another launcher, and returns its answer. It waits no longer than for a write.
func (s *Store) Call(ctx context.Context, launcherID string, question []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	m, err := s.nc.RequestWithContext(ctx, callSubject+lease.Key(launcherID), question)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("launcher %s does not listen on NATS: is it an older version, or may it not subscribe to %s* there?", launcherID, callSubject)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("launcher %s does not answer on NATS: may both use %s* there?", launcherID, callSubject)
	case err != nil:
		return nil, err
	case len(m.Data) > maxCall:
		return nil, fmt.Errorf("launcher %s answers with %d bytes, want at most %d", launcherID, len(m.Data), maxCall)
	}
	return m.Data, nil
}

// Answer makes answer reply to every Call of this launcher, one after the other, until stop.
// When stop has returned, no call is being answered any more.
func (s *Store) Answer(launcherID string, answer func(question []byte) []byte) (stop func(), err error) {
	closed := make(chan struct{})
	sub, err := s.nc.Subscribe(callSubject+lease.Key(launcherID), func(m *nats.Msg) {
		if len(m.Data) > maxCall {
			return
		}
		if err := m.Respond(answer(m.Data)); err != nil {
			s.log.Debug().Err(err).Msg("a launcher is not answered")
		}
	})
	if err != nil {
		return nil, err
	}
	sub.SetClosedHandler(func(string) { close(closed) })
	return func() {
		if sub.Unsubscribe() == nil {
			<-closed
		}
	}, nil
}
