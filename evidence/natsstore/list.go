package natsstore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence"
)

// The names of chunks have several parts that are separated by dots: part.<hash>, and
// manifest.<profile key>.<evidence key>.<hash>.
const (
	partChunks   = "part."
	allManifests = "manifest."
)

// manifestChunks is the beginning of the names of the chunks of a profile's manifests; with an
// empty profile id, of all manifests.
func manifestChunks(profileID string) string {
	if profileID == "" {
		return allManifests
	}
	return allManifests + toKey(profileID) + "."
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
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunksNamed(manifestChunks(profileID)+">")))
	if err != nil {
		return nil, err
	}
	var ids []string
	for subject := range info.State.Subjects {
		name := strings.Split(strings.TrimPrefix(subject, chunksNamed(allManifests)), ".")
		if evidenceID := fromKey(name[min(1, len(name)-1)]); evidence.SafeName(evidenceID) {
			ids = append(ids, evidenceID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
