package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"leasehold/cdpproxy"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// A person copies the page's selection to the clipboard of their own browser. It is read in the
// launcher's own world, which neither the page's scripts nor the worker's client can see. The
// journal only says that it was done, and how much was copied.

// maxCopied is the most text that is copied, in characters.
const maxCopied = 100_000

type copiedMessage struct {
	Type   string `json:"type"` // "copied"
	Target string `json:"target"`
	Text   string `json:"text"`
}

// selected is JavaScript that returns the selection in a document: an object with text, or the
// element of the frame that has the focus. As in browsers, a password is not copied.
const selected = `(() => {
	let at = document.activeElement;
	while (at && at.shadowRoot && at.shadowRoot.activeElement) at = at.shadowRoot.activeElement;
	if (at && (at.tagName === "IFRAME" || at.tagName === "FRAME")) return at;
	if (at && (at.tagName === "INPUT" || at.tagName === "TEXTAREA")) {
		const from = at.type === "password" ? null : at.selectionStart;
		return { text: typeof from === "number" ? at.value.slice(from, at.selectionEnd) : "" };
	}
	return { text: String(getSelection()) };
})()
//# sourceURL=` + cdpproxy.HiddenWorld

// copySelected sends the viewer what is selected on the page, once what was touched or clicked before has
// chosen it.
func (h *hand) copySelected() error {
	if err := h.settled(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(h.v.watch.ctx, actPatience)
	defer cancel()
	text, err := h.selection(ctx)
	switch n := utf8.RuneCountInString(text); {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the page does not answer: what is selected cannot be read")
	case err != nil:
		return err
	case text == "":
		return errors.New("nothing is selected on the page, or only a password")
	case n > maxCopied:
		return fmt.Errorf("%d characters are selected: at most %d are copied", n, maxCopied)
	default:
		message, err := json.Marshal(copiedMessage{"copied", h.page.TargetID, text})
		if err != nil {
			return err
		}
		act := session.Act{Kind: session.ActCopy, URL: h.page.URL, Target: h.page.TargetID, Characters: n}
		return h.v.watch.session.ByPerson(h.v.who, act, func(*lease.Fence) error {
			h.v.reply(message)
			return nil
		})
	}
}

// cut copies the selection, and removes it from the field that it is in. Text that a page only
// shows stays, since the key does nothing there.
func (h *hand) cut() error {
	if err := h.copySelected(); err != nil {
		return err
	}
	key := map[string]any{"type": "rawKeyDown", "key": "Delete", "code": "Delete", "windowsVirtualKeyCode": 46}
	if err := h.types(session.ActKey, false, "Input.dispatchKeyEvent", key); err != nil {
		return err
	}
	key["type"] = "keyUp"
	return h.types(session.ActKey, true, "Input.dispatchKeyEvent", key)
}

// selection reads what is selected in the frame that has the focus.
func (h *hand) selection(ctx context.Context) (string, error) {
	in, frame := h.page.SessionID, h.page.TargetID // the id of a page's main frame is the id of its target
	for range maxDepth {
		element, text, err := h.selectedIn(ctx, in, frame)
		if err != nil || element == "" {
			return text, err
		}
		node, err := h.describe(ctx, in, map[string]any{"objectId": element})
		if err != nil || node.Frame == "" {
			return "", err
		}
		frame = node.Frame
		if of := h.frameSession(frame); of != "" { // the frame has a process of its own
			in = of
		}
	}
	return "", nil
}

// selectedIn is the selected text of one frame, or the object of the frame inside it that has
// the focus.
func (h *hand) selectedIn(ctx context.Context, in, frame string) (element, text string, err error) {
	var own struct {
		ID int `json:"executionContextId"`
	}
	if err := h.mon.Observer().Call(ctx, in, "Page.createIsolatedWorld", map[string]any{"frameId": frame, "worldName": cdpproxy.HiddenWorld}, &own); err != nil {
		return "", "", err
	}
	var found struct {
		Result struct {
			Subtype string `json:"subtype"`
			Object  string `json:"objectId"`
		} `json:"result"`
	}
	if err := h.mon.Observer().Call(ctx, in, "Runtime.evaluate", map[string]any{"expression": selected, "contextId": own.ID, "silent": true, "timeout": inputPatience.Milliseconds()}, &found); err != nil {
		return "", "", err
	}
	if found.Result.Subtype == "node" {
		return found.Result.Object, "", nil
	}
	var said struct {
		Result struct {
			Value string `json:"value"`
		} `json:"result"`
	}
	err = h.mon.Observer().Call(ctx, in, "Runtime.callFunctionOn", map[string]any{
		"objectId": found.Result.Object, "functionDeclaration": "function() { return this.text }\n//# sourceURL=" + cdpproxy.HiddenWorld + "\n", "returnByValue": true,
	}, &said)
	return "", said.Result.Value, err
}
