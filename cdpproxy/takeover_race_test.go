package cdpproxy

import (
	"errors"
	"regexp"
	"runtime"
	"testing"
	"time"

	"leasehold/cdpproxy/methods"
)

// TestACommandThatWaitsWhileAPersonTakesOver: it was looked at before, and still must not
// pass.
func TestACommandThatWaitsWhileAPersonTakesOver(t *testing.T) {
	b := newOffline(t)
	c := b.conn()
	c.taken = &Takeover{}
	b.mux.writing.Lock() // another message is being written
	c.dispatch([]byte(`{"id":1,"method":"Input.insertText","params":{"text":"x"}}`), true)
	for deadline := time.Now().Add(time.Minute); b.mux.inFlight.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the command is not on its way")
		}
	}
	begun := make(chan struct{})
	go func() {
		c.taken.Begin(b.mux, methods.RefusePerson("Ann", time.Now()))
		close(begun)
	}()
	for c.taken.why.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	b.mux.writing.Unlock()
	<-begun
	c.offloading.Wait()
	if got := b.read(); len(got) > 0 {
		t.Errorf("the browser got %q", got)
	}
}

// TestACommandThatWasNotSentLeavesItsTwin: the worker sent two commands with one id, of which the
// browser gets one. Its answer is the worker's.
func TestACommandThatWasNotSentLeavesItsTwin(t *testing.T) {
	b := newOffline(t)
	c := b.conn()
	c.dispatch([]byte(`{"id":1,"method":"Input.insertText","params":{"text":"x"}}`), true)
	b.read()
	twin := command{id: 1, method: []byte("Input.insertText"), params: []byte("{}")}
	u, ok := c.register(twin)
	if !ok || c.more[inFlight{c.target(twin), 1}] != 1 {
		t.Fatalf("%v, %v", ok, c.more)
	}
	c.failUnsent(errors.New("full"), stagedCommand{command: twin, undo: u})
	c.mu.Lock()
	_, first := c.pending[""][1]
	flying, more := b.mux.inFlight.Load(), c.more[inFlight{c.target(twin), 1}]
	c.mu.Unlock()
	if !first || more != 0 || flying != 1 {
		t.Errorf("the first is in flight: %v, %d of it, %d more; want it, once", first, flying, more)
	}
}

// TestThePersonsRequestsGoAsTheyAre: a request that pauses for the worker while a person has the
// session goes to the site as it is, whatever the worker wants instead, and at the hand-back at
// the latest. One that had paused before waits until then.
func TestThePersonsRequestsGoAsTheyAre(t *testing.T) {
	const change = `{"requestId":"r","method":"POST","url":"http://a.test/pay"}`
	paused, auth := `{"method":"Fetch.requestPaused","params":{"requestId":"r","networkId":"n","request":{"method":"GET"}},"sessionId":"S"}`,
		`{"method":"Fetch.authRequired","params":{"requestId":"r","request":{"method":"GET"}},"sessionId":"S"}`
	goes := `{"id":own,"method":"Fetch.continueRequest","params":{"requestId":"r"},"sessionId":"S"}` + "\x00"
	asks := `{"id":own,"method":"Fetch.continueWithAuth","params":{"authChallengeResponse":{"response":"Default"},"requestId":"r"},"sessionId":"S"}` + "\x00"
	for name, tt := range map[string]struct {
		before, event, method, params string
		sent, atTheEnd                string
	}{
		"changed":                {"", paused, "Fetch.continueRequest", change, goes, ""},
		"answered":               {"", paused, "Fetch.fulfillRequest", `{"requestId":"r","responseCode":200}`, goes, ""},
		"failed":                 {"", paused, "Fetch.failRequest", `{"requestId":"r","errorReason":"Aborted"}`, goes, ""},
		"another answer":         {"", paused, "Fetch.continueResponse", `{"requestId":"r","responseCode":200}`, goes, ""},
		"credentials":            {"", auth, "Fetch.continueWithAuth", `{"requestId":"r","authChallengeResponse":{"response":"ProvideCredentials"}}`, asks, ""},
		"let go by the worker":   {"", paused, "Fetch.continueRequest", `{"requestId":"r"}`, `{"id":1,"method":"Fetch.continueRequest","params":{"requestId":"r"},"sessionId":"S"}` + "\x00", ""},
		"not let go":             {"", paused, "Fetch.getResponseBody", `{"requestId":"r"}`, `{"id":1,"method":"Fetch.getResponseBody","params":{"requestId":"r"},"sessionId":"S"}` + "\x00", goes},
		"another one is changed": {"", paused, "Fetch.continueRequest", `{"requestId":"s","method":"POST"}`, "", goes},
		"it had paused before":   {paused, "", "Fetch.continueRequest", change, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			launchers := regexp.MustCompile(`"id":\d{10}`)
			b := newOffline(t)
			b.mux.traffic = func(Traffic) { t.Error("a change is told that nobody made") }
			c := b.conn()
			c.taken, c.session.conn, c.session.paused = &Takeover{}, c, map[pausedRequest]pause{}
			b.mux.route([]byte(tt.before))
			c.taken.Begin(b.mux, methods.RefusePerson("Ann", time.Now()))
			b.mux.route([]byte(tt.event))
			c.handleInput(clientFrame(0x81, `{"id":1,"method":"`+tt.method+`","params":`+tt.params+`}`), false)
			c.offloading.Wait()
			if got := launchers.ReplaceAllString(string(b.read()), `"id":own`); got != tt.sent {
				t.Errorf("the browser got %q, want %q", got, tt.sent)
			}
			c.taken.End(b.mux)
			if got := launchers.ReplaceAllString(string(b.read()), `"id":own`); got != tt.atTheEnd {
				t.Errorf("at the hand-back the browser got %q, want %q", got, tt.atTheEnd)
			}
		})
	}
}

