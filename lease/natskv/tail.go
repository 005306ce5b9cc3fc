package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/natsget"
	"leasehold/lease"
)

// tail returns the tail of the profile: the remembered one, or else the one on the stream.
func (p *publisher) tail(ctx context.Context, profile string) (tail, error) {
	p.mu.Lock()
	known, ok := p.tails[profile]
	p.mu.Unlock()
	if ok {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.s.tryTime)
	defer cancel()
	losses := p.s.events.lossCount()
	m, err := p.s.read(ctx, p.s.events, natsget.Request{LastFor: transitionsOf(profile)})
	t := tail{seq: m.Seq}
	switch {
	case errors.Is(err, natsget.ErrNone):
	case err != nil:
		return tail{}, err
	default:
		if e, ok := decodeEvent(m.Subject, m.Data); ok && e.Sequence > 0 {
			t.position = positionOf(e)
			break
		}
		// An event about a person, or something that is not an event, came after the last one.
		events, err := p.s.history(ctx, profile)
		if err != nil {
			return tail{}, err
		}
		for _, e := range events {
			if at := positionOf(e); e.Sequence > 0 && at.after(t.position) {
				t.position = at
			}
		}
	}
	p.setTail(profile, t, losses)
	return t, nil
}

func (p *publisher) forget(e lease.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory.forget(e)
}

// setTail remembers a tail, unless the stream's count of losses has changed from the given one.
func (p *publisher) setTail(profile string, t tail, losses uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.s.events.lossCount() == losses {
		p.tails[profile] = t
	}
}

func (p *publisher) forgetTail(profile string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tails, profile)
}

// transitionsOf returns the pattern of the subjects of a profile's transitions. It does not
// match its conflicts and late writes, which have no place in the order. It does match the
// events about persons, which have no place either, and no sequence.
func transitionsOf(profile string) string { return "leasehold.*." + lease.Key(profile) + ".*" }

// eventMessage returns the message of an event. By msgID the server recognizes a message that
// it received a short while before, and drops the second one.
func eventMessage(e lease.Event, msgID string) (*nats.Msg, error) {
	data, err := lease.Encode(e)
	if err != nil {
		return nil, fmt.Errorf("event %s of %s: %w", e.Event, e.ProfileID, err)
	}
	m := nats.NewMsg(e.Subject())
	m.Data = data
	m.Header.Set(TokenHeader, strconv.FormatUint(uint64(e.Token), 10))
	m.Header.Set(jetstream.MsgIDHeader, msgID)
	return m, nil
}

// decodeEvent returns the event in a message of the event stream. It returns false for
// anything else that was published there.
func decodeEvent(subject string, data []byte) (lease.Event, bool) {
	var e lease.Event
	if json.Unmarshal(data, &e) != nil || e.Event == "" || e.Subject() != subject {
		return lease.Event{}, false
	}
	return e, true
}
