package launcher

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"leasehold/cdpproxy/methods"
	"leasehold/launcher/accountcheck"
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
)

// PlanSignIn returns the page with which a person begins who signs a profile's account in by a link.
func (l *Launcher) PlanSignIn(ctx context.Context, profileID, url string) (string, error) {
	r, err := l.Profile(ctx, profileID)
	if err != nil {
		return "", err
	}
	return l.signInPage(r, url)
}

// signInPage returns the page for a profile with this record; url is the one that was asked for, or
// empty.
func (l *Launcher) signInPage(r lease.Record, url string) (string, error) {
	profileID := r.ProfileID
	switch {
	case r.Home != "" && r.Home != l.o.ID:
		return "", l.patrol.Home(r)
	case r.State == lease.ManualReview:
		return "", api.Refuse(api.CodeInReview, "profile %s waits for a decision first: leasehold review %s", profileID, profileID)
	}
	if url == "" {
		if url = r.SignInAt; url == "" && r.SessionCheck != nil {
			url = r.SessionCheck.URL
		}
		if asked := l.answers.Identities(r, l.o.Sites.Book()); url == "" && len(asked) > 0 {
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
func (l *Launcher) BeginSignIn(ctx context.Context, profileID string, start api.SignInStart) (api.Session, error) {
	note := "sign-in link " + start.LinkID + " of " + start.By
	if s := l.sessions.OnProfile(profileID); s != nil && s.Show().Ask != nil {
		return l.TakeOver(ctx, s.ID(), api.TakeOver{Write: api.Write{Token: s.Token()}, Person: signInHolder, Note: note})
	}
	r, err := l.Profile(ctx, profileID)
	if err != nil {
		return api.Session{}, err
	}
	if _, err := l.signInPage(r, start.URL); err != nil {
		return api.Session{}, err
	}
	alone, warm := true, false
	begun, err := l.Acquire(ctx, api.Manifest{
		ProfileID: profileID, WorkerID: signInHolder, TaskID: start.LinkID, LockTimeoutSeconds: api.SignInTime.Seconds(),
		OnClose: api.OnCloseKeep, RequiresExclusiveProfileLock: &alone, KeepWarm: &warm,
		ByHand: &api.ByHand{Holder: signInHolder, Note: note, TokenSeen: r.Token, SignInLink: start.LinkID},
	})
	if err != nil {
		return api.Session{}, err
	}
	if err := l.beginAt(ctx, begun.SessionID, start.URL); err != nil {
		_, ending := l.Release(context.WithoutCancel(ctx), begun.SessionID, api.Release{Write: api.Write{Token: begun.Token}, Outcome: "failed", Reason: api.ReasonStartFailed})
		return api.Session{}, cmp.Or(ending, fmt.Errorf("the first page of a sign-in: %w", err))
	}
	return begun, nil
}

// beginAt has the one page of a session go to a URL.
func (l *Launcher) beginAt(ctx context.Context, sessionID, url string) error {
	s, m, err := l.monitorOf(sessionID)
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
func (l *Launcher) CheckSignIn(ctx context.Context, sessionID string) (api.SignInChecked, error) {
	s, _, err := l.monitorOf(sessionID)
	if err != nil {
		return api.SignInChecked{}, err
	}
	if err := s.People().PersonIs(principal.Of(ctx)); err != nil {
		return api.SignInChecked{}, err
	}
	r, err := l.Profile(ctx, s.Profile())
	if err != nil {
		return api.SignInChecked{}, err
	}
	said, asked := l.askInOpen(ctx, s, r)
	if !asked {
		said = lease.Checked{SignedIn: lease.SignedInUnknown, How: "no site can be asked: the person says so"}
	}
	l.o.Log.Info().Str("profile", s.Profile()).Str("session", sessionID).Str("signed_in", string(said.SignedIn)).Bool("another_account", said.Another).
		Msg("who has the sign-in link says that they have signed in")
	answer := api.SignInChecked{SignedIn: string(said.SignedIn), How: said.How}
	if said.Another {
		answer.How = "this is another account than the one that is to be signed in here: sign out, and sign in with that one"
	}
	if asked && said.SignedIn != lease.SignedInYes {
		return answer, nil
	}
	answer.Over = true
	return answer, l.endSignIn(ctx, s, api.Release{Outcome: signInOutcome, Reason: signInOutcome}, api.HandBack{Note: said.How})
}

// askInOpen asks sites whether the account is signed in, in the open browser of a session. asked is false
// where none can be.
func (l *Launcher) askInOpen(ctx context.Context, s *session.Session, r lease.Record) (said lease.Checked, asked bool) {
	book := l.o.Sites.Book()
	identities := l.answers.Identities(r, book)
	if r.SessionCheck == nil && len(identities) == 0 {
		return said, false
	}
	found := accountcheck.InOpen(ctx, s.Mux(), accountcheck.Request{Check: r.SessionCheck, Sites: book, Questions: identities})
	return l.answers.SignedIn(r, book, found.Session, found.Answers, false), true
}

// EndSignIn ends the session of a sign-in link whose person is not to go on.
func (l *Launcher) EndSignIn(ctx context.Context, sessionID, why string) error {
	s, err := l.sessions.Lookup(sessionID)
	if err != nil {
		return err
	}
	if err := s.People().PersonIs(principal.Of(ctx)); err != nil {
		return err
	}
	no := false
	return l.endSignIn(ctx, s, api.Release{Outcome: "failed", Reason: why}, api.HandBack{Note: why, Answered: &no})
}

// endSignIn ends a session that is the person's own, or hands it back to its worker.
func (l *Launcher) endSignIn(ctx context.Context, s *session.Session, own api.Release, back api.HandBack) error {
	// A person who goes away must not leave a browser half closed.
	ctx = context.WithoutCancel(ctx)
	own.Token, back.Token = s.Token(), s.Token()
	if s.Manifest().ByHand == nil {
		_, err := l.HandBack(ctx, s.ID(), back)
		return err
	}
	_, err := l.Release(ctx, s.ID(), own)
	return err
}
