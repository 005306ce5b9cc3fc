package evidence

import (
	"context"
	"slices"

	"leasehold/evidence/crypt"
)

// BundleReport is what VerifyBundle found out about one bundle.
type BundleReport struct {
	// Report is about the whole chain of the profile, with all findings; Bundles and Parts only
	// count what was read completely.
	Report
	// SHA256 is the hash of the bundle's manifest as it was read.
	SHA256 string
	// Own are the findings about the bundle and the pictures that it names.
	Own []Finding
	// NamedBy is what names the bundle by that hash: RecordName, or evidence ids. It is empty
	// if nothing names the bundle yet.
	NamedBy []string
}

// RecordName stands for the profile's lease record in BundleReport.NamedBy.
const RecordName = "the lease record"

// VerifyBundle checks the manifest and the parts of one bundle, and of the pictures that it
// names. Of the profile's other bundles it only reads the manifests, which form the chain; it
// reads anchors of retention completely. The arguments and the error are those of VerifyWith.
func VerifyBundle(ctx context.Context, r Reader, m Manifest, head Link, with *crypt.Identities) (BundleReport, error) {
	v := newVerifier(ctx, r, m.ProfileID, with)
	own := func(evidenceID string) bool {
		return evidenceID == m.EvidenceID || slices.ContainsFunc(m.Pictures, func(p Picture) bool { return p.EvidenceID == evidenceID })
	}
	v.skips = func(other Manifest) bool { return !own(other.EvidenceID) }
	if err := v.verify(head); err != nil {
		return BundleReport{Report: v.report}, err
	}
	if !v.checked[m.EvidenceID] { // the store did not list it
		if err := v.follow(Link{EvidenceID: m.EvidenceID}, ""); err != nil {
			return BundleReport{Report: v.report}, err
		}
	}
	b := BundleReport{Report: v.report, SHA256: v.sums[m.EvidenceID]}
	for _, f := range b.Findings {
		if own(f.EvidenceID) {
			b.Own = append(b.Own, f)
		}
	}
	b.NamedBy = v.namedBy(Link{m.EvidenceID, b.SHA256}, head)
	return b, nil
}

func (v *verifier) namedBy(bundle, head Link) []string {
	var by []string
	if head == bundle {
		by = append(by, RecordName)
	}
	for _, m := range v.all {
		names := slices.Contains(m.follows(), bundle) ||
			slices.ContainsFunc(m.Pictures, func(p Picture) bool { return Link{p.EvidenceID, p.ManifestSHA256} == bundle })
		if names {
			by = append(by, m.EvidenceID)
		}
	}
	return by
}

// VerifyAlone checks one bundle as VerifyBundle does, without the profile's other bundles: it
// is for a bundle that was taken out of its store. link names it; if it has no hash, the hash
// of the bundle's manifest is not compared with anything.
func VerifyAlone(ctx context.Context, r Reader, link Link, with *crypt.Identities) (Report, error) {
	v := newVerifier(ctx, r, "", with)
	v.report.Head, v.report.HeadKnown = link.EvidenceID, link.SHA256 != ""
	m, problem, err := v.manifest(link, "--head", link.SHA256 != "", "")
	if err != nil || problem != nil {
		if err == nil && len(v.report.Findings) == 0 {
			v.find(BundleMissing, link.EvidenceID, "", "it is not there")
		}
		return v.report, err
	}
	v.report.ProfileID = m.ProfileID
	if err := v.parts(m, m.EvidenceID); err != nil {
		return v.report, err
	}
	for _, p := range m.Pictures {
		if err := v.picture(p, m); err != nil {
			return v.report, err
		}
	}
	return v.report, nil
}
