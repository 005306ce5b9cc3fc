package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gobwas/ws"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"leasehold/internal/test/clients"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// mcpAgent is an AI agent of the tests: the official SDK's client.
type mcpAgent struct {
	*mcp.ClientSession
	cmd *exec.Cmd // of leasehold mcp; nil over HTTP
}

// agent starts leasehold mcp with these arguments, and speaks with it.
func (s *sidecar) agent(t *testing.T, args ...string) *mcpAgent {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"mcp", "--url", s.URL}, args...)...)
	cmd.Stderr = os.Stderr
	a := connected(t, &mcp.CommandTransport{Command: cmd})
	a.cmd = cmd
	return a
}

// httpAgent is an agent that uses /mcp of the sidecar.
func (s *sidecar) httpAgent(t *testing.T) *mcpAgent {
	t.Helper()
	return connected(t, &mcp.StreamableClientTransport{Endpoint: s.URL + "/mcp"})
}

func connected(t *testing.T, transport mcp.Transport) *mcpAgent {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return &mcpAgent{ClientSession: session}
}

// called is the answer to a call of a tool.
type called struct {
	text    string
	refused bool
	raw     json.RawMessage
}

// call calls a tool.
func (a *mcpAgent) call(t *testing.T, tool string, arguments map[string]any) called {
	t.Helper()
	result, err := a.CallTool(context.WithoutCancel(t.Context()), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	c := called{refused: result.IsError}
	for _, part := range result.Content {
		if text, ok := part.(*mcp.TextContent); ok {
			c.text += text.Text
		}
	}
	if c.raw, err = json.Marshal(result.StructuredContent); err != nil {
		t.Fatal(err)
	}
	return c
}

// does calls a tool that has to succeed, and reads its answer.
func (a *mcpAgent) does(t *testing.T, tool string, arguments map[string]any, out any) {
	t.Helper()
	c := a.call(t, tool, arguments)
	if c.refused {
		t.Fatalf("%s: refused: %s", tool, c.text)
	}
	if out != nil {
		if err := json.Unmarshal(c.raw, out); err != nil {
			t.Fatalf("%s: %v: %s", tool, err, c.raw)
		}
	}
}

// refused calls a tool that has to be refused with a code, in one sentence that has all of these words.
func (a *mcpAgent) refused(t *testing.T, tool string, arguments map[string]any, code string, words ...string) {
	t.Helper()
	c := a.call(t, tool, arguments)
	var why struct {
		Code       string `json:"code"`
		RetryAfter int    `json:"retry_after_seconds"`
	}
	if err := json.Unmarshal(c.raw, &why); err != nil || !c.refused || why.Code != code {
		t.Fatalf("%s: %s %s, want a refusal with %s", tool, c.text, c.raw, code)
	}
	for _, word := range words {
		if !strings.Contains(c.text, word) {
			t.Errorf("%s: %q does not say %q", tool, c.text, word)
		}
	}
	if strings.Count(c.text, ". ") > 0 || !strings.HasSuffix(c.text, ".") {
		t.Errorf("%s: %q is not one sentence", tool, c.text)
	}
	if code == api.CodeConflict && why.RetryAfter == 0 {
		t.Errorf("%s: %s does not say when to try again", tool, c.raw)
	}
}

// TestAnAgentsTask is the whole life of a task: the agent leases by label, is refused, waits, drives,
// checkpoints, asks a person, and is killed; another one, over HTTP, is told what became of that, and
// resumes.
func TestAnAgentsTask(t *testing.T) {
	t.Parallel()
	s := start(t, fakeBrowsers(t)...)
	us := map[string]any{"region": "us"}
	if code := s.call(t, "PUT", "/v1/profiles/shop_1", map[string]any{"labels": us}, nil); code != 200 {
		t.Fatalf("profile: status %d", code)
	}
	holder := s.open(t, "shop_1", nil)
	a := s.agent(t, "--worker", "agent-1")

	a.refused(t, "lease_profile", map[string]any{"labels": us}, api.CodeConflict,
		"shop_1 is held by worker worker-7 for task task_1", "call lease_profile again in 5 seconds")
	a.refused(t, "step", map[string]any{"name": "early"}, api.CodeUnknownSession, "call lease_profile first")
	var why struct {
		LastRefusal struct{ Tool string } `json:"last_refusal"`
		Decision    string
		Reason      string
		Evidence    string
		Checkpoint  string `json:"last_safe_checkpoint"`
		Profile     struct {
			State         string
			OwnerWorkerID string `json:"owner_worker_id"`
		}
	}
	a.does(t, "why", map[string]any{"profile_id": "shop_1"}, &why)
	if why.LastRefusal.Tool != "step" || why.Profile.OwnerWorkerID != "worker-7" {
		t.Errorf("why: %+v", why)
	}

	freed := make(chan int)
	go func() { // when the agent waits
		eventually(t, "the agent waits", func() error { return waits(s, t) })
		freed <- s.call(t, "DELETE", "/v1/sessions/"+holder.SessionID, map[string]any{"lease_token": holder.Token, "outcome": "succeeded"}, nil)
	}()
	var got struct {
		ProfileID string `json:"profile_id"`
		SessionID string `json:"session_id"`
		Token     uint64 `json:"lease_token"`
		CDPURL    string `json:"cdp_url"`
		Resume    *api.Resume
	}
	a.does(t, "lease_profile", map[string]any{"labels": us, "task_id": "orders", "resumable": true, "wait_seconds": 60}, &got)
	if code := <-freed; code != 200 || got.ProfileID != "shop_1" || got.Resume != nil {
		t.Fatalf("leased %+v after a release with status %d", got, code)
	}
	a.does(t, "step", map[string]any{"name": "open_form"}, nil)
	browser := dial(t, got.CDPURL)
	browser.page(t, "https://shop.example/form", "")
	a.does(t, "checkpoint", map[string]any{"name": "form_read", "data": map[string]any{"page": 3}}, nil)

	ses := twoStep{SessionID: got.SessionID, Token: got.Token}
	stay := s.attends(t, ses)
	answered := make(chan called)
	go func() { answered <- a.call(t, "ask_person", map[string]any{"reason": "the code", "wait_seconds": 60}) }()
	s.asksFor(t, ses, "the code")
	s.hand(t, ses, "take-over", map[string]any{"person": "Ann"})
	s.hand(t, ses, "hand-back", map[string]any{"note": "typed it"})
	stay()
	if c := <-answered; c.refused || !strings.Contains(c.text, "typed it") {
		t.Errorf("ask_person: %+v", c)
	}
	a.does(t, "checkpoint", map[string]any{"name": "code_entered", "data": map[string]any{"page": 4}}, nil)

	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	browser.drop()
	r := s.until(t, "shop_1", lease.ResumePending, lease.ManualReview, lease.Available)

	second := s.httpAgent(t)
	second.does(t, "why", map[string]any{"profile_id": "shop_1"}, &why)
	if why.Decision != string(r.Decision) || why.Reason == "" || why.Checkpoint != "code_entered" {
		t.Errorf("why: %+v, the record has %s", why, r.Decision)
	}
	read, err := second.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: why.Evidence})
	if err != nil || !strings.Contains(read.Contents[0].Text, "open_form") { // the last step
		t.Fatalf("evidence %s: %v, %+v", why.Evidence, err, read)
	}
	if r.State != lease.ResumePending {
		t.Fatalf("state %s (%v), want that the task can resume", r.State, r.Reasons)
	}
	second.refused(t, "lease_profile", map[string]any{"labels": us}, api.CodeResumePending, "lease it with that task_id")
	second.does(t, "lease_profile", map[string]any{"profile_id": "shop_1", "task_id": "orders", "resumable": true}, &got)
	if got.Resume == nil || got.Resume.Checkpoint != "code_entered" || string(got.Resume.Data) != `{"page":4}` {
		t.Errorf("resume %+v", got.Resume)
	}
	var ended struct {
		Released bool
	}
	second.does(t, "release", nil, &ended)
	if !ended.Released || s.until(t, "shop_1", lease.Available).Outcome != "succeeded" {
		t.Errorf("released: %+v", ended)
	}
	second.does(t, "lease_profile", map[string]any{"profile_id": "shop_1"}, nil)
	s.stop(t) // in order, though an agent is connected and has a profile
}

