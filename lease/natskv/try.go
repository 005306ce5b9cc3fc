package natskv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/id"
	"leasehold/internal/natsget"
)

// tryKey is a key that no profile and no launcher has.
const tryKey = "_doctor"

// Try tries, on a launcher's connection, what launchers do there: a message from one to
// another, and a write to and a read from each bucket. It leaves nothing behind: the writes
// have a condition that cannot be met, so that the leader of the bucket refuses them, but only
// after it has accepted that the sender may write. It leaves out a bucket that does not exist
// yet.
func Try(ctx context.Context, nc *nats.Conn) []Finding {
	found := []Finding{tryMessage(ctx, nc)}
	js, err := jetstream.New(nc)
	if err != nil {
		return append(found, Finding{"write", Unasked, err.Error()})
	}
	for _, bucket := range []string{Bucket, Hosts} {
		_, err := js.Stream(ctx, "KV_"+bucket)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			found = append(found, Finding{"write", Unasked, "bucket " + bucket + " is made at the first start"})
			continue
		}
		found = append(found, tryWrite(ctx, js, bucket), tryRead(ctx, nc, bucket))
	}
	return found
}

// tryMessage sends itself a message of the kind that launchers send each other.
func tryMessage(ctx context.Context, nc *nats.Conn) Finding {
	subject := callSubject + "doctor-" + strings.ToLower(id.Secret()[:8])
	begun := time.Now()
	err := func() error {
		ctx, cancel := context.WithTimeout(ctx, tryTime)
		defer cancel()
		sub, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(m.Data) })
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }()
		_, err = nc.RequestWithContext(ctx, subject, []byte("doctor"))
		return err
	}()
	if err != nil {
		return Finding{"message", Unsafe, fmt.Sprintf("a launcher cannot ask another one on %s* (%v): workers with a token are not sent on to a profile's home; its user needs to publish and subscribe there, and to answer (docs/nats.md)", callSubject, err)}
	}
	return Finding{"message", Fine, fmt.Sprintf("a message there and back took %v", time.Since(begun).Round(10*time.Microsecond))}
}

// tryWrite writes on a condition that no key meets.
func tryWrite(ctx context.Context, js jetstream.JetStream, bucket string) Finding {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	_, err := js.Publish(ctx, "$KV."+bucket+"."+tryKey, nil, jetstream.WithExpectLastSequencePerSubject(math.MaxInt64))
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return Finding{"write", Fine, "bucket " + bucket + " takes writes"}
	}
	return Finding{"write", Unsafe, fmt.Sprintf("bucket %s does not take writes (%v): its user needs to publish on $KV.%s.*, and the bucket a leader (docs/nats.md)", bucket, err, bucket)}
}

// tryRead reads a key that is not there, from the bucket's leader.
func tryRead(ctx context.Context, nc *nats.Conn, bucket string) Finding {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	_, err := natsget.Ask(ctx, nc, "$JS.API", "KV_"+bucket, natsget.Request{LastFor: "$KV." + bucket + "." + tryKey})
	if !errors.Is(err, natsget.ErrNone) {
		return Finding{"read", Unsafe, fmt.Sprintf("bucket %s cannot be read (%v): its user needs $JS.API.STREAM.MSG.GET.KV_%s (docs/nats.md)", bucket, err, bucket)}
	}
	return Finding{"read", Fine, "bucket " + bucket + " can be read"}
}
