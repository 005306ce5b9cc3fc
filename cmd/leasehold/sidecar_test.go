package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// fakeSidecar answers as the design's section 3.4 says, from a fixed state:
//
//	p     held by worker-7 with token 42; its page's URL contains escape sequences
//	shop  in manual review with token 43, inspected, with evidence
//	busy  held, so that nobody else gets it
//	rests free, and cools down
//	lost  granted, and refused at a heartbeat once there is a file named lose beside that of the requests
//	full  refused with 429
//	plain answered by something that is not leasehold
//	far   lives at home, where that is another sidecar
type fakeSidecar struct {
	requests string
	home     string

	mu sync.Mutex // for the file
}

var (
	at      = time.Date(2026, 11, 20, 9, 32, 0, 0, time.UTC)
	picture = []byte("\x89PNG not really")
)

func startFakeSidecar(env *testscript.Env, requests, home string) (url string) {
	s := &fakeSidecar{requests: requests, home: home}
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/profiles", s.profiles)
	m.HandleFunc("GET /v1/profiles/{id}", s.profile)
	m.HandleFunc("GET /v1/profiles/{id}/inspection", s.inspection)
	m.HandleFunc("GET /v1/profiles/{id}/history", s.history)
	m.HandleFunc("GET /v1/profiles/{id}/evidence", s.evidence)
	m.HandleFunc("POST /v1/profiles/{id}/review", s.review)
	m.HandleFunc("POST /v1/profiles/{id}/check", s.check)
	m.HandleFunc("POST /v1/profiles/{id}/restore", s.profile)
	m.HandleFunc("POST /v1/profiles/{id}/remove-clone", s.profile)
	m.HandleFunc("POST /v1/profiles/{id}/sign-in-link", s.signInLink)
	m.HandleFunc("DELETE /v1/profiles/{id}/sign-in-link", s.revokeSignInLink)
	m.HandleFunc("GET /v1/evidence/{id}", s.manifest)
	m.HandleFunc("GET /v1/evidence/{id}/{part}", s.part)
	m.HandleFunc("GET /v1/queue", s.queue)
	m.HandleFunc("GET /v1/sites", s.sites)
	m.HandleFunc("GET /v1/sites/shop", s.site)
	m.HandleFunc("PUT /v1/sites/{name}", s.putSite)
	m.HandleFunc("DELETE /v1/sites/shop", s.site)
	m.HandleFunc("POST /v1/sites/{name}/try", s.trySite)
	m.HandleFunc("POST /v1/sites/{name}/replay", s.replaySite)
	m.HandleFunc("GET /v1/sites/{name}/shapes", s.siteShapes)
	m.HandleFunc("GET /v1/sessions", s.sessions)
	m.HandleFunc("POST /v1/sessions", s.acquire)
	m.HandleFunc("POST /v1/sessions/{id}/heartbeat", s.heartbeat)
	m.HandleFunc("DELETE /v1/sessions/{id}", s.release)
	m.HandleFunc("GET /v1/sessions/{id}", s.session)
	m.HandleFunc("POST /v1/sessions/{id}/ask", s.ask)
	m.HandleFunc("POST /v1/sessions/{id}/take-over", s.takeOver)
	m.HandleFunc("POST /v1/sessions/{id}/hand-back", s.session)
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	m.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewServer(s.logged(m))
	env.Defer(server.Close)
	return server.URL
}

// logged writes each request, with its credential and body, as one line.
func (s *fakeSidecar) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.mu.Lock()
		f, err := os.OpenFile(s.requests, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			fmt.Fprintf(f, "%s %s %s%s\n", r.Method, r.URL.Path, r.Header.Get("Authorization"), body)
			err = f.Close()
		}
		s.mu.Unlock()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client is gone
}

func refuse(w http.ResponseWriter, p *api.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error means that the client is gone
}

