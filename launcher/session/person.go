package session

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"leasehold/cdpproxy"
	"leasehold/cdpproxy/methods"
	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// A person takes a session over while its worker keeps the lease. Until the person hands it
// back, the worker may look at the pages but not act on them; what the person does is in the
// journal as theirs.

// People is who has a session by hand, and who looks at it.
//
// Three mutexes guard it. handing is held during a whole take-over or hand-back, also while it
// waits for the disk and the browser. mu is taken after it, and is held only for moments. The
// mutexes of the session's life, its file and what its worker asks are taken after both. That
// of acts is taken alone.
type People struct {
	*terms
	life      *life
	file      *kept
	asks      *Asks
	served    served
	announcer *Announcer
	grace     time.Duration // of a person who is gone
	ctx       context.Context
	work      *sync.WaitGroup

	taken cdpproxy.Takeover // what the worker's connections are told
	acts  acts

	handing sync.Mutex

	mu       sync.Mutex
	takeover *takeover      // nil: no person has taken the session over
	driving  *lease.Fence   // what Driving gives; nil: nobody has asked since the last hand-back
	drove    bool           // Driving has given one at some time
	views    map[looker]int // that are open
}

// looker is whose view it is: their principal and, if they say so, their own name.
type looker struct{ principal, person string }

// served is what People needs of the session itself. A session has a fence from its grant on,
// and a mux as soon as its browser runs.
type served interface {
	Fence() *lease.Fence
	Mux() *cdpproxy.Mux
	Note(checkpoint.Entry)
}

func newPeople(h *Registry, t *terms, l *life, f *kept, asks *Asks, s served) *People {
	return &People{
		terms: t, life: l, file: f, asks: asks, served: s, announcer: h.o.Announcer, grace: h.o.PersonGrace,
		ctx: h.ctx, work: h.work, views: map[looker]int{},
	}
}

// takeover is one person's time with a session, from taking over to handing back.
type takeover struct {
	api.Person
	// fence is the fence for the person's commands: it is under the session's own, and is shut
	// when the person no longer has the session.
	fence *lease.Fence
	// asked is the id of the request that waited when the person took over; empty: none did.
	asked string
	// until is when the session is handed back in any case; zero: it is not.
	until time.Time
	// seenAt is the last sign of the person. leaving says that the session is about to be
	// handed back for them. The mutex of People guards both.
	seenAt  time.Time
	leaving bool
}

var errHandedBack = errors.New("the person has handed the session back")

// TakeOver gives the session to a person. If another person has it, that is refused, unless the
// request names that person. When it returns, nothing that the worker sent can reach the
// browser any more.
func (ps *People) TakeOver(p principal.Principal, t api.TakeOver) error {
	if ps.ephemeral {
		return notForReaders(ps.id, "a person can do nothing in it that is kept")
	}
	ps.handing.Lock()
	defer ps.handing.Unlock()
	before, who := ps.takenBy(), ps.person()
	next := &takeover{Person: api.Person{Name: checkpoint.Clip(cmp.Or(t.Person, p.Name)), Principal: p.Name, Since: time.Now().UTC()}}
	if asked := ps.asks.waiting(); asked != nil {
		next.asked = asked.ID
	}
	switch {
	case who == nil:
	case who.Principal == p.Name && (before == nil || t.Person == "" || who.Name == next.Name):
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ps.seenLocked(p)
		return nil
	case before == nil || t.TakeFrom != who.Name:
		return takenOver(ps.id, *who)
	}
	// The next launcher has to know of the person before anything changes for the others.
	if err := ps.persistPerson(&next.Person); err != nil {
		return err
	}
	next.fence, next.seenAt = ps.served.Fence().Under(), time.Now()
	if p.Link {
		next.until = next.seenAt.Add(api.SignInTime)
	}
	ps.stopDriving(takenOver(ps.id, next.Person))
	ps.taken.Begin(ps.served.Mux(), methods.RefusePerson(next.Name, next.Since))
	if before != nil { // its last commands are on their way, or refused
		ps.leaves(before, "taken by "+next.Name)
		ps.announce(lease.EventHandedBack, before, func(e *lease.Event) { e.Reason = handedToAnother })
	}
	ps.setTakeover(next)
	ps.life.wake() // for run to look whether the person stays
	ps.log.Info().Str("principal", p.Name).Str("person", next.Name).Msg("session taken over")
	ps.served.Note(next.entry(checkpoint.PersonTook, t.Note))
	ps.announce(lease.EventTaken, next, func(e *lease.Event) { e.Note = checkpoint.Clip(t.Note) })
	return nil
}

