package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"leasehold/launcher/api"
	"leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a sidecar that answers as a test scripted it: a value or an error for a method and path.
type fake struct {
	t *testing.T

	mu      sync.Mutex
	answers map[string]any
	calls   []string
	ended   chan string // what sessions were ended with
}

// inTurn are answers of which each is given once, and the last one again and again.
type inTurn []any

var granted = api.Session{SessionID: "ses_1", ProfileID: "shop_1", Token: 7, TaskID: "orders", CDPURL: "ws://sidecar/s/secret/devtools/browser/shop_1",
	ExpiresAt: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)}

func newFake(t *testing.T) *fake {
	return &fake{t: t, ended: make(chan string, 8), answers: map[string]any{
		"POST /v1/sessions": granted, "GET /v1/profiles/shop_1": api.Profile{Record: lease.Record{ProfileID: "shop_1", State: lease.Held, TTLSeconds: 30, OwnerWorkerID: "agent", EvidenceID: "ev_1"}},
		"POST /v1/sessions/ses_1/heartbeat": granted, "DELETE /v1/sessions/ses_1": api.Session{Released: true, Ended: "released"},
	}}
}

func (f *fake) set(call string, answer any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[call] = answer
}

// taken are the calls since the last time, without heartbeats.
func (f *fake) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return slices.DeleteFunc(calls, func(c string) bool { return strings.Contains(c, "/heartbeat") })
}

func (f *fake) Ask(ctx context.Context, method string, query url.Values, in any, path ...string) ([]byte, string, error) {
	call := method + " /" + strings.Join(path, "/")
	f.mu.Lock()
	defer f.mu.Unlock()
	answer, ok := f.answers[call]
	text := call
	if len(query) > 0 {
		text += "?" + query.Encode()
	}
	if in != nil {
		text += " " + string(encoded(in))
	}
	f.calls = append(f.calls, text)
	if method == http.MethodDelete {
		f.ended <- string(encoded(in))
	}
	if all, isTurn := answer.(inTurn); isTurn {
		if answer = all[0]; len(all) > 1 {
			f.answers[call] = all[1:]
		}
	}
	if err, isError := answer.(error); isError {
		return nil, "", err
	}
	if b, isBytes := answer.([]byte); isBytes {
		return b, "image/png", nil
	}
	if !ok {
		f.t.Errorf("a call that no test scripted: %s", text)
	}
	return encoded(answer), "application/json", nil
}

func (f *fake) Acquire(ctx context.Context, m api.Manifest) (s api.Session, _ Sidecar, err error) {
	b, _, err := f.Ask(ctx, http.MethodPost, nil, m, "v1", "sessions")
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, f, err
}

// client connects the SDK's client to a server of one agent.
func client(t *testing.T, a *Agent) *sdk.ClientSession {
	t.Helper()
	near, far := sdk.NewInMemoryTransports()
	server, err := NewServer("1", Instructions, func(*sdk.ServerSession) *Agent { return a }).Connect(t.Context(), near, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), far, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Leave()
		_ = c.Close()
		_ = server.Wait()
	})
	return c
}

// text calls a tool, and returns the text of its answer.
func text(t *testing.T, c *sdk.ClientSession, tool string, arguments map[string]any) (text string, refused bool) {
	t.Helper()
	if arguments == nil {
		arguments = map[string]any{}
	}
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return r.Content[0].(*sdk.TextContent).Text, r.IsError
}

func TestEachToolAsksTheSidecar(t *testing.T) {
	f := newFake(t)
	c := client(t, New(f, Options{Base: api.Manifest{WorkerID: "agent"}}))
	f.set("GET /v1/profiles", map[string]any{"items": []api.Profile{{Record: lease.Record{ProfileID: "shop_1", State: lease.Held, OwnerWorkerID: "w", Nonce: "hidden"}}}})
	for _, path := range []string{"steps", "checkpoints"} {
		f.set("POST /v1/sessions/ses_1/"+path, map[string]any{"session_id": "ses_1"})
	}
	f.set("POST /v1/sessions/ses_1/ask", api.Answer{Answered: true, By: "Ann", Note: "typed it"})
	f.set("GET /v1/sessions/ses_1", api.Session{SessionID: "ses_1", State: api.SessionServing})
	for _, call := range []struct {
		tool      string
		arguments map[string]any
		asks      string
		says      string
	}{
		{"list_profiles", map[string]any{"free": true, "labels": map[string]any{"region": "us"}}, "GET /v1/profiles?free=true&label=region%3Aus&limit=100",
			`{"profiles":[{"profile_id":"shop_1","state":"held","owner_worker_id":"w"}]}`},
		{"lease_profile", map[string]any{"profile_id": "shop_1", "task_id": "orders", "wait_seconds": 10, "read_only": true},
			`POST /v1/sessions {"task_id":"orders","worker_id":"agent","profile_id":"shop_1","wait":"10s","read_only":true,"heartbeat":"explicit","on_close":"keep"}`,
			`"cdp_url":"ws://sidecar/s/secret/devtools/browser/shop_1"`},
		{"step", map[string]any{"name": "open_list", "sensitive": true}, `POST /v1/sessions/ses_1/steps {"lease_token":7,"name":"open_list","sensitive":true}`, `"name":"open_list"`},
		{"checkpoint", map[string]any{"name": "read", "data": map[string]any{"page": 3}, "safe": false},
			`POST /v1/sessions/ses_1/checkpoints {"lease_token":7,"name":"read","safe":false,"data":{"page":3}}`, `"profile_id":"shop_1"`},
		{"ask_person", map[string]any{"reason": "the code", "wait_seconds": 60}, `POST /v1/sessions/ses_1/ask {"lease_token":7,"reason":"the code","wait":"1m0s"}`, "typed it"},
		{"why", nil, "GET /v1/sessions/ses_1", `"evidence":"leasehold://evidence/ev_1"`},
		{"release", map[string]any{"profile_id": "shop_1", "outcome": "failed"}, `DELETE /v1/sessions/ses_1 {"lease_token":7,"outcome":"failed","recover":"touched"}`, `"released":true`},
	} {
		f.taken()
		said, refused := text(t, c, call.tool, call.arguments)
		if asked := f.taken(); refused || len(asked) == 0 || asked[0] != call.asks || !strings.Contains(said, call.says) {
			t.Errorf("%s asked %q and said %s, refused: %v", call.tool, asked, said, refused)
		}
	}
}

