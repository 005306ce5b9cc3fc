package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"leasehold/evidence/redact"
)

// The problems that Verify names.
const (
	PartChanged     = "part_changed"
	PartMissing     = "part_missing"
	BundleChanged   = "bundle_changed"
	BundleMissing   = "bundle_missing"
	BundleReordered = "bundle_reordered"
	// RetentionWrong is an anchor that says what retention would not do.
	RetentionWrong = "retention_wrong"
)

// Finding is one thing that is not as it was sealed.
type Finding struct {
	Problem    string `json:"problem"`
	EvidenceID string `json:"evidence_id"`
	Part       string `json:"part,omitempty"`
	Detail     string `json:"detail"`
}

// Fork is two or more bundles that name the same one before them.
type Fork struct {
	// Previous is the bundle that they name; empty where each says that it is
	// the profile's first.
	Previous string   `json:"previous_evidence_id"`
	Bundles  []string `json:"bundles"`
}

// CutOff is what retention removed of a profile's chain, by its anchors.
type CutOff struct {
	Bundles int       `json:"bundles"`
	Bytes   int64     `json:"bytes"`
	Newest  time.Time `json:"newest_at"` // when the newest of them was made
	Anchors []string  `json:"anchors"`   // evidence ids, the newest first
}

// Report is what Verify found out about a profile's evidence.
type Report struct {
	ProfileID string `json:"profile_id"`
	// Head is the bundle that the walk began with; HeadKnown says that the
	// caller named it, so that a removed newest bundle would have shown.
	Head      string `json:"head"`
	HeadKnown bool   `json:"head_known"`
	// Bundles and Parts count what was checked, anchors included.
	Bundles  int       `json:"bundles"`
	Parts    int       `json:"parts"`
	Findings []Finding `json:"findings"`
	// Unlinked are bundles that no checked bundle names, nor the head: of
	// captures whose lease moved on without them, or cut off by a finding.
	// They are checked like all others, with what comes before them.
	Unlinked []string `json:"unlinked,omitempty"`
	// Forks are no finding: each side is whole, and the chain of the head is
	// the one that counts.
	Forks []Fork `json:"forks,omitempty"`
	// CutOff is nil where retention removed nothing.
	CutOff *CutOff `json:"cut_off,omitempty"`
}

// OK tells whether nothing was found wrong.
func (r Report) OK() bool { return len(r.Findings) == 0 }

// Verify recomputes the hashes of every part and walks the profile's chain from
// its head, the bundle that the lease record names, to the first one. Bundles that
// are gone are findings, unless an anchor of retention names them with the hash
// that the chain has. Without a head (the zero Link) it starts at the newest
// bundle there is, and then cannot tell that newer ones were removed. The error
// says that something could not be read; what is wrong with what was read is in
// the report.
func Verify(ctx context.Context, r Reader, profileID string, head Link) (Report, error) {
	v := verifier{
		ctx: ctx, r: r, seen: map[string]bool{}, cut: map[string]Cut{}, after: map[string][]string{},
		report: Report{ProfileID: profileID, Findings: []Finding{}, HeadKnown: head != Link{}},
	}
	all, err := r.List(ctx, profileID)
	if err != nil {
		return v.report, err
	}
	var list, anchors, pictures []Manifest
	for _, m := range all {
		switch {
		case m.IsAnchor():
			anchors = append(anchors, m)
		case m.IsPicture():
			pictures = append(pictures, m)
		default:
			list = append(list, m)
		}
	}
	if err := v.anchors(anchors); err != nil {
		return v.report, err
	}
	if head == (Link{}) && len(list) > 0 {
		head.EvidenceID = list[0].EvidenceID
	}
	v.report.Head = head.EvidenceID
	if err := v.walk(head, "the lease record"); err != nil {
		return v.report, err
	}
	for _, m := range list {
		if _, gone := v.cut[m.EvidenceID]; gone || v.seen[m.EvidenceID] {
			continue // a cut one that is still there is about to be removed
		}
		v.report.Unlinked = append(v.report.Unlinked, m.EvidenceID)
		if err := v.walk(Link{EvidenceID: m.EvidenceID}, ""); err != nil {
			return v.report, err
		}
	}
	v.whatStayed(list)
	v.forks()
	for _, m := range pictures {
		if v.seen[m.EvidenceID] {
			continue
		}
		if err := v.picture(Picture{EvidenceID: m.EvidenceID}, Manifest{}); err != nil {
			return v.report, err
		}
	}
	return v.report, nil
}

