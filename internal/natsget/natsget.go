// Package natsget asks the leader of a JetStream stream for one message. Where a stream allows direct
// gets, as buckets do, the calls of nats.go ask any of its replicas, however far that lags behind.
package natsget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Request says which message: the one with a sequence, the last of a subject, or the first of a
// subject, which may have wildcards, with that sequence or a higher one.
type Request struct {
	Seq     uint64 `json:"seq,omitempty"`
	LastFor string `json:"last_by_subj,omitempty"`
	NextFor string `json:"next_by_subj,omitempty"`
}

// Message is a message as it is stored.
type Message struct {
	Subject string
	Seq     uint64
	Header  nats.Header
	Data    []byte
	// At is when the server stored it, by the server's clock.
	At time.Time
}

// ErrNone says that the stream has no such message.
var ErrNone = errors.New("no such message")

// Ask returns the message that r names, or ErrNone. api is the prefix of JetStream's subjects, for
// example $JS.API. Other refusals of the server are *jetstream.APIError. It is bounded by ctx alone.
func Ask(ctx context.Context, nc *nats.Conn, api, stream string, r Request) (Message, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return Message{}, fmt.Errorf("ask for a message: %w", err)
	}
	answer, err := nc.RequestWithContext(ctx, api+".STREAM.MSG.GET."+stream, body)
	if err != nil {
		return Message{}, err
	}
	var a struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(answer.Data, &a); {
	case err != nil:
		return Message{}, fmt.Errorf("answer of the NATS server: %w", err)
	case a.Error != nil && a.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return Message{}, ErrNone
	case a.Error != nil:
		return Message{}, a.Error
	case a.Message == nil:
		return Message{}, errors.New("answer of the NATS server: neither a message nor an error")
	}
	m := Message{Subject: a.Message.Subject, Seq: a.Message.Seq, Data: a.Message.Data, At: a.Message.Time}
	if len(a.Message.Header) > 0 {
		if m.Header, err = nats.DecodeHeadersMsg(a.Message.Header); err != nil {
			return Message{}, fmt.Errorf("headers of message %d: %w", m.Seq, err)
		}
	}
	return m, nil
}
