// Package console has the pages on which people see the profiles, and decide about those in
// manual review: the list of all profiles, and a page for each.
//
// What is shown (URLs, titles, steps) comes from pages that may be hostile. The templates
// escape it, deceptive characters are replaced (plain), and no URL of a page becomes a link.
// The Content-Security-Policy allows only each page's own style and script, by their hashes,
// and pictures and answers of the same origin.
//
// The pages are made on the server and need no script: their forms are sent to it. With a
// script, lists are updated by themselves (live). The script of a profile's page shows times in
// the person's time zone, remembers the reviewer's name, and says when the profile has changed.
package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

//go:embed pages
var files embed.FS

func file(name string) string {
	b, err := files.ReadFile("pages/" + name)
	if err != nil {
		panic(err) // it is an embedded file
	}
	return string(b)
}

// mark is the product's sign, in the header and as the icon of each page.
var mark = template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(file("mark.svg"))))

// sheet is one document: its template, and the style and the script that it contains.
type sheet struct {
	template      *template.Template
	style, script string
	policy        string
}

// withView is the argument of a template that another one uses: one item, and the view that
// makes links.
type withView struct {
	View *view
	It   any
}

// newSheet parses the page called name, with the style and the script called with. images are
// the sources from which its policy allows images.
func newSheet(name, with, images string) sheet {
	s := sheet{style: file("base.css") + file(with+".css"), script: file(with + ".js")}
	s.template = template.Must(template.New(name+".html").Funcs(template.FuncMap{
		"plain": plain, "short": short, "words": words, "note": note, "bytes": bytesOf, "isZero": time.Time.IsZero,
		"size":   func(n uint64) string { return bytesOf(int64(min(n, 1<<62))) },
		"args":   func(v *view, it any) withView { return withView{v, it} },
		"mark":   func() template.URL { return mark },
		"style":  func() template.CSS { return template.CSS(s.style) },
		"script": func() template.JS { return template.JS(s.script) },
	}).ParseFS(files, "pages/"+name+".html", "pages/parts.html", "pages/top.html", "pages/exports.html", "pages/travel.html"))
	s.policy = strings.Join([]string{
		"default-src 'none'",
		"style-src " + hashOf(s.style),
		"script-src " + hashOf(s.script),
		"connect-src 'self'",
		"img-src " + images,
		"base-uri 'none'",
		"form-action 'self'",
		"frame-ancestors 'none'",
		"require-trusted-types-for 'script'",
		"trusted-types 'none'",
	}, "; ")
	return s
}

// hashOf returns the source expression of a Content-Security-Policy that allows exactly
// this inline text.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// pages serves the console.
type pages struct {
	svc api.Service
	log zerolog.Logger
	list, accounts, hosts, queue,
	profile, reviews, site, watch, signIn sheet
	following chan struct{} // holds one element for each page that follows changes
}

// Handler serves the console's pages. The caller has checked who the user is and what they may
// do, and says in Request.Pattern and in the path values "profile", "site", "link" and "session" which
// page it is. If the
// server asks for an API token, the pages are opened with ?token=TOKEN, and send it with each
// of their requests.
func Handler(svc api.Service, log zerolog.Logger) http.Handler {
	return &pages{
		svc: svc, log: log, following: make(chan struct{}, maxOpen),
		list: newSheet("list", "list", "'self' data:"), accounts: newSheet("accounts", "list", "data:"), hosts: newSheet("hosts", "list", "data:"), queue: newSheet("queue", "list", "data:"), profile: newSheet("profile", "profile", "'self' data:"),
		reviews: newSheet("reviews", "profile", "data:"), site: newSheet("site", "profile", "data:"),
		watch: newSheet("live", "live", "data:"), signIn: newSheet("signin", "signin", "data:"),
	}
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	profile := r.PathValue("profile")
	switch r.Pattern {
	case "GET /console/{profile}":
		p.show(w, r, profile, http.StatusOK, form{}, "")
	case "GET /console/{profile}/review", "GET /console/{profile}/hold", "GET /console/{profile}/check", "GET /console/{profile}/hand-back",
		"GET /console/{profile}/restore", "GET /console/{profile}/rehome", "GET /console/{profile}/teach":
		http.Redirect(w, r, pathOf(profile)+tokenQuery(r), http.StatusSeeOther)
	case "GET /console/{profile}/live":
		p.live(w, r, profile)
	case "GET /sign-in/{link}":
		p.showSignIn(w, r)
	case "GET /console/{profile}/picture":
		p.picture(w, r, profile)
	case "POST /console/{profile}/review":
		p.review(w, r, profile)
	case "POST /console/{profile}/hold":
		p.hold(w, r, profile)
	case "POST /console/{profile}/check":
		p.check(w, r, profile)
	case "POST /console/{profile}/hand-back":
		p.handBack(w, r, profile)
	case "POST /console/{profile}/restore":
		p.restore(w, r, profile)
	case "POST /console/{profile}/rehome":
		p.rehome(w, r, profile)
	case "POST /console/{profile}/teach":
		p.teach(w, r, profile)
	case "GET /sites/{site}":
		p.showSite(w, r, r.PathValue("site"))
	case "GET /updates":
		p.followList(w, r)
	case "GET /accounts":
		p.showAccounts(w, r)
	case "GET /accounts/updates":
		p.followAccounts(w, r)
	case "GET /reviews":
		p.showReviews(w, r)
	case "POST /reviews":
		p.decide(w, r)
	case "GET /hosts":
		p.showHosts(w, r)
	case "GET /hosts/updates":
		p.followHosts(w, r)
	case "GET /queue":
		p.showQueue(w, r)
	case "GET /queue/updates":
		p.followQueue(w, r)
	default:
		p.showList(w, r)
	}
}

