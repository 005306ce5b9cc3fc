package cdpproxy

import (
	"testing"

	"leasehold/lease"
)

// TestWhatIsDoneIsToldOnEveryWay on which a command that belongs to a lease goes to the browser: staged
// with others or by itself, the slow way, over a page's own address, and as a call for a person.
func TestWhatIsDoneIsToldOnEveryWay(t *testing.T) {
	typed := `{"id":1,"method":"Input.insertText","params":{"text":"x"},"sessionId":"P"}`
	for name, tt := range map[string]struct {
		send   func(b *offline, c *Conn)
		target string // that was acted on; "" is any
	}{
		"staged": {func(_ *offline, c *Conn) { c.handleInput(clientFrame(0x81, typed), false) }, "T"},
		"the slow way": {func(_ *offline, c *Conn) {
			c.dispatch([]byte(`{"id":1,"method":"Page.close","sessionId":"P"}`), true)
			c.offloading.Wait()
		}, "T"},
		"over the page's address": {func(_ *offline, c *Conn) {
			c.session.defaultID, c.suffix = "P", append([]byte(sessionKey), `P"}`...)
			c.handleInput(clientFrame(0x81, `{"id":1,"method":"Input.insertText","params":{"text":"x"}}`), false)
		}, "T"},
		"for a person": {func(b *offline, c *Conn) {
			o := &Observer{session: &ClientSession{mux: b.mux, id: "O"}}
			if _, err := b.mux.start(c.fence, "O-T", "Input.insertText", map[string]string{"text": "x"}, &o.calls); err != nil {
				t.Error(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOffline(t)
			c := b.conn()
			c.session.token = 1
			b.mux.sessions.opened("P", "S", c.session, targetInfo{TargetID: "T", Type: "page"})
			tt.send(b, c)
			on, other := b.mux.acts.On("T"), b.mux.acts.On("other")
			if len(b.read()) == 0 || b.mux.acts.Last() == 0 || on == 0 || (other == 0) != (tt.target != "") {
				t.Errorf("acted at %v, on the page at %v, on another at %v", b.mux.acts.Last(), on, other)
			}
		})
	}
}

// TestWhatTheFenceRefusesWasNotDone in the browser.
func TestWhatTheFenceRefusesWasNotDone(t *testing.T) {
	b := newOffline(t)
	c := b.conn()
	c.fence.Shut(lease.ErrExpired)
	for _, method := range []string{"Input.insertText", "Page.bringToFront", "Emulation.addScreen", "Page.navigate"} {
		c.dispatch([]byte(`{"id":1,"method":"`+method+`","params":{"url":"javascript:a"}}`), true)
		c.commit()
		c.offloading.Wait()
	}
	if a := &b.mux.acts; len(b.read()) > 0 || a.Last() != 0 || a.Activated("") != 0 || a.Lasting() != "" {
		t.Errorf("acted at %v, brought to the front at %v, lasting: %q", a.Last(), a.Activated(""), a.Lasting())
	}
}
