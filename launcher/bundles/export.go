package bundles

import (
	"context"
	"errors"
	"io"

	"leasehold/evidence/export"
	"leasehold/launcher/api"
)

// maxExports is how many exports are checked or written at a time. Each reads the whole bundle
// from the store twice.
const maxExports = 2

// ExportEvidence checks a bundle and returns it as a file to be written. It waits until fewer
// than maxExports others are under way.
func (bs *Service) ExportEvidence(ctx context.Context, evidenceID string, q api.EvidenceExport) (api.ExportedEvidence, error) {
	request := export.Request{EvidenceID: evidenceID, Format: export.Format(q.Format), Unverified: q.Unverified, Stored: q.Stored}
	var e *export.Export
	err := bs.inTurn(ctx, func() (err error) {
		e, err = export.Prepare(ctx, export.Source{Reader: bs.host.Archive, With: bs.host.Archive.Identities(), Records: bs.profiles}, request)
		return err
	})
	if unverified, ok := errors.AsType[*export.UnverifiedError](err); ok {
		return api.ExportedEvidence{}, api.Refuse(api.CodeEvidenceDamaged, "%v; with unverified=true it is exported all the same, and says so", err).With("findings", unverified.Findings)
	}
	if err != nil {
		return api.ExportedEvidence{}, unknownEvidence(err, evidenceID, "")
	}
	return api.ExportedEvidence{FileName: e.FileName, MediaType: e.MediaType, Write: func(ctx context.Context, w io.Writer) error {
		return bs.inTurn(ctx, func() error { return e.Write(ctx, w) })
	}}, nil
}

// inTurn calls do when fewer than maxExports exports are under way.
func (bs *Service) inTurn(ctx context.Context, do func() error) error {
	select {
	case bs.exports <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-bs.exports }()
	return do()
}
