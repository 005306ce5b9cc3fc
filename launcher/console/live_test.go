package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/rs/zerolog"

	"leasehold/internal/test/tab"
	"leasehold/launcher/api"
)

// livePage is what the page gets from a living session: a test says what is sent, and hears
// what the page says. It stands for package launcher/view.
type livePage struct {
	session api.Session
	heard   chan map[string]any
	before  []map[string]any // heard, and not waited for yet

	mu    sync.Mutex
	begin [][]byte // frames that each connection begins with
	conns []net.Conn
}

func (p *livePage) Session() api.Session { return p.session }
func (p *livePage) Cancel()              {}

func (p *livePage) Serve(conn net.Conn, buffered *bufio.Reader) {
	p.mu.Lock()
	p.conns = append(p.conns, conn)
	for _, frame := range p.begin {
		_, _ = conn.Write(frame)
	}
	p.mu.Unlock()
	defer conn.Close()
	for {
		text, _, err := wsutil.ReadClientData(readWriter{buffered, conn})
		if err != nil {
			return
		}
		var m map[string]any
		if json.Unmarshal(text, &m) == nil {
			p.heard <- m
		}
	}
}

type readWriter struct {
	io.Reader
	io.Writer
}

// send sends a frame on all connections.
func (p *livePage) send(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_, _ = c.Write(frame)
	}
}

func textFrame(text string) []byte { return ws.MustCompileFrame(ws.NewTextFrame([]byte(text))) }

func pictureFrame(target string, sequence int, image []byte) []byte {
	head := fmt.Appendf(nil, `{"target":%q,"sequence":%d,"width":640,"height":400,"scale":1,"scroll_x":0,"scroll_y":0,"at":0}`, target, sequence)
	return ws.MustCompileFrame(ws.NewBinaryFrame(append(append(binary.BigEndian.AppendUint16(nil, uint16(len(head))), head...), image...)))
}

// hears waits for a message of the page's, which may have come while another one was waited for.
func (p *livePage) hears(t *testing.T, kind string, fits func(map[string]any) bool) map[string]any {
	t.Helper()
	wanted := func(m map[string]any) bool { return m["type"] == kind && (fits == nil || fits(m)) }
	if at := slices.IndexFunc(p.before, wanted); at >= 0 {
		m := p.before[at]
		p.before = slices.Delete(p.before, at, at+1)
		return m
	}
	for late := time.After(tab.Patience); ; {
		select {
		case m := <-p.heard:
			if wanted(m) {
				return m
			}
			p.before = append(p.before, m)
		case <-late:
			t.Fatalf("the page does not say %s", kind)
		}
	}
}

func (b *backend) View(context.Context, string) (api.Connection, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watched == nil {
		return nil, api.Refuse(api.CodeUnknownSession, "no session can be watched here")
	}
	return b.watched, nil
}

func (b *backend) Session(id string) (api.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watched != nil && b.watched.session.SessionID == id {
		return b.watched.session, nil
	}
	return api.Session{}, api.Refuse(api.CodeUnknownSession, "no session %s is known here", id)
}

// redPicture is a picture of one colour.
func redPicture() []byte {
	img := image.NewRGBA(image.Rect(0, 0, 640, 400))
	draw.Draw(img, img.Bounds(), image.NewUniform(color.RGBA{200, 20, 20, 255}), image.Point{}, draw.Src)
	var b bytes.Buffer
	_ = jpeg.Encode(&b, img, nil) // it goes to memory
	return b.Bytes()
}

// liveBackend has a living session of a profile that is watched.
func liveBackend() (*backend, *livePage) {
	s := api.Session{SessionID: "ses_live", ProfileID: "profile_us_018", Token: 42, WorkerID: "worker-7", TaskID: hostile, State: api.SessionServing, AcquiredAt: noon}
	p := &livePage{session: s, heard: make(chan map[string]any, 100)}
	tabs := func(more string) string {
		return fmt.Sprintf(`{"type":"tabs","tabs":[{"target":"A","title":"Campaigns - Shop","url":"https://shop.example/campaigns","used":true,"hidden":false,"crashed":false,"dialog":null},`+
			`{"target":"B","title":%q,"url":"https://shop.example/billing/edit","used":false,"hidden":false,"crashed":false,"dialog":%s}]}`, hostile, more)
	}
	p.begin = [][]byte{
		textFrame(`{"type":"session","session_id":"ses_live","profile_id":"profile_us_018","worker_id":"worker-7","task_id":"t","state":"serving","lease_token":42,"step":"open_campaign_list","checkpoint":"listed"}`),
		textFrame(tabs(`{"kind":"confirm","message":"Change the budget?","number":7}`)),
		textFrame(`{"type":"showing","target":"A","follow":true}`),
		textFrame(`{"type":"actions","missed":0,"actions":[{"number":1,"at":"2026-06-18T12:00:00Z","does":"navigate","method":"Page.navigate","target":"A","times":1},` +
			`{"number":2,"at":"2026-06-18T12:00:02Z","does":"mouse","method":"Input.dispatchMouseEvent","target":"A","times":3}]}`),
		pictureFrame("A", 1, pagePicture()),
	}
	return &backend{profiles: records(), cases: map[string]scene{"profile_us_018": {sessions: []api.Session{s}}}, watched: p}, p
}

