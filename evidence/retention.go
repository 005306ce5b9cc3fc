package evidence

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Retention says how long, and how much, evidence is kept. A zero field is no limit.
type Retention struct {
	MaxAge time.Duration
	// MaxBytes bounds the parts of all bundles of the store.
	MaxBytes int64
}

// Why a bundle is removed.
const (
	CutAge  = "age"
	CutSize = "size"
)

// Cut is a bundle that retention removes. Its anchor keeps this for ever.
type Cut struct {
	EvidenceID             string    `json:"evidence_id"`
	ManifestSHA256         string    `json:"manifest_sha256"`
	LeaseToken             uint64    `json:"lease_token"`
	At                     time.Time `json:"at"`
	Bytes                  int64     `json:"bytes"`
	PreviousEvidenceID     string    `json:"previous_evidence_id"`
	PreviousManifestSHA256 string    `json:"previous_manifest_sha256"`
	AlsoFollows            []Link    `json:"also_follows,omitempty"`
	Why                    string    `json:"why"` // age, size
}

// RetentionReason is the recovery_reason of anchors, and AnchorPart is their only part: an
// AnchorList.
const (
	RetentionReason = "retention"
	AnchorPart      = "retention.json"
)

// AnchorList is the content of an anchor: the limits that were in force, and what was removed
// because of them. It is stored before anything is removed.
type AnchorList struct {
	MaxAgeSeconds float64 `json:"max_age_seconds"`
	MaxBytes      int64   `json:"max_bytes"`
	Cut           []Cut   `json:"cut"`
}

// IsAnchor tells whether a bundle is an anchor, which retention leaves in the place of the
// bundles that it removes. The anchors of a profile are a chain of their own; nothing removes
// them.
func (m Manifest) IsAnchor() bool { return m.RecoveryReason == RetentionReason }

// bytes is the size of a bundle's parts.
func (m Manifest) bytes() int64 {
	var n int64
	for _, p := range m.Parts {
		n += p.Bytes
	}
	return n
}

// strayAge is the least age at which a picture that no bundle names is removed, even if its
// session is over: the bundle that names it may not be sealed yet.
const strayAge = 24 * time.Hour

// strayPictures returns those of the pictures that are no longer needed: no bundle names them, their session is
// not living, no later bundle of their profile says that it could not have them, and no bundle of their profile is
// elsewhere, which may name them. Such a bundle may never come, so they are not kept for it when they are older than
// maxAge, which is not limited if it is zero.
func strayPictures(bundles []Manifest, needs Needs, maxAge time.Duration, now time.Time) []Manifest {
	named, away := map[string]bool{}, elsewhere(bundles, needs.Evidence)
	lacking := map[string]time.Time{} // the last bundle that lacks pictures, by profile
	for _, m := range bundles {
		if m.LacksPictures() && m.At.After(lacking[m.ProfileID]) {
			lacking[m.ProfileID] = m.At
		}
		for _, p := range m.Pictures {
			named[p.EvidenceID] = true
		}
	}
	var strays []Manifest
	for _, m := range bundles {
		age := now.Sub(m.At)
		awaited := away[m.ProfileID] && (maxAge == 0 || age <= maxAge)
		if m.IsPicture() && !named[m.EvidenceID] && !needs.Sessions[m.SessionID] && !awaited && age > strayAge && m.At.After(lacking[m.ProfileID]) {
			strays = append(strays, m)
		}
	}
	return strays
}

// elsewhere are the profiles of which a record or a bundle names a bundle that is not among these: it may wait
// in the spool of a host that is away. needed are the bundles that records name, with their profiles.
func elsewhere(bundles []Manifest, needed map[string]string) map[string]bool {
	there, cut, seen, away := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range bundles {
		there[m.EvidenceID] = true
		cut[m.ProfileID] = cut[m.ProfileID] || m.IsAnchor()
	}
	for evidenceID, profileID := range needed {
		away[profileID] = away[profileID] || !there[evidenceID]
	}
	ordered := slices.Clone(bundles)
	Newest(ordered)
	for _, m := range slices.Backward(ordered) {
		if !m.inChain() {
			continue
		}
		// What the oldest one of a profile names was removed, if anything was.
		for _, l := range m.follows() {
			if !there[l.EvidenceID] && (seen[m.ProfileID] || !cut[m.ProfileID]) {
				away[m.ProfileID] = true
			}
		}
		seen[m.ProfileID] = true
	}
	return away
}

