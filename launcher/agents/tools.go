package agents

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// Instructions are what a model is told about the tools.
const Instructions = `Leasehold lends Chrome profiles, each of which stands for a real account, to one task at a time.
Lease a profile, say by step what you do now and by checkpoint when you have reached a point from which the task could
be resumed, and release the profile when you have finished. If you end without a release, the profile is examined, and
perhaps kept for a person. Never repeat what may already have been done (an order, a message) after a lease was lost:
call why first. If a tool is refused, its text says what to do next.`

var names = []string{"list_profiles", "lease_profile", "release", "step", "checkpoint", "ask_person", "why"}

// Has tells whether there is a tool with that name.
func Has(name string) bool { return slices.Contains(names, name) }

// NewServer makes the MCP server of the tools and resources. of returns the agent of an MCP session; nil
// if that has ended.
func NewServer(version string, instructions string, of func(*sdk.ServerSession) *Agent) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "leasehold", Title: "Leasehold", Version: version},
		&sdk.ServerOptions{Instructions: instructions, Capabilities: &sdk.ServerCapabilities{}})
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true}
	no, yes := false, true
	writes, ends := &sdk.ToolAnnotations{DestructiveHint: &no}, &sdk.ToolAnnotations{DestructiveHint: &yes}
	tool(s, of, reads, "list_profiles", "List the profiles that you may see, with their state, labels and owner.", (*Agent).listProfiles)
	tool(s, of, writes, "lease_profile", "Lease a profile: a named one, or any with these labels or of this account. Starts its browser. "+
		"The answer says where an earlier, lost task of the same task_id has to resume.", (*Agent).leaseProfile)
	tool(s, of, ends, "release", "Give a profile back when its task has ended. Closes its browser.", (*Agent).release)
	tool(s, of, writes, "step", "Say what the task does now, before it does it.", (*Agent).step)
	tool(s, of, writes, "checkpoint", "Mark a point from which the task can be resumed, after all that came before has been answered.", (*Agent).checkpoint)
	tool(s, of, writes, "ask_person", "Ask a person to do something in the browser by hand, such as entering a code, and wait until they hand it back.", (*Agent).askPerson)
	tool(s, of, reads, "why", "Explain the last refusal, and the state of a profile: who has it, how its last session ended, what was decided and why.", (*Agent).why)
	addResources(s, of)
	return s
}

// tool adds a tool whose arguments are an In. do returns what the model is told, or why it is
// refused; it ends with the agent.
func tool[In any](s *sdk.Server, of func(*sdk.ServerSession) *Agent, hints *sdk.ToolAnnotations, name, description string,
	do func(*Agent, context.Context, In) (any, error)) {
	sdk.AddTool(s, &sdk.Tool{Name: name, Description: description, Annotations: hints},
		func(ctx context.Context, r *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
			a := of(r.Session)
			if a == nil {
				return refusalOf(name, errEnded).result(), nil, nil
			}
			ctx, stop := a.bound(ctx)
			defer stop()
			out, err := do(a, ctx, in)
			if err != nil {
				return a.Refuse(name, err), nil, nil
			}
			return nil, out, nil
		})
}

func (a *Agent) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

type listProfilesIn struct {
	Free      bool              `json:"free,omitempty" jsonschema:"only those that could be leased now"`
	AccountID string            `json:"account_id,omitempty" jsonschema:"only those of this account"`
	Labels    map[string]string `json:"labels,omitempty" jsonschema:"only those with these labels, such as {\"region\": \"us\"}; a * in a value stands for any characters"`
}

type profileOut struct {
	ProfileID      string       `json:"profile_id"`
	State          string       `json:"state"`
	AccountID      string       `json:"account_id,omitempty"`
	Labels         lease.Labels `json:"labels,omitempty"`
	OwnerWorkerID  string       `json:"owner_worker_id,omitempty"`
	TaskID         string       `json:"task_id,omitempty"`
	ExpiresAt      time.Time    `json:"expires_at,omitzero"`
	AvailableAfter time.Time    `json:"available_after,omitzero"`
}