const live = "/console/profile_us_018/live?token=" + token

func TestLivePage(t *testing.T) {
	b, p := liveBackend()
	v := open(t, b, live)
	v.Until(`document.querySelector("#picture").dataset.sequence === "1"`)
	p.hears(t, "ack", func(m map[string]any) bool { return m["sequence"] == 1.0 })
	if size := p.hears(t, "size", nil); size["width"].(float64) < 300 || size["dpr"] != 1.0 {
		t.Errorf("the page says of its size %v", size)
	}
	seen := v.Text(`document.querySelector("main").innerText`)
	for _, want := range []string{"profile_us_018 live", "worker worker-7", "step open_campaign_list", "checkpoint listed", "Campaigns - Shop", "https://shop.example/campaigns",
		"goes to a page Page.navigate", "uses the mouse 3 times Input.dispatchMouseEvent", cleanHostile} {
		if !strings.Contains(seen, want) {
			t.Errorf("the page does not show %q in\n%s", want, seen)
		}
	}
	if injected := v.Text(`document.querySelectorAll("main img, main script").length + " " + document.title`); injected != "0 profile_us_018 live - Leasehold" {
		t.Errorf("elements from hostile text, and the title: %q", injected)
	}
	const drawn = `[...document.querySelector("#picture").getContext("2d").getImageData(300, 200, 1, 1).data].join()`
	before := v.Text(drawn)

	// A picture of another tab is taken, and not shown.
	p.send(pictureFrame("B", 2, redPicture()))
	p.hears(t, "ack", func(m map[string]any) bool { return m["sequence"] == 2.0 })
	if now := v.Text(drawn); now != before {
		t.Errorf("a picture of another tab is shown: %s, before %s", now, before)
	}

	// Another tab, by keyboard.
	v.Focus(`#tabs [data-target=B]`)
	v.Keys(kb.Enter)
	p.hears(t, "show", func(m map[string]any) bool { return m["target"] == "B" })
	p.send(textFrame(`{"type":"showing","target":"B","follow":false}`))
	v.Until(`document.querySelector("#dialog").innerText.includes("Change the budget?") && document.querySelector("#over").innerText.includes("Waiting")`)
	p.send(pictureFrame("B", 3, redPicture()))
	v.Until(`document.querySelector("#picture").dataset.sequence === "3" && document.querySelector("#over").hidden`)
	if now := v.Text(drawn); now == before || v.Text(`document.activeElement.dataset.target`) != "B" {
		t.Errorf("the other tab's picture is %s, and the focus on %q", now, v.Text(`document.activeElement.outerHTML`))
	}
	v.accessible("a live page")
	v.photograph("live-tab")
	v.Focus(`#follow`)
	v.Keys(kb.Enter)
	p.hears(t, "show", func(m map[string]any) bool { return m["target"] == "" })
	p.send(textFrame(`{"type":"showing","target":"A","follow":true}`))
	p.send(pictureFrame("A", 4, pagePicture()))
	v.Until(`document.querySelector("#picture").dataset.sequence === "4"`)
	v.photograph("live")
	for _, width := range []int{360, 1280} {
		v.size(width, "light")
		v.Until(`Math.abs(document.querySelector("#picture").clientWidth - document.querySelector("#stage").clientWidth) < 2 || document.querySelector("#picture").clientWidth === 640`)
		if below := v.Number(`Math.ceil(document.querySelector("#picture").getBoundingClientRect().bottom + scrollY - innerHeight)`); below > 0 {
			t.Errorf("at %d pixels the picture ends %d below the window", width, below)
		}
		if over := v.Number(`document.documentElement.scrollWidth - innerWidth`); over > 0 {
			t.Errorf("at %d pixels the page is %d too wide", width, over)
		}
	}

	// A connection that breaks off comes back.
	p.mu.Lock()
	_ = p.conns[0].Close()
	p.mu.Unlock()
	v.Until(`document.querySelector("#state").innerText === "live" && document.querySelector("#notice").hidden && document.querySelector("#picture").dataset.sequence === "1"`)
	p.send(textFrame(`{"type":"ended","how":"released: succeeded"}`))
	v.Until(`document.querySelector("#state").innerText === "ended" && document.querySelector("#notice").innerText.includes("released: succeeded")`)
	b.mu.Lock()
	refused := b.refused
	b.mu.Unlock()
	if len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}

