package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// maxSnapshots is the most snapshots of a profile that a page lists; maxSinceSnapshot, the most
// sessions after a snapshot that are named.
const (
	maxSnapshots     = 30
	maxSinceSnapshot = 5
)

// travel is what is known about a profile's home and its snapshots.
type travel struct {
	// Own is the launcher that serves the page. Host is the home as that launcher sees it; nil:
	// nothing is known about it.
	Own  string
	Host *api.Host
	// Snapshots are the profile's snapshots, newest first. NoStore says that this launcher has
	// no profile store.
	Snapshots []api.Snapshot
	NoStore   bool
	// Unlisted says that the profile store did not say which snapshots there are.
	Unlisted bool
}

// travel asks where the profile's home is, and for its snapshots.
func (g *gatherer) travel(within time.Duration) {
	ctx, cancel := context.WithTimeout(g.ctx, within)
	defer cancel()
	r, t := g.d.Record, &g.d.travel
	hosts, err := g.svc.Hosts(ctx)
	if err != nil {
		g.miss("The hosts cannot be listed", err)
	}
	for i, h := range hosts.Items {
		if h.Own {
			t.Own = h.LauncherID
		}
		if h.LauncherID == r.Home {
			t.Host = &hosts.Items[i]
		}
	}
	t.Snapshots, err = g.svc.Snapshots(ctx, r.ProfileID)
	if t.NoStore = isCode(err, api.CodeNotFound); err != nil && !t.NoStore {
		t.Unlisted = true
		g.miss("The profile's snapshots cannot be listed", err)
	}
}

// snapshotSeen is a snapshot as a person sees it.
type snapshotSeen struct {
	api.Snapshot
	Newest bool
	// Since are the sessions after it, newest first; More is the number of further ones.
	Since []lease.Event
	More  int
}

// Current says that the profile has not been used since.
func (s snapshotSeen) Current() bool { return len(s.Since) == 0 }

// Lacks says in words how much happened since.
func (s snapshotSeen) Lacks() string {
	if n := len(s.Since) + s.More; n > 0 {
		return counted(n, "session") + " since"
	}
	return "nothing was done since"
}

// Label describes the snapshot in one line.
func (s snapshotSeen) Label() string {
	return fmt.Sprintf("%s UTC, token %d, %s", s.CreatedAt.UTC().Format("2 Jan 2006 15:04:05"), s.Token, s.Lacks())
}

// snapshotsSeen are the snapshots, and the number of those left out. The grants in the history
// tell what happened since, as far back as the history goes.
func snapshotsSeen(all []api.Snapshot, events []lease.Event) (seen []snapshotSeen, cut int) {
	for i, s := range all[:min(len(all), maxSnapshots)] {
		one := snapshotSeen{Snapshot: s, Newest: i == 0}
		for _, e := range slices.Backward(events) {
			switch {
			case e.Event != lease.EventGranted || e.Token <= s.Token:
			case len(one.Since) < maxSinceSnapshot:
				one.Since = append(one.Since, e)
			default:
				one.More++
			}
		}
		seen = append(seen, one)
	}
	return seen, len(all) - len(seen)
}

// places says where the profile's home is, and what a person may do about that.
func (v *view) places() {
	r := v.Record
	v.Seen, v.SnapshotsCut = snapshotsSeen(v.Snapshots, v.Events)
	unused := r.State == lease.Available || r.State == lease.ManualReview
	gone := api.HomeNote(r) != ""
	v.MayRestore = unused && !gone && len(v.Seen) > 0 && r.Home == v.Own && r.OtherHome == "" && v.Who.May(principal.Manage, r.ProfileID)
	v.MayRehome = gone && (unused || r.State == lease.ResumePending) && r.Home != v.Own && v.MayReview
}

// Newest is the newest snapshot; nil if there is none.
func (v *view) Newest() *snapshotSeen {
	if len(v.Seen) == 0 {
		return nil
	}
	return &v.Seen[0]
}

// HomeText says where the profile's home is.
func (v *view) HomeText() string {
	r, host := v.Record, v.Host
	switch {
	case r.Home == "":
		return "It has no home yet."
	case !r.HomeSilentSince.IsZero():
		return fmt.Sprintf("Launcher %s, which is gone: nothing was heard of it since %s UTC.", r.Home, r.HomeSilentSince.UTC().Format("2 Jan 2006 15:04:05"))
	case r.Home == v.Own:
		return fmt.Sprintf("Launcher %s, this one.", r.Home)
	case host == nil:
		return fmt.Sprintf("Launcher %s, of which this one knows nothing.", r.Home)
	case host.Here && host.AdvertiseURL != "":
		return fmt.Sprintf("Launcher %s, at %s.", r.Home, host.AdvertiseURL)
	case host.Here:
		return fmt.Sprintf("Launcher %s, which is here and has no address.", r.Home)
	}
	return fmt.Sprintf("Launcher %s, which is not there now.", r.Home)
}

// Mobility says whether the profile may move.
func (v *view) Mobility() string {
	if v.Record.Mobility == lease.MobilityFree {
		return "It may move to another host by itself, with its newest snapshot, if nothing was done since that."
	}
	return "It stays there unless a person moves it."
}

// restore puts a snapshot back. Access is checked for the route.
func (p *pages) restore(w http.ResponseWriter, r *http.Request, profile string) {
	filled := filledIn(r)
	filled.Decision = ""
	err := named(filled.Reviewer)
	if err == nil && filled.Snapshot == "" {
		err = api.Invalid("snapshot", "choose the snapshot to go back to")
	}
	if err == nil {
		_, err = p.svc.RestoreProfile(r.Context(), profile, api.ProfileRestore{
			SnapshotID: filled.Snapshot, Token: tokenSeen(r), Person: filled.Reviewer, Note: filled.Note,
		})
	}
	p.done(w, r, profile, filled, err)
}

// The directories with which a new home may begin, as the form names them.
const (
	withSnapshot = "snapshot"
	withLeft     = "left"
	withNothing  = "empty"
)

// rehome makes this launcher the home of a profile.
func (p *pages) rehome(w http.ResponseWriter, r *http.Request, profile string) {
	filled := filledIn(r)
	filled.Decision = ""
	req := api.ProfileRehome{Write: api.Write{Token: tokenSeen(r)}, Person: filled.Reviewer, Note: filled.Note, AcceptLoss: filled.AcceptLoss}
	err := named(filled.Reviewer)
	switch filled.Directory {
	case withSnapshot:
		req.Snapshot = filled.Snapshot
	case withLeft:
		req.Left = true
	case withNothing:
		req.Empty = true
	default:
		err = errors.Join(err, api.Invalid("directory", "choose what the new home begins with"))
	}
	if err == nil {
		_, err = p.svc.RehomeProfile(r.Context(), profile, req)
	}
	p.done(w, r, profile, filled, err)
}

// named refuses a request in which a person gave no name.
func named(person string) error {
	if strings.TrimSpace(person) == "" {
		return api.Invalid("reviewer", "want your name: it is noted with what you do")
	}
	return nil
}