func records() []lease.Record {
	return []lease.Record{
		{ProfileID: "shop", State: lease.ManualReview, Token: 43, TaskID: "task_9", OwnerWorkerID: "worker-2",
			LastKnownURL: "https://shop.example/pay", Reason: "heartbeat_timeout", Decision: "manual_review",
			Reasons: []string{"an unsafe request was sent"}, EvidenceID: "ev2", Sequence: 9, Runs: []lease.Run{}},
		{ProfileID: "p", State: lease.Held, Token: 42, OwnerWorkerID: "worker-7", TaskID: "task_1", TTLSeconds: 0.3,
			LastKnownURL: "https://a.example/\x1b]0;owned\x07\u202e\u009b31m", AcquiredAt: at, Home: "host-1", Runs: []lease.Run{}},
		{ProfileID: "rests", State: lease.Available, Token: 7, AvailableAfter: time.Now().Add(time.Hour), Runs: []lease.Run{}},
	}
}

func (s *fakeSidecar) profiles(w http.ResponseWriter, _ *http.Request) {
	answer(w, 200, map[string]any{"items": records(), "next": nil})
}

func (s *fakeSidecar) queue(w http.ResponseWriter, r *http.Request) {
	waiting := []api.Waiting{
		{ProfileID: "p", WorkerID: "worker-8", TaskID: "task_2", Priority: 2, LauncherID: "host-1", Since: at, Position: 1, Profiles: 1},
		{AccountID: "store", Labels: lease.Labels{"region": "us", "tier": "1"}, WorkerID: "worker-9", TaskID: "task_3", LauncherID: "host-2", Since: at, Position: 2, Profiles: 4},
	}
	if r.URL.Query().Get("profile_id") == "p" {
		waiting = waiting[:1]
	}
	answer(w, 200, map[string]any{"items": waiting, "next": nil})
}

func (s *fakeSidecar) profile(w http.ResponseWriter, r *http.Request) {
	for _, record := range records() {
		if record.ProfileID == r.PathValue("id") {
			answer(w, 200, record)
			return
		}
	}
	if id := r.PathValue("id"); id == "lost" || id == "large" || id == "far" {
		answer(w, 200, lease.Record{ProfileID: id, State: lease.Held, Token: 5, TTLSeconds: 0.3})
		return
	}
	refuse(w, api.Refuse(api.CodeUnknownProfile, "no profile %s: give create", r.PathValue("id")))
}

func (s *fakeSidecar) inspection(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != "shop" {
		refuse(w, api.Refuse(api.CodeNotFound, "never inspected"))
		return
	}
	answer(w, 200, api.Inspection{
		Facts:    []api.Fact{{Name: "chrome_gone", Answer: "yes", How: "kernel lock \x1b[2J free"}},
		Decision: "manual_review", DecisionVersion: 2, Reasons: []string{"an unsafe request was sent"},
	})
}

