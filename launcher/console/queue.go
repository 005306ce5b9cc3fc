package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// waitingRow is a row of the queue. Its fields fill the slots of the template "waiting".
type waitingRow struct {
	ID string
	// For is what the request waits for; Href links to it, and About says more.
	For, Href, About string
	Worker, Task     string
	Position         string
	Priority         string
	Host             string
	Since            string // RFC 3339, UTC
	SinceText        string
}

// queueView is what the template of the queue shows.
type queueView struct {
	contents
	Query   string
	Waiting []waitingRow
	Blank   waitingRow
	Updates string
}

// Here names the page, for the navigation.
func (v queueView) Here() string { return "queue" }

// maxWaiting is how many requests are shown.
const maxWaiting = 500

func (p *pages) queueOf(ctx context.Context, query string) (queueView, error) {
	waiting, err := p.svc.Queue(ctx)
	if err != nil {
		return queueView{}, err
	}
	hosts, err := p.svc.Hosts(ctx)
	if err != nil {
		return queueView{}, err
	}
	return viewOfQueue(waiting, hosts, p.svc.Ready(ctx), query, mayRead(ctx), principal.Of(ctx)), nil
}

// viewOfQueue makes the page of the queue: it is a pure function of what was found. visible
// tells which profiles the user may read; others are not shown.
func viewOfQueue(waiting []api.Waiting, hosts api.Hosts, ready error, query string, visible func(string) bool, who principal.Principal) queueView {
	v := queueView{contents: newContents(hosts.Stale, ready), Query: query, Updates: "/queue/updates" + query}
	waiting = slices.DeleteFunc(slices.Clone(waiting), func(w api.Waiting) bool {
		own := w.Own && who.Is(w.Principal)
		return !own && !(w.ProfileID != "" && visible(w.ProfileID)) && !slices.ContainsFunc(w.Candidates, visible)
	})
	slices.SortStableFunc(waiting, func(a, b api.Waiting) int {
		return cmp.Or(a.Position-b.Position, cmp.Compare(a.Arrival, b.Arrival))
	})
	for _, w := range waiting[:min(len(waiting), maxWaiting)] {
		row := waitingRowOf(w, query)
		v.Waiting = append(v.Waiting, row)
		v.add(row.ID, row)
	}
	v.Texts["summary"] = counted(len(waiting), "request") + " in the queue"
	v.Texts["places"] = placesText(hosts.Items)
	v.Texts["none"] = ""
	switch {
	case len(waiting) == 0:
		v.Texts["none"] = "Nobody waits for a profile."
	case len(waiting) > maxWaiting:
		v.Texts["none"] = fmt.Sprintf("%d more are in /v1/queue.", len(waiting)-maxWaiting)
	}
	return v
}

func waitingRowOf(w api.Waiting, query string) waitingRow {
	row := waitingRow{
		ID:     fmt.Sprintf("%d %s %s %s", w.Arrival, w.LauncherID, w.WorkerID, w.TaskID),
		Worker: short(w.WorkerID), Task: short(w.TaskID), Position: strconv.Itoa(w.Position), Priority: strconv.Itoa(w.Priority), Host: short(w.LauncherID),
		Since: w.Since.UTC().Format(time.RFC3339), SinceText: w.Since.UTC().Format("2 Jan 15:04:05") + " UTC",
	}
	if w.ProfileID != "" {
		row.For, row.Href = w.ProfileID, "/console/"+url.PathEscape(w.ProfileID)+query
		return row
	}
	filter := url.Values{}
	if token, err := url.ParseQuery(trimmed(query)); err == nil && token.Get("token") != "" {
		filter.Set("token", token.Get("token"))
	}
	labels := w.Labels.Texts()
	if w.AccountID != "" {
		filter.Set("account_id", w.AccountID)
	}
	for _, label := range labels {
		filter.Add("label", label)
	}
	row.For = "any of " + counted(w.Profiles, "profile")
	row.Href = withQuery("/", filter)
	row.About = dotted(withWord("account", short(w.AccountID)), short(strings.Join(labels, ", ")))
	return row
}

// placesText says how many browsers run on all hosts that are present, and how many could.
func placesText(hosts []api.Host) string {
	here, places, browsers, warm, unbounded := 0, 0, 0, 0, 0
	for _, h := range hosts {
		if !h.Here || h.Presence.Host.MemoryTotal == 0 && h.Presence.Host.Places == 0 {
			continue // it is gone, or does not report places
		}
		here++
		places, browsers, warm = places+h.Presence.Host.Places, browsers+h.Presence.Host.Browsers, warm+h.Presence.Host.Warm
		if h.Presence.Host.Places == 0 {
			unbounded++
		}
	}
	switch {
	case here == 0:
		return "No host tells how many places it has."
	case unbounded > 0:
		return fmt.Sprintf("%s run on %s, %d of them warm; %s no limit.", counted(browsers, "browser"), counted(here, "host"), warm, has(unbounded))
	}
	return fmt.Sprintf("%d of %s on %s are taken, %d of them by warm browsers.", browsers, counted(places, "place"), counted(here, "host"), warm)
}

func has(hosts int) string {
	if hosts == 1 {
		return "1 host has"
	}
	return fmt.Sprintf("%d hosts have", hosts)
}

// showQueue sends the page of the queue.
func (p *pages) showQueue(w http.ResponseWriter, r *http.Request) {
	v, err := p.queueOf(r.Context(), tokenQuery(r))
	if err != nil {
		p.failList(w, r.URL.Query().Get("token"), err)
		return
	}
	p.send(w, p.queue, http.StatusOK, "queue.html", v)
}

// followQueue tells an open page of the queue what changes in it.
func (p *pages) followQueue(w http.ResponseWriter, r *http.Request) {
	p.follow(w, r, func(ctx context.Context) (contents, error) {
		v, err := p.queueOf(ctx, tokenQuery(r))
		return v.contents, err
	})
}
