package monitor

import (
	"fmt"
	picture "image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/target"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
)

// TestAWindowThatBecomesAPage: what Chrome calls a page only later is one from then on. No tab of the
// profile stays because of it, since it closes with the tab that it belongs to.
func TestAWindowThatBecomesAPage(t *testing.T) {
	t.Parallel()
	ps := newPages(newNavigations())
	window := &target.Info{TargetID: "W", Type: typeOther, BrowserContextID: "own"}
	ps.attached("", "ST", &target.Info{TargetID: "T", Type: typePage, URL: "https://shop.example/", BrowserContextID: "own"})
	if e := ps.attached("", "SW", window); e != nil || len(ps.list()) != 1 {
		t.Errorf("a window without a document: %+v, pages %+v", e, ps.list())
	}
	window.Type, window.URL = typePage, "https://pay.example/"
	if e := ps.infoChanged(window); e == nil || e.Kind != checkpoint.KindURL || e.URL != window.URL || e.Target != "W" {
		t.Errorf("it has a document: %+v", e)
	}
	if found := ps.open["W"]; found == nil || found.SessionID != "SW" || !ps.watched([]*target.Info{window}) {
		t.Errorf("the page is %+v", found)
	}
	hidden := &target.Info{TargetID: "H", Type: typeOther, URL: "about:blank", BrowserContextID: "own"}
	if e := ps.attached("", "SH", hidden); e != nil || ps.open["H"] != nil {
		t.Errorf("a hidden page without a document: %+v", e)
	}
	if hidden.URL = "https://shop.example/hidden"; ps.infoChanged(hidden) == nil || ps.open["H"] == nil {
		t.Error("a hidden page has a document, and is not known")
	}
	if ps.infoChanged(&target.Info{TargetID: "new", Type: typePage}); ps.open["new"] != nil {
		t.Error("a page is known to which nobody is attached")
	}
	if ps.closes("T") {
		t.Error("the one tab closes, and another one is said to stay")
	}
}

// TestAPageThatIsClosedIsToldOfOnce, if it was reported, and not if the launcher itself closes it.
func TestAPageThatIsClosedIsToldOfOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind, url string
		closing   bool
		want      string
	}{
		"a page":          {typePage, "https://shop.example/", false, "url T, closed T"},
		"a blank page":    {typePage, "about:blank", false, ""},
		"a worker":        {typeWorker, "https://shop.example/w.js", false, ""},
		"by the launcher": {typePage, "https://shop.example/", true, "url T"},
	} {
		ps := newPages(newNavigations())
		ps.navigations.closing.Store(tt.closing)
		var got []string
		gone := `{"sessionId":"S","targetId":"T"}`
		for _, e := range []cdpproxy.Event{
			{Method: eventAttached, Params: fmt.Appendf(nil, `{"sessionId":"S","targetInfo":{"targetId":"T","type":%q,"url":%q}}`, tt.kind, tt.url)},
			{Method: eventDetached, Params: []byte(gone)}, {Method: eventDetached, Params: []byte(gone)},
		} {
			for _, found := range ps.observe(e).entries {
				got = append(got, fmt.Sprint(found.Kind, " ", found.Target))
			}
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// payment is a site that has a payment method, and pays in a window that a service worker opens.
func payment(t *testing.T) (origin string) {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := "http://" + r.Host
		kind, body := "text/html", "<form action=/paid method=post><input name=card></form>"
		switch r.URL.Path {
		case "/method":
			w.Header().Set("Link", `</method.json>; rel="payment-method-manifest"`)
		case "/method.json":
			kind, body = "application/json", fmt.Sprintf(`{"default_applications": ["%s/app.json"], "supported_origins": ["%[1]s"]}`, own)
		case "/app.json":
			kind, body = "application/manifest+json", `{"name": "Pay", "icons": [{"src": "/icon.png", "sizes": "96x96", "type": "image/png"}], "serviceworker": {"src": "/worker.js", "scope": "/"}}`
		case "/icon.png":
			w.Header().Set("Content-Type", "image/png")
			_ = png.Encode(w, picture.NewGray(picture.Rect(0, 0, 96, 96)))
			return
		case "/worker.js":
			kind, body = "text/javascript", `addEventListener("paymentrequest", (e) => { e.respondWith(new Promise(() => {})); e.openWindow("/checkout") })`
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(site.Close)
	return strings.Replace(site.URL, "127.0.0.1", "localhost", 1)
}

// TestThePageOfAPaymentIsSeen: it stands in no tab, and Chrome does not call it a page before it has a
// document. Where it is and what it sends is reported as of any page.
func TestThePageOfAPaymentIsSeen(t *testing.T) {
	t.Parallel()
	origin := payment(t)
	w := watch(t)
	shop := w.open(origin + "/")
	w.call(shop, "Runtime.evaluate", map[string]any{"userGesture": true, "expression": `new PaymentRequest([{supportedMethods: "` + origin + `/method"}],
		{total: {label: "all", amount: {currency: "EUR", value: "1"}}}).show(), 1`}, nil)
	window := ""
	w.until(func(e checkpoint.Entry) bool {
		if e.Kind == checkpoint.KindURL && e.URL == origin+"/checkout" {
			window = e.Target
		}
		return window != ""
	})
	var attached struct{ SessionID string }
	w.call("", "Target.attachToTarget", map[string]any{"targetId": window, "flatten": true}, &attached)
	w.run(attached.SessionID, `new Promise((done) => document.readyState === "complete" ? done() : addEventListener("load", done)).then(() => document.forms[0].requestSubmit())`)
	w.until(func(e checkpoint.Entry) bool {
		return e.Kind == checkpoint.KindForm && e.Target == window && e.Method == http.MethodPost && e.URL == origin+"/paid"
	})
	w.until(func(e checkpoint.Entry) bool {
		return e.Kind == checkpoint.KindURL && e.Target == window && e.URL == origin+"/paid" && e.Committed
	})
}

// TestAPageInNoWindowIsSeen, once it has a document: a client may make one for itself, as chromedriver does.
func TestAPageInNoWindowIsSeen(t *testing.T) {
	t.Parallel()
	origin := payment(t)
	w := watch(t)
	var hidden struct{ TargetID, SessionID string }
	w.open(origin + "/") // Chrome makes none before it has a window
	w.call("", "Target.createTarget", map[string]any{"url": "about:blank", "hidden": true}, &hidden)
	w.call("", "Target.attachToTarget", map[string]any{"targetId": hidden.TargetID, "flatten": true}, &hidden)
	w.call(hidden.SessionID, "Page.navigate", map[string]any{"url": origin + "/checkout"}, nil)
	w.until(func(e checkpoint.Entry) bool {
		return e.Kind == checkpoint.KindURL && e.Target == hidden.TargetID && e.URL == origin+"/checkout"
	})
	w.run(hidden.SessionID, `new Promise((done) => document.readyState === "complete" ? done() : addEventListener("load", done)).then(() => document.forms[0].requestSubmit())`)
	w.until(func(e checkpoint.Entry) bool {
		return e.Kind == checkpoint.KindForm && e.Target == hidden.TargetID && e.Method == http.MethodPost && e.URL == origin+"/paid"
	})
}
