package accounts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence/redact"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// CheckProfile finds out whether the account of a profile that is not in use is signed in: of a free
// one, or of one in review, since the person who decides may want to know the result.
func (a *Service) CheckProfile(ctx context.Context, profileID string) (api.SessionChecked, error) {
	r, done, err := a.profiles.BorrowIn(ctx, profileID, lease.Available, lease.ManualReview)
	if err != nil {
		return api.SessionChecked{}, err
	}
	defer done()
	said, status, err := a.signedIn(ctx, r, nil)
	if err != nil {
		return api.SessionChecked{}, err
	}
	return api.SessionChecked{ProfileID: profileID, SignedIn: string(said.SignedIn), How: said.How, Status: status, At: time.Now().UTC()}, nil
}

// signedIn asks sites whether the account of a profile is signed in, which the caller occupies, and
// notes it in the record. status is that of the answer to the session check, if it has one. When
// giveUp is closed, it gives up, and the error is slots.ErrWanted.
func (a *Service) signedIn(ctx context.Context, r lease.Record, giveUp <-chan struct{}) (said lease.Checked, status int, err error) {
	book := a.host.Sites.Book()
	identities, pages := a.host.Answers.Identities(r, book), a.host.Answers.Rehearsals(r, book)
	if r.SessionCheck == nil && len(identities) == 0 {
		return said, 0, api.Invalid("session_check", "profile %s has none, and no file about a site of its expected_domains has an identity: set one (leasehold profiles create %s --session-check URL)", r.ProfileID, r.ProfileID)
	}
	found, err := a.askAbout(ctx, r, func(ask *accountcheck.Request) {
		ask.Check, ask.Sites, ask.Questions, ask.GiveUp = r.SessionCheck, book, slices.Concat(identities, pages), giveUp
		ask.Task = recovery.TaskOf(api.Manifest{}, r, book)
	})
	if err != nil {
		return said, 0, err
	}
	select {
	case <-giveUp:
		return said, 0, slots.ErrWanted
	default:
	}
	said = a.host.Answers.SignedIn(r, book, found.Session, found.Answers, false)
	return said, found.Session.Status, errors.Join(
		a.host.Answers.Keep(r.ProfileID, r.Token, a.host.Answers.Own(r.ProfileID, found.Answers), time.Now()), a.noteSignedIn(context.WithoutCancel(ctx), r, said),
	)
}

// noteTimeout bounds how long the store may take to have what sites said.
const noteTimeout = 5 * time.Second

// errOver says that somebody else had the profile since it was asked about.
var errOver = errors.New("the profile was used since")

// noteSignedIn writes into the record what sites said under its token.
func (a *Service) noteSignedIn(ctx context.Context, asked lease.Record, said lease.Checked) error {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	_, err := lease.ChangeExisting(ctx, a.host.Store, asked.ProfileID, func(e lease.Entry) (lease.Record, error) {
		if e.Record.Token != asked.Token || e.Record.Home != asked.Home {
			return e.Record, errOver
		}
		return e.Record.Checked(said, time.Now()), nil
	})
	if errors.Is(err, errOver) || errors.Is(err, lease.ErrNotFound) {
		return nil
	}
	return host.Problem(err)
}

// TrySite asks the questions of a file on a profile that is not in use, twice. Nothing is kept.
func (a *Service) TrySite(ctx context.Context, name string, t api.SiteTry) (api.SiteTried, error) {
	file, err := checkedFile(name, t.File)
	if err != nil {
		return api.SiteTried{}, err
	}
	if err := lease.CheckProfileID(t.ProfileID); err != nil {
		return api.SiteTried{}, api.Invalid("profile_id", "%v", err)
	}
	questions, pages := file.Questions(), file.Rehearsals()
	if len(questions)+len(pages) == 0 {
		return api.SiteTried{}, api.Invalid("probes", "site %s: the file asks nothing: want identity, probes or rehearse", name)
	}
	book, _ := site.NewBook([]site.File{file}) // it was checked
	var noted entries
	r, done, err := a.profiles.BorrowIn(ctx, t.ProfileID, lease.Available, lease.ManualReview)
	if err != nil {
		return api.SiteTried{}, err
	}
	defer done()
	found, err := a.askAbout(ctx, r, func(ask *accountcheck.Request) {
		ask.Questions, ask.Task, ask.Sink = slices.Concat(questions, pages), recovery.TaskOf(api.Manifest{}, r, book), noted.add
		ask.Known = func() *site.Book { return book }
		ask.Again = func([]site.Answer) []site.Question { return questions }
	})
	if err != nil {
		return api.SiteTried{}, err
	}
	return api.SiteTried{Name: name, ProfileID: t.ProfileID, Questions: tried(found), Sent: noted.sent()}, nil
}

// tried is what was found by asking each question twice.
func tried(f accountcheck.Found) (all []api.QuestionTried) {
	for i, a := range f.Answers {
		q := api.QuestionTried{Name: cmp.Or(a.Name, "identity"), URL: redact.URL(a.URL), State: string(a.State), Picked: a.Text, How: a.How}
		if a.Writes != "" {
			q.Problems = append(q.Problems, "this probe writes, or may: "+a.Writes)
		}
		for _, wanted := range a.Wanted {
			q.Problems = append(q.Problems, "it wants to send "+wanted+": this speaks against every lost session of the site, until the file says `is: read` of it")
		}
		if i < len(f.Again) {
			switch again := f.Again[i]; {
			case again.State != a.State:
				q.Problems = append(q.Problems, "the second time it was "+string(again.State)+": "+again.How)
			case again.Values != a.Values:
				q.Problems = append(q.Problems, "this probe changes by itself, or by being asked: then "+again.Text)
			}
		}
		if a.State == site.Told && !a.Whole {
			q.Problems = append(q.Problems, "not everything that is to be picked out is there: it covers nothing")
		}
		all = append(all, q)
	}
	return all
}