// HandBack lets the worker go on.
func (ps *People) HandBack(p principal.Principal, h api.HandBack) error {
	ps.handing.Lock()
	defer ps.handing.Unlock()
	t := ps.takenBy()
	switch {
	case ps.policy.byHand:
		return api.Refuse(api.CodeNotTakenOver, "session %s is a hold, which has no worker: end it instead", ps.id)
	case t == nil:
		return nobodyHas(ps.id)
	case t.Principal != p.Name:
		return takenOver(ps.id, t.Person)
	}
	ps.giveBack(t, h.Note)
	h.AskID = cmp.Or(h.AskID, t.asked)
	answered := ps.asks.answer(t.Person, h)
	ps.announce(lease.EventHandedBack, t, func(e *lease.Event) { e.Note, e.Answered = checkpoint.Clip(h.Note), answered })
	ps.log.Info().Str("principal", p.Name).Str("person", t.Name).Msg("session handed back")
	return nil
}

// giveBack lets the worker act again. The caller holds ps.handing.
func (ps *People) giveBack(t *takeover, note string) {
	ps.leaves(t, note)
	ps.setTakeover(nil)
	if err := ps.file.save(); err != nil { // the next launcher would only wait for the person
		ps.log.Error().Err(err).Msg("session file not written")
	}
	ps.taken.End(ps.served.Mux())
}

// leaves ends what a person can do. When it returns, nothing that the person sent can reach the
// browser any more.
func (ps *People) leaves(t *takeover, note string) {
	t.fence.Shut(errHandedBack)
	ps.served.Mux().Barrier()
	ps.noteActs()
	ps.served.Note(t.entry(checkpoint.PersonHandedBack, note))
}

// goesOnWith keeps the session of an earlier launcher with the person who had it.
func (ps *People) goesOnWith(p *api.Person) {
	if p == nil {
		return
	}
	ps.taken.Begin(ps.served.Mux(), methods.RefusePerson(p.Name, p.Since))
	ps.setTakeover(&takeover{Person: *p, fence: ps.served.Fence().Under(), seenAt: time.Now()})
}

// takenBy is who took the session over; nil: nobody.
func (ps *People) takenBy() *takeover {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.takeover
}

func (ps *People) setTakeover(t *takeover) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.takeover = t
	var who *api.Person
	if t != nil {
		who = &t.Person
	} else {
		ps.driving = nil
	}
	ps.file.change(func(f *sessionfile.File) { f.Person = who })
}

// persistPerson writes into the session's file who has taken it over. If that fails, the
// session is as it was.
func (ps *People) persistPerson(p *api.Person) error {
	set := func(p *api.Person) (was *api.Person) {
		ps.file.change(func(f *sessionfile.File) { was, f.Person = f.Person, p })
		return was
	}
	was := set(p)
	err := ps.file.save()
	if err != nil {
		set(was)
	}
	return err
}

// shown is who has the session by hand, for outsiders; nil: nobody.
func (ps *People) shown() *api.Person {
	who := ps.person()
	if who == nil {
		return nil
	}
	shown := *who
	return &shown
}

// person is who has the session by hand; nil: nobody.
func (ps *People) person() *api.Person {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.personLocked()
}

// personLocked is person for callers that hold ps.mu.
func (ps *People) personLocked() *api.Person {
	switch {
	case ps.takeover != nil:
		return &ps.takeover.Person
	case ps.manifest.ByHand != nil:
		return &api.Person{Name: ps.manifest.ByHand.Holder, Principal: ps.manifest.Opener.Name, Since: ps.life.known().startedAt.UTC()}
	}
	return nil
}

