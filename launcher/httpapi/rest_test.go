package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

var snapshotsChecked = api.SnapshotsChecked{
	ProfileID: "store.18", Snapshots: []snapshots.CheckedSnapshot{{ID: "snap_1", Problems: []string{}}}, Chunks: 2, Bytes: 9,
}

var record = api.Profile{Record: lease.Record{
	ProfileID: "store.18", AccountID: "acc", State: lease.ManualReview, Token: 42, OwnerWorkerID: "worker-7", TaskID: "task_101",
	AcquiredAt: when, Settings: lease.Settings{MaxActiveRuns: 1}, Sequence: 9, Nonce: "secret-nonce", Outbox: []lease.Event{{Event: "held"}},
}}

const (
	shownSession = `{"session_id":"ses_1","profile_id":"store.18","lease_token":42,"worker_id":"worker-7","task_id":"task_101","state":"serving",` +
		`"dedicated_url":null,"acquired_at":"2026-11-20T11:59:30.123456789Z","expires_at":"2026-11-20T12:00:30.123456789Z","connections":1,"resume":null,"released":false,"person":null,"ask":null}`
	shownRecord = `{"profile_id":"store.18","account_id":"acc","proxy_id":"","state":"manual_review","lease_token":42,"session_id":"",` +
		`"owner_worker_id":"worker-7","task_id":"task_101","launcher_id":"","home":"","acquired_at":"2026-11-20T12:00:30.123456789Z","ttl_seconds":0,` +
		`"last_known_url":"","last_known_step":"","last_safe_checkpoint":"","resume_from":"","reason":"","decision":"","evidence_id":"","signed_in":"unknown","runs":[],"max_active_runs":1,"sequence":9}`
	recordedAnswer = `{"session_id":"ses_1","lease_token":42}`
)

var shop = api.Site{File: site.File{Name: "shop", Origins: []string{"https://shop.example"}, Requests: []site.Line{{Shape: "POST /search", Is: site.Read, SaidBy: "ann", SaidAt: when}}}, Revision: 3}

const shownSite = `{"name":"shop","origins":["https://shop.example"],"requests":[{"shape":"POST /search","is":"read","said_by":"ann","said_at":"2026-11-20T12:00:30.123456789Z"}],"revision":3}`

