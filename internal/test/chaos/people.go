package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// What profiles that may move have, so that they can be asked for without a name.
const (
	roamLabel   = "pool"
	roamAccount = "roamers"
)

// people are those who look after profiles that travel: operators who move them, and persons who
// give them another home. They also watch where the profiles are, and who waits.
type people struct {
	hosts   []*host
	history *History
	ttl     time.Duration

	mu sync.Mutex
	// records are the profiles as they were seen last, and moves the changes of home that were
	// seen, by id.
	records map[string]lease.Record
	moves   map[string]bool
	tasks   int // of uses
	// former are the launchers that have left each profile.
	former  map[string][]string
	waiters map[string]bool // seen at other launchers
}

func newPeople(hosts []*host, history *History, ttl time.Duration) *people {
	return &people{hosts: hosts, history: history, ttl: ttl, records: map[string]lease.Record{}, moves: map[string]bool{}, former: map[string][]string{}, waiters: map[string]bool{}}
}

// home is the launcher that was seen as the profile's home last.
func (p *people) home(profile string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records[profile].Home
}

// record is a profile's record as it was seen last.
func (p *people) record(profile string) lease.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records[profile]
}

// uses has a session on a profile at a host, and ends it in order at once.
func (p *people) uses(ctx context.Context, at *host, profile string) error {
	p.mu.Lock()
	p.tasks++
	m := api.Manifest{ProfileID: profile, WorkerID: "traveller", TaskID: fmt.Sprintf("travel-%d", p.tasks), Wait: api.Duration(p.ttl)}
	p.mu.Unlock()
	if r := p.record(profile); r.State == lease.ResumePending {
		m.TaskID = r.TaskID
	}
	p.history.Add(Entry{Kind: Asked, Profile: profile, Worker: m.WorkerID, Task: m.TaskID, Launcher: at.name, Text: byProfile})
	var s api.Session
	if err := at.call(ctx, dialTime, http.MethodPost, "/v1/sessions", m, &s); err != nil {
		return err
	}
	return at.call(ctx, dialTime, http.MethodDelete, "/v1/sessions/"+s.SessionID, api.Release{Write: api.Write{Token: s.Token}, Outcome: "succeeded"}, nil)
}

// see takes in a record, and reports a change of home that was not seen before.
func (p *people) see(r lease.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Token >= p.records[r.ProfileID].Token {
		p.records[r.ProfileID] = r
	}
	if m := r.Moved; m != nil && !p.moves[m.ID] && m.Token == r.HomeToken {
		p.moves[m.ID] = true
		p.former[r.ProfileID] = append(p.former[r.ProfileID], m.From)
		p.history.Add(Entry{Kind: Moved, Profile: r.ProfileID, Token: m.Token, Home: r.Home, Move: m, Text: howMoved(m)})
	}
}

// The ways in which a profile comes to another home.
const (
	movedByItself   = "by itself, with its snapshot"
	movedByOperator = "by an operator, with its snapshot"
	movedByPerson   = "by a person, with a snapshot"
	movedEmpty      = "by a person, with an empty directory"
	movedLeft       = "by a person, with a directory that was left"
)

func howMoved(m *lease.Move) string {
	switch {
	case m.Person == "":
		return movedByItself
	case m.Person == operatorName:
		return movedByOperator
	case m.Directory == lease.DirectorySnapshot:
		return movedByPerson
	case m.Directory == lease.DirectoryEmpty:
		return movedEmpty
	}
	return movedLeft
}

// The names under which people move profiles.
const (
	operatorName = "operator"
	personName   = "person"
)

