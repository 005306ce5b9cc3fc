package methods_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"leasehold/cdpproxy/methods"
)

func check(name, params string) (methods.Named, *methods.Refusal) {
	return methods.Check(methods.Find([]byte(name)), name, []byte(params))
}

// TestURLs: Chrome's own reading of these is in url_test.go.
func TestURLs(t *testing.T) {
	for _, url := range []string{
		"", "http://a/", "HTTPS://a/", "about:blank", "about:blank#x", "about:srcdoc", "data:text/html,file:///etc", "blob:http://a/x", "blob:null/x",
		"javascript:1", "chrome-extension://abc/x.html", "view-source:http://a/", "example.com", "/etc/passwd", "../x", "  http://a", ":file:///", "1file:///", "f%69le:///x",
	} {
		if r := methods.CheckURL(url); r != nil {
			t.Errorf("%q is refused: %s", url, r.Text)
		}
	}
	for _, url := range []string{
		"file:///etc/passwd", "file:/x", `file:\\x`, "FILE:x", "fi\tle:///x", "fi\r\nle:x", "\x00 \x1ffile:x", " file:x", "f\nile\t:x",
		"view-source:file:///x", "view-source: FILE:x", "VIEW-SOURCE:\tview-source:file:x", "filesystem:file:///temporary/x", "filesystem:http://a/temporary/x",
		"blob:file:///x", "chrome://settings", "chrome:version", "chrome://newtab", "Chrome-Untrusted://x", "devtools://devtools/x", "about:settings", "about:version", "about:",
		"chrome-extension://mhjfbmdgcfjbbpaeojofohoefgiehjai/index.html", `CHROME-EXTENSION:\\\\MHJfbmdgcfjbbpaeojofohoefgiehjai`, "chrome-extension://a@mhjfbmdgcfjbbpaeojofohoefgiehjai:1?x", "chrome-extension://%6Dhjfbmdgcfjbbpaeojofohoefgiehjai/",
		"chrome-search://x", "externalfile:x", "content://x", "isolated-app://x", "mailto:a@b", "ssh://x", "ftp://x", "vscode:x", "x-y+z.0:x",
		strings.Repeat("view-source:", 20) + "http://a/",
	} {
		r := methods.CheckURL(url)
		if r == nil || r.Reason != methods.ReasonURL || r.What != url || len(r.Text) > 1000 {
			t.Errorf("%q: %+v", url, r)
		}
	}
	for url, want := range map[string]bool{
		"file:///x": true, "chrome://settings/": true, "view-source:file:///x": true, "devtools://x": true, "blob:chrome://x/1": true,
		"": false, "http://a/": false, "about:blank": false, "about:blank#blocked": false, "chrome-error://chromewebdata/": false, "chrome-extension://x/": false, "mailto:a": false,
	} {
		if methods.Privileged(url) != want {
			t.Errorf("%q: want %v", url, want)
		}
	}
}

