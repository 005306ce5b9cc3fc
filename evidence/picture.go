package evidence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"leasehold/evidence/redact"
	"leasehold/internal/id"
)

// A picture is a small bundle of one screenshot that is stored while its session
// lives: where the whole host is lost later, it is what there is. It is sealed like
// any other, and stands in no chain: the bundle of a loss names the pictures that it
// goes with, by the hashes of their manifests. One that no bundle names says nothing
// once its session is over, and is removed.

// PictureReason is the recovery_reason of pictures, and PicturePart their one part.
const (
	PictureReason = "picture"
	PicturePart   = "screenshot-1.jpg"
)

// KeptPictures is how many of a session's pictures are kept, besides the newest
// that shows something where none of these does.
const KeptPictures = 3

// Picture names a sealed picture, and says what it is of.
type Picture struct {
	EvidenceID     string    `json:"evidence_id"`
	ManifestSHA256 string    `json:"manifest_sha256"`
	LeaseToken     uint64    `json:"lease_token"`
	At             time.Time `json:"at"`
	URL            string    `json:"url"`
	Step           string    `json:"step"`
	Checkpoint     string    `json:"checkpoint,omitempty"`
	// Missing says why it shows nothing.
	Missing string `json:"missing,omitempty"`
}

// IsPicture tells whether a bundle is a picture.
func (m Manifest) IsPicture() bool { return m.RecoveryReason == PictureReason }

// chained tells whether a bundle has a place in its profile's chain.
func (m Manifest) chained() bool { return !m.IsAnchor() && !m.IsPicture() }

func (m Manifest) picture(sum string) Picture {
	p := Picture{
		EvidenceID: m.EvidenceID, ManifestSHA256: sum, LeaseToken: m.LeaseToken, At: m.At,
		URL: m.LastKnownURL, Step: m.LastKnownStep, Checkpoint: m.Checkpoint,
	}
	for _, part := range m.Parts {
		p.Missing = part.Missing
	}
	return p
}

// SplitPictures returns which of a session's pictures, the oldest first, are kept,
// and which are not.
func SplitPictures(all []Picture) (kept, rest []Picture) {
	from := max(0, len(all)-KeptPictures)
	kept, rest = slices.Clone(all[from:]), slices.Clone(all[:from])
	if slices.ContainsFunc(kept, shows) {
		return kept, rest
	}
	for i := len(rest) - 1; i >= 0; i-- {
		if shows(rest[i]) {
			kept = slices.Insert(kept, 0, rest[i])
			return kept, slices.Delete(rest, i, i+1)
		}
	}
	return kept, rest
}

func shows(p Picture) bool { return p.Missing == "" }

// PutPicture seals a picture and stores it, without the spool: one that the store
// does not take within ctx is not there. What it returns names the picture also where
// it may be there in part, for DropPictures.
func (a *Archive) PutPicture(ctx context.Context, m Manifest, image []byte, missing string) (Picture, error) {
	s, sum, err := sealPicture(m, image, missing)
	if err != nil {
		return Picture{}, err
	}
	p := s.Manifest.picture(sum)
	if err := a.store.Put(ctx, s); err != nil {
		return p, fmt.Errorf("storing a picture: %w", err)
	}
	return p, nil
}

func sealPicture(m Manifest, image []byte, missing string) (*Sealed, string, error) {
	m.EvidenceID, m.RecoveryReason = id.New("pic"), PictureReason
	if err := checkName("profile id", m.ProfileID); err != nil {
		return nil, "", fmt.Errorf("picture: %w", err)
	}
	m.LastKnownURL = redact.URL(m.LastKnownURL)
	m.PreviousEvidenceID, m.PreviousManifestSHA256, m.LastScreenshot, m.Pages, m.Pictures = "", "", "", []PageResult{}, nil
	part := Part{Name: PicturePart, Kind: KindScreenshot, Missing: redact.Clip(missing, 500)}
	if missing == "" {
		part.MediaType, part.Bytes, part.SHA256 = "image/jpeg", int64(len(image)), sha256Hex(image)
		m.LastScreenshot = PicturePart
	}
	m.Parts = []Part{part}
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, "", fmt.Errorf("picture: %w", err)
	}
	raw = append(raw, '\n')
	return &Sealed{Manifest: m, Raw: raw, memory: map[string][]byte{PicturePart: image}}, sha256Hex(raw), nil
}

// DropPictures removes pictures from the store, or what there is of them.
func (a *Archive) DropPictures(ctx context.Context, profileID string, pictures ...Picture) error {
	var errs []error
	for _, p := range pictures {
		errs = append(errs, a.store.Delete(ctx, Manifest{
			ProfileID: profileID, EvidenceID: p.EvidenceID, RecoveryReason: PictureReason, Parts: []Part{{Name: PicturePart}},
		}))
	}
	return errors.Join(errs...)
}

// Pictures returns which pictures of a profile's sessions the store has, of each
// session those that are kept; the oldest first.
func (a *Archive) Pictures(ctx context.Context, profileID string, sessions ...string) ([]Picture, error) {
	list, err := a.store.List(ctx, profileID)
	if err != nil {
		return nil, fmt.Errorf("pictures of %s: %w", profileID, err)
	}
	slices.Reverse(list)
	of := map[string][]Picture{}
	for _, m := range list {
		if !m.IsPicture() || !slices.Contains(sessions, m.SessionID) {
			continue
		}
		raw, err := a.store.Manifest(ctx, m.EvidenceID)
		if errors.Is(err, ErrNotFound) {
			continue // dropped since
		}
		if err != nil {
			return nil, fmt.Errorf("pictures of %s: %w", profileID, err)
		}
		of[m.SessionID] = append(of[m.SessionID], m.picture(sha256Hex(raw)))
	}
	var all []Picture
	for _, pictures := range of {
		kept, _ := SplitPictures(pictures)
		all = append(all, kept...)
	}
	slices.SortFunc(all, func(a, b Picture) int { return a.At.Compare(b.At) })
	return all, nil
}

// SetPictures names the pictures that the bundle goes with. It does nothing to one
// that is sealed, or nil.
func (b *Bundle) SetPictures(pictures []Picture) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed == "" {
		b.m.Pictures = pictures
	}
}
