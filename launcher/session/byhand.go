package session

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
)

// A person who uses a profile by hand may close the browser at any time. Then the session
// ends in order, and keeps the session cookies that were noted last.

const (
	// cookiesEvery is how often the session cookies of a person's browser are noted.
	cookiesEvery   = 10 * time.Second
	cookiesTimeout = 3 * time.Second
	// quitTimeout bounds how long a browser whose pipe ended may take to exit.
	quitTimeout = 10 * time.Second
)

// noteCookies keeps the cookies that would be lost with a person's browser.
func (v *serving) noteCookies() {
	s := v.s
	ctx, cancel := context.WithTimeout(context.Background(), cookiesTimeout)
	defer cancel()
	if err := s.h.o.Jar.Note(ctx, s.browser.Monitor().Observer(), s.profile); err != nil {
		s.log.Warn().Err(err).Msg("session cookies not noted")
	}
}

// quitInOrder tells whether a browser that is gone was closed by the person who used it,
// and keeps its session cookies.
func (v *serving) quitInOrder() bool {
	s := v.s
	if !s.policy.byHand {
		return false
	}
	if !s.awaitExit(quitTimeout) {
		return false
	}
	in, err := s.h.o.Root.Inspect(s.profile)
	if err != nil || in.ClosedCleanly.Answer != profiledir.Yes {
		s.log.Warn().Err(err).Str("how", in.ClosedCleanly.How).Msg("the person's browser did not end in order")
		return false
	}
	if s.manifest.SessionCookies != api.CookiesDrop {
		if err := s.h.o.Jar.KeepNoted(s.profile); err != nil {
			s.log.Warn().Err(err).Msg("session cookies not kept")
		}
	}
	return true
}

// DropNotedCookies forgets the cookies that were noted of a session that is over, if it was a
// person's.
func (h *Registry) DropNotedCookies(f sessionfile.File, log zerolog.Logger) {
	if f.ByHand == nil {
		return
	}
	if err := h.o.Jar.DropNoted(f.Manifest.ProfileID); err != nil {
		log.Warn().Err(err).Msg("noted session cookies not removed")
	}
}