func TestREST(t *testing.T) {
	doc := document(t)
	inHands := held
	inHands.Person = &api.Person{Name: "Ada", Principal: "uid:7", Since: when}
	ended := held
	ended.State, ended.Ended, ended.Released, ended.Resume = api.SessionEnded, "released", true, &api.Resume{From: "step_4", Checkpoint: "listed"}
	bundle := api.Bundle{EvidenceID: "evd_1", Token: 41, At: when, RecoveryReason: "released"}
	for _, c := range []struct {
		name, method, path, body string
		answers                  map[string]any
		calls                    []string
		status                   int
		want                     string
	}{
		{"list sites", "GET", "/v1/sites", "", map[string]any{"Sites": []api.SiteSummary{{Name: "shop", Origins: []string{"https://shop.example"}, Requests: 2, Revision: 3}}}, []string{"Sites"}, 200, `{"items":[{"name":"shop","origins":["https://shop.example"],"requests":2,"revision":3}],"next":null}`},
		{"a site", "GET", "/v1/sites/shop", "", map[string]any{"Site": shop}, []string{`Site "shop"`}, 200, shownSite},
		{
			"put a site", "PUT", "/v1/sites/shop", `{"origins":["https://shop.example"],"requests":[{"shape":"POST /search","where":{"a":1,"b":"absent","c":{"matches":"x"}},"is":"read"}],"revision":2}`, map[string]any{"PutSite": shop},
			[]string{`PutSite "shop" {"name":"","origins":["https://shop.example"],"requests":[{"shape":"POST /search","where":{"a":"1","b":"absent","c":{"matches":"x"}},"is":"read"}],"revision":2}`}, 200, shownSite,
		},
		{"teach what requests do", "POST", "/v1/sites", `{"shape":"POST https://shop.example/x","is":"read","incident":"ev_1"}`, map[string]any{"TeachSite": shop}, []string{`TeachSite {"shape":"POST https://shop.example/x","is":"read","incident":"ev_1"}`}, 200, shownSite},
		{
			"try a site", "POST", "/v1/sites/shop/try", `{"origins":["https://shop.example"],"identity":{"get":"/me","take":["$.a"]},"profile_id":"p"}`,
			map[string]any{"TrySite": api.SiteTried{Name: "shop", ProfileID: "p", Questions: []api.QuestionTried{{Name: "identity", URL: "https://shop.example/me", State: "told", Picked: "ann", How: "h"}}}},
			[]string{`TrySite "shop" {"name":"","origins":["https://shop.example"],"identity":{"get":"/me","take":["$.a"]},"profile_id":"p"}`}, 200,
			`{"name":"shop","profile_id":"p","questions":[{"name":"identity","url":"https://shop.example/me","state":"told","picked":"ann","how":"h"}]}`,
		},
		{
			"decide again with a site", "POST", "/v1/sites/shop/replay", `{"origins":["https://shop.example"]}`,
			map[string]any{"ReplaySite": api.SiteReplayed{Name: "shop", Incidents: []api.IncidentReplayed{{EvidenceID: "ev_1", ProfileID: "p", At: time.Unix(1, 0).UTC(), Decided: "manual_review", Doubt: "d"}}}},
			[]string{`ReplaySite "shop" {"name":"","origins":["https://shop.example"]}`}, 200,
			`{"name":"shop","incidents":[{"evidence_id":"ev_1","profile_id":"p","at":"1970-01-01T00:00:01Z","decided":"manual_review","doubt":"d"}]}`,
		},
		{
			"what was counted for a site", "GET", "/v1/sites/shop/shapes", "", map[string]any{"SiteShapes": []api.SiteShape{{Shape: "POST https://shop.example/x", Sessions: 12, Accounts: 3, Unchanged: 11, LastAt: time.Unix(1, 0).UTC(), Proposed: "read"}}},
			[]string{`SiteShapes "shop"`}, 200, `{"items":[{"shape":"POST https://shop.example/x","sessions":12,"accounts":3,"unchanged":11,"changed":0,"last_at":"1970-01-01T00:00:01Z","proposed":"read"}],"next":null}`,
		},
		{"delete a site", "DELETE", "/v1/sites/shop?revision=3", "", map[string]any{"DeleteSite": nil}, []string{`DeleteSite "shop" {"Revision":3}`}, 200, `{"name":"shop"}`},
		{"list sessions", "GET", "/v1/sessions", "", map[string]any{"Sessions": []api.Session{held}}, []string{"Sessions"}, 200, `{"items":[` + shownSession + `],"next":null}`},
		{"no sessions, with a slash", "GET", "/v1/sessions/", "", map[string]any{"Sessions": []api.Session(nil)}, []string{"Sessions"}, 200, `{"items":[],"next":null}`},
		{"a session", "GET", "/v1/sessions/ses_1", "", map[string]any{"Session": held}, []string{`Session "ses_1"`}, 200, shownSession},
		{
			"heartbeat", "POST", "/v1/sessions/ses_1/heartbeat", `{"lease_token":42,"step":"s"}`, map[string]any{"Heartbeat": held},
			[]string{`Heartbeat "ses_1" {"lease_token":42,"step":"s"}`}, 200, shownSession,
		},
		{
			"step", "POST", "/v1/sessions/ses_1/steps", `{"lease_token":42,"name":"n","action":"a","sensitive":true}`, map[string]any{"Step": nil},
			[]string{`Step "ses_1" {"lease_token":42,"name":"n","action":"a","sensitive":true}`}, 201, recordedAnswer,
		},
		{
			"checkpoint", "POST", "/v1/sessions/ses_1/checkpoints", `{"lease_token":42,"name":"n","safe":false,"idempotent":true,"data":{"a":[1]}}`, map[string]any{"Checkpoint": nil},
			[]string{`Checkpoint "ses_1" {"lease_token":42,"name":"n","safe":false,"idempotent":true,"data":{"a":[1]}}`}, 201, recordedAnswer,
		},
		{
			"event", "POST", "/v1/sessions/ses_1/events", `{"lease_token":42,"type":"t","data":"d"}`, map[string]any{"Event": nil},
			[]string{`Event "ses_1" {"lease_token":42,"type":"t","data":"d"}`}, 201, recordedAnswer,
		},
		{
			"release by body", "DELETE", "/v1/sessions/ses_1", `{"lease_token":42,"outcome":"done","reason":"r"}`, map[string]any{"Release": ended},
			[]string{`Release "ses_1" {"lease_token":42,"outcome":"done","reason":"r"}`}, 200,
			strings.NewReplacer(`"serving"`, `"ended"`, `"resume":null,"released":false`, `"resume":{"from":"step_4","checkpoint":"listed"},"ended":"released","released":true`).Replace(shownSession),
		},
		{
			"release by query", "DELETE", "/v1/sessions/ses_1?lease_token=42&outcome=done&reason=a+b&recover=touched", "", map[string]any{"Release": held},
			[]string{`Release "ses_1" {"lease_token":42,"outcome":"done","reason":"a b","recover":"touched"}`}, 200, shownSession,
		},
		{
			"ask", "POST", "/v1/sessions/ses_1/ask", `{"lease_token":42,"reason":"code","wait":"5m"}`, map[string]any{"Ask": api.Answer{Answered: true, By: "Ada", Principal: "uid:7", Data: json.RawMessage(`{"code":1}`)}},
			[]string{`Ask "ses_1" {"lease_token":42,"reason":"code","wait":"5m0s"}`}, 200, `{"answered":true,"by":"Ada","principal":"uid:7","data":{"code":1}}`,
		},
		{
			"take over", "POST", "/v1/sessions/ses_1/take-over", `{"lease_token":42,"person":"Ada","note":"n","take_from":"Bo"}`, map[string]any{"TakeOver": inHands, "Session": held},
			[]string{`Session "ses_1"`, `TakeOver "ses_1" {"lease_token":42,"person":"Ada","note":"n","take_from":"Bo"}`}, 200,
			strings.Replace(shownSession, `"person":null`, `"person":{"name":"Ada","principal":"uid:7","since":"2026-11-20T12:00:30.123456789Z"}`, 1),
		},
		{
			"hand back", "POST", "/v1/sessions/ses_1/hand-back", `{"lease_token":42,"note":"done","answered":false,"data":[1]}`, map[string]any{"HandBack": held, "Session": held},
			[]string{`Session "ses_1"`, `HandBack "ses_1" {"lease_token":42,"note":"done","answered":false,"data":[1]}`}, 200, shownSession,
		},
		{"list profiles", "GET", "/v1/profiles", "", map[string]any{"ListProfiles": []api.Profile{record}}, []string{"ListProfiles"}, 200, `{"items":[` + shownRecord + `],"next":null}`},
		{"a profile", "GET", "/v1/profiles/store.18", "", map[string]any{"Profile": record}, []string{`Profile "store.18"`}, 200, shownRecord},
		{
			"put a profile", "PUT", "/v1/profiles/store.18", `{"account_id":"acc","expected_domains":["a"]}`, map[string]any{"PutProfile": record},
			[]string{`PutProfile "store.18" {"account_id":"acc","expected_domains":["a"]}`}, 200, shownRecord,
		},
		{"import a profile", "POST", "/v1/profiles/store.18/import", `{"from":"/data/chrome","proxy_id":"us"}`, map[string]any{"ImportProfile": record},
			[]string{`ImportProfile "store.18" {"from":"/data/chrome","proxy_id":"us"}`}, 201, shownRecord},
		{"clone a profile", "POST", "/v1/profiles/store.17/clone", `{"to":"store.18"}`, map[string]any{"CloneProfile": record},
			[]string{`CloneProfile "store.17" {"to":"store.18"}`}, 201, shownRecord},
		{"clone a snapshot", "POST", "/v1/profiles/store.17/clone", `{"to":"store.18","snapshot_id":"newest"}`, map[string]any{"CloneProfile": record},
			[]string{`CloneProfile "store.17" {"to":"store.18","snapshot_id":"newest"}`}, 201, shownRecord},
		{"move a profile", "POST", "/v1/profiles/store.18/move", `{"lease_token":7,"person":"ann"}`, map[string]any{"MoveProfile": record},
			[]string{`MoveProfile "store.18" {"lease_token":7,"person":"ann"}`}, 200, shownRecord},
		{"rehome a profile", "POST", "/v1/profiles/store.18/rehome", `{"lease_token":7,"from":"/data/chrome","person":"ann","note":"n","accept_loss":true}`, map[string]any{"RehomeProfile": record},
			[]string{`RehomeProfile "store.18" {"lease_token":7,"from":"/data/chrome","person":"ann","note":"n","accept_loss":true}`}, 200, shownRecord},
		{"archive a profile", "POST", "/v1/profiles/store.18/archive", "", map[string]any{"ArchiveProfile": api.Archived{ProfileID: "store.18", Path: "/p"}},
			[]string{`ArchiveProfile "store.18" {}`}, 200, `{"profile_id":"store.18","path":"/p","at":"0001-01-01T00:00:00Z"}`},
		{"list snapshots", "GET", "/v1/profiles/store.18/snapshots", "", map[string]any{"Snapshots": []api.Snapshot{{ID: "snap_1", ProfileID: "store.18", Token: 7, Files: 2, Bytes: 9}}},
			[]string{`Snapshots "store.18"`}, 200, `{"items":[{"snapshot_id":"snap_1","profile_id":"store.18","lease_token":7,"session_id":"","launcher_id":"","chrome_version":"","created_at":"0001-01-01T00:00:00Z","files":2,"bytes":9,"stored_bytes":0}],"next":null}`},
		{"restore a snapshot", "POST", "/v1/profiles/store.18/restore", `{"snapshot_id":"snap_1","lease_token":7,"note":"n"}`, map[string]any{"RestoreProfile": api.Restored{ProfileID: "store.18", SnapshotID: "snap_1", State: "available", Token: 8, Kept: "/a"}},
			[]string{`RestoreProfile "store.18" {"snapshot_id":"snap_1","lease_token":7,"note":"n"}`}, 200, `{"profile_id":"store.18","snapshot_id":"snap_1","state":"available","lease_token":8,"kept":"/a","at":"0001-01-01T00:00:00Z"}`},
		{"verify snapshots", "POST", "/v1/profiles/store.18/verify", "", map[string]any{"VerifySnapshots": snapshotsChecked},
			[]string{`VerifySnapshots "store.18" {}`}, 200, `{"profile_id":"store.18","snapshots":[{"snapshot_id":"snap_1","problems":[]}],"chunks":2,"bytes":9}`},
		{"remove a clone", "POST", "/v1/profiles/store.18/remove-clone", `{"lease_token":7}`, map[string]any{"RemoveClone": api.Removed{ProfileID: "store.18", CloneOf: "store.17"}},
			[]string{`RemoveClone "store.18" {"lease_token":7}`}, 200, `{"profile_id":"store.18","clone_of":"store.17","at":"0001-01-01T00:00:00Z"}`},
		{"check a profile", "POST", "/v1/profiles/store.18/check", "", map[string]any{"CheckProfile": api.SessionChecked{ProfileID: "store.18", SignedIn: "no", How: "h", Status: 302}},
			[]string{`CheckProfile "store.18"`}, 200, `{"profile_id":"store.18","signed_in":"no","how":"h","status":302,"at":"0001-01-01T00:00:00Z"}`},
		{"make a profile", "PUT", "/v1/profiles/store.18", "", map[string]any{"PutProfile": record}, []string{`PutProfile "store.18" {}`}, 200, shownRecord},
		{
			"history", "GET", "/v1/profiles/store.18/history", "", map[string]any{"History": []lease.Event{{Event: "granted", ProfileID: "store.18", Token: 42, At: when}}},
			[]string{`History "store.18"`}, 200, `{"items":[{"event":"granted","profile_id":"store.18","lease_token":42,"at":"2026-11-20T12:00:30.123456789Z"}],"next":null}`,
		},
		{"no history", "GET", "/v1/profiles/store.18/history", "", map[string]any{"History": []lease.Event(nil)}, []string{`History "store.18"`}, 200, `{"items":[],"next":null}`},
		{
			"evidence", "GET", "/v1/profiles/store.18/evidence", "", map[string]any{"Evidence": []api.Bundle{bundle}}, []string{`Evidence "store.18"`}, 200,
			`{"items":[{"evidence_id":"evd_1","lease_token":41,"at":"2026-11-20T12:00:30.123456789Z","recovery_reason":"released","parts":[]}],"next":null}`,
		},
		{
			"inspection", "GET", "/v1/profiles/store.18/inspection", "",
			map[string]any{"Inspection": api.Inspection{Facts: []api.Fact{{Name: "lease_expired", Answer: "yes", How: "a & b"}}, Decision: "manual_review", Reasons: []string{"r"},
				UnsafeRequests: []api.UnsafeRequest{{Method: "POST", URL: "https://a.example/b?c=REDACTED", Times: 2, Status: 200, Answer: "200 OK", Counts: "unsafe"}}}},
			[]string{`Inspection "store.18"`}, 200, `{"facts":[{"name":"lease_expired","answer":"yes","how":"a & b"}],"decision":"manual_review","reasons":["r"],"unsafe_requests":[{"at":"0001-01-01T00:00:00Z","method":"POST","url":"https://a.example/b?c=REDACTED","times":2,"status":200,"answer":"200 OK","counts":"unsafe","since_safe_checkpoint":false}]}`,
		},
		{"empty inspection", "GET", "/v1/profiles/store.18/inspection", "", map[string]any{"Inspection": api.Inspection{}}, []string{`Inspection "store.18"`}, 200, `{"facts":[],"decision":"","reasons":[]}`},
		{
			"review", "POST", "/v1/profiles/store.18/review", `{"lease_token":42,"decision":"approve","reviewer":"Ada","note":"n"}`, map[string]any{"Review": record},
			[]string{`Review "store.18" {"lease_token":42,"decision":"approve","reviewer":"Ada","note":"n"}`}, 200, shownRecord,
		},
		{"manifest, byte for byte", "GET", "/v1/evidence/evd_1", "", map[string]any{"EvidenceManifest": json.RawMessage("{ \"a\":1 }\n")}, []string{`EvidenceManifest "evd_1"`}, 200, "{ \"a\":1 }\n"},
		{"description", "GET", "/openapi.json", "", nil, nil, 200, string(description)},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, Options{}, c.answers)
			r, body := f.request(c.method, c.path, c.body)
			if r.StatusCode != c.status || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s, %s: want %d, application/json", r.Status, r.Header.Get("Content-Type"), c.status)
			}
			if strings.TrimSpace(body) != strings.TrimSpace(c.want) {
				t.Errorf("body\n%s\nwant\n%s", body, c.want)
			}
			for _, secret := range []string{capability, "secret-nonce", "40001"} {
				if strings.Contains(body, secret) {
					t.Errorf("the answer tells %s", secret)
				}
			}
			f.wantCalls(c.calls...)
			conforms(t, doc, c.method, c.path, r, body)
		})
	}
}