func TestTheToolsAreThoseOfTheList(t *testing.T) {
	c := client(t, New(newFake(t), Options{}))
	var got []string
	for tool, err := range c.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, tool.Name)
	}
	want := slices.Sorted(slices.Values(names))
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("tools %v, want %v", got, want)
	}
}

func TestEvidenceIsAResource(t *testing.T) {
	f := newFake(t)
	c := client(t, New(f, Options{}))
	f.set("GET /v1/evidence/ev_1", map[string]any{"session_id": "ses_1"})
	f.set("GET /v1/profiles/shop_1/evidence", map[string]any{"items": []any{}})
	f.set("GET /v1/evidence/ev_1/screenshot-1.png", []byte("\x89PNG"))
	f.set("GET /v1/evidence/ev_1/huge", make([]byte, maxResource+1))
	f.set("GET /v1/evidence/ev_2", api.Refuse(api.CodeForbidden, "you are a worker"))
	f.set("GET /v1/evidence/ev_3", api.Refuse(api.CodeNotFound, "no bundle"))
	for uri, want := range map[string]string{
		"evidence/ev_1": `{"session_id":"ses_1"}`, "profiles/shop_1/evidence": `{"items":[]}`, "evidence/ev_1/screenshot-1.png": "image/png \x89PNG",
		"evidence/ev_1/huge": "at most 8388608 are sent here", "evidence/ev_2": "you are a worker: tell the user", "evidence/ev_3": "Resource not found",
		"evidence/..": "Resource not found", "evidence/%2E%2E/..": "Resource not found", "sessions/ses_1": "Resource not found",
	} {
		r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: scheme + uri})
		got := fmt.Sprint(err)
		if err == nil && r.Contents[0].Blob != nil {
			got = r.Contents[0].MIMEType + " " + string(r.Contents[0].Blob)
		} else if err == nil {
			got = r.Contents[0].Text
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", uri, got, want)
		}
	}
}

func TestARefusalIsOneSentenceThatSaysWhatToDoNext(t *testing.T) {
	conflict := api.Refuse(api.CodeConflict, "profile shop_1 is held by worker w for task t")
	conflict.RetryAfter = 12
	for _, c := range []struct {
		err  error
		want string
	}{
		{conflict, "profile shop_1 is held by worker w for task t: call lease_profile again in 12 seconds or with wait_seconds, or lease another profile that list_profiles shows as free."},
		{fmt.Errorf("refused: %w", conflict), "profile shop_1 is held by worker w for task t: call lease_profile again in 12 seconds or with wait_seconds, or lease another profile that list_profiles shows as free."},
		{api.Refuse(api.CodeUnknownSession, "you have no profile now"),
			"you have no profile now: call lease_profile first, but why with its profile_id if you had one before."},
		{api.Refuse(api.CodeStoreUnavailable, "NATS is away. It was here."), "NATS is away; It was here: call the tool again in a moment."},
		{api.Refuse("a_new_code", "no"), "no: tell the user."},
		{&lostError{"shop_1", api.Refuse(api.CodeSessionEnded, "it is over")},
			"your lease of profile shop_1 is lost (it is over): call why to see what was decided, and lease_profile to lease it again."},
		{errors.New("the sidecar cannot be reached"), "the sidecar cannot be reached: call the tool again in a moment, or tell the user."},
	} {
		if got := refusalOf("lease_profile", c.err).Text; got != c.want {
			t.Errorf("%v:\n got %s\nwant %s", c.err, got, c.want)
		}
	}
	for code := range maps.Keys(next) {
		if _, ok := api.Meanings[code]; !ok {
			t.Errorf("%s is no code", code)
		}
	}
}

func TestWhatTheFlagsSayBindsTheAgent(t *testing.T) {
	yes := true
	for _, c := range []struct {
		base api.Manifest
		in   leaseIn
		want string // a part of the manifest, or of the refusal
	}{
		{api.Manifest{}, leaseIn{Labels: map[string]string{"region": "us"}}, `"labels":{"region":"us"}`},
		{api.Manifest{ProfileID: "shop_1"}, leaseIn{}, `"profile_id":"shop_1"`},
		{api.Manifest{ProfileID: "shop_1"}, leaseIn{ProfileID: "shop_1"}, `"profile_id":"shop_1"`},
		{api.Manifest{ProfileID: "shop_1"}, leaseIn{ProfileID: "shop_2"}, "started for shop_1 only"},
		{api.Manifest{ProfileID: "shop_1"}, leaseIn{Labels: map[string]string{"region": "us"}}, "started for shop_1 only"},
		{api.Manifest{AccountID: "store"}, leaseIn{ProfileID: "shop_2"}, "started for profiles of its own choice only"},
		{api.Manifest{AccountID: "store", TaskID: "orders"}, leaseIn{TaskID: "orders"}, `"task_id":"orders"`},
		{api.Manifest{AccountID: "store", TaskID: "orders"}, leaseIn{TaskID: "others"}, "started for task orders only"},
		{api.Manifest{AccountID: "store", ReadOnly: &yes, AllowedActions: []string{"read"}}, leaseIn{}, `"allowed_actions":["read"],"read_only":true`},
		{api.Manifest{ProfileID: "shop_1"}, leaseIn{SignIn: true}, `"sign_in":true`},
		{api.Manifest{}, leaseIn{}, "profile_id"},
		{api.Manifest{ProfileID: "shop_1"}, leaseIn{WaitSeconds: 601}, "wait: want at most 10m0s"},
		{api.Manifest{ProfileID: "shop_1"}, leaseIn{WaitSeconds: 1e300}, "wait"},
	} {
		a := New(nil, Options{Base: c.base})
		m, err := a.manifest(c.in)
		got := fmt.Sprint(err)
		if err == nil {
			got = string(encoded(m))
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%+v with %+v: %s, want %s", c.base, c.in, got, c.want)
		}
	}
}

func TestALostLeaseIsRefusedWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		gone := make(chan struct{}, 1)
		a := New(f, Options{Base: api.Manifest{ProfileID: "shop_1"}, Gone: func() { gone <- struct{}{} }})
		if err := a.Lease(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.set("POST /v1/sessions/ses_1/heartbeat", errors.New("the sidecar is restarting"))
		time.Sleep(time.Minute)
		if err := a.Usable(t.Context()); err != nil {
			t.Errorf("while the sidecar is away: %v", err)
		}
		f.set("POST /v1/sessions/ses_1/heartbeat", api.Refuse(api.CodeStaleToken, "token 7: the current token is 8"))
		<-gone
		if _, err := a.step(t.Context(), stepIn{Name: "s"}); !strings.Contains(fmt.Sprint(err), "your lease of profile shop_1 is lost (stale_lease_token: token 7") {
			t.Errorf("a step after the loss: %v", err)
		}
		f.set("POST /v1/sessions/ses_1/heartbeat", granted)
		if err := a.Lease(t.Context()); err != nil || a.Usable(t.Context()) != nil {
			t.Errorf("a lease after the loss: %v", err)
		}
		if _, err := a.leaseProfile(t.Context(), leaseIn{TaskID: "other"}); !strings.Contains(fmt.Sprint(err), "you have profile shop_1 already") {
			t.Errorf("a second lease: %v", err)
		}
		a.Leave()
	})
}

func TestAnAgentThatEndsHasItsSessionsRecovered(t *testing.T) {
	f := newFake(t)
	a := New(f, Options{Base: api.Manifest{ProfileID: "shop_1"}})
	if err := a.Lease(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.End(api.Release{}); err != nil {
		t.Fatal(err)
	}
	if got := <-f.ended; got != `{"lease_token":7,"outcome":"failed","reason":"the agent ended without a release","recover":"always"}` {
		t.Errorf("ended with %s", got)
	}
	f.taken()
	if err := a.Lease(t.Context()); !errors.Is(err, errEnded) || len(f.taken()) > 0 {
		t.Errorf("a lease after the end: %v", err)
	}
}

// late is a sidecar that answers a request for a session when it is told to, or when nobody waits any more.
type late struct {
	*fake
	answer chan struct{}
}

func (l late) Acquire(ctx context.Context, m api.Manifest) (api.Session, Sidecar, error) {
	select {
	case <-l.answer:
		return l.fake.Acquire(ctx, m)
	case <-ctx.Done():
		return api.Session{}, nil, ctx.Err()
	}
}

// TestASessionThatIsGrantedWhileItsAgentEnds is given back before the end is over, also if the agent's connection is
// gone by then. For one that is not granted soon nobody waits.
func TestASessionThatIsGrantedWhileItsAgentEnds(t *testing.T) {
	for name, c := range map[string]struct {
		gone    error // why the call ended; nil: it has not
		granted bool
	}{
		"in time":                        {nil, true},
		"when the connection was closed": {errors.New("EOF"), true},
		"never":                          {nil, false},
		"the call is withdrawn":          {context.Canceled, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := late{newFake(t), make(chan struct{})}
				a := New(f, Options{Base: api.Manifest{ProfileID: "shop_1"}})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				leased, ended := make(chan error, 1), make(chan struct{})
				go func() { leased <- a.Lease(ctx) }()
				synctest.Wait()
				if c.gone != nil {
					cancel(c.gone)
				}
				var err error
				go func() { defer close(ended); err = a.End(api.Release{}) }()
				synctest.Wait()
				if c.granted {
					close(f.answer)
				}
				<-ended
				if given := len(f.ended) == 1; given != c.granted || err != nil {
					t.Errorf("when the end was over, the session was given back: %t, want %t; %v", given, c.granted, err)
				}
				if err := <-leased; err == nil {
					t.Error("the agent was told of a lease after its end")
				}
			})
		})
	}
}

func TestTheLastReleaseOfAnAgentIsSentAgainWhileTheSidecarRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		a := New(f, Options{Base: api.Manifest{ProfileID: "shop_1"}})
		if err := a.Lease(t.Context()); err != nil {
			t.Fatal("the lease:", err)
		}
		f.set("DELETE /v1/sessions/ses_1", inTurn{errors.New("the sidecar is restarting"), errors.New("the sidecar is restarting"), api.Session{Released: true}})
		if err := a.End(api.Release{Outcome: "succeeded"}); err != nil {
			t.Error("the end:", err)
		}
		if len(f.ended) != 3 {
			t.Errorf("the release was sent %d times, want 3", len(f.ended))
		}
	})
}