func profileOf(r api.Profile) profileOut {
	p := profileOut{ProfileID: r.ProfileID, State: api.StateShown(r.Record), AccountID: r.AccountID, Labels: r.Labels, AvailableAfter: r.AvailableAfter}
	if r.State != lease.Available {
		p.OwnerWorkerID, p.TaskID, p.ExpiresAt = r.OwnerWorkerID, r.TaskID, r.ExpiresAt
	}
	return p
}

// listed is how many profiles list_profiles shows at most.
const listed = 100

func (a *Agent) listProfiles(ctx context.Context, in listProfilesIn) (any, error) {
	q := api.ProfileQuery{AccountID: in.AccountID, Labels: in.Labels}
	if in.Free {
		q.Free = &in.Free
	}
	filters := q.Filters()
	filters.Set("limit", strconv.Itoa(listed))
	page, err := ask[struct {
		Items []api.Profile `json:"items"`
		Next  *string       `json:"next"`
	}](ctx, a.sidecar, http.MethodGet, filters, nil, "v1", "profiles")
	if err != nil {
		return nil, err
	}
	out := struct {
		Profiles []profileOut `json:"profiles"`
		More     bool         `json:"more,omitempty"`
	}{Profiles: []profileOut{}, More: page.Next != nil}
	for _, r := range page.Items {
		out.Profiles = append(out.Profiles, profileOf(r))
	}
	return out, nil
}

type leaseIn struct {
	ProfileID   string            `json:"profile_id,omitempty" jsonschema:"the profile; leave it out to lease any that has the labels or the account"`
	Labels      map[string]string `json:"labels,omitempty" jsonschema:"lease any profile with these labels, such as {\"region\": \"us\"}; a * in a value stands for any characters"`
	AccountID   string            `json:"account_id,omitempty" jsonschema:"lease any profile of this account"`
	TaskID      string            `json:"task_id,omitempty" jsonschema:"the name of the task; give the same name again to resume a task that was lost"`
	WaitSeconds float64           `json:"wait_seconds,omitempty" jsonschema:"how long to wait for the profile if somebody has it, 600 at most; without it a conflict is refused at once"`
	Resumable   bool              `json:"resumable,omitempty" jsonschema:"the task can be resumed from its last checkpoint if it is lost"`
	ReadOnly    bool              `json:"read_only,omitempty" jsonschema:"the task only reads: unsafe requests of its pages fail"`
	SignIn      bool              `json:"sign_in,omitempty" jsonschema:"the task is to sign the account in: it gets a profile that is signed out, too"`
}

type leaseOut struct {
	ProfileID string      `json:"profile_id"`
	SessionID string      `json:"session_id"`
	Token     lease.Token `json:"lease_token"`
	TaskID    string      `json:"task_id"`
	ExpiresAt time.Time   `json:"expires_at"`
	CDPURL    string      `json:"cdp_url,omitempty"`
	Resume    *api.Resume `json:"resume"`
}

// manifest is the request for a lease, within what the agent may choose.
func (a *Agent) manifest(in leaseIn) (api.Manifest, error) {
	m := a.o.Base
	chosen := in.ProfileID != "" && in.ProfileID != m.ProfileID || len(in.Labels) > 0 || in.AccountID != ""
	switch {
	case chosen && (m.ProfileID != "" || m.AnyProfile()):
		return m, api.Invalid("profile_id", "this server was started for %s only: leave profile_id, labels and account_id out",
			cmp.Or(m.ProfileID, "profiles of its own choice"))
	case m.TaskID != "" && in.TaskID != "" && in.TaskID != m.TaskID:
		return m, api.Invalid("task_id", "this server was started for task %s only", m.TaskID)
	case chosen:
		m.ProfileID, m.Labels, m.AccountID = in.ProfileID, in.Labels, in.AccountID
	}
	m.TaskID = cmp.Or(in.TaskID, m.TaskID, a.task)
	if in.WaitSeconds > 0 {
		m.Wait = api.Duration(in.WaitSeconds * float64(time.Second))
	}
	m.Resumable, m.SignIn = m.Resumable || in.Resumable, m.SignIn || in.SignIn
	if in.ReadOnly {
		m.ReadOnly = &in.ReadOnly
	}
	m.Heartbeat, m.OnClose = api.HeartbeatExplicit, api.OnCloseKeep
	return m, m.Check()
}

