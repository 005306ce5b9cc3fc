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
	"leasehold/launcher/catalog"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// Sizes of a page of the list.
var pageSizes = []int{25, 50, 100, 200}

// usualSize is how many profiles are on a page if nobody says.
const usualSize = 50

// asked is what a person asks of a list of profiles. The query of the page's URL contains all of it.
type asked struct {
	api.ProfileQuery
	// path is that of the page, and usualSort its order if nobody says.
	path, usualSort string
	Page            int // from 1 on
	Size            int
	// token is the API token, if the page was opened with one.
	token string
}

// askedOfList reads the query of the list of profiles.
func askedOfList(r *http.Request) (asked, error) {
	return readAsked(r.URL.Query(), "/", api.SortAttention)
}

// readAsked reads the query of a list. Invalid parts are left out, and named in the error.
func readAsked(query url.Values, path, usualSort string) (asked, error) {
	a := asked{path: path, usualSort: usualSort, Page: 1, Size: usualSize, token: query.Get("token")}
	q, err := api.ParseProfileQuery(query)
	if err != nil {
		q = api.ProfileQuery{}
	}
	a.ProfileQuery = q
	a.Sort = cmp.Or(a.Sort, a.usualSort)
	if n, failed := strconv.Atoi(query.Get("page")); failed == nil && n > 1 {
		a.Page = min(n, 1_000_000)
	}
	if n, failed := strconv.Atoi(query.Get("size")); failed == nil && slices.Contains(pageSizes, n) {
		a.Size = n
	}
	return a, err
}

// URL is the URL of the list for this query.
func (a asked) URL() string { return withQuery(a.path, a.values()) }

func (a asked) values() url.Values {
	query := a.Filters()
	if a.Sort == a.usualSort {
		query.Del("sort")
	}
	if a.Page > 1 {
		query.Set("page", strconv.Itoa(a.Page))
	}
	if a.Size != usualSize {
		query.Set("size", strconv.Itoa(a.Size))
	}
	if a.token != "" {
		query.Set("token", a.token)
	}
	return query
}

func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// with returns the query after one change, at the first page.
func (a asked) with(change func(*asked)) asked {
	a.Page = 1
	change(&a)
	return a
}

// Token is the API token that links and forms have to carry.
func (a asked) Token() string { return a.token }

// clear is the address of the whole list, in the same order.
func (a asked) clear() string {
	return a.with(func(a *asked) { a.ProfileQuery = api.ProfileQuery{Sort: a.Sort} }).URL()
}

// none says why a page of a list shows nothing, where that is so. what is one of what it lists.
func (a asked) none(shown, total int, what string) string {
	switch {
	case shown > 0:
		return ""
	case total > 0:
		return "There is no such page any more."
	case a.Narrowed() || len(a.States) > 0:
		return "No " + what + " matches."
	}
	return "No profiles yet."
}

// tokenQuery is the query that links to other pages need.
func (a asked) tokenQuery() string {
	if a.token == "" {
		return ""
	}
	return "?token=" + url.QueryEscape(a.token)
}

// Narrowed tells whether some profiles are left out, other than by their state.
func (a asked) Narrowed() bool {
	return a.Words != "" || a.Further()
}

// Further tells whether one of the additional filters is used.
func (a asked) Further() bool {
	return a.AccountID != "" || a.WorkerID != "" || a.TaskID != "" || a.Host != "" || a.ProfileQuery.URL != "" || a.Free != nil || a.SignedIn != ""
}

// listRow is a row of the list. Its fields fill the slots of the template "row".
type listRow struct {
	ID        string
	Href      string
	About     string // account and proxy
	State     string
	StateText string
	Why       string
	Token     string
	Worker    string
	Task      string
	LastURL   string
	Step      string
	Home      string
	SignedIn  string
	Since     string // RFC 3339, UTC
	SinceText string
	// Until is when a worker that asks for a person is told that nobody came; RFC 3339, UTC.
	Until, UntilText string
	// Picture is the address of the page as it was, of a profile in review; empty: the user may not
	// see it, or there is none.
	Picture string
	// Take is the text of the link to take its session over, TakeHref; empty: the user may not.
	Take, TakeHref string
}