func TestCreateSession(t *testing.T) {
	doc := document(t)
	for _, c := range []struct{ service, path, body, call string }{
		{
			"Acquire", "/v1/sessions", `{"profile_id":"store.18","task_id":"task_101","wait":"5s","dedicated_port":true}`,
			`Acquire {"task_id":"task_101","worker_id":"127.0.0.1","profile_id":"store.18","wait":"5s","dedicated_port":true} false`,
		},
		{
			"Hold", "/v1/profiles/store.18/hold", `{"lease_token":41,"holder":"Ada","note":"n","lock_timeout_seconds":60,"headless":false}`,
			`Hold "store.18" {"lease_token":41,"holder":"Ada","note":"n","lock_timeout_seconds":60,"headless":false}`,
		},
	} {
		f := serve(t, Options{}, map[string]any{c.service: held})
		r, body := f.request("POST", c.path, c.body)
		want := `{"session_id":"ses_1","profile_id":"store.18","lease_token":42,"worker_id":"worker-7","task_id":"task_101","state":"serving",` +
			`"cdp_url":"ws://` + f.addr() + `/s/` + capability + `/devtools/browser/store.18","dedicated_url":"http://127.0.0.1:40001",` +
			`"acquired_at":"2026-11-20T11:59:30.123456789Z","expires_at":"2026-11-20T12:00:30.123456789Z","connections":1,"resume":null,"released":false,"person":null,"ask":null}` + "\n"
		if r.StatusCode != 201 || body != want || r.Header.Get("Location") != "/v1/sessions/ses_1" {
			t.Errorf("%s, Location %q\n%swant 201\n%s", r.Status, r.Header.Get("Location"), body, want)
		}
		f.wantCalls(c.call)
		conforms(t, doc, "POST", c.path, r, body)
	}
}

