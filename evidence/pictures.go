package evidence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"leasehold/evidence/crypt"
	"leasehold/evidence/redact"
	"leasehold/internal/id"
)

// A picture is a small bundle with one screenshot that is stored while its session lives: if
// the whole host is lost later, there is nothing else. It is sealed like any other bundle, but
// has no place in the profile's chain: the bundle that is made when the session is lost names
// the session's pictures by the hashes of their manifests. A picture that no bundle names is
// useless after its session, and is removed.

// PictureReason is the recovery_reason of pictures, and PicturePart is the name of their only
// part.
const (
	PictureReason = "picture"
	PicturePart   = "screenshot-1.jpg"
)

// PicturesPart is the part of a bundle that is missing if the pictures of its session could not be had when it was
// sealed.
const PicturesPart = "pictures"

// LacksPictures tells whether the pictures of the bundle's session could not be had when it was sealed. Then nothing
// names them.
func (m Manifest) LacksPictures() bool {
	return slices.ContainsFunc(m.Parts, func(p Part) bool { return p.Name == PicturesPart && p.Missing != "" })
}

// KeptPictures is how many of a session's pictures are kept: the newest ones. If none of these
// shows anything, the newest one that does is kept, too.
const KeptPictures = 3

// Picture names a sealed picture, and says what it shows.
type Picture struct {
	EvidenceID     string    `json:"evidence_id"`
	ManifestSHA256 string    `json:"manifest_sha256"`
	LeaseToken     uint64    `json:"lease_token"`
	At             time.Time `json:"at"`
	URL            string    `json:"url"`
	Step           string    `json:"step"`
	Checkpoint     string    `json:"checkpoint,omitempty"`
	// Missing says why there is no picture.
	Missing string `json:"missing,omitempty"`
}

// IsPicture tells whether a bundle is a picture.
func (m Manifest) IsPicture() bool { return m.RecoveryReason == PictureReason }

// inChain tells whether a bundle has a place in its profile's chain.
func (m Manifest) inChain() bool { return !m.IsAnchor() && !m.IsPicture() }

// picture describes a picture's bundle, whose manifest has this hash.
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

// SplitPictures returns which of a session's pictures, given oldest first, are kept, and which
// are not.
func SplitPictures(all []Picture) (kept, rest []Picture) {
	from := max(0, len(all)-KeptPictures)
	kept, rest = slices.Clone(all[from:]), slices.Clone(all[:from])
	if slices.ContainsFunc(kept, hasImage) {
		return kept, rest
	}
	for i := len(rest) - 1; i >= 0; i-- {
		if hasImage(rest[i]) {
			kept = slices.Insert(kept, 0, rest[i])
			return kept, slices.Delete(rest, i, i+1)
		}
	}
	return kept, rest
}

func hasImage(p Picture) bool { return p.Missing == "" }

// PutPicture seals a picture, which is a JPEG or the reason why it is missing, and stores it
// without the spool: if the store does not take it before ctx ends, it is lost. After an error
// of the store the Picture is returned, too, for DropPictures, since part of it may have been
// stored.
func (a *Archive) PutPicture(ctx context.Context, m Manifest, image []byte, missing string) (Picture, error) {
	s, p, err := sealPicture(m, image, missing, a.spool.keys.To)
	if err != nil {
		return Picture{}, err
	}
	if err := a.store.Put(ctx, s); err != nil {
		return p, fmt.Errorf("storing a picture: %w", err)
	}
	return p, nil
}

// sealPicture makes a picture's bundle in memory, encrypted unless to is nil, and describes
// it in clear.
func sealPicture(m Manifest, image []byte, missing string, to *crypt.Recipients) (*Sealed, Picture, error) {
	m.EvidenceID, m.RecoveryReason = id.New("pic"), PictureReason
	if err := checkName("profile id", m.ProfileID); err != nil {
		return nil, Picture{}, fmt.Errorf("picture: %w", err)
	}
	m.LastKnownURL = redact.URL(m.LastKnownURL)
	m.PreviousEvidenceID, m.PreviousManifestSHA256, m.LastScreenshot, m.Pages, m.Pictures = "", "", "", []PageResult{}, nil
	part := Part{Name: PicturePart, Kind: KindScreenshot, Missing: redact.Clip(missing, maxReason)}
	stored, err := encrypt(to, image)
	if err != nil {
		return nil, Picture{}, fmt.Errorf("picture: %w", err)
	}
	m.Parts = []Part{part}
	if missing == "" {
		part.MediaType, m.LastScreenshot = "image/jpeg", PicturePart
		m.Parts[0], part = part.with(image), part.with(stored)
	}
	clear := m
	if to != nil {
		if m, err = m.encrypted(to, []Part{part}); err != nil {
			return nil, Picture{}, fmt.Errorf("picture: %w", err)
		}
	}
	raw, err := encodeJSON(m, "  ")
	if err != nil {
		return nil, Picture{}, fmt.Errorf("picture: %w", err)
	}
	// A picture has no other part for which a store could ask.
	content := func(string) ([]byte, error) { return stored, nil }
	return &Sealed{Manifest: m, Raw: raw, part: content}, clear.picture(sha256Hex(raw)), nil
}

// DropPictures removes pictures from the store, even those that are only partly stored.
func (a *Archive) DropPictures(ctx context.Context, profileID string, pictures ...Picture) error {
	var errs []error
	for _, p := range pictures {
		errs = append(errs, a.store.Delete(ctx, Manifest{
			ProfileID: profileID, EvidenceID: p.EvidenceID, RecoveryReason: PictureReason, Parts: []Part{{Name: PicturePart}},
		}))
	}
	return errors.Join(errs...)
}

// Pictures returns the pictures of a profile's sessions that are in the store, for each session
// those that are kept; oldest first.
func (a *Archive) Pictures(ctx context.Context, profileID string, sessions ...string) ([]Picture, error) {
	list, err := a.store.List(ctx, profileID)
	if err != nil {
		return nil, fmt.Errorf("pictures of %s: %w", profileID, err)
	}
	slices.Reverse(list)
	bySession := map[string][]Picture{}
	for _, m := range list {
		if !m.IsPicture() || !slices.Contains(sessions, m.SessionID) {
			continue
		}
		raw, err := a.store.Manifest(ctx, m.EvidenceID)
		if errors.Is(err, ErrNotFound) {
			continue // it was removed after it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("pictures of %s: %w", profileID, err)
		}
		bySession[m.SessionID] = append(bySession[m.SessionID], m.picture(sha256Hex(raw)))
	}
	var pictures []Picture
	for _, all := range bySession {
		kept, _ := SplitPictures(all)
		pictures = append(pictures, kept...)
	}
	slices.SortFunc(pictures, func(a, b Picture) int { return a.At.Compare(b.At) })
	return pictures, nil
}