// watch looks at the records and the queue, at one launcher after the other, until ctx ends.
func (p *people) watch(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		host := p.hosts[i%len(p.hosts)]
		if records, err := host.records(ctx); err == nil {
			for _, r := range records {
				p.see(r)
			}
		}
		if waiting, err := host.queue(ctx); err == nil {
			for _, w := range waiting {
				p.seeWaiter(host, w)
			}
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

func (p *people) seeWaiter(host *host, w api.Waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := w.WorkerID + " " + w.TaskID + " " + w.LauncherID; w.LauncherID != host.name && !p.waiters[id] {
		p.waiters[id] = true
		p.history.Add(Entry{Kind: Queued, Profile: w.ProfileID, Worker: w.WorkerID, Task: w.TaskID, Launcher: w.LauncherID, Text: "seen at " + host.name})
	}
}

// roaming are the profiles that may move, as they were seen last.
func (p *people) roaming() []lease.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []lease.Record
	for _, host := range p.hosts {
		for _, profile := range host.roaming {
			if r, ok := p.records[profile]; ok {
				all = append(all, r)
			}
		}
	}
	return all
}

func (p *people) find(name string) *host {
	i := slices.IndexFunc(p.hosts, func(h *host) bool { return h.name == name })
	if i < 0 {
		return nil
	}
	return p.hosts[i]
}

// ready are those of the roaming profiles that could move by themselves.
func (p *people) ready() []lease.Record {
	return slices.DeleteFunc(p.roaming(), func(r lease.Record) bool { return r.MayMove() != nil })
}

// work moves profiles, and helps those that are stuck, until ctx ends.
func (p *people) work(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		sleep(ctx, between(rnd, p.ttl/4, p.ttl))
		for _, r := range p.roaming() {
			p.help(ctx, r)
		}
		all := p.ready()
		if len(all) == 0 || rnd.IntN(4) == 0 { // a person can move others, too
			all = p.roaming()
		}
		if len(all) == 0 {
			continue
		}
		p.move(ctx, all[rnd.IntN(len(all))], rnd)
	}
}

// help gives a profile back what a forgotten record lost, and a directory where its home has
// left the one it had, or has none.
func (p *people) help(ctx context.Context, r lease.Record) {
	home := p.find(r.Home)
	if home == nil {
		return
	}
	if r.State == lease.Available && r.Mobility != lease.MobilityFree {
		_ = home.settle(ctx, r.ProfileID) // the next look comes here again
	}
	if p.history.isLeft(r.ProfileID) {
		p.rehome(ctx, home, r, api.ProfileRehome{Snapshot: "newest"})
	}
}

// move makes another launcher the profile's home: by an operator's word or by a person's.
func (p *people) move(ctx context.Context, r lease.Record, rnd *rand.Rand) {
	to := p.hosts[rnd.IntN(len(p.hosts))]
	former := p.formerHomes(r.ProfileID)
	if len(former) > 0 && rnd.IntN(2) == 0 {
		to = p.find(former[rnd.IntN(len(former))])
	}
	if to == nil || to.name == r.Home || to.sharesWith(r.Home) {
		return
	}
	ask := rnd.IntN(2) == 0
	switch n := rnd.IntN(20); {
	case n < 12:
		p.answered(r, func() error {
			var moved lease.Record
			err := to.call(ctx, moveTime, http.MethodPost, "/v1/profiles/"+r.ProfileID+"/move", api.ProfileMove{Write: api.Write{Token: r.Token}, Person: operatorName}, &moved)
			if err == nil {
				p.see(moved)
			}
			return err
		})
	case n < 16:
		p.rehome(ctx, to, r, api.ProfileRehome{Snapshot: "newest", AskHome: ask})
	case n < 19 && slices.Contains(former, to.name):
		p.rehome(ctx, to, r, api.ProfileRehome{Left: true, AskHome: ask})
	case n == 19:
		p.rehome(ctx, to, r, api.ProfileRehome{Empty: true, AskHome: ask})
	}
}

// formerHomes are the launchers that have left the profile.
func (p *people) formerHomes(profile string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.former[profile])
}

// moveTime bounds a move: a home that is there may take a while to give a profile up.
const moveTime = 60 * time.Second

// rehome has a person make a launcher the home of a profile.
func (p *people) rehome(ctx context.Context, to *host, r lease.Record, req api.ProfileRehome) {
	req.Write, req.Person, req.Note, req.AcceptLoss = api.Write{Token: r.Token}, personName, "chaos", true
	p.answered(r, func() error {
		var moved lease.Record
		err := to.call(ctx, moveTime, http.MethodPost, "/v1/profiles/"+r.ProfileID+"/rehome", req, &moved)
		if err == nil {
			p.see(moved)
		}
		return err
	})
}