// TestLivePageWithoutASession: who opens the page of a profile that nobody uses is told so, and
// who may not watch is refused.
// TestALinksPageSaysNothingOfTheWorker: also where the page shows it to nobody.
func TestALinksPageSaysNothingOfTheWorker(t *testing.T) {
	b, _ := liveBackend()
	b.watched.session.TaskID, b.watched.session.Token = "task_101", 4242
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/sign-in/lnk_1", nil)
	r.Pattern = "GET /sign-in/{link}"
	r.SetPathValue("link", "lnk_1")
	r.SetPathValue("session", "ses_live")
	Handler(b, zerolog.Nop()).ServeHTTP(w, r)
	page := w.Body.String()
	if !strings.Contains(page, "I am signed in") {
		t.Fatalf("%d: %s", w.Code, page)
	}
	for _, secret := range []string{"worker-7", "task_101", "4242"} {
		if strings.Contains(page, secret) {
			t.Errorf("the page has %s", secret)
		}
	}
}

// TestTakeOverLeadsToTheSessionThatAsks: several share the profile, the newest asks nobody, and a person
// has the oldest by now.
func TestTakeOverLeadsToTheSessionThatAsks(t *testing.T) {
	b, _ := liveBackend()
	ask := &api.Ask{Reason: "the code", At: noon, Until: noon.Add(time.Hour)}
	shown := b.watched.session
	var all []api.Session
	for id, s := range []api.Session{{Ask: ask, Person: &api.Person{Name: "Ann"}}, {Ask: ask}, {}} {
		one := shown
		one.SessionID, one.Ask, one.Person = fmt.Sprintf("ses_%d", id), s.Ask, s.Person
		all = append(all, one)
	}
	b.cases["profile_us_018"] = scene{sessions: all}
	w := b.ask("GET", "/console/profile_us_018", "")
	if want := `href="/console/profile_us_018/live?session=ses_1">Take over`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d: the page has no %s", w.Code, want)
	}
}

func TestLivePageWithoutASession(t *testing.T) {
	b := &backend{profiles: records()}
	if w := b.ask("GET", "/console/profile_us_021/live", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "No session of this profile lives on this host") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := b.ask("GET", "/console/nobody/live", ""); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestAnOldLinkToASession: one that is over does not hide that another one of the profile lives.
func TestAnOldLinkToASession(t *testing.T) {
	b, _ := liveBackend()
	w := b.ask("GET", "/console/profile_us_018/live?session=ses_gone", "")
	page := w.Body.String()
	if strings.Contains(page, "No session of this profile lives") || !strings.Contains(page, "The session <bdi>ses_gone</bdi> does not live on this host any more, or never did. The profile is held.") || !strings.Contains(page, `live?session=ses_live">ses_live</a>`) {
		t.Errorf("%d %s", w.Code, page)
	}
	if page := b.ask("GET", "/console/profile_us_018/live?session=<b>x", "").Body.String(); strings.Contains(page, "<b>x") {
		t.Errorf("what the link says is no text: %s", page)
	}
}

func (b *backend) TakeOver(_ context.Context, _ string, t api.TakeOver) (api.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse == http.ErrAbortHandler {
		panic(b.refuse) // no answer comes
	}
	b.taken = append(b.taken, t)
	return api.Session{}, b.refusal()
}

func (b *backend) HandBack(_ context.Context, _ string, h api.HandBack) (api.Session, error) {
	b.given <- h
	return api.Session{}, nil
}

// TestAHoldIsOfThePerson: no worker is there to be followed, and the page itself hands the profile back.
func TestAHoldIsOfThePerson(t *testing.T) {
	b, p := liveBackend()
	v := open(t, b, live)
	v.Until(`document.querySelector("#picture").dataset.sequence === "1"`)
	p.send(textFrame(`{"type":"session","state":"serving","lease_token":42,"by_hand":true,"step":"","checkpoint":"","ask":null}`))
	p.send(textFrame(`{"type":"person","person":{"name":"Ada","principal":"token","since":"2026-06-18T12:00:00Z"},"yours":true}`))
	v.Until(`!document.querySelector("#end-hold").hidden`)
	if hidden := v.Text(`["worker", "follow", "giving", "asks"].filter(id => !document.getElementById(id).hidden).join()`); hidden != "" {
		t.Errorf("in a hold the page shows %s", hidden)
	}
	if form := v.Text(`document.querySelector("#end-hold").action.replace(location.origin, "") + " " + document.querySelector("#end-hold input").value`); form != "/console/profile_us_018/hand-back?token="+token+" 42" {
		t.Errorf("the hand-back goes to %s", form)
	}
	v.photograph("live-hold")
}

// TestAProfilePageLeadsToTheLivePage, and opens no view itself: a page that somebody left open would count as the
// person who took the session over, for as long as it is open.
func TestAProfilePageLeadsToTheLivePage(t *testing.T) {
	b, _ := liveBackend()
	page := b.ask("GET", "/console/profile_us_018", "").Body.String()
	if !strings.Contains(page, `href="/console/profile_us_018/live?session=ses_live">Watch it, or take it over`) {
		t.Error("the page has no link to the live page")
	}
	for _, not := range []string{"WebSocket", "/view", "<canvas", "There is no evidence of a session", "What was done is not known"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %s", not)
		}
	}
}

