package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"leasehold/evidence/crypt"
)

// The problems that Verify names.
const (
	PartChanged     = "part_changed"
	PartMissing     = "part_missing"
	BundleChanged   = "bundle_changed"
	BundleMissing   = "bundle_missing"
	BundleReordered = "bundle_reordered"
	// RetentionWrong is an anchor that says what retention would not have done.
	RetentionWrong = "retention_wrong"
)

// Finding is one thing that is not as it was sealed.
type Finding struct {
	Problem    string `json:"problem"`
	EvidenceID string `json:"evidence_id"`
	Part       string `json:"part,omitempty"`
	Detail     string `json:"detail"`
}

// Fork is two or more bundles that name the same bundle before them, if the head does not lead
// to all of them.
type Fork struct {
	// Previous is the bundle that they name; empty if each says that it is the profile's first.
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
	// Head is the bundle with which the check of the chain began. HeadKnown says that the
	// caller named it, so that the removal of a newest bundle would have been noticed.
	Head      string `json:"head"`
	HeadKnown bool   `json:"head_known"`
	// Bundles and Parts count what was checked, anchors and pictures included.
	Bundles  int       `json:"bundles"`
	Parts    int       `json:"parts"`
	Findings []Finding `json:"findings"`
	// Unlinked are bundles to which neither the head nor a checked bundle leads: those of
	// captures whose lease moved on without them, and those that a finding cut off. They are
	// checked like all others, together with what comes before them.
	Unlinked []string `json:"unlinked,omitempty"`
	// Forks are not findings: each side is whole, and the head shows which one is the chain.
	Forks []Fork `json:"forks,omitempty"`
	// CutOff is nil if retention has removed nothing.
	CutOff *CutOff `json:"cut_off,omitempty"`
	// Encrypted counts the encrypted bundles. Locked are those that the identities given to
	// VerifyWith did not open; it is empty if none were given.
	Encrypted int      `json:"encrypted,omitempty"`
	Locked    []string `json:"locked,omitempty"`
}

// OK tells whether nothing was found wrong.
func (r Report) OK() bool { return len(r.Findings) == 0 }

// Verify recomputes the hashes of every part, and follows the profile's chain from its head,
// the bundle that the lease record names, to the first one. A missing bundle is a finding,
// unless an anchor of retention names it with the hash that the chain has. Without a head (the
// zero Link) Verify starts at the newest existing bundle, and cannot tell whether newer ones
// were removed. The error says that something could not be read; what is wrong with what was
// read is in the report.
//
// The hashes are over what is stored, so no key is needed for what is encrypted.
func Verify(ctx context.Context, r Reader, profileID string, head Link) (Report, error) {
	return VerifyWith(ctx, r, profileID, head, nil)
}

// VerifyWith is Verify that also opens what is encrypted, with identities, and compares it with
// the hashes inside.
func VerifyWith(ctx context.Context, r Reader, profileID string, head Link, with *crypt.Identities) (Report, error) {
	v := newVerifier(ctx, r, profileID, with)
	err := v.verify(head)
	return v.report, err
}

func newVerifier(ctx context.Context, r Reader, profileID string, with *crypt.Identities) *verifier {
	return &verifier{
		ctx: ctx, r: r, with: with, checked: map[string]bool{}, sums: map[string]string{}, cut: map[string]Cut{}, next: map[string][]string{},
		report: Report{ProfileID: profileID, Findings: []Finding{}},
	}
}

// verify checks all of the profile's evidence, of which head is the newest bundle.
func (v *verifier) verify(head Link) error {
	v.report.HeadKnown = head != Link{}
	all, err := v.r.List(v.ctx, v.report.ProfileID)
	if err != nil {
		return err
	}
	v.all = all
	var chain, anchors, pictures []Manifest
	for _, m := range all {
		switch {
		case m.IsAnchor():
			anchors = append(anchors, m)
		case m.IsPicture():
			pictures = append(pictures, m)
		default:
			chain = append(chain, m)
		}
	}
	if err := v.anchors(anchors); err != nil {
		return err
	}
	if head == (Link{}) && len(chain) > 0 {
		head.EvidenceID = chain[0].EvidenceID
	}
	v.report.Head = head.EvidenceID
	if err := v.follow(head, RecordName); err != nil {
		return err
	}
	v.inChain = maps.Clone(v.checked)
	if err := v.unlinked(chain); err != nil {
		return err
	}
	v.checkCutOrder(chain)
	v.forks()
	for _, m := range pictures {
		if v.checked[m.EvidenceID] {
			continue
		}
		if err := v.picture(Picture{EvidenceID: m.EvidenceID}, Manifest{}); err != nil {
			return err
		}
	}
	return nil
}

