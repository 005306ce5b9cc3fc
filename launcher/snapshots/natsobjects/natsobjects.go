// Package natsobjects keeps the objects of a profile store in a stream of NATS JetStream.
package natsobjects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/objects"
)

// Stream is the name of the stream, and the first part of its subjects. It is not a KV bucket,
// because buckets are read from any of their servers, including one that does not have the last
// write yet.
const Stream = "leasehold_profiles"

// Config says how the stream is made if it does not exist. An existing stream is used as it is.
type Config struct {
	Replicas int // zero is 1
}

// Objects are the last messages of the stream's subjects. Versions are their sequences.
type Objects struct {
	js         jetstream.JetStream
	cfg        Config
	answerTime time.Duration

	mu     sync.Mutex
	stream jetstream.Stream // as it was found; nil: it has to be looked up
}

var _ objects.Objects = (*Objects)(nil)

// New returns the objects. It does not ask the server: the stream is looked up when it is
// needed, and Put makes it if it does not exist.
func New(js jetstream.JetStream, cfg Config) *Objects {
	return &Objects{js: js, cfg: cfg, answerTime: answerTime}
}

const (
	// answerTime is how long the server may take to answer. It is long because several chunks at a
	// time may be on their way over a slow line.
	answerTime = 30 * time.Second
	// listTimes is how many times as long a list may take, which has many pages.
	listTimes = 10
)

// errNoAnswer says that the server did not answer in time. An answer that was lost with a connection
// never comes, so waiting for it until the caller's deadline would be in vain.
var errNoAnswer = errors.New("the NATS server did not answer in time")

// within is a context for requests whose answers come within d.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errNoAnswer)
}

// answered is an error of a request, with errNoAnswer if that is why.
func answered(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return err
}

func subject(key string) string { return Stream + "." + strings.ReplaceAll(key, "/", ".") }

// find looks the stream up. The error is jetstream.ErrStreamNotFound if there is none.
func (o *Objects) find(ctx context.Context) (jetstream.Stream, error) {
	o.mu.Lock()
	known := o.stream
	o.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := o.js.Stream(ctx, Stream)
	if err == nil {
		o.mu.Lock()
		o.stream = found
		o.mu.Unlock()
	}
	return found, err
}

// on calls do with the stream that find returns. If the stream is no longer there, or has no answer, it may
// have been removed, or another one made: it is looked up again, and do is called once more.
func (o *Objects) on(ctx context.Context, find func(context.Context) (jetstream.Stream, error), do func(jetstream.Stream) error) error {
	for again := false; ; again = true {
		stream, err := find(ctx)
		if err != nil {
			return answered(ctx, err)
		}
		err = do(stream)
		if again || !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, jetstream.ErrNoStreamResponse) && !errors.Is(err, nats.ErrNoResponders) {
			return answered(ctx, err)
		}
		o.mu.Lock()
		o.stream = nil
		o.mu.Unlock()
	}
}

// Get implements objects.Objects.
func (o *Objects) Get(ctx context.Context, key string) (content []byte, version string, err error) {
	ctx, cancel := within(ctx, o.answerTime)
	defer cancel()
	var msg *jetstream.RawStreamMsg
	err = o.on(ctx, o.find, func(stream jetstream.Stream) (err error) {
		msg, err = stream.GetLastMsgForSubject(ctx, subject(key))
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, "", objects.ErrNone
	}
	if err != nil {
		return nil, "", err
	}
	return msg.Data, strconv.FormatUint(msg.Sequence, 10), nil
}

// Put implements objects.Objects.
func (o *Objects) Put(ctx context.Context, key string, content []byte, version string) error {
	var sequence uint64
	if version != "" {
		var err error
		if sequence, err = strconv.ParseUint(version, 10, 64); err != nil || sequence == 0 {
			return fmt.Errorf("version %.40q: want a sequence of the stream", version)
		}
	}
	ctx, cancel := within(ctx, o.answerTime)
	defer cancel()
	err := o.on(ctx, o.make, func(jetstream.Stream) error {
		_, err := o.js.Publish(ctx, subject(key), content, jetstream.WithExpectLastSequencePerSubject(sequence))
		return err
	})
	var api *jetstream.APIError
	// The second code says that another write is in flight. Its outcome is seen when the object
	// is read again.
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return objects.ErrOtherVersion
	}
	return err
}

// make is find, and makes the stream if it does not exist. Another launcher may be making it at the
// same time.
func (o *Objects) make(ctx context.Context) (jetstream.Stream, error) {
	stream, err := o.find(ctx)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return stream, err
	}
	stream, err = o.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: Stream, Description: "Leasehold: sealed profiles", Subjects: []string{Stream + ".>"}, Storage: jetstream.FileStorage,
		Replicas: max(o.cfg.Replicas, 1), MaxMsgsPerSubject: 1,
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return o.find(ctx)
	}
	return stream, err
}

// Delete implements objects.Objects.
func (o *Objects) Delete(ctx context.Context, key string) error {
	ctx, cancel := within(ctx, o.answerTime)
	defer cancel()
	err := o.on(ctx, o.find, func(stream jetstream.Stream) error {
		return stream.Purge(ctx, jetstream.WithPurgeSubject(subject(key)))
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

// List implements objects.Objects.
func (o *Objects) List(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := within(ctx, listTimes*o.answerTime)
	defer cancel()
	var info *jetstream.StreamInfo
	err := o.on(ctx, o.find, func(stream jetstream.Stream) (err error) {
		info, err = stream.Info(ctx, jetstream.WithSubjectFilter(subject(prefix)+">"))
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(info.State.Subjects))
	for name := range info.State.Subjects {
		keys = append(keys, strings.ReplaceAll(strings.TrimPrefix(name, Stream+"."), ".", "/"))
	}
	return keys, nil
}

// Folders implements objects.Objects.
func (o *Objects) Folders(ctx context.Context, prefix string) ([]string, error) {
	keys, err := o.List(ctx, prefix)
	names := map[string]bool{}
	for _, key := range keys {
		if name, _, below := strings.Cut(strings.TrimPrefix(key, prefix), "/"); below {
			names[name] = true
		}
	}
	return slices.Collect(maps.Keys(names)), err
}
