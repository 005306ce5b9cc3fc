package session

import (
	"github.com/rs/zerolog"

	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// terms are the fixed data of a session: its owner, profile and token, and the rules by which
// it ends. All objects of a session share them. They do not change once it serves.
type terms struct {
	id        string
	profile   string
	path      string // of the directory that its browser uses
	token     lease.Token
	manifest  api.Manifest
	granted   lease.Record // as it was when the lease was granted or resumed
	policy    policy
	ephemeral bool // it has no lease, and is on a copy of the profile
	sites     site.Source

	log zerolog.Logger // names the session
}

func newTerms(h *Registry, m api.Manifest, r lease.Record, path string) *terms {
	return &terms{
		id: r.SessionID, profile: r.ProfileID, path: path, token: r.Token, manifest: m, granted: r,
		sites: h.o.Sites, policy: policyOf(m, h.o.Timing.TTL, h.o.ReconnectGrace),
		log: h.o.Log.With().Str("profile", r.ProfileID).Uint64("token", uint64(r.Token)).Str("session", r.SessionID).Logger(),
	}
}
