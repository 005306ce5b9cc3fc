package cluster

import (
	"context"

	"leasehold/lease"
)

// takeIn takes in a record that the store shows: into the view, and into what this launcher
// remembers. If the record contradicts what is remembered, it is contested at once, and not
// remembered. What this launcher keeps beside a directory may tell more than its roster.
func (p *Patrol) takeIn(v *view, e lease.Entry) {
	r := e.Record
	p.census.see(r)
	known := p.o.Recoverer.Remembers(r.ProfileID)
	contradicted := !known.Unproved && known.Judge(r) == lease.Contradicts
	if !contradicted {
		p.o.Roster.See(r)
	}
	if before := v.records[r.ProfileID].Record; r.Reason == lease.ReasonContested && r.State == lease.Quarantined && before.Token != r.Token && r.OtherHome == p.o.LauncherID {
		p.o.Log.Error().Str("profile", r.ProfileID).Str("home", r.Home).Uint64("token", uint64(r.Token)).
			Msg("another launcher was the home of the profile before the lease store forgot it: it is contested, and a person decides which of the two is its home")
	}
	v.records[r.ProfileID] = seen{Entry: e, again: p.look(r), contradicted: contradicted}
	if contradicted {
		p.restate([]string{r.ProfileID})
	}
}

// compare compares everything that is remembered with a complete view. If the store knows less,
// it has forgotten, whether or not that was noticed when it happened. The store itself is asked: what
// this launcher has stored since the view began is remembered, and may be shown later.
func (p *Patrol) compare(v *view) {
	for _, k := range p.o.Roster.All() {
		if !k.Unproved && k.Judge(v.records[k.ProfileID].Record) == lease.Forgets && p.isForgotten(k) {
			p.o.Log.Warn().Str("profile", k.ProfileID).Str("home", k.Home).Uint64("token", uint64(k.Token)).
				Msg("the lease store forgot a profile, at least: nothing is made anew until everybody who remembers had the time to say so")
			p.o.Presence.StoreForgot()
			return
		}
	}
}

// isForgotten tells whether the store knows less than what is remembered, or cannot be asked.
func (p *Patrol) isForgotten(k lease.Known) bool {
	ctx, cancel := context.WithTimeout(p.ctx, storeTimeout)
	defer cancel()
	e, err := p.o.Store.Get(ctx, k.ProfileID)
	return err != nil || k.Judge(e.Record) == lease.Forgets
}

// due are the profiles about which this launcher has to say what it remembers: those of other
// launchers that the store has forgotten, once their homes have had time to say so themselves,
// and those that were made anew under another home.
func (p *Patrol) due(v *view) (profiles []string) {
	for profile, e := range v.records {
		if e.contradicted {
			profiles = append(profiles, profile)
		}
	}
	if p.o.Presence.HomesHadTime() {
		for _, k := range p.o.Roster.All() {
			if k.Home != p.o.LauncherID && !k.Unproved && k.Judge(v.records[k.ProfileID].Record) == lease.Forgets {
				profiles = append(profiles, k.ProfileID)
			}
		}
	}
	return profiles
}

// restate writes what the store lacks about the profiles, in the background. If that is already
// under way, if this launcher may not act yet, or if the store cannot be reached, the next look
// around tries again.
func (p *Patrol) restate(profiles []string) {
	if len(profiles) == 0 || p.o.Presence.MayAct(lease.Record{}) != nil || !p.restating.CompareAndSwap(false, true) {
		return
	}
	p.work.Go(func() {
		defer p.restating.Store(false)
		for _, profile := range profiles {
			ctx, cancel := context.WithTimeout(p.ctx, storeTimeout)
			err := p.o.Recoverer.Restate(ctx, profile)
			cancel()
			if p.ctx.Err() != nil {
				return
			}
			if err != nil {
				p.o.Log.Error().Err(err).Str("profile", profile).Msg("what this launcher remembers of the profile is not stated yet: it is tried again")
				return
			}
		}
	})
}
