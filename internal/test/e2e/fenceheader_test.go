package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"leasehold/internal/test/fencedservice"
	"leasehold/lease"
)

// TestTheFenceHeader: a service of the user's own refuses what a session of before sent,
// and arrives when the next one has written. No other origin is told the token.
func TestTheFenceHeader(t *testing.T) {
	t.Parallel()
	service := &fencedservice.Service{}
	late, arrived := make(chan struct{}), make(chan int, 1)
	release := sync.OnceFunc(func() { close(late) })
	defer release()
	// The way to the service delays what is sent to ?order=late.
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			return
		}
		if r.URL.Query().Get("order") == "late" {
			body, _ := io.ReadAll(r.Body)
			held := httptest.NewRequest(r.Method, r.URL.String(), strings.NewReader(string(body)))
			held.Header = r.Header.Clone()
			go func() {
				<-late
				answer := httptest.NewRecorder()
				service.ServeHTTP(answer, held)
				arrived <- answer.Code
			}()
			return
		}
		service.ServeHTTP(w, r)
	}))
	defer own.Close()
	var mu sync.Mutex
	var told []string
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if v := r.Header.Get("Leasehold-Token"); v != "" {
			told = append(told, r.URL.Path+" "+v)
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Content-Type", "text/html")
	}))
	defer foreign.Close()
	s := start(t, warmly...)
	if out, errs, code := s.cli(t, "profiles", "create", "p", "--keep-warm", "--fence-header-origin", own.URL); code != 0 {
		t.Fatalf("exit status %d, want 0: %s%s", code, out, errs)
	}
	var page string
	post := func(c *socket, path, headers string) string {
		t.Helper()
		return c.evaluate(t, page, fmt.Sprintf(`fetch(%q, {method: 'POST', headers: {%s}}).then((r) => r.status, (e) => e.message)`, path, headers))
	}
	worker := func(task string) *socket {
		c := dial(t, s.socket("p", "wait=30s&worker=w&task="+task))
		page, _ = c.visit(t, own.URL+"/store-18")
		return c
	}
	leave := func(c *socket) {
		t.Helper()
		c.close(t)
		c.ended(t)
		s.until(t, "p", lease.Available)
	}
	c := worker("1")
	if got := post(c, "/store-18?order=a", ""); got != "201" {
		t.Errorf("under token 1: %s", got)
	}
	if got := post(c, "/store-18?order=forged", "'Leasehold-Token': '99'"); got != "201" {
		t.Errorf("a page that says another token: %s", got)
	}
	post(c, "/x?to="+foreign.URL+"/redirected", "")
	post(c, foreign.URL+"/direct", "")
	c.call(t, page, "Page.navigate", map[string]any{"url": own.URL + "/x?to=" + foreign.URL + "/navigated"}, nil)
	c.loaded(t, page, foreign.URL+"/navigated")
	page, _ = c.visit(t, own.URL+"/store-18")
	post(c, "/store-18?order=late", "")
	leave(c)

	c = worker("2")
	if got := post(c, "/store-18?order=b", ""); got != "201" {
		t.Errorf("under token 2: %s", got)
	}
	release()
	if code := <-arrived; code != http.StatusConflict {
		t.Errorf("what was sent under token 1 is answered %d, want 409", code)
	}
	leave(c)
	if got := service.Orders("/store-18"); !slices.Equal(got, []string{"a", "forged", "b"}) {
		t.Errorf("the service has %v", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) > 0 {
		t.Errorf("another origin was told the token: %v", told)
	}
}
