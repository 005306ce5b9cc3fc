package console

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"leasehold/internal/test/clients"
	"leasehold/launcher/chrome"
)

// tab is a tab that shows a page of the console.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string
}

// patience bounds waits that end sooner unless something is broken.
const patience = 4 * time.Minute

var (
	closeBrowser = func() {}
	// browser is the one of all tests: a start costs more than a test.
	browser = sync.OnceValues(func() (context.Context, error) {
		binary, err := chrome.Find("")
		if err != nil {
			return nil, err
		}
		options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(binary), chromedp.WindowSize(1280, 900))
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox)
		}
		allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, cancel := chromedp.NewContext(allocator)
		closeBrowser = func() { cancel(); stop() }
		return ctx, chromedp.Do(ctx)
	})
)

func TestMain(m *testing.M) {
	code := m.Run()
	closeBrowser()
	os.Exit(code)
}

// open opens a page of the backend's console in a tab of its own.
func open(t *testing.T, b *backend, address string) tab {
	t.Helper()
	srv := httptest.NewServer(b.handler())
	t.Cleanup(srv.Close)
	all, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(all)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	v := tab{t, ctx, srv.URL}
	v.do(chromedp.Navigate(srv.URL + address))
	return v
}

func (v tab) do(steps ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	if err := chromedp.Do(v.ctx, steps...); err != nil {
		v.t.Fatal(err)
	}
}

// until waits until a JavaScript expression is true on the page.
func (v tab) until(fact string) {
	v.t.Helper()
	wait := `new Promise(done => { const look = () => (` + fact + `) ? done(true) : setTimeout(look, 20); look(); })`
	for {
		_, err := chromedp.Run(v.ctx, chromedp.Evaluate[bool](wait, chromedp.EvalAwaitPromise))
		if err == nil {
			return
		}
		if v.ctx.Err() != nil || !strings.Contains(err.Error(), "navigated") && !strings.Contains(err.Error(), "context") { // another page came
			v.t.Fatalf("%v\nwaiting for %s, at:\n%s", err, fact, v.shows())
		}
	}
}

// shows is what the page shows, for a message.
func (v tab) shows() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx), 5*time.Second)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText.slice(0, 3000)`))
	if err != nil {
		return err.Error()
	}
	return s
}

func (v tab) text(expression string) string {
	v.t.Helper()
	s, err := chromedp.Run(v.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		v.t.Fatal(err)
	}
	return s
}

func (v tab) number(expression string) int {
	v.t.Helper()
	n, err := chromedp.Run(v.ctx, chromedp.Evaluate[int](expression))
	if err != nil {
		v.t.Fatal(err)
	}
	return n
}

// size gives the tab a screen of this width, light or dark.
func (v tab) size(width int, scheme string) {
	v.t.Helper()
	v.do(chromedp.EmulateViewport(int64(width), 900))
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if _, err := chromedp.Call(v.ctx, emulation.SetEmulatedMedia, media); err != nil {
		v.t.Fatal(err)
	}
}

// accessible looks for violations of the rules of axe-core; in the dark for those of colours
// alone, since nothing else differs.
func (v tab) accessible(name string) {
	v.t.Helper()
	axe, err := os.ReadFile(filepath.Join(clients.Dir(), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		v.t.Fatalf("%v: make deps installs it", err)
	}
	v.number(string(axe) + "; 1")
	for scheme, options := range map[string]string{"light": `{}`, "dark": `{runOnly: ["color-contrast"]}`} {
		v.size(420, scheme)
		if found := v.violations(options); found != "" {
			v.t.Errorf("%s, %s:\n%s", name, scheme, found)
		}
	}
	v.size(1280, "light")
}

func (v tab) violations(options string) string {
	v.t.Helper()
	s, err := chromedp.Run(v.ctx, chromedp.Evaluate[string](`axe.run(document, `+options+`).then(found => found.violations.map(f => f.id + ": " + f.help + "\n" +
		f.nodes.map(n => "  " + n.html.slice(0, 200) + "\n  " + n.failureSummary).join("\n")).join("\n"))`, chromedp.EvalAwaitPromise))
	if err != nil {
		v.t.Fatal(err)
	}
	return s
}

// photograph writes pictures of a page into the directory LEASEHOLD_PHOTOS, for people to look
// at, in each width, light and dark. Without it nothing is done.
func (v tab) photograph(name string) {
	v.t.Helper()
	dir := os.Getenv("LEASEHOLD_PHOTOS")
	if dir == "" {
		return
	}
	for _, width := range []int{360, 768, 1440, 3840} {
		for _, scheme := range []string{"light", "dark"} {
			v.size(width, scheme)
			v.until(`[...document.images].every(i => i.complete || i.loading === "lazy")`)
			picture, err := chromedp.Run(v.ctx, chromedp.FullScreenshot(100))
			if err != nil {
				v.t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), picture, 0o600); err != nil {
				v.t.Fatal(err)
			}
		}
	}
	v.size(1280, "light")
}