// What a command has Chrome write into a request is what HTTP can carry, whichever method says it.
func TestWhatReachesTheWire(t *testing.T) {
	for _, ok := range [][2]string{
		{"Fetch.continueRequest", `{"requestId":"1"}`},
		{"Fetch.continueRequest", `{"requestId":"1","method":"PATCH","url":"https://a/b","postData":"YQ==","headers":[{"name":"X-A","value":"b c"}]}`},
		{"Fetch.fulfillRequest", `{"responseCode":200,"responseHeaders":[{"name":"Set-Cookie","value":"a=b"}],"body":"YQ=="}`},
		{"Fetch.continueWithAuth", `{"requestId":"1","authChallengeResponse":{"response":"ProvideCredentials","username":"u","password":"p ä"}}`},
		{"Network.setExtraHTTPHeaders", `{"headers":{"X-A":"b","name":"c"}}`},
		{"Network.setUserAgentOverride", `{"userAgent":"Mozilla/5.0 (X11)","userAgentMetadata":{"brands":[{"brand":"a","version":"1"}],"mobile":false}}`},
		{"Network.setCookies", `{"cookies":[{"name":"a b","value":"c","domain":"d"}]}`},
	} {
		if _, r := check(ok[0], ok[1]); r != nil {
			t.Errorf("%s %s: %s", ok[0], ok[1], r.Text)
		}
	}
	for _, bad := range [][3]string{
		{"Fetch.continueRequest", `{"method":"CONNECT {}\r\nSUB leasehold.> 1\r\nX"}`, methods.ReasonParameter},
		{"Fetch.continueRequest", `{"method":"GET http://127.0.0.1/ HTTP/1.1"}`, methods.ReasonParameter},
		{"Fetch.continueRequest", `{"method":""}`, methods.ReasonParameter},
		{"Fetch.continueRequest", `{"me\u0074hod":"A\u000aB"}`, methods.ReasonParameter},
		{"Fetch.continueRequest", `{"method":"GET","method":"A B"}`, methods.ReasonForm},
		{"Fetch.continueRequest", `{"url":"file:///x"}`, methods.ReasonURL},
		{"Fetch.continueRequest", `{"headers":[{"name":"A: b\r\nC","value":"d"}]}`, methods.ReasonParameter},
		{"Fetch.continueRequest", `{"headers":[{"name":"A","value":"b\r\nC: d"}]}`, methods.ReasonParameter},
		{"Fetch.continueRequest", `{"headers":[{"name":"A B","value":"c"}]}`, methods.ReasonParameter},
		{"Fetch.continueResponse", `{"responsePhrase":"OK\nA: b"}`, methods.ReasonParameter},
		{"Fetch.fulfillRequest", `{"responseHeaders":[{"name":"A","value":"b\u0000"}]}`, methods.ReasonParameter},
		{"Fetch.continueWithAuth", `{"authChallengeResponse":{"username":"a\r\nb"}}`, methods.ReasonParameter},
		{"Network.setExtraHTTPHeaders", `{"headers":{"A\r\nB":"c"}}`, methods.ReasonParameter},
		{"Network.setExtraHTTPHeaders", `{"headers":{"A":"b\nC: d"}}`, methods.ReasonParameter},
		{"Network.setExtraHTTPHeaders", `{"headers":{"A B":"c"}}`, methods.ReasonParameter},
		{"Network.setUserAgentOverride", `{"userAgent":"a\r\nB: c"}`, methods.ReasonParameter},
		{"Emulation.setUserAgentOverride", `{"userAgent":"a","acceptLanguage":"de\nA: b"}`, methods.ReasonParameter},
		{"Emulation.setUserAgentOverride", `{"userAgent":"a","userAgentMetadata":{"brands":[{"brand":"a\nb"}]}}`, methods.ReasonParameter},
		{"Emulation.setLocaleOverride", `{"locale":"de\r\n"}`, methods.ReasonParameter},
		{"Network.setCookie", `{"name":"a","value":"b\r\n"}`, methods.ReasonParameter},
		{"Storage.setCookies", `{"cookies":[{"name":"a","value":"b\r\n"}]}`, methods.ReasonParameter},
		{"Page.navigate", `{"url":"http://a/","referrer":"http://b/\r\nA: b"}`, methods.ReasonParameter},
	} {
		if _, r := check(bad[0], bad[1]); r == nil || r.Reason != bad[2] {
			t.Errorf("%s %s: %+v, want %s", bad[0], bad[1], r, bad[2])
		}
	}
}