// show sends a profile's page.
func (p *pages) show(w http.ResponseWriter, r *http.Request, profile string, status int, filled form, problem string) {
	d, err := gather(r.Context(), p.svc, profile)
	if err != nil {
		p.fail(w, r, profile, err)
		return
	}
	p.send(w, p.profile, status, "profile.html", viewOf(d, principal.Of(r.Context()), tokenQuery(r), filled, problem))
}

// picture leads to the picture of the page as it was, of the profile's last session.
func (p *pages) picture(w http.ResponseWriter, r *http.Request, profile string) {
	at, err := primaryPicture(r.Context(), p.svc, profile)
	if err != nil {
		p.fail(w, r, profile, err)
		return
	}
	http.Redirect(w, r, partPath(at.EvidenceID, at.Part)+tokenQuery(r), http.StatusSeeOther)
}

// fail sends a page that says why the profile's page cannot be shown.
func (p *pages) fail(w http.ResponseWriter, r *http.Request, profile string, err error) {
	status := http.StatusInternalServerError
	if problem := (*api.Problem)(nil); errors.As(err, &problem) {
		status = problem.Status
	} else {
		p.log.Error().Err(err).Str("profile", profile).Msg("page cannot be made")
	}
	p.send(w, p.profile, status, "failed", map[string]string{"Profile": profile, "Why": reason(err), "Query": tokenQuery(r), "Here": ""})
}

// Refused is the page for a person who is refused one of the others. Who is not known may show a
// token there. No cookie keeps it: a browser would send that to every other port of this host.
func Refused(log zerolog.Logger) func(w http.ResponseWriter, r *http.Request, problem *api.Problem) {
	p, page := &pages{log: log}, newSheet("list", "list", "data:")
	return func(w http.ResponseWriter, r *http.Request, problem *api.Problem) {
		query := r.URL.Query()
		query.Del("token")
		v := refusal{Why: problem.Detail, Path: r.URL.Path, Others: query}
		if r.Method != http.MethodGet {
			v.Path, v.Others = "/", nil
		}
		p.send(w, page, problem.Status, "refused", v)
	}
}

// refusal is what the page for who is refused shows: why, and what the form asks for, but for the
// token.
type refusal struct {
	Why, Path string
	Others    url.Values
}