func TestAReleaseThatDoesNotArriveCanBeAskedForAgain(t *testing.T) {
	f := newFake(t)
	a := New(f, Options{Base: api.Manifest{ProfileID: "shop_1"}})
	if err := a.Lease(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.set("DELETE /v1/sessions/ses_1", errors.New("the sidecar is restarting"))
	if _, err := a.release(t.Context(), releaseIn{}); err == nil || a.Usable(t.Context()) != nil {
		t.Errorf("a release that did not arrive: %v", err)
	}
	f.set("DELETE /v1/sessions/ses_1", api.Session{Released: true})
	if _, err := a.release(t.Context(), releaseIn{}); err != nil || a.Usable(t.Context()) == nil {
		t.Errorf("the release after that: %v", err)
	}
	a.Leave()
}

// TestAReleaseIsAnsweredAgain: the answer may have been lost on its way to the agent.
func TestAReleaseIsAnsweredAgain(t *testing.T) {
	f := newFake(t)
	c := client(t, New(f, Options{}))
	if got, refused := text(t, c, "release", nil); !refused || !strings.Contains(got, "you have no profile now") {
		t.Errorf("before any lease: %s", got)
	}
	text(t, c, "lease_profile", map[string]any{"profile_id": "shop_1"})
	f.second()
	text(t, c, "lease_profile", map[string]any{"profile_id": "shop_2"})
	f.set("DELETE /v1/sessions/ses_2", api.Session{Released: true, Ended: "released as well"})
	for _, in := range []map[string]any{{"profile_id": "shop_1"}, {"profile_id": "shop_1"}, nil, nil, {"profile_id": "shop_1"}, {"profile_id": "shop_2"}} {
		want := `{"profile_id":"shop_2","released":true,"ended":"released as well"}`
		if in["profile_id"] == "shop_1" {
			want = `{"profile_id":"shop_1","released":true,"ended":"released"}`
		}
		if got, _ := text(t, c, "release", in); got != want {
			t.Errorf("%v: %s, want %s", in, got, want)
		}
	}
	if calls := strings.Join(f.taken(), "\n"); strings.Count(calls, "DELETE") != 2 {
		t.Errorf("each is released once:\n%s", calls)
	}
	// The next lease of the profile is another matter.
	text(t, c, "lease_profile", map[string]any{"profile_id": "shop_2"})
	over := api.Refuse(api.CodeSessionEnded, "it is over")
	f.set("DELETE /v1/sessions/ses_2", over)
	f.set("GET /v1/sessions/ses_2", api.Session{State: api.SessionEnded})
	for _, want := range []string{"your lease of profile shop_2 is lost", "you do not have profile shop_2 now"} {
		if got, refused := text(t, c, "release", map[string]any{"profile_id": "shop_2"}); !refused || !strings.Contains(got, want) {
			t.Errorf("a lease that was lost: %s, want %s", got, want)
		}
	}
	if got, refused := text(t, c, "release", nil); !refused {
		t.Errorf("a release of no profile after a loss: %s", got)
	}
}

// TestAReleaseOfNoNamedProfileIsAnsweredAgain though a lost lease is left, which is not what was released.
func TestAReleaseOfNoNamedProfileIsAnsweredAgain(t *testing.T) {
	for _, losses := range []int{1, 2} {
		f := newFake(t)
		c := client(t, New(f, Options{}))
		for i := range losses {
			s := f.grants(fmt.Sprintf("ses_lost_%d", i), fmt.Sprintf("lost_%d", i))
			f.set("POST /v1/sessions/"+s.SessionID+"/steps", api.Refuse(api.CodeSessionEnded, "it is over"))
			text(t, c, "lease_profile", map[string]any{"profile_id": s.ProfileID})
			if got, _ := text(t, c, "step", map[string]any{"name": "s", "profile_id": s.ProfileID}); !strings.Contains(got, "is lost") {
				t.Fatalf("a step: %s", got)
			}
		}
		s := f.second()
		f.set("DELETE /v1/sessions/"+s.SessionID, api.Session{Released: true, Ended: "released"})
		text(t, c, "lease_profile", map[string]any{"profile_id": s.ProfileID})
		f.taken()
		for range 2 {
			if got, _ := text(t, c, "release", nil); got != `{"profile_id":"shop_2","released":true,"ended":"released"}` {
				t.Errorf("with %d lost: %s", losses, got)
			}
		}
		if calls := f.taken(); len(calls) != 1 {
			t.Errorf("with %d lost, one release: %q", losses, calls)
		}
		f.set("DELETE /v1/sessions/ses_lost_0", api.Session{Ended: "lost"})
		if got, refused := text(t, c, "release", map[string]any{"profile_id": "lost_0"}); refused || !strings.Contains(got, `"profile_id":"lost_0","released":false`) {
			t.Errorf("the lost one by its name: %s", got)
		}
	}
}

// TestALeaseIsAnsweredAgain: who had no answer does not know the address of the browser.
func TestALeaseIsAnsweredAgain(t *testing.T) {
	f := newFake(t)
	c := client(t, New(f, Options{}))
	in := map[string]any{"profile_id": "shop_1", "resumable": true}
	first, _ := text(t, c, "lease_profile", in)
	in["wait_seconds"] = 60
	now := granted // as it is now, without what only who leases it is told
	now.ExpiresAt, now.Token, now.CDPURL = granted.ExpiresAt.Add(time.Hour), 0, ""
	f.set("POST /v1/sessions/ses_1/heartbeat", now)
	want := strings.Replace(first, "T12:00:00Z", "T13:00:00Z", 1)
	if again, refused := text(t, c, "lease_profile", in); refused || again != want || again == first {
		t.Errorf("the same lease: %s, want %s", again, want)
	}
	f.set("POST /v1/sessions/ses_1/heartbeat", errors.New("away"))
	if again, refused := text(t, c, "lease_profile", in); refused || again != first {
		t.Errorf("the same lease, while the sidecar is away: %s, want %s", again, first)
	}
	for _, other := range []map[string]any{{"profile_id": "shop_1"}, {"profile_id": "shop_1", "resumable": true, "task_id": "other"}} {
		if got, refused := text(t, c, "lease_profile", other); !refused || !strings.Contains(got, "you have profile shop_1 already") {
			t.Errorf("another lease of it: %s", got)
		}
	}
	if calls := strings.Join(f.taken(), "\n"); strings.Count(calls, "POST /v1/sessions ") != 1 {
		t.Errorf("it is leased once:\n%s", calls)
	}
	f.set("POST /v1/sessions/ses_1/heartbeat", api.Refuse(api.CodeSessionEnded, "it is over"))
	anew := granted
	anew.Token = 9
	f.set("POST /v1/sessions", anew)
	if again, refused := text(t, c, "lease_profile", in); refused || !strings.Contains(again, `"lease_token":9`) {
		t.Errorf("the same lease, when the first is lost: %s", again)
	}
	// Two leases of any profile are two.
	f.second()
	labels := map[string]any{"labels": map[string]any{"region": "us"}}
	if got, refused := text(t, c, "lease_profile", labels); refused || !strings.Contains(got, `"profile_id":"shop_2"`) {
		t.Errorf("any profile: %s", got)
	}
	third := granted
	third.SessionID, third.ProfileID = "ses_3", "shop_3"
	f.set("POST /v1/sessions", third)
	f.set("GET /v1/profiles/shop_3", api.Profile{Record: lease.Record{ProfileID: "shop_3", State: lease.Held, TTLSeconds: 30}})
	f.set("POST /v1/sessions/ses_3/heartbeat", third)
	if got, refused := text(t, c, "lease_profile", labels); refused || !strings.Contains(got, `"profile_id":"shop_3"`) {
		t.Errorf("any other profile: %s", got)
	}
}

// TestALeaseThatIsAskedForTwiceIsOne: the first call may have been cut off while it waits for the profile.
func TestALeaseThatIsAskedForTwiceIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slow{newFake(t), make(chan struct{}, 2), make(chan struct{})}
		a := New(s, Options{})
		defer a.Leave()
		answers := make(chan string, 2)
		for range 2 {
			go func() {
				out, err := a.leaseProfile(t.Context(), leaseIn{ProfileID: "shop_1", WaitSeconds: 600})
				answers <- fmt.Sprintf("%s %v", encoded(out), err)
			}()
		}
		synctest.Wait()
		if n := len(s.asked); n != 1 {
			t.Errorf("%d sessions are asked for", n)
		}
		close(s.grant)
		for range 2 {
			if got := <-answers; !strings.Contains(got, `"session_id":"ses_1"`) {
				t.Errorf("%s", got)
			}
		}
	})
}

