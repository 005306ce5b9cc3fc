package browser

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/chromever"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/chrome"
	"leasehold/lease"
)

// looks has a page report what it sees of its browser.
const looks = `<!doctype html><title>looks</title><script>
const names = (o) => { const all = new Set(); for (; o; o = Object.getPrototypeOf(o)) Object.getOwnPropertyNames(o).forEach((n) => all.add(n)); return [...all].sort() };
fetch("/report", {method: "POST", body: JSON.stringify({
	webdriver: navigator.webdriver, size: [innerWidth, innerHeight, outerWidth, outerHeight], screen: [screen.width, screen.height, devicePixelRatio],
	agent: [navigator.userAgent, navigator.languages, navigator.platform, navigator.hardwareConcurrency, navigator.plugins.length, navigator.pdfViewerEnabled],
	globals: names(window), navigator: names(navigator), document: names(document), chrome: names(window.chrome),
}, null, 1)})
</script>`

// TestAPageSeesTheBrowserOfAPort: a page in any tab, the first one too, sees the same as with
// the same browser on a fixed debugging port, which nothing else watches.
func TestAPageSeesTheBrowserOfAPort(t *testing.T) {
	h := newHost(t, Options{})
	reports := make(chan string, 1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/report" {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, looks)
			return
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		reports <- string(b)
	}))
	defer web.Close()
	reported := func(where string) string {
		t.Helper()
		select {
		case r := <-reports:
			return r
		case <-time.After(testchrome.Patience):
			t.Fatalf("no page reported: %s", where)
			return ""
		}
	}
	said, err := h.driver.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	onPort(t, web.URL, chromever.In(said))
	want := reported("on a port")
	if !strings.Contains(want, `"webdriver": false`) {
		t.Errorf("on a fixed port Chrome shows navigator.webdriver: %.100s", want)
	}

	b := h.start()
	page, ok := b.Monitor().Primary()
	if !ok {
		t.Fatal("the browser has no tab")
	}
	if err := b.Monitor().Observer().Call(t.Context(), page.SessionID, "Page.navigate", map[string]string{"url": web.URL}, nil); err != nil {
		t.Fatal(err)
	}
	compareLooks(t, "the first tab", reported("in the first tab"), want)
	h.open(b, web.URL)
	compareLooks(t, "another tab", reported("in another tab"), want)
	if _, err := b.Close(profile, nil, h.options.Log); err != nil {
		t.Error(err)
	}
}

func compareLooks(t *testing.T, where, got, want string) {
	t.Helper()
	wanted := strings.Split(want, "\n")
	for line := range strings.SplitSeq(got, "\n") {
		at := slices.Index(wanted, line)
		if at < 0 {
			t.Errorf("%s sees %s", where, line)
			continue
		}
		wanted = slices.Delete(wanted, at, at+1)
	}
	if len(wanted) > 0 {
		t.Errorf("%s does not see %q", where, wanted)
	}
}

