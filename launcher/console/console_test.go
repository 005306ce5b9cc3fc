package console

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/chrome"
	"leasehold/launcher/httpapi"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

func get(t *testing.T) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Result()
}

func TestPagePolicyAllowsItselfAndNothingElse(t *testing.T) {
	r := get(t)
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		t.Fatal(err)
	}
	policy := r.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "trusted-types 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("policy %q: want %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Errorf("policy %q allows too much", policy)
	}
	for _, kind := range []string{"style", "script"} {
		parts := regexp.MustCompile(`(?s)<`+kind+`>(.*)</`+kind+`>`).FindAllStringSubmatch(body.String(), -1)
		if len(parts) != 1 {
			t.Fatalf("%d inline %ss, want 1", len(parts), kind)
		}
		if want := kind + "-src " + hashOf(parts[0][1]); !strings.Contains(policy, want) {
			t.Errorf("policy %q: want %s, the hash of what the page has", policy, want)
		}
	}
	if external := regexp.MustCompile(`(?i)(https?:)?//[a-z]|<link[^>]+href="[^d]|<script[^>]+src|@import|url\(`).FindString(page + style); external != "" {
		t.Errorf("the page refers to another resource: %q", external)
	}
	if risky := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|\.href\s*=`).FindString(script); risky != "" {
		t.Errorf("the script uses %s: what it shows is hostile", risky)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// hostile is what a page could have as its title or its URL, or a task as a step's name.
const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

// backend is a launcher with what a test puts into it. The page reaches it through the
// real REST surface, so that it cannot ask for a route that does not exist.
type backend struct {
	api.Service // nil: what the page does not need

	mu       sync.Mutex
	profiles []lease.Record
	reviews  []api.ReviewRequest
	refuse   *api.Problem
	refused  []string // requests that were not answered with success
}

const token = "an-operators-token"

// handler serves the page to everybody, and the surface to those who show the token.
func (b *backend) handler() http.Handler {
	gate, err := principal.NewGate(principal.Options{Token: token, OnlyNamedUsers: true, Log: zerolog.Nop()})
	if err != nil {
		panic(err) // only a file of tokens can be wrong
	}
	surface := httpapi.New(b, httpapi.Options{Gate: gate, Log: zerolog.Nop()})
	page := Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			page.ServeHTTP(w, r)
			return
		}
		answer := &statusWriter{ResponseWriter: w}
		surface.ServeHTTP(answer, r)
		if answer.status >= 400 {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.refused = append(b.refused, fmt.Sprintf("%s %s: %d", r.Method, r.URL.Path, answer.status))
		}
	})
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (b *backend) Ready(context.Context) error { return nil }

func (b *backend) Profiles(context.Context) ([]lease.Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.profiles), nil
}

func (b *backend) Profile(_ context.Context, id string) (lease.Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.IndexFunc(b.profiles, func(r lease.Record) bool { return r.ProfileID == id })
	if at < 0 {
		return lease.Record{}, api.Refuse(api.CodeUnknownProfile, "there is no profile %s", id)
	}
	return b.profiles[at], nil
}

func (b *backend) Sessions() []api.Session {
	at := time.Now().UTC()
	return []api.Session{{
		SessionID: "ses_01KABCDEF", ProfileID: "profile_us_018", Token: 42, WorkerID: "worker-7", TaskID: "task_20260618_0932",
		State: api.SessionServing, AcquiredAt: at.Add(-4 * time.Minute), ExpiresAt: at.Add(24 * time.Second), Connections: 1,
	}}
}

// reviewed is the profile that waits for a person; nothing is known about the others.
const reviewed = "profile_us_021"

var errNothingYet = api.Refuse(api.CodeNotFound, "nothing yet")

func (b *backend) Inspection(_ context.Context, profile string) (api.Inspection, error) {
	if profile != reviewed {
		return api.Inspection{}, errNothingYet
	}
	return api.Inspection{
		Decision: lease.DecisionManualReview, Reasons: []string{"2 unsafe requests since the last safe checkpoint", "the last page is sensitive: campaign"},
		Facts: []api.Fact{
			{Name: "lease_expired", Answer: "yes", How: "no renewal for 31 s on this host's clock"}, {Name: "chrome_gone", Answer: "yes", How: "pid 4711 ended, status 0"},
			{Name: "directory_unlocked", Answer: "yes", How: "kernel lock free, no Singleton*"}, {Name: "storage_changed", Answer: "unknown", How: "no digest from before the grant"},
			{Name: "unsafe_requests", Answer: "yes", How: "POST example.com/account/campaigns, " + hostile},
		},
		UnsafeRequests: []api.UnsafeRequest{
			{Method: "POST", URL: "https://example.com/account/campaigns?" + hostile, Times: 2, Status: 502, Answer: "502 Bad Gateway", Counts: "unsafe", SinceSafeCheckpoint: true},
		},
	}, nil
}

func (b *backend) Evidence(_ context.Context, profile string) ([]api.Bundle, error) {
	if profile != reviewed {
		return nil, errNothingYet
	}
	at := time.Now().UTC()
	return []api.Bundle{
		{EvidenceID: "evd_2", Token: 16, At: at.Add(-3 * time.Minute), RecoveryReason: "connection_lost", Parts: []api.Part{
			{Name: "screenshot-1.png", Kind: "screenshot", Bytes: 48213, SHA256: "ab"}, {Name: "dom-1.html", Kind: "dom", Bytes: 120211, SHA256: "cd"},
			{Name: "journal.jsonl", Kind: "journal", Bytes: 4021, SHA256: "ef"}, {Name: "console.json", Kind: "console", Missing: "the renderer did not answer in 2 s"},
		}},
		{EvidenceID: "evd_1", Token: 15, At: at.Add(-26 * time.Hour), RecoveryReason: "released", Parts: []api.Part{{Name: "screenshot-1.png", Kind: "screenshot", Bytes: 3021, SHA256: "ab"}}},
	}, nil
}

func (b *backend) EvidencePart(_ context.Context, _, part string, _ bool) ([]byte, string, error) {
	switch part {
	case "screenshot-1.png":
		var picture bytes.Buffer
		err := png.Encode(&picture, screenshot())
		return picture.Bytes(), "image/png", err
	case "dom-1.html":
		return []byte(hostile), "text/html", nil
	}
	return nil, "", errNothingYet
}

func (b *backend) History(_ context.Context, profile string) ([]lease.Event, error) {
	if profile != reviewed {
		return nil, errNothingYet
	}
	at := time.Now().UTC()
	return []lease.Event{
		{Event: "granted", At: at.Add(-9 * time.Minute), Token: 16, Sequence: 4, OwnerWorkerID: "worker-3", TaskID: "task_88"},
		{Event: "profile_lock_conflict", At: at.Add(-5 * time.Minute), Token: 16, BlockedWorkerID: "worker-9", BlockedTaskID: "task_91", CurrentWorkerID: "worker-3", CurrentTaskID: "task_88", Decision: "rescheduled"},
		{Event: "quarantined", At: at.Add(-3 * time.Minute), Token: 17, Sequence: 6, Reason: "connection_lost", OwnerWorkerID: "worker-3", TaskID: "task_88"},
		{Event: "manual_review", At: at.Add(-2 * time.Minute), Token: 17, Sequence: 8, Reason: "connection_lost", Decision: "manual_review", Reasons: []string{"2 unsafe requests"}, LastKnownURL: hostile},
		{Event: "late_write", At: at.Add(-1 * time.Minute), Token: 16, CurrentToken: 17, Write: "release"},
	}, nil
}

func (b *backend) Review(_ context.Context, profile string, req api.ReviewRequest) (lease.Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reviews = append(b.reviews, req)
	if b.refuse != nil {
		return lease.Record{}, b.refuse
	}
	at := slices.IndexFunc(b.profiles, func(r lease.Record) bool { return r.ProfileID == profile })
	if req.Decision == lease.ReviewApprove {
		b.profiles[at].State = lease.Available
	}
	return b.profiles[at], nil
}

func screenshot() image.Image {
	img := image.NewRGBA(image.Rect(0, 0, 640, 400))
	for y := range 400 {
		for x := range 640 {
			img.Set(x, y, color.RGBA{uint8(240 - y/8), uint8(243 - x/16), 250, 255})
		}
	}
	return img
}

func records() []lease.Record {
	now := time.Now().UTC()
	base := lease.Record{TTLSeconds: 30, Settings: lease.Settings{MaxActiveRuns: 1}, Home: "host-1", Runs: []lease.Run{}}
	with := func(change func(*lease.Record)) lease.Record { r := base; change(&r); return r }
	return []lease.Record{
		with(func(r *lease.Record) {
			r.ProfileID, r.AccountID, r.ProxyID, r.State, r.Token = "profile_us_018", "store_us_018", "proxy-us-dallas-03", lease.Held, 42
			r.OwnerWorkerID, r.TaskID, r.LastKnownURL, r.LastKnownStep = "worker-7", "task_20260618_0932", "https://example.com/account/campaigns?view=active", hostile
			r.AcquiredAt, r.HeartbeatAt, r.ExpiresAt = now.Add(-4*time.Minute), now.Add(-3*time.Second), now.Add(27*time.Second)
		}),
		with(func(r *lease.Record) {
			r.ProfileID, r.AccountID, r.ProxyID, r.State, r.Token = "profile_us_019", "store_us_019", "proxy-us-dallas-04", lease.Available, 7
			r.OwnerWorkerID, r.TaskID, r.LastKnownURL, r.Reason = "worker-2", "task_20260618_0811", "https://example.com/orders", "connection_closed"
		}),
		with(func(r *lease.Record) {
			r.ProfileID, r.AccountID, r.State, r.Token, r.Reason = "profile_us_020", "store_us_020", lease.Quarantined, 12, "heartbeat_timeout"
			r.OwnerWorkerID, r.TaskID, r.LastKnownURL = "worker-4", "task_20260618_0909", "https://example.com/login"
		}),
		with(func(r *lease.Record) {
			r.ProfileID, r.AccountID, r.ProxyID, r.State, r.Token, r.Reason = "profile_us_021", "store_us_021", "proxy-us-miami-01", lease.ManualReview, 17, "connection_lost"
			r.OwnerWorkerID, r.TaskID, r.LastKnownURL, r.LastKnownStep = "worker-3", "task_88", "https://example.com/billing/"+hostile, "submit_budget_change"
			r.ByHand = &lease.ByHand{Holder: "Eve", Note: "looked at the bills " + hostile, Since: now.Add(-time.Minute)}
			r.LastSafeCheckpoint, r.Decision, r.RecoveryStartedAt = "campaign_listed", lease.DecisionManualReview, now.Add(-3*time.Minute)
		}),
		with(func(r *lease.Record) {
			r.ProfileID, r.State, r.Token, r.TaskID, r.ResumeFrom = "profile_us_022", lease.ResumePending, 3, "task_90", "step_4"
		}),
	}
}

// view is a browser that shows the page.
type view struct {
	t   *testing.T
	ctx context.Context
}

// patience bounds waits that end sooner unless something is broken.
const patience = time.Minute

func open(t *testing.T, b *backend, address string) view {
	t.Helper()
	srv := httptest.NewServer(b.handler())
	t.Cleanup(srv.Close)
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(binary), chromedp.WindowSize(1280, 900))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	v := view{t, ctx}
	v.do(chromedp.Navigate(srv.URL + address))
	return v
}

func (v view) do(steps ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	if err := chromedp.Do(v.ctx, steps...); err != nil {
		v.t.Fatal(err)
	}
}

// until waits until a JavaScript expression is true on the page.
func (v view) until(fact string) {
	v.t.Helper()
	wait := `new Promise(done => { const look = () => (` + fact + `) ? done(true) : setTimeout(look, 20); look(); })`
	if _, err := chromedp.Run(v.ctx, chromedp.Evaluate[bool](wait, chromedp.EvalAwaitPromise)); err != nil {
		v.t.Fatalf("%v\nwaiting for %s", err, fact)
	}
}

func (v view) text(expression string) string {
	v.t.Helper()
	s, err := chromedp.Run(v.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		v.t.Fatal(err)
	}
	return s
}

func TestPersonReviewsAProfileOfHostilePages(t *testing.T) {
	b := &backend{profiles: records(), refuse: api.Refuse(api.CodeStaleToken, "review with token 17: the current token is 18")}
	v := open(t, b, "/?token="+token)
	v.do(
		chromedp.Click(`//tbody[@id="profiles"]//button[text()="profile_us_021"]`),
		chromedp.WaitVisible(chromedp.CSS(`#review`)),
	)
	if seen := v.text(`document.querySelector("#review-token").textContent`); seen != "17" {
		t.Errorf("the form shows token %q, want 17", seen)
	}
	if seen := v.text(`document.querySelector("#lease").textContent`); !strings.Contains(seen, "Last by hand"+"Eve: looked at the bills "+hostile) {
		t.Errorf("who had the profile by hand is not shown: %q", seen)
	}
	// The picture is loaded when it has a size.
	v.until(`document.querySelector("#evidence img")?.naturalWidth === 640`)
	if image := v.text(`document.querySelector("#evidence img").src`); !strings.HasPrefix(image, "blob:") {
		t.Errorf("screenshot from %q, want a blob", image)
	}
	v.do(chromedp.Click(`//ul[@class="parts"]//button[text()="dom-1.html"]`))
	v.until(`document.querySelector("#evidence pre")?.textContent.includes("onerror")`)
	if source := v.text(`document.querySelector("#evidence pre").textContent`); source != hostile {
		t.Errorf("the part shows %q, want its source %q", source, hostile)
	}
	v.do(
		chromedp.SendKeys(chromedp.CSS(`#reviewer`), "Ada"),
		chromedp.SendKeys(chromedp.CSS(`#note`), "looked at the account"),
		chromedp.Click(chromedp.CSS(`#review input[value="approve"]`)),
		chromedp.Click(chromedp.CSS(`#review button`)),
	)
	v.until(`document.querySelector("#review-answer").className === "bad"`)
	if answer := v.text(`document.querySelector("#review-answer").textContent`); !strings.Contains(answer, "the current token is 18") {
		t.Errorf("refusal shown as %q", answer)
	}
	injected := v.text(`document.querySelectorAll("img[src='x'], main script").length + " " + document.title`)
	if injected != "0 (1) Leasehold" {
		t.Errorf("elements from hostile text, and the title: %q", injected)
	}

	// What was typed survives a refresh of the page.
	b.mu.Lock()
	b.refuse = nil
	b.profiles[3].Reason = "something_new"
	b.mu.Unlock()
	v.until(`document.querySelector("#lease").textContent.includes("something new")`)
	v.do(chromedp.Click(chromedp.CSS(`#review button`)))
	v.until(`!document.querySelector("#reviewed").hidden && document.querySelector("#review").hidden`)
	b.mu.Lock()
	defer b.mu.Unlock()
	want := api.ReviewRequest{Write: api.Write{Token: 17}, Decision: "approve", Reviewer: "Ada", Note: "looked at the account"}
	if !slices.Equal(b.reviews, []api.ReviewRequest{want, want}) {
		t.Errorf("reviews %+v, want %+v twice", b.reviews, want)
	}
	if want := "POST /v1/profiles/profile_us_021/review: 409"; !slices.Equal(b.refused, []string{want}) {
		t.Errorf("requests of the page were refused: %q, want only %s", b.refused, want)
	}
}

