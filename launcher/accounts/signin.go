package accounts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"leasehold/cdpproxy"
	"leasehold/cdpproxy/methods"
	"leasehold/checkpoint"
	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/monitor"
	"leasehold/launcher/secrets"
	"leasehold/launcher/session"
	"leasehold/launcher/signin"
	"leasehold/lease"
)

// SignIn signs the account of a session's profile in, for its worker. Where launchers have failed too
// often, it asks a person.
func (a *Service) SignIn(ctx context.Context, s *session.Session, want api.SignIn) (api.SignInAnswer, error) {
	r, err := a.profiles.Profile(ctx, s.Profile())
	if err != nil {
		return api.SignInAnswer{}, err
	}
	f, secret, err := a.secretFor(r.Record, want.Site)
	if err != nil {
		return api.SignInAnswer{}, err
	}
	answer, person, err := a.signInAlone(ctx, s, r.Record, f, secret)
	if err != nil || !person {
		return answer, err
	}
	given, err := s.Asks().Ask(ctx, api.AskPerson{Write: want.Write, Reason: "sign the account in at " + secret.Origin + ": the sidecar's own attempts failed", Wait: want.Wait})
	if err != nil {
		return api.SignInAnswer{}, err
	}
	if !given.Answered {
		answer.Reason += "; a person was asked: " + given.Reason
		return answer, nil
	}
	return a.askPrivately(ctx, s, r.Record, func(said lease.Checked) api.SignInAnswer { return answerOf(said, "a person was there") })
}

// secretFor finds which site the account of a profile is to be signed in at, and with what. name is that
// of the site, or empty.
func (a *Service) secretFor(r lease.Record, name string) (f site.File, secret secrets.Secret, err error) {
	if a.o.Secrets == nil {
		return f, secret, api.Invalid("", "this sidecar signs nothing in: it was started without --secrets")
	}
	known, err := a.o.Secrets()
	if err != nil {
		return f, secret, fmt.Errorf("the secrets cannot be read: %w", err)
	}
	account := r.AccountName()
	var problems []error
	var found []string
	for _, one := range a.host.Sites.Book().SignIns(func(f site.File) bool { return name == "" || f.Name == name }) {
		got, err := known.Find(account, shape.OriginOf(one.SignInURL()))
		if err != nil {
			problems = append(problems, fmt.Errorf("site %s: %w", one.Name, err))
			continue
		}
		f, secret, found = one, got, append(found, one.Name)
	}
	switch {
	case len(found) == 1:
		return f, secret, nil
	case len(found) > 1:
		return f, secret, api.Invalid("site", "there are secrets of %s for several sites: want one of %s", account, strings.Join(found, ", "))
	case len(problems) > 0:
		return f, secret, api.Invalid("site", "%v", errors.Join(problems...))
	}
	return f, secret, api.Invalid("site", "no file about a site says how to sign in there (sign_in)")
}

// closeTimeout bounds how long the pages of a sign-in may take to close, and the cache to be cleared.
const closeTimeout = 30 * time.Second

// private keeps the browser of a session from all its clients while do runs, which tells whether something
// may have been typed.
func private(s *session.Session, do func() (typed bool, err error)) error {
	open, err := s.Mux().KeepPrivate(methods.RefuseSignIn())
	var listening *cdpproxy.ListeningError
	switch {
	case errors.Is(err, cdpproxy.ErrPrivate):
		return api.Refuse(api.CodeAsksAlready, "session %s: the account is being signed in already, or what that left in the browser is not cleared yet", s.ID())
	case errors.As(err, &listening):
		return api.Invalid("", "session %s: %v", s.ID(), listening)
	case err != nil:
		return err
	}
	typed, err := do()
	ending, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	shut := open(ending, typed)
	if shut != nil {
		s.OpenLater(shut, func(ctx context.Context) error { return open(ctx, typed) })
	}
	return errors.Join(err, shut)
}

// askPrivately asks whether the account is signed in, and notes it in the record.
func (a *Service) askPrivately(ctx context.Context, s *session.Session, r lease.Record, tell func(lease.Checked) api.SignInAnswer) (answer api.SignInAnswer, err error) {
	err = private(s, func() (bool, error) {
		said, err := a.askAndNote(ctx, s, r)
		answer = tell(said)
		return false, err
	})
	return answer, err
}