type verifier struct {
	ctx    context.Context
	r      Reader
	report Report
	seen   map[string]bool
	cut    map[string]Cut      // what the anchors name
	after  map[string][]string // the bundles that name one as the bundle before
}

func (v *verifier) found(problem, evidenceID, part, detail string, args ...any) {
	v.report.Findings = append(v.report.Findings, Finding{problem, evidenceID, part, fmt.Sprintf(detail, args...)})
}

// walk follows the chain down from a link, to its first bundle, to one that
// cannot be followed, or to one that an earlier walk checked. by is who names the
// first link.
func (v *verifier) walk(at Link, by string) error {
	var after Manifest // the bundle that names at
	here := map[string]bool{}
	for at.EvidenceID != "" {
		by := cmp.Or(after.EvidenceID, by)
		if here[at.EvidenceID] {
			v.found(BundleReordered, at.EvidenceID, "", "%s names it as the bundle before, and it comes after", by)
			return nil
		}
		if v.seen[at.EvidenceID] {
			return nil
		}
		here[at.EvidenceID], v.seen[at.EvidenceID] = true, true
		if c, ok := v.cut[at.EvidenceID]; ok {
			if at.SHA256 != "" && at.SHA256 != c.ManifestSHA256 {
				v.found(BundleChanged, at.EvidenceID, "", "SHA-256 of the manifest was %s when retention removed it, %s says %s", c.ManifestSHA256, by, at.SHA256)
			}
			after = Manifest{EvidenceID: at.EvidenceID, LeaseToken: c.LeaseToken}
			at = Link{c.PreviousEvidenceID, c.PreviousManifestSHA256}
			continue
		}
		raw, err := v.r.Manifest(v.ctx, at.EvidenceID)
		switch {
		case errors.Is(err, ErrNotFound):
			v.found(BundleMissing, at.EvidenceID, "", "%s names it, and it is not there", by)
			return nil
		case errors.Is(err, ErrDamaged):
			v.found(BundleChanged, at.EvidenceID, "", "%v", err)
			return nil
		case err != nil:
			return err
		}
		m, err := Decode(at.EvidenceID, raw)
		if sum := sha256Hex(raw); at.SHA256 != "" && sum != at.SHA256 {
			v.found(BundleChanged, at.EvidenceID, "", "SHA-256 of the manifest is %s, %s says %s", sum, by, at.SHA256)
		} else if err != nil {
			v.found(BundleChanged, at.EvidenceID, "", "%v", err)
		}
		switch {
		case err != nil && m.EvidenceID != "":
			v.found(BundleReordered, at.EvidenceID, "", "the manifest of %s stands in its place", redact.Clip(m.EvidenceID, 140))
			return nil
		case err != nil:
			return nil //nolint:nilerr // it is a finding of the report
		case m.ProfileID != v.report.ProfileID:
			v.found(BundleReordered, m.EvidenceID, "", "it is evidence of profile %s", redact.Clip(m.ProfileID, 140))
		case after.EvidenceID != "" && m.LeaseToken > after.LeaseToken:
			v.found(BundleReordered, m.EvidenceID, "", "lease token %d, and the bundle after it, %s, has %d", m.LeaseToken, after.EvidenceID, after.LeaseToken)
		}
		if err := v.parts(m); err != nil {
			return err
		}
		for _, p := range m.Pictures {
			if err := v.picture(p, m); err != nil {
				return err
			}
		}
		if !m.IsAnchor() {
			v.after[m.PreviousEvidenceID] = append(v.after[m.PreviousEvidenceID], m.EvidenceID)
		}
		at, after = m.previous(), m
	}
	return nil
}

