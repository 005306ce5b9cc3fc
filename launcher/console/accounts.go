package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// accountRow is a row of the page of accounts. Its fields fill the slots of the template "account".
type accountRow struct {
	ID, Href string
	About    string // account and labels
	// State is a class, StateText says whether the account is signed in, and Why how that was found.
	State, StateText, Why string
	Since, SinceText      string // RFC 3339, UTC, and for people: since when it is, or is not
	Next, NextText        string // the same: when it is checked next
	NotNext               string // why no time is known for that
	Home                  string
	Proxy                 string // its name
	Made, MadeText        string // when the newest snapshot was made
	Snapshot              string // what it has
	// Use is what the profile is, unless it is free.
	Use, UseClass string
	// Do is the text of the link to where somebody mends what is wrong, and Check that of the button which
	// checks now. One of them at most is not empty.
	Do, DoHref, Check, CheckHref string
}

// accountsView is what the template of the page of accounts shows.
type accountsView struct {
	contents
	asked
	Query   string // query of links to other pages: the token
	Rows    []accountRow
	Blank   accountRow
	Chips   []chip
	Problem string
	Clear   string // link to all accounts
	pager
	Updates string // address at which the page follows changes
	Back    string // query by which a form finds back to this page
}

// Here names the page, for the navigation.
func (v accountsView) Here() string { return "accounts" }

// signedInChips are the values of the filter, and how they are named.
var signedInChips = []struct {
	value lease.SignedIn
	text  string
}{{lease.SignedInNo, "signed out"}, {lease.SignedInUnknown, "not known"}, {lease.SignedInYes, "signed in"}}

func askedOfAccounts(query url.Values) (asked, error) {
	return readAsked(query, "/accounts", api.SortSignedIn)
}

// accountsOf asks the service for a page of accounts, and makes what the template shows.
func (p *pages) accountsOf(ctx context.Context, a asked) (accountsView, error) {
	q := a.ProfileQuery
	q.Limit, q.Offset, q.Visible, q.WithAccounts = a.Size, (a.Page-1)*a.Size, mayRead(ctx), true
	found, err := p.svc.ListProfiles(ctx, q)
	if err != nil {
		return accountsView{}, err
	}
	return viewOfAccounts(a, found, p.svc.Ready(ctx), principal.Of(ctx), time.Now()), nil
}

// viewOfAccounts makes the page of accounts: it is a pure function of what was found, of the user, and
// of the time.
func viewOfAccounts(a asked, found api.ProfilePage, ready error, who principal.Principal, now time.Time) accountsView {
	v := accountsView{
		asked: a, contents: newContents(found.Stale, ready), Query: a.tokenQuery(), Blank: accountRow{State: "ended", UseClass: "ended"},
		Updates: withQuery("/accounts/updates", a.values()), Back: a.values().Encode(),
	}
	for _, r := range found.Items {
		row := accountRowOf(r, found.Accounts[r.ProfileID], v.Query, now)
		row.toDo(r, found.Accounts[r.ProfileID], found.Hands[r.ProfileID], who, v.Query)
		v.Rows = append(v.Rows, row)
		v.add(row.ID, row)
	}
	all := 0
	for _, n := range found.SignedIn {
		all += n
	}
	add := func(key, text string, n int, value lease.SignedIn) {
		v.Texts["count-"+key] = strconv.Itoa(n)
		v.Chips = append(v.Chips, chip{key, text, strconv.Itoa(n), v.with(func(a *asked) { a.SignedIn = value }).URL(), v.SignedIn == value, n == 0 && key != "all"})
	}
	add("all", "all", all, "")
	for _, c := range signedInChips {
		add(string(c.value), c.text, found.SignedIn[c.value], c.value)
	}
	v.Texts["range"], v.pager = a.pages(found.Total)
	v.Texts["summary"] = counted(all, "account") + ", " + strconv.Itoa(found.SignedIn[lease.SignedInNo]) + " signed out"
	v.Texts["none"] = a.none(len(v.Rows), found.Total, "account")
	v.Clear = a.clear()
	return v
}

func accountRowOf(r api.Profile, care api.AccountCare, query string, now time.Time) accountRow {
	row := accountRow{
		ID: r.ProfileID, Href: "/console/" + url.PathEscape(r.ProfileID) + query, About: dotted(append([]string{short(r.AccountID)}, r.Labels.Texts()...)...),
		State: "ended", StateText: "not known", Home: hostShown(r.Home), Proxy: withWord("proxy", short(r.ProxyID)), Snapshot: snapshotText(r),
	}
	if text := signedInText(r); text != "" {
		row.State, row.StateText = "available", text
	}
	switch {
	case r.SignedOut():
		row.State, row.Why = "suspected_stale", dotted(withWord("at", short(r.SignInAt)), short(r.SignedInHow))
	case !r.SignedInTriedAt.IsZero():
		row.Why = "the last check had no answer"
	case r.SignedIn != lease.SignedInYes:
		row.Why = short(r.SignedInHow)
	}
	row.Since, row.SinceText = timeTexts(r.SignedInSince)
	switch next := care.NextCheck; {
	case api.StateShown(r.Record) != string(r.State): // it was archived or removed
	case api.HomeNote(r) != "":
		row.NotNext = "when its home is back"
	case care.Gone:
		row.NotNext = "when it has a directory"
	case !care.Asked:
		row.NotNext = "never: no site is asked"
	case next.IsZero() && r.State == lease.Available:
		row.NotNext = "after its next session"
	case next.IsZero():
		row.NotNext = "when it is free"
	case !next.After(now):
		row.NotNext = "due now"
	default:
		row.Next, row.NextText = timeTexts(next)
	}
	row.Made, row.MadeText = timeTexts(id.Made(r.SnapshotID))
	return row
}

