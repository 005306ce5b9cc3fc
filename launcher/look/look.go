// Package look finds out what the open pages of a browser ask for, and what was left unfinished
// in them. This is done once, at the loss of a worker, before anything is closed. It reads one
// snapshot of each page and of each frame in another process, including closed shadow roots,
// and judges it by its structure: the types and autocomplete of fields, roles, and which
// element covers which. It reads no words, so pages may be in any language, and it keeps
// nothing that was typed.
//
// A look changes nothing in a page, and needs no network.
package look

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence/capture"
	"leasehold/launcher/recovery/decision"
)

// Page is an open page, and what is known of it without asking it.
type Page struct {
	TargetID string
	// Frames are the frames in it that have processes of their own, at any depth.
	Frames []Frame
	// Typed says that a worker typed into the page's document or one of its frames; Acted, that
	// it did anything there.
	Typed, Acted bool
	// First says that the page's document was the first one that the session saw.
	First bool
	// Silent says that the page has sent no request since a worker last typed.
	Silent bool
	// Offline says that a worker keeps the page offline.
	Offline bool
	// Authentication is the URL whose answer asks for HTTP authentication, if that is the
	// page's last document; empty if none does.
	Authentication string
	// Leaving tells whether the page is by now navigating to another document. It may be nil.
	Leaving func() bool
}

// Frame is a frame in another process.
type Frame struct {
	TargetID  string // also the frame's id
	SessionID string // the observer's session on the frame
	Parent    string // the target that contains it
}

// Looker looks at the pages of one browser. Look may be called for several pages at the same
// time.
type Looker struct {
	caller capture.Caller
	pages  map[string]Page

	mu   sync.Mutex
	seen []Seen
}

// New returns a looker for pages.
func New(caller capture.Caller, pages []Page) *Looker {
	e := &Looker{caller: caller, pages: map[string]Page{}}
	for _, p := range pages {
		e.pages[p.TargetID] = p
	}
	return e
}

// Seen is what was seen of one page.
type Seen struct {
	// Number is the page's number in the bundle, from one on.
	Number int `json:"page"`
	// Blind says what could not be looked at, and why; empty: everything was looked at.
	// Harmless says that there was nothing to see.
	Blind    string `json:"not_seen,omitempty"`
	Harmless bool   `json:"nothing_to_see,omitempty"`
	Frames   int    `json:"frames"` // number of frames in other processes that were looked at
	Shows    []Show `json:"shows"`
}

// Show is one thing that a page shows.
type Show struct {
	Question string `json:"fact"`
	How      string `json:"how"`
	at       box
	view     box
	image    []byte // of the page
}

// Bounds of one look.
const (
	lookTimeout = 4 * time.Second
	// askTimeout bounds each answer except that of the snapshot.
	askTimeout = 2 * time.Second
	maxFrames  = 24
	// maxEdited is how many fields are asked whether somebody typed into them.
	maxEdited = 24
)