func TestClientThatLeavesDuringCreateLeavesNoSession(t *testing.T) {
	f := serve(t, Options{}, map[string]any{"Acquire": held, "Release": held})
	asked, left := make(chan struct{}), make(chan struct{})
	f.during = func(ctx context.Context) {
		close(asked)
		<-ctx.Done()
	}
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		defer close(left)
		r, err := http.NewRequestWithContext(ctx, "POST", f.URL+"/v1/sessions", strings.NewReader(`{"profile_id":"p"}`))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Content-Type", "application/json")
		if response, err := f.Client().Do(r); err == nil {
			_ = response.Body.Close()
			t.Errorf("answered %s to a client that left", response.Status)
		}
	}()
	<-asked
	leave()
	<-left
	f.Server.Close() // waits until the request is handled
	f.wantCalls(`Acquire {"worker_id":"127.0.0.1","profile_id":"p"} false`, `Release "ses_1" {"lease_token":42,"outcome":"","reason":"client_gone"}`)
}

func TestRefusedBodies(t *testing.T) {
	doc := document(t)
	big := `{"lease_token":42,"name":"n","data":"` + strings.Repeat("x", maxBody) + `"}`
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		field                    string
	}{
		{"no token in a heartbeat", "POST", "/v1/sessions/s/heartbeat", `{}`, 400, "lease_token"},
		{"no token in a step", "POST", "/v1/sessions/s/steps", `{"name":"n"}`, 400, "lease_token"},
		{"no token in a checkpoint", "POST", "/v1/sessions/s/checkpoints", `{"name":"n"}`, 400, "lease_token"},
		{"no token in an event", "POST", "/v1/sessions/s/events", `{"type":"t"}`, 400, "lease_token"},
		{"no token in a review", "POST", "/v1/profiles/p/review", `{"decision":"keep","reviewer":"r"}`, 400, "lease_token"},
		{"no token in a release", "DELETE", "/v1/sessions/s", `{"outcome":"o"}`, 400, "lease_token"},
		{"no token in a release by query", "DELETE", "/v1/sessions/s?outcome=o", ``, 400, "lease_token"},
		{"null instead of an object", "POST", "/v1/sessions/s/steps", `null`, 400, "lease_token"},
		{"bad token in the query", "DELETE", "/v1/sessions/s?lease_token=-1", ``, 400, "lease_token"},
		{"unknown name in the query", "DELETE", "/v1/sessions/s?lease_token=1&force=1", ``, 400, "force"},
		{"malformed query", "DELETE", "/v1/sessions/s?lease_token=%zz", ``, 400, ""},
		{"token of the wrong type", "POST", "/v1/sessions/s/steps", `{"lease_token":"42","name":"n"}`, 400, "lease_token"},
		{"unknown field", "POST", "/v1/sessions/s/steps", `{"lease_token":42,"nam":"n"}`, 400, "nam"},
		{"unknown field of a manifest", "POST", "/v1/sessions", `{"profile_id":"p","on_clos":"keep"}`, 400, "on_clos"},
		{"empty manifest", "POST", "/v1/sessions", ``, 400, ""},
		{"not JSON", "POST", "/v1/sessions", `profile_id=p`, 400, ""},
		{"unknown setting", "PUT", "/v1/profiles/p", `{"state":"available"}`, 400, "state"},
		{"too large", "POST", "/v1/sessions/s/checkpoints", big, 413, ""},
		{"profile id with a dot in front", "GET", "/v1/profiles/.hidden", ``, 400, "profile_id"},
		{"profile id with a space", "GET", "/v1/profiles/a%20b/history", ``, 400, "profile_id"},
		{"bad profile id, put", "PUT", "/v1/profiles/a%25b", `{}`, 400, "profile_id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, Options{}, nil)
			r, body := f.request(c.method, c.path, c.body)
			p := problemOf(t, r, body)
			if r.StatusCode != c.status || p.Code != api.CodeInvalidRequest || p.Field != c.field {
				t.Errorf("%s %+v, want %d, field %q", r.Status, p, c.status, c.field)
			}
			f.wantCalls()
			conforms(t, doc, c.method, c.path, r, body)
		})
	}
}

