package natsstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence"
)

// The names of chunks have several parts that are separated by dots: part.<hash>, and
// manifest.<profile key>.<evidence key>.<hash>. Earlier versions gave all chunks a name without
// a dot, and so do other programs that write to the bucket.
const (
	partChunks      = "part."
	allManifests    = "manifest."
	chunksOfEarlier = "*"
)

// manifestChunks is the beginning of the names of the chunks of a profile's manifests; with an
// empty profile id, of all manifests.
func manifestChunks(profileID string) string {
	if profileID == "" {
		return allManifests
	}
	return allManifests + toKey(profileID) + "."
}

// older are the bundles that an earlier version has stored. The server cannot list those of a
// profile, so all objects of the bucket are read for them: once, and again when an earlier
// version has stored something since.
type older struct {
	ids map[string][]string // evidence ids by profile key
	// through is the sequence of the last chunk of an earlier version when they were read.
	through uint64
}

// IDs implements evidence.Source.
func (s *files) IDs(ctx context.Context, profileID string) ([]string, error) {
	stream, err := s.stream(ctx)
	if errors.Is(err, evidence.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ids, err := s.earlier(ctx, stream, profileID)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunksNamed(manifestChunks(profileID)+">")))
	if err != nil {
		return nil, err
	}
	for subject := range info.State.Subjects {
		name := strings.Split(strings.TrimPrefix(subject, chunksNamed(allManifests)), ".")
		if evidenceID := fromKey(name[min(1, len(name)-1)]); evidence.SafeName(evidenceID) {
			ids = append(ids, evidenceID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// earlier returns the ids of a profile's bundles that an earlier version has stored. A list of
// all profiles reads them anew. So a bundle that was not complete when they were read is found
// by then, even if the earlier version has stored nothing else.
func (s *files) earlier(ctx context.Context, stream jetstream.Stream, profileID string) ([]string, error) {
	last, err := lastMessage(ctx, stream, chunksNamed(chunksOfEarlier))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known := s.older.Load()
	if profileID == "" || known == nil || known.through != last.Sequence {
		ids, err := s.readEarlier(ctx)
		if err != nil {
			return nil, err
		}
		known = &older{ids, last.Sequence}
		s.older.Store(known)
	}
	if profileID == "" {
		return slices.Concat(slices.Collect(maps.Values(known.ids))...), nil
	}
	return slices.Clone(known.ids[toKey(profileID)]), nil
}

// readEarlier returns the ids of the bundles that an earlier version has stored, by profile key.
func (s *files) readEarlier(ctx context.Context) (map[string][]string, error) {
	bucket, err := s.bind(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := bucket.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, err
	}
	ids := map[string][]string{}
	for _, o := range objects {
		name := strings.Split(o.Name, "/")
		if len(name) == 3 && name[2] == evidence.ManifestName && evidence.SafeName(name[1]) && !strings.Contains(o.NUID, ".") {
			ids[name[0]] = append(ids[name[0]], name[1])
		}
	}
	return ids, nil
}