// TestAReleaseThatIsRefusedCanBeAskedForAgain: the session lives on until then.
func TestAReleaseThatIsRefusedCanBeAskedForAgain(t *testing.T) {
	f := newFake(t)
	c := client(t, New(f, Options{}))
	text(t, c, "lease_profile", map[string]any{"profile_id": "shop_1"})
	f.set("DELETE /v1/sessions/ses_1", inTurn{api.Invalid("", "the body has more than 1048576 bytes"), api.Session{Released: true}})
	if got, refused := text(t, c, "release", nil); !refused || !strings.Contains(got, "correct the arguments and call the tool again") {
		t.Errorf("a release that is refused: %s", got)
	}
	if got, refused := text(t, c, "release", nil); refused || !strings.Contains(got, `"released":true`) {
		t.Errorf("the next: %s", got)
	}
}

// second is a session on another profile, which a sidecar grants after this.
func (f *fake) second() api.Session { return f.grants("ses_2", "shop_2") }

// grants makes a session that which a sidecar grants after this.
func (f *fake) grants(sessionID, profileID string) api.Session {
	s := granted
	s.SessionID, s.ProfileID = sessionID, profileID
	f.set("POST /v1/sessions", s)
	f.set("GET /v1/profiles/"+profileID, api.Profile{Record: lease.Record{ProfileID: profileID, State: lease.Held, TTLSeconds: 30}})
	for _, call := range []string{"/heartbeat", "/steps"} {
		f.set("POST /v1/sessions/"+sessionID+call, s)
	}
	return s
}

// TestALostLeaseIsNotOneThatTheAgentHas: it does not have to say which of two it means, and what is lost can be
// given up.
func TestALostLeaseIsNotOneThatTheAgentHas(t *testing.T) {
	over := api.Refuse(api.CodeSessionEnded, "it is over")
	f := newFake(t)
	c := client(t, New(f, Options{}))
	text(t, c, "lease_profile", map[string]any{"profile_id": "shop_1"})
	f.second()
	text(t, c, "lease_profile", map[string]any{"profile_id": "shop_2"})
	if got, _ := text(t, c, "step", map[string]any{"name": "s"}); !strings.Contains(got, "you have 2 profiles") {
		t.Errorf("with two profiles: %s", got)
	}
	f.set("POST /v1/sessions/ses_1/steps", over)
	f.set("GET /v1/sessions/ses_1", api.Session{State: api.SessionEnded})
	if got, _ := text(t, c, "step", map[string]any{"name": "s", "profile_id": "shop_1"}); !strings.Contains(got, "your lease of profile shop_1 is lost") {
		t.Errorf("a step of the lost one: %s", got)
	}
	if got, refused := text(t, c, "why", nil); refused || !strings.Contains(got, `"profile":{"profile_id":"shop_1"`) {
		t.Errorf("why after that: %s", got)
	}
	if got, _ := text(t, c, "step", map[string]any{"name": "s"}); !strings.Contains(got, `"profile_id":"shop_2"`) {
		t.Errorf("with one of two lost: %s", got)
	}
	f.set("POST /v1/sessions/ses_2/steps", over)
	if got, _ := text(t, c, "step", map[string]any{"name": "s"}); !strings.Contains(got, "your lease of profile shop_2 is lost") {
		t.Errorf("a step that meets the loss of the second: %s", got)
	}
	if got, _ := text(t, c, "step", map[string]any{"name": "s"}); !strings.Contains(got, "your leases of 2 profiles are lost: name one of them") {
		t.Errorf("with both lost: %s", got)
	}
	f.set("DELETE /v1/sessions/ses_1", over)
	f.set("DELETE /v1/sessions/ses_2", api.Refuse(api.CodeUnknownSession, "nobody knows it"))
	f.set("GET /v1/sessions/ses_2", over)
	for _, profile := range []string{"shop_1", "shop_2"} {
		if got, refused := text(t, c, "release", map[string]any{"profile_id": profile}); !refused || strings.Contains(got, "do not have") {
			t.Errorf("a release of what is lost: %s", got)
		}
		if got, _ := text(t, c, "step", map[string]any{"name": "s", "profile_id": profile}); !strings.Contains(got, "you do not have profile "+profile+" now") {
			t.Errorf("after that: %s", got)
		}
	}
}

