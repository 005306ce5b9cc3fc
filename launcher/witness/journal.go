package witness

import (
	"context"

	"leasehold/checkpoint"
	"leasehold/checkpoint/wording"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
)

// JournalPart is the part of a bundle with the session's journal.
const JournalPart = "journal.jsonl"

// journal is the witness of what the session did, while it lived.
type journal struct{}

func (journal) Add(_ context.Context, c recovery.Capture, to recovery.Parts) {
	to.Put(JournalPart, "journal", "application/x-ndjson", checkpoint.Encode(c.Journal), nil)
}

func (journal) Facts(_ context.Context, c recovery.Closed, shown *api.Inspection) []table.Fact {
	sum, task := checkpoint.Summarize(c.Journal), c.Task()
	shown.UnsafeRequests, shown.Typed = unsafeRequests(sum, task), typedInto(sum)
	return append(findings.InspectTask(sum, task), findings.Observed(sum, c.Unseen))
}

// unsafeRequests are the last unsafe requests of a session, as people are shown them.
func unsafeRequests(s checkpoint.Summary, t findings.Task) []api.UnsafeRequest {
	var list []api.UnsafeRequest
	for _, r := range findings.Requests(s, t) {
		list = append(list, api.UnsafeRequest{
			At: r.At, Method: r.Method, URL: r.URL, Shape: r.Shape, Times: r.Times(), Status: r.Status,
			Answer: wording.Answer(r.Entry), Counts: r.Counts, Known: r.Known, KnownBy: r.KnownBy, SinceSafeCheckpoint: r.SinceSafe,
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
