package people

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"leasehold/cdpproxy/methods"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/session"
	"leasehold/lease"
)

const (
	// signInHolder is the name of that person in records and journals: nobody knows who it is.
	signInHolder = "whoever has the sign-in link"
	// signInOutcome is the outcome of a session in which the account was signed in by a link.
	signInOutcome = "signed_in"
	// openTimeout bounds how long the browser may take to begin with the first page.
	openTimeout = 20 * time.Second
	// runsTimeout bounds how long a link waits for a task that begins, or ends, in the browser.
	runsTimeout = time.Second
)

// PlanSignIn returns the page with which a person begins who signs a profile's account in by a link.
func (p *Service) PlanSignIn(ctx context.Context, profileID, url string) (string, error) {
	r, err := p.profiles.Profile(ctx, profileID)
	if err != nil {
		return "", err
	}
	return p.signInPage(r.Record, url)
}

// signInPage returns the page for a profile with this record; url is the one that was asked for, or
// empty.
func (p *Service) signInPage(r lease.Record, url string) (string, error) {
	profileID := r.ProfileID
	switch {
	case r.Home != "" && r.Home != p.host.ID:
		return "", p.host.Patrol.Home(r)
	case r.State == lease.ManualReview:
		return "", api.Refuse(api.CodeInReview, "profile %s waits for a decision first: leasehold review %s", profileID, profileID)
	}
	if url == "" {
		if url = r.SignInAt; url == "" && r.SessionCheck != nil {
			url = r.SessionCheck.URL
		}
		if asked := p.host.Answers.Identities(r, p.host.Sites.Book()); url == "" && len(asked) > 0 {
			url = asked[0].URL
		}
	}
	if url == "" {
		return "", api.Invalid("url", "nothing that is known of profile %s says where its account is signed in: want the page", profileID)
	}
	if refused := methods.CheckURL(url); refused != nil {
		return "", api.Invalid("url", "%s", refused.Text)
	}
	return url, nil
}

// BeginSignIn gives a person who has a sign-in link the session whose worker waits for a person, or
// else one of their own.
func (p *Service) BeginSignIn(ctx context.Context, profileID string, start api.SignInStart) (api.Session, error) {
	note := "sign-in link " + start.LinkID + " of " + start.By
	if s := p.asking(profileID); s != nil {
		return p.takeByLink(ctx, s, note)
	}
	r, err := p.profiles.Profile(ctx, profileID)
	if err != nil {
		return api.Session{}, err
	}
	if _, err := p.signInPage(r.Record, start.URL); err != nil {
		return api.Session{}, err
	}
	alone, warm := true, false
	begun, err := p.grants.Acquire(ctx, api.Manifest{
		ProfileID: profileID, WorkerID: signInHolder, TaskID: start.LinkID, LockTimeoutSeconds: api.SignInTime.Seconds(),
		OnClose: api.OnCloseKeep, RequiresExclusiveProfileLock: &alone, KeepWarm: &warm,
		ByHand: &api.ByHand{Holder: signInHolder, Note: note, TokenSeen: r.Token, SignInLink: start.LinkID},
	})
	if err != nil {
		return api.Session{}, err
	}
	if err := p.beginAt(ctx, begun.SessionID, start.URL); err != nil {
		_, ending := p.workers.Release(context.WithoutCancel(ctx), begun.SessionID, api.Release{Write: api.Write{Token: begun.Token}, Outcome: "failed", Reason: api.ReasonStartFailed})
		return api.Session{}, cmp.Or(ending, fmt.Errorf("the first page of a sign-in: %w", err))
	}
	return begun, nil
}