// TestASessionThatNobodyKnowsIsLost at once, and not with the next heartbeat.
func TestASessionThatNobodyKnowsIsLost(t *testing.T) {
	f := newFake(t)
	c := client(t, New(f, Options{}))
	text(t, c, "lease_profile", map[string]any{"profile_id": "shop_1"})
	f.set("POST /v1/sessions/ses_1/steps", api.Refuse(api.CodeUnknownSession, "no session ses_1 is known here"))
	if got, _ := text(t, c, "step", map[string]any{"name": "s"}); !strings.HasPrefix(got, "your lease of profile shop_1 is lost (no session ses_1 is known here): call why to see what was decided") {
		t.Errorf("a step: %s", got)
	}
	if got, refused := text(t, c, "lease_profile", map[string]any{"profile_id": "shop_1", "task_id": "other"}); refused {
		t.Errorf("a lease after that: %s", got)
	}
}

// TestALeaseThatIsLostAsAnyCanBeReleased, as one whose API token was refused for a while.
func TestALeaseThatIsLostAsAnyCanBeReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		gone := make(chan struct{}, 8)
		a := New(f, Options{Gone: func() { gone <- struct{}{} }})
		defer a.Leave()
		if _, err := a.leaseProfile(t.Context(), leaseIn{ProfileID: "shop_1"}); err != nil {
			t.Fatal(err)
		}
		f.set("POST /v1/sessions/ses_1/heartbeat", api.Refuse(api.CodeUnauthenticated, "no such token"))
		<-gone
		if out, err := a.release(t.Context(), releaseIn{}); err != nil || !strings.Contains(string(encoded(out)), `"released":true`) {
			t.Errorf("%s: %v", encoded(out), err)
		}
	})
}

