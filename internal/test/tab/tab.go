// Package tab drives a tab of a real browser as a person does: by keyboard and mouse.
//
// It finds elements by script, and again whenever a document has been replaced. The numbers
// that DOM.querySelector gives to nodes end with their document, and the pages under test bring
// new documents by themselves.
package tab

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Tab is a tab that shows a page.
type Tab struct {
	T   *testing.T
	Ctx context.Context // without a bound: each step has its own
}

// Patience bounds each step and each wait, which end sooner unless something is broken.
const Patience = time.Minute

// Do takes steps of chromedp that name no element, as Navigate and KeyEvent.
func (v Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	v.T.Helper()
	ctx, cancel := context.WithTimeout(v.Ctx, Patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		v.T.Fatal(err)
	}
}

// Keys presses keys, one after the other, in the element that has the focus.
func (v Tab) Keys(keys ...string) {
	v.T.Helper()
	for _, k := range keys {
		v.Do(chromedp.KeyEvent(k))
	}
}

// Until waits until a JavaScript expression is true on a page whose document is whole: what
// stands further below is looked for next.
func (v Tab) Until(fact string) {
	v.T.Helper()
	until[bool](v, `document.readyState !== "loading" && !!(`+fact+")")
}

// until waits until a JavaScript expression is truthy, and returns its value.
func until[V any](v Tab, expression string) V {
	v.T.Helper()
	// While a document comes in, elements may be missing, and the expression may throw.
	wait := `new Promise(done => { const look = () => { let v; try { v = ` + expression + `; } catch { } v ? done(v) : setTimeout(look, 20); }; look(); })`
	return evaluate[V](v, wait)
}

// evaluate evaluates an expression on the page, and again if another document came meanwhile.
func evaluate[V any](v Tab, expression string) V {
	v.T.Helper()
	ctx, cancel := context.WithTimeout(v.Ctx, Patience)
	defer cancel()
	for {
		value, err := chromedp.Run(ctx, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
		if err == nil {
			return value
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "navigated") && !strings.Contains(err.Error(), "context") {
			v.T.Fatalf("%v\nevaluating %s, at:\n%s", err, expression, v.shows())
		}
	}
}

// shows is what the page shows, for a message.
func (v Tab) shows() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.Ctx), 5*time.Second)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText.slice(0, 3000)`))
	if err != nil {
		return err.Error()
	}
	return s
}

// Focus gives an element the focus, once it is there and can have it.
func (v Tab) Focus(css string) {
	v.T.Helper()
	v.Until(fmt.Sprintf(`(e => { e?.focus(); return e !== null && document.activeElement === e; })(document.querySelector(%q))`, css))
}

// Click presses the left button of the mouse in the middle of an element, once it is shown,
// enabled, and where it was a frame ago.
func (v Tab) Click(css string) {
	v.T.Helper()
	at := until[[2]float64](v, fmt.Sprintf(`(e => {
		if (!e || e.disabled) return;
		e.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
		const b = e.getBoundingClientRect(), at = [b.x + b.width / 2, b.y + b.height / 2], was = e.wasAt;
		e.wasAt = at;
		if (b.width > 0 && b.height > 0 && was?.[0] === at[0] && was[1] === at[1]) return at;
	})(document.querySelector(%q))`, css))
	v.Do(chromedp.MouseClickXY(at[0], at[1]))
}

// Fill replaces what a field has by text, as it is typed.
func (v Tab) Fill(css, text string) {
	v.T.Helper()
	v.Focus(css)
	v.Until(fmt.Sprintf(`(document.querySelector(%q).select(), true)`, css))
	v.Keys(text)
}

// Text is the value of a JavaScript expression.
func (v Tab) Text(expression string) string {
	v.T.Helper()
	return evaluate[string](v, expression)
}

// Number is the value of a JavaScript expression.
func (v Tab) Number(expression string) int {
	v.T.Helper()
	return evaluate[int](v, expression)
}
