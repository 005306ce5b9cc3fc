package natskv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/lease"
)

const (
	// history is how many writes of a profile's key are kept. That is enough to find the last
	// record below values that no Store wrote, and to find a write below later ones.
	history = 16
	// hostHistory is the same for a launcher's key. minHistory is the least with which both
	// buckets may be configured.
	hostHistory, minHistory = 8, 8
	// maxValue is the largest message of a bucket that is made now, in bytes: the largest record,
	// and the headers of its write. minValue is the least with which a bucket may be configured:
	// a record that would be larger there leaves its oldest events out.
	maxValue, minValue = lease.MaxEncoded + headerRoom, 64 << 10
	// headerRoom is more than the headers of a write take, in bytes.
	headerRoom = 1 << 10
	// duplicates is how long the server itself recognizes an event that is published again;
	// minDuplicates is the least with which it may be configured. The order of events, and that
	// each is stored once, do not depend on it.
	duplicates, minDuplicates = 10 * time.Minute, 2 * time.Minute
)

func eventSubjects() []string {
	return []string{"leasehold.recovery.*.*", "leasehold.lease.*.*", "leasehold.conflict.*", "leasehold.late_write.*", "leasehold.person.*.*", "leasehold.account.*.*", "leasehold.site.*"}
}

// bucketConfig is the configuration of a KV bucket in which nobody can purge or roll up
// values, nothing expires, and no limit makes a renewal fail.
func bucketConfig(name, description string, history int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              "KV_" + name,
		Description:       description,
		Subjects:          []string{"$KV." + name + ".>"},
		MaxMsgsPerSubject: history,
		MaxMsgSize:        maxValue,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxConsumers:      -1,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardNew,
		DenyDelete:        true,
		DenyPurge:         true,
		AllowDirect:       true,
	}
}

func leasesConfig() jetstream.StreamConfig {
	return bucketConfig(Bucket, "Leasehold: lease records, one key per profile", history)
}

func hostsConfig() jetstream.StreamConfig {
	return bucketConfig(Hosts, "Leasehold: presences, one key per launcher", hostHistory)
}

// eventsConfig is the configuration of the event stream. Nothing leaves it for its age: the server
// would count that by its own clock, and one step of that clock would remove everything for good.
func eventsConfig(maxBytes int64) jetstream.StreamConfig {
	if maxBytes <= 0 {
		maxBytes = -1
	}
	return jetstream.StreamConfig{
		Name:         Stream,
		Description:  "Leasehold: what happened to profiles",
		Subjects:     eventSubjects(),
		MaxMsgs:      -1,
		MaxBytes:     maxBytes, // at this limit the oldest events are removed, so that none is refused
		Discard:      jetstream.DiscardOld,
		MaxConsumers: -1,
		Storage:      jetstream.FileStorage,
		Duplicates:   duplicates,
		DenyDelete:   true,
		DenyPurge:    true,
		AllowDirect:  true,
	}
}

// prepare makes the streams that are missing, and checks the others.
func (s *Store) prepare(ctx context.Context) error {
	for _, st := range []*stream{s.leases.stream, s.hosts.stream, s.events} {
		if err := s.ensure(ctx, st); err != nil {
			return fmt.Errorf("stream %s: %w", st.name, err)
		}
	}
	return nil
}

// codeNoBound is the answer of an account that wants a limit of bytes for each stream.
const codeNoBound jetstream.ErrorCode = 10113

// ensure waits for the stream, checks it and hardens it. A cluster that is electing a leader
// answers late, or with 503, so it is asked again until ctx ends.
func (s *Store) ensure(ctx context.Context, st *stream) error {
	for {
		info, err := s.refresh(ctx, st)
		if err == nil {
			return s.harden(ctx, st, info.Config)
		}
		var api *jetstream.APIError
		switch {
		case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			return fmt.Errorf("%w: enable JetStream at the NATS server", err)
		case errors.As(err, &api) && api.ErrorCode == codeNoBound:
			return fmt.Errorf("%w: the account wants max_bytes for each stream, and a full bucket of leases would refuse every renewal: take an account that does not want it", err)
		case errors.As(err, &api) && api.Code != 503:
			return err
		}
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil || s.nc.IsClosed() {
			return unavailable(err)
		}
	}
}

// harden refuses a configuration that has drifted, forbids purges and roll-ups if they are still
// allowed, and bounds the event stream by nothing but its bytes. That nothing leaves it for its age
// is only wished for on somebody else's server, whose owner may have given the launcher no right to
// change streams.
func (s *Store) harden(ctx context.Context, st *stream, have jetstream.StreamConfig) error {
	if err := st.drift(have); err != nil {
		return err
	}
	if have.Replicas != s.replicas {
		s.log.Warn().Str("stream", st.name).Int("replicas", have.Replicas).Int("wanted", s.replicas).
			Msg("the stream has another number of replicas than configured")
	}
	want := have
	want.DenyPurge, want.AllowRollup, want.MaxBytes = true, false, s.newBound(st, have)
	if s.ownServer {
		want.MaxAge = 0
	}
	needed := !have.DenyPurge || have.AllowRollup || have.MaxBytes != want.MaxBytes
	if needed || have.MaxAge != want.MaxAge {
		switch err := s.update(ctx, st, want); {
		case err == nil:
			have = want
		case needed:
			return fmt.Errorf("forbid purges and bound the bytes: %w", err)
		}
	}
	if have.MaxAge != 0 {
		s.log.Warn().Str("stream", st.name).Msg(ages(st.name, have.MaxAge))
	}
	return nil
}

