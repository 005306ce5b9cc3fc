package session

import (
	"context"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// A worker that cannot go on asks for a person, and waits. Until it has its answer it counts
// as alive, whatever its heartbeat is.

// ask is a request for a person that waits.
type ask struct {
	api.Ask
	answered chan askAnswer // one place
}

type askAnswer struct {
	answer api.Answer
	err    error
}

// How asks end, as the metrics name them.
const (
	askAnswered  = "answered"
	askDeclined  = api.AskDeclined
	askWaitOver  = api.AskWaitOver
	askWithdrawn = "withdrawn" // its connection ended
	askEnded     = "session_ended"
)

// Ask waits until a person hands the session back, the wait is over, the session ends, or
// ctx does, which withdraws it.
func (s *Session) Ask(ctx context.Context, a api.AskPerson) (api.Answer, error) {
	asked, err := s.beginAsk(a)
	if err != nil {
		return api.Answer{}, err
	}
	return s.awaitAnswer(ctx, asked)
}

// beginAsk puts the session before a person.
func (s *Session) beginAsk(a api.AskPerson) (*ask, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	if s.ephemeral {
		return nil, notForReaders(s.id, "a person can do nothing in it that is kept")
	}
	if s.policy.byHand {
		return nil, api.Invalid("", "session %s is a hold: a person has it already", s.id)
	}
	now := time.Now()
	wait := time.Duration(a.Wait)
	if wait == 0 {
		wait = api.DefaultAsk
	}
	next := &ask{api.Ask{Reason: checkpoint.Clip(a.Reason), At: now.UTC(), Until: now.Add(wait).UTC()}, make(chan askAnswer, 1)}
	s.mu.Lock()
	before, ending := s.ask, s.life.isEnding()
	if before == nil && !ending {
		var begun bool
		if next.Until, begun = s.life.asks(next.Until); begun {
			s.ask = next
		}
		ending = !begun
	}
	s.mu.Unlock()
	switch {
	case ending:
		return nil, api.Refuse(api.CodeSessionEnded, "session %s is ending", s.id).With("session_id", s.id)
	case before != nil:
		return nil, api.Refuse(api.CodeAsksAlready, "session %s waits for a person since %s (%s): one request at a time", s.id, before.At.Format(time.RFC3339), before.Reason).
			With("session_id", s.id).With("ask", before.Ask)
	}
	s.life.wake()
	s.h.metrics.waiting.Inc()
	s.log.Info().Time("until", next.Until).Msg("the worker asks for a person")
	s.Note(checkpoint.Entry{Kind: checkpoint.KindPerson, Name: checkpoint.PersonAsked, Text: next.Reason})
	return next, nil
}

// awaitAnswer returns what becomes of the ask.
func (s *Session) awaitAnswer(ctx context.Context, a *ask) (api.Answer, error) {
	over := time.NewTimer(time.Until(a.Until))
	defer over.Stop()
	e := s.personEvent(lease.EventAsked, s.manifest.Opener.Name)
	e.Reason, e.Until = a.Reason, a.Until
	s.h.o.Announcer.Person(ctx, e)
	select {
	case <-over.C:
		s.endAsk(a, askWaitOver, askAnswer{answer: api.Answer{Reason: api.AskWaitOver}})
	case <-ctx.Done():
		s.endAsk(a, askWithdrawn, askAnswer{err: ctx.Err()})
	case got := <-a.answered:
		return got.answer, got.err
	}
	got := <-a.answered // of endAsk, here or elsewhere
	return got.answer, got.err
}

// asking is the ask that waits; nil: none does.
func (s *Session) asking() *ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ask
}

// endAsk ends an ask with what becomes of it, unless it has ended before. From now on the
// worker has to give signs of life again.
func (s *Session) endAsk(a *ask, how string, got askAnswer) {
	s.mu.Lock()
	ends := a != nil && s.ask == a
	if ends {
		s.ask = nil
		s.life.update(func(f *facts) { f.asksUntil, f.seenAt = time.Time{}, time.Now() })
	}
	s.mu.Unlock()
	if !ends {
		return
	}
	s.h.metrics.waiting.Dec()
	s.h.metrics.asks.WithLabelValues(how).Inc()
	s.log.Info().Str("how", how).Dur("waited", time.Since(a.At)).Msg("the worker waits for a person no more")
	if how != askAnswered && how != askDeclined { // the hand-back says so
		s.Note(checkpoint.Entry{Kind: checkpoint.KindPerson, Name: checkpoint.PersonUnanswered, Text: how})
	}
	a.answered <- got
}

// answer tells the worker that asked, if one did, what a person says. It returns whether what
// was asked for is done; nil: nothing was.
func (s *Session) answer(who api.Person, h api.HandBack) *bool {
	asked := s.asking()
	if asked == nil {
		return nil
	}
	got := api.Answer{Answered: true, By: who.Name, Principal: who.Principal, Note: h.Note, Data: h.Data}
	how := askAnswered
	if h.Answered != nil && !*h.Answered {
		got.Answered, got.Reason, how = false, api.AskDeclined, askDeclined
	}
	s.endAsk(asked, how, askAnswer{answer: got})
	return &got.Answered
}