func TestPageFollowsTheProfiles(t *testing.T) {
	b := &backend{profiles: records()}
	v := open(t, b, "/?token="+token+"#profile_us_018")
	v.until(`document.querySelector("#lease dl") && document.querySelector("#profiles tr")`)
	first := v.text(`document.querySelector("#profiles button").textContent + ": " + document.querySelector("#summary").textContent`)
	if first != "profile_us_021: 5 profiles, 1 held, 1 waiting for a person" {
		t.Errorf("the list begins with %q, want what waits for a person", first)
	}
	v.until(`document.querySelector("#review").hidden && document.querySelector("#trouble").hidden`)
	b.mu.Lock()
	b.profiles[0].LastKnownURL = "https://example.com/moved"
	b.mu.Unlock()
	v.until(`document.querySelector("#lease").textContent.includes("/moved")`)
	v.until(`document.querySelector("#profiles").textContent.includes("/moved")`)
	v.do(chromedp.Click(chromedp.CSS(`#close`)))
	v.until(`document.querySelector("#detail").hidden`)
}

func TestPageWithoutTokenSaysSo(t *testing.T) {
	v := open(t, &backend{profiles: records()}, "/")
	v.until(`!document.querySelector("#trouble").hidden`)
	if trouble := v.text(`document.querySelector("#trouble").textContent`); !strings.Contains(trouble, "?token=") {
		t.Errorf("trouble %q: want how to show the token", trouble)
	}
}