func (a *Agent) leaseProfile(ctx context.Context, in leaseIn) (any, error) {
	m, err := a.manifest(in)
	if err != nil {
		return nil, err
	}
	if m.ProfileID == "" { // who asks for any profile twice may want two
		return a.lease(ctx, m, "")
	}
	same := m
	same.Wait = 0
	request := "lease_profile " + string(encoded(same))
	wait := time.Duration(m.Wait)
	out, err := a.once(ctx, request, wait, func(left time.Duration) (any, error) {
		m.Wait = api.Duration(left)
		return a.lease(ctx, m, request)
	})
	if errors.Is(err, errWaitOver) && wait > 0 {
		return nil, api.Refuse(api.CodeWaitTimeout, "waited %v, and still an earlier call of yours waits for profile %s", wait, m.ProfileID).With("last_code", api.CodeConflict)
	}
	if errors.Is(err, errWaitOver) {
		return nil, api.Refuse(api.CodeConflict, "an earlier call of yours waits for profile %s", m.ProfileID)
	}
	return out, err
}

// lease leases a profile. If the agent has done that already by the same request, it is told so again: it may
// not have had the answer.
func (a *Agent) lease(ctx context.Context, m api.Manifest, request string) (any, error) {
	if a.o.Granted != nil { // a model may call a tool several times at once
		select {
		case a.leasing <- struct{}{}:
			defer func() { <-a.leasing }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	done, err := a.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	before, err := a.mayLease(m.ProfileID, request)
	if before != nil {
		now, refusal := a.now(ctx, before)
		if refusal == nil {
			return a.leaseOf(now), nil
		}
		if err = refusal; isOver(err) {
			_, err = a.mayLease(m.ProfileID, request)
		}
	}
	if err != nil {
		return nil, err
	}
	asking, stop := a.granting(ctx)
	defer stop()
	s, sidecar, err := a.sidecar.Acquire(asking, m)
	if err != nil {
		return nil, err
	}
	every, err := HeartbeatInterval(asking, sidecar, s)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = a.add(s, sidecar, request, every)
	}
	if err == nil {
		done() // the end of the agent ends it, too
	}
	if err == nil && a.o.Granted != nil {
		err = a.o.Granted(ctx, s)
	}
	if err != nil {
		l := &leased{Session: s, sidecar: sidecar, stop: func() {}}
		if noted, wrong := a.has(s.ProfileID); wrong == nil && noted.SessionID == s.SessionID {
			l = noted
		}
		_, failed := a.end(context.WithoutCancel(ctx), l, api.Release{Outcome: "failed", Reason: "the agent was not told of its lease"}, Patience)
		a.forget(l)
		return nil, errors.Join(err, failed)
	}
	return a.leaseOf(s), nil
}

func (a *Agent) leaseOf(s api.Session) leaseOut {
	out := leaseOut{ProfileID: s.ProfileID, SessionID: s.SessionID, Token: s.Token, TaskID: s.TaskID, ExpiresAt: s.ExpiresAt, CDPURL: s.CDPURL, Resume: s.Resume}
	if a.o.Granted != nil {
		out.CDPURL = ""
	}
	return out
}

// mayLease refuses a second lease of a profile, or with a browser's own tools any second one. What the
// same request leased before is returned. A lease that was lost makes way.
func (a *Agent) mayLease(profile, request string) (*leased, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		switch {
		case a.o.Granted == nil && l.ProfileID != profile:
		case l.lost == nil && request != "" && l.request == request:
			return l, nil
		case l.lost == nil:
			return nil, api.Invalid("profile_id", "you have profile %s already, for task %s: use it, or release it first", l.ProfileID, l.TaskID)
		default:
			delete(a.leases, l.ProfileID)
		}
	}
	return nil, nil
}

// whichIn names a profile that the agent has.
type whichIn struct {
	ProfileID string `json:"profile_id,omitempty" jsonschema:"the leased profile; may be left out if you have only one"`
}

