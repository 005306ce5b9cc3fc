package session

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
)

// A person who uses a profile by hand may close the browser at any time, also while no launcher is there. The session
// cookies that were noted last are kept then. If its launcher is there, the session ends in order.

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

// quitInOrder tells whether a browser that is gone was closed by the person who used it.
func (v *serving) quitInOrder() bool {
	s := v.s
	return s.policy.byHand && s.awaitExit(quitTimeout) && s.h.QuitInOrder(s.manifest, s.log)
}

// QuitInOrder tells whether a person's browser, whose process is gone and which no launcher closed, ended in order, and
// keeps its session cookies then.
func (h *Registry) QuitInOrder(m api.Manifest, log zerolog.Logger) bool {
	in, err := h.o.Root.Inspect(m.ProfileID)
	if err != nil || in.ClosedCleanly.Answer != profiledir.Yes {
		log.Warn().Err(err).Str("how", in.ClosedCleanly.How).Msg("the person's browser did not end in order")
		return false
	}
	if m.SessionCookies != api.CookiesDrop {
		if err := h.o.Jar.KeepNoted(m.ProfileID); err != nil {
			log.Warn().Err(err).Msg("session cookies not kept")
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