// entries is what the pages of a browser did.
type entries struct {
	mu   sync.Mutex
	list []checkpoint.Entry
}

func (n *entries) add(e checkpoint.Entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, e)
}

// sent are the requests among it that do more than read.
func (n *entries) sent() (sent []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.list {
		if e.Kind == checkpoint.KindRequest || e.Kind == checkpoint.KindBlocked || e.Kind == checkpoint.KindGetWrite {
			sent = append(sent, e.Method+" "+redact.URL(e.URL))
		}
	}
	return sent
}

// askAbout asks sites about the account of a profile that the caller occupies. about says what.
func (a *Service) askAbout(ctx context.Context, r lease.Record, about func(*accountcheck.Request)) (_ accountcheck.Found, err error) {
	profileID := r.ProfileID
	log := a.host.Log.With().Str("profile", profileID).Uint64("token", uint64(r.Token)).Logger()
	ask := accountcheck.Request{Profile: profileID, Token: r.Token, ProxyID: r.ProxyID, Memory: r.BrowserMemory, Appearance: r.Appearance, ReadOnly: r.ReadOnly, KeepCookies: true, Log: log}
	// The browser of its last task, which sites know: of a person's nothing is to be learned about those of tasks.
	if last, known := a.host.Sessions.File(r.SessionID); known && last.ByHand == nil {
		ask.Headless, ask.Args = last.Manifest.Headless, last.Manifest.ChromeArgs
		ask.ReadOnly = ask.ReadOnly || last.Manifest.WantsReadOnly()
	}
	about(&ask)
	if ask.Path, err = a.host.Root.Path(profileID); err != nil {
		return accountcheck.Found{}, api.Refuse(api.CodeUnknownProfile, "%v", err)
	}
	if err := a.host.CheckDir(profileID, ask.Path); err != nil {
		return accountcheck.Found{}, err
	}
	if err := a.host.BrowserFits(ctx, ask.Path); err != nil {
		return accountcheck.Found{}, err
	}
	slot := a.host.Slots.Find(profileID)
	if p := slot.TakePlace(&slots.Waiter{}); p != nil {
		return accountcheck.Found{}, p
	}
	if ask.Lock, err = a.host.LockUnused(r); err != nil {
		return accountcheck.Found{}, err
	}
	defer func() { err = errors.Join(err, ask.Lock.Unlock()) }()
	if err := ask.Lock.Chown(); err != nil {
		return accountcheck.Found{}, api.Refuse(api.CodeBrowserStartFailed, "profile %s cannot be given to the user of its browser: %v", profileID, err)
	}
	// A caller who goes away must not leave a browser half closed.
	ctx = context.WithoutCancel(ctx)
	opened, err := a.noteOpened(ctx, r, ask.Lock)
	if err != nil {
		return accountcheck.Found{}, err
	}
	log.Info().Str("principal", principal.Of(ctx).Name).Msg("check of the account asked for")
	found, err := a.o.Checker.Run(ctx, ask)
	if err == nil && found.Unchanged {
		if err := a.noteUnchanged(ctx, opened); err != nil { // then a snapshot is made that would not have to be
			log.Warn().Err(err).Msg("the record does not say that the check changed nothing")
		}
	}
	return found, err
}

// noteOpened writes into the record, and into the home's copy of it, that a browser is about to be opened
// on the profile, before it is: a launcher that is killed meanwhile leaves no record by which a snapshot
// of before has the profile as it is. It returns the record. Of a profile that is not at rest no snapshot
// has the present state anyway.
func (a *Service) noteOpened(ctx context.Context, r lease.Record, lock *profiledir.Lock) (lease.Record, error) {
	if !r.AtRest() {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	e, err := lease.ChangeExisting(ctx, a.host.Store, r.ProfileID, func(e lease.Entry) (lease.Record, error) {
		if e.Record.Token != r.Token || e.Record.Home != r.Home {
			return e.Record, errOver
		}
		return e.Record.Open()
	})
	if _, wanted := errors.AsType[*lease.MoveError](err); wanted || errors.Is(err, errOver) {
		return r, api.Refuse(api.CodeConflict, "profile %s is not checked: %v", r.ProfileID, err)
	}
	if err == nil {
		err = lock.RaiseFloor(e.Record)
	}
	return e.Record, host.Problem(err)
}

// noteUnchanged writes into the record that the browser of noteOpened changed nothing.
func (a *Service) noteUnchanged(ctx context.Context, opened lease.Record) error {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	_, err := lease.ChangeExisting(ctx, a.host.Store, opened.ProfileID, func(e lease.Entry) (lease.Record, error) {
		if e.Record.Token != opened.Token {
			return e.Record, errOver
		}
		return e.Record.Unchanged(opened.Opened), nil
	})
	return err
}
