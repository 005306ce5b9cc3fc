package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// profileCmds list profiles, and bring them here and away.
type profileCmds struct {
	List    profilesCmd      `cmd:"" default:"withargs" help:"List the profiles and who holds them."`
	Create  createProfileCmd `cmd:"" help:"Make a profile, or change the settings of one."`
	Import  importProfileCmd `cmd:"" help:"Make a profile of a copy of a Chrome user-data-dir of the sidecar's host."`
	Clone   cloneProfileCmd  `cmd:"" help:"Make a profile of a copy of another, for runs that are thrown away."`
	Archive archiveCmd       `cmd:"" help:"Put a profile aside; nothing is deleted."`
	Remove  removeCloneCmd   `cmd:"" name:"remove-clone" help:"Delete a profile that was made by clone; no other."`
}

type profilesCmd struct {
	clientFlags `embed:""`
}

func (c *profilesCmd) Run(a *app) error { return c.printProblem(a, c.print(a)) }

func (c *profilesCmd) print(a *app) error {
	sidecar, err := c.client()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	raw, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "profiles")
	if err != nil || c.JSON {
		return printed(a, raw, err)
	}
	profiles, err := read[list[lease.Record]](raw)
	if err != nil {
		return err
	}
	slices.SortFunc(profiles.Items, func(x, y lease.Record) int { return strings.Compare(x.ProfileID, y.ProfileID) })
	t := newTable(a.stdout, "PROFILE", "STATE", "TOKEN", "OWNER", "TASK", "LAST URL")
	for _, r := range profiles.Items {
		state := string(r.State)
		if !r.WarmSince.IsZero() {
			state += " (warm)"
		}
		t.row(r.ProfileID, state, r.Token, r.OwnerWorkerID, r.TaskID, r.LastKnownURL)
	}
	return t.flush()
}

// belongings are what a profile can be given once.
type belongings struct {
	Account string `placeholder:"ID" help:"The account that it belongs to, for good."`
	Proxy   string `placeholder:"ID" help:"The proxy that it goes out through, for good: one of the sidecar's --proxies."`
}

// given is nil for a flag that was left out.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

type createProfileCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile."`
	belongings  `embed:""`
	Runs        int       `name:"max-active-runs" placeholder:"N" help:"How many tasks may share its browser (default: 1)."`
	Domains     []string  `name:"expected-domains" placeholder:"DOMAIN" help:"Where its tasks are supposed to be."`
	KeepWarm    *bool     `negatable:"" help:"Keep its browser open after a release, for the next task; --no-keep-warm: never (default: its tasks decide)."`
	Memory      *byteSize `name:"browser-memory" placeholder:"SIZE" help:"The most that its browser may have in memory, where that is less than the host's limit; 0 is the host's."`
	Harmless    []string  `name:"harmless-request" sep:"none" placeholder:"REQUEST" help:"A kind of request that changes nothing of the account, such as 'POST https://shop.example/search'; may be given several times."`
}

func (c *createProfileCmd) Run(a *app) error {
	set := api.ProfileSettings{AccountID: given(c.Account), ProxyID: given(c.Proxy), KeepWarm: c.KeepWarm}
	if c.Runs != 0 {
		set.MaxActiveRuns = &c.Runs
	}
	if len(c.Domains) > 0 {
		set.ExpectedDomains = &c.Domains
	}
	if c.Memory != nil {
		memory := uint64(*c.Memory)
		set.BrowserMemory = &memory
	}
	if len(c.Harmless) > 0 {
		set.HarmlessRequests = &c.Harmless
	}
	return c.change(a, http.MethodPut, set, "v1", "profiles", string(c.Profile))
}

type importProfileCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The new profile."`
	From        string     `required:"" type:"path" placeholder:"DIR" help:"The user-data-dir, which no browser uses. It stays as it is."`
	belongings  `embed:""`
}

func (c *importProfileCmd) Run(a *app) error {
	return c.change(a, http.MethodPost, api.ProfileImport{From: c.From, AccountID: given(c.Account), ProxyID: given(c.Proxy)}, "v1", "profiles", string(c.Profile), "import")
}

type cloneProfileCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile to copy, which nobody uses."`
	To          profileArg `required:"" placeholder:"PROFILE" help:"The new profile. It has the same account and proxy."`
}

