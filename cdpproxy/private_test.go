package cdpproxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/cdpproxy/methods"
	"leasehold/internal/test/testchrome"
)

// shut is KeepPrivate of a test, which opens with the test's patience.
func shut(t *testing.T, m *cdpproxy.Mux, forget bool) (open func()) {
	t.Helper()
	end, err := m.KeepPrivate(methods.RefuseSignIn())
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), testchrome.Patience)
		defer cancel()
		if err := end(ctx, forget); err != nil {
			t.Fatal(err)
		}
	}
}

// until returns the client's messages up to the answer to a command.
func (c *client) until(id int) (all []message) {
	c.t.Helper()
	for {
		m, err := c.next()
		if err != nil {
			c.t.Fatal(err)
		}
		if all = append(all, m); m.ID == id {
			return all
		}
	}
}

// TestPrivatePagesAreHidden: a client that follows every target, and is attached to every new one, by its
// page or by its tab, is told nothing of a private page, of its frames, and of what it opens. Afterwards
// they are gone.
func TestPrivatePagesAreHidden(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/top" { // localhost is another site
			_, port, _ := strings.Cut(r.Host, ":")
			_, _ = fmt.Fprintf(w, `<!doctype html><title>top</title><iframe src="http://localhost:%s/frame"></iframe>`, port)
			return
		}
		_, _ = fmt.Fprintf(w, `<!doctype html><title>%s</title>`, r.URL.Path)
	}))
	t.Cleanup(web.Close)
	all := map[string]any{"filter": []map[string]any{{}}}
	for _, but := range []string{"tab", "page"} { // Chrome attaches to tabs or to pages
		t.Run("to all but a "+but, func(t *testing.T) {
			m := browser(t)
			c := connect(t, m, open(), &handler{})
			c.page(web.URL + "/own")
			for method, params := range map[string]map[string]any{
				"Target.setDiscoverTargets": {"discover": true, "filter": all["filter"]},
				"Target.setAutoAttach":      {"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true, "filter": []map[string]any{{"type": but, "exclude": true}, {}}},
			} {
				if answer := c.call(method, "", params); answer.Error != nil {
					t.Fatalf("%s: %v", method, answer.Error)
				}
			}
			openAgain := shut(t, m, true)
			o, err := m.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), testchrome.Patience)
			defer cancel()
			call := func(session, method string, params, result any) {
				t.Helper()
				if err := o.Call(ctx, session, method, params, result); err != nil {
					t.Fatalf("%s: %v", method, err)
				}
			}
			target, err := o.CreatePage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var page struct{ SessionID string }
			call("", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &page)
			call(page.SessionID, "Page.navigate", map[string]any{"url": web.URL + "/top"}, nil)
			hidden := map[string]string{}
			// list returns what of the private pages is there, and waits until all of it is.
			list := func(urls ...string) (there string) {
				t.Helper()
				for {
					var got struct {
						TargetInfos []struct{ TargetID, Type, URL string }
					}
					call("", "Target.getTargets", all, &got)
					there = ""
					for _, one := range got.TargetInfos {
						for _, mine := range []string{"/top", "/frame", "/popup", "/apart"} {
							if strings.HasSuffix(one.URL, mine) {
								hidden[one.TargetID] = mine
								there += one.Type + " " + mine + ", "
							}
						}
					}
					if !slices.ContainsFunc(urls, func(url string) bool { return !strings.Contains(there, url) }) {
						return there
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			list("/top", "/frame")
			for _, url := range []string{"/popup", "/apart"} {
				open := map[string]any{"userGesture": true, "expression": fmt.Sprintf(`open(%q, "_blank", %q) && 1`, url, map[string]string{"/apart": "noopener"}[url])}
				call(page.SessionID, "Runtime.evaluate", open, nil) // who is told of it keeps neither waiting
				list(url)
			}
			for _, method := range []string{
				"Target.getTargets", "Target.attachToTarget", "Target.attachToBrowserTarget", "Target.setAutoAttach", "Target.setDiscoverTargets", "Target.createTarget",
				"Tracing.start", "Fetch.enable", "Storage.getCookies",
			} {
				if m := c.call(method, "", map[string]any{"targetId": target, "flatten": true}); m.Error == nil || !strings.Contains(m.Error.Message, "the sidecar signs the account in") {
					t.Errorf("%s: %s, %+v", method, m.Result, m.Error)
				}
			}
			if conn, err := m.Connect(ctx, target, open(), &handler{}, true); err == nil {
				t.Error("a connection to the page was made", conn.ClientSession().Close(ctx))
			}
			if _, err := m.KeepPrivate(methods.RefuseSignIn()); !errors.Is(err, cdpproxy.ErrPrivate) {
				t.Errorf("a second one: %v", err)
			}
			openAgain()
			if left := list(); left != "" {
				t.Errorf("left are %s", left)
			}
			for _, m := range c.until(c.send("Target.getTargets", "", all)) {
				said := string(m.Params) + string(m.Result)
				for id, what := range hidden {
					if strings.Contains(said, id) || strings.Contains(said, what) || strings.Contains(said, "about:blank#") {
						t.Errorf("the client got %s %s", m.Method, said)
					}
				}
			}
			if m := c.call("Target.attachToTarget", "", map[string]any{"targetId": target, "flatten": true}); m.Error == nil {
				t.Error("the client is attached to the page")
			}
			if m := c.call("Browser.getVersion", "", nil); m.Error != nil {
				t.Errorf("afterwards: %v", m.Error)
			}
		})
	}
}

// TestHiddenPagesBesideAWorkingClient: a client that follows every target, and is attached to every new one,
// is told nothing of a hidden page, while all that it does itself goes on: it finds its own pages, and none
// of them loses the focus.
func TestHiddenPagesBesideAWorkingClient(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>%s</title><script>
			window.said = [];
			for (const type of ["visibilitychange", "blur"]) addEventListener(type, () => said.push(type));
		</script>`, r.URL.Path)
	}))
	t.Cleanup(web.Close)
	all := map[string]any{"filter": []map[string]any{{}}}
	for _, but := range []string{"tab", "page"} { // Chrome attaches to tabs or to pages
		t.Run("to all but a "+but, func(t *testing.T) {
			m := browser(t)
			c := connect(t, m, open(), &handler{})
			_, own := c.page(web.URL + "/own")
			for method, params := range map[string]map[string]any{
				"Target.setDiscoverTargets": {"discover": true, "filter": all["filter"]},
				"Target.setAutoAttach":      {"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true, "filter": []map[string]any{{"type": but, "exclude": true}, {}}},
			} {
				if answer := c.call(method, "", params); answer.Error != nil {
					t.Fatalf("%s: %v", method, answer.Error)
				}
			}
			o, err := m.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), testchrome.Patience)
			defer cancel()
			call := func(session, method string, params, result any) {
				t.Helper()
				if err := o.Call(ctx, session, method, params, result); err != nil {
					t.Fatalf("%s: %v", method, err)
				}
			}
			var got []message
			do := func(method, session string, params any) message {
				t.Helper()
				all := c.until(c.send(method, session, params))
				got = append(got, all...)
				return all[len(all)-1]
			}
			hide := func(path string) (target string) {
				t.Helper()
				target, err := o.CreateHidden(ctx)
				if err != nil {
					t.Fatal(err)
				}
				var page struct{ SessionID string }
				call("", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &page)
				call(page.SessionID, "Page.navigate", map[string]any{"url": web.URL + path}, nil)
				return target
			}
			first := hide("/hidden")
			if m := do("Target.createTarget", "", map[string]any{"url": web.URL + "/second", "background": true}); m.Error != nil {
				t.Errorf("the client opens a page: %v", m.Error)
			}
			listed := do("Target.getTargets", "", all)
			if !strings.Contains(string(listed.Result), "/own") || !strings.Contains(string(listed.Result), "/second") || !json.Valid(listed.Result) {
				t.Errorf("the client's own pages are not all there: %s", listed.Result)
			}
			do("Target.setDiscoverTargets", "", map[string]any{"discover": false}) // and once more from the beginning
			do("Target.setDiscoverTargets", "", map[string]any{"discover": true, "filter": all["filter"]})
			if m := do("Target.attachToTarget", "", map[string]any{"targetId": "none", "flatten": true}); m.Error == nil {
				t.Error("a page that does not exist is attached to")
			}
			if err := o.CloseHidden(ctx, first); err != nil {
				t.Error(err)
			}
			second := hide("/hidden")
			// The client begins to hear what every page does: the page is gone before, and no other one comes.
			if m := do("Fetch.enable", "", map[string]any{"patterns": []map[string]string{{"urlPattern": "*"}}}); m.Error != nil {
				t.Errorf("Fetch.enable: %v", m.Error)
			}
			var open struct{ TargetInfos []struct{ TargetID string } }
			call("", "Target.getTargets", all, &open)
			if slices.ContainsFunc(open.TargetInfos, func(one struct{ TargetID string }) bool { return one.TargetID == second }) {
				t.Error("a page is there while the client hears what every page does")
			}
			var listening *cdpproxy.ListeningError
			if _, err := o.CreateHidden(ctx); !errors.As(err, &listening) {
				t.Errorf("while the client hears what every page does: %v", err)
			}
			do("Fetch.disable", "", nil)
			if m := do("Security.setIgnoreCertificateErrors", "", map[string]any{"ignore": true}); m.Error != nil {
				t.Errorf("Security.setIgnoreCertificateErrors: %v", m.Error)
			}
			third := hide("/hidden") // nothing is typed there
			if err := o.CloseHidden(ctx, third); err != nil {
				t.Error(err)
			}
			said := do("Runtime.evaluate", own, map[string]any{"expression": "said + document.visibilityState", "returnByValue": true})
			if !strings.Contains(string(said.Result), `"value":"visible"`) {
				t.Errorf("the client's page was told %s", said.Result)
			}
			do("Target.getTargets", "", all)
			for _, m := range got {
				text := string(m.Params) + string(m.Result)
				for _, what := range []string{first, second, third, "/hidden", "about:blank#", `"type":"other"`} {
					if strings.Contains(text, what) {
						t.Errorf("the client got %s %s", m.Method, text)
					}
				}
			}
		})
	}
}

// TestWhoWouldHearAPrivatePage: while a client traces the browser, intercepts the requests of every page, or
// hears of their certificates, nothing is kept from it, and while it has all of these accepted, no page may get a
// secret; on the session of a page, it hears that page only.
func TestWhoWouldHearAPrivatePage(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{}) // B1
	c.call("Target.attachToTarget", "", flat)
	s.say(`{"method":"Target.attachedToTarget","params":{"sessionId":"P","targetInfo":{"targetId":"T","type":"page"},"waitingForDebugger":false},"sessionId":"B1"}`)
	if m, err := c.next(); err != nil || m.Method != "Target.attachedToTarget" {
		t.Fatalf("%+v, %v", m, err)
	}
	// refuses is why no secret may be typed in a private page.
	refuses := func() error {
		t.Helper()
		end, err := s.mux.KeepPrivate(methods.RefuseSignIn())
		if err != nil {
			return err
		}
		err = s.mux.ChecksCertificates()
		if problem := end(t.Context(), false); problem != nil {
			t.Fatal(problem)
		}
		return err
	}
	ignore := func(to any) map[string]any { return map[string]any{"ignore": to} }
	const certificates = "Security.setIgnoreCertificateErrors"
	for _, tt := range []struct {
		session, on string
		params      map[string]any
		off         string
		ending      map[string]any
		says        string // of the error
	}{
		{"", "Tracing.start", nil, "Tracing.end", nil, "send Tracing.end first"},
		{"P", "Tracing.start", nil, "Tracing.end", nil, "send Tracing.end first"},
		{"", "Fetch.enable", nil, "Fetch.disable", nil, "send Fetch.disable first"},
		{"", "Security.enable", nil, "Security.disable", nil, "send Security.disable first"},
		{"", certificates, ignore(true), certificates, ignore(false), "with ignore false first"},
		{"", certificates, ignore(true), "Security.disable", nil, "with ignore false first"},
		{"", certificates, ignore("false"), certificates, ignore(false), "with ignore false first"}, // Chrome decides what that is
		{"P", "Tracing.start", nil, "", nil, "send Tracing.end first"},                              // its session ends
	} {
		c.call(tt.on, tt.session, tt.params)
		var why *cdpproxy.ListeningError
		if err := refuses(); !errors.As(err, &why) || why.Method != tt.on || !strings.Contains(why.Error(), tt.says) {
			t.Errorf("%+v: %v", tt, err)
		}
		if m := c.call("Runtime.enable", "", nil); m.Error != nil {
			t.Errorf("%+v: then the client may go on: %v", tt, m.Error)
		}
		if tt.off != "" {
			c.call("Security.setOverrideCertificateErrors", tt.session, map[string]any{"override": false})
			if err := refuses(); err == nil {
				t.Errorf("%+v: another command ends it", tt)
			}
			c.call(tt.off, tt.session, tt.ending)
		} else {
			s.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"P","targetId":"T"},"sessionId":"B1"}`)
			if m, err := c.next(); err != nil || m.Method != "Target.detachedFromTarget" {
				t.Fatalf("%+v, %v", m, err)
			}
		}
		if err := refuses(); err != nil {
			t.Errorf("%+v: afterwards: %v", tt, err)
		}
		c.call("Fetch.enable", "P", map[string]any{"patterns": []any{}})
		c.call("Security.enable", "P", nil)
		c.call(certificates, "P", ignore(true))
		if err := refuses(); err != nil {
			t.Errorf("%+v: on the session of a page: %v", tt, err)
		}
	}
}