type verifier struct {
	ctx    context.Context
	r      Reader
	with   *crypt.Identities
	report Report
	// skips tells for which bundles the parts are not read; nil: for none.
	skips   func(Manifest) bool
	all     []Manifest          // what was listed
	checked map[string]bool     // by evidence id
	inChain map[string]bool     // those that the head leads to
	sums    map[string]string   // what the manifests hash to, by evidence id
	cut     map[string]Cut      // what anchors say was removed, by evidence id
	next    map[string][]string // the bundles that name one as the bundle before
}

func (v *verifier) find(problem, evidenceID, part, detail string, args ...any) {
	v.report.Findings = append(v.report.Findings, Finding{problem, evidenceID, part, fmt.Sprintf(detail, args...)})
}

// named is a link, and what names it.
type named struct {
	Link
	by string // an evidence id, or what else names it
	// before says that it is named as the bundle before one with this token, so its own token
	// must not be higher.
	before bool
	token  uint64
	// after are the bundles through which it was reached.
	after *named
}

// passed tells whether a bundle was passed on the way to this link.
func (n named) passed(evidenceID string) bool {
	for at := n.after; at != nil; at = at.after {
		if at.EvidenceID == evidenceID {
			return true
		}
	}
	return false
}

// follow checks everything to which a link leads: down to the first bundle, to bundles beyond
// which nothing can be followed, or to those that were checked before. by says what names the
// link.
func (v *verifier) follow(from Link, by string) error {
	next := []named{{Link: from, by: by}}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		if at.EvidenceID == "" {
			continue
		}
		if v.checked[at.EvidenceID] {
			v.again(at)
			continue
		}
		v.checked[at.EvidenceID] = true
		further, err := v.step(at)
		if err != nil {
			return err
		}
		next = append(next, further...)
	}
	return nil
}

// step checks the bundle that a link names, and returns that bundle's own links.
func (v *verifier) step(at named) ([]named, error) {
	if c, ok := v.cut[at.EvidenceID]; ok {
		v.sums[at.EvidenceID] = c.ManifestSHA256
		if at.SHA256 != "" && at.SHA256 != c.ManifestSHA256 {
			v.find(BundleChanged, at.EvidenceID, "", "SHA-256 of the manifest was %s when retention removed it, %s says %s", c.ManifestSHA256, at.by, at.SHA256)
		}
		return at.further(c.LeaseToken, Link{c.PreviousEvidenceID, c.PreviousManifestSHA256}, c.AlsoFollows), nil
	}
	m, problem, err := v.manifest(at.Link, at.by, at.SHA256 != "", at.EvidenceID)
	switch {
	case err != nil:
		return nil, err
	case errors.Is(problem, errRemoved):
		return v.step(at) // an anchor names it now
	case errors.Is(problem, ErrNotFound):
		v.find(BundleMissing, at.EvidenceID, "", "%s names it, and it is not there", at.by)
		return nil, nil
	case problem != nil && m.EvidenceID != "":
		v.find(BundleReordered, at.EvidenceID, "", "the manifest of %s stands in its place", shortID(m.EvidenceID))
		return nil, nil
	case problem != nil:
		return nil, nil //nolint:nilerr // it is a finding of the report
	}
	if err := v.bundle(m, at); err != nil {
		return nil, err
	}
	return at.further(m.LeaseToken, m.previous(), m.AlsoFollows), nil
}

// further are the links of the bundle that was reached through this link; the bundle has the
// token.
func (n named) further(token uint64, previous Link, also []Link) []named {
	next := []named{{Link: previous, by: n.EvidenceID, before: true, token: token, after: &n}}
	for _, l := range also {
		next = append(next, named{Link: l, by: n.EvidenceID, after: &n})
	}
	return next
}

// again compares one more link to a bundle that was checked before with what was found there.
func (v *verifier) again(at named) {
	if at.passed(at.EvidenceID) {
		v.find(BundleReordered, at.EvidenceID, "", "%s names it as the bundle before, and it comes after", at.by)
		return
	}
	if sum := v.sums[at.EvidenceID]; sum != "" && at.SHA256 != "" && sum != at.SHA256 {
		v.find(BundleChanged, at.EvidenceID, "", "SHA-256 of the manifest is %s, %s says %s", sum, at.by, at.SHA256)
	}
}

// errRemoved says that retention removed something after it was listed.
var errRemoved = errors.New("retention removed it")

