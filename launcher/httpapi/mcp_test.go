package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"

	"leasehold/launcher/agents"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// withBearer sends requests with a token.
type withBearer string

func (token withBearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

// TestAnAgentMayDoWhatItsPrincipalMay: each call of a tool passes the checks of a request over the
// network, with the token of the agent.
func TestAnAgentMayDoWhatItsPrincipalMay(t *testing.T) {
	host := agents.NewHost("1")
	defer host.Close()
	f := serve(t, Options{Gate: people(t), Agents: host}, ofShop("worker-match"))
	mine := f.answers["Session"].(api.Session)
	f.answers["Acquire"], f.answers["Profile"] = mine, api.Profile{Record: lease.Record{ProfileID: "shop_1", TTLSeconds: 30}}
	f.answers["Release"], f.answers["Heartbeat"] = mine, mine
	for _, c := range []struct {
		who, tool string
		arguments map[string]any
		says      string
		asked     string // the call of the Service that it leads to
	}{
		{"worker-match", "lease_profile", map[string]any{"profile_id": "shop_1"}, `"cdp_url":"ws://` + f.addr() + "/s/" + capability, "Acquire"},
		{"worker-other", "lease_profile", map[string]any{"profile_id": "shop_1"}, "you are worker-other", ""},
		{"viewer-match", "lease_profile", map[string]any{"profile_id": "shop_1"}, "you are viewer-match", ""},
		{"viewer-match", "list_profiles", nil, `{"profiles":[{"profile_id":"shop_1"`, "ListProfiles"},
		{"viewer-other", "list_profiles", nil, `{"profiles":[{"profile_id":"bank_1"`, "ListProfiles"},
		{"viewer-other", "why", map[string]any{"profile_id": "shop_1"}, "you are viewer-other", ""},
	} {
		session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(),
			&mcp.StreamableClientTransport{Endpoint: f.URL + "/mcp", HTTPClient: &http.Client{Transport: withBearer("token-of-" + c.who)}, DisableStandaloneSSE: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		f.taken()
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: c.arguments})
		if err != nil {
			t.Fatal(err)
		}
		asked := f.acted()
		if said := r.Content[0].(*mcp.TextContent).Text; !strings.Contains(said, c.says) {
			t.Errorf("%s by %s: %s", c.tool, c.who, said)
		}
		if led := slices.ContainsFunc(asked, func(call string) bool { return strings.HasPrefix(call, c.asked) }); led == (c.asked == "") && len(asked) > 0 {
			t.Errorf("%s by %s led to %v", c.tool, c.who, asked)
		}
		if err := session.Close(); err != nil {
			t.Errorf("%s: the end: %v", c.who, err)
		}
	}
	if r, body := f.request("POST", "/mcp", `{}`, "Authorization: Bearer x"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("with nobody's token: %s %s", r.Status, body)
	}
	if r, body := f.request("POST", "/mcp", `{}`, "Authorization: Bearer token-of-worker-match", "Content-Type: text/plain"); r.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("a form: %s %s", r.Status, body)
	}
}

// switched sends requests with the token that is set now.
type switched struct{ token atomic.Value }

func (s *switched) RoundTrip(r *http.Request) (*http.Response, error) {
	return withBearer(s.token.Load().(string)).RoundTrip(r)
}

// TestAnAgentGoesOnWithItsNextToken: a principal has two while one is replaced. What it leased before is asked
// for with the new one, too.
func TestAnAgentGoesOnWithItsNextToken(t *testing.T) {
	host := agents.NewHost("1")
	defer host.Close()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write := func(tokens ...string) {
		text := "tokens:\n"
		for _, token := range tokens {
			text += fmt.Sprintf("  - {name: ann, sha256: \"%x\", role: worker, profiles: [\"shop_*\"]}\n", principal.Hash(token))
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one", "two")
	gate, err := principal.NewGate(principal.Options{Own: uint32(os.Geteuid()), File: path, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	f := serve(t, Options{Gate: gate, Agents: host}, ofShop("ann"))
	mine := f.answers["Session"].(api.Session)
	f.answers["Acquire"], f.answers["Profile"] = mine, api.Profile{Record: lease.Record{ProfileID: "shop_1", TTLSeconds: 3000}}
	f.answers["Release"], f.answers["Step"] = mine, nil
	by := &switched{}
	by.token.Store("one")
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: f.URL + "/mcp", HTTPClient: &http.Client{Transport: by}, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	call := func(tool string, arguments map[string]any) {
		t.Helper()
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			t.Fatal(err)
		}
		if r.IsError {
			t.Errorf("%s with the token %v: %s", tool, by.token.Load(), r.Content[0].(*mcp.TextContent).Text)
		}
	}
	call("lease_profile", map[string]any{"profile_id": "shop_1"})
	by.token.Store("two")
	write("two")
	call("step", map[string]any{"name": "s"})
	call("list_profiles", map[string]any{})
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

// TestAWrongHomeIsARefusalOfATool: what the Service refuses reaches the model as a problem.
func TestAWrongHomeIsARefusalOfATool(t *testing.T) {
	host := agents.NewHost("1")
	defer host.Close()
	f := serve(t, Options{Agents: host}, map[string]any{"Acquire": api.WrongHome("shop_1", "launcher_2", "http://host-2:9333", true)})
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: f.URL + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "lease_profile", Arguments: map[string]any{"profile_id": "shop_1"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r.StructuredContent)
	if said := r.Content[0].(*mcp.TextContent).Text; err != nil || !r.IsError || !strings.Contains(said, "host-2:9333: use the MCP server of that host") || !strings.Contains(string(b), api.CodeWrongHome) {
		t.Errorf("%s %s", said, b)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}