func (s *fakeSidecar) history(w http.ResponseWriter, r *http.Request) {
	events := []lease.Event{}
	for i := range 12 {
		events = append(events, lease.Event{Event: "granted", ProfileID: r.PathValue("id"), Token: lease.Token(30 + i), Sequence: uint64(i + 1), At: at})
	}
	// Pages of five.
	from, _ := strconv.Atoi(r.URL.Query().Get("next"))
	to := min(from+5, len(events))
	page := map[string]any{"items": events[from:to], "next": nil, "truncated": true}
	if to < len(events) {
		page["next"] = strconv.Itoa(to)
	}
	answer(w, 200, page)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (s *fakeSidecar) evidence(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != "shop" {
		answer(w, 200, map[string]any{"items": []api.Bundle{}})
		return
	}
	answer(w, 200, map[string]any{"items": bundlesOfShop()})
}

// bundlesOfShop are the bundles of the profile shop.
func bundlesOfShop() []api.Bundle {
	good := api.Part{Name: "page-1.png", Kind: "screenshot", Bytes: int64(len(picture)), SHA256: digest(picture)}
	return []api.Bundle{
		{EvidenceID: "ev2", Token: 42, At: at, RecoveryReason: "heartbeat_timeout", Parts: []api.Part{
			good, {Name: "dom-1.html", Kind: "dom", Missing: "the renderer was busy"}}},
		{EvidenceID: "changed", Token: 41, At: at, RecoveryReason: "released", Parts: []api.Part{
			{Name: "page-1.png", Kind: "screenshot", Bytes: 1, SHA256: digest(nil)}}},
		{EvidenceID: "escape", Token: 40, At: at, RecoveryReason: "released", Parts: []api.Part{
			{Name: "../escaped", Kind: "journal", Bytes: 1, SHA256: digest(nil)}}},
	}
}

func (s *fakeSidecar) manifest(w http.ResponseWriter, r *http.Request) {
	m := map[string]any{"evidence_id": r.PathValue("id"), "lease_token": 42, "profile_id": "shop"}
	for _, b := range bundlesOfShop() {
		if b.EvidenceID == r.PathValue("id") {
			m["parts"] = b.Parts
		}
	}
	answer(w, 200, m)
}

func (s *fakeSidecar) part(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "image/png")
	_, _ = w.Write(picture) // an error means that the client is gone
}

func (s *fakeSidecar) review(w http.ResponseWriter, r *http.Request) {
	var q api.ReviewRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Token != 43 {
		refuse(w, api.Refuse(api.CodeStaleToken, "token %d superseded by 43", q.Token).With("current_token", 43))
		return
	}
	answer(w, 200, lease.Record{ProfileID: r.PathValue("id"), State: lease.Available, Token: 43})
}

// check finds nobody signed in on shop.
// lives answers for a profile that lives elsewhere.
func (s *fakeSidecar) lives(w http.ResponseWriter, profile string) (elsewhere bool) {
	if profile != "far" || s.home == "" {
		return false
	}
	refuse(w, api.Refuse(api.CodeWrongHome, "profile far lives on the host of launcher h2: %s", s.home).With("home_launcher", "h2").With("location", s.home))
	return true
}

func (s *fakeSidecar) check(w http.ResponseWriter, r *http.Request) {
	if s.lives(w, r.PathValue("id")) {
		return
	}
	c := api.SessionChecked{ProfileID: r.PathValue("id"), SignedIn: "yes", How: "GET https://a.example/me was answered 200", Status: 200, At: at}
	if c.ProfileID == "shop" {
		c.SignedIn, c.How, c.Status = "no", "a redirect\x1b[2J to /login", 302
	}
	answer(w, 200, c)
}

// signInLink makes a link for every profile but shop, which waits for a decision.
func (s *fakeSidecar) signInLink(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") == "shop" {
		refuse(w, api.Refuse(api.CodeInReview, "profile shop waits for a decision first"))
		return
	}
	answer(w, 201, api.SignInLink{LinkID: "lnk_1", ProfileID: r.PathValue("id"), URL: "https://a.example/sign-in/lnk_1#s3cret", ExpiresAt: at})
}

// revokeSignInLink takes back the link of p, the only one.
func (s *fakeSidecar) revokeSignInLink(w http.ResponseWriter, r *http.Request) {
	gone := api.SignInRevoked{ProfileID: r.PathValue("id")}
	if gone.ProfileID == "p" {
		gone.LinkID = "lnk_1"
	}
	answer(w, 200, gone)
}

