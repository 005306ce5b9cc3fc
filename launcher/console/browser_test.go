package console

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"leasehold/internal/test/clients"
	"leasehold/internal/test/tab"
	"leasehold/launcher/chrome"
)

// consoleTab is a tab that shows a page of the console.
type consoleTab struct {
	tab.Tab
	url string
}

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
func open(t *testing.T, b *backend, address string) consoleTab {
	t.Helper()
	srv := httptest.NewServer(b.handler())
	t.Cleanup(srv.Close)
	all, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(all)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as the context of its first step
		t.Fatal(err)
	}
	v := consoleTab{tab.Tab{T: t, Ctx: ctx}, srv.URL}
	v.Do(chromedp.Navigate(srv.URL + address))
	return v
}

// press presses a key as a keyboard does: where the page takes it for itself, no character follows.
func (v consoleTab) press(key rune) {
	v.T.Helper()
	for i, event := range kb.Encode(key) {
		if i == 0 {
			event.Type = input.DispatchKeyEventTypeRawKeyDown
		}
		if _, err := chromedp.Call(v.Ctx, input.DispatchKeyEvent, *event); err != nil {
			v.T.Fatal(err)
		}
	}
}

// size gives the tab a screen of this width, light or dark.
func (v consoleTab) size(width int, scheme string) {
	v.T.Helper()
	v.Do(chromedp.EmulateViewport(int64(width), 900))
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if _, err := chromedp.Call(v.Ctx, emulation.SetEmulatedMedia, media); err != nil {
		v.T.Fatal(err)
	}
}

// accessible looks for violations of the rules of axe-core; in the dark for those of colours
// alone, since nothing else differs.
func (v consoleTab) accessible(name string) {
	v.T.Helper()
	axe, err := os.ReadFile(filepath.Join(clients.Dir(), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		v.T.Fatalf("%v: make deps installs it", err)
	}
	v.Number(string(axe) + "; 1")
	for scheme, options := range map[string]string{"light": `{}`, "dark": `{runOnly: ["color-contrast"]}`} {
		v.size(420, scheme)
		if found := v.violations(options); found != "" {
			v.T.Errorf("%s, %s:\n%s", name, scheme, found)
		}
	}
	v.size(1280, "light")
}

func (v consoleTab) violations(options string) string {
	v.T.Helper()
	return v.Text(`axe.run(document, ` + options + `).then(found => found.violations.map(f => f.id + ": " + f.help + "\n" +
		f.nodes.map(n => "  " + n.html.slice(0, 200) + "\n  " + n.failureSummary).join("\n")).join("\n"))`)
}

// photograph writes pictures of a page into the directory LEASEHOLD_PHOTOS, for people to look
// at, in each width, light and dark. Without it nothing is done.
func (v consoleTab) photograph(name string) {
	v.T.Helper()
	dir := os.Getenv("LEASEHOLD_PHOTOS")
	if dir == "" {
		return
	}
	for _, width := range []int{360, 1440, 2560} {
		for _, scheme := range []string{"light", "dark"} {
			v.size(width, scheme)
			v.Until(`[...document.images].every(i => i.complete || i.loading === "lazy")`)
			picture, err := chromedp.Run(v.Ctx, chromedp.FullScreenshot(100))
			if err != nil {
				v.T.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), picture, 0o600); err != nil {
				v.T.Fatal(err)
			}
		}
	}
	v.size(1280, "light")
}
