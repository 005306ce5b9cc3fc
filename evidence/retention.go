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

// Retention says how long, and how much, evidence is kept. A zero field is no
// limit.
type Retention struct {
	MaxAge time.Duration
	// MaxBytes bounds the parts of all bundles of the store.
	MaxBytes int64
}

// The defaults of a sidecar.
const (
	DefaultMaxAge   = 90 * 24 * time.Hour
	DefaultMaxBytes = 20 << 30
)

// Why a bundle was cut off.
const (
	CutAge  = "age"
	CutSize = "size"
)

// Cut is a bundle that retention removes, as its anchor names it for good.
type Cut struct {
	EvidenceID             string    `json:"evidence_id"`
	ManifestSHA256         string    `json:"manifest_sha256"`
	LeaseToken             uint64    `json:"lease_token"`
	At                     time.Time `json:"at"`
	Bytes                  int64     `json:"bytes"`
	PreviousEvidenceID     string    `json:"previous_evidence_id"`
	PreviousManifestSHA256 string    `json:"previous_manifest_sha256"`
	Why                    string    `json:"why"` // age, size
}

// RetentionReason is the recovery_reason of anchors, and AnchorPart their one
// part: an AnchorList.
const (
	RetentionReason = "retention"
	AnchorPart      = "retention.json"
)

// AnchorList is what an anchor says: the limits that were in force, and what was
// cut off under them. It is written before anything is removed.
type AnchorList struct {
	MaxAgeSeconds float64 `json:"max_age_seconds"`
	MaxBytes      int64   `json:"max_bytes"`
	Cut           []Cut   `json:"cut"`
}

// IsAnchor tells whether a bundle is what retention left in the place of others.
// The anchors of a profile are a chain of their own; nothing removes them.
func (m Manifest) IsAnchor() bool { return m.RecoveryReason == RetentionReason }

func (m Manifest) bytes() int64 {
	var n int64
	for _, p := range m.Parts {
		n += p.Bytes
	}
	return n
}

// strayAge is how old a picture is that no bundle names and whose session is over
// before it is removed: the bundle that names it may still be in another host's spool.
const strayAge = 24 * time.Hour

// Strays returns the pictures of a store that nobody needs any more: no bundle
// names them, and living does not tell that their session goes on.
func Strays(bundles []Manifest, living func(sessionID string) bool, now time.Time) []Manifest {
	named := map[string]bool{}
	for _, m := range bundles {
		for _, p := range m.Pictures {
			named[p.EvidenceID] = true
		}
	}
	var strays []Manifest
	for _, m := range bundles {
		if m.IsPicture() && !named[m.EvidenceID] && !living(m.SessionID) && now.Sub(m.At) > strayAge {
			strays = append(strays, m)
		}
	}
	return strays
}

// Plan returns which of a store's bundles are to be removed now, oldest first.
// It cuts the old end of a profile's chain only, so that what stays is whole: a
// bundle that keep names, and the newest of its profile, stay with all that came
// after them, even past the limits. Anchors count, and stay; pictures go with the
// bundle that names them.
func (r Retention) Plan(bundles []Manifest, keep func(evidenceID string) bool, now time.Time) []Cut {
	var total int64
	profiles := map[string][]Manifest{}
	pictures := map[string]int64{}
	for _, m := range bundles {
		total += m.bytes()
		if m.IsPicture() {
			pictures[m.EvidenceID] = m.bytes()
		}
		if m.chained() {
			profiles[m.ProfileID] = append(profiles[m.ProfileID], m)
		}
	}
	// A bundle goes with the pictures that it names.
	size := func(m Manifest) int64 {
		n := m.bytes()
		for _, p := range m.Pictures {
			n += pictures[p.EvidenceID]
		}
		return n
	}
	var cuts []Cut
	cut := func(profileID, why string) {
		m := profiles[profileID][0]
		profiles[profileID] = profiles[profileID][1:]
		total -= size(m)
		cuts = append(cuts, Cut{
			EvidenceID: m.EvidenceID, LeaseToken: m.LeaseToken, At: m.At, Bytes: size(m), Why: why,
			PreviousEvidenceID: m.PreviousEvidenceID, PreviousManifestSHA256: m.PreviousManifestSHA256,
		})
	}
	may := func(profileID string) bool {
		list := profiles[profileID]
		return len(list) > 1 && !keep(list[0].EvidenceID)
	}
	for profileID, list := range profiles {
		Newest(list)
		slices.Reverse(list)
		for r.MaxAge > 0 && may(profileID) && now.Sub(profiles[profileID][0].At) > r.MaxAge {
			cut(profileID, CutAge)
		}
	}
	for r.MaxBytes > 0 && total > r.MaxBytes {
		oldest := ""
		for profileID, list := range profiles {
			if may(profileID) && (oldest == "" || older(list[0], profiles[oldest][0])) {
				oldest = profileID
			}
		}
		if oldest == "" {
			break // all that is left has to stay
		}
		cut(oldest, CutSize)
	}
	slices.SortFunc(cuts, func(a, b Cut) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.EvidenceID, b.EvidenceID)) })
	return cuts
}

