package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// printFirst prints what a person needs first: the state, the reason, what to do, and where the
// picture is.
func printFirst(a *app, c *showCmd, p shownProfile, r api.Profile, hands api.InHands) error {
	t := newColumns(a.stdout)
	t.row(r.ProfileID, stateText(r, time.Now()))
	if ask := hands.Ask; ask != nil {
		t.row("asks", fmt.Sprintf("its worker waits for a person since %s, until %s: %s", cell(ask.At), cell(ask.Until), cell(ask.Reason)))
	}
	if person := hands.Person; person != nil {
		t.row("by hand", fmt.Sprintf("%s has it since %s; the worker's input is refused meanwhile", cell(person.Name), cell(person.Since)))
	}
	if !r.StaleSince.IsZero() {
		t.row("seen before", staleText(r.StaleSince))
	}
	if why := whyText(r); why != "" {
		t.row("why", why)
	}
	todo := todoText(r, time.Now())
	if text := todoByHand(r.ProfileID, hands, c.URL); text != "" {
		todo = text
	}
	t.row("what to do", todo)
	t.row("picture", p.pictureText(c.URL))
	return t.flush()
}

// staleText says that what is shown may be old.
func staleText(since time.Time) string {
	return fmt.Sprintf("the sidecar cannot reach NATS since %s, and shows what it saw before; nothing is granted or decided until NATS answers", cell(since))
}

// stateText is the state, since when, and who has the profile.
func stateText(r api.Profile, now time.Time) string {
	text := string(r.State)
	switch {
	case r.State == lease.Held && r.ByHand != nil:
		text += fmt.Sprintf(" by hand: %s, since %s", r.ByHand.Holder, cell(r.ByHand.Since))
	case r.State == lease.Held:
		text += fmt.Sprintf(" by %s for task %s, since %s", cell(r.OwnerWorkerID), cell(r.TaskID), cell(r.AcquiredAt))
	case r.State == lease.Available && now.Before(r.AvailableAfter):
		text += fmt.Sprintf(", but cools down until %s", cell(r.AvailableAfter))
	case r.State == lease.Available && !r.WarmSince.IsZero():
		text += ", its browser is warm"
	case !r.RecoveryStartedAt.IsZero() && r.State != lease.Available:
		text += fmt.Sprintf(", in recovery since %s", cell(r.RecoveryStartedAt))
	}
	return text
}

// whyText says how the profile came to its state; "" if there is nothing to explain.
func whyText(r api.Profile) string {
	why := r.Reason
	if len(r.Reasons) > 0 {
		why = strings.TrimPrefix(why+": "+strings.Join(r.Reasons, "; "), ": ")
	}
	if r.Review != nil && r.State == lease.Available {
		why = strings.TrimPrefix(fmt.Sprintf("%s; %s by %s", why, r.Review.Decision, r.Review.Reviewer), "; ")
	}
	return why
}

// todoText says what a person has to do, or that there is nothing to do.
func todoText(r api.Profile, now time.Time) string {
	text := todoAtHome(r, now)
	if note := api.HomeNote(r); note != "" {
		if r.State == lease.ManualReview {
			return text + "; " + note
		}
		return note
	}
	return text
}

// todoAtHome is todoText for a profile whose home is running.
func todoAtHome(r api.Profile, now time.Time) string {
	switch r.State {
	case lease.ManualReview:
		seen := fmt.Sprintf("--token %d", r.Token)
		if r.Sequence != 0 {
			seen += fmt.Sprintf(" --sequence %d", r.Sequence)
		}
		return fmt.Sprintf("look at the picture and at what was sent, then decide: leasehold review %[1]s --decision approve %[2]s --note WHY, or --decision keep; leasehold hold %[1]s opens the browser", r.ProfileID, seen)
	case lease.ResumePending:
		return fmt.Sprintf("nothing: it waits for task %s to come back and to go on from %s", cell(r.TaskID), cell(r.LastSafeCheckpoint))
	case lease.SuspectedStale, lease.Quarantined, lease.Inspected:
		return fmt.Sprintf("nothing yet: its recovery goes on, and decides by itself or asks for a person (leasehold watch %s)", r.ProfileID)
	case lease.Held:
		if !r.ExpiresAt.IsZero() && now.After(r.ExpiresAt) {
			return "nothing yet: its lease was not renewed in time, and its recovery begins by itself"
		}
		return "nothing: it is at work, until " + cell(r.ExpiresAt) + " unless that is renewed"
	}
	if now.Before(r.AvailableAfter) {
		return "nothing: it is granted again after the pause"
	}
	if r.SignedOut() {
		return fmt.Sprintf("sign the account in at %s: leasehold hold %[2]s, then leasehold check %[2]s", cell(r.SignInAt), r.ProfileID)
	}
	return "nothing: the next task may have it"
}

// handsOf says what people have to do with the living sessions of a profile. It asks the
// launcher that has the sessions.
func handsOf(ctx context.Context, sidecar *client, profile string) (hands api.InHands, err error) {
	raw, err := sidecar.with(ofProfile(profile)).askAll(ctx, "v1", "sessions")
	if err != nil {
		return hands, err
	}
	all, err := read[list[api.Session]](raw)
	for _, s := range all.Items {
		if s.ProfileID == profile {
			hands = hands.Or(s)
		}
	}
	return hands, err
}

// todoByHand says what a person has to do about a session that a person has, or whose worker
// waits for one; "" if there is neither.
func todoByHand(profile string, hands api.InHands, sidecar string) string {
	switch {
	case hands.Person != nil:
		return fmt.Sprintf("nothing, while %s is at it; leasehold take %s --session %s --from NAME takes it over", cell(hands.Person.Name), profile, cell(hands.SessionID))
	case hands.Ask != nil:
		return fmt.Sprintf("do what its worker waits for: leasehold take %s --session %s, or %s", profile, cell(hands.SessionID), liveOf(sidecar, profile, hands.SessionID))
	}
	return ""
}

// liveOf is the page on which a living session is shown.
func liveOf(sidecar, profile, session string) string {
	return pageOf(sidecar, profile) + "/live?session=" + url.QueryEscape(session)
}

func pageOf(sidecar, profile string) string {
	return strings.TrimSuffix(sidecar, "/") + "/console/" + profile
}

// pictureText says how to see the newest picture of the profile.
func (p shownProfile) pictureText(sidecar string) string {
	if p.shows == nil {
		return "none was stored"
	}
	text := fmt.Sprintf("leasehold evidence export %s --format html", p.shows.EvidenceID)
	if p.shows.LastKnownURL != "" {
		text += ", of " + p.shows.LastKnownURL
	}
	return text + ", or " + pageOf(sidecar, p.id)
}

// newestShown is the newest bundle that has a picture; nil if none has.
func newestShown(bundles []api.Bundle) *api.Bundle {
	i := slices.IndexFunc(bundles, func(b api.Bundle) bool {
		return slices.ContainsFunc(b.Parts, func(p api.Part) bool { return p.Kind == evidence.KindScreenshot && p.Missing == "" })
	})
	if i < 0 {
		return nil
	}
	return &bundles[i]
}