// Look begins to look at one page. number is its number in the bundle. The returned function is
// called once, and ends the look: image is a screenshot of what the page shows, or missing says
// why there is none. A page that answers is looked at even without an image, because its
// structure says what it asks for.
func (e *Looker) Look(ctx context.Context, number int, p capture.Page) (end func(p capture.Page, image []byte, missing string)) {
	early := e.examine(ctx, number, p)
	return func(p capture.Page, image []byte, missing string) {
		v := &view{looker: e, target: p, known: e.pages[p.TargetID], seen: Seen{Number: number, Shows: []Show{}}}
		if !v.obstructed(missing) {
			if early.failed() { // the page is drawn by now
				early.drop()
				early = e.examine(ctx, number, p)
			}
			<-early.ended
			v.seen = early.seen
			v.judge(early.large, early.err, image != nil)
		}
		early.drop()
		for i := range v.seen.Shows {
			v.seen.Shows[i].image = image
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen = append(e.seen, v.seen)
	}
}

// examination is the examination of a page, which runs beside its caller.
type examination struct {
	stop  context.CancelFunc
	ended chan struct{}
	// The following may be read when it has ended.
	seen  Seen
	large string
	err   error
}

// examine begins to ask a page what it shows, unless something is known to prevent that.
func (e *Looker) examine(ctx context.Context, number int, p capture.Page) *examination {
	ctx, stop := context.WithTimeout(ctx, lookTimeout)
	x := &examination{stop: stop, ended: make(chan struct{})}
	v := &view{looker: e, target: p, known: e.pages[p.TargetID], seen: Seen{Number: number, Shows: []Show{}}}
	if v.obstructed("") {
		x.err = errors.New("it was not asked")
		close(x.ended)
		return x
	}
	go func() {
		defer close(x.ended)
		x.large, x.err = v.examine(ctx)
		x.seen = v.seen
	}()
	return x
}

// failed tells whether it has ended without a result.
func (x *examination) failed() bool {
	select {
	case <-x.ended:
		return x.err != nil
	default:
		return false
	}
}

// drop ends it.
func (x *examination) drop() {
	x.stop()
	<-x.ended
}

// view is one page that is looked at.
type view struct {
	looker *Looker
	target capture.Page
	known  Page
	seen   Seen
}

func (v *view) show(question, format string, args ...any) {
	v.seen.Shows = append(v.seen.Shows, Show{Question: question, How: fmt.Sprintf(format, args...)})
}

// isAlert tells whether an open dialog only informs. Its text begins with its type.
func isAlert(dialog string) bool { return strings.HasPrefix(dialog, "alert:") }

// obstructed tells whether something is known that keeps the page from being asked, and writes
// that into v.seen. missing is why there is no picture of the page.
func (v *view) obstructed(missing string) bool {
	where := place(v.target.URL)
	if v.known.Authentication != "" {
		v.show(decision.HTTPAuthAsked, "%s asks for HTTP authentication", place(v.known.Authentication))
	}
	if v.known.Offline {
		v.show(decision.OfflineOn, "a worker keeps the page offline: %s", where)
	}
	switch {
	case v.target.Dialog != "":
		kind, _, _ := strings.Cut(v.target.Dialog, ":")
		if !isAlert(v.target.Dialog) {
			v.show(decision.DialogWaits, "a dialog (%s) is open on %s", kind, where)
		}
		v.seen.Blind, v.seen.Harmless = fmt.Sprintf("a dialog (%s) blocks the page %s", kind, where), true
		return true
	case v.target.Crashed:
		v.seen.Blind, v.seen.Harmless = "the renderer crashed of "+where, true
		return true
	case v.target.URL == "":
		v.seen.Blind = "a tab still waited for its first document, so that nobody can tell what that asks for"
		return true
	case v.target.Unseen:
		v.seen.Blind, v.seen.Harmless = fmt.Sprintf("the page %s was being loaded, and nobody has seen it", where), true
		return true
	case missing != "" && !v.target.Undrawn || v.target.SessionID == "":
		v.seen.Blind = fmt.Sprintf("the page %s did not answer: %s", where, missing)
		return true
	}
	return false
}

// judge writes into v.seen what could not be seen of a page that was asked. drawn says that
// there is a picture of it.
func (v *view) judge(large string, err error, drawn bool) {
	where := place(v.target.URL)
	switch {
	case large != "":
		v.seen.Blind, v.seen.Harmless = fmt.Sprintf("the page %s is too large to be looked at: %s", where, large), true
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded) && drawn && v.leaving():
		// A page that is drawn but does not answer waits for the answer to a navigation:
		// meanwhile Chrome holds back commands for it.
		v.seen.Blind, v.seen.Harmless = fmt.Sprintf("the page is on its way from %s to a document that has not come", where), true
	default:
		v.seen.Blind = fmt.Sprintf("the page %s could not be looked at: %v", where, err)
	}
}

func (v *view) leaving() bool {
	return v.target.Leaving || v.known.Leaving != nil && v.known.Leaving()
}

func (v *view) call(ctx context.Context, session, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return v.looker.caller.Call(ctx, session, method, params, result)
}

// examine asks the page and its frames, and finds what they show. large is not empty if the
// page is too large for that.
func (v *view) examine(ctx context.Context) (large string, err error) {
	worlds, large, err := capture.Worlds(ctx, v.looker.caller, v.target.SessionID)
	if err != nil || large != "" {
		return large, err
	}
	root, err := v.graft(ctx, v.target.TargetID, v.target.SessionID, 0)
	if err != nil {
		return "", err
	}
	shown, scale, err := v.viewport(ctx)
	if err != nil {
		return "", err
	}
	state, err := v.state(ctx, v.target.SessionID, worlds[0])
	if err != nil {
		return "", err
	}
	s := newScene(root, shown, scale)
	for _, f := range s.asks(state.Used) {
		v.seen.Shows = append(v.seen.Shows, Show{Question: f.question, How: f.how, at: f.at, view: shown})
		if f.question == decision.PasswordAsked && (f.covers || state.Used || !v.known.First) {
			v.seen.Shows = append(v.seen.Shows, Show{Question: decision.SignedOut, How: f.how + ", and came after other things", at: f.at, view: shown})
		}
	}
	if err := v.unsent(ctx, s, state.Focus); err != nil {
		return "", fmt.Errorf("its fields did not say what was typed: %w", err)
	}
	n, err := v.waiting(ctx, worlds[0])
	if err != nil {
		return "", fmt.Errorf("it did not say what its service workers have to do: %w", err)
	}
	if n > 0 {
		v.show(decision.WritesWaiting, "%d tasks for later (background sync or fetch) are registered on %s", n, place(v.target.URL))
	}
	return "", nil
}

