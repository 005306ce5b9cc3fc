package testchrome

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/launcher/chrome"
)

// Driver drives the pages of a browser. Unlike a Client it keeps events, and is safe
// for concurrent use.
type Driver struct {
	t       testing.TB
	browser *chrome.Browser

	mu     sync.Mutex
	lastID int
	calls  map[int]chan Message
	events map[string]chan Message // by session and method
}

// Message is an answer or an event from the browser.
type Message struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	SessionID string          `json:"sessionId"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// keptEvents is how many events of one session and method are kept until the test reads
// them. Further ones are dropped.
const keptEvents = 64

// StartDriver starts a headless browser on a fresh profile, and drives it until the
// test ends.
func StartDriver(t testing.TB) *Driver {
	t.Helper()
	o := Options(t)
	o.ExtraArgs = []string{"--disable-gpu"}
	return Drive(t, o)
}

// Drive starts a browser, and drives it until the test ends.
func Drive(t testing.TB, o chrome.Options) *Driver {
	t.Helper()
	d := &Driver{t: t, calls: map[int]chan Message{}, events: map[string]chan Message{}}
	var reading sync.WaitGroup
	t.Cleanup(reading.Wait) // runs after the cleanup that ends the browser
	d.browser = Start(t, o)
	reading.Go(d.read)
	return d
}

// Browser returns the browser.
func (d *Driver) Browser() *chrome.Browser { return d.browser }

// Ask closes the browser over CDP. It is an argument for chrome.Browser.Close.
func (d *Driver) Ask(ctx context.Context) error { return d.Call(ctx, "", "Browser.close", nil, nil) }

// read delivers messages until the browser's pipe ends.
func (d *Driver) read() {
	r := bufio.NewReaderSize(d.browser.Events(), 1<<20)
	for {
		raw, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m Message
		if err := json.Unmarshal(raw[:len(raw)-1], &m); err != nil {
			d.t.Errorf("chrome sent %.200q: %v", raw, err)
			return
		}
		if m.ID == 0 {
			select {
			case d.channel(m.SessionID, m.Method) <- m:
			default:
			}
			continue
		}
		d.mu.Lock()
		answer := d.calls[m.ID]
		delete(d.calls, m.ID)
		d.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	}
}

func (d *Driver) channel(session, method string) chan Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := session + " " + method
	if d.events[key] == nil {
		d.events[key] = make(chan Message, keptEvents)
	}
	return d.events[key]
}

// Events returns a channel with the events of one method that came on a session.
func (d *Driver) Events(session, method string) <-chan Message { return d.channel(session, method) }

// Await waits for the next event of one method on a session.
func (d *Driver) Await(session, method string) {
	d.t.Helper()
	select {
	case <-d.channel(session, method):
	case <-time.After(Patience):
		d.t.Fatalf("no %s came", method)
	}
}

// Post sends a command and returns a channel for its answer. An empty session means the
// browser itself.
func (d *Driver) Post(session, method string, params any) <-chan Message {
	if params == nil {
		params = struct{}{}
	}
	answer := make(chan Message, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastID++
	d.calls[d.lastID] = answer
	raw, err := json.Marshal(struct {
		ID        int    `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId,omitempty"`
	}{d.lastID, method, params, session})
	if err == nil {
		_, err = d.browser.Commands().Write(append(raw, 0))
	}
	if err != nil {
		d.t.Errorf("%s: %v", method, err)
	}
	return answer
}

// Call sends a command and decodes its result, unless ctx ends first.
func (d *Driver) Call(ctx context.Context, session, method string, params, result any) error {
	select {
	case m := <-d.Post(session, method, params):
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// Must is Call, but fails the test on an error.
func (d *Driver) Must(session, method string, params, result any) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), Patience)
	defer cancel()
	if err := d.Call(ctx, session, method, params, result); err != nil {
		d.t.Fatal(err)
	}
}

// Open opens a page, attaches to it, and waits until it is loaded.
func (d *Driver) Open(url string) (target, session string) {
	d.t.Helper()
	var created struct {
		TargetID string `json:"targetId"`
	}
	d.Must("", "Target.createTarget", map[string]any{"url": "about:blank"}, &created)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	d.Must("", "Target.attachToTarget", map[string]any{"targetId": created.TargetID, "flatten": true}, &attached)
	session = attached.SessionID
	d.Must(session, "Page.enable", nil, nil)
	d.Must(session, "Inspector.enable", nil, nil)
	d.load(session, url)
	return created.TargetID, session
}

// load navigates a new page, and waits until this document is loaded: the blank one before
// it may be loaded only now, on a busy machine, and a navigation that begins before a blank
// one is over can be lost.
func (d *Driver) load(session, url string) {
	d.t.Helper()
	d.Must(session, "Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	var began struct{ LoaderID string }
	d.Must(session, "Page.navigate", map[string]any{"url": url}, &began)
	for late := time.After(Patience); ; {
		var e struct{ LoaderID, Name string }
		select {
		case m := <-d.Events(session, "Page.lifecycleEvent"):
			if err := json.Unmarshal(m.Params, &e); err != nil {
				d.t.Fatal(err)
			}
		case <-late:
			d.t.Fatalf("%s is not loaded", url)
		}
		if e.LoaderID == began.LoaderID && e.Name == "load" {
			break
		}
	}
	// What the loads so far were told by has come before this answer, and nobody waits for it.
	d.Must(session, "Page.setLifecycleEventsEnabled", map[string]any{"enabled": false}, nil)
	for told := d.Events(session, "Page.loadEventFired"); len(told) > 0; {
		<-told
	}
}

// Eval runs an expression in a page and returns its value as text. It waits for the value
// of a promise, and returns the text of an exception.
func (d *Driver) Eval(session, expression string) string {
	d.t.Helper()
	var r struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	d.Must(session, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		return string(r.ExceptionDetails)
	}
	return strings.TrimSpace(fmt.Sprint(r.Result.Value))
}

// Drawn waits until the page has been painted. A screenshot of a tab that goes to the
// background before that would be empty.
func (d *Driver) Drawn(session string) {
	d.t.Helper()
	d.Must(session, "Runtime.evaluate", map[string]any{
		"expression":   "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))",
		"awaitPromise": true,
	}, nil)
}
