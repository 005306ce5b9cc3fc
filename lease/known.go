package lease

import (
	"reflect"
	"slices"
	"time"
)

// Reasons in the record of a profile if launchers know more about its home than the store does.
const (
	// ReasonContested: two launchers are known as the home, because the store forgot the first
	// one. A person decides which one it is.
	ReasonContested = "home_contested"
)

// Known is what a launcher remembers about a profile, whether or not the store still knows it:
// the highest token with which it saw the profile, and what the record said then.
type Known struct {
	ProfileID string `json:"profile_id"`
	Home      string `json:"home"`
	HomeToken Token  `json:"home_token,omitempty"`
	Token     Token  `json:"lease_token"`
	State     State  `json:"state"`
	AccountID string `json:"account_id,omitempty"`
	ProxyID   string `json:"proxy_id,omitempty"`
	// Sequence is the highest number of an event of the profile that was seen. A record that is
	// restated continues above it, so that its events follow the earlier ones.
	Sequence uint64 `json:"sequence,omitempty"`
	// Events are the last events that were in the outboxes of records. A store that goes back
	// may lose them; if only the number was remembered, there would be a gap.
	Events []Event `json:"events,omitempty"`
	// Unproved says that nobody knows who wrote this memory. Then nobody is given the profile
	// because of it, and it has no other effect.
	Unproved bool `json:"unproved,omitempty"`
}

// maxKnownEvents is how many events are remembered of one profile: those of two sessions that
// ended in order, which is some kilobytes.
const maxKnownEvents = 4

// Known is what has to be remembered of the record.
func (r Record) Known() Known {
	return Known{
		ProfileID: r.ProfileID, Home: r.Home, HomeToken: r.HomeToken, Token: r.Token, State: r.State, AccountID: r.AccountID, ProxyID: r.ProxyID, Sequence: r.Sequence,
		Events: lastEvents(nil, r.Outbox),
	}
}

// lastEvents are the last of the remembered events and of those in an outbox. An event in the
// outbox replaces remembered events with its number or a higher one.
func lastEvents(known, outbox []Event) []Event {
	if len(outbox) > 0 {
		known = slices.DeleteFunc(slices.Clone(known), func(e Event) bool { return e.Sequence >= outbox[0].Sequence })
	}
	all := slices.Concat(known, outbox)
	return all[max(0, len(all)-maxKnownEvents):]
}

// Same tells whether two memories are equal.
func (k Known) Same(other Known) bool {
	same := slices.EqualFunc(k.Events, other.Events, Event.same)
	k.Events, other.Events = nil, nil
	return same && reflect.DeepEqual(k, other)
}

// Record is the profile's record, as far as it is remembered.
func (k Known) Record() Record {
	return Record{ProfileID: k.ProfileID, Home: k.Home, HomeToken: k.HomeToken, Token: k.Token, State: k.State, AccountID: k.AccountID, ProxyID: k.ProxyID, Sequence: k.Sequence, Settings: Settings{MaxActiveRuns: 1}}
}

// Judgement is how a record compares with what a launcher remembers about the profile.
type Judgement int

// The judgements.
const (
	// Agrees: the record is the remembered one, or a later one.
	Agrees Judgement = iota
	// Forgets: there is no record, or an earlier one. The home knows more.
	Forgets
	// Contradicts: the record names another home, which did not become the home under a higher
	// token than the remembered one. So the store has forgotten the profile, and somebody made
	// it anew.
	Contradicts
)

// Judge compares a record, which need not exist, with what is remembered. The zero Known agrees
// with everything.
func (k Known) Judge(r Record) Judgement {
	switch {
	case k.Home == "":
		return Agrees
	case r.State == "":
		return Forgets
	case r.Home != "" && r.Home != k.Home && r.HomeToken <= k.Token:
		return Contradicts
	case r.Token < k.Token:
		return Forgets
	}
	return Agrees
}

