package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/catalog"
	"leasehold/launcher/httpapi"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// hostile is what a page could have as its title or its URL, or a task as a step's name: HTML,
// and characters that turn the direction of writing.
const hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u202egnp.exe"

// cleanHostile is how it is shown.
var cleanHostile = strings.ReplaceAll(hostile, "\u202e", "\ufffd")

// backend is a launcher with what a test puts into it. The pages reach it through the real
// surface, so that they cannot ask for a route that does not exist.
type backend struct {
	api.Service // nil: what the pages do not need

	mu       sync.Mutex
	profiles []api.Profile
	cases    map[string]scene
	reviews  []api.ReviewRequest
	holds    []api.HoldRequest
	released []api.Release
	refuse   error
	refused  []string // requests that were not answered with success
	who      principal.Principal
	watched  *livePage // nil: no session can be watched
	taken    []api.TakeOver
	given    chan api.HandBack
	hosts    []api.Host
	waiting  []api.Waiting
	restored []api.ProfileRestore
	rehomed  []api.ProfileRehome
	hands    map[string]api.InHands
	stale    time.Time
	silent   map[string]time.Time // homes of which nothing is heard, with since when
	notReady error
	files    []api.Site
	taught   []api.SiteTeaching
	replayed []api.IncidentReplayed
	answers  []api.SiteAnswer
	counted  map[string][]api.SiteShape // by site
	changed  chan struct{}              // closed and replaced by change
	gone     []string                   // profiles whose directory is gone
	checked  []string                   // profiles whose account was asked about
}

// change changes what the backend has, and tells those who follow it.
func (b *backend) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	if b.changed != nil {
		close(b.changed)
	}
	b.changed = make(chan struct{})
}

// scene is what is known of one profile.
type scene struct {
	inspection api.Inspection
	bundles    []api.Bundle
	events     []lease.Event
	parts      map[string][]byte // by evidence id and name
	problems   map[string]error  // the same
	sessions   []api.Session
	snapshots  []api.Snapshot // nil: there is no profile store
	storeAway  bool
}

const token = "an-operators-token"

var errNothingYet = api.Refuse(api.CodeNotFound, "nothing yet")

// handler serves those who show the token.
func (b *backend) handler() http.Handler {
	gate, err := principal.NewGate(principal.Options{Token: token, OnlyNamedUsers: true, Log: zerolog.Nop()})
	if err != nil {
		panic(err) // only a file of tokens can be wrong
	}
	console := Handler(b, zerolog.Nop())
	surface := httpapi.New(b, httpapi.Options{Gate: gate, Log: zerolog.Nop(), Refused: Refused(zerolog.Nop()), Console: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.who.Name != "" {
			r = r.WithContext(principal.In(r.Context(), b.who))
		}
		console.ServeHTTP(w, r)
	})})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

func (b *backend) Ready(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.notReady
}

func (b *backend) ListProfiles(_ context.Context, q api.ProfileQuery) (api.ProfilePage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rows []*catalog.Row
	for _, r := range b.profiles {
		row := catalog.NewRow(lease.Entry{Record: r.Record})
		row.Hands, row.Gone = b.hands[r.ProfileID], slices.Contains(b.gone, r.ProfileID)
		rows = append(rows, row)
	}
	page := catalog.List(rows, q, noon)
	page.Stale = b.stale
	for i, r := range page.Items {
		if care, ok := page.Accounts[r.ProfileID]; ok {
			care.Asked = r.SessionCheck != nil
			page.Accounts[r.ProfileID] = care
		}
		page.Items[i].HomeSilentSince = b.silent[r.Home]
	}
	return page, nil
}

func (b *backend) CheckProfile(_ context.Context, profile string) (api.SessionChecked, error) {
	var err error
	b.change(func() {
		b.checked = append(b.checked, profile)
		if err = b.refusal(); err == nil {
			r := &b.profiles[b.at(profile)]
			r.Record = r.Checked(lease.Checked{SignedIn: lease.SignedInYes, How: "the answer is 200"}, time.Now())
		}
	})
	return api.SessionChecked{ProfileID: profile, SignedIn: "yes"}, err
}