// TestSitesSeeTheAppearanceOfAProfile: pages, their workers and the first request see the time zone, the
// languages, the size and the place that the profile has, whatever the host has; and no browser without
// windows. Who drives the browser next gives its pages the place of then.
func TestSitesSeeTheAppearanceOfAProfile(t *testing.T) {
	h := newHost(t, Options{})
	type seen struct {
		Zone, WorkerZone, Language, WorkerLanguage, Languages, Agent string
		Width, Height                                                int
		Fits                                                         bool // the window is within the screen
		Place, FramePlace                                            string
	}
	const find = `const place = () => new Promise(found => navigator.geolocation.getCurrentPosition(
		p => found([p.coords.latitude, p.coords.longitude].join()), e => found(e.message)));`
	var page string
	reports, asked := make(chan seen, 2), make(chan string, 2)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/report":
			var s seen
			if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
				t.Error(err)
			}
			reports <- s
		case "/worker.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, `postMessage([Intl.DateTimeFormat().resolvedOptions().timeZone, navigator.language])`)
		case "/frame":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<script>`, find, `place().then(p => parent.postMessage(p, "*"))</script>`)
		case "/":
			asked <- r.Header.Get("Accept-Language") + " | " + r.UserAgent()
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<iframe src="`, strings.Replace(page, "127.0.0.1", "localhost", 1), `/frame" allow="geolocation"></iframe><script>`, find, `
				const framed = new Promise(got => onmessage = e => got(e.data))
				new Worker("/worker.js").onmessage = async e => fetch("/report", {method: "POST", body: JSON.stringify({
				Place: await place(), FramePlace: await framed, Zone: Intl.DateTimeFormat().resolvedOptions().timeZone, WorkerZone: e.data[0], Language: navigator.language, WorkerLanguage: e.data[1],
				Languages: navigator.languages.join(), Agent: navigator.userAgent, Width: innerWidth, Height: innerHeight,
				Fits: outerWidth <= screen.width && outerHeight <= screen.height})})</script>`)
		}
	}))
	defer web.Close()
	page = web.URL
	looks := lease.Appearance{Timezone: "Asia/Tokyo", Locale: "de-DE", Viewport: "1366x768", Geolocation: "35.68,139.77"}
	h.locked(h.root.Lock)
	b, err := h.driver.Start(t.Context(), Start{
		SessionID: session, Token: 7, Lock: h.lock, Path: h.path, Headless: true, Sink: h.sink, Log: h.options.Log,
		Args: []string{"--window-size=500,400", "--lang=fr"}, Appearance: looks,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.endAtLast(b)
	load := func(b *Browser) (first string, got seen) {
		t.Helper()
		permit := map[string]any{"permissions": []string{"geolocation"}}
		if err := b.Monitor().Observer().Call(t.Context(), "", "Browser.grantPermissions", permit, nil); err != nil {
			t.Fatal(err)
		}
		tab, ok := b.Monitor().Primary()
		if !ok {
			t.Fatal("the browser has no tab")
		}
		if err := b.Monitor().Observer().Call(t.Context(), tab.SessionID, "Page.navigate", map[string]string{"url": web.URL}, nil); err != nil {
			t.Fatal(err)
		}
		return <-asked, <-reports
	}
	first, got := load(b)
	want := seen{Zone: "Asia/Tokyo", WorkerZone: "Asia/Tokyo", Language: "de-DE", WorkerLanguage: "de-DE", Languages: "de-DE,de,en-US,en", Agent: got.Agent, Width: 1366, Height: 768, Fits: true}
	want.Place = looks.Geolocation
	want.FramePlace = want.Place
	if got != want || !strings.Contains(got.Agent, " Chrome/") || strings.Contains(got.Agent, "Headless") {
		t.Errorf("the page sees %+v, want %+v", got, want)
	}
	if want := "de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7 | " + got.Agent; first != want {
		t.Errorf("the first request has %q, want %q", first, want)
	}
	looks.Geolocation = "-33.86,151.2"
	b = h.adopted(b, looks)
	for _, left := range b.Mux().Inherited() { // new frames and workers would wait for the launcher before
		for _, p := range left {
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.Monitor().KeepPlace() // as a session does after each client
	want.Place = looks.Geolocation
	want.FramePlace = want.Place
	if _, got := load(b); got != want {
		t.Errorf("after the launcher's restart the page sees %+v, want %+v", got, want)
	}
	if _, err := b.Close(profile, nil, h.options.Log); err != nil {
		t.Error(err)
	}
}

// onPort starts the driver's browser on a debugging port, and opens the URL in a new tab of it:
// as root its first one shows a bar, because the browser has no sandbox.
func onPort(t *testing.T, page, version string) {
	t.Helper()
	o := testchrome.Options(t)
	o.Version = version
	args, _, err := chrome.Arguments(o, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	// Chrome calls a browser automated whose port is 0.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	args = chrome.OnPort(args)
	_, port, _ := strings.Cut(address, ":")
	args[slices.Index(args, "--remote-debugging-port=0")] = "--remote-debugging-port=" + port
	cmd := exec.Command(o.Binary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+address+"/json/new?"+url.QueryEscape(page), nil)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testchrome.Patience); ; time.Sleep(20 * time.Millisecond) {
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		if err == nil {
			_ = answer.Body.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it did not happen within the time for it: %v", err)
		}
	}
}
