package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// pullSize is how many messages are asked for at once.
	pullSize = 256
	// abandoned is how long the server keeps the consumer of a reader that went
	// away without a word.
	abandoned = time.Minute
)

// follower reads a bucket in order, through a consumer of its own: what stands
// there, and then what is written. It asks for messages and takes them in its
// caller's time, so nothing piles up, and has no goroutine.
type follower struct {
	s    *Store
	st   *stream
	name string
	sub  *nats.Subscription
	// reconnects of the connection when it began: messages that were on their
	// way when it broke are lost.
	reconnects uint64
	// left is how many messages there were after the last one.
	left uint64
	// last is the consumer's number of it.
	last uint64
	// asked is how many may still come of those that were asked for last, until
	// when; pulls counts the requests, each with a reply of its own below inbox.
	asked int
	until time.Time
	pulls int
	inbox string
}

var (
	// errQuiet says that nothing came in the time that the caller gave.
	errQuiet = errors.New("nothing new")
	// errBroken says that messages may be missing: one has to begin anew.
	errBroken = errors.New("the reader was cut off")
)

// follow begins to read the messages of some subjects: the last of each, or all.
func (s *Store) follow(ctx context.Context, st *stream, subjects []string, from jetstream.DeliverPolicy) (*follower, error) {
	f := &follower{s: s, st: st, reconnects: s.nc.Stats().Reconnects, inbox: s.nc.NewInbox()}
	asking, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	consumer, err := st.js.CreateConsumer(asking, st.name, jetstream.ConsumerConfig{
		FilterSubjects: subjects, DeliverPolicy: from, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: abandoned,
	})
	if err != nil {
		return nil, err
	}
	f.name, f.left = consumer.CachedInfo().Name, consumer.CachedInfo().NumPending
	if f.sub, err = s.nc.SubscribeSync(f.inbox + ".*"); err != nil {
		return nil, err
	}
	return f, nil
}

// stop ends the follower, at the server too unless that is away.
func (f *follower) stop(ctx context.Context) {
	_ = f.sub.Unsubscribe()
	if !f.s.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.s.tryTime)
	defer cancel()
	_ = f.st.js.DeleteConsumer(ctx, f.st.name, f.name)
}

// next returns the next message, or errQuiet when none came within wait.
func (f *follower) next(ctx context.Context, wait time.Duration) (message, error) {
	deadline := time.Now().Add(wait)
	for {
		if f.asked == 0 || time.Now().After(f.until) {
			if err := f.pull(wait); err != nil {
				return message{}, err
			}
		}
		m, err := f.take(ctx, deadline)
		switch {
		case f.s.nc.Stats().Reconnects != f.reconnects:
			return message{}, fmt.Errorf("%w: the connection was lost", errBroken)
		case err != nil:
			return message{}, err
		}
		status := m.Header.Get("Status")
		switch {
		case !strings.HasPrefix(m.Subject, f.inbox):
			f.asked--
			return f.accept(m)
		case status != "404" && status != "408":
			return message{}, fmt.Errorf("%w: %s %s", errBroken, status, m.Header.Get("Description"))
		case m.Subject == f.reply():
			f.asked = 0 // nothing came in the time that was asked for
		}
	}
}

func (f *follower) take(ctx context.Context, deadline time.Time) (*nats.Msg, error) {
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	m, err := f.sub.NextMsgWithContext(waiting)
	switch {
	case err == nil:
		return m, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case waiting.Err() != nil && f.s.nc.IsConnected():
		return nil, errQuiet
	}
	return nil, fmt.Errorf("%w: %w", errBroken, err)
}

// pull asks for the next messages, which the server may take wait to send.
func (f *follower) pull(wait time.Duration) error {
	body, err := json.Marshal(map[string]any{"batch": pullSize, "expires": wait.Nanoseconds()})
	if err != nil {
		return fmt.Errorf("ask for messages: %w", err)
	}
	f.asked, f.until = pullSize, time.Now().Add(wait)
	f.pulls++
	if err := f.s.nc.PublishRequest(f.st.api+".CONSUMER.MSG.NEXT."+f.st.name+"."+f.name, f.reply(), body); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

func (f *follower) reply() string { return f.inbox + "." + strconv.Itoa(f.pulls) }

func (f *follower) accept(m *nats.Msg) (message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return message{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	if meta.Sequence.Consumer != f.last+1 {
		return message{}, fmt.Errorf("%w: message %d came after %d", errBroken, meta.Sequence.Consumer, f.last)
	}
	f.last, f.left = meta.Sequence.Consumer, meta.NumPending
	f.st.saw(meta.Sequence.Stream)
	return message{Subject: m.Subject, Seq: meta.Sequence.Stream, Header: m.Header, Data: m.Data}, nil
}

// standing calls take with what stands on the stream under the subjects now: the
// last message of each, or all. It calls begin first, and begins again where it is
// cut off, until ctx ends. lease.ErrUnavailable.
func (s *Store) standing(ctx context.Context, st *stream, subjects []string, from jetstream.DeliverPolicy, begin func(), take func(message)) error {
	for {
		err := s.standingOnce(ctx, st, subjects, from, begin, take)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && isMissing(err) {
			_, _ = s.look(ctx, st)
		}
		if pause(ctx, retryWait); ctx.Err() != nil || judge(err) == gone {
			return unavailable(err)
		}
	}
}

func (s *Store) standingOnce(ctx context.Context, st *stream, subjects []string, from jetstream.DeliverPolicy, begin func(), take func(message)) error {
	f, err := s.follow(ctx, st, subjects, from)
	if err != nil {
		return err
	}
	defer f.stop(ctx)
	begin()
	for f.left > 0 {
		m, err := f.next(ctx, s.tryTime)
		if err != nil {
			return err
		}
		take(m)
	}
	return nil
}