// chip is a link to the profiles in one state.
type chip struct {
	Key, Text, Count, Href string
	Current                bool
	None                   bool // no profile has the state
}

// column is a heading by which the list can be sorted.
type column struct {
	Text, Href, Class string
	Sorted            string // ascending, descending, or empty
}

// listView is what the template of the list shows.
type listView struct {
	contents
	asked
	Query   string // query of links to other pages: the token
	Rows    []listRow
	Blank   listRow // template for rows that the script makes
	Chips   []chip
	Columns []column
	Sizes   []int
	Sorts   []string
	Problem string
	Clear   string // link to all profiles
	Alike   string // link to the page on which reviews are decided together; empty: these are no reviews
	pager
	Updates string // address at which the page follows changes
}

// FreeText is the value of the filter for free profiles.
func (v listView) FreeText() string {
	if v.Free == nil {
		return ""
	}
	return strconv.FormatBool(*v.Free)
}

// sortNames are the orders in words.
var sortNames = map[string]string{
	api.SortAttention: "what waits for a person first", api.SortName: "name", api.SortAccount: "account",
	api.SortHost: "host", api.SortWorker: "worker", api.SortChanged: "last change first", api.SortSignedIn: "accounts that need somebody first",
}

// PlainSort is the order without its direction.
func (v listView) PlainSort() string { return strings.TrimPrefix(v.Sort, "-") }

// SignedIns are the values of the filter.
func (v listView) SignedIns() []lease.SignedIn { return api.SignedIns }

// Here names the page, for the navigation.
func (v listView) Here() string { return "profiles" }

// SortName is an order in words.
func (v listView) SortName(sort string) string { return sortNames[sort] }

// listOf asks the service for a page of the list, and makes what the template shows.
func (p *pages) listOf(ctx context.Context, a asked) (listView, error) {
	q := a.ProfileQuery
	q.Limit, q.Offset = a.Size, (a.Page-1)*a.Size
	q.Visible = mayRead(ctx)
	found, err := p.svc.ListProfiles(ctx, q)
	if err != nil {
		return listView{}, err
	}
	who := principal.Of(ctx)
	return viewOfList(a, found, p.svc.Ready(ctx), who), nil
}

