package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// hostRow is a row of the page of hosts. Its fields fill the slots of the template "host".
type hostRow struct {
	ID        string
	Href      string // link to its profiles
	About     string // the host's name and address
	State     string // a class
	StateText string
	Why       string
	Places    string
	Warm      string
	Memory    string
	// BrowsersUsed and MemoryUsed are shares of what there is, from 0 to 1; empty: not told, or no limit.
	BrowsersUsed, MemoryUsed string
	Profiles                 string
	Waiting                  string // profiles that wait for a person
	Since                    string // RFC 3339, UTC: its last heartbeat
	SinceText                string
}

// sessionRow is a living session of this launcher.
type sessionRow struct {
	ID, Href, Profile, Worker, Task, State, StateText, Connections string
	Asks, Person                                                   string // what its worker needs a person for, and who has it
	Since                                                          time.Time
	Ephemeral                                                      bool
}

// sessionTexts are the states of sessions as the console names them.
var sessionTexts = map[string]string{"serving": "held", "recovering": "checking"}

// hostsView is what the template of the page of hosts shows.
type hostsView struct {
	contents
	Query    string
	Hosts    []hostRow
	Blank    hostRow
	Sessions []sessionRow
	Cut      int // number of sessions that are not shown
	Updates  string
}

// Here names the page, for the navigation.
func (v hostsView) Here() string { return "hosts" }

// maxSessions is how many sessions of this launcher are shown.
const maxSessions = 200

func (p *pages) hostsOf(ctx context.Context, query string, visible func(string) bool) (hostsView, error) {
	found, err := p.svc.Hosts(ctx)
	if err != nil {
		return hostsView{}, err
	}
	return viewOfHosts(found, p.svc.Sessions(), p.svc.Ready(ctx), query, visible), nil
}

// viewOfHosts makes the page of hosts: it is a pure function of what was found. visible tells
// whose sessions may be shown.
func viewOfHosts(found api.Hosts, sessions []api.Session, ready error, query string, visible func(string) bool) hostsView {
	v := hostsView{contents: newContents(found.Stale, ready), Query: query, Blank: hostRow{State: "available"}, Updates: "/hosts/updates" + query}
	here := 0
	for _, h := range found.Items {
		row := hostRowOf(h, query)
		v.Hosts = append(v.Hosts, row)
		v.add(row.ID, row)
		if h.Here {
			here++
		}
	}
	v.Texts["summary"] = fmt.Sprintf("%s, %d here", counted(len(found.Items), "host"), here)
	v.Texts["none"] = ""
	v.Texts["nats"] = "NATS answers this host. A host that is here renewed its presence there."
	if !found.Stale.IsZero() {
		v.Texts["nats"] = "NATS does not answer this host since " + found.Stale.UTC().Format("15:04:05") + " UTC. Which other hosts are here is not known."
	}
	shown := 0
	for _, s := range sessions {
		if !visible(s.ProfileID) {
			continue
		}
		if shown++; shown > maxSessions {
			v.Cut++
			continue
		}
		row := sessionRow{
			ID: s.SessionID, Href: "/console/" + url.PathEscape(s.ProfileID) + query, Profile: s.ProfileID, Worker: short(s.WorkerID), Task: short(s.TaskID),
			State: s.State, StateText: cmp.Or(sessionTexts[s.State], words(s.State)), Ephemeral: s.Ephemeral, Connections: strconv.Itoa(s.Connections), Since: s.AcquiredAt,
		}
		if s.Ask != nil {
			row.Asks = short(s.Ask.Reason)
		}
		if s.Person != nil {
			row.Person = short(s.Person.Name)
		}
		v.Sessions = append(v.Sessions, row)
	}
	return v
}