func (a *Service) askAndNote(ctx context.Context, s *session.Session, r lease.Record) (lease.Checked, error) {
	if _, err := s.Monitor(); err != nil {
		return lease.Checked{}, err
	}
	said, asked := a.AskInOpen(ctx, s, r)
	if !asked {
		return said, api.Invalid("session_check", "nothing says whether profile %s is signed in: want a session_check, or an identity in the file of its site", r.ProfileID)
	}
	return said, a.noteSignedIn(context.WithoutCancel(ctx), r, said)
}

func answerOf(said lease.Checked, how string) api.SignInAnswer {
	return api.SignInAnswer{SignedIn: string(said.SignedIn), Reason: how + "; " + said.How}
}

// signInAlone signs in without a person, while nobody else sees the browser. person says that one has to
// do it.
func (a *Service) signInAlone(ctx context.Context, s *session.Session, r lease.Record, f site.File, secret secrets.Secret) (answer api.SignInAnswer, person bool, err error) {
	fence, err := s.People().Driving()
	if err != nil {
		return answer, false, err
	}
	m, err := s.Monitor()
	if err != nil {
		return answer, false, err
	}
	err = private(s, func() (bool, error) {
		said, err := a.askAndNote(ctx, s, r)
		if answer = answerOf(said, "nothing was typed"); err != nil || said.SignedIn != lease.SignedInNo || said.Another {
			return false, err
		}
		at, needed := lease.MaySignIn(a.ofAccount(r))
		switch {
		case needed:
			person = true
			answer.Reason = fmt.Sprintf("%d attempts of the sidecar failed: a person has to sign in (leasehold sign-in %s)", lease.MostSignIns, r.ProfileID)
			return false, nil
		case time.Now().Before(at):
			answer.Reason = "the last attempt of the sidecar failed: the next one may begin at " + at.UTC().Format(time.RFC3339)
			return false, nil
		}
		if err := s.Mux().ChecksCertificates(); err != nil {
			return false, api.Invalid("", "session %s: %v", s.ID(), err)
		}
		// From here on it counts, also if this launcher is killed.
		if _, err := lease.ChangeExisting(ctx, a.host.Store, r.ProfileID, func(e lease.Entry) (lease.Record, error) {
			if e.Record.Token != r.Token {
				return e.Record, api.Refuse(api.CodeSessionEnded, "session %s is ending", s.ID())
			}
			return e.Record.BeginSignIn(time.Now()), nil
		}); err != nil {
			return false, host.Problem(err)
		}
		how, err := signin.Run(ctx, s.Mux(), fence, f, secret, m.Own(), monitor.OwnEvents)
		if err != nil {
			how = "it was given up: " + err.Error()
		}
		s.Note(checkpoint.Entry{Kind: checkpoint.KindEvent, Name: "sign_in", Text: how})
		a.host.Log.Info().Str("profile", r.ProfileID).Str("session", s.ID()).Str("site", f.Name).AnErr("problem", err).Msg("the account was to be signed in")
		said, err = a.askAndNote(ctx, s, r)
		answer = answerOf(said, how)
		return true, err
	})
	return answer, person, err
}

// ofAccount are the records of all profiles that have the account of one.
func (a *Service) ofAccount(r lease.Record) []lease.Record {
	all := []lease.Record{r}
	rows, _, _ := a.host.Catalog.Rows()
	for _, row := range rows {
		if r.AccountID != "" && row.Record.AccountID == r.AccountID && row.Record.ProfileID != r.ProfileID {
			all = append(all, row.Record)
		}
	}
	return all
}

// AskInOpen asks sites whether the account is signed in, in the open browser of a session. asked is false
// where none can be.
func (a *Service) AskInOpen(ctx context.Context, s *session.Session, r lease.Record) (said lease.Checked, asked bool) {
	book := a.host.Sites.Book()
	identities := a.host.Answers.Identities(r, book)
	if r.SessionCheck == nil && len(identities) == 0 {
		return said, false
	}
	found := accountcheck.InOpen(ctx, s.Mux(), accountcheck.Request{Check: r.SessionCheck, Sites: book, Questions: identities})
	return a.host.Answers.SignedIn(r, book, found.Session, found.Answers, false), true
}