func (b *backend) Sites(context.Context) (list []api.SiteSummary, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.files {
		list = append(list, api.SiteSummary{Name: f.Name, Origins: f.Origins})
	}
	return list, nil
}

func (b *backend) Site(_ context.Context, name string) (api.Site, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.files, func(f api.Site) bool { return f.Name == name })
	if i < 0 {
		return api.Site{}, errNothingYet
	}
	return b.files[i], nil
}

func (b *backend) SiteShapes(_ context.Context, name string) ([]api.SiteShape, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counted[name] == nil {
		return nil, errNothingYet
	}
	return b.counted[name], nil
}

func (b *backend) ReplaySite(_ context.Context, name string, r api.SiteReplay) (api.SiteReplayed, error) {
	return api.SiteReplayed{Name: name, Incidents: b.replayed}, nil
}

func (b *backend) SiteAnswers(context.Context, string) ([]api.SiteAnswer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.answers), nil
}

func (b *backend) TeachSite(_ context.Context, t api.SiteTeaching) (api.Site, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taught = append(b.taught, t)
	return api.Site{}, nil
}

func (b *backend) Changes() api.Changes {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return api.Changes{Changed: b.changed}
}

func (b *backend) Hosts(context.Context) (api.Hosts, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return api.Hosts{Items: slices.Clone(b.hosts), Stale: b.stale}, nil
}

func (b *backend) Queue(context.Context) ([]api.Waiting, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.waiting), nil
}

func (b *backend) Snapshots(_ context.Context, profile string) ([]api.Snapshot, error) {
	if b.cases[profile].storeAway {
		return nil, errors.New("the profile store does not answer")
	}
	if all := b.cases[profile].snapshots; all != nil {
		return all, nil
	}
	return nil, api.Refuse(api.CodeNotFound, "this sidecar has no profile store")
}

func (b *backend) RestoreProfile(_ context.Context, _ string, req api.ProfileRestore) (api.Restored, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restored = append(b.restored, req)
	return api.Restored{}, b.refusal()
}

func (b *backend) RehomeProfile(_ context.Context, _ string, req api.ProfileRehome) (api.Profile, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rehomed = append(b.rehomed, req)
	return api.Profile{}, b.refusal()
}

func (b *backend) at(id string) int {
	return slices.IndexFunc(b.profiles, func(r api.Profile) bool { return r.ProfileID == id })
}

func (b *backend) Profile(_ context.Context, id string) (api.Profile, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.at(id); at >= 0 {
		return b.profiles[at], nil
	}
	return api.Profile{}, api.Refuse(api.CodeUnknownProfile, "there is no profile %s", id)
}

func (b *backend) Sessions() []api.Session {
	all := []api.Session{{
		SessionID: "ses_01KABCDEF", ProfileID: "profile_us_018", Token: 42, WorkerID: "worker-7", TaskID: "task_20260618_0932",
		State: api.SessionServing, AcquiredAt: noon.Add(-4 * time.Minute), ExpiresAt: noon.Add(24 * time.Second), Connections: 1,
	}}
	for _, c := range b.cases {
		all = append(all, c.sessions...)
	}
	return all
}

func (b *backend) Inspection(_ context.Context, profile string) (api.Inspection, error) {
	return b.cases[profile].inspection, nil
}

func (b *backend) Evidence(_ context.Context, profile string) ([]api.Bundle, error) {
	return slices.Clone(b.cases[profile].bundles), nil
}

func (b *backend) History(_ context.Context, profile string) ([]lease.Event, error) {
	return b.cases[profile].events, nil
}

func (b *backend) EvidenceManifest(_ context.Context, id string) (json.RawMessage, error) {
	return manifestOf(id), nil
}

// manifestOf is the manifest of a bundle; only its hash counts here.
func manifestOf(id string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf("{\"evidence_id\":%q}", id))
}

func sealOf(id string) string {
	sum := sha256.Sum256(manifestOf(id))
	return hex.EncodeToString(sum[:])
}

func (b *backend) EvidencePart(_ context.Context, id, part string, _ bool) ([]byte, string, error) {
	for _, c := range b.cases {
		if err := c.problems[id+"/"+part]; err != nil {
			return nil, "", err
		}
		if content, ok := c.parts[id+"/"+part]; ok {
			if strings.HasSuffix(part, ".jpg") {
				return content, "image/jpeg", nil
			}
			return content, "application/json", nil
		}
	}
	return nil, "", errNothingYet
}