// Learn returns what is remembered after the record was seen. A record that another launcher
// recalled is news only for a launcher that knows less. The number of the last event never
// falls.
func (k Known) Learn(r Record) Known {
	switch {
	case r.State == "" || r.Home == "", r.Token > MaxClaim || r.Sequence > uint64(MaxClaim): // no launcher comes to that
		return k
	case k.Unproved:
		return r.Known()
	case k.Judge(r) != Agrees:
		return k
	}
	now := r.Known()
	if k.Home != "" && r.RememberedBy != "" && r.Token <= k.Token {
		now = k
	}
	now.Sequence = max(k.Sequence, r.Sequence)
	if now.Events = k.Events; r.Sequence >= k.Sequence {
		now.Events = lastEvents(k.Events, r.Outbox)
	}
	return now
}

// Later is the one of two memories of a profile that knows the higher token; k, if both know
// the same one, or if it is not known who wrote the other. The result has the higher event
// number of the two.
func (k Known) Later(other Known) Known {
	switch {
	case k.Home == "":
		return other
	case other.Home == "" || other.Unproved:
		return k
	}
	later, earlier := k, other
	if other.Token > k.Token {
		later, earlier = other, k
	}
	if earlier.Sequence > later.Sequence {
		later.Sequence, later.Events = earlier.Sequence, earlier.Events
	}
	return later
}

func (k Known) after(number uint64) []Event {
	return slices.DeleteFunc(slices.Clone(k.Events), func(e Event) bool { return e.Sequence <= number || e.Sequence > k.Sequence })
}

// Recall states the record of a profile that the store has forgotten, as a launcher that is not
// its home remembers it. Nobody is given the profile until its home is back, which knows more
// and says so by Heal or Uphold, or until a person decides. by is the launcher that remembers;
// token is the highest token and sequence the last number that anybody knows of.
func (r Record) Recall(k Known, by string, token Token, sequence uint64, now time.Time) (Record, error) {
	was, runs, last := r.State, r.Runs, r.Sequence
	if was == "" {
		r = k.Record()
		r.State = was
	}
	r = r.Clone()
	r.Home, r.HomeToken, r.RememberedBy = k.Home, k.HomeToken, by
	r.Token = max(r.Token, k.Token, token)
	r.Outbox = append(r.Outbox, k.after(last)...)
	r.Sequence = max(r.Sequence, k.Sequence, sequence)
	r.Reason, r.RecoveryStartedAt, r.Runs = ReasonRecordLost, now.UTC(), nil
	r, err := r.transition(Recalled, Quarantined, now, string(Quarantined))
	if err != nil {
		return r, err
	}
	for _, run := range runs {
		r = r.emit(EventExpired, now).aboutRun(run, len(runs) == 1)
	}
	return r, nil
}

// Contest quarantines a profile whose record names another home than the remembered one. The
// remembered home becomes the home again, under a token above all that anybody knows of, with
// own, the last record that it kept, if the caller has that. The other home is named beside it.
// Both launchers stop, and a person decides.
func (r Record) Contest(k Known, own Record, token Token, sequence uint64, now time.Time) (Record, error) {
	was, runs, other := r.State, r.Runs, r.Home
	token = max(r.Token, k.Token, token)
	sequence = max(r.Sequence, own.Sequence, k.Sequence, sequence)
	if own.ProfileID == r.ProfileID && own.State != "" {
		r = r.replacedBy(own)
	}
	r.State, r.Sequence = was, sequence
	r.Home, r.OtherHome, r.HomeToken, r.RememberedBy = k.Home, other, token+1, ""
	r.Reason = ReasonContested
	return r.quarantine(Contested, runs, token, now)
}

// PersonDecides tells whether the reason of a quarantine alone means that a person decides,
// whatever an inspection finds.
func PersonDecides(reason string) bool { return Distrusted(reason) || reason == ReasonContested }
