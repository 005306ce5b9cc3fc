package httpapi

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"leasehold/launcher/api"
)

// aTicket is the part of a URL with a ticket that no test knows.
var aTicket = regexp.MustCompile(`/s/[A-Za-z0-9_-]{43}/`)

// behind is a sidecar behind a proxy that it knows of, and apart one that expects its proxy
// elsewhere.
var (
	behind = Options{Gate: gate(aToken), TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	apart  = Options{Gate: gate(aToken), TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
)

func TestVersionOfAOneShotURL(t *testing.T) {
	const path = "/profiles/store.18/json/version"
	for _, c := range []struct {
		name, path, header string
		o                  Options
		want               string // of webSocketDebuggerUrl; HOST is where the test listens
	}{
		{"plain", path + "?worker=w&task=t", "", Options{}, "ws://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"slash", path + "/?worker=w&task=t", "", Options{}, "ws://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"slash in the base", "/profiles/store.18//json/version?worker=w&task=t", "", Options{}, "ws://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"worker is the peer", path + "?task=t", "", Options{}, "ws://HOST/devtools/browser/store.18?task=t&worker=127.0.0.1"},
		{
			"options", path + "?task=t%26x&worker_id=w&expected_domains=a.com,b.com&wait=5&on_close=keep&create", "", Options{},
			"ws://HOST/devtools/browser/store.18?create=true&expected_domains=a.com%2Cb.com&on_close=keep&task=t%26x&wait=5s&worker=w",
		},
		{"concatenated", "/profiles/store.18?worker=w&task=t/json/version", "", Options{}, "ws://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"concatenated, with slashes", "/profiles/store.18/?worker=w&task=t//json/version/", "", Options{}, "ws://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"token in the query", path + "?worker=w&task=t&token=" + aToken, "", Options{Gate: gate(aToken)}, "ws://HOST/s/TICKET/devtools/browser/store.18"},
		{
			"token concatenated", "/profiles/store.18?worker=w&task=t&token=" + aToken + "/json/version", "", Options{Gate: gate(aToken)},
			"ws://HOST/s/TICKET/devtools/browser/store.18",
		},
		{"token in the header", path + "?worker=w&task=t", "Authorization: Bearer " + aToken, Options{Gate: gate(aToken)}, "ws://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"advertised", path + "?worker=w&task=t", "", Options{AdvertiseURL: "https://b.example.com/pool/"}, "wss://b.example.com/pool/devtools/browser/store.18?task=t&worker=w"},
		{"advertised badly", path + "?worker=w&task=t", "", Options{AdvertiseURL: "http://0.0.0.0:9333"}, "ws://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"Host is repeated", path + "?worker=w&task=t", "Host: localhost:1234", Options{}, "ws://localhost:1234/devtools/browser/store.18?task=t&worker=w"},
		{"Host without a port", path + "?worker=w&task=t", "Host: localhost", Options{}, "ws://localhost:PORT/devtools/browser/store.18?task=t&worker=w"},
		{"IPv6 Host without a port", path + "?worker=w&task=t", "Host: [::1]", Options{}, "ws://[::1]:PORT/devtools/browser/store.18?task=t&worker=w"},
		{"TLS in front", path + "?worker=w&task=t", "X-Forwarded-Proto: https, http", behind, "wss://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"proxy in front", path + "?worker=w&task=t", "X-Forwarded-Host: localhost", behind, "ws://localhost/devtools/browser/store.18?task=t&worker=w"},
		{"forwarded host that is not ours", path + "?worker=w&task=t", "X-Forwarded-Host: example.com", behind, "ws://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"somebody who is no proxy of ours", path + "?worker=w&task=t", "X-Forwarded-Host: localhost", apart, "ws://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"nor does it speak TLS for us", path + "?worker=w&task=t", "X-Forwarded-Proto: https", apart, "ws://HOST/devtools/browser/store.18?task=t&worker=w"},
		{"TLS here", path + "?worker=w&task=t", "", Options{TLS: true}, "wss://HOST/devtools/browser/store.18?task=t&worker=w"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, c.o, map[string]any{"Version": chromium})
			var headers []string
			if c.header != "" {
				headers = append(headers, c.header)
			}
			if len(c.o.TrustedProxies) > 0 { // its user is nobody's proof
				headers = append(headers, "Authorization: Bearer "+aToken)
			}
			r, body := f.request("GET", c.path, "", headers...)
			port := f.addr()[strings.LastIndex(f.addr(), ":")+1:]
			want := `{"Browser":"Chrome/156.0.8078.79","Protocol-Version":"1.3","User-Agent":"Mozilla/5.0","V8-Version":"15.6","WebKit-Version":"537.36",` +
				`"webSocketDebuggerUrl":"` + strings.NewReplacer("HOST", f.addr(), "PORT", port).Replace(c.want) + `"}` + "\n"
			if got := aTicket.ReplaceAllString(body, "/s/TICKET/"); r.StatusCode != 200 || got != want {
				t.Errorf("%s\n%swant 200\n%s", r.Status, body, want)
			}
			f.wantCalls("Version")
			conforms(t, document(t), "GET", path, r, body)
		})
	}
}

func TestVersionFixesTheTask(t *testing.T) {
	f := serve(t, Options{}, map[string]any{"Version": chromium})
	seen := map[string]bool{}
	for range 20 {
		_, body := f.request("GET", "/profiles/p/json/version", "")
		task := regexp.MustCompile(`task=(adhoc-[a-z0-9]{12})&worker=127\.0\.0\.1"`).FindStringSubmatch(body)
		if task == nil || seen[task[1]] {
			t.Fatalf("%s: want a task of its own in the URL", body)
		}
		seen[task[1]] = true
	}
}

func TestBadOneShotURLs(t *testing.T) {
	for path, field := range map[string]string{
		"/profiles/.p/json/version":                     "profile_id",
		"/profiles/p/json/version?workr=w":              "workr",
		"/profiles/p/json/version?wait=soon":            "wait",
		"/profiles/p/json/version?wait=11m":             "wait",
		"/profiles/p/json/version?on_drop=keep":         "on_drop",
		"/profiles/p/json/version?task=%zz":             "",
		"/profiles/p/json/version?profile_id=q":         "profile_id",
		"/profiles/p/json/version?worker=a&worker=b":    "worker_id",
		"/profiles/p/json/list?worker=w":                "task_id",
		"/profiles/p":                                   "",
		"/profiles/p/devtools/browser/x":                "",
		"/devtools/browser/p":                           "",
		"/profiles/p?worker=w&task=t/json/activate":     "",
		"/s/" + capability + "/devtools/browser/p?x=ok": "",
	} {
		f := serve(t, Options{}, nil)
		r, body := f.request("GET", path, "")
		if p := problemOf(t, r, body); r.StatusCode != 400 || p.Code != api.CodeInvalidRequest || p.Field != field {
			t.Errorf("%s: %s %+v, want 400 invalid_request of %q", path, r.Status, p, field)
		}
		f.wantCalls()
	}
}

// TestDiscovery asks each of Chrome's endpoints below each of the three kinds of base.
func TestDiscovery(t *testing.T) {
	const byName, byKey = `SessionOf "store.18" "w" "t"`, `SessionByCapability "` + capability + `"`
	bases := []struct {
		name, path, query, find string
		page                    string // where a target's URL begins
		pageQuery               string
		handler                 func(api.Service, Options) http.Handler
	}{
		{"identity", "/profiles/store.18", "worker=w&task=t", byName, "/profiles/store.18/devtools/page/", "?task=t&worker=w", New},
		{"ephemeral", "/profiles/store.18", "worker=w&task=t&ephemeral=true", byName + ` "ephemeral"`, "/profiles/store.18/devtools/page/", "?ephemeral=true&task=t&worker=w", New},
		{"capability", "/s/" + capability, "", byKey, "/s/" + capability + "/devtools/page/", "", New},
		{"port", "", "", `Session "ses_1"`, "/devtools/page/", "", func(svc api.Service, o Options) http.Handler { return Dedicated(svc, "ses_1", o) }},
	}
	targets := []api.Target{{ID: "T1", Type: "page", Title: "<b>", URL: "https://example.com/?a=1&b=2"}}
	for _, b := range bases {
		answers := map[string]any{
			"SessionOf": held, "SessionByCapability": held, "Session": held, "Targets": targets, "NewTarget": targets[0],
			"ActivateTarget": nil, "CloseTarget": nil, "Protocol": json.RawMessage(`{"version":{},"domains":[]}`), "Version": chromium,
		}
		f := serveWith(t, Options{}, answers, b.handler)
		entry := `{"description":"","devtoolsFrontendUrl":"devtools://devtools/bundled/inspector.html?ws=` + f.addr() + b.page + "T1" + url.QueryEscape(b.pageQuery) + `","id":"T1","title":"<b>","type":"page","url":"https://example.com/?a=1&b=2","webSocketDebuggerUrl":"ws://` +
			f.addr() + b.page + "T1" + b.pageQuery + `"}`
		newQuery := func(u string) string { return "?" + strings.TrimPrefix(b.query+"&"+u, "&") }
		for _, c := range []struct {
			method, path, query string
			calls               []string
			want                string
		}{
			{"GET", "/json", "?" + b.query, []string{b.find, `Targets "ses_1"`}, "[" + entry + "]\n"},
			{"GET", "/json/", "?" + b.query, []string{b.find, `Targets "ses_1"`}, "[" + entry + "]\n"},
			{"GET", "/json/list", "?t=1&" + b.query, []string{b.find, `Targets "ses_1"`}, "[" + entry + "]\n"},
			{"GET", "/json/list/", "?" + b.query, []string{b.find, `Targets "ses_1"`}, "[" + entry + "]\n"},
			{"GET", "/json/protocol", "?" + b.query, []string{b.find, `Protocol "ses_1"`}, `{"version":{},"domains":[]}`},
			{"GET", "/json/protocol/", "?" + b.query, []string{b.find, `Protocol "ses_1"`}, `{"version":{},"domains":[]}`},
			{"GET", "/json/activate/T1", "?" + b.query, []string{b.find, `ActivateTarget "ses_1" "T1"`}, "Target activated"},
			{"GET", "/json/close/T1/", "?" + b.query, []string{b.find, `CloseTarget "ses_1" "T1"`}, "Target is closing"},
			{"PUT", "/json/new", "?" + b.query, []string{b.find, `NewTarget "ses_1" "about:blank"`}, entry + "\n"},
			{"PUT", "/json/new", newQuery("https://example.com/?a=1&b=2"), []string{b.find, `NewTarget "ses_1" "https://example.com/?a=1\u0026b=2"`}, entry + "\n"},
			{"PUT", "/json/new/", newQuery("https%3A%2F%2Fexample.com%2F%3Fa%3D1%26token%3D2"), []string{b.find, `NewTarget "ses_1" "https://example.com/?a=1\u0026token=2"`}, entry + "\n"},
			{"PUT", "/json/new", newQuery("url=https%3A%2F%2Fexample.com%2Fa+b"), []string{b.find, `NewTarget "ses_1" "https://example.com/a b"`}, entry + "\n"},
		} {
			t.Run(b.name+" "+c.method+" "+c.path+c.query, func(t *testing.T) {
				r, body := f.request(c.method, b.path+c.path+c.query, "")
				if r.StatusCode != 200 || body != c.want {
					t.Errorf("%s\n%s\nwant 200\n%s", r.Status, body, c.want)
				}
				f.wantCalls(c.calls...)
			})
		}
		for name, missing := range map[string]*api.Problem{
			"Targets": api.Refuse(api.CodeSessionEnded, "over"), "CloseTarget": api.Refuse(api.CodeNotFound, "no such target id: T1"),
		} {
			f.mu.Lock()
			f.answers[name] = missing
			f.mu.Unlock()
		}
		if r, body := f.request("GET", b.path+"/json/list?"+b.query, ""); r.StatusCode != 410 {
			t.Errorf("%s: list: %s %s, want 410", b.name, r.Status, body)
		}
		if r, body := f.request("GET", b.path+"/json/close/T1?"+b.query, ""); r.StatusCode != 404 {
			t.Errorf("%s: close: %s %s, want 404", b.name, r.Status, body)
		}
	}
}

func TestVersionOfASession(t *testing.T) {
	f := serve(t, Options{AdvertiseURL: "http://b.example.com:9333"}, map[string]any{"SessionByCapability": held, "Version": chromium})
	_, body := f.request("GET", "/s/"+capability+"/json/version?any=query", "")
	if want := `"webSocketDebuggerUrl":"ws://b.example.com:9333/s/` + capability + `/devtools/browser/store.18"`; !strings.Contains(body, want) {
		t.Errorf("%s, want %s", body, want)
	}
	// chromedriver sends the host without a port, keeps the path and drops a query.
	d := serveWith(t, Options{AdvertiseURL: "https://b.example.com", Gate: gate(aToken)}, map[string]any{"Session": held, "Version": chromium},
		func(svc api.Service, o Options) http.Handler { return Dedicated(svc, "ses_1", o) })
	_, body = d.request("GET", "/json/version", "", "Host: 127.0.0.1")
	if want := `"webSocketDebuggerUrl":"ws://` + d.addr() + `/devtools/browser/store.18"`; !strings.Contains(body, want) {
		t.Errorf("%s, want %s", body, want)
	}
	over := held
	over.State, over.Ended = api.SessionEnded, "released"
	d.mu.Lock()
	d.answers["Session"] = over
	d.mu.Unlock()
	if r, body := d.request("GET", "/json/version", ""); r.StatusCode != 410 || !strings.Contains(body, `"ended":"released"`) {
		t.Errorf("%s %s, want 410 with how it ended", r.Status, body)
	}
}

func TestProtocolNeedsNoSession(t *testing.T) {
	f := serve(t, Options{}, map[string]any{"SessionOf": errNotScripted, "Protocol": json.RawMessage(`{}`)})
	if r, body := f.request("GET", "/profiles/p/json/protocol?task=t", ""); r.StatusCode != 200 || body != "{}" {
		t.Errorf("%s %s", r.Status, body)
	}
	if r, body := f.request("GET", "/profiles/p/json/list?task=t", ""); r.StatusCode != 404 || !strings.Contains(body, api.CodeUnknownSession) {
		t.Errorf("%s %s, want unknown_session", r.Status, body)
	}
}

// FuzzConcatenated: whatever is in a base URL's query, text that is appended to the URL
// as a whole asks for the same as text that is appended to its path.
func FuzzConcatenated(f *testing.F) {
	for _, seed := range [][2]string{{"w", "t"}, {"", ""}, {"a/json/version", "t/json/list"}, {"w&x", "t=u"}, {"w/", "/"}, {"w", "t/"}, {"\x00", "%"}} {
		f.Add(seed[0], seed[1], false)
		f.Add(seed[0], seed[1], true)
	}
	f.Fuzz(func(t *testing.T, worker, task string, slash bool) {
		base := url.Values{"worker": {worker}, "zask": {task}}.Encode()
		raw := base + "/json/version"
		if slash {
			raw += "/"
		}
		segments, rest := splitConcatenated([]string{"profiles", "p"}, raw)
		if strings.Join(segments, "/") != "profiles/p/json/version" || rest != base {
			t.Errorf("%q: %q, %q", raw, segments, rest)
		}
		if segments, rest := splitConcatenated([]string{"v1", "sessions"}, raw); len(segments) != 2 || rest != raw {
			t.Errorf("%q elsewhere: %q, %q", raw, segments, rest)
		}
	})
}

// FuzzNewURL: the URL that is opened is the one that was asked for, and none of its own
// parameters is taken for one of ours.
func FuzzNewURL(f *testing.F) {
	f.Add("w", "t", "https://example.com/?task=x&token=y")
	f.Add("", "", "data:,a b")
	f.Add("w", "t", "worker=1")
	f.Fuzz(func(t *testing.T, worker, task, open string) {
		if open == "" {
			return
		}
		own, got := splitURLQuery("worker=" + url.QueryEscape(worker) + "&task=" + url.QueryEscape(task) + "&url=" + url.QueryEscape(open))
		if own.Get("worker") != worker || own.Get("task") != task || got != open {
			t.Errorf("%v, %q; want %q %q, %q", own, got, worker, task, open)
		}
		if own, got := splitURLQuery("https://example.com/?" + open); len(own) != 0 || !strings.HasPrefix(got, "https://example.com/") {
			t.Errorf("%q: %v, %q", open, own, got)
		}
	})
}