func hostRowOf(h api.Host, query string) hostRow {
	filter := url.Values{"host": {h.LauncherID}}
	if token, err := url.ParseQuery(trimmed(query)); err == nil && token.Get("token") != "" {
		filter.Set("token", token.Get("token"))
	}
	row := hostRow{
		ID: h.LauncherID, Href: withQuery("/", filter), About: dotted(short(h.Presence.Host.Name), short(h.AdvertiseURL)),
		Places: placesOf(h.Presence.Host), Warm: strconv.Itoa(h.Presence.Host.Warm), Memory: memoryOf(h.Presence.Host),
		BrowsersUsed: shareOf(uint64(max(h.Presence.Host.Browsers, 0)), uint64(max(h.Presence.Host.Places, 0))),
		MemoryUsed:   shareOf(h.Presence.Host.MemoryTotal-min(h.Presence.Host.MemoryAvailable, h.Presence.Host.MemoryTotal), h.Presence.Host.MemoryTotal),
	}
	switch {
	case h.Own:
		row.State, row.StateText, row.Why = "available", "this host", ""
	case h.Here:
		row.State, row.StateText = "available", "here"
	case h.Closed && h.ClosedBy == h.LauncherID:
		row.State, row.StateText = "ended", "has ended"
	case h.Closed:
		row.State, row.StateText, row.Why = "suspected_stale", "went silent", "noticed by "+short(h.ClosedBy)
	default:
		row.State, row.StateText, row.Why = "suspected_stale", "silent", "it did not renew its presence"
	}
	if h.Presence.Host.Waiting > 0 {
		row.Why = dotted(row.Why, counted(h.Presence.Host.Waiting, "request")+" in the queue")
	}
	total := 0
	for _, n := range h.States {
		total += n
	}
	row.Profiles = fmt.Sprintf("%d, %d held", total, h.States[lease.Held])
	if n := h.States[lease.ManualReview]; n > 0 {
		row.Waiting = fmt.Sprintf("%d waiting for a person", n)
	}
	if !h.HeartbeatAt.IsZero() && !h.Here {
		row.Since, row.SinceText = h.HeartbeatAt.UTC().Format(time.RFC3339), h.HeartbeatAt.UTC().Format("2 Jan 15:04")+" UTC"
	}
	return row
}

func trimmed(query string) string {
	if query == "" {
		return ""
	}
	return query[1:]
}

func placesOf(r lease.HostReport) string {
	switch {
	case r == lease.HostReport{}:
		return "not told"
	case r.Places == 0:
		return fmt.Sprintf("%d, no limit", r.Browsers)
	}
	return fmt.Sprintf("%d of %d", r.Browsers, r.Places)
}

func memoryOf(r lease.HostReport) string {
	if r.MemoryTotal == 0 {
		return "not told"
	}
	return fmt.Sprintf("%.1f of %.1f GiB free", gib(r.MemoryAvailable), gib(r.MemoryTotal))
}

// shareOf is used of total; empty if there is no total.
func shareOf(used, total uint64) string {
	if total == 0 {
		return ""
	}
	return strconv.FormatFloat(min(float64(used)/float64(total), 1), 'f', 2, 64)
}

func gib(n uint64) float64 { return float64(n) / (1 << 30) }

// mayRead tells which profiles the principal of ctx may read.
func mayRead(ctx context.Context) func(profileID string) bool {
	who := principal.Of(ctx)
	return func(profile string) bool { return who.May(principal.Read, profile) }
}

// showHosts sends the page of hosts.
func (p *pages) showHosts(w http.ResponseWriter, r *http.Request) {
	v, err := p.hostsOf(r.Context(), tokenQuery(r), mayRead(r.Context()))
	if err != nil {
		p.failList(w, r.URL.Query().Get("token"), err)
		return
	}
	p.send(w, p.hosts, http.StatusOK, "hosts.html", v)
}

// followHosts tells an open page of hosts what changes in it.
func (p *pages) followHosts(w http.ResponseWriter, r *http.Request) {
	p.follow(w, r, func(ctx context.Context) (contents, error) {
		v, err := p.hostsOf(ctx, tokenQuery(r), mayRead(ctx))
		return v.contents, err
	})
}
