package natsobjects

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// tryTime is how long each answer may take that Try waits for: a request that is not allowed has none.
const tryTime = 2 * time.Second

// Try writes an object that belongs to no profile, reads it, and removes it. made is false if the
// stream does not exist yet: then it finds out whether it could be made, and makes none.
func Try(ctx context.Context, js jetstream.JetStream) (made bool, err error) {
	o := New(js, Config{})
	o.answerTime = tryTime
	finding, cancel := within(ctx, tryTime)
	defer cancel()
	_, err = o.find(finding)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, mayMake(ctx, js)
	}
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", Stream, answered(finding, err))
	}
	key, content := "doctor/"+strings.ToLower(rand.Text()), []byte(rand.Text())
	if err := o.Put(ctx, key, content, ""); err != nil {
		return true, fmt.Errorf("stream %s takes no snapshots (%w): its user needs to publish on %s.> (docs/nats.md)", Stream, err, Stream)
	}
	defer func() {
		if removed := o.Delete(ctx, key); removed != nil {
			err = errors.Join(err, fmt.Errorf("what was written to stream %s cannot be removed (%w): its user needs $JS.API.STREAM.PURGE.%s (docs/nats.md)", Stream, removed, Stream))
		}
	}()
	found, _, err := o.Get(ctx, key)
	if err != nil {
		return true, fmt.Errorf("stream %s cannot be read (%w): its user needs $JS.API.STREAM.MSG.GET.%s (docs/nats.md)", Stream, err, Stream)
	}
	if !bytes.Equal(found, content) {
		return true, fmt.Errorf("stream %s gives back something else than was written", Stream)
	}
	return true, nil
}

// mayMake sends a request to make the stream that is answered, and cannot be followed.
func mayMake(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := within(ctx, tryTime)
	defer cancel()
	subject := "$JS.API.STREAM.CREATE." + Stream
	if _, err := js.Conn().RequestWithContext(ctx, subject, []byte("!")); err != nil {
		return fmt.Errorf("stream %s, in which snapshots are kept, cannot be made (%w): its user needs %s (docs/nats.md)", Stream, answered(ctx, err), subject)
	}
	return nil
}