func older(a, b Manifest) bool {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.EvidenceID, b.EvidenceID)) < 0
}

// Needs is what lease records say about evidence.
type Needs struct {
	// Profiles are those that have a record. Bundles of others are not this
	// launcher's to judge: they neither count nor go.
	Profiles map[string]bool
	// Evidence are the bundles that records name.
	Evidence map[string]bool
	// Sessions are those that are not over, by the records.
	Sessions map[string]bool
}

// Retained is what one round of retention did.
type Retained struct {
	Removed int   // bundles
	Bytes   int64 // of their parts
}

// Retain removes what r no longer keeps. What needed returns stays, whatever the
// limits, and so do bundles that are still in the spool. needed is asked after the bundles were listed, so that a
// record which comes to name an older one in between is seen; where it fails
// nothing is removed. For each profile an anchor that names what goes is stored
// first. Pictures go with the bundle that names them, and a while after their session
// where none does. What an error interrupts is finished by the next round. by names this
// launcher in the anchors.
func (a *Archive) Retain(ctx context.Context, r Retention, by string, needed func(context.Context) (Needs, error), now time.Time) (Retained, error) {
	var done Retained
	if r == (Retention{}) {
		return done, nil
	}
	waiting, err := a.spool.Sealed()
	if err != nil {
		return done, fmt.Errorf("retention: %w", err)
	}
	bundles, err := a.store.List(ctx, "")
	if err != nil {
		return done, fmt.Errorf("retention: %w", err)
	}
	needs, err := needed(ctx)
	if err != nil {
		return done, fmt.Errorf("retention: which evidence is needed: %w", err)
	}
	bundles = slices.DeleteFunc(bundles, func(m Manifest) bool { return !needs.Profiles[m.ProfileID] })
	cuts := r.Plan(bundles, func(evidenceID string) bool {
		return needs.Evidence[evidenceID] || slices.Contains(waiting, evidenceID)
	}, now)
	manifests := map[string]Manifest{}
	for _, m := range bundles {
		manifests[m.EvidenceID] = m
	}
	spooled, err := a.spool.List(ctx, "")
	if err != nil {
		return done, fmt.Errorf("retention: %w", err)
	}
	// Two bundles may name a picture: of the guard, and of who took the home for gone.
	stays := map[string]bool{}
	for _, m := range slices.Concat(bundles, spooled) {
		if !slices.ContainsFunc(cuts, func(c Cut) bool { return c.EvidenceID == m.EvidenceID }) {
			for _, p := range m.Pictures {
				stays[p.EvidenceID] = true
			}
		}
	}
	byProfile := map[string][]Cut{}
	for _, c := range cuts {
		profileID := manifests[c.EvidenceID].ProfileID
		byProfile[profileID] = append(byProfile[profileID], c)
	}
	var failed []error
	for profileID, cuts := range byProfile {
		if err := a.anchor(ctx, r, by, profileID, cuts, bundles, now); err != nil {
			failed = append(failed, fmt.Errorf("retention of %s: %w", profileID, err))
			continue
		}
		for _, c := range cuts {
			// Before the bundle: without it they would be nobody's.
			pictures := slices.DeleteFunc(slices.Clone(manifests[c.EvidenceID].Pictures), func(p Picture) bool { return stays[p.EvidenceID] })
			err := a.DropPictures(ctx, profileID, pictures...)
			if err == nil {
				err = a.store.Delete(ctx, manifests[c.EvidenceID])
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("retention of %s: %w", profileID, err))
				break // the next one would leave a hole
			}
			done.Removed++
			done.Bytes += c.Bytes
			a.log.Info().Str("profile", profileID).Uint64("token", c.LeaseToken).Str("evidence", c.EvidenceID).Str("why", c.Why).Msg("evidence removed by retention")
		}
	}
	for _, m := range Strays(slices.Concat(bundles, spooled), func(sessionID string) bool { return needs.Sessions[sessionID] }, now) {
		if err := a.store.Delete(ctx, m); err != nil {
			failed = append(failed, fmt.Errorf("retention of %s: %w", m.ProfileID, err))
			continue
		}
		done.Removed++
		done.Bytes += m.bytes()
		a.log.Info().Str("profile", m.ProfileID).Uint64("token", m.LeaseToken).Str("evidence", m.EvidenceID).Msg("picture of a session that is over removed")
	}
	return done, errors.Join(failed...)
}

