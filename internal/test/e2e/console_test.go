package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"leasehold/checkpoint"
	"leasehold/internal/test/tab"
	"leasehold/launcher/chrome"
	"leasehold/lease"
)

// TestAPersonDecidesInTheConsole: a person watches a session in a real browser, takes it over for
// a click and a key, and hands it back. Its worker is lost while its order is not answered. The
// person opens the profile's page, sees what decides it, and decides by keyboard.
func TestAPersonDecidesInTheConsole(t *testing.T) {
	t.Parallel()
	s, done := start(t), make(chan struct{})
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			select { // the order is never answered
			case <-done:
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, `<!doctype html><title>Shop &lt;b&gt; `+r.URL.Path+`</title><h1>Shop</h1><input id=mail type=email><button onclick="fetch('/orders',{method:'POST'})">Order</button>`)
	}))
	t.Cleanup(shop.Close)
	t.Cleanup(func() { close(done) })

	c := dial(t, s.socket("shop_018", "worker=worker-7&task=task_101"))
	c.visit(t, shop.URL+"/news")
	page, _ := c.visit(t, shop.URL+"/cart")

	v := tab.Tab{T: t, Ctx: viewer(t)}
	v.Do(chromedp.Navigate(s.URL + "/console/shop_018/live"))
	v.Until(`Number(document.querySelector("#picture").dataset.sequence) > 0 && document.querySelector("#address").textContent.endsWith("/cart")`)
	v.Click(`#take`)
	v.Until(`!document.querySelector("#giving").hidden`)
	if err := c.fails(t, "", "Target.createTarget", map[string]string{"url": shop.URL}); !strings.Contains(err.Message, "has taken over") {
		t.Errorf("what the worker sends meanwhile is answered %+v", err)
	}
	v.Click(`#picture`)
	v.Keys("p")
	for _, kind := range []string{"click", "key"} {
		s.noted(t, "shop_018", "the person's "+kind, 1, func(e checkpoint.Entry) bool {
			return e.Kind == checkpoint.KindPerson && e.Name == kind && e.URL == shop.URL+"/cart" && e.Text == ""
		})
	}
	v.Click(`#give`)
	v.Until(`document.querySelector("#who").innerText === "The worker drives it."`)
	c.call(t, page, "Lease.checkpoint", map[string]any{"name": "cart_filled"}, nil)
	c.call(t, page, "Lease.step", map[string]any{"name": "place_order", "sensitive": true}, nil)
	c.evaluate(t, page, `document.querySelector("#mail").focus()`)
	c.call(t, page, "Input.insertText", map[string]any{"text": "pl4nted@example.com"}, nil)
	c.evaluate(t, page, `document.querySelector("button").click()`)
	s.noted(t, "shop_018", "the order", 1, posted("/orders"))
	v.Until(`["step place_order", "checkpoint cart_filled", "types Input.insertText"].every(text => document.querySelector("main").innerText.includes(text)) && !document.body.innerText.includes("pl4nted")`)
	c.drop()
	lost := s.until(t, "shop_018", lease.ManualReview)
	v.Until(`document.querySelector("#state").innerText === "ended" && document.querySelector("#notice").innerText.includes("manual_review")`)
	v.Do(chromedp.Navigate(s.URL + "/console/shop_018"))
	v.Until(`document.querySelector(".pictures .shot img")?.naturalWidth > 100 && document.querySelectorAll(".tabs figure").length > 0`)
	shown := v.Text(`document.querySelector("main").innerText`)
	for _, want := range []string{
		"waits for a person", "worker-7", "task_101", "Shop <b> /cart", "Shop <b> /news", "Since the last safe checkpoint, cart_filled", "place_order", "typed", "a mail address stands in a field",
		"POST " + shop.URL + "/orders", "unanswered", "nsafe requests were sent", "This cannot be undone", "The worker was lost", "as far as its history goes back",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not show %q:\n%s", want, shown)
		}
	}
	if strings.Contains(shown, "pl4nted") || strings.Contains(shown, "What is missing here") {
		t.Errorf("the page shows what was typed, or misses something:\n%s", shown)
	}
	photograph(t, v.Ctx, "real")
	long := map[string]any{"lease_token": lost.Token, "decision": "keep", "reviewer": "Ada", "note": strings.Repeat("x", 4001)}
	if code := s.call(t, "POST", "/v1/profiles/shop_018/review", long, nil); code != 400 {
		t.Errorf("a note without bound: %d", code)
	}
	v.Focus(`[value=approve]`)
	v.Keys(" ", kb.Tab, "Ada", kb.Tab, "the order is there once", kb.Tab, kb.Enter)
	v.Until(`document.querySelector("#reviewed")?.textContent.includes("the order is there once") && !document.querySelector("#review")`)
	if r := s.record(t, "shop_018"); r.State != lease.Available || r.Review == nil || r.Review.Reviewer != "Ada" || r.Review.TokenSeen != lost.Token || r.Review.EvidenceID != lost.EvidenceID {
		t.Errorf("after the decision: %s, %+v", r.State, r.Review)
	}
	events := s.events(t, "shop_018")
	if last := events[len(events)-1]; last.Reviewer != "Ada" || last.Note != "the order is there once" || !strings.HasPrefix(last.Principal, "uid:") {
		t.Errorf("the last event: %+v", last)
	}
	s.usedByHand(t, "shop_018")
}

// usedByHand: a person has a profile as long as the command runs. (launcher/session plays each way to hand it back.)
func (s *sidecar) usedByHand(t *testing.T, profile string) {
	t.Helper()
	cmd, out := exec.Command(binary, "hold", profile, "--holder", "ann", "--note", "was it paid?", "--url", s.URL), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	held := s.until(t, profile, lease.Held)
	if held.OwnerWorkerID != "ann" || held.ByHand == nil || held.ByHand.Note != "was it paid?" {
		t.Errorf("held: %+v, by hand %+v", held, held.ByHand)
	}
	var refused struct {
		CurrentWorker string `json:"current_worker_id"`
	}
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": profile, "worker_id": "w", "task_id": "pay"}, &refused); code != 409 || refused.CurrentWorker != "ann" {
		t.Errorf("a task meanwhile: %d %+v", code, refused)
	}
	eventually(t, "the session serves", func() error {
		if code := s.call(t, "GET", "/v1/sessions/"+held.SessionID, nil, nil); code != 200 {
			return fmt.Errorf("status %d", code)
		}
		return nil
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), profile+": handed back") {
		t.Errorf("hold: %v\n%s", err, out)
	}
	if r := s.until(t, profile, lease.Available); r.ByHand != nil || r.Token != held.Token {
		t.Errorf("handed back: %+v", r)
	}
}

// viewer is the browser of a person.
func viewer(t *testing.T) context.Context {
	t.Helper()
	found, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	options := append([]chromedp.ExecAllocatorOption{chromedp.ExecPath(found), chromedp.NoSandbox, chromedp.WindowSize(1280, 900)}, chromedp.DefaultExecAllocatorOptions[:]...)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// photograph writes a picture of a page into the directory LEASEHOLD_PHOTOS, for people to
// look at; nothing without it.
func photograph(t *testing.T, v context.Context, name string) {
	t.Helper()
	dir := os.Getenv("LEASEHOLD_PHOTOS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(v, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