// waits is an error unless somebody waits for a lease.
func waits(s *sidecar, t *testing.T) error {
	var queue struct{ Items []api.Waiting }
	if code := s.call(t, "GET", "/v1/queue", nil, &queue); code != 200 || len(queue.Items) == 0 {
		return os.ErrNotExist
	}
	return nil
}

// npmServer is the command line of an MCP server from npm.
func npmServer(name string, args ...string) []string {
	return slices.Concat([]string{"--", "node", "--require", clients.CodeCache(), filepath.Join(clients.Dir(), "node_modules", ".bin", name)}, args)
}

// child is the only child of a process.
func child(t *testing.T, parent int) int {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	var of string
	for _, thread := range threads {
		b, err := os.ReadFile(thread)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		of += string(b)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(of))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestABrowsersToolsAreServedWithTheLease: below leasehold mcp a browser's own server has the leased
// browser, and its tools are refused when the lease is lost.
func TestABrowsersToolsAreServedWithTheLease(t *testing.T) {
	t.Parallel()
	s, web := start(t), newSite(t)
	under := func(profile string, command []string) []string {
		return slices.Concat([]string{"--profile", profile, "--create"}, command)
	}

	t.Run("playwright-mcp", func(t *testing.T) {
		args := under("shop_1", npmServer("playwright-mcp", "--output-dir", t.TempDir(), "--cdp-endpoint", "{cdp_url}"))
		a := s.agent(t, args...)
		var names []string
		for tool, err := range a.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, tool.Name)
		}
		if !slices.Contains(names, "browser_navigate") || !slices.Contains(names, "lease_profile") {
			t.Errorf("tools: %v", names)
		}
		a.does(t, "browser_navigate", map[string]any{"url": web.URL + "/form"}, nil)
		if page := a.call(t, "browser_snapshot", nil); page.refused || !strings.Contains(page.text, "button") {
			t.Errorf("snapshot: %+v", page)
		}
		a.refused(t, "lease_profile", map[string]any{"profile_id": "shop_2"}, api.CodeInvalidRequest, "started for shop_1 only")

		second := s.agent(t, args...)
		second.refused(t, "browser_navigate", map[string]any{"url": web.URL}, api.CodeUnknownSession, "call lease_profile first")
		second.refused(t, "lease_profile", nil, api.CodeConflict, "shop_1 is held by worker")

		r := s.record(t, "shop_1")
		s.call(t, "DELETE", "/v1/sessions/"+r.SessionID, map[string]any{"lease_token": r.Token, "outcome": "failed", "recover": "always"}, nil)
		s.until(t, "shop_1", lease.Available)
		a.refused(t, "browser_snapshot", nil, api.CodeStaleToken, "your lease of profile shop_1 is lost", "call why")
		second.does(t, "lease_profile", nil, nil)
		second.does(t, "browser_navigate", map[string]any{"url": web.URL + "/form"}, nil)
		if err := second.Close(); err != nil {
			t.Errorf("the end of the second agent: %v", err)
		}
		if r := s.until(t, "shop_1", lease.Available); r.Reason != api.ReasonWorkerDied {
			t.Errorf("an agent that ended without a release: %s", r.Reason)
		}
	})

	t.Run("chrome-devtools-mcp", func(t *testing.T) {
		a := s.agent(t, under("shop_3", npmServer("chrome-devtools-mcp", "--no-usage-statistics", "--browserUrl", "{http_url}"))...)
		a.does(t, "navigate_page", map[string]any{"pageId": 1, "type": "url", "url": web.URL + "/form"}, nil)
		if err := syscall.Kill(child(t, a.cmd.Process.Pid), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = a.Wait() // the agent sees its server end
		if r := s.until(t, "shop_3", lease.Available); r.Reason != api.ReasonWorkerDied {
			t.Errorf("a browser's server that was killed: %s", r.Reason)
		}
	})

	t.Run("a tool with the name of one of ours", func(t *testing.T) {
		_, said, code := s.cli(t, append([]string{"mcp", "--"}, binary, "mcp")...)
		if code != 126 || !strings.Contains(said, "is a tool of leasehold itself, too") {
			t.Errorf("exit status %d: %s", code, said)
		}
	})
}

