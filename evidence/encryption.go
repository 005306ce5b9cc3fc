package evidence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"leasehold/evidence/crypt"
)

// Evidence can be encrypted at rest. The parts are then age files, in the spool and in every
// store, and the manifest shows only what the chain, retention and the recovery need: ids,
// token, times, the reason, and for each part its name, kind, and the size and hash of what is
// stored. Everything else, which is the manifest as it would be in clear, is encrypted inside
// it. So all hashes are over what is stored, and Verify needs no key. Anchors of retention have
// nothing else, and are never encrypted.

// Encryption says that a bundle is encrypted.
type Encryption struct {
	Format string `json:"format"` // age
	// Recipients are the public keys of those who can read the bundle.
	Recipients []string `json:"recipients"`
	// Manifest is an age file: the JSON of the manifest in clear, in which the parts have the
	// size and the hash of their content.
	Manifest []byte `json:"manifest"`
}

// StateChange is the answer of Changed about the time from a grant to the bundle.
type StateChange struct {
	Answer string `json:"answer"`
	// How is empty in an encrypted bundle, since it names domains.
	How string `json:"how,omitempty"`
}

// Keys are the recipients for whom a launcher encrypts evidence, and the identities with which
// it can open some. The zero value encrypts nothing.
type Keys struct {
	To   *crypt.Recipients
	With *crypt.Identities
}

// encryptedReason is what an encrypted bundle shows instead of the reason why a part or a
// picture is missing.
const encryptedReason = "the reason is encrypted"

// encrypted returns the manifest of an encrypted bundle from the one in clear, with the
// parts as they are stored.
func (m Manifest) encrypted(to *crypt.Recipients, stored []Part) (Manifest, error) {
	clear, err := json.Marshal(m)
	if err != nil {
		return Manifest{}, err
	}
	hidden, err := to.Encrypt(clear)
	if err != nil {
		return Manifest{}, err
	}
	out := Manifest{
		EvidenceID: m.EvidenceID, ProfileID: m.ProfileID, SessionID: m.SessionID, LauncherID: m.LauncherID, At: m.At,
		LeaseToken: m.LeaseToken, LastHeartbeatAt: m.LastHeartbeatAt, DetectedStaleAt: m.DetectedStaleAt,
		LastScreenshot: m.LastScreenshot, RecoveryReason: m.RecoveryReason,
		PreviousEvidenceID: m.PreviousEvidenceID, PreviousManifestSHA256: m.PreviousManifestSHA256, AlsoFollows: m.AlsoFollows,
		Pages: []PageResult{}, Parts: []Part{},
		Encryption: &Encryption{Format: crypt.Format, Recipients: to.Names(), Manifest: hidden},
	}
	if m.StateChanged != nil {
		out.StateChanged = &StateChange{Answer: m.StateChanged.Answer}
	}
	for _, f := range m.Found {
		f.How = ""
		out.Found = append(out.Found, f)
	}
	for _, p := range m.Pictures {
		p.URL, p.Step, p.Checkpoint = "", "", ""
		if p.Missing != "" {
			p.Missing = encryptedReason
		}
		out.Pictures = append(out.Pictures, p)
	}
	for _, p := range stored {
		if p.Missing != "" {
			p.Missing = encryptedReason
		}
		out.Parts = append(out.Parts, p)
	}
	return out, nil
}

// encrypt returns the content as it is stored.
func encrypt(to *crypt.Recipients, content []byte) ([]byte, error) {
	if to == nil {
		return content, nil
	}
	return to.Encrypt(content)
}

// Encrypted tells whether a bundle is encrypted.
func (m Manifest) Encrypted() bool { return m.Encryption != nil }

// Open returns the manifest in clear. A manifest that is not encrypted is returned as it is.
// The error is crypt.ErrNoKey if no identity opens it, and ErrDamaged if what is encrypted in
// it is not about the same bundle.
func (m Manifest) Open(with *crypt.Identities) (Manifest, error) {
	if !m.Encrypted() {
		return m, nil
	}
	plain, err := with.Decrypt(m.Encryption.Manifest)
	if err != nil {
		return Manifest{}, m.cannotOpen("its manifest", err)
	}
	clear, err := Decode(m.EvidenceID, plain)
	if err != nil {
		return Manifest{}, fmt.Errorf("what is encrypted: %w", err)
	}
	samePart := func(a, b Part) bool {
		return a.Name == b.Name && a.Kind == b.Kind && a.MediaType == b.MediaType && (a.Missing != "") == (b.Missing != "")
	}
	if clear.Encrypted() || clear.ProfileID != m.ProfileID || clear.SessionID != m.SessionID || clear.LeaseToken != m.LeaseToken ||
		clear.previous() != m.previous() || !slices.Equal(clear.AlsoFollows, m.AlsoFollows) || !slices.EqualFunc(clear.Parts, m.Parts, samePart) {
		return Manifest{}, fmt.Errorf("evidence %s: %w: what is encrypted in its manifest is about another bundle", m.EvidenceID, ErrDamaged)
	}
	return clear, nil
}

