package monitor

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/internal/test/testchrome"
)

// after are the places that were asked for by GET after an action, as reported.
func (w *getsWatch) after() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var places []string
	for _, e := range w.entries {
		if e.Kind == checkpoint.KindGetAfter {
			places = append(places, e.URL[strings.Index(e.URL[8:], "/")+8:])
		}
	}
	return places
}

// TestGetsAfterAnAction: a GET of a page counts once the worker has acted on the page, however it
// is answered; one that a page makes by itself, or that the worker's own command opens, does not.
func TestGetsAfterAnAction(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(getsSite())
	t.Cleanup(site.Close)
	w := watchGets(t)
	var acted atomic.Bool
	w.gets.mu.Lock()
	w.gets.actedOn = func(string) (bool, bool) { return acted.Load(), false }
	w.gets.mu.Unlock()

	var want []string
	is := func(what string, more ...string) {
		t.Helper()
		want = append(want, more...)
		for end := time.Now().Add(testchrome.Patience); !slices.Equal(w.after(), want); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: reported %q, want %q", what, w.after(), want)
			}
		}
	}
	page := w.openPage(site.URL + "/list")
	w.eval(page, `polls > 2`)
	is("nobody has acted, and the page polls")

	acted.Store(true)
	w.eval(page, fmt.Sprintf(`polls > %s + 1`, w.eval(page, `polls`)))
	is("it polls after an action", "/up")
	w.press(page, "#week")
	w.eval(page, `at('weeks').textContent === 'KW 48'`)
	is("the document asks for more")
	w.Checkpointed()
	is("a checkpoint was named since", "/up")

	w.press(page, "#read")
	w.eval(page, `location.pathname === '/tickets/7'`)
	is("a link was pressed", "/tickets/7")
	w.call(page, "Page.navigate", map[string]string{"url": site.URL + "/tickets/8"}, nil)
	w.eval(page, `location.pathname === '/tickets/8'`)
	is("a command opened a page")
	w.call(page, "Runtime.evaluate", map[string]any{"expression": `void window.open('/tickets/9')`, "userGesture": true}, nil)
	is("the page opened another one", "/tickets/9")
}