// TestLivePageByHand: a person takes the session over, acts on the picture and hands it back.
func TestLivePageByHand(t *testing.T) {
	b, p := liveBackend()
	b.refuse, b.given = http.ErrAbortHandler, make(chan api.HandBack, 1)
	v := open(t, b, live)
	v.Until(`document.querySelector("#picture").dataset.sequence === "1"`)
	v.Focus(`#name`)
	v.Keys("Ada", kb.Enter)
	v.Until(`document.querySelector("#notice").innerText.includes("It is not known whether this was done")`)
	b.mu.Lock()
	b.refuse = api.Refuse(api.CodeTakenOver, "Ben has session ses_live")
	b.mu.Unlock()
	v.Focus(`#take`)
	v.Keys(kb.Enter)
	v.Until(`document.querySelector("#notice").innerText.includes("Ben has session")`)
	b.mu.Lock()
	b.refuse = nil
	b.mu.Unlock()
	p.send(textFrame(`{"type":"person","person":{"name":"Ben","principal":"uid:7","since":"2026-06-18T12:00:00Z"},"yours":false}`))
	v.Until(`document.querySelector("#who").innerText === "Ben has the session." && document.querySelector("#take").innerText === "Take it from Ben"`)
	v.Focus(`#take`)
	v.Keys(kb.Enter)
	for len(b.requests()) < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	p.hears(t, "person", func(m map[string]any) bool { return m["person"] == "Ada" })
	if taken := b.requests(); taken[0].Person != "Ada" || taken[0].Token != 42 || taken[0].TakeFrom != "" || taken[1].TakeFrom != "Ben" {
		t.Errorf("asked for %+v", taken)
	}
	for p.before = nil; len(p.heard) > 0; {
		<-p.heard
	}
	v.Click(`#picture`)
	v.Keys("x")
	p.send(textFrame(`{"type":"person","person":{"name":"Ada","principal":"uid:0","since":"2026-06-18T12:00:00Z"},"yours":true}`))
	v.Until(`document.activeElement.id === "who" && !document.querySelector("#drive").hidden && document.querySelector("#asks").hidden`)
	for len(p.heard) > 0 {
		if m := <-p.heard; m["type"] == "mouse" || m["type"] == "key" {
			t.Errorf("before the session was theirs the page sent %v", m)
		}
	}
	v.Click(`#picture`)
	down := p.hears(t, "mouse", func(m map[string]any) bool { return m["kind"] == "down" })
	if x, y := down["x"].(float64), down["y"].(float64); x < 300 || x > 340 || y < 180 || y > 220 || down["button"] != "left" || down["clicks"] != 1.0 || down["target"] != "A" {
		t.Errorf("a click in the middle of a page of 640 by 400: %v", down)
	}
	p.hears(t, "mouse", func(m map[string]any) bool { return m["kind"] == "up" && m["button"] == "left" })
	v.Keys("q", kb.Enter, kb.Tab)
	for _, want := range []string{"q", "Enter", "Tab"} {
		m := p.hears(t, "key", func(m map[string]any) bool { return m["kind"] == "down" && m["key"] == want })
		if m["text"] != map[string]string{"q": "q", "Enter": "\r", "Tab": ""}[want] || m["key_code"] == 0.0 {
			t.Errorf("key %v", m)
		}
	}
	v.Text(`(() => { const d = new DataTransfer(); d.setData("text/plain", "pasted"); document.querySelector("#keys").dispatchEvent(new ClipboardEvent("paste", { clipboardData: d })); return "" })()`)
	p.hears(t, "paste", func(m map[string]any) bool { return m["text"] == "pasted" })
	v.Text(`(() => { const k = document.querySelector("#keys"); k.dispatchEvent(new CompositionEvent("compositionupdate", { data: "に" })); k.dispatchEvent(new CompositionEvent("compositionend", { data: "日" })); return "" })()`)
	p.hears(t, "compose", func(m map[string]any) bool { return m["text"] == "に" })
	p.hears(t, "text", func(m map[string]any) bool { return m["text"] == "日" })
	v.Text(`(() => { const c = document.querySelector("#picture"), box = c.getBoundingClientRect(); c.dispatchEvent(new WheelEvent("wheel", { clientX: box.left + 9, clientY: box.top + 9, deltaY: 120, cancelable: true }));
		const t = new Touch({ identifier: 3, target: c, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }); c.dispatchEvent(new TouchEvent("touchstart", { touches: [t], changedTouches: [t], cancelable: true })); return "" })()`)
	p.hears(t, "wheel", func(m map[string]any) bool { return m["dy"] == 120.0 })
	p.hears(t, "touch", func(m map[string]any) bool {
		points, _ := m["points"].([]any)
		return m["kind"] == "start" && len(points) == 1 && points[0].(map[string]any)["id"] == 3.0 && points[0].(map[string]any)["x"].(float64) > 300
	})
	v.Focus(`#keys`)
	v.Do(chromedp.KeyEvent("c", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	p.hears(t, "copy", func(m map[string]any) bool { return m["target"] == "A" })
	v.Do(chromedp.KeyEvent("x", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	p.hears(t, "cut", func(m map[string]any) bool { return m["target"] == "A" })
	v.Text(`navigator.clipboard.writeText = async (text) => { window.clip = text }; ""`)
	p.send(textFrame(`{"type":"copied","target":"A","text":"4711"}`))
	v.Until(`window.clip === "4711" && document.querySelector("#notice").innerText === "4 characters are in your clipboard."`)
	v.Text(`navigator.clipboard.writeText = async () => { throw new Error("denied") }; ""`)
	v.Click(`#copy`)
	p.hears(t, "copy", nil)
	p.send(textFrame(`{"type":"copied","target":"A","text":"<b>4712</b>"}`))
	v.Until(`document.activeElement.id === "copied-text" && document.activeElement.value === "<b>4712</b>" && getSelection().toString() === "<b>4712</b>"`)
	v.accessible("a live page that shows what was copied")
	v.photograph("live-copied")
	v.Click(`#copied-done`)
	v.Until(`document.querySelector("#copied").hidden && document.querySelector("#copied-text").value === ""`)
	p.send(textFrame(`{"type":"options","target":"A","options":[{"text":"one","disabled":false,"chosen":true},{"text":"two","disabled":true,"chosen":false},{"text":"three","disabled":false,"chosen":false}]}`))
	v.Until(`document.activeElement.id === "choice" && document.querySelector("#choice").selectedIndex === 0`)
	v.Keys(kb.ArrowDown)
	v.accessible("a live page that asks")
	v.Click(`#choose-yes`)
	p.hears(t, "select", func(m map[string]any) bool { return m["index"] == 2.0 })
	p.send(textFrame(`{"type":"files","target":"A","multiple":true,"names":["invoice.pdf","photo.png"]}`))
	v.Until(`document.activeElement.id === "choice" && document.querySelector("#choice").multiple`)
	v.Text(`(() => { for (const o of document.querySelector("#choice").options) o.selected = true; return "" })()`)
	v.Click(`#choose-yes`)
	p.hears(t, "file", func(m map[string]any) bool { return len(m["names"].([]any)) == 2 })
	v.Until(`document.activeElement.id === "keys"`)
	v.Do(chromedp.KeyEvent(kb.Escape, chromedp.KeyModifiers(chromedp.ModifierShift)))
	v.Until(`document.activeElement.id === "give"`)
	v.Fill(`#url`, "shop.example/x")
	v.Keys(kb.Enter)
	p.hears(t, "navigate", func(m map[string]any) bool { return m["url"] == "https://shop.example/x" })
	v.Click(`#back`)
	p.hears(t, "back", nil)
	v.Click(`#tabs [data-target=B]`)
	p.hears(t, "front", func(m map[string]any) bool { return m["target"] == "B" })
	p.send(textFrame(`{"type":"showing","target":"B","follow":false}`))
	v.Until(`!document.querySelector("#dialog-answer").hidden`)
	v.accessible("a live page by hand")
	v.photograph("live-by-hand")
	v.Click(`#dialog-no`)
	p.hears(t, "dialog", func(m map[string]any) bool { return m["accept"] == false && m["number"] == 7.0 })
	// The next question is answered by nothing that was meant for the one before: no second click, no key,
	// no text.
	asks := func(number int) {
		p.send(textFrame(fmt.Sprintf(`{"type":"tabs","tabs":[{"target":"B","title":"Pay","url":"https://shop.example/pay","used":true,"hidden":false,"crashed":false,"dialog":{"kind":"prompt","message":"Pay %d?","number":%d}}]}`, number, number)))
		v.Until(fmt.Sprintf(`document.querySelector("#dialog-text").innerText === "Pay %d?"`, number))
	}
	asks(8)
	v.Fill(`#dialog-input`, "4711")
	v.Focus(`#dialog-yes`)
	v.Keys(kb.Enter)
	p.hears(t, "dialog", func(m map[string]any) bool { return m["accept"] == true && m["number"] == 8.0 && m["text"] == "4711" })
	asks(9)
	v.Keys(kb.Enter)
	v.Text(`document.querySelector("#dialog-yes").dispatchEvent(new MouseEvent("click", { detail: 2 })) + ""`)
	if left := v.Text(`document.querySelector("#dialog-input").value`); left != "" {
		t.Errorf("the next question comes with the answer %q", left)
	}
	v.Text(`document.querySelector("#dialog-no").click() + ""`)
	if m := p.hears(t, "dialog", nil); m["number"] != 9.0 || m["accept"] != false {
		t.Errorf("the next question was answered before: %v", m)
	}
	p.send(textFrame(`{"type":"session","state":"serving","lease_token":42,"step":"","checkpoint":"","ask":{"ask_id":"ask_1","reason":"the code of the bank","at":"2026-06-18T12:00:00Z","until":"2026-06-18T12:10:00Z"}}`))
	v.Until(`document.querySelector("#asked").innerText.includes("the code of the bank") && document.title.startsWith("(!) ")`)
	v.Fill(`#note`, "no code came")
	v.Click(`#give-not`)
	p.send(textFrame(`{"type":"person","person":null,"yours":false}`))
	v.Until(`document.activeElement.id === "who" && document.querySelector("#drive").hidden && document.querySelector("#who").innerText === "The worker drives it."`)
	if h := <-b.given; h.Token != 42 || h.Answered == nil || *h.Answered || h.AskID != "ask_1" || h.Note != "no code came" {
		t.Errorf("handed back: %+v", h)
	}
}

// TestALivePageLetsGoOfASessionThatNobodyKnows: the launcher began anew, and has no such session. The page does not
// say that the person has it.
func TestALivePageLetsGoOfASessionThatNobodyKnows(t *testing.T) {
	b, p := liveBackend()
	v := open(t, b, live)
	v.Until(`document.querySelector("#picture").dataset.sequence === "1"`)
	p.send(textFrame(`{"type":"person","person":{"name":"Ada","principal":"token","since":"2026-06-18T12:00:00Z"},"yours":true}`))
	v.Until(`!document.querySelector("#giving").hidden && !document.querySelector("#drive").hidden`)
	b.mu.Lock()
	b.watched = nil
	b.mu.Unlock()
	p.mu.Lock()
	_ = p.conns[0].Close()
	p.mu.Unlock()
	v.Until(`document.querySelector("#notice").innerText === "no session ses_live is known here"`)
	const claims = `[document.querySelector("#state").innerText, document.querySelector("#who").innerText, ...["giving", "drive", "asks"].filter(id => !document.getElementById(id).hidden)].join()`
	if got := v.Text(claims); got != "ended," {
		t.Errorf("the page says %q", got)
	}
}

func (b *backend) requests() []api.TakeOver {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}
