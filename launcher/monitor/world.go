package monitor

import (
	"context"
	"encoding/json"
	"time"

	"leasehold/cdpproxy"
)

// The launcher's scripts run in a world of their own in each document, which the page cannot see.

// hiddenURL gives the launcher's scripts a URL that keeps clients from being told about them.
const hiddenURL = "\n//# sourceURL=" + cdpproxy.HiddenWorld

const (
	// lookTime is how long asking one document may take.
	lookTime = 2 * time.Second
	// scriptTime is how long a script may run for that.
	scriptTime = 500 * time.Millisecond
)

// inPage evaluates an expression in the script's world of a document.
func inPage(ctx context.Context, chrome caller, session, frame, expression string, result any) error {
	var world struct {
		ID int `json:"executionContextId"`
	}
	// The world exists already: this command only tells its id.
	params := map[string]any{"frameId": frame, "worldName": cdpproxy.HiddenWorld}
	if err := chrome.Call(ctx, session, "Page.createIsolatedWorld", params, &world); err != nil {
		return err
	}
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
	}
	params = map[string]any{
		"contextId": world.ID, "expression": expression + hiddenURL, "returnByValue": true, "awaitPromise": true, "silent": true, "timeout": scriptTime.Milliseconds(),
	}
	if err := chrome.Call(ctx, session, "Runtime.evaluate", params, &r); err != nil {
		return err
	}
	return json.Unmarshal(r.Result.Value, result)
}