func (s *Store) update(ctx context.Context, st *stream, c jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	_, err := st.js.UpdateStream(ctx, c)
	return err
}

// ages says what is wrong with a stream from which events leave for their age.
func ages(name string, after time.Duration) string {
	return fmt.Sprintf("stream %s removes what is older than %v by the server's clock, want no age: if that clock is ever ahead, all events are gone for good: set its max_age to 0 (nats stream edit)", name, after)
}

// newBound is the limit in bytes that a stream should have. The event stream gets the one of
// the options, unless it is on somebody else's server, where it has been given another one.
func (s *Store) newBound(st *stream, have jetstream.StreamConfig) int64 {
	want := st.config().MaxBytes
	if st != s.events || have.MaxBytes == want {
		return have.MaxBytes
	}
	if s.ownServer || have.MaxBytes <= 0 {
		return want
	}
	s.log.Warn().Str("stream", st.name).Int64("max_bytes", have.MaxBytes).Int64("wanted", want).
		Msg("the stream has another bound in bytes than configured, and keeps it")
	return have.MaxBytes
}

// DriftError says that a bucket or stream is configured in a way in which this package could
// not keep its promises.
type DriftError struct {
	// Setting is the name of the setting in the stream's configuration. Have is its value, and
	// Want is the value that it should have.
	Setting    string
	Have, Want any
	Why        string
}

func (e *DriftError) Error() string {
	return fmt.Sprintf("its %s is %v, want %v: %s: change it at the NATS server", e.Setting, e.Have, e.Want, e.Why)
}

// commonDrift returns the drift that would break the buckets and the event stream alike.
func commonDrift(c jetstream.StreamConfig) error {
	switch {
	case c.Storage != jetstream.FileStorage:
		return &DriftError{"storage", c.Storage, jetstream.FileStorage, "a restart would lose everything"}
	case c.Retention != jetstream.LimitsPolicy:
		return &DriftError{"retention", c.Retention, jetstream.LimitsPolicy, "reading would remove messages"}
	case c.PersistMode != jetstream.DefaultPersistMode:
		return &DriftError{"persist_mode", c.PersistMode, jetstream.DefaultPersistMode, "acknowledged writes could be lost"}
	case c.NoAck:
		return &DriftError{"no_ack", true, false, "no write could be known to be stored"}
	case c.Sealed:
		return &DriftError{"sealed", true, false, "nothing could be written"}
	case c.Mirror != nil:
		return &DriftError{"mirror", c.Mirror.Name, "none", "it cannot be written to"}
	case c.SubjectTransform != nil:
		return &DriftError{"subject_transform", c.SubjectTransform.Destination, "none", "what is written could not be read"}
	case c.AllowMsgTTL:
		return &DriftError{"allow_msg_ttl", true, false, "messages could expire"}
	case c.MaxMsgs > 0:
		return &DriftError{"max_msgs", c.MaxMsgs, -1, "the oldest would vanish, or writes would fail"}
	}
	return nil
}

func leasesDrift(c jetstream.StreamConfig) error { return bucketDrift(leasesConfig(), c) }

func hostsDrift(c jetstream.StreamConfig) error { return bucketDrift(hostsConfig(), c) }

func bucketDrift(want, c jetstream.StreamConfig) error {
	switch {
	case !slices.Equal(c.Subjects, want.Subjects):
		return &DriftError{"subjects", c.Subjects, want.Subjects, "it is not this bucket"}
	case c.MaxAge != 0:
		return &DriftError{"max_age (TTL)", c.MaxAge, 0, "what it holds would vanish"}
	case c.MaxBytes > 0:
		return &DriftError{"max_bytes", c.MaxBytes, -1, "a full bucket would refuse every renewal"}
	case c.MaxMsgsPerSubject > 0 && c.MaxMsgsPerSubject < minHistory:
		return &DriftError{"max_msgs_per_subject (history)", c.MaxMsgsPerSubject, want.MaxMsgsPerSubject, "a writer could not find its own write again"}
	case !c.AllowDirect:
		return &DriftError{"allow_direct", false, true, "its values could not be listed"}
	case c.MaxMsgSize > 0 && c.MaxMsgSize < minValue:
		return &DriftError{"max_msg_size", c.MaxMsgSize, minValue, "long records would be refused"}
	}
	return commonDrift(c)
}

func eventsDrift(c jetstream.StreamConfig) error {
	for _, want := range eventSubjects() {
		if !slices.Contains(c.Subjects, want) && !slices.Contains(c.Subjects, "leasehold.>") {
			return &DriftError{"subjects", c.Subjects, want, "events would be lost"}
		}
	}
	switch {
	case c.Duplicates < minDuplicates:
		return &DriftError{"duplicate_window", c.Duplicates, duplicates, "conflicts could be reported twice"}
	case c.MaxMsgsPerSubject > 0:
		return &DriftError{"max_msgs_per_subject", c.MaxMsgsPerSubject, -1, "subscribers that were away would miss events"}
	case c.MaxBytes > 0 && c.Discard != jetstream.DiscardOld:
		return &DriftError{"discard", c.Discard, jetstream.DiscardOld, "a full stream would refuse events"}
	}
	return commonDrift(c)
}

// checkVersion refuses servers that do not know the condition with which events are published.
func checkVersion(version string) error {
	const wantMajor, wantMinor = 2, 12
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("nats server version %q: want %d.%d or newer", version, wantMajor, wantMinor)
	}
	if major < wantMajor || major == wantMajor && minor < wantMinor {
		return fmt.Errorf("nats server version %s: want %d.%d or newer: upgrade it", version, wantMajor, wantMinor)
	}
	return nil
}
