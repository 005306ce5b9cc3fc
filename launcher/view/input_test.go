package view

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/launcher/session"
)

// typed is what a person types in these tests: it may be in the page, and nowhere else.
const typed = "pl4nted-by-hand"

// formPage has something to click, to type into and to scroll, and notes what is done to it.
const formPage = `<!doctype html><title>Form</title><meta name=viewport content="width=device-width"><body style="margin:0;height:3000px">
<button id=b style="position:absolute;left:20px;top:20px;width:120px;height:40px">Order</button>
<input id=i style="position:absolute;left:20px;top:100px;width:200px;height:30px">
<script>did=[];const note=(what,e)=>did.push(what+(e.isTrusted?"":" (made by a script)"));
b.addEventListener("click",e=>note("click",e));b.addEventListener("touchstart",e=>note("touch",e));i.addEventListener("keydown",e=>note("key "+e.key,e));
i.addEventListener("compositionend",e=>did.push("composed "+e.data));addEventListener("wheel",e=>note("wheel",e));b.addEventListener("mouseover",e=>note("over",e))</script>`

// TestWhatIsTypedIsInTheFieldThatWasTouched, though the page is busy, or has drawn nothing yet, when the
// field is touched. If it does not answer at all, nothing is typed.
func TestWhatIsTypedIsInTheFieldThatWasTouched(t *testing.T) {
	const (
		field = `<!doctype html><title>Field</title><meta name=viewport content="width=device-width"><body style="margin:0">
<input id=i style="position:absolute;left:20px;top:100px;width:200px;height:30px">`
		busy = `<script>setTimeout(()=>{const x=new XMLHttpRequest();x.open("GET","/wait",false);x.send()},200)</script>`
	)
	for name, html := range map[string]string{
		"busy":                          field + busy,
		"busy, and listens for touches": field + busy + `<script>addEventListener("touchstart",()=>{},{passive:false})</script>`,
		"not drawn yet":                 `<!doctype html><link rel=stylesheet href=/wait>` + field,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			waits, goesOn := make(chan struct{}), make(chan struct{})
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					waits <- struct{}{}
					<-goesOn
					return
				}
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_, _ = io.WriteString(w, html)
			}))
			t.Cleanup(site.Close)
			target, page := s.open(still)
			p := s.play("ses_1")
			p.takes("ann")
			v := p.watchAs(t, "ann")
			v.until(func() bool { return tabOf(v.tabs, target).Title != "" && v.last["person"] != nil })
			touch := func() {
				s.eval(page, `location = "`+site.URL+`"`)
				<-waits
				v.says(`{"type":"touch","kind":"start","points":[{"x":40,"y":110,"id":1}]}`)
				v.says(`{"type":"touch","kind":"end","points":[]}`)
				v.says(`{"type":"text","text":%q}`, typed)
			}
			touch()
			// Text that does not wait is there in this time. Text that does is not sent before.
			for late := time.Now().Add(time.Second); time.Now().Before(late) && !slices.Contains(p.kinds(), session.ActText); {
				time.Sleep(10 * time.Millisecond)
			}
			goesOn <- struct{}{}
			s.until(func() bool { return s.eval(page, `i.value`) == typed })
			if name != "busy" {
				return
			}
			p.kinds()
			touch()
			if m := v.message("refused", nil); m["what"] != "text" || !strings.Contains(m["why"].(string), "has not answered yet what was touched") {
				t.Errorf("typed into a page that does not answer: %v", m)
			}
			if kinds := p.kinds(); slices.Contains(kinds, session.ActText) {
				t.Errorf("noted as done: %v", kinds)
			}
			goesOn <- struct{}{}
			s.until(func() bool { return s.eval(page, `document.activeElement.id`) == "i" })
			if value := s.eval(page, `i.value`); value != "" {
				t.Errorf("the field has %q", value)
			}
		})
	}
}

