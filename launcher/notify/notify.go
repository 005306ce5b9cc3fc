// Package notify tells people who look at no console: it sends what needs a person to webhooks.
//
// The events are on the event stream. The store remembers for each webhook which of them were
// taken: all launchers that are configured with it share that, so each event is sent by one of
// them, and again if that one ends before it was taken. Only a receiver that repeats itself, or an
// answer that was lost, makes a message come twice; its id is the same then.
package notify

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/lease"
)

const (
	// postTimeout bounds one try.
	postTimeout = 10 * time.Second
	// firstRetry doubles with each try of a message, up to lastRetry: after maxTries, about a day,
	// it is dropped.
	firstRetry, lastRetry = 5 * time.Second, 15 * time.Minute
	maxTries              = 100
	// maxPause bounds how long a webhook is left alone after a failure, and maxAsked the same where
	// it asks for a time itself.
	maxPause, maxAsked = time.Minute, time.Hour
	// lookEvery is how often conditions are looked at.
	lookEvery = time.Minute
	// storePause is the pause after a failed read of the store.
	storePause = 5 * time.Second
)

// Deliveries are the events that one webhook has not taken yet; lease/natskv has them.
type Deliveries interface {
	// Next waits for the next one. ok is false if none came in that time.
	Next(ctx context.Context, wait time.Duration) (d lease.Delivery, ok bool, err error)
	// Unconfirmed is how many were delivered, here or to another launcher, and are not confirmed.
	Unconfirmed(ctx context.Context) (int, error)
}

// Options are what a Notifier works with.
type Options struct {
	Webhooks []Webhook
	// Secret signs what is sent; empty: nothing is signed.
	Secret []byte
	// Proxy is what it is sent through; nil: nothing.
	Proxy *url.URL
	// Console is the URL of the console.
	Console string
	// Deliveries returns those of a webhook.
	Deliveries func(id string) Deliveries
	// Conditions returns what is wrong on this host now, and is no event; at most one of each name.
	Conditions func() []Notice
	Log        zerolog.Logger
	Metrics    prometheus.Registerer
}

// Notifier sends notices while Run runs.
type Notifier struct {
	o      Options
	client *http.Client
	now    func() time.Time
	sent   *prometheus.CounterVec

	mu sync.Mutex
	// failing are the webhooks that do not take notices.
	failing map[string]failure
}

// failure is since when a webhook has taken no notice. lost says that one was dropped.
type failure struct {
	since time.Time
	lost  bool
}

// How tries end, as the metrics name them.
const (
	resultSent    = "sent"
	resultFailed  = "failed" // it is tried again
	resultDropped = "dropped"
)

// New returns a notifier.
func New(o Options) *Notifier {
	n := &Notifier{o: o, client: newClient(o.Proxy), now: time.Now, failing: map[string]failure{}}
	n.sent = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "leasehold_notices_total", Help: "Notices for webhooks, by how a try to send one ended: sent, failed (it is tried again) or dropped (after a day).",
	}, []string{"result"})
	for _, result := range []string{resultSent, resultFailed, resultDropped} {
		n.sent.WithLabelValues(result)
	}
	o.Metrics.MustRegister(n.sent, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leasehold_notices_failing_seconds", Help: "How long the webhook that has failed for longest has taken no notice; 0 while all take them.",
	}, n.longestFailing))
	return n
}

func (n *Notifier) longestFailing() (longest float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.failing {
		longest = max(longest, n.now().Sub(f.since).Seconds())
	}
	return longest
}

// Run sends until ctx ends, each webhook's notices on their own. A try that is under way then is
// given up, and made again by the next launcher.
func (n *Notifier) Run(ctx context.Context) {
	var senders sync.WaitGroup
	for _, w := range n.o.Webhooks {
		senders.Go(func() { n.serve(ctx, w) })
	}
	senders.Wait()
}

func (n *Notifier) serve(ctx context.Context, w Webhook) {
	deliveries := n.o.Deliveries(w.id)
	told := map[string]condition{} // by the notice's name
	var looked time.Time
	failures, away := 0, false
	for ctx.Err() == nil {
		if n.now().Sub(looked) >= lookEvery {
			looked = n.now()
			n.tell(ctx, w, told)
		}
		d, ok, err := deliveries.Next(ctx, lookEvery)
		if err != nil && ctx.Err() == nil {
			if !away {
				n.o.Log.Warn().Err(err).Stringer("webhook", w).Msg("events cannot be read: notices about them come later")
			}
			away = true
			pause(ctx, storePause)
			continue
		}
		away = false
		if !ok {
			n.lookIfTaken(ctx, w, deliveries, told)
			continue
		}
		asked, err := n.deliver(ctx, w, d)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		pause(ctx, max(min(backoff(failures), maxPause), asked))
	}
}