func TestRefusalsOfTheService(t *testing.T) {
	doc := document(t)
	conflict := api.Refuse(api.CodeConflict, "profile p is held by worker w for task t").With("current_worker_id", "w").With("lease_expires_at", when)
	conflict.RetryAfter = 7
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   string
		retry  string
		log    string
	}{
		{"conflict", conflict, 409, api.CodeConflict, "7", ""},
		{"wrapped", errors.Join(errors.New("closing too"), api.Refuse(api.CodeHostFull, "all taken")), 429, api.CodeHostFull, "", ""},
		{"wrong home is no redirect here", api.Refuse(api.CodeWrongHome, "elsewhere").With("location", "http://h2:9333"), 421, api.CodeWrongHome, "", ""},
		{"not a problem", errors.New("open /secret/path: no"), 500, api.CodeInternal, "", "open /secret/path"},
		{"cancelled by itself", context.Canceled, 500, api.CodeInternal, "", "context canceled"},
		{"without a status", &api.Problem{Code: api.CodeInternal, Detail: "d"}, 500, api.CodeInternal, "", "without a status"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, Options{}, map[string]any{"Acquire": c.err})
			r, body := f.request("POST", "/v1/sessions", `{"profile_id":"p"}`)
			p := problemOf(t, r, body)
			if r.StatusCode != c.status || p.Code != c.code || r.Header.Get("Retry-After") != c.retry || r.Header.Get("Location") != "" {
				t.Errorf("%s %v %+v, want %d %s, Retry-After %q", r.Status, r.Header, p, c.status, c.code, c.retry)
			}
			if strings.Contains(body, "secret") {
				t.Errorf("the answer tells of the inside: %s", body)
			}
			if !strings.Contains(f.log.String(), c.log) {
				t.Errorf("log %q, want %q in it", f.log, c.log)
			}
			conforms(t, doc, "POST", "/v1/sessions", r, body)
		})
	}
}

