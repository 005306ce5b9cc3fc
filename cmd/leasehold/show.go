package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/lease"
)

type showCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile."`
	Facts       bool       `help:"Print all facts of the inspection, too."`
}

// shownEvents is how many of the last events show prints as text.
const shownEvents = 10

// Run prints what is known about the profile.
func (c *showCmd) Run(a *app) error {
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		p, err := readProfile(ctx, a, sidecar, string(c.Profile))
		if err != nil {
			return err
		}
		if c.JSON {
			return p.printDocument(a)
		}
		return p.printText(ctx, a, c, sidecar)
	})
}

// shownProfile is what the sidecar answered about a profile.
type shownProfile struct {
	id              string
	record, history json.RawMessage
	inspection      json.RawMessage // nil if it was never inspected
	picture         *api.Bundle     // as of newestPicture
	shows           *api.Bundle     // as of newestShown
}

// readProfile asks the sidecar for all that show prints.
func readProfile(ctx context.Context, a *app, sidecar *client, id string) (p shownProfile, err error) {
	p.id = id
	if p.record, err = sidecar.ask(ctx, http.MethodGet, nil, "v1", "profiles", id); err != nil {
		return p, err
	}
	if p.inspection, err = inspectionOf(ctx, sidecar, id); err != nil {
		return p, err
	}
	if p.history, err = sidecar.askAll(ctx, "v1", "profiles", id, "history"); refusedWith(err, api.CodeStoreUnavailable) {
		a.warn("the history cannot be read: %v", err)
		p.history = noItems
	} else if err != nil {
		return p, err
	}
	stored, err := sidecar.askAll(ctx, "v1", "profiles", id, "evidence")
	if err == nil {
		p.picture, p.shows, err = newestPicture(stored)
	}
	if err != nil { // the evidence store may be unreachable: the rest is still worth showing
		a.warn("pictures cannot be listed: %v", err)
	}
	return p, nil
}

// noItems is a list with nothing in it.
var noItems = json.RawMessage(`{"items":[],"next":null}`)

// newestPicture returns the newest of the pictures that were stored during a session, and
// the newest bundle that has any picture; nil if there is none.
func newestPicture(evidenceRaw json.RawMessage) (living, any *api.Bundle, err error) {
	stored, err := read[list[api.Bundle]](evidenceRaw)
	if err != nil {
		return nil, nil, err
	}
	for i, b := range stored.Items {
		if b.RecoveryReason == evidence.PictureReason {
			living = &stored.Items[i]
			break
		}
	}
	return living, newestShown(stored.Items), nil
}

// inspectionOf returns nil for a profile that was never inspected.
func inspectionOf(ctx context.Context, sidecar *client, profile string) (json.RawMessage, error) {
	raw, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "profiles", profile, "inspection")
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.problem.Status == http.StatusNotFound {
		return nil, nil
	}
	return raw, err
}

// printDocument prints the record with three more members: inspection, events and last_picture.
func (p shownProfile) printDocument(a *app) error {
	document, err := read[map[string]json.RawMessage](p.record)
	if err != nil {
		return err
	}
	events, err := read[list[json.RawMessage]](p.history)
	if err != nil {
		return err
	}
	if events.Items == nil {
		events.Items = []json.RawMessage{}
	}
	if document["events"], err = json.Marshal(events.Items); err != nil {
		return fmt.Errorf("events of %s: %w", p.id, err)
	}
	if document["last_picture"], err = json.Marshal(p.picture); err != nil {
		return fmt.Errorf("picture of %s: %w", p.id, err)
	}
	document["inspection"] = p.inspection
	return a.printValue(document)
}

func (p shownProfile) printText(ctx context.Context, a *app, c *showCmd, sidecar *client) error {
	r, err := read[api.Profile](p.record)
	if err != nil {
		return err
	}
	hands := api.InHands{}
	if r.State == lease.Held && r.ByHand == nil {
		if hands, err = handsOf(ctx, sidecar, p.id); err != nil { // its launcher may be unreachable: the rest is still worth showing
			a.warn("whether its worker waits for a person cannot be told: %v", err)
		}
	}
	history, err := read[list[lease.Event]](p.history)
	if err != nil {
		return err
	}
	if err := printFirst(a, c, p, r, hands); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	if err := printRecord(a, r, p.picture); err != nil {
		return err
	}
	if p.inspection != nil {
		if err := printInspection(a, p.inspection, c.Facts); err != nil {
			return err
		}
	}
	if err := printEvents(a, history.Items[max(0, len(history.Items)-shownEvents):]); err != nil {
		return err
	}
	if history.Truncated {
		fmt.Fprintln(a.stdout, "the oldest events have left the stream")
	}
	return nil
}