// Plan returns the bundles of a store that have to be removed now, oldest first. It cuts only
// the old end of a profile's chain, so that the rest is whole: a bundle for which keep returns
// true, and the newest one of its profile, stay with everything that came after them, even if
// that exceeds the limits. Anchors count, and stay. Pictures are removed with the bundle that
// names them.
func (r Retention) Plan(bundles []Manifest, keep func(evidenceID string) bool, now time.Time) []Cut {
	p := newPlan(bundles, keep)
	for profileID := range p.chains {
		for r.MaxAge > 0 && p.canCut(profileID) && now.Sub(p.chains[profileID][0].At) > r.MaxAge {
			p.cut(profileID, CutAge)
		}
	}
	for r.MaxBytes > 0 && p.bytes > r.MaxBytes {
		profileID := p.oldest()
		if profileID == "" {
			break // everything that is left has to stay
		}
		p.cut(profileID, CutSize)
	}
	slices.SortFunc(p.cuts, func(a, b Cut) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.EvidenceID, b.EvidenceID)) })
	return p.cuts
}

// plan is what a store has left after the cuts.
type plan struct {
	keep         func(evidenceID string) bool
	chains       map[string][]Manifest // by profile, the oldest bundle first
	pictureBytes map[string]int64      // by evidence id
	bytes        int64                 // of all bundles
	cuts         []Cut
}

func newPlan(bundles []Manifest, keep func(evidenceID string) bool) *plan {
	p := &plan{keep: keep, chains: map[string][]Manifest{}, pictureBytes: map[string]int64{}}
	for _, m := range bundles {
		p.bytes += m.bytes()
		if m.IsPicture() {
			p.pictureBytes[m.EvidenceID] = m.bytes()
		}
		if m.inChain() {
			p.chains[m.ProfileID] = append(p.chains[m.ProfileID], m)
		}
	}
	for _, chain := range p.chains {
		Newest(chain)
		slices.Reverse(chain)
	}
	return p
}

// canCut tells whether the oldest bundle of a profile may be removed.
func (p *plan) canCut(profileID string) bool {
	chain := p.chains[profileID]
	return len(chain) > 1 && !p.keep(chain[0].EvidenceID)
}

// cut removes the oldest bundle of a profile, with the pictures that it names.
func (p *plan) cut(profileID, reason string) {
	m := p.chains[profileID][0]
	p.chains[profileID] = p.chains[profileID][1:]
	size := m.bytes()
	for _, picture := range m.Pictures {
		size += p.pictureBytes[picture.EvidenceID]
	}
	p.bytes -= size
	p.cuts = append(p.cuts, Cut{
		EvidenceID: m.EvidenceID, LeaseToken: m.LeaseToken, At: m.At, Bytes: size, Why: reason,
		PreviousEvidenceID: m.PreviousEvidenceID, PreviousManifestSHA256: m.PreviousManifestSHA256, AlsoFollows: m.AlsoFollows,
	})
}

// oldest returns the profile with the oldest bundle that may be removed; empty if there is
// none.
func (p *plan) oldest() string {
	oldest := ""
	for profileID, chain := range p.chains {
		if p.canCut(profileID) && (oldest == "" || isOlder(chain[0], p.chains[oldest][0])) {
			oldest = profileID
		}
	}
	return oldest
}

func isOlder(a, b Manifest) bool {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.EvidenceID, b.EvidenceID)) < 0
}

// Needs is what lease records say about evidence.
type Needs struct {
	// Profiles are those that have a record. This launcher does not judge bundles of other
	// profiles: they neither count nor are removed.
	Profiles map[string]bool
	// Evidence are the bundles that records name, each with its profile.
	Evidence map[string]string
	// Sessions are those that are not over, according to the records.
	Sessions map[string]bool
	// Heads are the profiles whose next bundle is made here, with the bundles that their records
	// name.
	Heads map[string]Link
}

// Retained is what one round of retention did.
type Retained struct {
	Removed int   // bundles
	Bytes   int64 // of their parts
}

// Retain removes what r no longer keeps. It also remembers the bundles that nothing names, such as
// those of another launcher whose step was overtaken: the profile's next bundle names them.
//
// What needed returns stays whatever the limits are, and so do bundles that are still in the
// spool, with all that came after them. needed is called after the bundles were listed, so that a
// record is noticed which meanwhile comes to name an older bundle; if it fails, nothing is removed. Before bundles of a
// profile are removed, an anchor that names them is stored. Pictures are removed with the bundle
// that names them; a picture that no bundle names is removed a day after it was taken, if its
// session is over and all bundles of its profile are known. If an error interrupts a round, the next one finishes it. by names this
// launcher in the anchors.
func (a *Archive) Retain(ctx context.Context, r Retention, by string, needed func(context.Context) (Needs, error), now time.Time) (Retained, error) {
	round, err := a.retention(ctx, r, by, needed, now)
	if err != nil {
		return Retained{}, fmt.Errorf("retention: %w", err)
	}
	failed := []error{round.owed}
	for profileID, cuts := range round.cuts {
		if err := round.removeCuts(ctx, profileID, cuts); err != nil {
			failed = append(failed, fmt.Errorf("retention of %s: %w", profileID, err))
		}
	}
	for _, m := range round.strays {
		if err := round.removeStray(ctx, m); err != nil {
			failed = append(failed, fmt.Errorf("retention of %s: %w", m.ProfileID, err))
		}
	}
	return round.done, errors.Join(failed...)
}

