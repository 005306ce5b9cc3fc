package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/internal/boottime"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/browser"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/sessionfile"
)

// baselines ask the sites of a session what its account is while its worker goes on: when it is granted, and
// at each safe checkpoint. The worker sees nothing of it. What it did before an answer was there may be in
// that answer: then it is none that later ones can be compared with. So a safe checkpoint is answered
// once the sites are asked, or after checkpointWait.
type baselines struct {
	*terms
	answers accountcheck.Memory
	files   sessionfile.Dir
	browser func() *browser.Browser
	shared  func() bool // with other runs of the profile
	settle  func() error
	entries func() []checkpoint.Entry
	did     func() (checkpoint.Summary, findings.Task)
	ctx     context.Context

	mu      sync.Mutex
	asking  *asking // nil: nobody asks
	next    *moment // the one that is asked about after that
	stopped bool
}

// asking is what goes on while sites are asked.
type asking struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing of it is left in the browser
}

// moment is one with which later answers are compared.
type moment struct {
	checkpoint uint64 // its number in the journal; 0: the grant
	name       string
	at         boottime.Instant
}

// Why there is no answer of a moment that counts.
var (
	errActedFirst = errors.New("the session acted before the site answered")
	errShared     = errors.New("another run had the browser, too")
	errGoneFirst  = errors.New("the worker was gone before the site answered")
)

func newBaselines(h *Registry, t *terms, b func() *browser.Browser, shared func() bool, r *recording, did func() (checkpoint.Summary, findings.Task)) *baselines {
	return &baselines{terms: t, answers: h.o.Answers, files: h.o.Files, browser: b, shared: shared, settle: r.settle, entries: r.entries, did: did, ctx: h.ctx}
}

// atGrant asks about the moment at which the session was granted.
func (b *baselines) atGrant() { b.ask(moment{at: boottime.Now()}) }

// named asks about a safe checkpoint.
func (b *baselines) named(e checkpoint.Entry) {
	b.ask(moment{checkpoint: e.Seq, name: e.Name, at: boottime.Now()})
}

// ask asks about a moment, and returns at once. If sites are being asked, they are asked about the last
// of the moments that come meanwhile.
func (b *baselines) ask(m moment) {
	if b.ephemeral || !b.sites.Book().HasProbes() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.stopped:
	case b.asking != nil:
		b.next = &m
	default:
		ctx, cancel := context.WithCancelCause(b.ctx)
		b.asking = &asking{cancel, make(chan struct{})}
		go b.run(ctx, m, b.asking)
	}
}

// run asks about a moment, and then about those that came meanwhile.
func (b *baselines) run(ctx context.Context, m moment, a *asking) {
	defer close(a.done)
	defer a.cancel(nil)
	for next := &m; next != nil; {
		b.askAbout(ctx, *next)
		b.mu.Lock()
		if next, b.next = b.next, nil; next == nil {
			b.asking = nil
		}
		b.mu.Unlock()
	}
}

// checkpointWait is how long the answer to a safe checkpoint waits for those of sites at most.
const checkpointWait = 2 * time.Second

// current is what goes on now; nil: nobody asks.
func (b *baselines) current() *asking {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asking
}

// await returns when the sites have been asked about the moments that came so far, and after
// checkpointWait at the latest.
func (b *baselines) await(ctx context.Context) {
	a := b.current()
	if a == nil {
		return
	}
	select {
	case <-a.done:
	case <-time.After(checkpointWait):
	case <-ctx.Done():
	}
}

// interrupt ends what is being asked, because the worker is gone, and returns when nothing of it is left
// in the browser.
func (b *baselines) interrupt() {
	if a := b.current(); a != nil {
		a.cancel(errGoneFirst)
		<-a.done
	}
}

// stop is interrupt, for good.
func (b *baselines) stop() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.interrupt()
}

// askAbout asks the sites of the session about a moment, and keeps what they answer.
func (b *baselines) askAbout(ctx context.Context, m moment) {
	questions := b.questions(m)
	if len(questions) == 0 || !b.browser().Driven() {
		return
	}
	begun := time.Now()
	found := site.Baseline{Checkpoint: m.checkpoint, Name: m.name, Told: map[string]site.Kept{}, Missing: map[string]string{}}
	for a := range accountcheck.Answers(ctx, b.browser().Mux(), questions) {
		if why := b.against(ctx, m, a); why != "" {
			found.Missing[a.ID()] = why
		} else {
			found.Told[a.ID()] = b.answers.Baseline(b.profile, a, time.Now())
		}
	}
	kept, err := b.files.ReadBaselines(b.id)
	if err != nil {
		b.log.Warn().Err(err).Msg("earlier answers of the session cannot be believed")
	}
	if err := b.files.SaveBaselines(b.id, site.Add(kept, found)); err != nil {
		b.log.Warn().Err(err).Msg("later answers are compared with older ones")
	}
	b.log.Info().Str("checkpoint", m.name).Int("told", len(found.Told)).Int("missing", len(found.Missing)).Dur("took", time.Since(begun)).
		Msg("sites were asked about the account beside the worker")
}

// questions are the probes that are asked about a moment.
func (b *baselines) questions(m moment) (probes []site.Question) {
	did, task := b.did()
	if m.checkpoint == 0 {
		return b.answers.Probes(b.profile, task.Domains(), task.Sites)
	}
	for _, q := range findings.Questions(did, task) {
		if !q.Identity {
			probes = append(probes, q)
		}
	}
	return probes
}

// against is why nothing can be compared with an answer about a moment; empty: it can.
func (b *baselines) against(ctx context.Context, m moment, a site.Answer) string {
	b.browser().Monitor().HearAnswers(ctx) // what was sent before the answer was there is known then
	err := b.settle()
	_, task := b.did()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx).Error()
	case b.shared():
		return errShared.Error()
	case err != nil:
		return "it is not known what the session sent: " + err.Error()
	case b.browser().Mux().Acts().Last() >= m.at, findings.ActedOn(b.entries(), m.checkpoint, task, a.Question):
		return errActedFirst.Error()
	case a.State != site.Told:
		return a.How
	}
	return ""
}
