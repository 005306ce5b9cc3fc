package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"leasehold/launcher/api"
)

// everyRoute calls check with a path for each route of both layouts.
func everyRoute(t *testing.T, check func(t *testing.T, f *fixture, rt route, path string), o Options) {
	t.Helper()
	o.Metrics, o.Console = http.NotFoundHandler(), http.NotFoundHandler()
	f := serve(t, o, nil)
	for _, rt := range publicRoutes() {
		t.Run(rt.method+" "+rt.pattern, func(t *testing.T) {
			path := strings.NewReplacer("{profile}", "p", "{capability}", capability, "{session}", "s", "{target}", "T", "{evidence}", "e", "{part}", "x", "{id}", "i").Replace(rt.pattern)
			check(t, f, rt, path)
		})
	}
	dedicated := serveWith(t, o, nil, func(svc api.Service, o Options) http.Handler { return Dedicated(svc, "ses_1", o) })
	for _, rt := range dedicatedRoutes("ses_1") {
		t.Run("dedicated "+rt.method+" "+rt.pattern, func(t *testing.T) {
			path := strings.NewReplacer("{target}", "T", "{id}", "i").Replace(rt.pattern)
			check(t, dedicated, rt, path)
		})
	}
}

var upgradeHeaders = []string{
	"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
}

func TestEveryRouteRefusesOtherPages(t *testing.T) {
	everyRoute(t, func(t *testing.T, f *fixture, rt route, path string) {
		for _, header := range []string{
			"Host: rebound.example.com", "Host: 127.0.0.1.example.com:9333", "Host: localhost.example.com", "Host: notlocalhost",
			"Origin: https://example.com", "Origin: null", "Origin: http://127.0.0.1:1", "Origin: ",
			"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site",
		} {
			headers := []string{header}
			if rt.websocket {
				headers = append(headers, upgradeHeaders...)
			}
			r, body := f.request(rt.method, path, "", headers...)
			if p := problemOf(t, r, body); r.StatusCode != 403 || p.Code != api.CodeForbidden {
				t.Errorf("%s: %s %s, want 403 forbidden", header, r.Status, body)
			}
		}
		f.wantCalls()
	}, Options{})
}

func TestEveryRouteAsksForItsCredential(t *testing.T) {
	everyRoute(t, func(t *testing.T, f *fixture, rt route, path string) {
		if rt.access.proof != byPrincipal {
			return
		}
		for name, c := range map[string]struct{ query, header, challenge string }{
			"none":                  {"", "X: y", `Bearer realm="leasehold"`},
			"another scheme":        {"", "Authorization: Basic " + aToken, `Bearer realm="leasehold"`},
			"wrong bearer":          {"", "Authorization: Bearer " + aToken + "x", `Bearer realm="leasehold", error="invalid_token"`},
			"empty bearer":          {"", "Authorization: Bearer ", `Bearer realm="leasehold"`},
			"wrong query":           {"?token=x", "X: y", `Bearer realm="leasehold", error="invalid_token"`},
			"empty query":           {"?token=", "X: y", `Bearer realm="leasehold", error="invalid_token"`},
			"query against bearer":  {"?token=x", "Authorization: Bearer " + aToken, `Bearer realm="leasehold", error="invalid_token"`},
			"bearer against query":  {"?token=" + aToken, "Authorization: Bearer x", `Bearer realm="leasehold", error="invalid_token"`},
			"two that do not agree": {"?token=" + aToken + "&token=x", "X: y", `Bearer realm="leasehold", error="invalid_token"`},
		} {
			headers := []string{c.header}
			if rt.websocket {
				headers = append(headers, upgradeHeaders...)
			}
			r, body := f.request(rt.method, path+c.query, "", headers...)
			if p := problemOf(t, r, body); r.StatusCode != 401 || p.Code != api.CodeUnauthenticated || r.Header.Get("WWW-Authenticate") != c.challenge {
				t.Errorf("%s: %s %s %q, want 401 and %q", name, r.Status, body, r.Header.Get("WWW-Authenticate"), c.challenge)
			}
		}
		f.wantCalls()
	}, Options{Gate: gate(aToken)})
}

