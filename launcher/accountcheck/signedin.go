package accountcheck

import (
	"slices"

	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
	"leasehold/lease"
)

// Identities are the questions by whose answers a profile's account is signed in, beside its session
// check: of the site of that check and of those in the profile's domains; where it has no domains, of
// those that have shown its account before.
func (m Memory) Identities(r lease.Record, book *site.Book) []site.Question {
	address := ""
	if r.SessionCheck != nil {
		address = r.SessionCheck.URL
	}
	kept, _ := m.Load(r.ProfileID) // what cannot be believed says nothing
	return book.Identities(address, r.ExpectedDomains, func(q site.Question) bool {
		_, shown := kept[q.ID()]
		return shown && len(r.ExpectedDomains) == 0
	})
}

// CanBeAsked tells whether a site can be asked if a profile's account is signed in.
func (m Memory) CanBeAsked(r lease.Record, book *site.Book) bool {
	return r.SessionCheck != nil || len(m.Identities(r, book)) > 0
}

// Rehearsals are the pages that are opened about a profile's account while nobody has it, so that
// what they show after a loss can be compared: those of which something is picked out, of the site of
// its session check and of those in its domains, each once after a session.
func (m Memory) Rehearsals(r lease.Record, book *site.Book) []site.Question {
	var urls []string
	if r.SessionCheck != nil {
		urls = []string{r.SessionCheck.URL}
	}
	kept, _ := m.Load(r.ProfileID) // what cannot be believed says nothing
	return slices.DeleteFunc(book.Rehearsals(urls, r.ExpectedDomains), func(q site.Question) bool {
		k, shown := kept[q.ID()]
		return q.TakeText == "" || shown && k.Means == q.Means() && k.At.After(r.AcquiredAt)
	})
}

// SignedIn is what answers say about whether a profile's account is signed in. Of the answers, those
// to Identities count. taken says that whoever had the profile was there to sign in, so that another
// account than before is now the profile's own.
func (m Memory) SignedIn(r lease.Record, book *site.Book, session Result, answers []site.Answer, taken bool) lease.Checked {
	asked := m.Identities(r, book)
	kept, _ := m.Load(r.ProfileID)
	var identities []site.Compared
	for _, a := range answers {
		if !a.Identity || !slices.ContainsFunc(asked, func(q site.Question) bool { return q.ID() == a.ID() }) {
			continue
		}
		before := kept[a.ID()]
		if taken {
			before = site.Kept{}
		}
		identities = append(identities, site.Compare(a, before, m.Digest(r.ProfileID)))
	}
	check := ""
	if r.SessionCheck != nil {
		check = r.SessionCheck.URL
	}
	return signedIn(check, session, identities)
}

// signedIn is the answer of the session check, which asked for this URL, and of all identities: who
// is signed out or somebody else on one site is not signed in, and who is not known on one is not
// known. Where nothing was asked, it is the zero value.
func signedIn(check string, session Result, identities []site.Compared) (c lease.Checked) {
	take := func(next lease.Checked) {
		if weight(next) > weight(c) {
			c = next
		}
	}
	if session.Answer != "" {
		take(lease.Checked{SignedIn: lease.SignedIn(session.Answer), How: session.How, At: shape.OriginOf(check)})
	}
	for _, i := range identities {
		next := lease.Checked{SignedIn: lease.SignedInYes, How: i.Brief(), At: shape.OriginOf(i.URL)}
		switch {
		case i.Moved:
			next.SignedIn, next.Another = lease.SignedInNo, true
		case i.State == site.NotTold:
			next.SignedIn = lease.SignedInNo
		case i.State == site.NotHad:
			next.SignedIn = lease.SignedInUnknown
		}
		take(next)
	}
	if c.SignedIn != lease.SignedInNo {
		c.At = ""
	}
	return c
}

// weight is how much an answer says against an account.
func weight(c lease.Checked) int {
	switch {
	case c.Another:
		return 4
	case c.SignedIn == lease.SignedInNo:
		return 3
	case c.SignedIn == lease.SignedInUnknown:
		return 2
	case c.SignedIn == lease.SignedInYes:
		return 1
	}
	return 0
}

// Own are the answers that are to be remembered of a profile's account: all but those that show
// somebody else's, which would be taken for its own from then on.
func (m Memory) Own(profile string, answers []site.Answer) []site.Answer {
	kept, _ := m.Load(profile)
	return slices.DeleteFunc(slices.Clone(answers), func(a site.Answer) bool {
		return a.Identity && site.Compare(a, kept[a.ID()], m.Digest(profile)).Moved
	})
}