func TestEvidencePartCannotRun(t *testing.T) {
	f := serve(t, Options{}, map[string]any{"EvidencePart": content{[]byte("<script>1</script>"), "text/html"}})
	r, body := f.request("GET", "/v1/evidence/evd_1/dom-1.html", "")
	for name, want := range map[string]string{
		"Content-Type": "text/html", "Content-Security-Policy": "sandbox; default-src 'none'", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if body != "<script>1</script>" {
		t.Errorf("body %q", body)
	}
	f.wantCalls(`EvidencePart "evd_1" "dom-1.html" false`)

	for _, path := range []string{"/v1/evidence/evd_1/..%2f..%2fetc", "/v1/evidence/%2e%2e/manifest.json", "/v1/evidence/evd_1/%00", "/v1/evidence/a%5cb"} {
		r, body := f.request("GET", path, "")
		if p := problemOf(t, r, body); p.Code != api.CodeNotFound {
			t.Errorf("%s: %+v, want not_found", path, p)
		}
	}
	f.wantCalls()
}

func TestProbes(t *testing.T) {
	text := func(s string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) })
	}
	notReady := api.Refuse(api.CodeInvalidRequest, "no store")
	f := serve(t, Options{Metrics: text("leasehold_up 1"), Console: text("<p>console")}, map[string]any{"Ready": nil})
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n", "/metrics": "leasehold_up 1", "/": "<p>console", "": "<p>console"} {
		if r, body := f.request("GET", path, ""); r.StatusCode != 200 || body != want {
			t.Errorf("%s: %s %q, want 200 %q", path, r.Status, body, want)
		}
	}
	if r, body := f.request("HEAD", "/healthz", ""); r.StatusCode != 200 || body != "" || r.ContentLength != 3 {
		t.Errorf("HEAD: %s %q", r.Status, body)
	}
	f.answers["Ready"] = notReady
	r, body := f.request("GET", "/readyz", "")
	if p := problemOf(t, r, body); r.StatusCode != 503 || p.Detail != "no store" {
		t.Errorf("/readyz: %s %s, want 503 with the reason", r.Status, body)
	}
	f.answers["Ready"] = errors.New("inside")
	if r, body := f.request("GET", "/readyz", ""); r.StatusCode != 503 || strings.Contains(body, "inside") {
		t.Errorf("/readyz: %s %s, want 503 without the inside", r.Status, body)
	}
	for _, path := range []string{"/metrics", "/"} {
		if r, _ := serve(t, Options{}, nil).request("GET", path, ""); r.StatusCode != 404 {
			t.Errorf("%s without a handler: %s, want 404", path, r.Status)
		}
	}
}

// conforms checks an answer against what the OpenAPI document says about its route.
func conforms(t *testing.T, doc *openapi3.T, method, path string, r *http.Response, body string) {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	_, found := newMux(publicRoutes()).Handler(httptest.NewRequest(method, strings.TrimSuffix(path, "/"), nil))
	pattern, served := strings.CutPrefix(found, method+" ")
	if !served {
		t.Fatalf("no route for %s %s", method, path)
	}
	op := doc.Paths.Value(pattern).GetOperation(method)
	described := op.Responses.Status(r.StatusCode)
	if described == nil {
		t.Fatalf("%s %s: %d is not described", method, pattern, r.StatusCode)
	}
	mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	content := described.Value.Content.Get(mediaType)
	if content == nil {
		t.Fatalf("%s %s: %d: %s is not described", method, pattern, r.StatusCode, mediaType)
	}
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	if err := content.Schema.Value.VisitJSON(v, openapi3.EnableJSONSchema2020(), openapi3.VisitAsResponse()); err != nil {
		t.Errorf("%s %s: %d: %v\n%s", method, pattern, r.StatusCode, err, body)
	}
}
