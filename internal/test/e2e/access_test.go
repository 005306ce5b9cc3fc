package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/internal/test/otheruser"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// as sends a request as a user of the host, and returns the status and the answer.
func as(t *testing.T, uid uint32, method, url string, in any, headers ...string) (int, string) {
	t.Helper()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := otheruser.Client(uid).Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(b)
}

var upgrade = []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}

// TestANeighbourGetsNothing: two other users of the host, one of them a worker of a pod
// with its own user, try what anybody on the host could do once.
func TestANeighbourGetsNothing(t *testing.T) {
	t.Parallel()
	const worker, neighbour = otheruser.UID, otheruser.UID + 1
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	line := fmt.Sprintf("tokens: [{name: bot, sha256: \"%x\", role: worker, profiles: [\"shop_*\"]}]\n", principal.Hash("the-token-of-bot"))
	if err := os.WriteFile(tokens, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, append(warmly, "--allow-uid", fmt.Sprintf("%d=worker:shop_*", worker), "--tokens", tokens)...)
	var mine api.Session
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "shop_1", "worker_id": "w", "task_id": "t", "create": true, "dedicated_port": true, "keep_warm": true}, &mine); code != 201 {
		t.Fatalf("the own user's session: %d", code)
	}
	join := s.URL + "/devtools/browser/shop_1?worker=w&task=t"
	for name, c := range map[string]struct {
		uid         uint32
		method, url string
		in          any
		upgrade     bool
		status      int
		says        string
	}{
		"a neighbour lists sessions":          {neighbour, "GET", s.URL + "/v1/sessions", nil, false, 401, fmt.Sprintf("--allow-uid %d=worker", neighbour)},
		"a neighbour joins by the names":      {neighbour, "GET", join, nil, true, 401, "--allow-uid"},
		"a neighbour imports":                 {neighbour, "POST", s.URL + "/v1/profiles/x/import", map[string]any{"from": "/root"}, false, 401, "--allow-uid"},
		"a neighbour drives a dedicated port": {neighbour, "GET", *mine.DedicatedURL + "/json/list", nil, false, 403, "who opened session"},
		"a worker joins by the names":         {worker, "GET", join, nil, true, 409, "another principal opened"},
		"a worker lists its targets":          {worker, "GET", s.URL + "/profiles/shop_1/json/list?worker=w&task=t", nil, false, 404, "that you opened"},
		"a worker reads another's session":    {worker, "GET", s.URL + "/v1/sessions/" + mine.SessionID, nil, false, 403, "another principal's"},
		"a worker ends another's session": {
			worker, "DELETE", s.URL + "/v1/sessions/" + mine.SessionID, map[string]any{"lease_token": mine.Token, "outcome": "succeeded"}, false, 403, "another principal's",
		},
		"a worker drives a dedicated port":   {worker, "GET", *mine.DedicatedURL + "/json/version", nil, false, 403, "who opened session"},
		"a worker reads evidence":            {worker, "GET", s.URL + "/v1/profiles/shop_1/evidence", nil, false, 403, "viewer, reviewer, operator, admin"},
		"a worker opens another's profile":   {worker, "POST", s.URL + "/v1/sessions", map[string]any{"profile_id": "bank_1"}, false, 403, "no pattern of yours"},
		"a worker makes a profile":           {worker, "POST", s.URL + "/v1/sessions", map[string]any{"profile_id": "shop_2", "create": true}, false, 403, "operator, admin"},
		"a worker sees nothing of another":   {worker, "GET", s.URL + "/v1/sessions", nil, false, 200, `"items":[]`},
		"an admin imports without a root":    {0, "POST", s.URL + "/v1/profiles/x/import", map[string]any{"from": "/root"}, false, 403, "--import-root DIR"},
		"the capability is enough by itself": {neighbour, "GET", strings.Replace(mine.CDPURL[:strings.Index(mine.CDPURL, "/devtools/")], "ws://", "http://", 1) + "/json/version", nil, false, 200, "webSocketDebuggerUrl"},
	} {
		var headers []string
		if c.upgrade {
			headers = upgrade
		}
		if status, body := as(t, c.uid, c.method, c.url, c.in, headers...); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %s, want %d with %q", name, status, body, c.status, c.says)
		}
	}
	if code := s.call(t, "DELETE", "/v1/sessions/"+mine.SessionID, map[string]any{"lease_token": mine.Token, "outcome": "succeeded"}, nil); code != 200 {
		t.Errorf("the own user ends it: %d", code)
	}
	// The worker's own, with its own port. After it the record and the events name it.
	status, body := as(t, worker, "POST", s.URL+"/v1/sessions", map[string]any{"profile_id": "shop_1", "worker_id": "w", "task_id": "t", "create": true, "dedicated_port": true, "keep_warm": true, "wait": "20s"})
	var own api.Session
	if err := json.Unmarshal([]byte(body), &own); err != nil || status != 201 || own.Principal != principal.UserName(worker) {
		t.Fatalf("a worker's session: %d %s", status, body)
	}
	for uid, want := range map[uint32]int{worker: 200, 0: 200, neighbour: 403} {
		if status, body := as(t, uid, "GET", *own.DedicatedURL+"/json/list", nil); status != want {
			t.Errorf("the worker's port, user %d: %d %s, want %d", uid, status, body, want)
		}
	}
	if status, body := as(t, worker, "GET", s.URL+"/v1/profiles/shop_1", nil); status != 200 || !strings.Contains(body, `"principal":"uid:54321"`) {
		t.Errorf("the record of the worker's profile: %d %s", status, body)
	}
	if status, body := as(t, worker, "DELETE", s.URL+"/v1/sessions/"+own.SessionID, map[string]any{"lease_token": own.Token, "outcome": "succeeded"}); status != 200 {
		t.Errorf("the worker ends it: %d %s", status, body)
	}
	if status, body := as(t, 0, "GET", s.URL+"/v1/profiles/shop_1/history", nil); status != 200 || !strings.Contains(body, `"principal":"uid:54321"`) || !strings.Contains(body, `"principal":"uid:0"`) {
		t.Errorf("the history: %d %s", status, body)
	}
	var bundles struct {
		Items []api.Bundle `json:"items"`
	}
	s.call(t, "GET", "/v1/profiles/shop_1/evidence", nil, &bundles)
	if len(bundles.Items) == 0 {
		t.Fatal("no evidence")
	}
	if _, body := as(t, 0, "GET", s.URL+"/v1/evidence/"+bundles.Items[0].EvidenceID, nil); !strings.Contains(body, `"principal":"uid:54321"`) && !strings.Contains(body, `"principal": "uid:54321"`) {
		t.Errorf("the evidence does not name the worker: %s", body)
	}
	c := dial(t, strings.Replace(s.URL, "http", "ws", 1)+"/devtools/browser/shop_1?worker=bot&task=b&wait=20s&token=the-token-of-bot")
	c.call(t, "", "Browser.getVersion", nil, nil)
	var sessions struct {
		Items []api.Session `json:"items"`
	}
	s.call(t, "GET", "/v1/sessions", nil, &sessions)
	if len(sessions.Items) != 1 || sessions.Items[0].Principal != "bot" {
		t.Errorf("sessions %+v, want one of bot", sessions.Items)
	}
	c.close(t)
	c.ended(t)
}
