package console

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"leasehold/checkpoint"
	"leasehold/checkpoint/wording"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// unsentFacts are the facts about texts in fields that were not sent.
var unsentFacts = []string{table.SecretUnsent, table.InputUnsent}

// The bounds of a page's lists. What does not fit is in the parts of the evidence.
const (
	maxSince     = 10  // moments that are shown
	maxSinceAll  = 300 // moments that are folded away
	maxAgainst   = 3   // facts that are shown
	maxIncidents = 4   // earlier incidents that are shown
	maxFolded    = 50  // bundles, events and earlier incidents that are folded away
	maxTabs      = 24
	maxParts     = 150
)

// view is the data for the template of a profile's page.
type view struct {
	*dossier
	Query  string // query of every link: "?token=..." if the page was requested with it, else empty
	Policy string
	// State is the state in words; Reason is the record's.
	State    string
	InReview bool
	// Recovering says that the recovery is still going on.
	Recovering bool
	Lost       time.Time // zero: not known, or not lost
	Worker     string
	Task       string

	MayReview, MayHold, MayRestore, MayRehome bool
	Who                                       principal.Principal
	Form                                      form
	Problem                                   string // why the form was refused

	Primary *pageSeen
	Tabs    []pageSeen
	MoreTabs,
	MoreParts int

	Checkpoint *checkpoint.Entry // the last safe one; nil: there is none
	Since      []moment
	SinceAll   []moment // all moments, if Since does not have all
	SinceCut   int      // number of moments in neither of them
	Background []moment // requests that do not count, each once

	// Kinds are the unknown shapes of requests; KindsCut is how many more there are.
	Kinds    []kind
	KindsCut int
	// MayTeach says that the user may say what requests do.
	MayTeach bool

	// Place is the profile's place among those that wait for a person, from 1; 0: it does not.
	// Previous and Next are its neighbours; empty: there is none.
	Place          int
	Previous, Next string

	Against     []string
	AgainstMore []string

	Frames       []frame
	FramesCut    int
	Earlier      []incident
	EarlierMore  []incident
	EarlierCut   int
	Now          *incident // the open one
	OlderBundles []api.Bundle
	BundlesCut   int
	LastEvents   []lease.Event // newest first
	EventsCut    int
	Seen         []snapshotSeen // newest first
	SnapshotsCut int

	// ByHand is the living session of the person who has the profile, if it is on this host.
	// Mine says that the user may end it.
	ByHand *api.Session
	Mine   bool

	// Living is the session on this host whose page is shown now; nil: there is none.
	Living *api.Session

	// Asking is a living session on this host whose worker waits for a person; Taken is one
	// that a person took over; nil: there is none.
	Asking, Taken *api.Session
}

// form is what a person filled in.
type form struct {
	NotKnown                       bool // it was sent, and may have been done
	Decision, Reviewer, Note, Home string
	// Snapshot is the snapshot to restore; Directory is what a new home begins with.
	Snapshot, Directory string
	AcceptLoss          bool
}

// viewOf makes a profile's page. It is a pure function of what was gathered, of the user, and
// of what they filled in.
func viewOf(d *dossier, who principal.Principal, query string, filled form, problem string) *view {
	r := d.Record
	v := &view{
		dossier: d, Query: query, Who: who, Form: filled, Problem: problem,
		State: shownState(r), InReview: r.State == lease.ManualReview,
		Recovering: slices.Contains(recovering, r.State),
		Worker:     r.OwnerWorkerID, Task: r.TaskID,
		MayReview: who.May(principal.Review, r.ProfileID), MayHold: who.May(principal.Hold, r.ProfileID),
	}
	v.Kinds, v.MayTeach = kindsOf(d.Inspection.UnsafeRequests, d.Said, d.Counted), who.Everywhere(principal.Manage)
	if len(v.Kinds) > maxKinds {
		v.KindsCut, v.Kinds = len(v.Kinds)-maxKinds, v.Kinds[:maxKinds]
	}
	v.neighbours()
	v.people()
	v.pages()
	sum := checkpoint.Summarize(d.Journal)
	v.Checkpoint = sum.LastSafe
	v.story()
	v.against()
	v.incidents()
	v.places()
	v.lists()
	return v
}

// neighbours finds the profiles that wait for a person before and after this one, by name.
func (v *view) neighbours() {
	at, here := slices.BinarySearch(v.Reviews, v.Record.ProfileID)
	if at > 0 {
		v.Previous = v.Reviews[at-1]
	}
	if here {
		v.Place = at + 1
		at++
	}
	if at < len(v.Reviews) {
		v.Next = v.Reviews[at]
	}
}