func (s *fakeSidecar) sessions(w http.ResponseWriter, r *http.Request) {
	if profile := r.URL.Query().Get("profile_id"); profile == "far" && !s.lives(w, profile) {
		answer(w, 200, map[string]any{"items": []api.Session{{SessionID: "s-far", ProfileID: "far", Token: 5, WorkerID: "worker-9", State: api.SessionServing}}, "next": nil})
	}
	if r.URL.Query().Get("profile_id") == "far" {
		return
	}
	answer(w, 200, map[string]any{"items": []api.Session{{SessionID: "s1", ProfileID: "p", Token: 42, WorkerID: "worker-7",
		TaskID: "task_1", State: api.SessionServing, Connections: 1, ExpiresAt: at, Ask: &api.Ask{Reason: "the code", At: at, Until: at}}}, "next": nil})
}

// session is one that nobody has by hand. That of far is known only where far lives.
func (s *fakeSidecar) session(w http.ResponseWriter, r *http.Request) {
	if id := r.PathValue("id"); id == "s-far" && s.home != "" {
		refuse(w, api.Refuse(api.CodeUnknownSession, "there is no session %s", id))
		return
	} else if id == "s-far" {
		answer(w, 200, api.Session{SessionID: id, ProfileID: "far", Token: 5, State: api.SessionServing})
		return
	}
	answer(w, 200, api.Session{SessionID: r.PathValue("id"), ProfileID: "p", Token: 42, WorkerID: "worker-7", State: api.SessionServing})
}

// ask answers as its reason says.
func (s *fakeSidecar) ask(w http.ResponseWriter, r *http.Request) {
	var q api.AskPerson
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		refuse(w, api.Invalid("", "%v", err))
		return
	}
	switch q.Reason {
	case "decline":
		answer(w, 200, api.Answer{Reason: api.AskDeclined, By: "Ann", Note: "no \x1b[2J phone"})
	case "nobody":
		answer(w, 200, api.Answer{Reason: api.AskWaitOver})
	default:
		answer(w, 200, api.Answer{Answered: true, By: "Ann", Note: "done", Data: json.RawMessage(`{"code":"1"}`)})
	}
}

// takeOver is refused where Bob is not named.
func (s *fakeSidecar) takeOver(w http.ResponseWriter, r *http.Request) {
	var q api.TakeOver
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.TakeFrom != "Bob" {
		refuse(w, api.Refuse(api.CodeTakenOver, "Bob (uid:7) has session s1 since 09:00"))
		return
	}
	s.session(w, r)
}

func (s *fakeSidecar) acquire(w http.ResponseWriter, r *http.Request) {
	m, err := api.ReadManifest(r.Body)
	if err != nil {
		refuse(w, api.Refuse(api.CodeInvalidRequest, "%v", err))
		return
	}
	if s.lives(w, m.ProfileID) {
		return
	}
	switch m.ProfileID {
	case "busy":
		refuse(w, api.Refuse(api.CodeConflict, "held by worker-7 for task_1").With("current_worker_id", "worker-7").With("next_check_seconds", 300))
	case "full":
		p := api.Refuse(api.CodeHostFull, "4 of 4 browsers run")
		p.RetryAfter = 30
		refuse(w, p)
	case "plain":
		http.Error(w, "<html>", http.StatusBadGateway)
	default:
		token := lease.Token(42)
		if m.ProfileID == "lost" {
			token = 5
		}
		answer(w, 201, api.Session{SessionID: "s-" + m.ProfileID, ProfileID: m.ProfileID, Token: token, WorkerID: m.WorkerID, TaskID: m.TaskID,
			CDPURL: "ws://127.0.0.1:9333/s/secret/devtools/browser/" + m.ProfileID, AcquiredAt: at, ExpiresAt: at,
			Resume: &api.Resume{From: "step-3", Checkpoint: "cart", Data: checkpointData(m.ProfileID)}})
	}
}

// checkpointData is what the task gave with its checkpoint: too much for an environment,
// where the profile is named large.
func checkpointData(profile string) json.RawMessage {
	if profile == "large" {
		return json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)
	}
	return json.RawMessage(`{"page":7}`)
}