// graft takes the snapshots of a page or frame, and of the frames in it that have processes of
// their own. A frame that does not answer is named in v.seen.
func (v *view) graft(ctx context.Context, target, session string, depth int) (graft, error) {
	g := graft{session: session, inside: map[int64]graft{}}
	params := map[string]any{"computedStyles": styles, "includePaintOrder": true}
	if err := v.looker.caller.Call(ctx, session, "DOMSnapshot.captureSnapshot", params, &g.snapshot); err != nil {
		return g, err
	}
	if len(g.snapshot.Documents) == 0 {
		return g, errors.New("the snapshot is empty")
	}
	for _, f := range v.known.Frames {
		if f.Parent != target {
			continue
		}
		if depth >= maxDepth || v.seen.Frames >= maxFrames {
			if v.seen.Blind == "" {
				v.seen.Blind, v.seen.Harmless = "more frames of other processes than are looked at are on "+place(v.target.URL), true
			}
			continue
		}
		v.seen.Frames++
		var owner struct {
			BackendNodeID int64 `json:"backendNodeId"`
		}
		err := v.call(ctx, session, "DOM.getFrameOwner", map[string]any{"frameId": f.TargetID}, &owner)
		if silent(err) {
			return g, err
		}
		if err != nil {
			continue // the frame is gone
		}
		size := g.drawn(owner.BackendNodeID)
		if size == 0 {
			continue // the frame is not visible
		}
		_, large, err := capture.Worlds(ctx, v.looker.caller, f.SessionID)
		var inner graft
		if err == nil && large == "" {
			inner, err = v.graft(ctx, f.TargetID, f.SessionID, depth+1)
		}
		if err != nil || large != "" {
			// A frame that is loading does not answer. That does not matter unless the frame is
			// what the page shows.
			v.seen.Harmless = size < largeFrame && (v.seen.Harmless || v.seen.Blind == "")
			v.seen.Blind = "a frame of another process did not answer on " + place(v.target.URL)
			continue
		}
		g.inside[owner.BackendNodeID] = inner
	}
	return g, nil
}

// silent tells whether an error says that nobody answered. Otherwise Chrome itself answered
// with a refusal: what was asked for is no longer there.
func silent(err error) bool {
	var refused *cdpproxy.Error
	return err != nil && !errors.As(err, &refused)
}

// largeFrame is the area, in device pixels, from which on a frame may be the purpose of its
// page.
const largeFrame = 300 * 200

// drawn is the area that an element covers in what a snapshot draws, in device pixels; zero if
// it is not drawn.
func (g graft) drawn(backend int64) float64 {
	for i := range g.snapshot.Documents {
		d := &g.snapshot.Documents[i]
		if node := slices.Index(d.Nodes.BackendNodeID, backend); node >= 0 {
			if b := at(d.Layout.Bounds, slices.Index(d.Layout.NodeIndex, node)); len(b) == 4 {
				return b[2] * b[3]
			}
		}
	}
	return 0
}

// viewport is the visible part of the page, in device pixels, and the number of device pixels
// per CSS pixel.
func (v *view) viewport(ctx context.Context) (box, float64, error) {
	type layout struct {
		Width  float64 `json:"clientWidth"`
		Height float64 `json:"clientHeight"`
	}
	var m struct {
		Device layout `json:"layoutViewport"`
		CSS    layout `json:"cssLayoutViewport"`
	}
	if err := v.call(ctx, v.target.SessionID, "Page.getLayoutMetrics", nil, &m); err != nil {
		return box{}, 0, err
	}
	if m.Device.Width < 1 || m.CSS.Width < 1 {
		return box{}, 0, errors.New("it has no size")
	}
	return box{0, 0, m.Device.Width, m.Device.Height}, m.Device.Width / m.CSS.Width, nil
}

// state is what a document says about itself.
type state struct {
	Used  bool  `json:"used"` // somebody clicked or typed in it
	Focus focus `json:"focus"`
}

const stateScript = `(() => {
  let e = document.activeElement;
  while (e && e.shadowRoot && e.shadowRoot.activeElement) e = e.shadowRoot.activeElement;
  const focus = e ? {tag: e.localName, type: e.type || "", role: e.getAttribute("role") || ""} : {};
  return {used: navigator.userActivation.hasBeenActive, focus};
})()`