func (c *cloneProfileCmd) Run(a *app) error {
	return c.change(a, http.MethodPost, api.ProfileClone{To: string(c.To)}, "v1", "profiles", string(c.Profile), "clone")
}

type archiveCmd struct {
	clientFlags `embed:""`
	Profile     profileArg  `arg:"" help:"The profile, which nobody uses."`
	Token       lease.Token `placeholder:"N" help:"The lease token that was seen: another is refused."`
}

func (c *archiveCmd) Run(a *app) error {
	return c.change(a, http.MethodPost, api.ProfileArchive{Token: c.Token}, "v1", "profiles", string(c.Profile), "archive")
}

type removeCloneCmd struct {
	clientFlags `embed:""`
	Profile     profileArg   `arg:"" help:"The clone, which nobody uses."`
	Token       *lease.Token `placeholder:"N" help:"The lease token that was seen: another is refused (default: the one shown now)."`
}

func (c *removeCloneCmd) Run(a *app) error {
	if c.Token == nil {
		seen, err := c.record()
		if err != nil {
			return c.printProblem(a, err)
		}
		c.Token = &seen.Token
	}
	return c.change(a, http.MethodPost, api.ProfileRemove{Token: *c.Token}, "v1", "profiles", string(c.Profile), "remove-clone")
}

// record asks for the clone's.
func (c *removeCloneCmd) record() (lease.Record, error) {
	sidecar, err := c.client()
	if err != nil {
		return lease.Record{}, err
	}
	ctx, stop := interruptible()
	defer stop()
	return sidecar.record(ctx, string(c.Profile))
}

// change sends a profile's change and prints what came of it.
func (c *clientFlags) change(a *app, method string, in any, path ...string) error {
	return c.printProblem(a, func() error {
		sidecar, err := c.client()
		if err != nil {
			return err
		}
		ctx, stop := interruptible()
		defer stop()
		raw, err := sidecar.askFor(ctx, method, in, path...)
		if err != nil || c.JSON {
			return printed(a, raw, err)
		}
		var now struct {
			ProfileID string `json:"profile_id"`
			State     string `json:"state"`
			Path      string `json:"path"`
			CloneOf   string `json:"clone_of"`
		}
		if err := json.Unmarshal(raw, &now); err != nil {
			return fmt.Errorf("the sidecar's answer: %w", err)
		}
		if now.Path != "" {
			_, err = fmt.Fprintf(a.stdout, "%s: put aside in %s\n", printable(now.ProfileID), printable(now.Path))
			return err
		}
		if now.CloneOf != "" {
			_, err = fmt.Fprintf(a.stdout, "%s: removed, a clone of %s\n", printable(now.ProfileID), printable(now.CloneOf))
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "%s: %s\n", printable(now.ProfileID), cell(now.State))
		return err
	}())
}

// printed prints the document, unless there is an error.
func printed(a *app, raw json.RawMessage, err error) error {
	if err != nil {
		return err
	}
	return a.printJSON(raw)
}

// profileArg is the argument that names a profile.
type profileArg string

// Validate implements kong's hook for values.
func (p profileArg) Validate() error { return lease.CheckProfileID(string(p)) }

type showCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile."`
}

// shownEvents is how many of the last events show prints as text.
const shownEvents = 10

func (c *showCmd) Run(a *app) error { return c.printProblem(a, c.print(a)) }

func (c *showCmd) print(a *app) error {
	sidecar, err := c.client()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	id := string(c.Profile)
	record, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "profiles", id)
	if err != nil {
		return err
	}
	inspection, err := inspectionOf(ctx, sidecar, id)
	if err != nil {
		return err
	}
	history, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "profiles", id, "history")
	if err != nil {
		return err
	}
	var picture *api.Bundle
	stored, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "profiles", id, "evidence")
	if err == nil {
		picture, err = lastPicture(stored)
	}
	if err != nil { // the store may be away: what the record says is worth showing
		a.warn("pictures cannot be listed: %v", err)
	}
	if c.JSON {
		return c.printDocument(a, record, inspection, history, picture)
	}
	return c.printText(a, record, inspection, history, picture)
}