// TestWhatABrowserKeepsIsNoted: the first method by which a browser is no longer as it was started.
func TestWhatABrowserKeepsIsNoted(t *testing.T) {
	b := newOffline(t)
	b.mux.traffic = func(Traffic) {}
	c := b.conn()
	for _, tt := range []struct{ method, want string }{
		{"Emulation.setUserAgentOverride", ""}, {"Network.setCookie", ""}, {"Emulation.addScreen", "Emulation.addScreen"}, {"Security.setIgnoreCertificateErrors", "Emulation.addScreen"},
	} {
		c.dispatch([]byte(`{"id":1,"method":"`+tt.method+`"}`), true)
		c.offloading.Wait()
		c.commit()
		if got := b.mux.acts.Lasting(); got != tt.want {
			t.Errorf("after %s: %q, want %q", tt.method, got, tt.want)
		}
	}
}

// TestWhoIsRefusedToStopGoesOnToHear: a client hears the requests of all pages, and its command to end
// that waits for another message while the launcher begins to keep the browser to itself. The command is
// refused, so that the client would hear what is sent with the password.
func TestWhoIsRefusedToStopGoesOnToHear(t *testing.T) {
	b := newOffline(t)
	c := b.conn()
	c.dispatch([]byte(`{"id":1,"method":"Fetch.enable"}`), true)
	c.offloading.Wait()
	b.read()
	b.mux.writing.Lock() // another message is being written
	c.dispatch([]byte(`{"id":2,"method":"Fetch.disable"}`), true)
	for deadline := time.Now().Add(time.Minute); b.mux.inFlight.Load() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the command is not on its way")
		}
	}
	kept := make(chan error)
	go func() {
		_, err := b.mux.KeepPrivate(methods.RefuseSignIn())
		kept <- err
	}()
	for b.mux.KeptPrivate() == nil {
		time.Sleep(time.Millisecond)
	}
	b.mux.writing.Unlock()
	err := <-kept
	c.offloading.Wait()
	if got := string(b.read()); got != "" {
		t.Errorf("the browser got %q", got)
	}
	if _, ok := errors.AsType[*ListeningError](err); !ok {
		t.Errorf("the browser is kept from a client that hears all requests: %v", err)
	}
}

// TestACommandThatWaitedForThePipeIsInTheLogWhenTheBrowserHasIt: who sees what it did finds that it was sent.
func TestACommandThatWaitedForThePipeIsInTheLogWhenTheBrowserHasIt(t *testing.T) {
	b := newOffline(t)
	c := b.conn()
	c.session.conn = c
	for n := range 200 {
		b.mux.writing.Lock() // another message is being written
		c.dispatch([]byte(`{"id":1,"method":"Page.enable"}`), true)
		found := make(chan int)
		go func() {
			for len(b.read()) == 0 {
				runtime.Gosched()
			}
			_, sent := c.session.CommandsAfter(0)
			found <- sent
		}()
		b.mux.writing.Unlock()
		if sent := <-found; sent != n+1 {
			t.Fatalf("%d commands are in the log, want %d", sent, n+1)
		}
		c.offloading.Wait()
	}
}