// people finds the session of the person who has the profile, and the session whose worker
// waits for one.
func (v *view) people() {
	r := v.Record
	if r.State != lease.Held {
		return
	}
	for i, s := range v.Sessions {
		if !s.Ephemeral {
			v.Living = &v.Sessions[i] // the newest is the last
		}
	}
	if r.ByHand == nil {
		for i, s := range v.Sessions {
			if s.Ask != nil && (v.Asking == nil || v.Asking.Person != nil && s.Person == nil) {
				v.Asking, v.State = &v.Sessions[i], "asks for a person"
			}
			if s.Person != nil && v.Taken == nil {
				v.Taken = &v.Sessions[i]
			}
		}
		return
	}
	at := slices.IndexFunc(v.Sessions, func(s api.Session) bool { return s.SessionID == r.SessionID })
	if at >= 0 {
		v.ByHand = &v.Sessions[at]
		v.Mine = v.MayHold && v.Who.Is(v.ByHand.Principal) || v.Who.May(principal.UseAny, r.ProfileID)
	}
}

func (v *view) pages() {
	if len(v.Pages) == 0 {
		return
	}
	v.Primary, v.Tabs = &v.Pages[0], v.Pages[1:]
	if len(v.Tabs) > maxTabs {
		v.MoreTabs, v.Tabs = len(v.Tabs)-maxTabs, v.Tabs[:maxTabs]
	}
	if v.Bundle != nil && len(v.Bundle.Parts) > maxParts {
		b := *v.Bundle
		v.MoreParts, b.Parts = len(b.Parts)-maxParts, b.Parts[:maxParts]
		v.Bundle = &b
	}
}

// story shows the session: what the last safe checkpoint does not vouch for, and all of it as a
// filmstrip.
func (v *view) story() {
	v.Lost = lostAt(v.dossier)
	weigh := func(all []moment) []moment {
		page := v.Record.LastKnownURL
		if v.Primary != nil {
			page = v.Primary.URL
		}
		return within(page, weighed(all, v.Inspection.UnsafeRequests, v.InReview || v.Recovering))
	}
	all := weigh(momentsOf(v.Journal, v.Commands))
	open := since(all)
	if len(v.Journal) == 0 {
		open = weigh(keptOf(v.Inspection))
	}
	open, v.Background = quiet(runs(open))
	v.Background = v.Background[:min(len(v.Background), maxSinceAll)]
	v.Since = foremost(open, maxSince)
	if len(open) > len(v.Since) {
		v.SinceCut = max(0, len(open)-maxSinceAll)
		v.SinceAll = open[v.SinceCut:]
	}
	if v.Bundle == nil {
		return
	}
	var stills []still
	for _, p := range v.Bundle.Pictures {
		if p.Missing == "" {
			stills = append(stills, still{p.At, cmp.Or(p.Step, p.URL), &picture{EvidenceID: p.EvidenceID, Part: p.Part}})
		}
	}
	if v.Primary != nil && v.Primary.Picture != nil && !v.Primary.Picture.Large {
		stills = append(stills, still{v.Bundle.At, cmp.Or(v.Primary.Title, v.Primary.URL), v.Primary.Picture})
	}
	var states []lease.Event
	for _, e := range v.Events {
		if e.SessionID != "" && e.SessionID == v.Bundle.SessionID && e.Event != lease.EventExpired && e.Event != lease.EventConflict && e.Event != lease.EventLateWrite {
			states = append(states, e)
		}
	}
	v.Frames, v.FramesCut = filmstrip(all, stills, states, v.Lost)
}

// lostAt is when the worker of the bundle's session was lost: when its last connection broke,
// or else when that was noticed. It is zero for a session that ended in order.
func lostAt(d *dossier) time.Time {
	r := d.Record
	if d.Bundle == nil {
		return r.SuspectedAt
	}
	suspected := time.Time{}
	for _, e := range d.Events {
		if e.SessionID == d.Bundle.SessionID && e.State == lease.SuspectedStale {
			suspected = e.At
		}
	}
	for _, e := range slices.Backward(d.Journal) {
		if e.Kind == checkpoint.KindConnection && !suspected.IsZero() {
			if e.Name == "dropped" && e.At.Before(suspected) {
				return e.At
			}
			break
		}
	}
	return suspected
}

// against says what spoke against letting the profile go: according to the inspection or, if
// there is no inspection of this version here, to the record.
func (v *view) against() {
	var all []string
	for _, o := range v.Inspection.Against {
		all = append(all, o.Sentence)
	}
	if len(all) == 0 {
		all = v.Record.Reasons
	}
	v.Against = all[:min(len(all), maxAgainst)]
	v.AgainstMore = all[len(v.Against):]
}

