package cdpproxy_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/test/testchrome"
)

// TestWhileAPersonHasTheSession: what acts on pages is refused and says who has it, whether
// it would have been staged or not; what reads passes; none of it counts as a late write.
func TestWhileAPersonHasTheSession(t *testing.T) {
	s := script(t)
	h := &handler{}
	c := connect(t, s.mux, open(), h)
	c.works()
	h.taken.Begin(s.mux, methods.RefusePerson("Ann", time.Unix(0, 0)))
	s.heard()
	acts := []string{"Input.dispatchMouseEvent", "Fetch.enable", "Network.setExtraHTTPHeaders", "Page.setBypassCSP", "Page.reload", "Page.navigate", "Target.createTarget", "Target.closeTarget", "Page.close", "DOM.setFileInputFiles", "Input.dispatchDragEvent"}
	reads := []string{"DOM.getDocument", "Page.captureScreenshot", "Runtime.evaluate", "Network.getCookies", "Target.getTargets", "Fetch.continueRequest"}
	var all strings.Builder // in one read, so that some are staged together
	id := 1000
	want := map[int]bool{}
	for i := range max(len(acts), len(reads)) {
		for _, list := range [][]string{reads, acts} {
			if i < len(list) {
				id++
				want[id] = list[i] == acts[min(i, len(acts)-1)]
				all.WriteString(raw(fin|text, fmt.Sprintf(`{"id":%d,"method":%q}`, id, list[i])))
			}
		}
	}
	if _, err := io.WriteString(c.net, all.String()); err != nil {
		t.Fatal(err)
	}
	for range len(want) - 1 { // the screenshot is not answered
		got, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if refused := got.Error != nil; refused != want[got.ID] {
			t.Errorf("%d: %+v", got.ID, got.Error)
		}
		if got.Error != nil && (got.Error.Code != -32000 || !strings.Contains(got.Error.Message, "Ann has taken over the session since 1970-01-01T00:00:00Z")) {
			t.Errorf("%+v", got.Error)
		}
	}
	var passed []string
	for _, m := range s.heard() {
		passed = append(passed, m.Method)
	}
	if fmt.Sprint(passed) != fmt.Sprint(reads) {
		t.Errorf("%v passed, want %v", passed, reads)
	}
	denied := h.deniedSince()
	for i, name := range acts {
		if i >= len(denied) || denied[i] != name+" "+methods.ReasonPerson {
			t.Errorf("denied: %v", denied)
			break
		}
	}
	if h.refused.Load() != 0 {
		t.Error("what a person kept from the browser counts as late")
	}
	if len(h.closedTargets()) != 0 {
		t.Error("a page that is not closed is made ready for it")
	}
	h.taken.End(s.mux)
	for _, name := range acts {
		if name == "DOM.setFileInputFiles" {
			continue
		}
		if got := c.call(name, "", nil); got.Error != nil {
			t.Errorf("after the hand-back: %s: %+v", name, got.Error)
		}
	}
}

// TestNothingOfTheWorkerComesAfterTheTakeOver: when Begin has returned, no command that acts
// reaches the browser, however many are on their way.
func TestNothingOfTheWorkerComesAfterTheTakeOver(t *testing.T) {
	s := script(t)
	h := &handler{}
	c := connect(t, s.mux, open(), h)
	c.works()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := c.next(); err != nil {
				return
			}
		}
	}()
	for round := range 30 {
		s.heard()
		for i := range 20 { // one passes staged, the next one by the goroutine
			c.send([]string{"Input.insertText", "Page.navigate"}[i%2], "", nil)
		}
		h.taken.Begin(s.mux, methods.RefusePerson("Ann", time.Unix(0, 0)))
		if err := s.mux.Call(t.Context(), "Test.marker", nil, nil); err != nil {
			t.Fatal(err)
		}
		c.send("Input.insertText", "", nil)
		c.send("DOM.getDocument", "", nil)
		marked, last := false, false
		for deadline := time.Now().Add(testchrome.Patience); !last; time.Sleep(time.Millisecond) {
			for _, m := range s.heard() {
				if marked && m.Method != "DOM.getDocument" {
					t.Fatalf("round %d: %s came after the take-over", round, m.Method)
				}
				marked, last = marked || m.Method == "Test.marker", last || m.Method == "DOM.getDocument"
			}
			if time.Now().After(deadline) {
				t.Fatal("the last command never came")
			}
		}
		h.taken.End(s.mux)
	}
	_ = c.net.Close()
	<-done
}
