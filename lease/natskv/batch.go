package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// errTooMany says that there are more keys than one answer of the server can have.
var errTooMany = errors.New("more keys than fit into one answer")

// lastOfEach returns the last message of every key, including markers of deleted values.
// It sends one request, which any replica may answer. That is cheaper than a consumer,
// on which a cluster has to agree. errTooMany if there are more than a thousand keys.
func (s *Store) lastOfEach(ctx context.Context, b bucket) ([]message, error) {
	for {
		messages, err := s.lastOfEachOnce(ctx, b)
		if err == nil || errors.Is(err, errTooMany) {
			return messages, err
		}
		if ctx.Err() == nil && isMissing(err) {
			_, _ = s.refresh(ctx, b.stream)
		}
		if pause(ctx, retryWait); ctx.Err() != nil || judge(err) == gone {
			return nil, unavailable(err)
		}
	}
}

func (s *Store) lastOfEachOnce(ctx context.Context, b bucket) ([]message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	body, err := json.Marshal(map[string]any{"multi_last": []string{b.subject(">")}})
	if err != nil {
		return nil, fmt.Errorf("ask for messages: %w", err)
	}
	sub, err := s.nc.SubscribeSync(s.nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := s.nc.PublishRequest(b.api+".DIRECT.GET."+b.name, sub.Subject, body); err != nil {
		return nil, err
	}
	var messages []message
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("answer of the NATS server: sequence of a message: %w", err)
			}
			b.saw(seq)
			messages = append(messages, message{Subject: m.Header.Get(jetstream.SubjectHeader), Seq: seq, Header: m.Header, Data: m.Data})
		case "204", "404": // the end of the messages, and that there are none
			return messages, nil
		case "413":
			return nil, errTooMany
		case "503":
			return nil, nats.ErrNoResponders
		default:
			return nil, fmt.Errorf("answer of the NATS server: %s %s", status, m.Header.Get("Description"))
		}
	}
}