func TestTokenOpens(t *testing.T) {
	f := serve(t, Options{Gate: gate(aToken)}, map[string]any{"Sessions": []api.Session{}, "Ready": nil, "SessionByCapability": held, "Targets": []api.Target{}})
	for _, c := range []struct{ path, header string }{
		{"/v1/sessions", "Authorization: Bearer " + aToken},
		{"/v1/sessions", "Authorization: bearer  " + aToken},
		{"/v1/sessions?token=" + aToken, "X: y"},
		{"/v1/sessions?token=" + aToken, "Authorization: Bearer " + aToken},
		{"/v1/sessions?token=" + aToken, "Authorization: Basic cHJveHk6cHJveHk="},
		{"/healthz", "X: y"},
		{"/healthz", "Authorization: Bearer stale"},
		{"/readyz", "X: y"},
		{"/s/" + capability + "/json/list", "X: y"},
	} {
		if r, body := f.request("GET", c.path, "", c.header); r.StatusCode != 200 {
			t.Errorf("%s with %s: %s %s, want 200", c.path, c.header, r.Status, body)
		}
	}
	if r, body := f.request("GET", "/s/"+capability+"/json/list?token=wrong", ""); r.StatusCode != 401 {
		t.Errorf("capability with a wrong token: %s %s, want 401", r.Status, body)
	}
	if r, _ := f.request("GET", "/nowhere", ""); r.StatusCode != 401 {
		t.Errorf("unknown path without the token: %s, want 401", r.Status)
	}
}

func TestHostsAndOriginsOfOurOwn(t *testing.T) {
	o := Options{ListenAddr: "browsers.internal:9333", AdvertiseURL: "https://Browsers.Example.com/pool"}
	for _, c := range []struct {
		name    string
		headers []string
		status  int
	}{
		{"localhost", []string{"Host: LOCALHOST:1"}, 200},
		{"below localhost", []string{"Host: a.localhost"}, 200},
		{"IPv4", []string{"Host: 10.1.2.3:9333"}, 200},
		{"IPv6", []string{"Host: [::1]:9333"}, 200},
		{"IPv6 without a port", []string{"Host: [fd00::1]"}, 200},
		{"listen host", []string{"Host: browsers.internal:9333"}, 200},
		{"advertised host", []string{"Host: browsers.example.com"}, 200},
		{"another port is the same host", []string{"Host: browsers.example.com:1"}, 200},
		{"no address", []string{"Host: 0.0.0.0:9333"}, 403},
		{"no IPv6 address", []string{"Host: [::]:9333"}, 403},
		{"no IPv4 address in IPv6", []string{"Host: [::ffff:0.0.0.0]:9333"}, 403},
		{"short IPv4 is a name", []string{"Host: 127.1"}, 403},
		{"user in the host", []string{"Host: a@localhost"}, 403},
		{"own origin", []string{"Host: 127.0.0.1:9333", "Origin: http://127.0.0.1:9333"}, 200},
		{"the tools of a Chrome", []string{"Host: 127.0.0.1:9333", "Origin: devtools://devtools"}, 200},
		{"another part of a Chrome", []string{"Host: 127.0.0.1:9333", "Origin: chrome://inspect"}, 403},
		{"own origin, default port", []string{"Host: localhost", "Origin: HTTP://localhost:80"}, 200},
		{"advertised origin", []string{"Host: 10.0.0.1:9333", "Origin: https://browsers.example.com"}, 200},
		{"origin of the advertised host's other scheme", []string{"Host: 10.0.0.1:9333", "Origin: http://browsers.example.com"}, 403},
		{"other port", []string{"Host: 127.0.0.1:9333", "Origin: http://127.0.0.1:9334"}, 403},
		{"other scheme", []string{"Host: 127.0.0.1:9333", "Origin: https://127.0.0.1:9333"}, 403},
		{"other name of this host", []string{"Host: 127.0.0.1:9333", "Origin: http://localhost:9333"}, 403},
		{"two origins", []string{"Host: 127.0.0.1:9333", "Origin: http://127.0.0.1:9333", "Origin: https://example.com"}, 403},
		{"not an origin", []string{"Host: 127.0.0.1:9333", "Origin: http://127.0.0.1:9333/x?y"}, 403},
		{"extension", []string{"Host: 127.0.0.1:9333", "Origin: chrome-extension://abc"}, 403},
		{"our page", []string{"Host: 127.0.0.1:9333", "Sec-Fetch-Site: same-origin"}, 200},
		{"typed address", []string{"Host: 127.0.0.1:9333", "Sec-Fetch-Site: none"}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, o, nil)
			if r, body := f.request("GET", "/healthz", "", c.headers...); r.StatusCode != c.status {
				t.Errorf("%s %s, want %d", r.Status, body, c.status)
			}
		})
	}
	// Behind a proxy that ends TLS, the page's origin is https.
	f := serve(t, behind, nil)
	if r, body := f.request("GET", "/healthz", "", "Host: 127.0.0.1:9333", "X-Forwarded-Proto: https", "Origin: https://127.0.0.1:9333"); r.StatusCode != 200 {
		t.Errorf("%s %s, want 200", r.Status, body)
	}
}