func (v *view) state(ctx context.Context, session string, world int) (state, error) {
	var s state
	return s, v.evaluate(ctx, session, world, stateScript, &s)
}

// waitingScript counts what the service workers of a document's origin are to do later. An
// origin that cannot have service workers refuses the question.
const waitingScript = `(async () => {
  let n = 0;
  if (!isSecureContext || !navigator.serviceWorker) return n;
  let all;
  try {
    all = await navigator.serviceWorker.getRegistrations();
  } catch (e) {
    if (e.name === "SecurityError" || e.name === "NotSupportedError") return n;
    throw e;
  }
  for (const r of all) {
    if (r.sync) n += (await r.sync.getTags()).length;
    if (r.backgroundFetch) n += (await r.backgroundFetch.getIds()).length;
  }
  return n;
})()`

func (v *view) waiting(ctx context.Context, world int) (n int, err error) {
	return n, v.evaluate(ctx, v.target.SessionID, world, waitingScript, &n)
}

// evaluate runs a script in an isolated world of a page, which the page cannot see.
func (v *view) evaluate(ctx context.Context, session string, world int, script string, result any) error {
	var r answer
	err := v.call(ctx, session, "Runtime.evaluate", map[string]any{
		"expression": script, "contextId": world, "returnByValue": true, "silent": true, "awaitPromise": true, "timeout": askTimeout.Milliseconds(),
	}, &r)
	if err != nil {
		return err
	}
	return r.into(result)
}

// answer is Chrome's answer about a script that ran.
type answer struct {
	Result struct {
		Value json.RawMessage `json:"value"`
	} `json:"result"`
	Exception *struct {
		Text string `json:"text"`
	} `json:"exceptionDetails"`
}

func (a answer) into(result any) error {
	if a.Exception != nil {
		return errors.New(a.Exception.Text)
	}
	return json.Unmarshal(a.Result.Value, result)
}

// unsent finds what was typed and is still there. The page's own source tells what nobody
// typed; if a page writes what is typed into its source, the field itself is asked. Fields of
// secret kinds are asked first.
func (v *view) unsent(ctx context.Context, s *scene, focused focus) error {
	if !v.known.Typed && !v.known.Acted {
		return nil
	}
	asked := 0
	var kinds []checkpoint.Field
	secret, plain := -1, -1
	fields := s.typed()
	slices.SortStableFunc(fields, func(a, b typedField) int { return rank(a) - rank(b) })
	for _, f := range fields {
		if !f.sure {
			if asked++; !v.known.Typed || asked > maxEdited {
				continue
			}
			switch edited, err := v.edited(ctx, &s.elements[f.index]); {
			case err != nil:
				return err
			case !edited:
				continue
			}
		}
		if f.kind.Secret() {
			secret = f.index
		} else {
			plain = f.index
		}
		if !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
	}
	list := func(secret bool) string {
		var names []string
		for _, k := range kinds {
			if k.Secret() == secret {
				names = append(names, k.Words())
			}
		}
		return strings.Join(names, ", ")
	}
	if secret >= 0 {
		v.show(decision.SecretUnsent, "%s stands in a field of %s", list(true), place(s.elements[secret].url))
	}
	if plain < 0 {
		return nil
	}
	v.show(decision.InputUnsent, "%s stands in a field of %s", list(false), place(s.elements[plain].url))
	if v.known.Typed && v.known.Silent && pressed(focused) {
		v.show(decision.PressedUnsent, "a button was pressed after %s was typed, and the page has sent nothing since, on %s", list(false), place(s.elements[plain].url))
	}
	return nil
}

// rank orders fields: those of secret kinds come first.
func rank(f typedField) int {
	if f.kind.Secret() {
		return 0
	}
	return 1
}

// editedScript tells whether somebody typed into a field, or is about to.
const editedScript = `function() { return this.matches(":user-valid, :user-invalid") || this.getRootNode().activeElement === this }`

// edited asks a field whether somebody typed into it. If the field is gone, its page was left.
func (v *view) edited(ctx context.Context, e *element) (is bool, err error) {
	var object struct {
		Object struct {
			ID string `json:"objectId"`
		} `json:"object"`
	}
	err = v.call(ctx, e.session, "DOM.resolveNode", map[string]any{"backendNodeId": e.backend, "objectGroup": "look"}, &object)
	if err == nil {
		var r answer
		if err = v.call(ctx, e.session, "Runtime.callFunctionOn", map[string]any{
			"functionDeclaration": editedScript, "objectId": object.Object.ID, "returnByValue": true, "silent": true,
		}, &r); err == nil {
			return is, r.into(&is)
		}
	}
	if silent(err) {
		return false, err
	}
	return false, nil
}
