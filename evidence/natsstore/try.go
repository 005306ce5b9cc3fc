package natsstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/id"
	"leasehold/internal/natsget"
)

// Try writes a message that belongs to no bundle, reads it, and removes it. made is false if the
// object store does not exist yet: then nothing was tried.
func Try(ctx context.Context, js jetstream.JetStream) (made bool, err error) {
	stream, err := js.Stream(ctx, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	subject, content := chunksNamed("doctor."+id.Secret()), []byte(id.Secret())
	if _, err := js.Publish(ctx, subject, content); err != nil {
		return true, fmt.Errorf("object store %s: a write: %w", Bucket, err)
	}
	defer func() {
		if removed := stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); removed != nil {
			err = errors.Join(err, fmt.Errorf("object store %s: removing what was written: %w", Bucket, removed))
		}
	}()
	m, err := (&files{js: js}).message(ctx, natsget.Request{LastFor: subject})
	if err != nil {
		return true, fmt.Errorf("object store %s: a read: %w", Bucket, err)
	}
	if !bytes.Equal(m.Data, content) {
		return true, fmt.Errorf("object store %s gives back something else than was written", Bucket)
	}
	return true, nil
}