// OpenPart returns the content of a part from what is stored of it, given the manifest as it
// was sealed. Both may be in clear.
func (m Manifest) OpenPart(with *crypt.Identities, name string, stored []byte) ([]byte, error) {
	i := slices.IndexFunc(m.Parts, func(p Part) bool { return p.Name == name && p.Missing == "" })
	if i < 0 {
		return nil, fmt.Errorf("evidence %s: part %q: %w", m.EvidenceID, shortID(name), ErrNotFound)
	}
	if !m.Encrypted() {
		return stored, nil
	}
	clear, err := m.Open(with)
	if err != nil {
		return nil, err
	}
	plain, err := with.Decrypt(stored)
	if err != nil {
		return nil, m.cannotOpen("part "+name, err)
	}
	if sum := sha256Hex(plain); sum != clear.Parts[i].SHA256 {
		return nil, fmt.Errorf("evidence %s: part %s: %w: SHA-256 of its content is %s, the encrypted manifest says %s", m.EvidenceID, name, ErrDamaged, sum, clear.Parts[i].SHA256)
	}
	return plain, nil
}

// cannotOpen says why something in an encrypted bundle cannot be read, and whose key is needed.
func (m Manifest) cannotOpen(what string, err error) error {
	if errors.Is(err, crypt.ErrNoKey) {
		return fmt.Errorf("evidence %s: %s: %w: it is encrypted to %s", m.EvidenceID, what, err, strings.Join(m.Encryption.Recipients, ", "))
	}
	return fmt.Errorf("evidence %s: %s: %w: %w", m.EvidenceID, what, ErrDamaged, err)
}

// Identities are what this archive can open; nil: nothing.
func (a *Archive) Identities() *crypt.Identities { return a.spool.keys.With }

// Opened returns a manifest in clear if this archive has the identity; otherwise it returns the
// manifest as it was sealed, and false.
func (a *Archive) Opened(m Manifest) (Manifest, bool) {
	clear, err := m.Open(a.spool.keys.With)
	if err != nil {
		return m, false
	}
	return clear, true
}

// Content returns the content of a part and its media type. The error is crypt.ErrNoKey if the
// part is encrypted and this archive has no identity that opens it.
func (a *Archive) Content(ctx context.Context, evidenceID, name string) (content []byte, mediaType string, err error) {
	stored, p, m, err := a.stored(ctx, evidenceID, name)
	if err != nil {
		return nil, "", err
	}
	content, err = m.OpenPart(a.spool.keys.With, name, stored)
	return content, p.MediaType, err
}

// StoredMediaType is the media type of an encrypted part as it is stored.
const StoredMediaType = "application/x-age-encryption"

// Stored returns a part as it is stored, which for an encrypted bundle is an age file.
func (a *Archive) Stored(ctx context.Context, evidenceID, name string) (content []byte, mediaType string, err error) {
	content, p, m, err := a.stored(ctx, evidenceID, name)
	if m.Encrypted() {
		return content, StoredMediaType, err
	}
	return content, p.MediaType, err
}

func (a *Archive) stored(ctx context.Context, evidenceID, name string) ([]byte, Part, Manifest, error) {
	raw, err := a.Manifest(ctx, evidenceID)
	if err != nil {
		return nil, Part{}, Manifest{}, err
	}
	m, err := Decode(evidenceID, raw)
	if err != nil {
		return nil, Part{}, Manifest{}, err
	}
	for _, p := range m.Parts {
		if p.Name == name && p.Missing == "" {
			stored, err := a.Part(ctx, evidenceID, name)
			return stored, p, m, err
		}
	}
	return nil, Part{}, m, fmt.Errorf("evidence %s: part %q: %w", shortID(evidenceID), shortID(name), ErrNotFound)
}