// answered reports why a move was refused, if it was.
func (p *people) answered(r lease.Record, move func() error) {
	err := move()
	var refused *api.Problem
	switch {
	case errors.As(err, &refused):
		p.history.Add(Entry{Kind: NotMoved, Profile: r.ProfileID, Token: r.Token, Text: refused.Code})
	case err != nil:
		p.history.Add(Entry{Kind: Unknown, Profile: r.ProfileID, Token: r.Token, Text: "a move"})
	}
}

// verify has the snapshots of each profile that may move verified at its home.
func (p *people) verify(ctx context.Context) {
	for _, r := range p.roaming() {
		home := p.find(r.Home)
		if home == nil {
			continue
		}
		var found api.SnapshotsChecked
		err := home.call(ctx, callTime, http.MethodPost, "/v1/profiles/"+r.ProfileID+"/verify", map[string]any{}, &found)
		var refused *api.Problem
		e := Entry{Kind: Checked, Profile: r.ProfileID, Text: "whole"}
		switch {
		case errors.As(err, &refused):
			e.Text = refused.Code
		case err != nil:
			continue // the launcher is away
		case !found.Whole():
			e.Text = "damaged"
		}
		p.history.Add(e)
	}
}

// probe has several requests wait at each host at the same time, for any profile that fits and
// for one by name, once nothing goes wrong any more: each has to be served, once. It reports a
// request that is not.
func (p *people) probe(ctx context.Context, broken func(kind, profile, format string, args ...any)) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for _, host := range p.hosts {
		if err := host.ready(ctx); err != nil {
			broken(NotReady, "", "%v", err)
		}
	}
	var all sync.WaitGroup
	for i, host := range p.hosts {
		for n := range 3 {
			task := fmt.Sprintf("probe-%s-%d", host.name, n)
			m := api.Manifest{WorkerID: fmt.Sprintf("probe-%d", n), TaskID: task, Wait: api.Duration(probeTime), Priority: (i + n) % 3}
			switch n {
			case 0:
				m.AccountID = roamAccount
			default:
				m.Labels = lease.Labels{roamLabel: "*"}
			}
			all.Go(func() {
				if err := p.waitsInLine(ctx, host, m); err != nil {
					broken(WaiterLost, "", "%s at %s: %v", task, host.name, err)
				}
			})
		}
	}
	all.Wait()
	for _, host := range p.hosts {
		p.queueEmpties(host, broken)
	}
}

const (
	probeTime = 3 * time.Minute
	// probePause is the time between two tries of a request that was refused for a while.
	probePause = 500 * time.Millisecond
)

// waitsInLine asks until it is served, and ends its session at once.
func (p *people) waitsInLine(ctx context.Context, at *host, m api.Manifest) error {
	to := at.sidecar
	for {
		var s api.Session
		p.history.Add(Entry{Kind: Asked, Worker: m.WorkerID, Task: m.TaskID, Launcher: at.name, Text: wayOf(m)})
		err := to.call(ctx, probeTime, http.MethodPost, "/v1/sessions", m, &s)
		if err == nil {
			p.history.Add(Entry{Kind: Served, Profile: s.ProfileID, Worker: m.WorkerID, Task: m.TaskID, Token: s.Token, Session: s.SessionID, Launcher: at.name})
			return to.call(ctx, dialTime, http.MethodDelete, "/v1/sessions/"+s.SessionID, api.Release{Write: api.Write{Token: s.Token}, Outcome: "succeeded"}, nil)
		}
		var refused *api.Problem
		if !errors.As(err, &refused) || ctx.Err() != nil {
			return err
		}
		m.Turn, _ = refused.More["turn"].(string)
		if location, ok := refused.More["location"].(string); ok && m.Turn != "" {
			to = newSidecar(location, at.token)
			continue
		}
		to = at.sidecar // what all profiles are in, ends by a review
		sleep(ctx, probePause)
	}
}

// queueEmpties checks that nobody is left in the queue when nobody waits any more.
func (p *people) queueEmpties(host *host, broken func(kind, profile, format string, args ...any)) {
	var waiting []api.Waiting
	var err error
	for deadline := time.Now().Add(readyTime); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if waiting, err = host.queue(context.Background()); err == nil && len(waiting) == 0 {
			return
		}
	}
	broken(WaiterLeft, "", "%s shows %+v (%v)", host.name, waiting, err)
}
