package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/monitor"
	"leasehold/launcher/sessionfile"
)

// A session's manifest forbids its worker certain actions. A later manifest, of a request that
// joins the session, may forbid more, but not less.

// actionRefusedEvent is the name of the journal's entry for a step whose action the
// manifest does not allow.
const actionRefusedEvent = "action_not_allowed"

// Limits are what the worker of a session may not do, according to its manifest and its
// profile.
type Limits struct {
	*terms
	file    *kept // its manifest has the actions that are allowed now
	note    func(checkpoint.Entry)
	denied  *prometheus.CounterVec // by reason
	denials denials

	// narrowing is held while a manifest is taken in, also while that waits for the disk: what
	// fails to be stored must not undo what another request has narrowed.
	narrowing sync.Mutex
}

func newLimits(h *Registry, t *terms, f *kept, note func(checkpoint.Entry)) *Limits {
	return &Limits{terms: t, file: f, note: note, denied: h.metrics.denied}
}

// allowed are the actions that the session's steps may declare; empty: any.
func (l *Limits) allowed() []string {
	return l.file.get().Manifest.AllowedActions
}

// checkAction refuses a step that declares an action which the manifest does not allow, and
// notes the attempt.
func (l *Limits) checkAction(st api.Step) error {
	allowed := l.allowed()
	if st.Action == "" || len(allowed) == 0 || slices.Contains(allowed, st.Action) {
		return nil
	}
	l.note(checkpoint.Entry{Kind: checkpoint.KindEvent, Name: actionRefusedEvent, Action: st.Action, Text: st.Name})
	return notAllowed(st.Action, allowed)
}

func notAllowed(action string, allowed []string) *api.Problem {
	return api.Refuse(api.CodeActionNotAllowed, "action %q is not one that the manifest allows: want one of %s", checkpoint.Clip(action), strings.Join(allowed, ", ")).
		With("action", checkpoint.Clip(action)).With("allowed_actions", allowed)
}

// Narrow takes in the manifest of a request that joins the session. Actions that it does not
// name are refused from now on. If it would allow more, it is refused, and changes nothing.
func (l *Limits) Narrow(m api.Manifest) error {
	if m.WantsReadOnly() && !l.rules().ReadOnly {
		return api.Invalid("read_only", "session %s is not read-only, and cannot become so: end it first", l.id)
	}
	if len(m.AllowedActions) == 0 {
		return nil
	}
	l.narrowing.Lock()
	defer l.narrowing.Unlock()
	var now []string
	more := -1 // the first action that was not allowed before
	l.file.change(func(f *sessionfile.File) {
		now = f.Manifest.AllowedActions
		if len(now) > 0 {
			more = slices.IndexFunc(m.AllowedActions, func(action string) bool { return !slices.Contains(now, action) })
		}
		if more < 0 {
			f.Manifest.AllowedActions = slices.Clone(m.AllowedActions)
		}
	})
	switch {
	case more >= 0:
		return notAllowed(m.AllowedActions[more], now)
	case slices.Equal(now, m.AllowedActions):
		return nil
	}
	err := l.file.save() // the next launcher keeps to it, too
	if err != nil {
		l.file.change(func(f *sessionfile.File) { f.Manifest.AllowedActions = now })
	}
	return err
}

// rules are the rules for the session's pages, from its manifest and its profile.
func (t *terms) rules() monitor.Rules {
	if t.ephemeral {
		return monitor.Rules{ReadOnly: t.manifest.WantsReadOnly() || t.granted.ReadOnly, Token: t.token}
	}
	return monitor.Rules{
		ReadOnly: t.manifest.WantsReadOnly() || t.granted.ReadOnly, TokenOrigins: merged(t.granted.FenceHeaderOrigins, t.manifest.FenceHeaderOrigins), Token: t.token,
	}
}

// merged returns the origins of both lists, sorted, each once.
func merged(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// enforceTimeout bounds how long the browser may take to turn the guard on.
const enforceTimeout = 10 * time.Second

// enforce applies the session's rules to the guard of its browser. It has to be called before
// any page can send anything for the session.
func (t *terms) enforce(ctx context.Context, b *browser.Browser) error {
	return apply(ctx, b, t.rules())
}

// enforceToo is enforce for a run that joins others: their services go on getting a token.
func (t *terms) enforceToo(ctx context.Context, b *browser.Browser) error {
	rules := t.rules()
	rules.TokenOrigins = merged(b.Monitor().Guard().Rules().TokenOrigins, rules.TokenOrigins)
	return apply(ctx, b, rules)
}

func apply(ctx context.Context, b *browser.Browser, rules monitor.Rules) error {
	ctx, cancel := context.WithTimeout(ctx, enforceTimeout)
	defer cancel()
	if err := b.Monitor().Guard().Enforce(ctx, rules); err != nil {
		return fmt.Errorf("what the manifest forbids cannot be enforced: %w", err)
	}
	return nil
}