func (b *backend) Review(_ context.Context, profile string, req api.ReviewRequest) (api.Profile, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reviews = append(b.reviews, req)
	if b.refuse != nil {
		return api.Profile{}, b.refuse
	}
	at := b.at(profile)
	if at < 0 {
		return api.Profile{}, api.Refuse(api.CodeUnknownProfile, "there is no profile %s", profile)
	}
	r := &b.profiles[at]
	switch {
	case r.State != lease.ManualReview:
		return api.Profile{}, api.Refuse(api.CodeNotInReview, "profile %s is %s, not in manual_review", profile, r.State)
	case req.Sequence != 0 && req.Sequence != r.Sequence:
		return api.Profile{}, api.Refuse(api.CodeStaleToken, "profile %s has changed since it was read", profile)
	}
	r.Sequence++
	r.Review = &lease.Review{Decision: req.Decision, Reviewer: req.Reviewer, Principal: "token", Note: req.Note, At: noon}
	if req.Decision == lease.ReviewApprove {
		r.State, r.Reason = lease.Available, "review_approved"
	}
	return *r, nil
}

func (b *backend) Hold(_ context.Context, profile string, req api.HoldRequest) (api.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = append(b.holds, req)
	return api.Session{}, b.refusal()
}

func (b *backend) Release(_ context.Context, _ string, req api.Release) (api.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = append(b.released, req)
	return api.Session{}, b.refusal()
}

// refusal is what the backend refuses with, as an error.
func (b *backend) refusal() error {
	return b.refuse
}