// send writes a document after all of it was made.
func (p *pages) send(w http.ResponseWriter, s sheet, status int, name string, data any) {
	var body bytes.Buffer
	if err := s.template.ExecuteTemplate(&body, name, data); err != nil {
		p.log.Error().Err(err).Str("page", name).Msg("page cannot be made")
		http.Error(w, "the page cannot be made: the launcher's log says why", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", s.policy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	h.Set("Cache-Control", "no-store")
	// A browser says where a form comes from only if it may tell its own origin.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // a client that has left needs no page
}

// pathOf is the path of a profile's page.
func pathOf(profile string) string { return "/console/" + url.PathEscape(profile) }

// tokenQuery is the query that the links of a page need: the API token, if it came in the
// query.
func tokenQuery(r *http.Request) string {
	if token := r.URL.Query().Get("token"); token != "" {
		return "?token=" + url.QueryEscape(token)
	}
	return ""
}

// review takes in a person's decision.
func (p *pages) review(w http.ResponseWriter, r *http.Request, profile string) {
	filled := filledIn(r)
	if filled.Decision != lease.ReviewApprove && filled.Decision != lease.ReviewKeep {
		p.show(w, r, profile, http.StatusBadRequest, filled, "Choose what is to happen: approve, or keep in review.")
		return
	}
	sequence, _ := strconv.ParseUint(r.PostForm.Get("sequence"), 10, 64) // a page of before an upgrade had none
	req := api.ReviewRequest{
		Write: api.Write{Token: tokenSeen(r)}, Decision: filled.Decision, Reviewer: filled.Reviewer, Note: filled.Note,
		EvidenceID: r.PostForm.Get("evidence_id"), Sequence: sequence,
	}
	if filled.Decision == lease.ReviewApprove {
		req.Home = filled.Home
	}
	_, err := p.svc.Review(r.Context(), profile, req)
	p.done(w, r, profile, filled, err)
}

// hold gives the profile to a person.
func (p *pages) hold(w http.ResponseWriter, r *http.Request, profile string) {
	filled := filledIn(r)
	filled.Decision = ""
	_, err := p.svc.Hold(r.Context(), profile, api.HoldRequest{Write: api.Write{Token: tokenSeen(r)}, Holder: filled.Reviewer, Note: filled.Note})
	p.done(w, r, profile, filled, err)
}

// teach says for the whole site what requests of one shape do.
func (p *pages) teach(w http.ResponseWriter, r *http.Request, profile string) {
	_, err := p.svc.TeachSite(r.Context(), api.SiteTeaching{Shape: r.PostForm.Get("shape"), Is: r.PostForm.Get("is"), Incident: r.PostForm.Get("evidence_id")})
	if err == nil {
		http.Redirect(w, r, pathOf(profile)+tokenQuery(r)+"#unknown", http.StatusSeeOther)
		return
	}
	p.done(w, r, profile, form{}, err)
}

// outcomeByHand is the outcome of a session that a person hands back.
const outcomeByHand = "by_hand"

// handBackTimeout bounds how long a browser may take to close; the person may leave meanwhile.
const handBackTimeout = 2 * time.Minute

// handBack ends the session of the person who has the profile by hand.
func (p *pages) handBack(w http.ResponseWriter, r *http.Request, profile string) {
	d, err := gather(r.Context(), p.svc, profile)
	if err != nil {
		p.fail(w, r, profile, err)
		return
	}
	v := viewOf(d, principal.Of(r.Context()), "", form{}, "")
	switch {
	case v.ByHand == nil:
		err = api.Refuse(api.CodeConflict, "nobody has profile %s by hand on this host", profile)
	case !v.Mine:
		err = api.Refuse(api.CodeForbidden, "%s opened it by hand: only they, or an admin, can hand it back", v.ByHand.Principal)
	default:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), handBackTimeout)
		defer cancel()
		_, err = p.svc.Release(ctx, v.ByHand.SessionID, api.Release{Write: api.Write{Token: tokenSeen(r)}, Outcome: outcomeByHand})
		if errors.Is(err, context.DeadlineExceeded) {
			p.show(w, r, profile, http.StatusGatewayTimeout, form{NotKnown: true}, "The browser is being closed, which takes long, and it is not known whether the profile is handed back.")
			return
		}
	}
	p.done(w, r, profile, form{}, err)
}

// done answers a form: with the profile's present page, or with what was filled in and the
// reason for the refusal.
func (p *pages) done(w http.ResponseWriter, r *http.Request, profile string, filled form, err error) {
	if err == nil {
		http.Redirect(w, r, pathOf(profile)+tokenQuery(r), http.StatusSeeOther)
		return
	}
	status := http.StatusInternalServerError
	if problem := (*api.Problem)(nil); errors.As(err, &problem) {
		status = problem.Status
	} else {
		p.log.Error().Err(err).Str("profile", profile).Msg("what a person decided was not done")
	}
	said := "Not done: " + reason(err) + "."
	if mayBeDone(err) {
		filled.NotKnown = true
		said = "It is not known whether this was done: " + reason(err) + "."
	}
	p.show(w, r, profile, status, filled, said)
}

// mayBeDone tells whether what failed with err may have been done all the same, or goes on: the store did
// not answer, or the time was over.
func mayBeDone(err error) bool {
	return isCode(err, api.CodeStoreUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

func filledIn(r *http.Request) form {
	get := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	return form{
		Decision: get("decision"), Reviewer: get("reviewer"), Note: get("note"), Home: get("home"),
		Snapshot: get("snapshot"), Directory: get("directory"), AcceptLoss: get("accept_loss") != "",
	}
}

// tokenSeen is the lease token that the person saw. A token that cannot be parsed is never the
// current one.
func tokenSeen(r *http.Request) lease.Token {
	n, _ := strconv.ParseUint(r.PostForm.Get("lease_token"), 10, 64)
	return lease.Token(n)
}
