package main

import (
	"strings"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

func TestShowSaysFirstWhatToDo(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		r                api.Profile
		state, why, todo string
	}{
		"held": {
			api.Profile{Record: lease.Record{State: lease.Held, OwnerWorkerID: "w", TaskID: "t", AcquiredAt: now, ExpiresAt: now.Add(time.Minute)}},
			"held by w for task t, since 2026-11-22T12:00:00Z", "", "at work, until 2026-11-22T12:01:00Z",
		},
		"held, and silent": {
			api.Profile{Record: lease.Record{State: lease.Held, OwnerWorkerID: "w", TaskID: "t", AcquiredAt: now, ExpiresAt: now.Add(-time.Second)}},
			"held by w for task t", "", "nothing yet: its lease was not renewed in time",
		},
		"in recovery at a home that is gone": {
			api.Profile{Record: lease.Record{State: lease.Quarantined, Home: "host-2"}, HomeSilentSince: now.Add(-time.Minute)},
			"quarantined", "", "has been silent for its --home-timeout",
		},
		"held by hand": {
			api.Profile{Record: lease.Record{State: lease.Held, HumanReview: lease.HumanReview{ByHand: &lease.ByHand{Holder: "Eve", Since: now}}}},
			"held by hand: Eve, since 2026-11-22T12:00:00Z", "", "at work",
		},
		"quarantined": {
			api.Profile{Record: lease.Record{State: lease.Quarantined, Reason: "connection_lost", RecoveryStartedAt: now}},
			"quarantined, in recovery since", "connection_lost", "nothing yet",
		},
		"in review": {
			api.Profile{Record: lease.Record{ProfileID: "shop", Token: 43, State: lease.ManualReview, Reason: "connection_lost", Reasons: []string{"a", "b"}}},
			"manual_review", "connection_lost: a; b", "leasehold review shop --decision approve --token 43 --note",
		},
		"to be resumed": {
			api.Profile{Record: lease.Record{State: lease.ResumePending, TaskID: "t", LastSafeCheckpoint: "cart"}},
			"resume_pending", "", "task t to come back and to go on from cart",
		},
		"cooling down": {
			api.Profile{Record: lease.Record{State: lease.Available, AvailableAfter: now.Add(time.Second), Reason: "connection_lost"}},
			"available, but cools down until 2026-11-22T12:00:01Z", "connection_lost", "after the pause",
		},
		"free": {
			api.Profile{Record: lease.Record{State: lease.Available, AvailableAfter: now, HumanReview: lease.HumanReview{Review: &lease.Review{Decision: "approve", Reviewer: "Ana"}}}},
			"available", "approve by Ana", "the next task may have it",
		},
		"warm": {api.Profile{Record: lease.Record{State: lease.Available}, WarmSince: now}, "available, its browser is warm", "", "the next task"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := stateText(c.r, now); !strings.HasPrefix(got, c.state) {
				t.Errorf("state %q, want %q", got, c.state)
			}
			if got := whyText(c.r); got != c.why {
				t.Errorf("why %q, want %q", got, c.why)
			}
			if got := todoText(c.r, now); !strings.Contains(got, c.todo) {
				t.Errorf("what to do %q, want %q", got, c.todo)
			}
		})
	}
}

func TestShowSaysWhatIsInAPersonsHands(t *testing.T) {
	ask := &api.Ask{Reason: "the code"}
	for name, c := range map[string]struct {
		hands api.InHands
		want  string
	}{
		"nobody asks":  {api.InHands{}, ""},
		"somebody has": {api.InHands{SessionID: "ses_2", Ask: ask, Person: &api.Person{Name: "Ben"}}, "nothing, while Ben is at it; leasehold take shop --session ses_2 --from NAME"},
		"one asks":     {api.InHands{SessionID: "ses_2", Ask: ask}, "leasehold take shop --session ses_2, or http://h:1/console/shop/live?session=ses_2"},
	} {
		if got := todoByHand("shop", c.hands, "http://h:1/"); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The session that the record itself is about is no line of the lost runs beside it.
func TestShowNamesALostRunOnce(t *testing.T) {
	r := api.Profile{Record: lease.Record{
		ProfileID: "shop", State: lease.ManualReview, SessionID: "ses_2", EvidenceID: "ev_2", Settings: lease.Settings{MaxActiveRuns: 2},
		LostRuns: []lease.Run{{SessionID: "ses_1", Token: 1, TaskID: "first", EvidenceID: "ev_1"}, {SessionID: "ses_2", Token: 2, TaskID: "second"}},
	}}
	var out strings.Builder
	if err := printRecord(&app{stdout: &out}, r, nil); err != nil {
		t.Fatal(err)
	}
	if said := out.String(); !strings.Contains(said, "task first") || !strings.Contains(said, "evidence ev_1") || strings.Count(said, "lost run") != 1 {
		t.Errorf("%s", said)
	}
}