// incidents splits the history into the open incident and the earlier ones, newest first.
func (v *view) incidents() {
	all := incidentsOf(v.Events)
	slices.Reverse(all)
	if len(all) > 0 && (all[0].Open || v.Bundle != nil && all[0].SessionID == v.Bundle.SessionID) {
		v.Now, all = &all[0], all[1:]
		v.Worker, v.Task = cmp.Or(v.Now.Worker, v.Worker), cmp.Or(v.Now.Task, v.Task)
	}
	v.Earlier, all = all[:min(len(all), maxIncidents)], all[min(len(all), maxIncidents):]
	v.EarlierMore = all[:min(len(all), maxFolded)]
	v.EarlierCut = len(all) - len(v.EarlierMore)
}

// lists bounds the lists that are folded away.
func (v *view) lists() {
	v.LastEvents = slices.Clone(v.Events)
	slices.Reverse(v.LastEvents)
	if len(v.LastEvents) > maxFolded {
		v.EventsCut, v.LastEvents = len(v.LastEvents)-maxFolded, v.LastEvents[:maxFolded]
	}
	for _, b := range v.Bundles {
		if v.Bundle == nil || b.EvidenceID != v.Bundle.EvidenceID {
			v.OlderBundles = append(v.OlderBundles, b)
		}
	}
	if len(v.OlderBundles) > maxFolded {
		v.BundlesCut, v.OlderBundles = len(v.OlderBundles)-maxFolded, v.OlderBundles[:maxFolded]
	}
}

// AlikeHref leads to the list of the profiles that wait for a person for this one's reason.
func (v *view) AlikeHref() string {
	query, _ := url.ParseQuery(strings.TrimPrefix(v.Query, "?")) // the page wrote it
	query.Set("state", string(lease.ManualReview))
	query.Set("q", v.Record.Reason)
	return withQuery("/", query)
}

// Settings are the profile's own, where they differ from the defaults.
func (v *view) Settings() []api.Setting { return api.SettingsShown(v.Record.Settings) }

// StateClass is the state for the style sheet.
func (v *view) StateClass() string {
	if v.Asking != nil {
		return classAsks
	}
	return string(v.Record.State)
}

// Stale says since when the store cannot be reached, and what that means for this page; empty:
// it can be reached.
func (v *view) Stale() string {
	if v.Record.StaleSince.IsZero() {
		return ""
	}
	return staleNote + " since " + v.Record.StaleSince.UTC().Format("15:04:05") + " UTC. This is the profile as this launcher saw it last; nothing can be decided until the store answers."
}

// Here names the page among those of the navigation: none of them.
func (v *view) Here() string { return "" }

// HomeNote says that the profile's home is gone, and what to do; empty: it is there.
func (v *view) HomeNote() string { return api.HomeNote(v.Record) }

// SignedInNote says whether the account is signed in; empty: that was never known.
func (v *view) SignedInNote() string { return api.SignedInNote(v.Record.Record) }

// MoveNote says how the profile came to its home; empty: it was always there.
func (v *view) MoveNote() string { return api.MoveNote(v.Record.Record) }

// Homes are the launchers of which one has to be named as the home; empty if the home is not in
// question.
func (v *view) Homes() []string {
	if v.Record.OtherHome == "" {
		return nil
	}
	return []string{v.Record.Home, v.Record.OtherHome}
}

// Src is the address of a part of a bundle.
func (v *view) Src(evidenceID, part string) string {
	return partPath(evidenceID, part) + v.Query
}

func partPath(evidenceID, part string) string {
	return "/v1/evidence/" + url.PathEscape(evidenceID) + "/" + url.PathEscape(part)
}

// The most characters of a text that are shown, in lists and elsewhere.
const (
	longestLine = 200
	longestText = 4000
)

// plain makes a text that may come from a hostile page fit to be shown: characters that are
// invisible, or change the direction of writing, are replaced by U+FFFD, and the text is cut to
// a bound.
func plain(text string) string { return cleaned(text, longestText) }

// short is plain for one line of a list; words does the same for a name of the outside
// contract.
func short(text string) string { return cleaned(text, longestLine) }
func words(name string) string { return cleaned(wording.Spaced(name), longestLine) }

// note is plain for a sentence of the console's own that contains such a text.
func note(text string) string { return cleaned(text, 2*longestLine) }

func cleaned(text string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(' ')
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			b.WriteRune(unicode.ReplacementChar)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// bytesOf is a size for people.
func bytesOf(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