// handed is a session as far as persons are concerned.
type handed struct {
	Person *api.Person `json:"person"`
	Ask    *api.Ask    `json:"ask"`
}

// hand has a person take a session over, or hand it back.
func (s *sidecar) hand(t *testing.T, ses twoStep, what string, more map[string]any) handed {
	t.Helper()
	body := map[string]any{"lease_token": ses.Token}
	for k, v := range more {
		body[k] = v
	}
	var now handed
	if code := s.call(t, "POST", "/v1/sessions/"+ses.SessionID+"/"+what, body, &now); code != 200 {
		t.Fatalf("%s: status %d", what, code)
	}
	return now
}

func (s *sidecar) handed(t *testing.T, ses twoStep) (now handed) {
	t.Helper()
	if code := s.call(t, "GET", "/v1/sessions/"+ses.SessionID, nil, &now); code != 200 {
		t.Fatalf("session: status %d", code)
	}
	return now
}

// asksFor waits until the session's worker asks for a person.
func (s *sidecar) asksFor(t *testing.T, ses twoStep, reason string) {
	t.Helper()
	eventually(t, "the worker asks", func() error {
		if a := s.handed(t, ses).Ask; a == nil || a.Reason != reason {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
}

// attends opens the view of a session, which closes with the test, or when leave is called.
func (s *sidecar) attends(t *testing.T, ses twoStep) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	view, _, _, err := ws.Dial(ctx, "ws"+strings.TrimPrefix(s.URL, "http")+"/v1/sessions/"+ses.SessionID+"/view")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = view.Close() }) // it may be closed already
	return func() { _ = view.Close() }
}
