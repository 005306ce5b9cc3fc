package monitor

import (
	"bytes"
	"context"
	_ "embed" // for the script
	"encoding/json"
	"sync"
	"time"

	cdppage "github.com/chromedp/cdproto/page"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/launcher/look"
)

// What kind of field something is typed into is known while its document lives, and may be
// asked for when that is gone, with what was sent. So a script in the launcher's own world
// tells of each field as it is typed into. To ask Chrome for the focus instead would come too
// late: a client fills several fields in a few milliseconds.

//go:embed typed.js
var typedScript string

const (
	eventBindingCalled = "Runtime.bindingCalled"
	// typedBinding is the function by which the script tells, which only its world has.
	typedBinding = "leaseholdTyped"
	// maxTold bounds what it tells of one field, in bytes.
	maxTold = 16 << 10
	// typedAgain is after how long typing into a field of one kind in one document is
	// reported once more, unless something was sent meanwhile.
	typedAgain = time.Minute
	// bindTime is how long a document may take to get it: one may be busy as long as it loads.
	bindTime = time.Minute
	// maxDocuments is how many documents wait for it.
	maxDocuments = 1024
	// maxClosedRoots is how many closed shadow roots wait to be looked for.
	maxClosedRoots = 64
)

// typing reports what kinds of fields are typed into. Each channel has a goroutine that works
// it off: bindDocuments and findClosedRoots.
type typing struct {
	chrome caller
	pages  *pages
	sink   func(checkpoint.Entry)

	documents   chan frameDocument
	closedRoots chan closedRoot

	mu       sync.Mutex
	reported map[documentField]time.Time // when, since something was sent or the last checkpoint
}

func newTyping(chrome caller, ps *pages, sink func(checkpoint.Entry)) *typing {
	return &typing{
		chrome: chrome, pages: ps, sink: sink,
		documents: make(chan frameDocument, maxDocuments), closedRoots: make(chan closedRoot, maxClosedRoots), reported: map[documentField]time.Time{},
	}
}

// reportAgain has every kind of field that is typed into from now on reported once more.
func (ty *typing) reportAgain() {
	ty.mu.Lock()
	defer ty.mu.Unlock()
	clear(ty.reported)
}

// frameDocument is the document that a frame has now.
type frameDocument struct{ session, frame string }

// watch has the script in a frame's document tell what is typed into.
func (ty *typing) watch(session, frame string) {
	select {
	case ty.documents <- frameDocument{session, frame}:
	default: // a page makes more frames than anybody types into
	}
}

// watchNewDocument does so for a document that a frame went to.
func (ty *typing) watchNewDocument(event cdpproxy.Event) {
	var p cdppage.EventFrameNavigated
	if decode(event, &p) && p.Frame != nil {
		ty.watch(event.Session, string(p.Frame.ID))
	}
}

// bindDocuments gives the scripts of documents the function by which they tell, until the context
// ends.
func (ty *typing) bindDocuments(ctx context.Context) {
	var binding sync.WaitGroup
	defer binding.Wait()
	for {
		select {
		case d := <-ty.documents: // one that hangs holds up no other
			binding.Go(func() { ty.bind(ctx, d) })
		case <-ctx.Done():
			return
		}
	}
}

// bind does so for one document. Only worlds that are there get the function, unless the Runtime
// domain is enabled, which pages can detect. So the world is awaited.
func (ty *typing) bind(ctx context.Context, d frameDocument) {
	ctx, cancel := context.WithTimeout(ctx, bindTime)
	defer cancel()
	params := map[string]any{"frameId": d.frame, "worldName": cdpproxy.HiddenWorld}
	if ty.chrome.Call(ctx, d.session, "Page.createIsolatedWorld", params, nil) == nil {
		ty.chrome.Post(d.session, "Runtime.addBinding", map[string]any{"name": typedBinding, "executionContextName": cdpproxy.HiddenWorld})
	}
}

// formSends is in what the script tells of a form by GET that is no search, and formSendsTexts if
// it has fields for texts.
var formSends, formSendsTexts = []byte(`{\"sends\":`), []byte(`{\"sends\":\"texts`)

// told is what the script told. typed says that somebody had typed into the page by then.
type told struct {
	session string
	params  json.RawMessage
	typed   bool
}