// lastPicture is the newest of the pictures that were stored while a session lived;
// nil where there is none.
func lastPicture(evidenceRaw json.RawMessage) (*api.Bundle, error) {
	stored, err := read[list[api.Bundle]](evidenceRaw)
	if err != nil {
		return nil, err
	}
	for _, b := range stored.Items {
		if b.RecoveryReason == evidence.PictureReason {
			return &b, nil
		}
	}
	return nil, nil
}

// inspectionOf returns nil for a profile that was never inspected.
func inspectionOf(ctx context.Context, sidecar *client, profile string) (json.RawMessage, error) {
	raw, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "profiles", profile, "inspection")
	var refused *refusedError
	if errors.As(err, &refused) && refused.problem.Status == http.StatusNotFound {
		return nil, nil
	}
	return raw, err
}

// printDocument prints the record with three members more: inspection, events and
// last_picture.
func (c *showCmd) printDocument(a *app, record, inspection, history json.RawMessage, picture *api.Bundle) error {
	document, err := read[map[string]json.RawMessage](record)
	if err != nil {
		return err
	}
	events, err := read[list[json.RawMessage]](history)
	if err != nil {
		return err
	}
	if events.Items == nil {
		events.Items = []json.RawMessage{}
	}
	if document["events"], err = json.Marshal(events.Items); err != nil {
		return fmt.Errorf("events of %s: %w", c.Profile, err)
	}
	if document["last_picture"], err = json.Marshal(picture); err != nil {
		return fmt.Errorf("picture of %s: %w", c.Profile, err)
	}
	document["inspection"] = inspection
	raw, err := json.Marshal(document)
	return printed(a, raw, err)
}

func (c *showCmd) printText(a *app, recordRaw, inspectionRaw, historyRaw json.RawMessage, picture *api.Bundle) error {
	r, err := read[lease.Record](recordRaw)
	if err != nil {
		return err
	}
	history, err := read[list[lease.Event]](historyRaw)
	if err != nil {
		return err
	}
	t := newTable(a.stdout)
	for _, line := range []struct {
		name  string
		value any
	}{
		{"profile", r.ProfileID}, {"state", r.State}, {"lease token", r.Token}, {"session", r.SessionID},
		{"owner", r.OwnerWorkerID}, {"task", r.TaskID}, {"account", r.AccountID}, {"proxy", r.ProxyID},
		{"launcher", r.LauncherID}, {"home", r.Home},
		{"acquired at", r.AcquiredAt}, {"heartbeat at", r.HeartbeatAt}, {"expires at", r.ExpiresAt},
		{"suspected at", r.SuspectedAt}, {"recovery started at", r.RecoveryStartedAt},
		{"released at", r.ReleasedAt}, {"warm since", r.WarmSince}, {"available after", r.AvailableAfter},
		{"last URL", r.LastKnownURL}, {"last step", r.LastKnownStep}, {"last safe checkpoint", r.LastSafeCheckpoint},
		{"resume from", r.ResumeFrom}, {"reason", r.Reason}, {"decision", r.Decision},
		{"because", strings.Join(r.Reasons, "; ")}, {"outcome", r.Outcome}, {"evidence", r.EvidenceID},
	} {
		// What is not known takes no line.
		if text := cell(line.value); text != "-" {
			t.row(line.name, text)
		}
	}
	if r.MaxActiveRuns > 1 {
		for _, run := range r.Runs {
			t.row("run", fmt.Sprintf("token %d, task %s of %s since %s", run.Token, cell(run.TaskID), cell(run.OwnerWorkerID), cell(run.AcquiredAt)))
		}
		for _, run := range r.LostRuns {
			t.row("lost run", fmt.Sprintf("token %d, task %s of %s: %s, evidence %s", run.Token, cell(run.TaskID), cell(run.OwnerWorkerID), cell(run.Reason), cell(run.EvidenceID)))
		}
	}
	if hand := r.ByHand; hand != nil {
		t.row("by hand", fmt.Sprintf("%s since %s: %s", hand.Holder, cell(hand.Since), cell(hand.Note)))
		if hand.Review != nil {
			t.row("in review", fmt.Sprintf("%s, evidence %s", cell(hand.Review.Reason), cell(hand.Review.EvidenceID)))
		}
	}
	if picture != nil {
		t.row("last picture", pictureText(picture))
	}
	if r.Review != nil {
		t.row("review", fmt.Sprintf("%s by %s at %s on token %d: %s", r.Review.Decision, r.Review.Reviewer, cell(r.Review.At), r.Review.TokenSeen, cell(r.Review.Note)))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if inspectionRaw != nil {
		if err := printInspection(a, inspectionRaw); err != nil {
			return err
		}
	}
	events := history.Items[max(0, len(history.Items)-shownEvents):]
	if len(events) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	t = newTable(a.stdout, "AT", "EVENT", "TOKEN", "TASK", "REASON")
	for _, e := range events {
		t.row(e.At, e.Event, e.Token, e.TaskID, e.Reason)
	}
	return t.flush()
}

// pictureText says what a picture is of, and how to have it.
func pictureText(b *api.Bundle) string {
	what := fmt.Sprintf("%s, token %d, of %s", cell(b.At), b.Token, cell(b.LastKnownURL))
	if b.LastKnownStep != "" {
		what += ", step " + b.LastKnownStep
	}
	if b.Checkpoint != "" {
		what += ", checkpoint " + b.Checkpoint
	}
	for _, part := range b.Parts {
		if part.Missing != "" {
			return what + ": " + part.Missing
		}
	}
	return what + ": evidence --id " + b.EvidenceID
}

func printInspection(a *app, raw json.RawMessage) error {
	found, err := read[api.Inspection](raw)
	if err != nil || len(found.Facts) == 0 {
		return err
	}
	fmt.Fprintln(a.stdout)
	t := newTable(a.stdout, "FACT", "ANSWER", "HOW")
	for _, f := range found.Facts {
		t.row(f.Name, f.Answer, f.How)
	}
	if err := t.flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "decision: %s (%s), by version %d of the table\n", cell(found.Decision), cell(strings.Join(found.Reasons, "; ")), found.DecisionVersion)
	return err
}

