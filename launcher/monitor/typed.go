package monitor

import (
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

// The kind of a field that is typed into is known only while its document lives, but may be
// needed when the document is gone, together with what was sent. So a script in the launcher's
// own world reports each field as soon as it is typed into. Asking Chrome for the focus instead
// would be too late: a client fills several fields in a few milliseconds.

//go:embed typed.js
var typedScript string

const (
	eventBindingCalled = "Runtime.bindingCalled"
	// typedBinding is the function by which the script reports. Only the script's world has it.
	typedBinding = "leaseholdTyped"
	// maxTold bounds what the script may report about one field, in bytes.
	maxTold = 16 << 10
	// typedAgain is the time after which typing into the same kind of field in one document is
	// reported again, if nothing was sent meanwhile.
	typedAgain = time.Minute
	// bindTime is how long it may take to give a document the function: a document may be busy
	// while it loads.
	bindTime = time.Minute
	// maxDocuments is how many documents may wait for the function.
	maxDocuments = 1024
	// maxClosedRoots is how many closed shadow roots may wait to be searched for.
	maxClosedRoots = 64
)

// typing reports what kinds of fields are typed into. bindDocuments and findClosedRoots run in
// goroutines of their own, and each reads one of the channels.
type typing struct {
	chrome caller
	pages  *pages
	sink   func(checkpoint.Entry)

	documents   chan frameDocument
	closedRoots chan closedRoot

	mu       sync.Mutex
	reported map[documentField]time.Time // when it was reported, since the last request or checkpoint
}

func newTyping(chrome caller, ps *pages, sink func(checkpoint.Entry)) *typing {
	return &typing{
		chrome: chrome, pages: ps, sink: sink,
		documents: make(chan frameDocument, maxDocuments), closedRoots: make(chan closedRoot, maxClosedRoots), reported: map[documentField]time.Time{},
	}
}

// reportAgain forgets what was reported: a field that is typed into after it is reported again.
func (ty *typing) reportAgain() {
	ty.mu.Lock()
	defer ty.mu.Unlock()
	clear(ty.reported)
}

type frameDocument struct{ session, frame string }

// runIn has the script run in every new document of a target.
func (ty *typing) runIn(session string) {
	ty.chrome.Post(session, "Page.addScriptToEvaluateOnNewDocument", map[string]any{
		"source": typedScript + hiddenURL, "worldName": cdpproxy.HiddenWorld, "runImmediately": true,
	})
}

// watch makes the script in a frame's document report the fields that are typed into.
func (ty *typing) watch(session, frame string) {
	select {
	case ty.documents <- frameDocument{session, frame}:
	default: // a page has more frames than anybody types into
	}
}

// watchNewDocument does the same for the new document of a frame that has navigated.
func (ty *typing) watchNewDocument(event cdpproxy.Event) {
	var p cdppage.EventFrameNavigated
	if decode(event, &p) && p.Frame != nil {
		ty.watch(event.Session, string(p.Frame.ID))
	}
}

// bindDocuments gives the scripts of documents the function by which they report, until the
// context ends.
func (ty *typing) bindDocuments(ctx context.Context) {
	var binding sync.WaitGroup
	defer binding.Wait()
	for {
		select {
		case d := <-ty.documents: // one document that hangs must not hold up the others
			binding.Go(func() { ty.bind(ctx, d) })
		case <-ctx.Done():
			return
		}
	}
}

// bind gives one document the function. Only existing worlds get it, unless the Runtime domain
// is enabled, which pages can detect. So bind waits until the world exists.
func (ty *typing) bind(ctx context.Context, d frameDocument) {
	ctx, cancel := context.WithTimeout(ctx, bindTime)
	defer cancel()
	params := map[string]any{"frameId": d.frame, "worldName": cdpproxy.HiddenWorld}
	if ty.chrome.Call(ctx, d.session, "Page.createIsolatedWorld", params, nil) == nil {
		ty.chrome.Post(d.session, "Runtime.addBinding", map[string]any{"name": typedBinding, "executionContextName": cdpproxy.HiddenWorld})
	}
}

// told is a report of the script. typed says that by then somebody had typed into the page.
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

// scriptTold takes in a report of the script. The pipe's reader calls it, because the page may
// have another document by the time when the report is processed.
func (m *Monitor) scriptTold(event cdpproxy.Event) {
	if len(event.Params) > maxTold {
		return
	}
	_, typed := m.navigations.actedOn(event.Session)
	m.backlog.queue(heard{told: &told{event.Session, event.Params, typed}}) // there is no room only if a page floods the queue
}

// fieldTyped reports a field that somebody typed into. A page can fake such a report by a
// script, so it does not count if nobody has typed into the page at all.
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

// findClosedRoot gives one closed shadow root to the script. If that fails, the document is
// gone or hangs, and nothing is known about what is typed there.
func (ty *typing) findClosedRoot(ctx context.Context, r closedRoot) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	defer func() { // waits for the answer, since the next call uses the same group
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