// viewOfList makes the page of the list: it is a pure function of what was found, and of the user.
func viewOfList(a asked, found api.ProfilePage, ready error, who principal.Principal) listView {
	v := listView{asked: a, contents: newContents(found.Stale, ready), Sizes: pageSizes, Sorts: api.Sorts, Blank: listRow{State: "available"}, Query: a.tokenQuery()}
	for _, r := range found.Items {
		hands := found.Hands[r.ProfileID]
		row := rowOf(r, hands, v.Query)
		if r.State == lease.ManualReview && r.EvidenceID != "" && who.May(principal.Evidence, r.ProfileID) {
			row.Picture = "/console/" + url.PathEscape(r.ProfileID) + "/picture" + v.Query
		}
		if hands.Ask != nil && hands.Person == nil && who.May(principal.TakeOver, r.ProfileID) {
			row.Take, row.TakeHref = "Take over", liveOf(r.ProfileID, v.Query, hands.SessionID)
		}
		v.Rows = append(v.Rows, row)
		v.add(row.ID, row)
	}
	all := 0
	for _, n := range found.States {
		all += n
	}
	v.chips(found.States, all)
	v.columns()
	v.Texts["range"], v.pager = a.pages(found.Total)
	waiting := found.States[lease.ManualReview] + found.Asking
	v.Texts["waiting"] = ""
	if waiting > 0 {
		v.Texts["waiting"] = strconv.Itoa(waiting)
	}
	v.Texts["summary"] = fmt.Sprintf("%s, %d held", counted(all, "profile"), found.States[lease.Held])
	// One does not include the other: the count of the state leaves out profiles whose worker
	// asks for a person.
	if n := found.States[lease.ManualReview]; n > 0 {
		v.Texts["summary"] += fmt.Sprintf(", %d waiting for a person", n)
	}
	if found.Asking > 0 {
		v.Texts["summary"] += fmt.Sprintf(", %d asking for a person", found.Asking)
	}
	v.Texts["none"] = a.none(len(v.Rows), found.Total, "profile")
	v.Clear = a.clear()
	v.Updates = withQuery("/updates", a.values())
	if slices.Equal(a.States, []lease.State{lease.ManualReview}) {
		v.Alike = "/reviews" + v.Query
	}
	return v
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// recovering are the states of a recovery that is at work. Each lasts seconds, and the console names
// them as one.
var recovering = []lease.State{lease.SuspectedStale, lease.Quarantined, lease.Inspected}

// stateTexts are the states as the console names them.
var stateTexts = map[lease.State]string{
	lease.ManualReview: "waits for a person", lease.ResumePending: "reserved for its task",
	lease.SuspectedStale: "checking", lease.Quarantined: "checking", lease.Inspected: "checking",
}

// classAsks is the class of what waits for a person for minutes, since its worker asks for one.
const classAsks = "asks"

func stateText(s lease.State) string { return cmp.Or(stateTexts[s], words(string(s))) }

// shownState is what a profile is, for people.
func shownState(r api.Profile) string {
	switch {
	case r.State == lease.Held && r.ByHand != nil:
		return "held by hand"
	case r.State == lease.ResumePending && r.TaskID != "":
		return "reserved for " + short(r.TaskID)
	case api.StateShown(r.Record) != string(r.State):
		return words(api.StateShown(r.Record))
	}
	return stateText(r.State)
}

func rowOf(r api.Profile, hands api.InHands, query string) listRow {
	row := listRow{
		ID: r.ProfileID, Href: "/console/" + url.PathEscape(r.ProfileID) + query, State: string(r.State), StateText: shownState(r),
		About: dotted(append([]string{short(r.AccountID), short(r.ProxyID)}, r.Labels.Texts()...)...), Token: strconv.FormatUint(uint64(r.Token), 10),
		Worker: short(r.OwnerWorkerID), Task: short(r.TaskID), LastURL: short(r.LastKnownURL), Step: short(r.LastKnownStep), Home: hostShown(r.Home), SignedIn: signedInText(r),
	}
	switch {
	case r.State == lease.Held && r.ByHand != nil:
		row.Worker, row.Task = short(r.ByHand.Holder), short(r.ByHand.Note)
	case r.State == lease.Held:
	case slices.Contains(recovering, r.State):
		row.Why = dotted(words(string(r.State)), words(r.Reason))
	case !r.WarmSince.IsZero():
		row.Why = dotted(words(r.Reason), "browser is warm")
	case api.StateShown(r.Record) != string(r.State):
	default:
		row.Why = words(r.Reason)
	}
	if r.SignedOut() { // narrow windows have no column for it
		row.Why = dotted(signedInText(r), row.Why)
	}
	since := catalog.Since(r.Record)
	switch {
	case hands.Ask != nil:
		row.State, row.StateText, row.Why, since = classAsks, "asks for a person", short(hands.Ask.Reason), hands.Ask.At
		row.Until, row.UntilText = hands.Ask.Until.UTC().Format(time.RFC3339), "until "+hands.Ask.Until.UTC().Format("15:04:05")+" UTC"
	case hands.Person != nil && r.ByHand == nil:
		row.StateText, row.Why, since = "a person has it", short(hands.Person.Name), hands.Person.Since
	}
	if !since.IsZero() {
		row.Since, row.SinceText = since.UTC().Format(time.RFC3339), since.UTC().Format("2 Jan 15:04")+" UTC"
	}
	return row
}

// signedInText says whether the account is signed in; empty: that is not known.
func signedInText(r api.Profile) string {
	switch {
	case r.AnotherAccount:
		return "another account"
	case r.SignedOut():
		return "signed out"
	case r.SignedIn == lease.SignedInYes:
		return "signed in"
	}
	return ""
}

// longestHost is the longest name of a launcher that a list shows whole, in bytes.
const longestHost = 20

// hostShown is the name of a launcher, short enough for a column: of a generated one the end tells it
// from others.
func hostShown(id string) string {
	if len(id) <= longestHost {
		return short(id)
	}
	return "…" + short(id[len(id)-6:])
}

// dotted joins the texts that are not empty.
func dotted(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), " · ")
}