// removed tells whether retention removes a bundle, according to the anchors that there are now. An
// anchor is stored before anything is removed, so whoever misses something of the bundle finds it
// named there.
func (v *verifier) removed(evidenceID string) (bool, error) {
	if _, cut := v.cut[evidenceID]; cut || evidenceID == "" {
		return cut, nil
	}
	all, err := v.r.List(v.ctx, v.report.ProfileID)
	if err != nil {
		return false, err
	}
	err = v.anchors(slices.DeleteFunc(all, func(m Manifest) bool { return !m.IsAnchor() || v.checked[m.EvidenceID] }))
	_, cut := v.cut[evidenceID]
	return cut, err
}

// manifest reads the manifest of a bundle. problem is ErrNotFound or ErrDamaged if there is
// none that can be trusted; the damage is then in the findings, and m is what could be read.
// With compare, a hash other than the link's is a finding, too; by says what names the link.
// problem is errRemoved if retention removes the bundle with, of which this is one or a picture.
func (v *verifier) manifest(at Link, by string, compare bool, with string) (m Manifest, problem, err error) {
	raw, err := v.r.Manifest(v.ctx, at.EvidenceID)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) {
		if removed, failed := v.removed(with); removed || failed != nil {
			return m, errRemoved, failed
		}
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return m, err, nil
	case errors.Is(err, ErrDamaged):
		v.find(BundleChanged, at.EvidenceID, "", "%v", err)
		return m, err, nil
	case err != nil:
		return m, nil, err
	}
	m, problem = Decode(at.EvidenceID, raw)
	sum := sha256Hex(raw)
	v.sums[at.EvidenceID] = sum
	if compare && sum != at.SHA256 {
		v.find(BundleChanged, at.EvidenceID, "", "SHA-256 of the manifest is %s, %s says %s", sum, by, at.SHA256)
	} else if problem != nil {
		v.find(BundleChanged, at.EvidenceID, "", "%v", problem)
	}
	return m, problem, nil
}

// bundle checks what a bundle in the chain says and contains. at is the link to it.
func (v *verifier) bundle(m Manifest, at named) error {
	switch {
	case m.ProfileID != v.report.ProfileID:
		v.find(BundleReordered, m.EvidenceID, "", "it is evidence of profile %s", shortID(m.ProfileID))
	case at.before && m.LeaseToken > at.token:
		v.find(BundleReordered, m.EvidenceID, "", "lease token %d, and the bundle after it, %s, has %d", m.LeaseToken, at.by, at.token)
	}
	if err := v.parts(m, m.EvidenceID); err != nil {
		return err
	}
	for _, p := range m.Pictures {
		if err := v.picture(p, m); err != nil {
			return err
		}
	}
	if !m.IsAnchor() {
		v.next[m.PreviousEvidenceID] = append(v.next[m.PreviousEvidenceID], m.EvidenceID)
	}
	return nil
}

// picture checks a picture. by is the bundle that names it; zero for a listed picture that no
// bundle names.
func (v *verifier) picture(p Picture, by Manifest) error {
	if v.checked[p.EvidenceID] {
		return nil
	}
	v.checked[p.EvidenceID] = true
	named := by.EvidenceID != ""
	m, problem, err := v.manifest(Link{p.EvidenceID, p.ManifestSHA256}, by.EvidenceID, named, by.EvidenceID)
	switch {
	case err != nil:
		return err
	case errors.Is(problem, ErrNotFound) && named:
		v.find(BundleMissing, p.EvidenceID, "", "%s names it as a picture, and it is not there", by.EvidenceID)
		return nil
	case problem != nil:
		// Damage is a finding of the report. If the picture is gone, it was removed with its bundle
		// or, if no bundle names it, with its session after it was listed.
		return nil //nolint:nilerr
	case !m.IsPicture() || m.ProfileID != v.report.ProfileID:
		v.find(BundleReordered, m.EvidenceID, "", "it is no picture of this profile")
	case named && m.LeaseToken > by.LeaseToken:
		v.find(BundleReordered, m.EvidenceID, "", "lease token %d, and the bundle that names it, %s, has %d", m.LeaseToken, by.EvidenceID, by.LeaseToken)
	}
	return v.parts(m, by.EvidenceID)
}