func (s *fakeSidecar) heartbeat(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") == "s-lost" {
		if _, err := os.Stat(filepath.Join(filepath.Dir(s.requests), "lose")); err == nil {
			refuse(w, api.Refuse(api.CodeSessionEnded, "recovered: heartbeat_timeout"))
			return
		}
	}
	answer(w, 200, api.Session{SessionID: r.PathValue("id")})
}

func (s *fakeSidecar) release(w http.ResponseWriter, r *http.Request) {
	var q api.Release
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		refuse(w, api.Invalid("", "%v", err))
		return
	}
	ended := api.Session{SessionID: r.PathValue("id"), State: api.SessionEnded, Ended: "released: " + q.Reason}
	if q.Recover == api.RecoverTouched {
		ended.Ended = "lost (worker_failed), recovered: manual_review"
	}
	answer(w, 200, ended)
}

// shopSite is what is known of the only site.
var shopSite = api.Site{File: site.File{Name: "shop", Origins: []string{"https://shop.example"}, Requests: []site.Line{
	{Shape: "POST /ajax", Where: map[string]site.Condition{"autosave": {Absent: true}}, Is: site.Read, SaidBy: "ann", SaidAt: at},
}}, Revision: 7}

func (s *fakeSidecar) sites(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"items": []api.SiteSummary{{Name: "shop", Origins: shopSite.Origins, Requests: 1, Revision: 7}}, "next": nil})
}

func (s *fakeSidecar) site(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, shopSite)
}

func (s *fakeSidecar) siteShapes(w http.ResponseWriter, r *http.Request) {
	all := []api.SiteShape{{Shape: "POST https://shop.example/save form(a)", Sessions: 3, Accounts: 1, LastAt: at}}
	if r.PathValue("name") == "shop" {
		all = append(all, api.SiteShape{Shape: `POST https://shop.example/search?a&b form("q")`, Sessions: 12, Accounts: 3, Unchanged: 11, LastAt: at, Proposed: site.Read})
	}
	answer(w, http.StatusOK, map[string]any{"items": all, "next": nil})
}

func (s *fakeSidecar) trySite(w http.ResponseWriter, r *http.Request) {
	var t api.SiteTry
	if json.NewDecoder(r.Body).Decode(&t) != nil {
		http.Error(w, "no file", http.StatusInternalServerError)
		return
	}
	q := api.QuestionTried{Name: t.Probes[0].Name, State: "told", Picked: "14 (lamp)", How: "answered 200"}
	if t.ProfileID == "moving" {
		q.Problems = []string{"this probe changes by itself, or by being asked: then 15"}
	}
	answer(w, http.StatusOK, api.SiteTried{Name: t.Name, ProfileID: t.ProfileID, Questions: []api.QuestionTried{q}})
}

func (s *fakeSidecar) replaySite(w http.ResponseWriter, r *http.Request) {
	var f api.SiteReplay
	if json.NewDecoder(r.Body).Decode(&f) != nil {
		http.Error(w, "no file", http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK, api.SiteReplayed{Name: f.Name, Incidents: []api.IncidentReplayed{
		{EvidenceID: "ev_3", ProfileID: "shop_1", At: at, Decided: "manual_review", Would: "release"},
		{EvidenceID: "ev_2", ProfileID: "shop_2", At: at, Decided: "release", Would: "manual_review"},
		{EvidenceID: "ev_1", ProfileID: "shop_1", At: at, Decided: "manual_review", Doubt: "what was sent is not kept"},
	}})
}

func (s *fakeSidecar) putSite(w http.ResponseWriter, r *http.Request) {
	var p api.SitePut
	switch {
	case json.NewDecoder(r.Body).Decode(&p) != nil:
		http.Error(w, "no file", http.StatusInternalServerError)
	case p.Revision != nil && *p.Revision != 7:
		refuse(w, api.Refuse(api.CodeSiteChanged, "somebody else has changed it since"))
	default:
		answer(w, http.StatusOK, api.Site{File: p.File, Revision: 8})
	}
}
