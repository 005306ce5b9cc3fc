package launcher

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence/redact"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// CheckProfile makes the session check of a profile that is not in use: of a free one, or of
// one in review, since the person who decides may want to know the result.
func (ds *directories) CheckProfile(ctx context.Context, profileID string) (api.SessionChecked, error) {
	found, err := ds.askAbout(ctx, profileID, func(r lease.Record, ask *accountcheck.Request) error {
		if r.SessionCheck == nil {
			return api.Invalid("session_check", "profile %s has none: set one (leasehold profiles create %s --session-check URL)", profileID, profileID)
		}
		ask.Check, ask.Sites = r.SessionCheck, ds.o.Sites.Book()
		return nil
	})
	if err != nil {
		return api.SessionChecked{}, err
	}
	s := found.Session
	return api.SessionChecked{ProfileID: profileID, SignedIn: string(s.Answer), How: s.How, Status: s.Status, At: time.Now().UTC()}, nil
}

// TrySite asks the questions of a file on a profile that is not in use, twice. Nothing is kept.
func (ds *directories) TrySite(ctx context.Context, name string, t api.SiteTry) (api.SiteTried, error) {
	file, err := checkedFile(name, t.File)
	if err != nil {
		return api.SiteTried{}, err
	}
	if err := lease.CheckProfileID(t.ProfileID); err != nil {
		return api.SiteTried{}, api.Invalid("profile_id", "%v", err)
	}
	questions := file.Questions()
	if len(questions) == 0 {
		return api.SiteTried{}, api.Invalid("probes", "site %s: the file asks nothing: want identity or probes", name)
	}
	var noted entries
	found, err := ds.askAbout(ctx, t.ProfileID, func(_ lease.Record, ask *accountcheck.Request) error {
		ask.Questions, ask.Sink = questions, noted.add
		ask.Again = func([]site.Answer) []site.Question { return questions }
		return nil
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

// askAbout asks sites about the account of a profile that nobody uses. about says what, or why not.
func (ds *directories) askAbout(ctx context.Context, profileID string, about func(lease.Record, *accountcheck.Request) error) (_ accountcheck.Found, err error) {
	r, done, err := ds.borrowIn(ctx, profileID, lease.Available, lease.ManualReview)
	if err != nil {
		return accountcheck.Found{}, err
	}
	defer done()
	log := ds.o.Log.With().Str("profile", profileID).Uint64("token", uint64(r.Token)).Logger()
	ask := accountcheck.Request{Profile: profileID, Token: r.Token, ProxyID: r.ProxyID, Memory: r.BrowserMemory, Appearance: r.Appearance, KeepCookies: true, Log: log}
	if err := about(r, &ask); err != nil {
		return accountcheck.Found{}, err
	}
	if ask.Path, err = ds.o.Root.Path(profileID); err != nil {
		return accountcheck.Found{}, api.Refuse(api.CodeUnknownProfile, "%v", err)
	}
	if err := ds.grants.checkDir(profileID, ask.Path); err != nil {
		return accountcheck.Found{}, err
	}
	if err := ds.browserFits(ctx, ask.Path); err != nil {
		return accountcheck.Found{}, err
	}
	slot := ds.slots.Find(profileID)
	if p := slot.TakePlace(&slots.Waiter{}); p != nil {
		return accountcheck.Found{}, p
	}
	if ask.Lock, err = ds.lockUnused(r); err != nil {
		return accountcheck.Found{}, err
	}
	defer func() { err = errors.Join(err, ask.Lock.Unlock()) }()
	if err := ask.Lock.Chown(); err != nil {
		return accountcheck.Found{}, api.Refuse(api.CodeBrowserStartFailed, "profile %s cannot be given to the user of its browser: %v", profileID, err)
	}
	log.Info().Str("principal", principal.Of(ctx).Name).Msg("check of the account asked for")
	// A caller who goes away must not leave a browser half closed.
	return ds.checker.Run(context.WithoutCancel(ctx), ask)
}
