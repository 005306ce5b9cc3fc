package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"leasehold/lease"
)

// broken adds a violation that was found during the test run.
func (h *harness) broken(kind, profile, format string, args ...any) {
	h.history.Add(Entry{Kind: Broken, Profile: profile, Text: kind + ": " + fmt.Sprintf(format, args...)})
}

// judge checks the final state, once all faults are healed and no worker runs any more.
func (h *harness) judge(ctx context.Context) error {
	healing, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	if err := h.store.ready(healing); err != nil {
		return err
	}
	for _, host := range h.hosts {
		if err := host.ready(healing); err != nil {
			h.broken(NotReady, "", "%v", err)
		}
	}
	h.readersLeave(ctx)
	records := h.decided(ctx)
	settling, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	if err := h.subscriber.catchUp(settling); err != nil {
		h.broken(EventMissing, "", "the event stream cannot be read: %v", err)
	}
	h.published(settling, records)
	h.history.Add(Entry{Kind: Settled})
	h.checkEvidence(ctx)
	h.checkFaults()
	return nil
}

// decided waits until every profile has been decided on, and returns the records.
func (h *harness) decided(ctx context.Context) map[string]lease.Record {
	for deadline := time.Now().Add(decideTime); ; sleep(ctx, 200*time.Millisecond) {
		records := map[string]lease.Record{}
		for _, host := range h.hosts {
			list, err := host.records(ctx)
			if err != nil {
				records[host.endpoint.name] = lease.Record{Reason: err.Error()}
			}
			for _, r := range list {
				if r.Home == host.endpoint.name || records[r.ProfileID].ProfileID == "" {
					records[r.ProfileID] = r
				}
			}
		}
		left := map[string]string{}
		for _, host := range h.hosts {
			for _, p := range host.homed {
				switch r, ok := records[p]; {
				case !ok:
					left[p] = "it is not listed: " + records[host.endpoint.name].Reason
				case r.State != lease.Available && r.State != lease.ResumePending && r.State != lease.ManualReview:
					left[p] = fmt.Sprintf("it is %s (%s), token %d, of session %s", r.State, r.Reason, r.Token, r.SessionID)
				}
			}
			delete(records, host.endpoint.name)
		}
		if len(left) == 0 {
			return records
		}
		if time.Now().After(deadline) {
			for _, p := range sortedKeys(left) {
				h.broken(Undecided, p, "%s", left[p])
			}
			return records
		}
	}
}

// published waits until the last transition of each record was read from the stream.
func (h *harness) published(ctx context.Context, records map[string]lease.Record) {
	for deadline := time.Now().Add(readyTime); ; sleep(ctx, 200*time.Millisecond) {
		last := map[string]uint64{}
		epoch, _ := h.store.generation()
		for _, e := range h.history.Entries() {
			if e.Kind == Published && e.Epoch == epoch {
				last[e.Profile] = max(last[e.Profile], e.Event.Sequence)
			}
		}
		var behind []string
		for p, r := range records {
			if r.Sequence > last[p] {
				behind = append(behind, fmt.Sprintf("%s: the record's sequence is %d, the last event's %d", p, r.Sequence, last[p]))
			}
		}
		if len(behind) == 0 {
			return
		}
		// After a set-back of the store, earlier events may be gone, and nothing new
		// may have happened to a profile.
		if time.Now().After(deadline) {
			for _, b := range behind {
				p, _, _ := strings.Cut(b, ":")
				if epoch == 0 || last[p] > 0 {
					h.broken(EventMissing, p, "%s", b)
				}
			}
			return
		}
	}
}

// checkEvidence fetches the bundle of each state after quarantined, and one of its
// parts. Bundles from before a set-back of the store may be gone, so only sessions
// since then count.
func (h *harness) checkEvidence(ctx context.Context) {
	epoch, wall := h.store.generation()
	fetched := map[string]error{}
	begun := map[string]bool{} // sessions that began in this epoch
	for _, e := range h.history.Entries() {
		if e.Kind != Published || e.Epoch != epoch || e.Made.Before(wall) {
			continue
		}
		if e.Event.Event == lease.EventGranted {
			begun[e.Event.SessionID] = true
		}
		switch e.Event.Event {
		case string(lease.Inspected), string(lease.ManualReview), string(lease.ResumePending), string(lease.Available):
		default:
			continue
		}
		id := e.Event.EvidenceID
		err, known := fetched[id]
		switch {
		case !begun[e.Event.SessionID]:
			continue
		case id == "":
			h.broken(NoEvidence, e.Profile, "%s, token %d, names none", e.Event.Event, e.Event.Token)
			continue
		case !known:
			err = h.fetch(ctx, id)
			fetched[id] = err
		}
		if err != nil {
			h.broken(NoEvidence, e.Profile, "%s, token %d: %v", e.Event.Event, e.Event.Token, err)
		}
	}
}

// fetch asks every launcher for a bundle, since one that is still in a spool is known
// to one of them only.
func (h *harness) fetch(ctx context.Context, id string) error {
	var errs []error
	for _, host := range h.hosts {
		var m struct {
			Parts []struct{ Name, Missing string }
		}
		err := host.call(ctx, callTime, http.MethodGet, "/v1/evidence/"+id, nil, &m)
		for _, p := range m.Parts {
			if p.Missing == "" && strings.HasSuffix(p.Name, ".json") {
				var part json.RawMessage
				err = host.call(ctx, callTime, http.MethodGet, "/v1/evidence/"+id+"/"+p.Name, nil, &part)
				break
			}
		}
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", host.endpoint.name, err))
	}
	return errors.Join(errs...)
}

// checkFaults checks that each fault and each required kind of entry occurred, since a
// run in which nothing happened proves nothing.
func (h *harness) checkFaults() {
	happened := map[string]bool{}
	for _, e := range h.history.Entries() {
		if e.Kind == Fault {
			happened[e.Text] = true
		}
	}
	for _, f := range h.Faults {
		if !happened[f] {
			h.broken(Harness, "", "the fault %q did not happen", f)
		}
	}
	for _, what := range h.unseen() {
		h.broken(Harness, "", "never: %s", what)
	}
}
