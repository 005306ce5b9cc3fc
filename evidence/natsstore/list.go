package natsstore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence"
)

// The names of chunks have several parts that are separated by dots: part.<profile key>.<evidence
// key>.<hash>, and manifest.<profile key>.<evidence key>.<hash>. Parts that earlier versions stored
// have names of their own, which their metadata has.
const (
	allParts     = "part."
	allManifests = "manifest."
)

// chunksOf is the beginning of the names of the chunks of a bundle's parts or of its manifest.
func chunksOf(all, profileID, evidenceID string) string {
	return all + toKey(profileID) + "." + toKey(evidenceID) + "."
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
	manifests := allManifests
	if profileID != "" {
		manifests += toKey(profileID) + "."
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunksNamed(manifests+">")))
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