type retentionRound struct {
	archive    *Archive
	limits     Retention
	launcherID string
	now        time.Time

	bundles   []Manifest          // what the store has of profiles with a record
	manifests map[string]Manifest // the same, by evidence id
	cuts      map[string][]Cut    // what is removed, by profile, oldest first
	kept      map[string]bool     // pictures that a bundle which stays names
	strays    []Manifest          // pictures that are removed by themselves
	owed      error               // why not all bundles that nothing names are remembered
	done      Retained
}

// retention reads what exists and what is needed, and works out what has to be removed.
func (a *Archive) retention(ctx context.Context, r Retention, by string, needed func(context.Context) (Needs, error), now time.Time) (*retentionRound, error) {
	// The spool is read first: what moves to the store meanwhile is then in the list of the store, too.
	waiting, err := a.spool.List(ctx, "")
	if err != nil {
		return nil, err
	}
	bundles, err := a.store.List(ctx, "")
	if err != nil {
		return nil, err
	}
	needs, err := needed(ctx)
	if err != nil {
		return nil, fmt.Errorf("which evidence is needed: %w", err)
	}
	owed := a.oweStrays(ctx, bundles, needs.Heads)
	if r == (Retention{}) {
		return &retentionRound{owed: owed}, nil
	}
	spooled, err := a.spool.List(ctx, "")
	if err != nil {
		return nil, err
	}
	bundles = slices.DeleteFunc(bundles, func(m Manifest) bool { return !needs.Profiles[m.ProfileID] })
	round := &retentionRound{
		archive: a, limits: r, launcherID: by, now: now, bundles: bundles, owed: owed,
		manifests: map[string]Manifest{}, cuts: map[string][]Cut{}, kept: map[string]bool{},
		strays: strayPictures(slices.Concat(bundles, waiting, spooled), needs, r.MaxAge, now),
	}
	for _, m := range bundles {
		round.manifests[m.EvidenceID] = m
	}
	oldest := map[string]uint64{} // the token of the oldest bundle that waits, by profile
	for _, m := range slices.Concat(waiting, spooled) {
		if token, known := oldest[m.ProfileID]; m.inChain() && (!known || m.LeaseToken < token) {
			oldest[m.ProfileID] = m.LeaseToken
		}
	}
	removed := map[string]bool{}
	for _, c := range r.Plan(bundles, func(evidenceID string) bool {
		m := round.manifests[evidenceID]
		token, waits := oldest[m.ProfileID]
		_, needed := needs.Evidence[evidenceID]
		return needed || waits && m.LeaseToken >= token
	}, now) {
		removed[c.EvidenceID] = true
		profileID := round.manifests[c.EvidenceID].ProfileID
		round.cuts[profileID] = append(round.cuts[profileID], c)
	}
	// Two bundles may name the same picture: the guard's, and that of the launcher which found
	// that the home was gone.
	for _, m := range slices.Concat(bundles, spooled) {
		if removed[m.EvidenceID] {
			continue
		}
		for _, p := range m.Pictures {
			round.kept[p.EvidenceID] = true
		}
	}
	return round, nil
}

// removeCuts stores an anchor for the bundles of a profile that are to be removed, and removes
// them.
func (r *retentionRound) removeCuts(ctx context.Context, profileID string, cuts []Cut) error {
	if err := r.storeAnchor(ctx, profileID, cuts); err != nil {
		return err
	}
	for _, c := range cuts {
		m := r.manifests[c.EvidenceID]
		// The pictures are removed first: without the bundle nothing would name them.
		pictures := slices.DeleteFunc(slices.Clone(m.Pictures), func(p Picture) bool { return r.kept[p.EvidenceID] })
		if err := r.archive.DropPictures(ctx, profileID, pictures...); err != nil {
			return err
		}
		if err := r.archive.store.Delete(ctx, m); err != nil {
			return err // removing a newer one would leave a gap in the chain
		}
		r.done.Removed++
		r.done.Bytes += c.Bytes
		r.archive.log.Info().Str("profile", profileID).Uint64("token", c.LeaseToken).Str("evidence", c.EvidenceID).Str("why", c.Why).Msg("evidence removed by retention")
	}
	return nil
}

func (r *retentionRound) removeStray(ctx context.Context, m Manifest) error {
	if err := r.archive.store.Delete(ctx, m); err != nil {
		return err
	}
	r.done.Removed++
	r.done.Bytes += m.bytes()
	r.archive.log.Info().Str("profile", m.ProfileID).Uint64("token", m.LeaseToken).Str("evidence", m.EvidenceID).Msg("picture of a session that is over removed")
	return nil
}