// chips are the counts of each state, with links to the profiles.
func (v *listView) chips(states map[lease.State]int, all int) {
	add := func(key, text string, n int, current bool, change func(*asked)) {
		v.Texts["count-"+key] = strconv.Itoa(n)
		v.Chips = append(v.Chips, chip{key, text, strconv.Itoa(n), v.with(change).URL(), current, n == 0 && key != "all"})
	}
	add("all", "all", all, len(v.States) == 0, func(a *asked) { a.States = nil })
	checking := 0
	for _, s := range recovering {
		checking += states[s]
	}
	for _, s := range api.States {
		switch {
		case s == recovering[0]:
			add("checking", stateText(s), checking, slices.Equal(v.States, recovering), func(a *asked) { a.States = recovering })
			continue
		case slices.Contains(recovering, s):
			continue
		}
		add(string(s), stateText(s), states[s], slices.Contains(v.States, s), func(a *asked) { a.States = []lease.State{s} })
	}
}

// columns are the headings of the table, which sort.
func (v *listView) columns() {
	for _, c := range []struct{ text, sort, class string }{
		{"Profile", api.SortName, ""}, {"State", api.SortAttention, ""}, {"Since", api.SortChanged, "mid"}, {"Worker and task", api.SortWorker, "own"},
		{"Last URL and step", "", "wide"}, {"Account", "", "mid"}, {"Host", api.SortHost, "mid"}, {"Token", "", "num wide"},
	} {
		col := column{Text: c.text, Class: c.class}
		if c.sort != "" {
			next := c.sort
			switch v.Sort {
			case c.sort:
				col.Sorted, next = "ascending", "-"+c.sort
			case "-" + c.sort:
				col.Sorted = "descending"
			}
			col.Href = v.with(func(a *asked) { a.Sort = next }).URL()
		}
		v.Columns = append(v.Columns, col)
	}
}

// pager are the links from a page of a list to the one before and the one after it; empty if there
// is no such page.
type pager struct{ Previous, Next string }

// pages says which part of a list of so many profiles this page shows, and links to the others.
func (a asked) pages(total int) (shown string, links pager) {
	last := max(1, (total+a.Size-1)/a.Size)
	from := (a.Page - 1) * a.Size
	shown = fmt.Sprintf("0 of %d", total)
	if from < total {
		shown = fmt.Sprintf("%d to %d of %d", from+1, min(from+a.Size, total), total)
	}
	to := func(n int) string {
		b := a
		b.Page = n
		return b.URL()
	}
	if a.Page > 1 {
		links.Previous = to(min(a.Page-1, last))
	}
	if a.Page < last {
		links.Next = to(a.Page + 1)
	}
	return shown, links
}

// showList sends the list.
func (p *pages) showList(w http.ResponseWriter, r *http.Request) {
	a, wrong := askedOfList(r)
	status := http.StatusOK
	v, err := p.listOf(r.Context(), a)
	if err != nil {
		p.failList(w, a.token, err)
		return
	}
	if wrong != nil {
		status, v.Problem = http.StatusBadRequest, "That cannot be asked for, so that all profiles are shown: "+reason(wrong)+"."
	}
	p.send(w, p.list, status, "list.html", v)
}

// failList sends a page that says why the list cannot be shown.
func (p *pages) failList(w http.ResponseWriter, token string, err error) {
	status := http.StatusInternalServerError
	if problem, ok := problemOf(err); ok {
		status = problem.Status
	} else {
		p.log.Error().Err(err).Msg("the list cannot be made")
	}
	query := ""
	if token != "" {
		query = "?token=" + url.QueryEscape(token)
	}
	p.send(w, p.list, status, "no-list", map[string]string{"Why": reason(err), "Query": query, "Here": ""})
}

// followList tells an open list what changes in it.
func (p *pages) followList(w http.ResponseWriter, r *http.Request) {
	a, _ := askedOfList(r) // the page itself has said what is wrong
	p.follow(w, r, func(ctx context.Context) (contents, error) {
		v, err := p.listOf(ctx, a)
		return v.contents, err
	})
}
