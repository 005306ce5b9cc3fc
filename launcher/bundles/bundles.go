package bundles

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// accepted leaves out the pictures that do not count: those that no bundle names and whose
// session is, according to the record, neither living nor in recovery. A fenced holder may have
// left such pictures. While a person decides whose bundle could not have the pictures, they count
// as they did before.
func accepted(manifests []evidence.Manifest, r lease.Record) []evidence.Manifest {
	named := map[string]bool{}
	open := r.Unfinished()
	for _, m := range manifests {
		open = open || r.State == lease.ManualReview && m.EvidenceID == r.EvidenceID && m.LacksPictures()
		for _, p := range m.Pictures {
			named[p.EvidenceID] = true
		}
	}
	return slices.DeleteFunc(manifests, func(m evidence.Manifest) bool {
		return m.IsPicture() && !named[m.EvidenceID] && (!open || !slices.Contains(r.Sessions(), m.SessionID))
	})
}

// Evidence lists the profile's bundles, newest first.
func (bs *Service) Evidence(ctx context.Context, profileID string) ([]api.Bundle, error) {
	record, err := bs.profiles.Profile(ctx, profileID)
	if err != nil {
		return nil, err
	}
	manifests, err := bs.host.Archive.List(ctx, profileID)
	if err != nil {
		return nil, err
	}
	bundles := []api.Bundle{}
	for _, m := range accepted(manifests, record.Record) {
		encrypted := m.Encrypted()
		m, opened := bs.host.Archive.Opened(m)
		b := api.Bundle{
			Encrypted: encrypted, Locked: !opened,
			EvidenceID: m.EvidenceID, Token: lease.Token(m.LeaseToken), At: m.At, RecoveryReason: m.RecoveryReason,
			LastKnownURL: m.LastKnownURL, LastKnownStep: m.LastKnownStep, Checkpoint: m.Checkpoint, Parts: []api.Part{},
			SessionID: m.SessionID, Pages: pagesOf(m), Pictures: picturesOf(m),
		}
		for _, p := range m.Parts {
			b.Parts = append(b.Parts, api.Part{Name: p.Name, Kind: p.Kind, Bytes: p.Bytes, SHA256: p.SHA256, Missing: p.Missing})
		}
		bundles = append(bundles, b)
	}
	return bundles, nil
}

func unknownEvidence(err error, evidenceID, part string) error {
	if errors.Is(err, evidence.ErrNotFound) {
		return api.Refuse(api.CodeNotFound, "there is no evidence %s", strings.TrimSuffix(evidenceID+"/"+part, "/"))
	}
	if errors.Is(err, evidence.ErrDamaged) {
		return api.Refuse(api.CodeEvidenceDamaged, "%v", err)
	}
	if errors.Is(err, crypt.ErrNoKey) {
		return api.Refuse(api.CodeEvidenceEncrypted, "%v: this sidecar has no identity of these (--evidence-identity); with ?stored=true the part comes as it is stored, and leasehold evidence --identity opens it", err)
	}
	return err
}

// EvidenceManifest returns a bundle's manifest exactly as it was sealed.
func (bs *Service) EvidenceManifest(ctx context.Context, evidenceID string) (json.RawMessage, error) {
	b, err := bs.host.Archive.Manifest(ctx, evidenceID)
	return b, unknownEvidence(err, evidenceID, "")
}

// EvidencePart returns one part of a bundle, decrypted or as it is stored, and its media type.
func (bs *Service) EvidencePart(ctx context.Context, evidenceID, part string, stored bool) ([]byte, string, error) {
	read := bs.host.Archive.Content
	if stored {
		read = bs.host.Archive.Stored
	}
	b, mediaType, err := read(ctx, evidenceID, part)
	return b, mediaType, unknownEvidence(err, evidenceID, part)
}
