package console

import (
	"cmp"
	"slices"
	"time"

	"leasehold/checkpoint/wording"
	"leasehold/lease"
)

// incident is one loss of a worker, from the suspicion to the end of its review.
type incident struct {
	At         time.Time
	Token      lease.Token
	Reason     string
	Worker     string
	Task       string
	SessionID  string
	URL        string
	EvidenceID string
	// Decision is the table's decision, with its reasons; empty as long as there is none.
	Decision string
	Reasons  []string
	// Acts are what people did about it, in order.
	Acts []act
	// Open says that no person has let the profile go since.
	Open bool
}

// act is what a person did about an incident.
type act struct {
	At time.Time
	// What is one of approved, kept, or held by hand.
	What string
	Who  string
	// Principal is who that person was proved to be.
	Principal string
	Note      string
}

// The words for people's acts.
const (
	actApproved = "approved"
	actKept     = "kept in review"
	actByHand   = "held by hand"
	actRestored = "went back to a snapshot"
	actMoved    = "given another home"
)

// personsEvents are events about acts of people that change no state.
var personsEvents = map[string]string{lease.EventSnapshotRestored: actRestored, lease.EventMoved: actMoved}

// incidentsOf finds the incidents in a profile's history, oldest first.
func incidentsOf(events []lease.Event) []incident {
	var list []incident
	byHand := false // a person has the profile, or had it when the event happened
	for _, e := range events {
		if e.Event == lease.EventConflict || e.Event == lease.EventLateWrite {
			continue
		}
		last := len(list) - 1
		open := last >= 0 && list[last].Open
		if what := personsEvents[e.Event]; what != "" { // it does not decide about an incident
			if last >= 0 && (e.Reviewer != "" || e.Person != "" || e.Event == lease.EventSnapshotRestored) {
				done := actOf(e, what)
				done.Who = cmp.Or(e.Reviewer, e.Person, e.Principal)
				list[last].Acts = append(list[last].Acts, done)
			}
			continue
		}
		switch {
		case e.State == lease.SuspectedStale, e.State == lease.Quarantined && !(open && list[last].Decision == ""):
			list = append(list, incident{At: e.At, Token: e.Token, Reason: e.Reason, Worker: e.OwnerWorkerID, Task: e.TaskID, SessionID: e.SessionID, URL: e.LastKnownURL, EvidenceID: e.EvidenceID, Open: true})
			continue
		case !open:
			continue
		}
		i := &list[last]
		if i.Decision == "" { // what the recovery finds out belongs to the incident
			i.Token, i.URL, i.EvidenceID = max(i.Token, e.Token), orOther(e.LastKnownURL, i.URL), orOther(e.EvidenceID, i.EvidenceID)
		}
		switch {
		case e.State == lease.Held && e.Event == lease.EventGranted && e.Reason == lease.ReasonByHand:
			i.Acts = append(i.Acts, act{At: e.At, What: actByHand, Who: e.OwnerWorkerID, Principal: e.Principal})
			byHand = true
			continue
		case e.State == lease.Held && e.Event == lease.EventGranted: // a task has the profile
			i.Open = false
		case e.State == lease.Available && e.Reviewer != "":
			i.Acts, i.Open = append(i.Acts, actOf(e, actApproved)), false
		case e.State == lease.ManualReview && e.Reviewer != "" && !byHand:
			i.Acts = append(i.Acts, actOf(e, actKept))
		case i.Decision == "" && e.Decision != "" && (e.State == lease.Available || e.State == lease.ResumePending || e.State == lease.ManualReview):
			i.Decision, i.Reasons, i.Open = e.Decision, e.Reasons, e.State == lease.ManualReview
		}
		if e.Event != lease.EventReleased && e.Event != lease.EventExpired { // these events come before the state to which they lead
			byHand = false
		}
	}
	return list
}

func actOf(e lease.Event, what string) act {
	return act{At: e.At, What: what, Who: e.Reviewer, Principal: e.Principal, Note: e.Note}
}

func orOther(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// frame is one picture of the filmstrip: a moment at which the page, the state or the picture
// changed, and what happened until the next one.
type frame struct {
	At      time.Time
	Title   string
	Picture *picture
	// State is the profile's state, in a frame about a change of state.
	State string
	// After says that by then the worker was lost; Loss, that it was lost at that moment.
	After, Loss bool
	Moments     []moment
	// More is the number of moments that are left out.
	More int
}

// The bounds of the filmstrip.
const (
	maxFrames       = 80
	maxFrameMoments = 6
)

// still is a picture of a session, and when it was taken.
type still struct {
	at      time.Time
	title   string
	picture *picture
}

// filmstrip puts moments, pictures and states on one time line. lost is when the worker was
// lost; zero if it was not. leftOut is the number of early frames, after the first one, for
// which there was no room.
func filmstrip(moments []moment, stills []still, events []lease.Event, lost time.Time) (frames []frame, leftOut int) {
	type piece struct {
		at    time.Time
		put   func()
		order int
	}
	var pieces []piece
	add := func(f frame) { frames = append(frames, f) }
	for _, m := range moments {
		pieces = append(pieces, piece{m.At, func() {
			if last := len(frames) - 1; last < 0 || m.Kind == "page" || m.Kind == "safe checkpoint" {
				add(frame{At: m.At})
			}
			f := &frames[len(frames)-1]
			if len(f.Moments) < maxFrameMoments {
				f.Moments = append(f.Moments, m)
			} else {
				f.More++
			}
		}, 2})
	}
	for _, s := range stills {
		pieces = append(pieces, piece{s.at, func() {
			if last := len(frames) - 1; last >= 0 && frames[last].Picture == nil && frames[last].State == "" && !frames[last].Loss {
				frames[last].Picture = s.picture
				return
			}
			add(frame{At: s.at, Title: s.title, Picture: s.picture})
		}, 3})
	}
	for _, e := range events {
		pieces = append(pieces, piece{e.At, func() {
			add(frame{At: e.At, Title: wording.Joined(wording.Spaced(e.Reason), withWord("decision", wording.Spaced(e.Decision)), withWord("by", e.Reviewer)), State: string(e.State)})
		}, 4})
	}
	if !lost.IsZero() {
		pieces = append(pieces, piece{lost, func() { add(frame{At: lost, Title: "The worker was lost", Loss: true}) }, 1})
	}
	slices.SortStableFunc(pieces, func(a, b piece) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.order - b.order
	})
	for _, p := range pieces {
		p.put()
	}
	for i := range frames {
		frames[i].After = !lost.IsZero() && !frames[i].At.Before(lost)
	}
	if len(frames) > maxFrames {
		leftOut = len(frames) - maxFrames
		frames = slices.Concat(frames[:1], frames[1+leftOut:])
	}
	return frames, leftOut
}

func withWord(word, text string) string {
	if text == "" {
		return ""
	}
	return word + " " + text
}