// pagePicture is a picture of a page.
var pagePicture = sync.OnceValue(func() []byte {
	img := image.NewRGBA(image.Rect(0, 0, 640, 400))
	fill := func(c color.Color, x, y, w, h int) {
		draw.Draw(img, image.Rect(x, y, x+w, y+h), image.NewUniform(c), image.Point{}, draw.Src)
	}
	fill(color.RGBA{246, 247, 250, 255}, 0, 0, 640, 400)
	fill(color.RGBA{36, 74, 140, 255}, 0, 0, 640, 44)
	for i := range 12 {
		fill(color.RGBA{150, 158, 170, 255}, 50, 64+i*27, 180+i*i*53%260, 12)
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil {
		panic(err) // it goes to memory
	}
	return b.Bytes()
})

// noon is when everything was.
var noon = time.Date(2026, 6, 18, 12, 0, 0, 0, time.UTC)

// reviewed is the profile that waits for a person, after a usual loss.
const reviewed = "profile_us_021"

func records() []api.Profile {
	base := api.Profile{Record: lease.Record{TTLSeconds: 30, Settings: lease.Settings{MaxActiveRuns: 1}, Home: "host-1", LauncherID: "host-1", Runs: []lease.Run{}}}
	with := func(change func(*api.Profile)) api.Profile { r := base; change(&r); return r }
	return []api.Profile{
		with(func(r *api.Profile) {
			r.ProfileID, r.AccountID, r.ProxyID, r.State, r.Token = "profile_us_018", "store_us_018", "proxy-us-dallas-03", lease.Held, 42
			r.OwnerWorkerID, r.TaskID, r.LastKnownURL, r.LastKnownStep = "worker-7", "task_20260618_0932", "https://example.com/account/campaigns?view=active", hostile
			r.AcquiredAt, r.HeartbeatAt, r.ExpiresAt = noon.Add(-4*time.Minute), noon.Add(-3*time.Second), noon.Add(27*time.Second)
		}),
		with(func(r *api.Profile) {
			r.ProfileID, r.AccountID, r.ProxyID, r.State, r.Token = "profile_us_019", "store_us_019", "proxy-us-dallas-04", lease.Available, 7
			r.OwnerWorkerID, r.TaskID, r.LastKnownURL, r.Reason = "worker-2", "task_20260618_0811", "https://example.com/orders", "connection_closed"
		}),
		with(func(r *api.Profile) {
			r.ProfileID, r.AccountID, r.State, r.Token, r.Reason = "profile_us_020", "store_us_020", lease.Quarantined, 12, "heartbeat_timeout"
			r.OwnerWorkerID, r.TaskID, r.LastKnownURL = "worker-4", "task_20260618_0909", "https://example.com/login"
		}),
		inReview(reviewed, "evd_2", func(r *api.Profile) {
			r.ByHand = &lease.ByHand{Holder: "Eve", Note: "looked at the bills " + hostile, Since: noon.Add(-time.Minute)}
		}),
		with(func(r *api.Profile) {
			r.ProfileID, r.State, r.Token, r.TaskID, r.ResumeFrom = "profile_us_022", lease.ResumePending, 3, "task_90", "step_4"
		}),
	}
}

// inReview is the record of a profile that waits for a person.
func inReview(profile, evidenceID string, change ...func(*api.Profile)) api.Profile {
	r := api.Profile{Record: lease.Record{TTLSeconds: 30, Settings: lease.Settings{MaxActiveRuns: 1}, Home: "host-1", LauncherID: "host-1", Runs: []lease.Run{}}}
	r.ProfileID, r.AccountID, r.ProxyID, r.State, r.Token, r.Reason = profile, "store_us_021", "proxy-us-miami-01", lease.ManualReview, 17, "connection_lost"
	r.OwnerWorkerID, r.TaskID, r.LastKnownURL, r.LastKnownStep = "worker-3", "task_88", "https://shop.example/billing/", "submit_budget_change"
	r.LastSafeCheckpoint, r.Decision, r.RecoveryStartedAt, r.SuspectedAt = "campaign_listed", lease.DecisionManualReview, noon.Add(8*time.Second), noon.Add(5*time.Second)
	r.Reasons, r.SessionID, r.EvidenceID, r.Sequence = []string{"unsafe requests were sent (yes: 2 seen)"}, "ses_2", evidenceID, 9
	r.EvidenceSHA256 = sealOf(evidenceID)
	for _, c := range change {
		c(&r)
	}
	return r
}

// session is a journal of usual work, which ends in the middle of a sensitive step.
func session() []checkpoint.Entry {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	const shop = "https://shop.example"
	entries := []checkpoint.Entry{
		{At: at(-300), Kind: checkpoint.KindStart, Name: "task_88", Text: "worker-3"},
		{At: at(-300), Kind: checkpoint.KindConnection, Name: "opened"},
		{At: at(-295), Kind: checkpoint.KindURL, URL: shop + "/", Target: "T1", Committed: true},
		{At: at(-290), Kind: checkpoint.KindStep, Name: "open_campaign_list"},
		{At: at(-280), Kind: checkpoint.KindURL, URL: shop + "/campaigns", Target: "T1", Committed: true},
		{At: at(-270), Kind: checkpoint.KindCheckpoint, Name: "campaign_listed", Safe: true},
		{At: at(-60), Kind: checkpoint.KindStep, Name: "submit_budget_change", Action: "submit", Sensitive: true},
		{At: at(-50), Kind: checkpoint.KindURL, URL: shop + "/billing/edit", Target: "T1", Sensitive: true, Committed: true},
		{At: at(-45), Kind: checkpoint.KindTyped, Name: string(checkpoint.FieldText), URL: shop + "/billing/edit", Target: "T1", Sensitive: true},
		{At: at(-40), Kind: checkpoint.KindTyped, Name: string(checkpoint.FieldCard), URL: shop + "/billing/edit", Target: "T1", Sensitive: true},
		{At: at(-30), Kind: checkpoint.KindForm, Method: "POST", URL: shop + "/billing/save", Target: "T1"},
		{At: at(-30), Kind: checkpoint.KindRequest, Method: "POST", URL: shop + "/billing/save", Type: "Document", Request: "r1", Gesture: true},
		{At: at(-29), Kind: checkpoint.KindAnswer, Status: 502, URL: shop + "/billing/save", Request: "r1"},
		{At: at(-20), Kind: checkpoint.KindDialog, Name: "confirm", URL: shop + "/billing/edit", Target: "T1"},
		{At: at(0), Kind: checkpoint.KindConnection, Name: "dropped"},
		{At: at(2), Kind: checkpoint.KindWithheld, Method: "POST", URL: shop + "/beacon"},
	}
	return numbered(entries)
}

func numbered(entries []checkpoint.Entry) []checkpoint.Entry {
	for i := range entries {
		entries[i].Seq, entries[i].Token = uint64(i+1), 16
	}
	return entries
}

// story are the events of a profile that was lost before, kept, approved, and lost again.
func story() []lease.Event {
	e := func(seconds int, event string, state lease.State, change ...func(*lease.Event)) lease.Event {
		ev := lease.Event{Event: event, State: state, At: noon.Add(time.Duration(seconds) * time.Second), Token: 17, SessionID: "ses_2", OwnerWorkerID: "worker-3", TaskID: "task_88", Reason: "connection_lost"}
		for _, c := range change {
			c(&ev)
		}
		return ev
	}
	earlier := func(ev *lease.Event) {
		ev.At, ev.Token, ev.SessionID, ev.OwnerWorkerID, ev.TaskID = ev.At.Add(-48*time.Hour), 11, "ses_1", "worker-9", "task_51"
	}
	by := func(name, note string) func(*lease.Event) {
		return func(ev *lease.Event) { ev.Reviewer, ev.Principal, ev.Note = name, "uid:1000", note }
	}
	decided := func(ev *lease.Event) {
		ev.Decision, ev.Reasons, ev.EvidenceID = "manual_review", []string{"unsafe requests were sent"}, "evd_1"
	}
	list := []lease.Event{
		e(-400, "granted", lease.Held, earlier), e(0, "suspected_stale", lease.SuspectedStale, earlier), e(1, "quarantined", lease.Quarantined, earlier),
		e(1, "expired", lease.Quarantined, earlier), e(2, "inspected", lease.Inspected, earlier), e(3, "manual_review", lease.ManualReview, earlier, decided),
		e(60, "manual_review", lease.ManualReview, earlier, decided, by("Ada", "asked the shop")),
		e(600, "available", lease.Available, earlier, by("Grace", "the order is there once"), func(ev *lease.Event) { ev.Decision, ev.Reason = "release", "review_approved" }),
		e(-300, "granted", lease.Held, func(ev *lease.Event) { ev.Reason = "" }),
		{Event: lease.EventConflict, At: noon.Add(-100 * time.Second), Token: 16, BlockedWorkerID: "worker-9", BlockedTaskID: "task_91", CurrentWorkerID: "worker-3", CurrentTaskID: "task_88", Decision: "rescheduled"},
		e(5, "suspected_stale", lease.SuspectedStale), e(8, "quarantined", lease.Quarantined), e(8, "expired", lease.Quarantined), e(9, "inspected", lease.Inspected),
		e(10, "manual_review", lease.ManualReview, decided, func(ev *lease.Event) { ev.EvidenceID, ev.LastKnownURL = "evd_2", hostile }),
		{Event: lease.EventLateWrite, At: noon.Add(20 * time.Second), Token: 16, CurrentToken: 17, Write: "release"},
	}
	for i := range list {
		if list[i].State != "" {
			list[i].Sequence = uint64(i + 1)
		}
	}
	return list
}

// inspection is what a recovery found, and what spoke against letting the profile go.
func inspection() api.Inspection {
	i := api.Inspection{
		Decision: lease.DecisionManualReview, Reasons: []string{"2 unsafe requests since the last safe checkpoint"}, DecisionVersion: 6,
		UnsafeRequests: []api.UnsafeRequest{
			{At: noon.Add(-30 * time.Second), Method: "POST", URL: "https://shop.example/billing/save?" + hostile, Times: 2, Status: 502, Answer: "502 Bad Gateway", Counts: "unsafe", SinceSafeCheckpoint: true,
				Shape: "POST https://shop.example/billing/save form(budget,campaign)"},
			{At: noon.Add(-50 * time.Second), Method: "POST", URL: "https://shop.example/graphql", Shape: "POST https://shop.example/graphql json(operationName,query) query operation=Feed text=9c6fe4857704", Times: 4, Status: 200, Answer: "200 OK", Counts: "unsafe"},
		},
		Against: []api.Objection{
			{Fact: "unsafe_requests", Answer: "yes", Sentence: "Unsafe requests were sent: 1 seen, the last POST https://shop.example/billing/save (502 Bad Gateway)."},
			{Fact: "sensitive_page_or_step", Answer: "yes", Sentence: "A sensitive step or page was reached: the step submit_budget_change."},
			{Fact: "dialog_waits_for_answer", Answer: "yes", Sentence: "A dialog waits for an answer: a dialog (confirm) is open on shop.example/billing."},
			{Fact: "account_session_kept", Answer: "unknown", Sentence: "The account's session is not shown to be its own any more, or nobody can tell: the cookies could not be read at the end."},
		},
	}
	for n, answer := range slices.Repeat([]string{"yes", "no", "unknown"}, 18) {
		i.Facts = append(i.Facts, api.Fact{Name: fmt.Sprintf("question_%d", n), Answer: answer, How: "1 seen, the last POST https://shop.example/billing/save " + hostile})
	}
	return i
}

// usual is the scene of a usual loss, told by the bundle of this id.
func usual(id string) scene {
	journal := checkpoint.Encode(session())
	commands := fmt.Sprintf(`{"entries":[{"at":%q,"method":"Input.insertText","target_id":"T2"},{"at":%q,"method":"Input.insertText","target_id":"T2"}]}`,
		noon.Add(-40*time.Second).Format(time.RFC3339), noon.Add(-38*time.Second).Format(time.RFC3339))
	look := `[{"page":1,"shows":[{"fact":"secret_input_unsent","how":"a card's number or code stands in a field of shop.example/billing/edit"}]}]`
	b := api.Bundle{
		EvidenceID: id, SessionID: "ses_2", Token: 16, At: noon.Add(3 * time.Second), RecoveryReason: "connection_lost", LastKnownURL: "https://shop.example/billing/edit",
		Pages: []api.BundlePage{
			{TargetID: "T2", URL: "https://mail.example/" + hostile, Title: hostile, Screenshot: "screenshot-2.jpg"},
			{TargetID: "T1", URL: "https://shop.example/billing/edit", Title: "Billing - Shop", Screenshot: "screenshot-1.jpg", Primary: true, Dialog: "confirm: Change the budget?"},
			{TargetID: "T3", URL: "https://shop.example/help", Title: "Help", Missing: "the renderer did not answer in 1.5 s"},
		},
		Pictures: []api.BundlePicture{
			{EvidenceID: "pic_1", Part: "screenshot-1.jpg", At: noon.Add(-270 * time.Second), URL: "https://shop.example/campaigns", Step: "open_campaign_list", Checkpoint: "campaign_listed"},
			{EvidenceID: "pic_2", Part: "screenshot-1.jpg", At: noon.Add(-45 * time.Second), URL: "https://shop.example/billing", Missing: "the page is sensitive"},
		},
		Parts: []api.Part{
			{Name: "screenshot-1.jpg", Kind: "screenshot", Bytes: 48213, SHA256: "ab"}, {Name: "screenshot-2.jpg", Kind: "screenshot", Bytes: 3000, SHA256: "ab"},
			{Name: "dom-1.html", Kind: "dom", Bytes: 120211, SHA256: "cd"}, {Name: "look.json", Kind: "look", Bytes: 1}, {Name: "commands.json", Kind: "commands", Bytes: 1},
			{Name: "journal.jsonl", Kind: "journal", Bytes: 4021, SHA256: "ef"}, {Name: "console.json", Kind: "console", Missing: "the renderer did not answer in 2 s"},
		},
	}
	return scene{
		inspection: inspection(), events: story(),
		bundles: []api.Bundle{b, {EvidenceID: "evd_1", SessionID: "ses_1", Token: 11, At: noon.Add(-48 * time.Hour), RecoveryReason: "connection_lost"}},
		parts: map[string][]byte{
			id + "/journal.jsonl": journal, id + "/commands.json": []byte(commands), id + "/look.json": []byte(look),
			id + "/screenshot-1.jpg": pagePicture(), id + "/screenshot-2.jpg": pagePicture(), id + "/dom-1.html": []byte(hostile), "pic_1/screenshot-1.jpg": pagePicture(),
		},
		problems: map[string]error{},
	}
}