// picture checks one that a bundle names, or that is listed and no bundle names.
func (v *verifier) picture(p Picture, by Manifest) error {
	if v.seen[p.EvidenceID] {
		return nil
	}
	v.seen[p.EvidenceID] = true
	named := by.EvidenceID != ""
	raw, err := v.r.Manifest(v.ctx, p.EvidenceID)
	switch {
	case errors.Is(err, ErrNotFound) && !named:
		return nil // its session ended meanwhile, and took it along
	case errors.Is(err, ErrNotFound):
		v.found(BundleMissing, p.EvidenceID, "", "%s names it as a picture, and it is not there", by.EvidenceID)
		return nil
	case errors.Is(err, ErrDamaged):
		v.found(BundleChanged, p.EvidenceID, "", "%v", err)
		return nil
	case err != nil:
		return err
	}
	m, err := Decode(p.EvidenceID, raw)
	switch sum := sha256Hex(raw); {
	case named && sum != p.ManifestSHA256:
		v.found(BundleChanged, p.EvidenceID, "", "SHA-256 of the manifest is %s, %s says %s", sum, by.EvidenceID, p.ManifestSHA256)
	case err != nil:
		v.found(BundleChanged, p.EvidenceID, "", "%v", err)
	}
	switch {
	case err != nil:
		return nil //nolint:nilerr // it is a finding of the report
	case !m.IsPicture() || m.ProfileID != v.report.ProfileID:
		v.found(BundleReordered, m.EvidenceID, "", "it is no picture of this profile")
	case named && m.LeaseToken > by.LeaseToken:
		v.found(BundleReordered, m.EvidenceID, "", "lease token %d, and the bundle that names it, %s, has %d", m.LeaseToken, by.EvidenceID, by.LeaseToken)
	}
	err = v.parts(m)
	if errors.Is(err, ErrNotFound) && !named {
		return nil
	}
	return err
}

func (v *verifier) parts(m Manifest) error {
	v.report.Bundles++
	for _, p := range m.Parts {
		if p.Missing != "" {
			continue
		}
		v.report.Parts++
		switch err := checkPart(v.ctx, v.r, m.EvidenceID, p); {
		case errors.Is(err, ErrNotFound):
			v.found(PartMissing, m.EvidenceID, p.Name, "%v", err)
		case errors.Is(err, ErrDamaged):
			v.found(PartChanged, m.EvidenceID, p.Name, "%v", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// anchors checks the chain of the anchors, the newest first, and takes over what
// those say that are whole.
func (v *verifier) anchors(anchors []Manifest) error {
	for _, m := range anchors {
		if err := v.walk(Link{EvidenceID: m.EvidenceID}, ""); err != nil {
			return err
		}
	}
	var off CutOff
	for _, m := range anchors {
		if slices.ContainsFunc(v.report.Findings, func(f Finding) bool { return f.EvidenceID == m.EvidenceID }) {
			continue // what it says is worth nothing
		}
		list, err := readAnchor(v.ctx, v.r, m)
		switch {
		case errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged):
			v.found(PartChanged, m.EvidenceID, AnchorPart, "%v", err)
			continue
		case err != nil:
			return err
		}
		off.Anchors = append(off.Anchors, m.EvidenceID)
		for _, c := range list.Cut {
			if _, twice := v.cut[c.EvidenceID]; twice {
				continue // two launchers did it, or one in two rounds
			}
			v.cut[c.EvidenceID] = c
			off.Bundles++
			off.Bytes += c.Bytes
			if c.At.After(off.Newest) {
				off.Newest = c.At
			}
			if age := m.At.Sub(c.At); c.Why == CutAge && age.Seconds() <= list.MaxAgeSeconds {
				v.found(RetentionWrong, m.EvidenceID, "", "it says that %s was removed for its age, which was %v of %vs then", redact.Clip(c.EvidenceID, 140), age, list.MaxAgeSeconds)
			}
		}
	}
	if len(off.Anchors) > 0 {
		v.report.CutOff = &off
	}
	return nil
}

// whatStayed finds bundles older than one that is said to have been cut off:
// retention goes from the old end.
func (v *verifier) whatStayed(list []Manifest) {
	var newest Cut
	for _, c := range v.cut {
		if c.LeaseToken > newest.LeaseToken {
			newest = c
		}
	}
	for _, m := range list {
		if _, gone := v.cut[m.EvidenceID]; !gone && m.LeaseToken < newest.LeaseToken {
			v.found(RetentionWrong, newest.EvidenceID, "", "an anchor says that retention removed it, and the older %s is still there: retention removes the oldest first", m.EvidenceID)
			return
		}
	}
}

func (v *verifier) forks() {
	for previous, bundles := range v.after {
		if len(bundles) > 1 {
			slices.Sort(bundles)
			v.report.Forks = append(v.report.Forks, Fork{previous, bundles})
		}
	}
	slices.SortFunc(v.report.Forks, func(a, b Fork) int { return cmp.Compare(a.Previous, b.Previous) })
}
