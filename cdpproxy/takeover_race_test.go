package cdpproxy

import (
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
	for deadline := time.Now().Add(time.Minute); b.mux.Acted() == 0; time.Sleep(time.Millisecond) {
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