// TestDiscoveryTakesAnyMethod as Chrome does, but not what changes something.
func TestDiscoveryTakesAnyMethod(t *testing.T) {
	f := serve(t, Options{}, map[string]any{"Version": api.BrowserVersion{Browser: "Chrome/1"}})
	for _, method := range []string{"GET", "POST", "OPTIONS"} {
		r, body := f.request(method, "/profiles/p/json/version?worker=w&task=t", "")
		if r.StatusCode != 200 || !strings.Contains(body, `"Browser":"Chrome/1"`) {
			t.Errorf("%s: %s %s", method, r.Status, body)
		}
	}
}

func TestMethodsAndPaths(t *testing.T) {
	f := serve(t, Options{}, nil)
	for _, c := range []struct{ method, path, allow string }{
		{"DELETE", "/v1/profiles/p", "GET, PUT"},
		{"PATCH", "/v1/sessions", "POST, GET"},
		{"PUT", "/v1/sessions/s/", "GET, DELETE"},
		{"GET", "/v1/sessions/s/heartbeat", "POST"},
		{"GET", "/profiles/p/json/new?https://example.com", "PUT"},
		{"HEAD", "/s/c/json/close/T", "GET"},
		{"HEAD", "/profiles/p/json/activate/T", "GET"},
		{"POST", "/devtools/browser/p", "GET"},
		{"POST", "/", "GET"},
		{"OPTIONS", "/v1/profiles", "GET"},
	} {
		r, body := f.request(c.method, c.path, "")
		if r.StatusCode != 405 || r.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %s, Allow %q, want 405, %q", c.method, c.path, r.Status, r.Header.Get("Allow"), c.allow)
		}
		if c.method != "HEAD" {
			problemOf(t, r, body)
		}
	}
	for _, path := range []string{"/v1", "/v1/nothing", "/json/version", "/json", "/devtools/browser", "/devtools/page/T", "/s", "/s/c", "/profiles", "/v1/profiles/p/holds", "/a/../v1/profiles"} {
		r, body := f.request("GET", path, "")
		if p := problemOf(t, r, body); r.StatusCode != 404 || p.Code != api.CodeNotFound {
			t.Errorf("%s: %s %s, want 404 not_found", path, r.Status, body)
		}
	}
	if _, body := f.request("GET", "/json/version", ""); !strings.Contains(body, "dedicated_port") {
		t.Errorf("a client that dropped the path is told %s", body)
	}
	f.wantCalls()
}

func TestLogTellsNoSecret(t *testing.T) {
	f := serve(t, Options{Gate: gate(aToken)}, map[string]any{"SessionByCapability": api.Refuse(api.CodeUnknownSession, "no"), "Version": chromium})
	f.request("GET", "/s/"+capability+"/json/version", "")
	f.request("GET", "//s/"+capability+"//nowhere", "")
	f.request("GET", "/pool/s/"+capability+"/json/version", "")
	f.request("GET", "/profiles/p/json/version?task=t&token="+aToken, "")
	f.request("GET", "/profiles/p?task=t&token="+aToken+"/json/version", "")
	f.request("GET", "/v1/sessions", "", "Authorization: Bearer wrong-"+aToken)
	f.Server.Close()
	log := f.log.String()
	if n := strings.Count(log, `"message":"request"`); n != 6 {
		t.Errorf("%d lines for 6 requests:\n%s", n, log)
	}
	for _, secret := range []string{capability, aToken} {
		if strings.Contains(log, secret) {
			t.Errorf("the log tells %s:\n%s", secret, log)
		}
	}
	for _, want := range []string{`"path":"/s/zrT6.../json/version"`, `"path":"/pool/s/zrT6.../json/version"`, `"status":401`, `"profile":"p"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
}
