package session

import (
	"context"
	"sync"
	"time"

	"leasehold/checkpoint"
	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// A worker that cannot go on asks for a person, and waits. Until it has its answer it counts as
// alive, whatever its heartbeat.

// Asks is what the worker of a session asks of a person: one thing at a time. Its mutex is
// taken before that of the session's life.
type Asks struct {
	*terms
	life      *life
	note      func(checkpoint.Entry)
	announcer *Announcer
	metrics   metrics

	mu  sync.Mutex
	now *ask // nil: the worker waits for no person
}

func newAsks(h *Registry, t *terms, l *life, note func(checkpoint.Entry)) *Asks {
	return &Asks{terms: t, life: l, note: note, announcer: h.o.Announcer, metrics: h.metrics}
}

// ask is a request for a person that waits.
type ask struct {
	api.Ask
	answered chan askAnswer // one place
}

type askAnswer struct {
	answer api.Answer
	err    error
}

// How asks end, as the metrics name them. Those that end with their session have the code of its problem.
const (
	askAnswered  = "answered"
	askDeclined  = api.AskDeclined
	askWaitOver  = api.AskWaitOver
	askWithdrawn = "withdrawn" // its connection ended
)

// Ask waits until a person hands the session back, the wait is over, or the session ends. If
// ctx ends, the request is withdrawn.
func (q *Asks) Ask(ctx context.Context, a api.AskPerson) (api.Answer, error) {
	asked, err := q.begin(a)
	if err != nil {
		return api.Answer{}, err
	}
	return q.await(ctx, asked)
}

func (q *Asks) begin(a api.AskPerson) (*ask, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	if q.ephemeral {
		return nil, notForReaders(q.id, "a person can do nothing in it that is kept")
	}
	if q.policy.byHand {
		return nil, api.Invalid("", "session %s is a hold: a person has it already", q.id)
	}
	now := time.Now()
	wait := time.Duration(a.Wait)
	if wait == 0 {
		wait = api.DefaultAsk
	}
	next := &ask{api.Ask{ID: id.New("ask"), Reason: checkpoint.Clip(a.Reason), At: now.UTC(), Until: now.Add(wait).UTC()}, make(chan askAnswer, 1)}
	q.mu.Lock()
	before, ending := q.now, q.life.isEnding()
	if before == nil && !ending {
		var begun bool
		if next.Until, begun = q.life.asks(next.Until); begun {
			q.now = next
		}
		ending = !begun
	}
	q.mu.Unlock()
	switch {
	case ending:
		return nil, q.life.endingProblem()
	case before != nil:
		return nil, api.Refuse(api.CodeAsksAlready, "session %s waits for a person since %s (%s): one request at a time", q.id, before.At.Format(time.RFC3339), before.Reason).
			With("session_id", q.id).With("ask", before.Ask)
	}
	q.life.wake()
	q.metrics.waiting.Inc()
	q.log.Info().Time("until", next.Until).Msg("the worker asks for a person")
	q.note(checkpoint.Entry{Kind: checkpoint.KindPerson, Name: checkpoint.PersonAsked, Text: next.Reason})
	return next, nil
}

func (q *Asks) await(ctx context.Context, a *ask) (api.Answer, error) {
	over := time.NewTimer(time.Until(a.Until))
	defer over.Stop()
	e := q.personEvent(lease.EventAsked, q.manifest.Opener.Name)
	e.Reason, e.Until = a.Reason, a.Until
	q.announcer.Person(ctx, e)
	select {
	case <-over.C:
		q.end(a, askWaitOver, askAnswer{answer: api.Answer{Reason: api.AskWaitOver}})
	case <-ctx.Done():
		q.end(a, askWithdrawn, askAnswer{err: ctx.Err()})
	case got := <-a.answered:
		return got.answer, got.err
	}
	got := <-a.answered // of end, here or elsewhere
	return got.answer, got.err
}

// waiting is the ask that waits; nil if none does.
func (q *Asks) waiting() *ask {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.now
}

// shown is what the worker waits for; nil if it waits for nothing.
func (q *Asks) shown() *api.Ask {
	asked := q.waiting()
	if asked == nil {
		return nil
	}
	shown := asked.Ask
	return &shown
}

// end ends an ask with a result, unless it has ended before. From now on the worker has to give
// signs of life again.
func (q *Asks) end(a *ask, how string, got askAnswer) {
	q.mu.Lock()
	ends := a != nil && q.now == a
	if ends {
		q.now = nil
		q.life.update(func(f *facts) { f.asksUntil, f.seenAt = time.Time{}, time.Now() })
	}
	q.mu.Unlock()
	if !ends {
		return
	}
	q.metrics.waiting.Dec()
	q.metrics.asks.WithLabelValues(how).Inc()
	q.log.Info().Str("how", how).Dur("waited", time.Since(a.At)).Msg("the worker waits for a person no more")
	if how != askAnswered && how != askDeclined { // the hand-back says so
		q.note(checkpoint.Entry{Kind: checkpoint.KindPerson, Name: checkpoint.PersonUnanswered, Text: how})
	}
	a.answered <- got
}

// sessionEnds ends the ask that waits, if one does. The end of the session has begun.
func (q *Asks) sessionEnds() {
	problem := q.life.endingProblem()
	q.end(q.waiting(), problem.Code, askAnswer{err: problem})
}

// answer gives a person's answer to the worker, if the request waits that it names. It returns whether that
// was done; nil if there is none.
func (q *Asks) answer(who api.Person, h api.HandBack) *bool {
	asked := q.waiting()
	if asked == nil || asked.ID != h.AskID {
		return nil
	}
	got := api.Answer{Answered: true, By: who.Name, Principal: who.Principal, Note: h.Note, Data: h.Data}
	how := askAnswered
	if h.Answered != nil && !*h.Answered {
		got.Answered, got.Reason, how = false, api.AskDeclined, askDeclined
	}
	q.end(asked, how, askAnswer{answer: got})
	return &got.Answered
}