// condition is one that holds: the id under which the webhook is told of it, and whether it knows.
type condition struct {
	id   string
	told bool
}

// tell sends the conditions that hold now, and that the webhook was not told of. Those that fail
// are sent again the next time, if they still hold. One that goes on is the same, whatever it is about
// by now.
func (n *Notifier) tell(ctx context.Context, w Webhook, told map[string]condition) {
	hold := map[string]bool{}
	for _, notice := range n.o.Conditions() {
		hold[notice.Name] = true
		c := told[notice.Name]
		if c.told || !w.wants(notice) {
			continue
		}
		notice.ID = cmp.Or(c.id, notice.ID)
		_, err := n.send(ctx, w, notice)
		told[notice.Name] = condition{notice.ID, err == nil}
	}
	for name := range told {
		if !hold[name] {
			delete(told, name)
		}
	}
}

// lookIfTaken says that a webhook takes notices again if nothing is left that it did not take: another
// launcher has sent what it refused here, or the condition is over that it was not told of.
func (n *Notifier) lookIfTaken(ctx context.Context, w Webhook, deliveries Deliveries, told map[string]condition) {
	n.mu.Lock()
	f, failed := n.failing[w.id]
	n.mu.Unlock()
	if !failed || f.lost {
		return
	}
	for _, c := range told {
		if !c.told {
			return
		}
	}
	if left, err := deliveries.Unconfirmed(ctx); err == nil && left == 0 {
		n.takes(w)
	}
}

// takes notes that a webhook takes notices.
func (n *Notifier) takes(w Webhook) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f, failed := n.failing[w.id]; failed {
		delete(n.failing, w.id)
		n.o.Log.Info().Stringer("webhook", w).Dur("failed_for", n.now().Sub(f.since)).Msg("the webhook takes notices again")
	}
}

// fails notes that a webhook did not take a notice.
func (n *Notifier) fails(w Webhook, notice Notice, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, failed := n.failing[w.id]; !failed {
		n.failing[w.id] = failure{since: n.now()}
		n.o.Log.Warn().Err(err).Stringer("webhook", w).Str("notice", notice.Name).Msg("the webhook does not take notices: they are sent again, for a day")
	}
}

// loses notes that a notice was dropped.
func (n *Notifier) loses(w Webhook) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.failing[w.id]
	f.lost = true
	n.failing[w.id] = f
}

// deliver sends one event. If it fails, asked is how long the webhook asks to be left alone.
func (n *Notifier) deliver(ctx context.Context, w Webhook, d lease.Delivery) (asked time.Duration, err error) {
	notice := Of(d.Published, n.o.Console)
	if !w.wants(notice) {
		return 0, d.Done()
	}
	asked, err = n.send(ctx, w, notice)
	switch {
	case err == nil:
		return 0, d.Done()
	case ctx.Err() != nil:
		return 0, err
	case d.Tries >= maxTries:
		n.sent.WithLabelValues(resultDropped).Inc()
		n.loses(w)
		n.o.Log.Error().Err(err).Stringer("webhook", w).Str("notice", notice.Name).Str("profile", notice.ProfileID).Int("tries", d.Tries).Msg("a notice is dropped: its webhook has not taken it for a day")
		return asked, errors.Join(err, d.Done())
	}
	return asked, errors.Join(err, d.Again(max(backoff(d.Tries), asked)))
}

// backoff is the pause after a number of failed tries.
func backoff(tries int) time.Duration {
	return min(firstRetry<<min(max(tries-1, 0), 16), lastRetry)
}

// send makes one try, and notes how it ended.
func (n *Notifier) send(ctx context.Context, w Webhook, notice Notice) (asked time.Duration, err error) {
	asked, err = n.post(ctx, w, notice)
	switch {
	case err == nil:
		n.sent.WithLabelValues(resultSent).Inc()
		n.takes(w)
	case ctx.Err() == nil:
		n.sent.WithLabelValues(resultFailed).Inc()
		n.fails(w, notice, err)
	}
	return asked, err
}

// Try sends a notice that says that it is a test.
func (n *Notifier) Try(ctx context.Context, w Webhook) error {
	_, err := n.post(ctx, w, Notice{Name: Test, ID: "test-" + n.now().UTC().Format("20060102T150405Z"), At: n.now().UTC(), Text: "Leasehold can send notices here.", Link: page(n.o.Console, "")})
	return err
}

// pause returns after a time, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