func TestWhatCommandsName(t *testing.T) {
	for _, c := range []struct {
		name, params string
		want         methods.Named
		reason       string // of the refusal
	}{
		{"Runtime.evaluate", `{"expression":"file:///"}`, methods.Named{}, ""},
		{"Nope.nope", `{}`, methods.Named{}, methods.ReasonUnknown},
		{"Browser.crash", ``, methods.Named{}, methods.ReasonMethod},
		{"Extensions.loadUnpacked", `{"path":"/x"}`, methods.Named{}, methods.ReasonMethod},

		{"Target.attachToTarget", `{"targetId":"T","flatten":true}`, methods.Named{}, ""},
		{"Target.attachToTarget", `{"targetId":"T"}`, methods.Named{}, methods.ReasonParameter},
		{"Target.attachToTarget", `{"targetId":"T","flatten":false}`, methods.Named{}, methods.ReasonParameter},
		{"Target.attachToTarget", `{"flatten":true,"fl\u0061tten":false}`, methods.Named{}, methods.ReasonForm},
		{"Target.setAutoAttach", `{"autoAttach":true,"waitForDebuggerOnStart":true,"flatten": true }`, methods.Named{}, ""},
		{"Target.setAutoAttach", `{"autoAttach":true,"waitForDebuggerOnStart":false}`, methods.Named{}, methods.ReasonParameter},
		{"Target.setAutoAttach", `{"autoAttach":false,"waitForDebuggerOnStart":false}`, methods.Named{}, ""},
		{"Page.navigate", `{"url":"http://a/"}`, methods.Named{}, ""},
		{"Page.navigate", `{}`, methods.Named{}, ""}, // Chrome refuses it
		{"Page.navigate", ``, methods.Named{}, ""},
		{"Page.navigate", `null`, methods.Named{}, ""},
		{"Page.navigate", `{"url":"file:///x"}`, methods.Named{}, methods.ReasonURL},
		{"Page.navigate", `{"u\u0072l":"file:///x"}`, methods.Named{}, methods.ReasonURL},
		{"Page.navigate", `{"url":"\u0066ile:///x"}`, methods.Named{}, methods.ReasonURL},
		{"Page.navigate", `{"url":"fi\tle:///x"}`, methods.Named{}, methods.ReasonURL},
		{"Page.navigate", `{"url":"http://a/","url":"file:///x"}`, methods.Named{}, methods.ReasonForm},
		{"Page.navigate", `{"url":"http://a/","u\u0072l":"http://a/"}`, methods.Named{}, methods.ReasonForm},
		{"Page.navigate", `{"url":["file:///x"]}`, methods.Named{}, methods.ReasonForm},
		{"Page.navigate", `{"url":null}`, methods.Named{}, methods.ReasonForm},
		{"Page.navigate", `{"url":"\ud800http://a/"}`, methods.Named{}, methods.ReasonForm},
		{"Page.navigate", `{"\ud800":1,"url":"http://a/"}`, methods.Named{}, methods.ReasonForm},
		{"Page.navigate", `{"url":"http://a/","browserContextId":"C"}`, methods.Named{}, ""}, // Chrome ignores it
		{"Target.createTarget", `{"url":"about:blank","browserContextId":"C"}`, methods.Named{Context: "C"}, ""},
		{"Target.createTarget", ` { "url" : "chrome://settings" } `[1:], methods.Named{}, methods.ReasonURL},
		{"Network.loadNetworkResource", `{"url":"file:///x"}`, methods.Named{}, methods.ReasonURL},
		{"Network.loadNetworkResource", `{"url":"https://a/","options":{"disableCache":true,"includeCredentials":false}}`, methods.Named{}, ""},
		{"Network.loadNetworkResource", `{"url":"https://a/","options":{"disableCache":true,"includeCredentials":true}}`, methods.Named{}, methods.ReasonParameter},
		{"Network.loadNetworkResource", `{"url":"https://a/","options":{"include\u0043redentials":true}}`, methods.Named{}, methods.ReasonParameter},

		{"DOM.setFileInputFiles", `{"files":["/a","/b"],"nodeId":1}`, methods.Named{Read: []string{"/a", "/b"}}, ""},
		{"DOM.setFileInputFiles", `{"fil\u0065s":["/\u0061"]}`, methods.Named{Read: []string{"/a"}}, ""},
		{"DOM.setFileInputFiles", `{"files":[]}`, methods.Named{Read: []string{}}, ""},
		{"DOM.setFileInputFiles", `{"files":["/a"],"fil\u0065s":["/b"]}`, methods.Named{}, methods.ReasonForm},
		{"DOM.setFileInputFiles", `{"files":"/a"}`, methods.Named{}, methods.ReasonForm},
		{"DOM.setFileInputFiles", `{"files":[["/a"]]}`, methods.Named{}, methods.ReasonForm},
		{"DOM.setFileInputFiles", `{"files":["/a",null]}`, methods.Named{}, methods.ReasonForm},
		{"DOM.setFileInputFiles", `{"files":["/\ud83d"]}`, methods.Named{}, methods.ReasonForm},

		{"Browser.setDownloadBehavior", `{"behavior":"allowAndName","downloadPath":"/d","browserContextId":"C","eventsEnabled":true}`, methods.Named{Downloads: true, Write: "/d", Context: "C"}, ""},
		{"Browser.setDownloadBehavior", `{"behavior":"deny","downloadPath":"/d"}`, methods.Named{Downloads: true}, ""},
		{"Browser.setDownloadBehavior", `{"behavior":"default"}`, methods.Named{Downloads: true, Default: true}, ""},
		{"Browser.setDownloadBehavior", `{"behavior":"newone","downloadPath":"/d"}`, methods.Named{}, methods.ReasonForm},
		{"Page.setDownloadBehavior", `{"behavior":"allow","downloadPath":"/d"}`, methods.Named{Downloads: true, OfPage: true, Write: "/d"}, ""},
		{"Page.setDownloadBehavior", `{"behavior":"default","browserContextId":"C"}`, methods.Named{Downloads: true, OfPage: true, Default: true}, ""},
		{"Page.setDownloadBehavior", `{"behavior":"allow","downloadPath":7}`, methods.Named{}, methods.ReasonForm},

		{"Target.createBrowserContext", `{"disposeOnDetach":true}`, methods.Named{}, ""},
		{"Target.createBrowserContext", `{"proxyServer":"direct://"}`, methods.Named{}, methods.ReasonParameter},
		{"Target.createBrowserContext", `{"proxyServer":""}`, methods.Named{}, methods.ReasonParameter},
		{"Target.createBrowserContext", `{"proxyBypassList":"*"}`, methods.Named{}, methods.ReasonParameter},
		{"Target.createBrowserContext", `{"originsWithUniversalNetworkAccess":["http://a"]}`, methods.Named{}, methods.ReasonParameter},
		{"Target.createBrowserContext", `{"originsWithUniversalNetworkAccess":[ ]}`, methods.Named{}, ""},
		{"Page.startScreenRecording", `{}`, methods.Named{}, ""},
		{"Page.startScreenRecording", `{"captureArea":"browserWindow"}`, methods.Named{}, methods.ReasonParameter},
		{"Page.startScreenRecording", `{"capture\u0041rea":"browserWindow"}`, methods.Named{}, methods.ReasonParameter},
		{"Input.dispatchDragEvent", `{"type":"drop","data":{"items":[],"dragOperationsMask":1}}`, methods.Named{}, ""},
		{"Input.dispatchDragEvent", `{"type":"drop","data":{"items":[],"files":[],"dragOperationsMask":1}}`, methods.Named{}, ""},
		{"Input.dispatchDragEvent", `{"type":"drop","data":{"items":[],"fi\u006ces":["/a"]}}`, methods.Named{}, methods.ReasonParameter},
		{"Input.dispatchDragEvent", `{"data":{"files":[],"files":["/a"]}}`, methods.Named{}, methods.ReasonForm},
		{"Input.dispatchDragEvent", `{"data":{},"data":{"files":["/a"]}}`, methods.Named{}, methods.ReasonForm},
		{"Tracing.start", `{"categories":"-*"}`, methods.Named{}, ""},
		{"Tracing.start", `{"perfettoConfig":"AAAA"}`, methods.Named{}, methods.ReasonParameter},
	} {
		got, r := check(c.name, c.params)
		switch {
		case r == nil && (c.reason != "" || !reflect.DeepEqual(got, c.want)):
			t.Errorf("%s %s: %+v, want %+v, refused for %q", c.name, c.params, got, c.want, c.reason)
		case r != nil && r.Reason != c.reason:
			t.Errorf("%s %s is refused for %q: %s", c.name, c.params, r.Reason, r.Text)
		case r != nil && !strings.Contains(r.Message(c.name), strings.Split(c.name, ".")[1]):
			t.Errorf("%s: %q does not name it", c.name, r.Message(c.name))
		}
	}
}