// TestATokenIsReplacedWithoutALoss: the old one is refused until the agent's next request, which may come late,
// as the agent drives the browser meanwhile.
func TestATokenIsReplacedWithoutALoss(t *testing.T) {
	for _, code := range []string{api.CodeUnauthenticated, api.CodeForbidden} {
		synctest.Test(t, func(t *testing.T) {
			first, second := newFake(t), newFake(t)
			by := &newest{now: first}
			a := New(by, Options{})
			defer a.Leave()
			in := leaseIn{ProfileID: "shop_1"}
			if _, err := a.leaseProfile(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			refusal := api.Refuse(code, "no such token")
			first.set("POST /v1/sessions/ses_1/heartbeat", refusal)
			time.Sleep(15 * time.Second) // one heartbeat is refused
			by.set(second)
			time.Sleep(time.Minute)
			second.mu.Lock()
			beats := len(second.calls)
			second.mu.Unlock()
			if _, err := a.has("shop_1"); err != nil || beats == 0 {
				t.Errorf("%d heartbeats by the new token: %v", beats, err)
			}
			second.set("POST /v1/sessions/ses_1/heartbeat", refusal)
			if err := a.Usable(t.Context()); !errors.Is(err, refusal) {
				t.Errorf("a use by a token that is refused: %v", err)
			}
			if _, err := a.leaseProfile(t.Context(), in); !errors.Is(err, refusal) {
				t.Errorf("the same lease by a token that is refused: %v", err)
			}
			if _, err := a.has("shop_1"); err != nil {
				t.Errorf("after that: %v", err)
			}
			time.Sleep(time.Minute) // longer than a lease lives
			if _, err := a.has("shop_1"); !errors.Is(err, refusal) {
				t.Errorf("when no token came: %v", err)
			}
		})
	}
}

// TestWhoGivesUpALostLeaseKeepsTheBrowserOfTheNext, though it was leased meanwhile.
func TestWhoGivesUpALostLeaseKeepsTheBrowserOfTheNext(t *testing.T) {
	f := newFake(t)
	gone := 0
	a := New(f, Options{Granted: func(context.Context, api.Session) error { return nil }, Gone: func() { gone++ }})
	defer a.Leave()
	if _, err := a.leaseProfile(t.Context(), leaseIn{ProfileID: "shop_1"}); err != nil {
		t.Fatal(err)
	}
	lost, err := a.has("")
	if err != nil {
		t.Fatal(err)
	}
	a.lose(lost, api.Refuse(api.CodeSessionEnded, "it is over"))
	f.second()
	if _, err := a.leaseProfile(t.Context(), leaseIn{ProfileID: "shop_2"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.end(t.Context(), lost, api.Release{}, 0); err != nil || gone != 1 {
		t.Errorf("%v; the browser went %d times, want once", err, gone)
	}
}

// TestAReleaseWhoseAnswerIsLostIsDone: the model is told so when it asks again, whoever learnt meanwhile that
// the session is over. Else it would lease the profile again, and do twice what it had done.
func TestAReleaseWhoseAnswerIsLostIsDone(t *testing.T) {
	over := api.Refuse(api.CodeSessionEnded, "session ses_1 is over: released")
	lost := "your lease of profile shop_1 is lost (session_ended: session ses_1 is over: released)"
	for _, c := range []struct {
		name  string
		meets *api.Problem
		state []any // as the sidecar shows the session, one after the other
		want  string
	}{
		{"it is over", over, []any{api.Session{State: api.SessionEnded, Released: true, Ended: "released"}}, `{"profile_id":"shop_1","released":true,"ended":"released"}`},
		{"another has the profile by now", api.Refuse(api.CodeStaleToken, "release with token 7: the current token is 8"),
			[]any{api.Session{State: api.SessionEnded, Released: true, Ended: "released"}}, `{"profile_id":"shop_1","released":true,"ended":"released"}`},
		{"it is ending", over, []any{api.Session{State: api.SessionRecovering}, api.Session{State: api.SessionEnded, Released: true, Ended: "released"}}, `"released":true`},
		{"it was lost", over, []any{api.Session{State: api.SessionEnded, Ended: "released"}}, lost},
		{"nobody knows it", over, []any{api.Refuse(api.CodeUnknownSession, "no session ses_1 is known here")}, lost},
		{"the sidecar is away", over, []any{errors.New("away"), api.Session{State: api.SessionEnded, Released: true}}, "away"},
		{"it does not end", over, []any{api.Session{State: api.SessionRecovering}}, "session ses_1 has not ended yet"},
	} {
		for _, beats := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				gone := make(chan struct{}, 8)
				a := New(f, Options{Base: api.Manifest{ProfileID: "shop_1"}, Gone: func() { gone <- struct{}{} }})
				defer a.Leave()
				if err := a.Lease(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.set("DELETE /v1/sessions/ses_1", errors.New("the answer is lost"))
				if _, err := a.release(t.Context(), releaseIn{}); err == nil {
					t.Fatal("an answer that was lost")
				}
				f.set("DELETE /v1/sessions/ses_1", c.meets)
				f.set("GET /v1/sessions/ses_1", inTurn(c.state))
				if beats {
					f.set("POST /v1/sessions/ses_1/heartbeat", c.meets)
					<-gone
				}
				out, err := a.release(t.Context(), releaseIn{})
				got := fmt.Sprint(err)
				if err == nil {
					got = string(encoded(out))
				}
				if !strings.Contains(got, c.want) {
					t.Errorf("%s, after a heartbeat: %v: %s, want %s", c.name, beats, got, c.want)
				}
				if c.want != "away" {
					return
				}
				if _, err := a.release(t.Context(), releaseIn{}); err != nil {
					t.Errorf("%s, after a heartbeat: %v: asked again: %v", c.name, beats, err)
				}
			})
		}
	}
}

func TestABrowserThatCannotBeServedGivesTheLeaseBack(t *testing.T) {
	f := newFake(t)
	a := New(f, Options{Base: api.Manifest{ProfileID: "shop_1"}, Granted: func(context.Context, api.Session) error { return errors.New("no server") }})
	if err := a.Lease(t.Context()); !strings.Contains(fmt.Sprint(err), "no server") {
		t.Errorf("%v", err)
	}
	<-f.ended
	if err := a.Usable(t.Context()); err == nil {
		t.Error("the agent still has the session")
	}
	a.Leave()
}

// slow is a sidecar that takes its time to grant a session.
type slow struct {
	*fake
	asked chan struct{}
	grant chan struct{}
}

func (s slow) Acquire(ctx context.Context, m api.Manifest) (api.Session, Sidecar, error) {
	s.asked <- struct{}{}
	<-s.grant
	return s.fake.Acquire(ctx, m)
}

// TestOneBrowserIsServedAtATime, though the model asks for two profiles at once: the tools of the browser
// would be those of either account.
func TestOneBrowserIsServedAtATime(t *testing.T) {
	s := slow{newFake(t), make(chan struct{}, 2), make(chan struct{})}
	served := 0
	a := New(s, Options{Granted: func(context.Context, api.Session) error { served++; return nil }})
	c := client(t, a)
	answers := make(chan string, 2)
	ask := func(profile string) {
		r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "lease_profile", Arguments: map[string]any{"profile_id": profile}})
		if err != nil {
			answers <- err.Error()
			return
		}
		answers <- fmt.Sprint(r.IsError, r.Content[0].(*sdk.TextContent).Text)
	}
	go ask("shop_1")
	<-s.asked
	go ask("shop_2")
	select {
	case <-s.asked:
		t.Error("two sessions are asked for at once")
	case <-time.After(50 * time.Millisecond):
	}
	close(s.grant)
	both := []string{<-answers, <-answers}
	slices.Sort(both) // the one that is no error first
	if !strings.HasPrefix(both[0], "false") || !strings.Contains(both[1], "you have profile shop_1 already") || served != 1 {
		t.Errorf("%d were served: %q", served, both)
	}
}

// asked is a sidecar whose sessions wait for a person, each for one thing at a time.
type asked struct {
	*fake
	waiting  chan struct{} // has room for one
	answered chan api.Answer
}

func (s asked) Ask(ctx context.Context, method string, query url.Values, in any, path ...string) ([]byte, string, error) {
	if path[len(path)-1] != "ask" {
		return s.fake.Ask(ctx, method, query, in, path...)
	}
	select {
	case s.waiting <- struct{}{}:
		defer func() { <-s.waiting }()
	default:
		return nil, "", api.Refuse(api.CodeAsksAlready, "session ses_1 waits for a person")
	}
	select {
	case answer := <-s.answered:
		return encoded(answer), "application/json", nil
	case <-time.After(time.Duration(in.(api.AskPerson).Wait)):
		return encoded(api.Answer{Reason: api.AskWaitOver}), "application/json", nil
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

func (s asked) Acquire(ctx context.Context, m api.Manifest) (api.Session, Sidecar, error) {
	granted, _, err := s.fake.Acquire(ctx, m)
	return granted, s, err
}

// TestWhoAsksAPersonAgainHasTheAnswer to what it asked before: the connection of the first call may be gone,
// which does not end the call.
func TestWhoAsksAPersonAgainHasTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := asked{newFake(t), make(chan struct{}, 1), make(chan api.Answer)}
		a := New(s, Options{Base: api.Manifest{ProfileID: "shop_1"}})
		defer a.Leave()
		if err := a.Lease(t.Context()); err != nil {
			t.Fatal(err)
		}
		answers := make(chan string, 3)
		ask := func(ctx context.Context, reason string) {
			out, err := a.askPerson(ctx, askPersonIn{Reason: reason})
			answers <- fmt.Sprintf("%s %v", encoded(out), err)
		}
		first, withdraw := context.WithCancel(t.Context())
		go ask(first, "the code")
		synctest.Wait()
		go ask(t.Context(), "the code")
		synctest.Wait()
		select {
		case got := <-answers:
			t.Fatalf("while the first waits: %s", got)
		default:
		}
		ask(t.Context(), "something else")
		if got := <-answers; !strings.Contains(got, "session ses_1 waits for a person") {
			t.Errorf("another thing: %s", got)
		}
		withdraw()
		if got := <-answers; !strings.Contains(got, context.Canceled.Error()) {
			t.Errorf("the one that was withdrawn: %s", got)
		}
		go ask(t.Context(), "the code")
		synctest.Wait()
		s.answered <- api.Answer{Answered: true, Note: "typed it"}
		for range 2 {
			if got := <-answers; !strings.Contains(got, "typed it") {
				t.Errorf("the answer: %s", got)
			}
		}
		go ask(t.Context(), "the code")
		synctest.Wait()
		s.answered <- api.Answer{Answered: true, Note: "typed the next one"}
		if got := <-answers; !strings.Contains(got, "typed the next one") {
			t.Errorf("after that: %s", got)
		}
	})
}