// takeByLink gives the session of a worker to a person who has a sign-in link, if no other session shares its
// browser: they would see and drive the pages of that one, too.
func (p *Service) takeByLink(ctx context.Context, s *session.Session, note string) (api.Session, error) {
	shared := func() (api.Session, error) {
		refused := api.Refuse(api.CodeConflict, "other tasks share the browser of profile %s, and a sign-in link would show their pages, too: wait until one task has it alone, or take its session over in the console", s.Profile()).
			With("profile_id", s.Profile())
		return api.Session{}, refused
	}
	slot := p.host.Slots.Find(s.Profile())
	if slot == nil || !slot.TryLockRuns(runsTimeout) { // nobody joins meanwhile
		return shared()
	}
	defer slot.UnlockRuns()
	if n, _ := p.host.Sessions.Runs(s.Profile()); n > 1 {
		return shared()
	}
	return p.TakeOver(ctx, s.ID(), api.TakeOver{Write: api.Write{Token: s.Token()}, Person: signInHolder, Note: note})
}

// asking is the session of a profile whose worker waits for a person; nil: none does.
func (p *Service) asking(profileID string) (waits *session.Session) {
	var first api.InHands
	for _, s := range p.host.Sessions.Living() {
		shown := s.Show()
		if s.Profile() != profileID || shown.Ask == nil {
			continue
		}
		if first = first.Or(shown); first.SessionID == shown.SessionID {
			waits = s
		}
	}
	return waits
}

// beginAt has the one page of a session go to a URL.
func (p *Service) beginAt(ctx context.Context, sessionID, url string) error {
	s, m, err := p.workers.MonitorOf(sessionID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	pages := m.Pages()
	if len(pages) == 0 {
		_, err := m.Tabs().Open(ctx, s.Fence(), url)
		return err
	}
	return m.Observer().CallFenced(ctx, s.Fence(), pages[0].SessionID, "Page.navigate", map[string]string{"url": url}, nil)
}

// CheckSignIn asks sites whether the account is signed in by now, and ends the session if it is.
func (p *Service) CheckSignIn(ctx context.Context, sessionID string) (api.SignInChecked, error) {
	s, _, err := p.workers.MonitorOf(sessionID)
	if err != nil {
		return api.SignInChecked{}, err
	}
	if err := s.People().PersonIs(principal.Of(ctx)); err != nil {
		return api.SignInChecked{}, err
	}
	r, err := p.profiles.Profile(ctx, s.Profile())
	if err != nil {
		return api.SignInChecked{}, err
	}
	said, asked := p.accounts.AskInOpen(ctx, s, r.Record)
	if !asked {
		said = lease.Checked{SignedIn: lease.SignedInUnknown, How: "no site can be asked: the person says so"}
	}
	p.host.Log.Info().Str("profile", s.Profile()).Str("session", sessionID).Str("signed_in", string(said.SignedIn)).Bool("another_account", said.Another).
		Msg("who has the sign-in link says that they have signed in")
	answer := api.SignInChecked{SignedIn: string(said.SignedIn), How: said.How}
	if said.Another {
		answer.How = "this is another account than the one that is to be signed in here: sign out, and sign in with that one"
	}
	if asked && said.SignedIn != lease.SignedInYes {
		return answer, nil
	}
	answer.Over = true
	return answer, p.endSignIn(ctx, s, api.Release{Outcome: signInOutcome, Reason: signInOutcome}, api.HandBack{Note: said.How})
}

// EndSignIn ends the session of a sign-in link whose person is not to go on.
func (p *Service) EndSignIn(ctx context.Context, sessionID, why string) error {
	s, err := p.host.Sessions.Lookup(sessionID)
	if err != nil {
		return err
	}
	if err := s.People().PersonIs(principal.Of(ctx)); err != nil {
		return err
	}
	no := false
	return p.endSignIn(ctx, s, api.Release{Outcome: "failed", Reason: why}, api.HandBack{Note: why, Answered: &no})
}

// endSignIn ends a session that is the person's own, or hands it back to its worker.
func (p *Service) endSignIn(ctx context.Context, s *session.Session, own api.Release, back api.HandBack) error {
	// A person who goes away must not leave a browser half closed.
	ctx = context.WithoutCancel(ctx)
	own.Token, back.Token = s.Token(), s.Token()
	if s.Manifest().ByHand == nil {
		_, err := p.HandBack(ctx, s.ID(), back)
		return err
	}
	_, err := p.workers.Release(ctx, s.ID(), own)
	return err
}