type releaseIn struct {
	whichIn
	Outcome string `json:"outcome,omitempty" jsonschema:"succeeded (the default) or failed; a task that failed after it changed something has its profile examined"`
	Reason  string `json:"reason,omitempty" jsonschema:"why, in a few words"`
}

type releaseOut struct {
	ProfileID string `json:"profile_id"`
	Released  bool   `json:"released"`
	Ended     string `json:"ended"`
}

// release gives a profile back. If the agent has done that already, it is told so again: it may not have
// had the answer.
func (a *Agent) release(ctx context.Context, in releaseIn) (any, error) {
	r := api.Release{Outcome: cmp.Or(in.Outcome, "succeeded"), Reason: in.Reason}
	switch r.Outcome {
	case "succeeded":
	case "failed":
		r.Recover = api.RecoverTouched
	default:
		return nil, api.Invalid("outcome", "%.40q: want succeeded or failed", r.Outcome)
	}
	l, err := a.has(in.ProfileID)
	if err != nil {
		done, ok := a.hasReleased(in.ProfileID)
		if ok && done.ProfileID == "" {
			return nil, api.Invalid("profile_id", "name the profile that you give back, since another one was lost meanwhile: %v", err)
		}
		if ok {
			return done, nil
		}
	}
	if l == nil { // a lost one can be given up
		return nil, err
	}
	ended, err := a.end(ctx, l, r, 0) // the agent itself asks again
	if err != nil {
		return nil, err
	}
	out := releaseOut{l.ProfileID, ended.Released, ended.Ended}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leases[l.ProfileID] == nil { // it may have been leased again by now
		a.releases[l.ProfileID], a.releases[""] = out, out
	}
	return out, nil
}

// hasReleased returns the answer to the release of a profile or, if none is named and the agent has none that
// is not lost, to the last release.
func (a *Agent) hasReleased(profile string) (releaseOut, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if profile == "" {
		for _, l := range a.leases {
			if l.lost == nil {
				return releaseOut{}, false
			}
		}
	}
	done, ok := a.releases[profile]
	return done, ok
}

// said is the answer to what the agent tells of its task.
type said struct {
	ProfileID string `json:"profile_id"`
	Name      string `json:"name"`
}

func tell[Out any](ctx context.Context, a *Agent, profile, where string, body func(api.Write) any) (out Out, l *leased, err error) {
	if l, err = a.has(profile); err != nil {
		return out, l, err
	}
	out, err = ask[Out](ctx, l.sidecar, http.MethodPost, nil, body(api.Write{Token: l.Token}), "v1", "sessions", l.SessionID, where)
	if isOver(err) {
		a.lose(l, err)
		_, err = a.has(l.ProfileID)
	}
	return out, l, err
}

type stepIn struct {
	whichIn
	Name      string `json:"name" jsonschema:"what the task does now, such as open_order_list"`
	Action    string `json:"action,omitempty" jsonschema:"the kind of action, where the task is limited to some"`
	Sensitive bool   `json:"sensitive,omitempty" jsonschema:"a person should look at it if the task is lost during this step"`
}

func (a *Agent) step(ctx context.Context, in stepIn) (any, error) {
	_, l, err := tell[struct{}](ctx, a, in.ProfileID, "steps", func(w api.Write) any {
		return api.Step{Write: w, Name: in.Name, Action: in.Action, Sensitive: in.Sensitive}
	})
	if err != nil {
		return nil, err
	}
	return said{l.ProfileID, in.Name}, nil
}

type checkpointIn struct {
	whichIn
	Name       string         `json:"name" jsonschema:"the point that the task has reached, such as order_list_read"`
	Safe       *bool          `json:"safe,omitempty" jsonschema:"false: it is not safe to resume from here (default: true)"`
	Idempotent []string       `json:"idempotent,omitempty" jsonschema:"requests that may be made twice if they follow this checkpoint, such as POST /votes"`
	Data       map[string]any `json:"data,omitempty" jsonschema:"what the task needs to go on from here, and no secrets: it is part of the evidence"`
}

