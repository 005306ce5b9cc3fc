package agents

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// patience bounds waits that end sooner unless something is broken.
const patience = time.Minute

// small is the size of a buffer of the network.
const small = 1 << 14

// hosted serves a host; the header Who says who asks.
func hosted(t *testing.T, f *fake, idle time.Duration) (*Host, string) {
	t.Helper()
	h := NewHost("1")
	h.idle = idle
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(From(r.Context(), Caller{Name: r.Header.Get("Who"), Sidecar: f})))
	}))
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		_ = conn.(*net.TCPConn).SetWriteBuffer(small) // then less fills it
		return ctx
	}
	server.Start()
	t.Cleanup(func() {
		h.Close()
		server.Close()
	})
	return h, server.URL
}

// as sends requests in somebody's name.
type as string

func (who as) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Who", string(who))
	return http.DefaultTransport.RoundTrip(r)
}

func over(t *testing.T, url, who string) *sdk.ClientSession {
	t.Helper()
	c, err := begins(t, url, who)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// begins initializes an agent, which may be refused.
func begins(t *testing.T, url, who string) (*sdk.ClientSession, error) {
	return sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: as(who)}, DisableStandaloneSSE: true}, nil)
}

// recovered waits until a session was ended as that of a lost worker.
func (f *fake) recovered(t *testing.T) {
	t.Helper()
	select {
	case got := <-f.ended:
		if !strings.Contains(got, `"recover":"always"`) {
			t.Errorf("ended with %s", got)
		}
	case <-time.After(patience):
		t.Fatal("the session was not ended")
	}
}

func TestAnAgentOverHTTPIsFoundByItsPrincipalAlone(t *testing.T) {
	f := newFake(t)
	_, url := hosted(t, f, patience)
	c := over(t, url, "ann")
	text(t, c, "lease_profile", map[string]any{"profile_id": "shop_1"})
	for _, asked := range []struct {
		method, who string
		status      int
	}{
		{http.MethodGet, "ben", http.StatusNotFound}, {http.MethodPost, "ben", http.StatusNotFound}, {http.MethodDelete, "ben", http.StatusNotFound},
		{http.MethodDelete, "ann", http.StatusNoContent},
	} {
		if len(f.ended) > 0 {
			t.Error("another principal ended the session")
		}
		r, err := http.NewRequestWithContext(t.Context(), asked.method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Mcp-Session-Id", c.ID())
		answer, err := as(asked.who).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != asked.status {
			t.Errorf("%s by %s: %s, want %d", asked.method, asked.who, answer.Status, asked.status)
		}
	}
	f.recovered(t)
	_ = c.Close()
}

// TestNobodyTakesAllPlacesForAgents: who has as many agents as they may leaves room for others, and has
// a place again when one of theirs ends.
func TestNobodyTakesAllPlacesForAgents(t *testing.T) {
	_, url := hosted(t, newFake(t), patience)
	var of []*sdk.ClientSession
	begin := func(who string) error {
		c, err := begins(t, url, who)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			of = append(of, c)
		}
		return err
	}
	var refused error
	for len(of) <= maxAgents && refused == nil {
		refused = begin("ann")
	}
	if refused == nil || !strings.Contains(refused.Error(), "too many agents of ann") {
		t.Fatalf("ann has %d agents: %v", len(of), refused)
	}
	if err := begin("ben"); err != nil {
		t.Errorf("ann has all her agents, and ben is told: %v", err)
	}
	if err := errors.Join(of[0].Close(), of[1].Close()); err != nil {
		t.Fatal(err)
	}
	if err := begin("ann"); err != nil {
		t.Errorf("ann, when two of hers have ended: %v", err)
	}
}

func TestAnAgentOverHTTPThatFallsSilentIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		h := NewHost("1")
		near, _ := sdk.NewInMemoryTransports()
		session, err := sdk.NewServer(&sdk.Implementation{Name: "s"}, nil).Connect(t.Context(), near, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.begin(From(t.Context(), Caller{"ann", f}), session); err != nil {
			t.Fatal(err)
		}
		r := h.enter(session.ID(), Caller{"ann", f}) // a stream that stays open
		if _, err := r.leaseProfile(t.Context(), leaseIn{ProfileID: "shop_1"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * idle)
		h.leave(r)
		time.Sleep(idle - time.Second)
		if synctest.Wait(); len(f.ended) > 0 {
			t.Error("the agent was lost before its time was over")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		f.recovered(t)
		h.Close()
	})
}

// TestAClientThatReadsNothingIsLost: its answers fill what the network buffers.
func TestAClientThatReadsNothingIsLost(t *testing.T) {
	defer func(d time.Duration) { writeTimeout = d }(writeTimeout)
	writeTimeout = 100 * time.Millisecond
	f := newFake(t)
	f.set("GET /v1/evidence/ev_1", make([]byte, 64*small))
	h, url := hosted(t, f, patience)
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(small)
		var id string
		send := func(body string) {
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nWho: ann\r\nMcp-Session-Id: %s\r\nAccept: application/json, text/event-stream\r\n"+
				"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)
		}
		in := bufio.NewReader(conn)
		answered := func() {
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			if got := r.Header.Get("Mcp-Session-Id"); got != "" {
				id = got
			}
			for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			}
		}
		send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`)
		answered()
		send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"lease_profile","arguments":{"profile_id":"shop_1"}}}`)
		answered()
		h.mu.Lock()
		h.idle = 0 // after this request
		h.mu.Unlock()
		send(`{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"leasehold://evidence/ev_1"}}`)
	}()
	f.recovered(t)
	<-begun
}

func TestGarbageIsNoAgent(t *testing.T) {
	h, url := hosted(t, newFake(t), patience)
	for _, body := range []string{"", "x", "{}", `[]`, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":7}`} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		answer, err := as("ann").RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if h.mu.Lock(); len(h.agents) > 0 {
			t.Errorf("%q began an agent: %s", body, answer.Status)
		}
		h.mu.Unlock()
	}
}