// storeAnchor stores what tells a reader that retention removed the bundles: a bundle in the
// chain of the profile's anchors. Bundles that an earlier anchor names already, because its
// round did not finish, are not named again.
func (r *retentionRound) storeAnchor(ctx context.Context, profileID string, cuts []Cut) error {
	anchored, newest, last, lastSum, err := r.readAnchors(ctx, profileID)
	if err != nil {
		return err
	}
	if err := r.removeRests(ctx, profileID, newest); err != nil {
		return err
	}
	cuts, err = r.withHashes(ctx, slices.DeleteFunc(slices.Clone(cuts), func(c Cut) bool { return anchored[c.EvidenceID] }))
	if err != nil || len(cuts) == 0 {
		return err
	}
	list := AnchorList{MaxAgeSeconds: r.limits.MaxAge.Seconds(), MaxBytes: r.limits.MaxBytes, Cut: cuts}
	token := last.LeaseToken // so that anchors are in the order of their tokens, too
	for _, c := range cuts {
		token = max(token, c.LeaseToken)
	}
	content, err := encodeJSON(list, "  ")
	if err != nil {
		return err
	}
	b, err := r.archive.New(Manifest{
		ProfileID: profileID, LauncherID: r.launcherID, LeaseToken: token, At: r.now.UTC(), RecoveryReason: RetentionReason,
		PreviousEvidenceID: last.EvidenceID, PreviousManifestSHA256: lastSum,
	})
	if err != nil {
		return err
	}
	if err := b.Add(AnchorPart, KindRetention, "application/json", content); err != nil {
		return errors.Join(err, b.Discard())
	}
	if _, _, err := b.Seal(); err != nil {
		return errors.Join(err, b.Discard())
	}
	return r.archive.upload(ctx, b.ID())
}

// removeRests removes what may be left of bundles that the newest anchor names: if their removal was cut
// short, their manifests may be there without being listed.
func (r *retentionRound) removeRests(ctx context.Context, profileID string, newest []Cut) error {
	for _, c := range newest {
		if _, listed := r.manifests[c.EvidenceID]; listed {
			continue
		}
		if err := r.archive.store.Delete(ctx, Manifest{ProfileID: profileID, EvidenceID: c.EvidenceID}); err != nil {
			return err
		}
	}
	return nil
}

func (r *retentionRound) withHashes(ctx context.Context, cuts []Cut) ([]Cut, error) {
	for i := range cuts {
		raw, err := r.archive.store.Manifest(ctx, cuts[i].EvidenceID)
		if err != nil {
			return nil, err
		}
		cuts[i].ManifestSHA256 = sha256Hex(raw)
	}
	return cuts, nil
}

// readAnchors returns the bundles that the profile's anchors name, those of the newest anchor, and that
// anchor with the hash of its manifest.
func (r *retentionRound) readAnchors(ctx context.Context, profileID string) (anchored map[string]bool, newest []Cut, last Manifest, sum string, err error) {
	store := r.archive.store
	anchored = map[string]bool{}
	for _, m := range r.bundles { // the newest first
		if m.ProfileID != profileID || !m.IsAnchor() {
			continue
		}
		if last.EvidenceID == "" {
			raw, err := store.Manifest(ctx, m.EvidenceID)
			if err != nil {
				return nil, nil, last, "", err
			}
			last, sum = m, sha256Hex(raw)
		}
		list, err := readAnchor(ctx, store, m)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) {
			continue // Verify reports it
		}
		if err != nil {
			return nil, nil, last, "", err
		}
		if m.EvidenceID == last.EvidenceID {
			newest = list.Cut
		}
		for _, c := range list.Cut {
			anchored[c.EvidenceID] = true
		}
	}
	return anchored, newest, last, sum, nil
}

// readAnchor returns the content of an anchor, or ErrNotFound or ErrDamaged if it is not what
// was sealed.
func readAnchor(ctx context.Context, r Reader, m Manifest) (AnchorList, error) {
	var list AnchorList
	i := slices.IndexFunc(m.Parts, func(p Part) bool { return p.Name == AnchorPart && p.Missing == "" })
	if i < 0 {
		return list, fmt.Errorf("evidence %s: part %s: %w", m.EvidenceID, AnchorPart, ErrNotFound)
	}
	content, err := readPart(ctx, r, m.EvidenceID, m.Parts[i])
	if err == nil && json.Unmarshal(content, &list) != nil {
		err = fmt.Errorf("evidence %s: part %s: %w: it is not JSON", m.EvidenceID, AnchorPart, ErrDamaged)
	}
	return list, err
}
