package recovery

import (
	"encoding/json"
	"errors"
	"time"

	"leasehold/evidence"
	"leasehold/launcher/api"
)

var errStaysOpen = errors.New("no evidence can be stored, so the browser stays open: is the disk full?")

// Preserve stores evidence about a browser of the profile that has no session, before the
// browser is closed by force or because of what it did; why and detail say that. The profile's
// record stays as it is; the profile's next bundle names this one. An error says that nothing
// could be stored.
func (r *Recoverer) Preserve(profile, why, detail string, b Browser) error {
	_, record, err := r.o.Root.Kept(profile)
	if err != nil {
		return err
	}
	record.ProfileID = profile
	log := r.o.Log.With().Str("profile", profile).Uint64("token", uint64(record.Token)).Logger()
	path, err := r.o.Root.Path(profile)
	if err != nil {
		return err
	}
	bundle := r.Capture(Capture{
		Record: record, Path: path, Token: record.Token, Reason: api.ReasonWarm, SeenAt: time.Now(), Browser: b,
	}, log)
	if bundle == nil {
		return errStaysOpen
	}
	closing, err := json.Marshal(map[string]string{"why": why, "detail": detail})
	Parts{bundle, log}.Put("closing.json", evidence.KindBrowser, MediaJSON, closing, err)
	if r.Seal(bundle, log).EvidenceID == "" {
		return errStaysOpen
	}
	return nil
}
