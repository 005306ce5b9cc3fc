package recovery

import (
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery/decision"
)

// pauseFor is the pause after a recovery: the configured one, or a longer one if a site asked
// the client to wait.
func pauseFor(configured time.Duration, siteWaits, now time.Time) time.Duration {
	return max(configured, siteWaits.Sub(now))
}

// unsafeRequests are the last unsafe requests of a session, as people are shown them.
func unsafeRequests(s checkpoint.Summary, t decision.Task) []api.UnsafeRequest {
	var list []api.UnsafeRequest
	for _, r := range decision.Requests(s, t) {
		list = append(list, api.UnsafeRequest{
			At: r.At, Method: r.Method, URL: r.URL, Shape: r.Shape, Times: r.Times(), Status: r.Status,
			Answer: decision.AnswerTo(r.Entry), Counts: r.Counts, SinceSafeCheckpoint: r.SinceSafe,
		})
	}
	return list
}

// maxTyped is the most typed-into fields that an inspection keeps.
const maxTyped = 50

// typedInto are the last fields that were typed into in a session, as people are shown them.
func typedInto(s checkpoint.Summary) []api.Typed {
	var list []api.Typed
	vouched := len(s.Typed) - len(s.TypedSince)
	for i, e := range s.Typed {
		list = append(list, api.Typed{At: e.At, Field: e.Name, URL: e.URL, Times: e.Times(), Person: e.Person, SinceSafeCheckpoint: i >= vouched})
	}
	return list[max(0, len(list)-maxTyped):]
}
