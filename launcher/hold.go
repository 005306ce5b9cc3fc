package launcher

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// Hold gives a profile to a person and starts its browser. Nothing that a person
// does is judged: a hold that does not end in order, by Release or by closing the
// browser, goes to manual_review, and one out of a review goes back into it.
func (l *Launcher) Hold(ctx context.Context, profileID string, h api.HoldRequest) (api.Session, error) {
	if _, err := l.Profile(ctx, profileID); err != nil {
		return api.Session{}, err
	}
	if h.Holder == "" {
		return api.Session{}, api.Invalid("holder", "want the name of the person who uses the profile")
	}
	if h.LockTimeoutSeconds == 0 {
		h.LockTimeoutSeconds = api.DefaultHold.Seconds()
	}
	alone, warm := true, false
	return l.Acquire(ctx, api.Manifest{
		ProfileID: profileID, WorkerID: h.Holder, TaskID: id.New("by-hand"), LockTimeoutSeconds: h.LockTimeoutSeconds,
		Headless: h.Headless, DedicatedPort: true, OnClose: api.OnCloseKeep, RequiresExclusiveProfileLock: &alone, KeepWarm: &warm,
		ByHand: &api.ByHand{Holder: h.Holder, Note: h.Note, TokenSeen: h.Token},
	})
}

// outdated refuses a person who saw another token than the record's.
func (l *Launcher) outdated(ctx context.Context, r lease.Record, m api.Manifest) error {
	if m.ByHand == nil || m.ByHand.TokenSeen == r.Token {
		return nil
	}
	if m.ByHand.TokenSeen == 0 {
		return api.Invalid("lease_token", "want the token that the person saw: it is %d now", r.Token)
	}
	return l.stale(ctx, r.ProfileID, r.SessionID, m.ByHand.TokenSeen, r.Token, "hold")
}

// cookiesEvery is how often the session cookies of a browser are noted that a
// person may close at any time.
const cookiesEvery = 10 * time.Second

// noteCookies keeps what a person's browser would take with it.
func (s *session) noteCookies() {
	ctx, cancel := context.WithTimeout(context.Background(), cookiesTimeout)
	defer cancel()
	if err := s.l.jar.Note(ctx, s.browser.Monitor().Observer(), s.profile); err != nil {
		s.log.Warn().Err(err).Msg("session cookies not noted")
	}
}

// quitInOrder tells whether a browser that is gone was closed by the person who
// used it, and keeps its session cookies.
func (s *session) quitInOrder() bool {
	if !s.policy.byHand {
		return false
	}
	select { // the pipe ends before the process
	case <-s.browser.Exited():
	case <-time.After(unusedTimeout):
		return false
	}
	in, err := s.l.o.Root.Inspect(s.profile)
	if err != nil || in.ClosedCleanly.Answer != profiledir.Yes {
		s.log.Warn().Err(err).Str("how", in.ClosedCleanly.How).Msg("the person's browser did not end in order")
		return false
	}
	if s.manifest.SessionCookies != api.CookiesDrop {
		if err := s.l.jar.KeepNoted(s.profile); err != nil {
			s.log.Warn().Err(err).Msg("session cookies not kept")
		}
	}
	return true
}

// dropNoted forgets the cookies noted of a session that is over, if it was a hold.
func (l *Launcher) dropNoted(f sessionfile.File, log zerolog.Logger) {
	if f.ByHand == nil {
		return
	}
	if err := l.jar.DropNoted(f.Manifest.ProfileID); err != nil {
		log.Warn().Err(err).Msg("noted session cookies not removed")
	}
}