// timeTexts is a time for a program and for people; empty if there is none.
func timeTexts(t time.Time) (stamp, text string) {
	if t.IsZero() {
		return "", ""
	}
	return t.UTC().Format(time.RFC3339), t.UTC().Format("2 Jan 15:04") + " UTC"
}

// snapshotText says what a profile's newest snapshot has.
func snapshotText(r api.Profile) string {
	if r.SnapshotID == "" {
		return "none"
	}
	account := "not known if signed in"
	switch {
	case r.SnapshotSignedOut && r.SignedInSnapshotID != "":
		account = "signed out; an older one is signed in"
	case r.SnapshotSignedOut:
		account = "signed out"
	case r.SignedInSnapshotID == r.SnapshotID:
		account = "signed in"
	}
	if !r.HasSnapshot() {
		return dotted(account, "used since")
	}
	return account
}

// toDo says what the profile is, and the one thing that this user can do about it.
func (row *accountRow) toDo(r api.Profile, care api.AccountCare, hands api.InHands, who principal.Principal, query string) {
	if r.State != lease.Available || api.StateShown(r.Record) != string(r.State) {
		row.Use, row.UseClass = shownState(r), string(r.State)
	}
	may := func(right principal.Right) bool { return who.May(right, r.ProfileID) }
	page := "/console/" + url.PathEscape(r.ProfileID)
	link := func(text, path, at string) { row.Do, row.DoHref = text, page+path+query+at }
	switch {
	case api.StateShown(r.Record) != string(r.State): // it was archived or removed
		row.UseClass = "ended"
	case api.HomeNote(r) != "":
		row.Use, row.UseClass = "its home is gone", string(lease.ManualReview)
		if may(principal.Review) {
			link("Give it a home", "", "#rehome")
		}
	case hands.Ask != nil && hands.Person == nil:
		row.Use, row.UseClass = "asks for a person", classAsks
		if may(principal.TakeOver) {
			row.Do, row.DoHref = "Take over", liveOf(r.ProfileID, query, hands.SessionID)
		}
	case r.State == lease.ManualReview:
		if may(principal.Review) {
			link("Decide", "", "#choice")
		}
	case r.State != lease.Available:
	case care.Gone:
		row.Use, row.UseClass = "its directory is gone", string(lease.ManualReview)
		if may(principal.Manage) && r.SnapshotID != "" {
			link("Restore", "", "#lives")
		}
	case r.SignedOut():
		if may(principal.Hold) {
			link("Sign in", "", "#by-hand")
		}
	case care.Asked && may(principal.Hold):
		row.Check, row.CheckHref = "Check now", page+"/check"+query
	}
}

// showAccounts sends the page of accounts.
func (p *pages) showAccounts(w http.ResponseWriter, r *http.Request) {
	a, wrong := askedOfAccounts(r.URL.Query())
	status, problem := http.StatusOK, ""
	if wrong != nil {
		status, problem = http.StatusBadRequest, "That cannot be asked for, so that all accounts are shown: "+reason(wrong)+"."
	}
	p.sendAccounts(w, r, a, status, problem)
}

func (p *pages) sendAccounts(w http.ResponseWriter, r *http.Request, a asked, status int, problem string) {
	v, err := p.accountsOf(r.Context(), a)
	if err != nil {
		p.failList(w, a.token, err)
		return
	}
	v.Problem = problem
	p.send(w, p.accounts, status, "accounts.html", v)
}

// followAccounts tells an open page of accounts what changes in it.
func (p *pages) followAccounts(w http.ResponseWriter, r *http.Request) {
	a, _ := askedOfAccounts(r.URL.Query()) // the page itself has said what is wrong
	p.follow(w, r, func(ctx context.Context) (contents, error) {
		v, err := p.accountsOf(ctx, a)
		return v.contents, err
	})
}

// check asks the sites of a profile whether its account is signed in, and leads back to the page of
// accounts as the form had it.
func (p *pages) check(w http.ResponseWriter, r *http.Request, profile string) {
	back, _ := url.ParseQuery(r.PostForm.Get("back")) // what cannot be read leads to all accounts
	back.Del("token")
	if token := r.URL.Query().Get("token"); token != "" {
		back.Set("token", token)
	}
	a, _ := askedOfAccounts(back)
	_, err := p.svc.CheckProfile(r.Context(), profile)
	if err == nil {
		http.Redirect(w, r, a.URL(), http.StatusSeeOther)
		return
	}
	status := http.StatusInternalServerError
	if problem := (*api.Problem)(nil); errors.As(err, &problem) {
		status = problem.Status
	} else {
		p.log.Error().Err(err).Str("profile", profile).Msg("the account could not be checked")
	}
	p.sendAccounts(w, r, a, status, profile+" was not checked: "+reason(err)+".")
}