// TestByHand: what a person does who has the session reaches the page, as input of a person.
func TestByHand(t *testing.T) {
	s := newStage(t)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		page := formPage
		if r.URL.Path == "/phone" { // which is as wide as on a large screen
			page = strings.Replace(page, "<meta name=viewport", "<meta name=none", 1)
		}
		_, _ = io.WriteString(w, page)
	}))
	t.Cleanup(site.Close)
	target, page := s.open(still)
	s.call(page, "Page.navigate", map[string]any{"url": site.URL + "/first"}, nil)
	p := s.play("ses_1")
	v := p.watchAs(t, "ann")
	v.until(func() bool { return tabOf(v.tabs, target).Title == "Form" && v.last["person"] != nil })
	// did is what was done to the page since this was asked before.
	did := func(want ...string) {
		t.Helper()
		for late := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			got := s.eval(page, `did.join()`)
			if got == strings.Join(want, ",") {
				break
			}
			if time.Now().After(late) {
				t.Fatalf("what was done to the page: %q, want %q", got, want)
			}
		}
		s.eval(page, `did.length=0`)
	}
	acts := func(want ...session.ActKind) {
		t.Helper()
		if got := p.kinds(); !slices.Equal(got, want) {
			t.Errorf("noted %v, want %v", got, want)
		}
	}
	click := func(x, y int) {
		v.says(`{"type":"mouse","kind":"move","x":%d,"y":%d}`, x, y)
		v.says(`{"type":"mouse","kind":"down","x":%d,"y":%d,"button":"left","buttons":1,"clicks":1}`, x, y)
		v.says(`{"type":"mouse","kind":"up","x":%d,"y":%d,"button":"left","clicks":1}`, x, y)
	}
	// answered waits until all that was said is done.
	answered := func() {
		t.Helper()
		v.says(`{"type":"are you done?"}`)
		v.message("refused", func(m map[string]any) bool { return m["what"] == "are you done?" })
	}

	if m := v.last["person"]; m["person"] != nil || m["yours"] != false {
		t.Errorf("%v, want that nobody has it", m)
	}
	click(30, 30)
	if m := v.message("refused", nil); m["what"] != "mouse" || !strings.Contains(m["why"].(string), "nobody has session") {
		t.Errorf("input of somebody who has not taken it over: %v", m)
	}
	p.takes("ben")
	v.message("person", func(m map[string]any) bool { return m["yours"] == false && strings.Contains(text(m), `"name":"ben"`) })
	v.says(`{"type":"text","text":%q}`, typed)
	v.message("refused", func(m map[string]any) bool { return m["what"] == "text" })
	did()
	acts()
	// Of two who share a principal, the one has it whose name it is; who says no name has it, too.
	p.takesAs("Bob", "ann")
	v.message("person", func(m map[string]any) bool { return m["yours"] == true })
	v.says(`{"type":"person","person":"Ann"}`)
	v.message("person", func(m map[string]any) bool { return m["yours"] == false && strings.Contains(text(m), `"name":"Bob"`) })
	v.says(`{"type":"text","text":%q}`, typed)
	v.message("refused", func(m map[string]any) bool { return m["what"] == "text" })
	did()
	acts()
	v.says(`{"type":"person","person":"Bob"}`)
	v.message("person", func(m map[string]any) bool { return m["yours"] == true })
	v.says(`{"type":"person","person":""}`)
	v.message("person", func(m map[string]any) bool { return m["yours"] == false })
	p.takes("ann")
	v.message("person", func(m map[string]any) bool { return m["yours"] == true })

	click(30, 30)
	answered()
	did("over", "click")
	acts(session.ActClick)
	click(50, 110) // into the field
	v.says(`{"type":"key","kind":"down","key":"a","code":"KeyA","key_code":65,"text":"a"}`)
	v.says(`{"type":"key","kind":"up","key":"a","code":"KeyA","key_code":65}`)
	v.says(`{"type":"key","kind":"down","key":"Backspace","code":"Backspace","key_code":8}`)
	v.says(`{"type":"key","kind":"up","key":"Backspace","code":"Backspace","key_code":8}`)
	v.says(`{"type":"text","text":%q}`, typed)
	v.says(`{"type":"compose","text":"に","start":1,"end":1}`)
	v.says(`{"type":"text","text":"日"}`)
	v.says(`{"type":"paste","text":"!"}`)
	answered()
	did("key a", "key Backspace", "composed 日")
	if value := s.eval(page, `i.value`); value != typed+"日!" {
		t.Errorf("the field has %q", value)
	}
	acts(session.ActClick, session.ActKey, session.ActKey, session.ActText, session.ActText, session.ActClipboard)
	v.says(`{"type":"wheel","x":300,"y":300,"dx":0,"dy":400}`)
	answered()
	p.until(func() bool { return s.eval(page, `scrollY`) == "400" })
	s.eval(page, `scrollTo(0,0);did.length=0`)
	v.says(`{"type":"touch","kind":"start","points":[{"x":40,"y":40,"id":1}]}`)
	v.says(`{"type":"touch","kind":"end","points":[]}`)
	answered()
	p.until(func() bool {
		return strings.HasPrefix(s.eval(page, `did.join()`), "touch") && strings.Contains(s.eval(page, `did.join()`), "click")
	})
	acts(session.ActScroll, session.ActTouch)

	// The address, and the way back.
	v.says(`{"type":"navigate","url":%q}`, site.URL+"/second")
	answered()
	at := func(path string) {
		t.Helper()
		p.until(func() bool { return s.eval(page, `location.pathname+typeof did`) == path+"object" }) // its script has run
	}
	at("/second")
	v.says(`{"type":"back"}`)
	answered()
	at("/first")
	v.says(`{"type":"forward"}`)
	answered()
	at("/second")
	v.says(`{"type":"forward"}`)
	v.message("refused", func(m map[string]any) bool { return m["what"] == "forward" })
	s.eval(page, `did.push("old")`)
	v.says(`{"type":"reload"}`)
	answered()
	did()
	acts(session.ActNavigate, session.ActBack, session.ActForward, session.ActForward, session.ActReload)
	for _, url := range []string{"file:///etc/passwd", "chrome://settings"} {
		v.says(`{"type":"navigate","url":%q}`, url)
		v.message("refused", func(m map[string]any) bool { return m["what"] == "navigate" })
		v.says(`{"type":"new_tab","url":%q}`, url)
		v.message("refused", func(m map[string]any) bool { return m["what"] == "new_tab" })
	}
	acts()

	// Dialogs: the click that opens one is not answered before it.
	s.eval(page, `b.onclick=()=>{did.push(prompt("Which?","x"))}`)
	click(30, 30)
	v.until(func() bool { d := tabOf(v.tabs, target).Dialog; return d != nil && d.Kind == "prompt" })
	v.says(`{"type":"dialog","number":%d,"accept":true,"text":"that"}`, tabOf(v.tabs, target).Dialog.Number)
	v.until(func() bool { return tabOf(v.tabs, target).Dialog == nil })
	did("over", "click", "that")
	// An answer is to the dialog that it names, and to no later one, though that has the same text.
	s.eval(page, `b.onclick=()=>{did.push(confirm("Pay?"));did.push(confirm("Pay?"))}`)
	click(30, 30)
	v.until(func() bool { return tabOf(v.tabs, target).Dialog != nil })
	first := tabOf(v.tabs, target).Dialog.Number
	v.says(`{"type":"dialog","accept":true}`)
	v.message("refused", func(m map[string]any) bool { return m["what"] == "dialog" })
	v.says(`{"type":"dialog","number":%d,"accept":true}`, first)
	v.says(`{"type":"dialog","number":%d,"accept":true}`, first)
	v.message("refused", func(m map[string]any) bool { return m["what"] == "dialog" })
	v.until(func() bool { d := tabOf(v.tabs, target).Dialog; return d != nil && d.Number > first })
	v.says(`{"type":"dialog","number":%d,"accept":true}`, first)
	v.message("refused", func(m map[string]any) bool { return m["what"] == "dialog" })
	second := tabOf(v.tabs, target).Dialog.Number
	v.says(`{"type":"dialog","number":%d,"accept":false}`, second)
	v.until(func() bool { return tabOf(v.tabs, target).Dialog == nil })
	did("click", "true", "false")
	v.says(`{"type":"dialog","number":%d,"accept":false}`, second)
	v.message("refused", func(m map[string]any) bool { return m["what"] == "dialog" })
	s.eval(page, `b.onclick=null`)

	// Tabs.
	v.says(`{"type":"new_tab"}`)
	answered()
	v.until(func() bool { return v.last["showing"]["target"] != target }) // it may have come before the answer
	opened := v.last["showing"]["target"].(string)
	v.says(`{"type":"front","target":%q}`, target)
	v.message("showing", func(m map[string]any) bool { return m["target"] == target })
	p.until(func() bool { return s.eval(page, `document.visibilityState+document.hasFocus()`) == "visibletrue" })
	v.says(`{"type":"close_tab","target":%q}`, opened)
	v.until(func() bool { return tabOf(v.tabs, opened).Target == "" })
	v.says(`{"type":"close_tab","target":"nothing"}`)
	v.message("refused", func(m map[string]any) bool { return m["what"] == "close_tab" })
	acts(session.ActClick, session.ActDialog, session.ActClick, session.ActDialog, session.ActDialog, session.ActNewTab, session.ActTab, session.ActCloseTab)
	if p.closes != 1 {
		t.Errorf("%d pages were about to close", p.closes)
	}

	// A select box and the field of a file, which show nothing in the picture.
	p.exchanges(t, "invoice.pdf", "forbidden.txt")
	s.eval(page, `document.body.insertAdjacentHTML("beforeend", '<select id=s style="position:absolute;left:20px;top:200px;width:150px"><option>one<option disabled>two<option>three</select><input id=f type=file style="position:absolute;left:20px;top:300px;width:200px">');
		s.onchange=()=>did.push("chose "+s.value);f.onchange=()=>did.push("file "+f.files[0].name);scrollTo(0,60);did.length=0`)
	click(50, 150)
	asked := v.message("options", nil)
	if options := asked["options"].([]any); len(options) != 3 || text(options[1].(map[string]any)) != `{"chosen":false,"disabled":true,"text":"two"}` {
		t.Errorf("asked %v", asked)
	}
	v.says(`{"type":"select","index":1}`) // which is disabled
	v.says(`{"type":"select","index":2}`)
	answered()
	// A page that is busy when it is clicked is asked nevertheless.
	s.worker.Post(page, "Runtime.evaluate", map[string]any{"expression": `for(const until=Date.now()+700;Date.now()<until;);`})
	click(50, 250)
	if m := v.message("files", nil); m["multiple"] != false || len(m["names"].([]any)) != 2 {
		t.Errorf("asked %v", m)
	}
	for _, name := range []string{"../x", "forbidden.txt", "nothing.pdf"} {
		v.says(`{"type":"file","names":[%q]}`, name)
		v.message("refused", func(m map[string]any) bool { return m["what"] == "file" })
	}
	v.says(`{"type":"file","names":["invoice.pdf"]}`)
	answered()
	did("chose three", "file invoice.pdf")
	acts(session.ActSelect, session.ActSelect, session.ActFile)

	// A chooser that a script opens is asked of the person, too. The page sees none, nor the worker.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	other, err := s.mux.Observe(ctx, eventChooser)
	if err != nil {
		t.Fatal(err)
	}
	var attached struct{ SessionID string }
	if err := other.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &attached); err != nil {
		t.Fatal(err)
	}
	if err := other.Call(ctx, attached.SessionID, "Page.enable", nil, nil); err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{})
	s.work.Go(func() {
		if _, err := other.Next(ctx); err == nil {
			close(heard)
		}
	})
	s.eval(page, `document.body.insertAdjacentHTML("beforeend", '<button id=up style="position:absolute;left:20px;top:400px;width:150px;height:30px">Upload</button>');
		up.onclick=()=>{const c=document.createElement("input");c.type="file";c.multiple=true;c.onchange=()=>did.push("chosen "+c.files[0].name);c.oncancel=()=>did.push("cancelled");c.click()};scrollTo(0,60);did.length=0`)
	click(50, 355)
	if m := v.message("files", nil); m["multiple"] != true || len(m["names"].([]any)) != 2 {
		t.Errorf("asked %v", m)
	}
	v.says(`{"type":"file","names":["invoice.pdf"]}`)
	answered()
	did("chosen invoice.pdf")
	select {
	case <-heard:
		t.Error("the worker hears of a chooser that the person opened")
	default:
	}
	stop()
	acts(session.ActClick, session.ActFile)

	// Text that is selected on the page, in a field, and in no password.
	s.eval(page, `document.body.insertAdjacentHTML("beforeend", "<p id=t>the order 4711</p><input id=pw type=password value=hunter2>");getSelection=()=>{did.push("asked");return ""};
		i.value="";i.blur();const r=document.createRange();r.selectNodeContents(t);document.getSelection().removeAllRanges();document.getSelection().addRange(r);did.length=0`)
	v.says(`{"type":"copy"}`)
	v.message("copied", func(m map[string]any) bool { return m["text"] == "the order 4711" && m["target"] == target })
	s.eval(page, `i.value="card 4242";i.focus();i.setSelectionRange(5,9)`)
	v.says(`{"type":"copy"}`)
	v.message("copied", func(m map[string]any) bool { return m["text"] == "4242" })
	s.eval(page, `i.setSelectionRange(4,7)`)
	v.says(`{"type":"cut"}`)
	v.message("copied", func(m map[string]any) bool { return m["text"] == " 42" })
	p.until(func() bool { return s.eval(page, `i.value`) == "card42" })
	s.eval(page, `pw.focus();pw.select()`)
	v.says(`{"type":"copy"}`)
	v.message("refused", func(m map[string]any) bool {
		return m["what"] == "copy" && strings.Contains(m["why"].(string), "password")
	})
	did("key Delete") // by the cut; its own script was not asked what is selected
	p.mu.Lock()
	for i, n := range []int{14, 4, 3} {
		if a := p.acts[i]; a.Kind != session.ActCopy || a.Characters != n {
			t.Errorf("noted %+v, want %d characters", a, n)
		}
	}
	p.mu.Unlock()
	acts(session.ActCopy, session.ActCopy, session.ActCopy, session.ActKey)

	// A page whose pixels are not those of the picture: a phone's, that is zoomed out.
	s.call(page, "Emulation.setDeviceMetricsOverride", map[string]any{"width": 400, "height": 700, "deviceScaleFactor": 2, "mobile": true}, nil)
	s.call(page, "Page.navigate", map[string]any{"url": site.URL + "/phone"}, nil)
	at("/phone")
	seen, _ := v.settled(s, target, page, 10)
	if seen.Width != 400 || seen.Scale >= 1 {
		t.Errorf("the picture says of itself %+v", seen.frameHead)
	}
	click(int(30*seen.Scale), int(30*seen.Scale))
	answered()
	p.until(func() bool { return strings.Contains(s.eval(page, `did.join()`), "click") })
	acts(session.ActClick)

	// What comes after the fence was shut does not reach the page.
	p.fence.Shut(errors.New("handed back"))
	s.eval(page, `did.length=0`)
	click(int(30*seen.Scale), int(30*seen.Scale))
	v.message("refused", func(m map[string]any) bool { return strings.Contains(m["why"].(string), "handed back") })
	answered()
	if got := s.eval(page, `did.join()`); got != "" {
		t.Errorf("after the fence was shut: %s", got)
	}
	if log := s.log.String(); strings.Contains(log, typed) || strings.Contains(log, site.URL) {
		t.Errorf("the log has what was typed, or where:\n%s", log)
	}
}

