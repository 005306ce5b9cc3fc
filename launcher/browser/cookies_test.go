package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/internal/test/testchrome"
)

// TestWhatASiteDoesToCookiesIsSeen: in Chromium's own order of events, with redirects, with
// what the first document of a tab set, and without a browser context of a client's own.
func TestWhatASiteDoesToCookiesIsSeen(t *testing.T) {
	h := newHost(t, Options{})
	drawn := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := func(name string, age int) {
			drawn++
			http.SetCookie(w, &http.Cookie{Name: name, Value: fmt.Sprintf("5f2b8c1e9d3a%08d", drawn), Path: "/", HttpOnly: true, MaxAge: age})
		}
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/in":
			set("sid", 3600)
			set("other", 3600)
		case "/switch":
			set("other", 3600)
			http.Redirect(w, r, "/out", http.StatusFound)
			return
		case "/out":
			set("sid", -1)
			http.Redirect(w, r, "/end", http.StatusSeeOther)
			return
		case "/script":
			fmt.Fprint(w, `<title>wait</title>`)
			return
		case "/first": // Chrome reports nothing of a new tab's first document
			set("deep", 3600)
		case "/forget":
			set("deep", -1)
		}
		fmt.Fprintf(w, "<title>%s</title>", r.URL.Path)
	}))
	defer web.Close()
	b := h.start()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cookies, err := b.Cookies(t.Context())
	must(err)
	b.Monitor().Cookies().Learn(cookies, nil)()
	var made struct{ BrowserContextID string }
	must(b.Mux().Call(t.Context(), "Target.createBrowserContext", nil, &made))
	must(b.Mux().Call(t.Context(), "Target.createTarget", map[string]any{"url": web.URL + "/in", "browserContextId": made.BrowserContextID}, nil))
	h.titles(b, "/in")
	// The page runs a script once the monitor listens: both use its session on the page.
	inPage := func(path, script string) {
		t.Helper()
		for end := time.Now().Add(testchrome.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			for _, pg := range b.Monitor().Pages() {
				if pg.URL == web.URL+path {
					must(b.Monitor().Observer().Call(t.Context(), pg.SessionID, "Runtime.evaluate",
						map[string]any{"expression": script, "awaitPromise": true}, nil))
					return
				}
			}
		}
		t.Fatalf("the monitor has no page of %s", path)
	}
	dropped := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.ContainsFunc(h.entries, func(e checkpoint.Entry) bool { return e.Kind == checkpoint.KindCookie })
	}
	// A tab's cookies are learned soon after its first document has come. If that was too late, another tab sets
	// the cookie.
	for end := time.Now().Add(testchrome.Patience); !dropped() && time.Now().Before(end); {
		h.open(b, web.URL+"/first")
		h.titles(b, "/first")
		inPage("/first", `setTimeout(() => { location = "/forget" }, 500)`)
		for slices.Contains(h.titles(b, "/forget"), "/first") && time.Now().Before(end) {
		}
		must(b.Monitor().CatchUp(t.Context()))
	}
	h.open(b, web.URL+"/script")
	h.titles(b, "wait")
	inPage("/script", `fetch("/in")`) // the tab's cookies are learned once more while it begins
	inPage("/script", `fetch("/in").then(() => setTimeout(() => { location = "/switch" }))`)
	h.titles(b, "/end")
	var all struct {
		Cookies []struct{ Name string }
	}
	must(b.Mux().Call(t.Context(), "Storage.getCookies", nil, &all))
	if len(all.Cookies) != 1 {
		t.Errorf("the cookies are %v", all.Cookies)
	}
	must(b.Mux().Call(t.Context(), "Storage.clearCookies", nil, nil)) // nobody's command, as far as the monitor knows
	b.Monitor().Cookies().Compare(b.Cookies(t.Context()))
	if _, err := b.Close(profile, nil, h.options.Log); err != nil {
		t.Error(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var got []string
	for _, e := range h.entries {
		if e.Kind == checkpoint.KindCookie {
			got = append(got, fmt.Sprint(e.Cookie.What, " ", e.Cookie.By, " ", e.Cookie.Status, " ", e.Method))
		}
	}
	want := []string{"dropped site 200 GET", "replaced site 200 GET", "replaced site 200 GET", "replaced site 302 GET", "dropped site 303 GET", "dropped unknown 0 ", "read  0 "}
	if !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

// TestABrowserThatStartsDoesInOrderWhatItIsSent: cookies that are set are among those that are asked for right after,
// both before it has opened its first tab.
func TestABrowserThatStartsDoesInOrderWhatItIsSent(t *testing.T) {
	h := newHost(t, Options{})
	h.locked(h.root.Lock)
	lent := make([]map[string]any, 1000)
	for i := range lent {
		lent[i] = map[string]any{"name": fmt.Sprint("c", i), "value": "v", "url": fmt.Sprintf("https://site-%d.example/", i%100)}
	}
	var has struct {
		Cookies []struct {
			Name    string
			Session bool
		}
	}
	b, err := h.driver.Start(t.Context(), Start{
		SessionID: session, Token: 7, Lock: h.lock, Path: h.path, Headless: true, Sink: h.sink, Log: h.options.Log,
		Prepare: func(ctx context.Context, b *Browser) (prepared func() error) {
			set, notSet := b.Monitor().Observer().Send("", "Storage.setCookies", map[string]any{"cookies": lent})
			asked, notAsked := b.Monitor().Observer().Send("", "Storage.getCookies", nil)
			return func() error {
				if err := errors.Join(notSet, notAsked); err != nil {
					return err
				}
				return errors.Join(set.Wait(ctx, nil), asked.Wait(ctx, &has))
			}
		},
	})
	if err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	h.endAtLast(b)
	if len(has.Cookies) != len(lent) || !has.Cookies[0].Session {
		t.Errorf("%d of %d cookies are there", len(has.Cookies), len(lent))
	}
	if _, err := b.Close(profile, nil, h.options.Log); err != nil {
		t.Errorf("it does not close: %v", err)
	}
}