type sessionsCmd struct {
	clientFlags `embed:""`
}

func (c *sessionsCmd) Run(a *app) error { return c.printProblem(a, c.print(a)) }

func (c *sessionsCmd) print(a *app) error {
	sidecar, err := c.client()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	raw, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "sessions")
	if err != nil || c.JSON {
		return printed(a, raw, err)
	}
	sessions, err := read[list[api.Session]](raw)
	if err != nil {
		return err
	}
	t := newTable(a.stdout, "SESSION", "PROFILE", "STATE", "TOKEN", "WORKER", "TASK", "CONNECTIONS", "EXPIRES AT")
	for _, s := range sessions.Items {
		t.row(s.SessionID, s.ProfileID, s.State, s.Token, s.WorkerID, s.TaskID, s.Connections, s.ExpiresAt)
	}
	return t.flush()
}

type reviewCmd struct {
	clientFlags `embed:""`
	Profile     profileArg  `arg:"" help:"The profile."`
	Decision    string      `required:"" enum:"approve,keep" placeholder:"approve|keep" help:"Make the profile available again, or keep it in review."`
	Reviewer    string      `placeholder:"NAME" help:"Who decides (default: $$USER)."`
	Note        string      `placeholder:"TEXT" help:"Why."`
	Token       lease.Token `placeholder:"N" help:"The lease token that the reviewer saw (default: the one shown now)."`
}

func (c *reviewCmd) Run(a *app) error { return c.printProblem(a, c.decide(a)) }

func (c *reviewCmd) decide(a *app) error {
	sidecar, err := c.client()
	if err != nil {
		return err
	}
	reviewer, err := person(c.Reviewer, "reviews", "--reviewer")
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	id, token := string(c.Profile), c.Token
	if token == 0 {
		if token, err = seenToken(ctx, a, sidecar, id); err != nil {
			return err
		}
	}
	raw, err := sidecar.ask(ctx, http.MethodPost, api.ReviewRequest{
		Write: api.Write{Token: token}, Decision: c.Decision, Reviewer: reviewer, Note: c.Note,
	}, "v1", "profiles", id, "review")
	if err != nil || c.JSON {
		return printed(a, raw, err)
	}
	now, err := read[lease.Record](raw)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s by %s, token %d, now %s\n", id, c.Decision, printable(reviewer), now.Token, cell(now.State))
	return err
}