// held is a sidecar whose profile somebody has, until free is closed.
type held struct {
	*fake
	free chan struct{}
}

func (s held) Acquire(ctx context.Context, m api.Manifest) (api.Session, Sidecar, error) {
	select {
	case <-s.free:
		return s.fake.Acquire(ctx, m)
	case <-time.After(time.Duration(m.Wait)):
	}
	if m.Wait > 0 {
		return api.Session{}, nil, api.Refuse(api.CodeWaitTimeout, "waited %v", time.Duration(m.Wait))
	}
	return api.Session{}, nil, api.Refuse(api.CodeConflict, "somebody has it")
}

// TestEachCallWaitsAsLongAsItSays, though the same one is under way and says otherwise.
func TestEachCallWaitsAsLongAsItSays(t *testing.T) {
	for _, c := range []struct {
		tool          string
		first, second float64
		takes         time.Duration // until the second is answered
		want          string        // by the second
	}{
		{"lease_profile", 600, 0, 0, api.CodeConflict},
		{"lease_profile", 600, 5, 5 * time.Second, api.CodeWaitTimeout},
		{"lease_profile", 5, 600, time.Minute, `"session_id":"ses_1"`},
		{"lease_profile", 600, 600, time.Minute, `"session_id":"ses_1"`},
		{"ask_person", 600, 5, 5 * time.Second, `{"answered":false,"reason":"wait_over"}`},
		{"ask_person", 0, 5, 5 * time.Second, `{"answered":false,"reason":"wait_over"}`},
		{"ask_person", 5, 600, time.Minute, "typed it"},
		{"ask_person", 5, 0, time.Minute, "typed it"},
		{"ask_person", 600, 600, time.Minute, "typed it"},
	} {
		t.Run(fmt.Sprintf("%s %v %v", c.tool, c.first, c.second), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				free, typed := make(chan struct{}), make(chan api.Answer)
				var s Sidecar = held{f, free}
				if c.tool == "ask_person" {
					s = asked{f, make(chan struct{}, 1), typed}
				}
				a := New(s, Options{Base: api.Manifest{ProfileID: "shop_1"}})
				defer a.Leave()
				if c.tool == "ask_person" {
					if err := a.Lease(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				call := func(seconds float64) string {
					var out any
					var err error
					if c.tool == "ask_person" {
						out, err = a.askPerson(t.Context(), askPersonIn{Reason: "the code", WaitSeconds: seconds})
					} else {
						out, err = a.leaseProfile(t.Context(), leaseIn{WaitSeconds: seconds})
					}
					return fmt.Sprintf("%s %v", encoded(out), err)
				}
				firsts := make(chan struct{})
				go func() {
					defer close(firsts)
					call(c.first)
				}()
				time.AfterFunc(time.Minute, func() {
					close(free)
					select {
					case typed <- api.Answer{Answered: true, Note: "typed it"}:
					default:
					}
				})
				synctest.Wait()
				got := call(c.second)
				if took := time.Since(began); took != c.takes || !strings.Contains(got, c.want) {
					t.Errorf("after %v: %s, want %s after %v", took, got, c.want, c.takes)
				}
				<-firsts
			})
		})
	}
}

// TestAReleaseAfterALossHasToNameTheProfile: it may mean the one that was given back before, or the lost one.
func TestAReleaseAfterALossHasToNameTheProfile(t *testing.T) {
	f := newFake(t)
	c := client(t, New(f, Options{}))
	lost := f.grants("ses_lost", "lost")
	text(t, c, "lease_profile", map[string]any{"profile_id": "lost"})
	done := f.second()
	text(t, c, "lease_profile", map[string]any{"profile_id": done.ProfileID})
	f.set("DELETE /v1/sessions/"+done.SessionID, api.Session{Released: true, Ended: "released"})
	text(t, c, "release", map[string]any{"profile_id": done.ProfileID})
	f.set("POST /v1/sessions/"+lost.SessionID+"/steps", api.Refuse(api.CodeSessionEnded, "it is over"))
	text(t, c, "step", map[string]any{"name": "s"})
	f.taken()
	if got, refused := text(t, c, "release", nil); !refused || !strings.Contains(got, "name the profile") {
		t.Errorf("without a name: %s", got)
	}
	if calls := f.taken(); len(calls) > 0 {
		t.Errorf("without a name it asks for %q", calls)
	}
	if got, refused := text(t, c, "release", map[string]any{"profile_id": done.ProfileID}); refused || !strings.Contains(got, `"released":true`) {
		t.Errorf("by its name: %s", got)
	}
}
