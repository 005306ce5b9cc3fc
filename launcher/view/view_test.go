package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"image/jpeg"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

const (
	// moving is a document that scrolls for ever, and still one that does not. Both collect the
	// events by which a page could notice that somebody watches.
	moving = `<body style="margin:0">` + notices + `<script>for(let i=0;i<300;i++)document.write('<p style="background:hsl('+i*7+' 60% 80%)">'+i+' some text that scrolls by</p>');
let d=6;(function f(){scrollBy(0,d);if(scrollY<=0||scrollY+innerHeight>=document.documentElement.scrollHeight)d=-d;requestAnimationFrame(f)})()</script>`
	still   = `<title>Still</title><body style="margin:0">` + notices + `<h1>It stands still</h1>`
	notices = `<script>seen=[];for(const n of ['focus','blur','resize','pageshow','pagehide','freeze','resume'])addEventListener(n,()=>seen.push(n));document.addEventListener('visibilitychange',()=>seen.push(document.visibilityState))</script>`
	// sees is what a page can see of its surroundings.
	sees = `[...seen,document.visibilityState,document.hasFocus(),innerWidth,innerHeight,outerWidth,outerHeight,devicePixelRatio,screenX].join()`
)

// TestWatching plays on one browser: its start costs more than all of the cases.
func TestWatching(t *testing.T) {
	s := newStage(t)
	target, page := s.open(still)

	t.Run("a page that stands still is pictured once", func(t *testing.T) {
		p := s.play("ses_1")
		before := s.eval(page, sees)
		v := p.watchAs(t, "ann")
		// A page that is drawn for the first time may get a second picture, of its fonts, say.
		const frames = 60
		first, pictures := v.settled(s, target, page, frames)
		if pictures > 3 {
			t.Errorf("%d pictures, while a page in which nothing moves could draw %d frames: want few", pictures, frames)
		}
		c, err := jpeg.DecodeConfig(bytes.NewReader(first.image))
		if err != nil || float64(c.Width) != first.Width || float64(c.Height) != first.Height || first.Scale != 1 {
			t.Errorf("%+v %v, want an image of the page's size: %+v", c, err, first.frameHead)
		}
		s.eval(page, `document.querySelector('h1').textContent='changed'`)
		for bytes.Equal(v.picture().image, first.image) { // until one comes that shows the change
		}
		if after := s.eval(page, sees); after != before {
			t.Errorf("the page can see that it is watched: %s, before %s", after, before)
		}
	})

	t.Run("a page that moves is pictured for all who watch, as fast as each takes it", func(t *testing.T) {
		p := s.play("ses_2")
		s.load(page, moving)
		before := s.eval(page, sees)
		fast, slow := p.watchAs(t, "ann"), p.watchAs(t, "ben")
		last := fast.picture()
		for range 12 {
			next := fast.picture()
			if next.Sequence <= last.Sequence || bytes.Equal(next.image, last.image) {
				t.Errorf("%+v after %+v", next.frameHead, last.frameHead)
			}
			last = next
		}
		// Who takes nothing gets two pictures, and then the newest.
		var got []picture
		for len(got) < maxUntaken {
			if m, err := slow.one(patience); err != nil {
				t.Fatal(err)
			} else if p, ok := m.(picture); ok {
				got = append(got, p)
			}
		}
		if m, err := slow.one(300 * time.Millisecond); err == nil {
			if p, ok := m.(picture); ok {
				t.Errorf("picture %d comes while two are not taken", p.Sequence)
			}
		}
		slow.says(`{"type":"ack","sequence":%d}`, got[1].Sequence)
		if next := slow.picture(); next.Sequence < last.Sequence {
			t.Errorf("picture %d, want the newest: %d or later", next.Sequence, last.Sequence)
		}
		if casts := p.casts(); casts != 1 {
			t.Errorf("%d casts of one page", casts)
		}
		if after := s.eval(page, sees); after != before {
			t.Errorf("the page can see that it is watched: %s, before %s", after, before)
		}
		// Nobody takes anything any more: nothing is drawn for them.
		p.paused(t, fast, slow)
	})

	t.Run("tabs, and what the worker does", func(t *testing.T) {
		p := s.play("ses_3")
		p.step = "open_list"
		v := p.watchAs(t, "ann")
		v.message("session", func(m map[string]any) bool {
			return m["step"] == "open_list" && m["worker_id"] == "worker-7" && m["state"] == api.SessionServing
		})
		v.message("showing", func(m map[string]any) bool { return m["target"] == target && m["follow"] == true })
		second, other := s.open(still)
		v.message("showing", func(m map[string]any) bool { return m["target"] == second && m["follow"] == true })
		v.pictureOf(second)
		p.works(target, "Runtime.evaluate", "Network.enable", "Input.dispatchMouseEvent", "Input.dispatchMouseEvent")
		shown := v.message("showing", func(m map[string]any) bool { return m["target"] == target })
		var acted actionsMessage
		decode(t, v.messageOf("actions"), &acted)
		if a := acted.Actions; shown["follow"] != true || len(a) != 2 || a[0].Does != "script" || a[1].Does != "mouse" || a[1].Times != 2 || a[1].Target != target {
			t.Errorf("%+v, want a script, and the mouse twice", acted)
		}
		v.until(func() bool { return len(v.tabs) >= 2 && tabOf(v.tabs, target).Used && tabOf(v.tabs, target).Hidden })
		// A tab of the viewer's choice stays.
		v.says(`{"type":"show","target":%q}`, second)
		v.message("showing", func(m map[string]any) bool { return m["target"] == second && m["follow"] == false })
		v.pictureOf(second)
		p.works(target, "Input.insertText")
		v.message("actions", func(m map[string]any) bool { return strings.Contains(text(m), "Input.insertText") })
		v.says(`{"type":"show","target":"nothing"}`)
		if m := v.message("refused", nil); m["what"] != "show" {
			t.Errorf("%v, want that show is refused", m)
		}
		// A dialog that it opens.
		s.worker.Post(other, "Runtime.evaluate", map[string]any{"expression": `setTimeout(()=>confirm("Change the budget?"))`})
		v.until(func() bool {
			d := tabOf(v.tabs, second).Dialog
			return d != nil && d.Kind == "confirm" && d.Message == "Change the budget?"
		})
		s.call(other, "Page.handleJavaScriptDialog", map[string]any{"accept": false}, nil)
		v.until(func() bool { return tabOf(v.tabs, second).Dialog == nil })
		// A tab that crashes, and one that is closed.
		s.worker.Post(other, "Page.crash", nil)
		v.until(func() bool { return tabOf(v.tabs, second).Crashed })
		s.closePage(second)
		v.message("showing", func(m map[string]any) bool { return m["target"] == target && m["follow"] == true })
		v.until(func() bool { return tabOf(v.tabs, second).Target == "" })
	})

	t.Run("a picture is as large as viewers have room for", func(t *testing.T) {
		p := s.play("ses_4")
		s.call("", "Target.activateTarget", map[string]any{"targetId": target}, nil)
		v := p.watchAs(t, "ann")
		v.says(`{"type":"size","width":200,"height":150,"dpr":1,"quality":30}`)
		for {
			c, err := jpeg.DecodeConfig(bytes.NewReader(v.picture().image))
			if err != nil {
				t.Fatal(err)
			}
			if c.Width <= 320 && c.Height <= 320 {
				break
			}
		}
		large := p.watchAs(t, "ben") // who says nothing of it has the usual size
		for {
			c, err := jpeg.DecodeConfig(bytes.NewReader(large.picture().image))
			if err != nil {
				t.Fatal(err)
			}
			if c.Width > 320 {
				break
			}
		}
	})

	t.Run("a session that ends is left before its end goes on", func(t *testing.T) {
		p := s.play("ses_5")
		v := p.watchAs(t, "ann")
		v.picture()
		p.end()
		if casts := p.casts(); casts != 0 {
			t.Errorf("%d casts go on after the session's end began", casts)
		}
		v.message("session", func(m map[string]any) bool { return m["state"] == api.SessionRecovering })
		if _, err := s.gallery.Open(p, principal.Principal{Name: "ben"}); err == nil {
			t.Error("somebody may begin to watch a session that ends")
		}
		close(p.done)
		if m := v.message("ended", nil); m["how"] != "released" {
			t.Errorf("%v, want how it ended", m)
		}
		if closed := v.closed(); closed.Code != ws.StatusNormalClosure {
			t.Errorf("closed with %v", closed)
		}
	})

	t.Run("too many, and messages that are none", func(t *testing.T) {
		p := s.play("ses_6")
		var seats []*seat
		for range MaxViewers {
			seats = append(seats, p.watchAs(t, "ann"))
		}
		_, err := s.gallery.Open(p, principal.Principal{Name: "ben"})
		if problem := (*api.Problem)(nil); !errors.As(err, &problem) || problem.Code != api.CodeTooManyViewers {
			t.Errorf("one more than %d: %v", MaxViewers, err)
		}
		seats[0].says(`{"type":"fly"}`)
		if m := seats[0].message("refused", nil); m["what"] != "fly" {
			t.Errorf("%v", m)
		}
		seats[0].says(`{"type":`)
		seats[0].message("refused", nil)
		if err := wsutil.WriteClientBinary(seats[1].conn, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		seats[1].message("refused", nil)
		if err := wsutil.WriteClientMessage(seats[1].conn, ws.OpPing, []byte("there?")); err != nil {
			t.Fatal(err)
		}
		seats[1].ponged("there?")
		seats[2].says(`{"type":"show","target":%q}`, strings.Repeat("x", maxUp))
		if closed := seats[2].closed(); closed.Code != ws.StatusMessageTooBig {
			t.Errorf("a message that is too long: %v", closed)
		}
		if n, err := seats[2].conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after the close frame: %d bytes, %v, want the end in order: a reset loses what is on its way", n, err)
		}
		if err := wsutil.WriteClientMessage(seats[3].conn, ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, "")); err != nil {
			t.Fatal(err)
		}
		if closed := seats[3].closed(); closed.Code != ws.StatusNormalClosure {
			t.Errorf("who leaves: %v", closed)
		}
		p.until(func() bool { // who left makes room
			v, err := s.gallery.Open(p, principal.Principal{Name: "ben"})
			if err == nil {
				v.Cancel()
			}
			return err == nil
		})
	})

	t.Run("who never reads is cut off, and the others see on", func(t *testing.T) {
		p := s.play("ses_7")
		s.load(page, moving)
		v, idle := p.watchAs(t, "ann"), p.watchUnread(t)
		for range 5 {
			v.picture()
		}
		idle()
		v.picture()
	})

	t.Run("a browser that is gone is not shown any more", func(t *testing.T) {
		p := s.play("ses_8")
		v := p.watchAs(t, "ann")
		v.picture()
		s.worker.Post("", "Browser.close", nil)
		close(p.done)
		v.message("ended", nil)
		v.closed()
	})
}

func decode(t *testing.T, m map[string]any, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text(m)), into); err != nil {
		t.Fatal(err)
	}
}

func text(m map[string]any) string {
	b, _ := json.Marshal(m) // it was JSON before
	return string(b)
}

func tabOf(tabs []tabNow, target string) tabNow {
	for _, t := range tabs {
		if t.Target == target {
			return t
		}
	}
	return tabNow{}
}