// anchor stores what tells a reader that the bundles were removed by retention.
// It is a bundle itself, in the chain of the profile's anchors.
func (a *Archive) anchor(ctx context.Context, r Retention, by, profileID string, cuts []Cut, bundles []Manifest, now time.Time) error {
	told, last, lastSum, err := a.anchored(ctx, profileID, bundles)
	if err != nil {
		return err
	}
	list := AnchorList{MaxAgeSeconds: r.MaxAge.Seconds(), MaxBytes: r.MaxBytes, Cut: []Cut{}}
	token := last.LeaseToken // so that anchors, too, are in the order of their tokens
	for _, c := range cuts {
		if told[c.EvidenceID] {
			continue // by a round that did not come to its end
		}
		raw, err := a.store.Manifest(ctx, c.EvidenceID)
		if err != nil {
			return err
		}
		c.ManifestSHA256 = sha256Hex(raw)
		token = max(token, c.LeaseToken)
		list.Cut = append(list.Cut, c)
	}
	if len(list.Cut) == 0 {
		return nil
	}
	content, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	b, err := a.New(Manifest{
		ProfileID: profileID, LauncherID: by, LeaseToken: token, At: now.UTC(), RecoveryReason: RetentionReason,
		PreviousEvidenceID: last.EvidenceID, PreviousManifestSHA256: lastSum,
	})
	if err != nil {
		return err
	}
	if err := b.Add(AnchorPart, KindRetention, "application/json", append(content, '\n')); err != nil {
		return errors.Join(err, b.Discard())
	}
	if _, _, err := b.Seal(); err != nil {
		return errors.Join(err, b.Discard())
	}
	return a.upload(ctx, b.ID())
}

// anchored returns what the profile's anchors name, and the newest anchor with
// the hash of its manifest.
func (a *Archive) anchored(ctx context.Context, profileID string, bundles []Manifest) (told map[string]bool, last Manifest, sum string, err error) {
	told = map[string]bool{}
	for _, m := range bundles { // the newest first
		if m.ProfileID != profileID || !m.IsAnchor() {
			continue
		}
		if last.EvidenceID == "" {
			raw, err := a.store.Manifest(ctx, m.EvidenceID)
			if err != nil {
				return nil, last, "", err
			}
			last, sum = m, sha256Hex(raw)
		}
		list, err := readAnchor(ctx, a.store, m)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) {
			continue // Verify finds it
		}
		if err != nil {
			return nil, last, "", err
		}
		for _, c := range list.Cut {
			told[c.EvidenceID] = true
		}
	}
	return told, last, sum, nil
}

// readAnchor returns what an anchor says, if it is what was sealed.
func readAnchor(ctx context.Context, r Reader, m Manifest) (AnchorList, error) {
	var list AnchorList
	i := slices.IndexFunc(m.Parts, func(p Part) bool { return p.Name == AnchorPart && p.Missing == "" })
	if i < 0 {
		return list, fmt.Errorf("evidence %s: part %s: %w", m.EvidenceID, AnchorPart, ErrNotFound)
	}
	content, err := checkedPart(ctx, r, m.EvidenceID, m.Parts[i])
	if err == nil && json.Unmarshal(content, &list) != nil {
		err = fmt.Errorf("evidence %s: part %s: %w: it is not JSON", m.EvidenceID, AnchorPart, ErrDamaged)
	}
	return list, err
}