// parts checks the parts of a bundle or of a picture. retention removes them together with the bundle
// with; if that is empty, it is a picture that no bundle names, which is removed with its session.
func (v *verifier) parts(m Manifest, with string) error {
	if v.skips != nil && v.skips(m) {
		return nil
	}
	v.report.Bundles++
	open, asked := v.opens(m), false
	for _, p := range m.Parts {
		if p.Missing != "" {
			continue
		}
		v.report.Parts++
		stored, err := readPart(v.ctx, v.r, m.EvidenceID, p)
		if err == nil && open {
			_, err = m.OpenPart(v.with, p.Name, stored)
		}
		if !asked && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged)) {
			asked = true
			if removed, failed := v.removed(with); removed || failed != nil {
				return failed
			}
		}
		switch {
		case errors.Is(err, ErrNotFound) && with == "":
			return nil // it was removed after it was listed
		case errors.Is(err, ErrNotFound):
			v.find(PartMissing, m.EvidenceID, p.Name, "%v", err)
		case errors.Is(err, ErrDamaged):
			v.find(PartChanged, m.EvidenceID, p.Name, "%v", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// opens tells whether the encrypted content of a bundle can be checked.
func (v *verifier) opens(m Manifest) bool {
	if !m.Encrypted() {
		return false
	}
	v.report.Encrypted++
	if v.with == nil {
		return false
	}
	_, err := m.Open(v.with)
	switch {
	case errors.Is(err, crypt.ErrNoKey):
		v.report.Locked = append(v.report.Locked, m.EvidenceID)
	case err != nil:
		v.find(BundleChanged, m.EvidenceID, "", "%v", err)
	}
	return err == nil
}

// unlinked checks the bundles to which the head did not lead.
func (v *verifier) unlinked(chain []Manifest) error {
	for _, m := range chain {
		if _, cut := v.cut[m.EvidenceID]; cut || v.checked[m.EvidenceID] {
			continue // it was cut off, and is about to be removed
		}
		v.report.Unlinked = append(v.report.Unlinked, m.EvidenceID)
		if err := v.follow(Link{EvidenceID: m.EvidenceID}, ""); err != nil {
			return err
		}
	}
	return nil
}

// anchors checks the chain of the anchors, newest first, and notes what the undamaged ones say. It may be
// called again with newer ones.
func (v *verifier) anchors(anchors []Manifest) error {
	for _, m := range anchors {
		if err := v.follow(Link{EvidenceID: m.EvidenceID}, ""); err != nil {
			return err
		}
	}
	off := cmp.Or(v.report.CutOff, &CutOff{})
	var read []string
	for _, m := range anchors {
		if slices.ContainsFunc(v.report.Findings, func(f Finding) bool { return f.EvidenceID == m.EvidenceID }) {
			continue // a damaged anchor proves nothing
		}
		list, err := readAnchor(v.ctx, v.r, m)
		switch {
		case errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged):
			v.find(PartChanged, m.EvidenceID, AnchorPart, "%v", err)
			continue
		case err != nil:
			return err
		}
		read = append(read, m.EvidenceID)
		v.takeCuts(m, list, off)
	}
	if len(read) > 0 {
		off.Anchors = append(read, off.Anchors...)
		v.report.CutOff = off
	}
	return nil
}

// takeCuts notes what an anchor says was removed, and adds it to the sum.
func (v *verifier) takeCuts(anchor Manifest, list AnchorList, off *CutOff) {
	for _, c := range list.Cut {
		if _, known := v.cut[c.EvidenceID]; known {
			continue // two launchers removed it, or one launcher in two rounds
		}
		v.cut[c.EvidenceID] = c
		off.Bundles++
		off.Bytes += c.Bytes
		if c.At.After(off.Newest) {
			off.Newest = c.At
		}
		if age := anchor.At.Sub(c.At); c.Why == CutAge && age.Seconds() <= list.MaxAgeSeconds {
			v.find(RetentionWrong, anchor.EvidenceID, "", "it says that %s was removed for its age, which was %v of %vs then", shortID(c.EvidenceID), age, list.MaxAgeSeconds)
		}
	}
}

// checkCutOrder finds a bundle that is older than one which was removed according to anchors:
// retention removes the oldest first.
func (v *verifier) checkCutOrder(chain []Manifest) {
	var newest Cut
	for _, c := range v.cut {
		if c.LeaseToken > newest.LeaseToken {
			newest = c
		}
	}
	for _, m := range chain {
		if _, cut := v.cut[m.EvidenceID]; !cut && m.LeaseToken < newest.LeaseToken {
			v.find(RetentionWrong, newest.EvidenceID, "", "an anchor says that retention removed it, and the older %s is still there: retention removes the oldest first", m.EvidenceID)
			return
		}
	}
}

// forks reports the bundles that several bundles name as the one before them, if the head does
// not lead to all of those.
func (v *verifier) forks() {
	loose := func(evidenceID string) bool { return !v.inChain[evidenceID] }
	for previous, bundles := range v.next {
		if len(bundles) > 1 && slices.ContainsFunc(bundles, loose) {
			slices.Sort(bundles)
			v.report.Forks = append(v.report.Forks, Fork{previous, bundles})
		}
	}
	slices.SortFunc(v.report.Forks, func(a, b Fork) int { return cmp.Compare(a.Previous, b.Previous) })
}