// FuzzCheck: whatever the parameters are, what is read of them is what encoding/json
// reads, or they are refused.
func FuzzCheck(f *testing.F) {
	for _, params := range []string{`{"url":"file:///"}`, `{"u\u0072l":"x","files":["/a"]}`, `{"data":{"files":["a"]}}`, `{"url":"\ud800"}`, `null`, `{"files":[]}`} {
		f.Add(params)
	}
	f.Fuzz(func(t *testing.T, params string) {
		if !json.Valid([]byte(params)) || params != strings.TrimSpace(params) || params[0] != '{' && params != "null" {
			return // the scanner of messages has refused it
		}
		var read struct {
			URL   *string  `json:"url"`
			Files []string `json:"files"`
		}
		invalid := json.Unmarshal([]byte(params), &read)
		if _, r := check("Page.navigate", params); r == nil && invalid == nil && read.URL != nil && exact(params, "url") && methods.CheckURL(*read.URL) != nil {
			t.Errorf("%s passes", params)
		}
		if named, r := check("DOM.setFileInputFiles", params); r == nil && invalid == nil && exact(params, "files") && len(named.Read) != len(read.Files) {
			t.Errorf("%s names %q, not %q", params, named.Read, read.Files)
		}
	})
}

// exact tells whether a member has this name in this case, and none has it in another:
// encoding/json does not mind the case.
func exact(params, name string) bool {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(params), &all) != nil {
		return false
	}
	n := 0
	for key := range all {
		if strings.EqualFold(key, name) {
			n++
		}
	}
	_, has := all[name]
	return has && n == 1
}
