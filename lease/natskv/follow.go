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

	"leasehold/internal/natsget"
)

const (
	// pullSize is how many messages are requested at once.
	pullSize = 256
	// inactiveTime is how long the server keeps a consumer whose reader has gone without
	// deleting it.
	inactiveTime = time.Minute
)

// follower reads a stream in order through a consumer of its own: first the existing messages,
// then those that are written later. It has no goroutine: it requests messages when its caller
// asks for the next one, so they do not pile up.
type follower struct {
	s    *Store
	st   *stream
	name string
	sub  *nats.Subscription
	// reconnects is the connection's count of reconnects when the follower began. A
	// reconnect loses the messages that were on their way.
	reconnects uint64
	// remaining is how many messages the stream had after the last one that was read.
	remaining uint64
	// last is the number that the consumer gave to the last message that was read.
	last uint64
	// asked is how many messages of the last request may still come; until is when that request
	// ends. pulls counts the requests, each of which has its own reply subject below inbox.
	asked int
	until time.Time
	pulls int
	inbox string
}

var (
	// errQuiet says that no message came in the time that the caller allowed.
	errQuiet = errors.New("nothing new")
	// errBroken says that messages may be missing, so that the reader has to start again.
	errBroken = errors.New("the reader was cut off")
)

// follow returns a follower of the messages on some subjects: of the last message of each, or
// of all messages, as from says.
func (s *Store) follow(ctx context.Context, st *stream, subjects []string, from jetstream.DeliverPolicy) (*follower, error) {
	return s.followWith(ctx, st, jetstream.ConsumerConfig{FilterSubjects: subjects, DeliverPolicy: from})
}

func (s *Store) followWith(ctx context.Context, st *stream, c jetstream.ConsumerConfig) (*follower, error) {
	f := &follower{s: s, st: st, reconnects: s.nc.Stats().Reconnects, inbox: s.nc.NewInbox()}
	asking, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	c.AckPolicy, c.MemoryStorage, c.Replicas, c.InactiveThreshold = jetstream.AckNonePolicy, true, 1, inactiveTime
	consumer, err := st.js.CreateConsumer(asking, st.name, c)
	if err != nil {
		return nil, err
	}
	f.name, f.remaining = consumer.CachedInfo().Name, consumer.CachedInfo().NumPending
	if f.sub, err = s.nc.SubscribeSync(f.inbox + ".*"); err != nil {
		return nil, err
	}
	return f, nil
}

// stop ends the follower, and deletes its consumer if the server can be reached.
func (f *follower) stop(ctx context.Context) {
	_ = f.sub.Unsubscribe()
	if !f.s.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.s.tryTime)
	defer cancel()
	_ = f.st.js.DeleteConsumer(ctx, f.st.name, f.name)
}

// next returns the next message. The error is errQuiet if none came within wait, and errBroken
// if messages may be missing.
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
			f.asked = 0 // the last request ended without a further message
		}
	}
}

// take returns the next message from the server: a message of the stream, or a status.
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

// pull requests the next messages. The request ends after wait.
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

// reply is the reply subject of the last request.
func (f *follower) reply() string { return f.inbox + "." + strconv.Itoa(f.pulls) }

// accept returns a message of the stream. The error is errBroken if it does not follow the last
// one.
func (f *follower) accept(m *nats.Msg) (message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return message{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	if meta.Sequence.Consumer != f.last+1 {
		return message{}, fmt.Errorf("%w: message %d came after %d", errBroken, meta.Sequence.Consumer, f.last)
	}
	f.last, f.remaining = meta.Sequence.Consumer, meta.NumPending
	f.st.saw(meta.Sequence.Stream)
	return message{Subject: m.Subject, Seq: meta.Sequence.Stream, Header: m.Header, Data: m.Data, At: meta.Timestamp}, nil
}

// snapshot calls take with each message that the stream now has on the subjects: the last
// message of each, or all of them, as from says. It calls begin first. If it is cut off, it
// starts again with begin, until ctx ends; then the error is lease.ErrUnavailable.
//
// The server may put a consumer on a replica that does not have the newest messages yet. So the
// stream's leader is asked before which is the newest, and a snapshot without it begins anew.
func (s *Store) snapshot(ctx context.Context, st *stream, subjects []string, from jetstream.DeliverPolicy, begin func(), take func(message)) error {
	for {
		err := s.snapshotOnce(ctx, st, subjects, from, begin, take)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && isMissing(err) {
			_, _ = s.refresh(ctx, st)
		}
		if pause(ctx, retryWait); ctx.Err() != nil || judge(err) == gone {
			return unavailable(err)
		}
	}
}

func (s *Store) snapshotOnce(ctx context.Context, st *stream, subjects []string, from jetstream.DeliverPolicy, begin func(), take func(message)) error {
	newest, err := s.newest(ctx, st, subjects)
	if err != nil {
		return err
	}
	f, err := s.follow(ctx, st, subjects, from)
	if err != nil {
		return err
	}
	defer f.stop(ctx)
	begin()
	at := uint64(0)
	for f.remaining > 0 {
		m, err := f.next(ctx, s.tryTime)
		if err != nil {
			return err
		}
		at = m.Seq
		take(m)
	}
	if at < newest {
		return fmt.Errorf("%w: its replica is at %d of %d", errBroken, at, newest)
	}
	return nil
}

// newest is the number of the last message on the subjects, as the stream's leader knows it; 0: there
// is none.
func (s *Store) newest(ctx context.Context, st *stream, subjects []string) (seq uint64, _ error) {
	for _, subject := range subjects {
		m, err := s.read(ctx, st, natsget.Request{LastFor: subject})
		if err != nil && !errors.Is(err, natsget.ErrNone) {
			return 0, err
		}
		seq = max(seq, m.Seq)
	}
	return seq, nil
}