// Driving is for actions of the worker on pages that do not go through its connections. It is
// refused while a person has taken the session over, and while the sidecar signs the account in.
// Otherwise it returns a fence, which is shut when a person takes the session over meanwhile; its
// cause is a *api.Problem then.
func (ps *People) Driving() (*lease.Fence, error) {
	if why := ps.served.Mux().KeptPrivate(); why != nil {
		return nil, api.Refuse(api.CodeAsksAlready, "session %s: %s", ps.id, why.Text)
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if t := ps.takeover; t != nil {
		return nil, takenOver(ps.id, t.Person)
	}
	if ps.driving == nil {
		ps.driving = ps.served.Fence().Under()
	}
	ps.drove = true
	return ps.driving, nil
}

// everDrove tells whether anybody was given Driving's fence.
func (ps *People) everDrove() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.drove
}

// stopDriving shuts the fence of Driving until nobody has the session by hand.
func (ps *People) stopDriving(cause error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.driving == nil {
		ps.driving = ps.served.Fence().Under()
	}
	ps.driving.Shut(cause)
}

// PersonIs returns nil while the principal has the session by hand: the person whom it names, if it names one, since
// several may share it. (A hold is its principal's.) Otherwise the error, a *api.Problem, says who has it, that nobody
// does, or that the session is ending.
func (ps *People) PersonIs(p principal.Principal) error {
	_, _, err := ps.inHandsOf(p)
	return err
}

// inHandsOf is like PersonIs, but also counts as a sign of that person, and returns the fence
// for the person's commands.
func (ps *People) inHandsOf(p principal.Principal) (api.Person, *lease.Fence, error) {
	if ps.life.isEnding() || ps.served.Fence().Check() != nil {
		return api.Person{}, nil, ps.life.endingProblem()
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	who := ps.personLocked()
	switch {
	case who == nil:
		return api.Person{}, nil, nobodyHas(ps.id)
	case who.Principal != p.Name || p.Name == "":
		return api.Person{}, nil, takenOver(ps.id, *who)
	case ps.takeover == nil: // a hold
		return *who, ps.served.Fence(), nil
	case !p.ActsAs(who.Name):
		return api.Person{}, nil, takenOver(ps.id, *who)
	}
	ps.seenLocked(p)
	return *who, ps.takeover.fence, nil
}

func nobodyHas(sessionID string) *api.Problem {
	return api.Refuse(api.CodeNotTakenOver, "nobody has session %s by hand: take it over first", sessionID).With("session_id", sessionID)
}

func takenOver(sessionID string, who api.Person) *api.Problem {
	return api.Refuse(api.CodeTakenOver, "%s (%s) has session %s since %s", who.Name, who.Principal, sessionID, who.Since.Format(time.RFC3339)).
		With("session_id", sessionID).With("person", who)
}

// Reasons of a hand-back that the person did not make, as events have them.
const (
	handedToAnother = "taken_by_another"
	handedSinceGone = "person_gone"
	handedSinceOver = api.ReasonLockTimeout
)

func (ps *People) announce(event string, t *takeover, more func(*lease.Event)) {
	e := ps.personEvent(event, t.Principal)
	e.Person = t.Name
	more(&e)
	ps.announcer.Person(ps.ctx, e)
}

// personEvent is an event about the session that a principal caused.
func (t *terms) personEvent(event, principal string) lease.Event {
	return lease.Event{
		Event: event, ProfileID: t.profile, Token: t.token, SessionID: t.id,
		OwnerWorkerID: t.manifest.WorkerID, TaskID: t.manifest.TaskID, Principal: principal,
	}
}

// entry is the journal's entry about something that the person did.
func (t *takeover) entry(name, text string) checkpoint.Entry {
	return checkpoint.Entry{Kind: checkpoint.KindPerson, Name: name, Text: text, Person: t.Name, Principal: t.Principal}
}