// printRecord prints a line for each thing that is known about the profile.
func printRecord(a *app, r api.Profile, picture *api.Bundle) error {
	t := newColumns(a.stdout)
	for _, line := range []struct {
		name  string
		value any
	}{
		{"profile", r.ProfileID}, {"state", r.State}, {"lease token", r.Token}, {"session", r.SessionID},
		{"owner", r.OwnerWorkerID}, {"task", r.TaskID}, {"account", r.AccountID}, {"proxy", r.ProxyID},
		{"launcher", r.LauncherID}, {"home", r.Home}, {"home is gone", api.HomeNote(r)}, {"home changed", api.MoveNote(r.Record)}, {"snapshot", api.SnapshotNote(r.Record)},
		{"signed in", api.SignedInNote(r.Record)}, {"sign in at", r.SignInAt},
		{"acquired at", r.AcquiredAt}, {"heartbeat at", r.HeartbeatAt}, {"expires at", r.ExpiresAt},
		{"suspected at", r.SuspectedAt}, {"recovery started at", r.RecoveryStartedAt},
		{"released at", r.ReleasedAt}, {"warm since", r.WarmSince}, {"available after", r.AvailableAfter},
		{"last URL", r.LastKnownURL}, {"last step", r.LastKnownStep}, {"last safe checkpoint", r.LastSafeCheckpoint},
		{"resume from", r.ResumeFrom}, {"reason", r.Reason}, {"decision", r.Decision},
		{"because", strings.Join(r.Reasons, "; ")}, {"outcome", r.Outcome}, {"evidence", r.EvidenceID},
	} {
		if text := cell(line.value); text != "-" {
			t.row(line.name, text)
		}
	}
	for _, setting := range api.SettingsShown(r.Settings) {
		t.row(setting.Name, cell(setting.Text))
	}
	if r.MaxActiveRuns > 1 {
		for _, run := range r.Runs {
			t.row("run", fmt.Sprintf("token %d, task %s of %s since %s", run.Token, cell(run.TaskID), cell(run.OwnerWorkerID), cell(run.AcquiredAt)))
		}
		for _, run := range r.LostRuns {
			if run.SessionID == r.SessionID { // the lines above are about it
				continue
			}
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
	return t.flush()
}

// pictureText says what a picture shows, and how to get it.
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

func printInspection(a *app, raw json.RawMessage, facts bool) error {
	found, err := read[api.Inspection](raw)
	if err != nil || len(found.Facts) == 0 {
		return err
	}
	if facts {
		fmt.Fprintln(a.stdout)
		t := newColumns(a.stdout, "FACT", "ANSWER", "HOW")
		for _, f := range found.Facts {
			t.row(f.Name, f.Answer, f.How)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if len(found.Account) > 0 {
		fmt.Fprintln(a.stdout)
		t := newColumns(a.stdout, "ACCOUNT")
		for _, text := range found.Account {
			t.row(text)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if err := printUnsafeRequests(a, found.UnsafeRequests); err != nil {
		return err
	}
	if err := printTyped(a, found.Typed); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "\ndecision: %s (%s), by version %d of the table\n", cell(found.Decision), cell(strings.Join(found.Reasons, "; ")), found.DecisionVersion)
	if err == nil && !facts {
		_, err = fmt.Fprintf(a.stdout, "%d facts were found: --facts prints them\n", len(found.Facts))
	}
	return err
}

// printUnsafeRequests prints what pages sent, and how each request was answered.
func printUnsafeRequests(a *app, sent []api.UnsafeRequest) error {
	if len(sent) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	t := newColumns(a.stdout, "AT", "REQUEST", "TIMES", "ANSWER", "COUNTS AS")
	for _, r := range sent {
		counts := r.Counts
		if r.KnownBy != "" {
			counts += " (" + r.KnownBy + ")"
		}
		if r.SinceSafeCheckpoint {
			counts += ", since the last safe checkpoint"
		}
		t.row(r.At, strings.TrimSpace(r.Method+" "+r.URL+" "+r.Content()), r.Times, r.Answer, counts)
	}
	return t.flush()
}

// printTyped prints into which kinds of fields something was typed.
func printTyped(a *app, typed []api.Typed) error {
	if len(typed) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	t := newColumns(a.stdout, "AT", "TYPED", "TIMES", "PAGE", "BY", "SINCE THE LAST SAFE CHECKPOINT")
	for _, one := range typed {
		t.row(one.At, checkpoint.Field(one.Field).Words(), one.Times, one.URL, cmp.Or(one.Person, "worker"), one.SinceSafeCheckpoint)
	}
	return t.flush()
}

func printEvents(a *app, events []lease.Event) error {
	if len(events) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	t := newColumns(a.stdout, "AT", "EVENT", "TOKEN", "TASK", "REASON")
	for _, e := range events {
		t.row(e.At, e.Event, e.Token, e.TaskID, e.Reason)
	}
	return t.flush()
}
