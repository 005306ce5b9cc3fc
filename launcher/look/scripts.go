package look

import (
	"context"
	"encoding/json"
	"errors"
)

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