// TestByHandInFramesOfOtherProcesses: a select box in one asks, wherever that is scrolled and
// however it is scaled, and what is selected in one is copied.
func TestByHandInFramesOfOtherProcesses(t *testing.T) {
	s := newStage(t)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		other := strings.NewReplacer("127.0.0.1", "localhost", "localhost", "127.0.0.1").Replace(r.Host)
		switch r.URL.Path {
		case "/outer":
			_, _ = io.WriteString(w, `<!doctype html><title>Outer</title><body style="margin:0;height:3000px"><script>did=[];over=false;onmessage=e=>e.data==="over"?over=true:did.push(e.data)</script>
				<iframe style="position:absolute;left:50px;top:160px;width:400px;height:300px;border:0;transform:scale(.5);transform-origin:0 0" src="http://`+other+`/middle"></iframe>`)
		case "/middle":
			_, _ = io.WriteString(w, `<!doctype html><body style="margin:0"><iframe style="position:absolute;left:10px;top:15px;width:300px;height:200px;border:4px solid" src="http://`+other+`/inner"></iframe>`)
		default:
			_, _ = io.WriteString(w, `<!doctype html><body style="margin:0;height:2000px"><select id=s style="position:absolute;left:30px;top:400px;width:150px"><option>one<option>two</select>
				<p id=t style="position:absolute;left:30px;top:450px;margin:0">paid with card</p>
				<button id=up style="position:absolute;left:30px;top:500px;width:150px;height:30px">Upload</button>
				<script>up.onclick=()=>{const c=document.createElement("input");c.type="file";c.onchange=()=>top.postMessage("file "+c.files[0].name,"*");c.click()};s.onchange=()=>top.postMessage("chose "+s.value,"*");s.onclick=()=>top.postMessage("click","*");
				t.onclick=()=>{const r=document.createRange();r.selectNodeContents(t);getSelection().removeAllRanges();getSelection().addRange(r);top.postMessage("selected","*")};
				t.onmouseover=()=>top.postMessage("over","*");
				onload=function scrolled(){scrollTo(0,350);scrollY===350?top.postMessage("loaded","*"):requestAnimationFrame(scrolled)}</script>`)
		}
	}))
	t.Cleanup(site.Close)
	target, page := s.open(still)
	s.call(page, "Page.navigate", map[string]any{"url": site.URL + "/outer"}, nil)
	p := s.play("ses_1")
	p.exchanges(t, "invoice.pdf")
	p.takes("ann")
	v := p.watchAs(t, "ann")
	v.until(func() bool { return tabOf(v.tabs, target).Title == "Outer" && v.last["person"] != nil })
	did := func(want string) {
		t.Helper()
		p.until(func() bool { return s.eval(page, `did.join()`) == want })
	}
	did("loaded")
	p.until(func() bool {
		for _, l := range s.monitor.ToLookAt() {
			if l.TargetID == target && len(l.Frames) == 2 {
				return true
			}
		}
		return false
	})
	s.eval(page, `scrollTo(0,60)`)
	// at is a place in the inner frame, as one of the picture.
	at := func(x, y float64) (float64, float64) { return 50 + (14+x)/2, 100 + (19+y)/2 }
	// Nobody clicks before the picture shows it, nor does the browser find the frame there.
	p.until(func() bool {
		x, y := at(40, 110)
		v.says(`{"type":"mouse","kind":"move","x":%v,"y":%v}`, x, y)
		v.says(`{"type":"mouse","kind":"move","x":%v,"y":%v}`, x+1, y)
		return s.eval(page, `over`) == "true"
	})
	click := func(x, y float64) {
		x, y = at(x, y)
		v.says(`{"type":"mouse","kind":"down","x":%v,"y":%v,"button":"left","buttons":1,"clicks":1}`, x, y)
		v.says(`{"type":"mouse","kind":"up","x":%v,"y":%v,"button":"left","clicks":1}`, x, y)
	}
	click(40, 58)
	if asked := v.message("options", nil); len(asked["options"].([]any)) != 2 {
		t.Errorf("asked %v", asked)
	}
	v.says(`{"type":"select","index":1}`)
	did("loaded,chose two")
	click(40, 110)
	did("loaded,chose two,selected")
	v.says(`{"type":"copy"}`)
	v.message("copied", func(m map[string]any) bool { return m["text"] == "paid with card" })

	// A chooser that a script in the frame opens is asked of the person.
	click(40, 165)
	if asked := v.message("files", nil); asked["multiple"] != false || asked["target"] != target {
		t.Errorf("asked %v", asked)
	}
	v.says(`{"type":"file","names":["invoice.pdf"]}`)
	did("loaded,chose two,selected,file invoice.pdf")
	// Who has the session after the person opens choosers as before.
	p.takes("")
	p.until(func() bool { _, frames := p.attached(); return frames == 0 })
}