// documentField is a kind of field in a document, by the session and the world of the script.
type documentField struct {
	session string
	world   int64
	field   checkpoint.Field
}

// closedRoot is a closed shadow root that the script in a world asks for.
type closedRoot struct {
	session string
	world   int64
}

// scriptTold takes in what the script tells. The pipe's reader calls it: the page may have
// another document when it is processed.
func (m *Monitor) scriptTold(event cdpproxy.Event) {
	if len(event.Params) > maxTold {
		return
	}
	if bytes.Contains(event.Params, formSends) { // before what it asks for is answered
		m.gets.formSent(event.Session, bytes.Contains(event.Params, formSendsTexts), time.Now())
		return
	}
	_, typed := m.navigations.actedOn(event.Session)
	m.backlog.queue(heard{told: &told{event.Session, event.Params, typed}}) // where there is no room, a page floods it
}

// fieldTyped reports a field that somebody typed into. A page can make it look so by a script,
// which does not count where nobody typed into the page at all.
func (ty *typing) fieldTyped(t told, now time.Time) {
	var call struct {
		Name    string `json:"name"`
		Payload string `json:"payload"`
		World   int64  `json:"executionContextId"`
	}
	var said struct {
		look.Field
		URL    string `json:"url"`
		Closed bool   `json:"closed"`
	}
	if json.Unmarshal(t.params, &call) != nil || call.Name != typedBinding || json.Unmarshal([]byte(call.Payload), &said) != nil {
		return
	}
	if said.Closed {
		select {
		case ty.closedRoots <- closedRoot{t.session, call.World}:
		default:
		}
		return
	}
	if !t.typed {
		return
	}
	key := documentField{t.session, call.World, said.Kind()}
	ty.mu.Lock()
	at, known := ty.reported[key]
	again := !known || now.Sub(at) >= typedAgain
	if again {
		remember(ty.reported, key, now)
	}
	ty.mu.Unlock()
	if again {
		ty.sink(checkpoint.Entry{Kind: checkpoint.KindTyped, Name: string(key.field), URL: said.URL, Target: ty.pages.targetOn(t.session)})
	}
}

// findClosedRoots gives closed shadow roots to the scripts that ask for them, until the context
// ends.
func (ty *typing) findClosedRoots(ctx context.Context) {
	for {
		select {
		case r := <-ty.closedRoots:
			ty.findClosedRoot(ctx, r)
		case <-ctx.Done():
			return
		}
	}
}

// findClosedRoot gives one to the script. Where that fails the document is gone, or hangs, and
// nothing is known of what is typed there.
func (ty *typing) findClosedRoot(ctx context.Context, r closedRoot) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	defer func() { // awaited, since the next one uses the same group
		_ = ty.chrome.Call(ctx, r.session, "Runtime.releaseObjectGroup", map[string]any{"objectGroup": typedBinding}, nil)
	}()
	type object struct {
		ID string `json:"objectId"`
	}
	var host struct{ Result object }
	params := map[string]any{"contextId": r.world, "expression": "closedHost()" + hiddenURL, "objectGroup": typedBinding, "silent": true}
	if ty.chrome.Call(ctx, r.session, "Runtime.evaluate", params, &host) != nil || host.Result.ID == "" {
		return
	}
	var described struct {
		Node struct {
			ShadowRoots []struct {
				BackendNodeID int64  `json:"backendNodeId"`
				Type          string `json:"shadowRootType"`
			} `json:"shadowRoots"`
		} `json:"node"`
	}
	if ty.chrome.Call(ctx, r.session, "DOM.describeNode", map[string]any{"objectId": host.Result.ID}, &described) != nil {
		return
	}
	for _, root := range described.Node.ShadowRoots {
		if root.Type != "closed" {
			continue
		}
		var found struct{ Object object }
		params = map[string]any{"backendNodeId": root.BackendNodeID, "executionContextId": r.world, "objectGroup": typedBinding}
		if ty.chrome.Call(ctx, r.session, "DOM.resolveNode", params, &found) != nil {
			return
		}
		params = map[string]any{"objectId": found.Object.ID, "functionDeclaration": "function() { watchClosed(this) }", "silent": true}
		_ = ty.chrome.Call(ctx, r.session, "Runtime.callFunctionOn", params, nil)
	}
}