func (a *Agent) checkpoint(ctx context.Context, in checkpointIn) (any, error) {
	var data []byte
	if in.Data != nil {
		data = encoded(in.Data)
	}
	_, l, err := tell[struct{}](ctx, a, in.ProfileID, "checkpoints", func(w api.Write) any {
		return api.Checkpoint{Write: w, Name: in.Name, Safe: in.Safe, Idempotent: api.Idempotent{Declared: len(in.Idempotent) > 0, Shapes: in.Idempotent}, Data: data}
	})
	if err != nil {
		return nil, err
	}
	return said{l.ProfileID, in.Name}, nil
}

type askPersonIn struct {
	whichIn
	Reason      string  `json:"reason" jsonschema:"what the person is to do, such as: enter the code that was sent to the phone"`
	WaitSeconds float64 `json:"wait_seconds,omitempty" jsonschema:"the longest to wait (default: 600)"`
}

func (a *Agent) askPerson(ctx context.Context, in askPersonIn) (any, error) {
	l, err := a.has(in.ProfileID)
	if err != nil {
		return nil, err
	}
	wait := time.Duration(in.WaitSeconds * float64(time.Second))
	if wait == 0 {
		wait = api.DefaultAsk
	}
	out, err := a.once(ctx, "ask_person "+l.SessionID+" "+in.Reason, wait, func(left time.Duration) (any, error) {
		answer, _, err := tell[api.Answer](ctx, a, l.ProfileID, "ask", func(w api.Write) any {
			return api.AskPerson{Write: w, Reason: in.Reason, Wait: api.Duration(left)}
		})
		if err == nil && answer.Reason == api.AskWaitOver {
			err = errWaitOver
		}
		return answer, err
	})
	if errors.Is(err, errWaitOver) {
		return api.Answer{Reason: api.AskWaitOver}, nil
	}
	return out, err
}

type whyIn struct {
	ProfileID string `json:"profile_id,omitempty" jsonschema:"the profile; may be left out for the one that you have, or were refused"`
}

type whyOut struct {
	LastRefusal *Refusal     `json:"last_refusal"`
	Profile     *profileOut  `json:"profile,omitempty"`
	Session     *api.Session `json:"session,omitempty"`
	// Reason, Decision and Reasons are of the profile's last recovery; Review is what a person decided.
	Reason             string        `json:"reason,omitempty"`
	Decision           string        `json:"decision,omitempty"`
	Reasons            []string      `json:"reasons,omitempty"`
	Review             *lease.Review `json:"review,omitempty"`
	LastSafeCheckpoint string        `json:"last_safe_checkpoint,omitempty"`
	Evidence           string        `json:"evidence,omitempty"`
	// NotShown says why something is missing.
	NotShown string `json:"not_shown,omitempty"`
}

func (a *Agent) why(ctx context.Context, in whyIn) (any, error) {
	a.mu.Lock()
	out := whyOut{LastRefusal: a.refused}
	profile := cmp.Or(in.ProfileID, a.o.Base.ProfileID)
	if profile == "" && a.refused != nil {
		profile, _ = a.refused.More["profile_id"].(string)
	}
	var mine *leased
	for id, l := range a.leases {
		if profile == "" || id == profile {
			profile, mine = id, l
		}
	}
	a.mu.Unlock()
	if mine != nil {
		now, err := ask[api.Session](ctx, mine.sidecar, http.MethodGet, nil, nil, "v1", "sessions", mine.SessionID)
		if out.Session = &now; err != nil {
			out.Session, out.NotShown = nil, refusalOf("why", err).Text
		}
	}
	if profile == "" {
		return out, nil
	}
	r, err := ask[api.Profile](ctx, a.sidecar, http.MethodGet, url.Values{}, nil, "v1", "profiles", profile)
	if err != nil {
		out.NotShown = refusalOf("why", err).Text
		return out, nil
	}
	shown := profileOf(r)
	out.Profile, out.Reason, out.Decision, out.Reasons = &shown, r.Reason, r.Decision, r.Reasons
	out.Review, out.LastSafeCheckpoint = r.Review, r.LastSafeCheckpoint
	if r.EvidenceID != "" {
		out.Evidence = evidenceURI(r.EvidenceID)
	}
	return out, nil
}
