package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"leasehold/evidence/redact"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// Chrome shows the list of a select box, and the chooser of files, in windows of their own,
// which no picture has. So a click on one is not carried out: the viewer is asked what to
// choose, and that is set.

const (
	// maxOptions bounds the options of a select box, and the files, that a viewer is shown.
	maxOptions = 500
	maxOption  = 200 // bytes of one
)

// chosen is the node that a viewer is asked about.
type chosen struct {
	target string
	node   int // Chrome's backend node id
}

// optionsMessage asks which option of a select box the person wants.
type optionsMessage struct {
	Type    string   `json:"type"` // options
	Target  string   `json:"target"`
	Options []option `json:"options"`
}

type option struct {
	Text     string `json:"text"`
	Disabled bool   `json:"disabled"`
	Chosen   bool   `json:"chosen"`
}

// filesMessage asks which files of the exchange directory the person wants.
type filesMessage struct {
	Type     string   `json:"type"` // files
	Target   string   `json:"target"`
	Names    []string `json:"names"`
	Multiple bool     `json:"multiple"`
}

// asksFor tells whether a click at a place on the page is one on a select box or on the field of a
// file; then the viewer is asked, and the click is not to be carried out.
func (h *hand) asksFor(ctx context.Context, x, y float64) bool {
	call := func(method string, params, result any) bool {
		return h.mon.Observer().Call(ctx, h.page.SessionID, method, params, result) == nil
	}
	var metrics struct {
		Viewport struct {
			PageX float64 `json:"pageX"`
			PageY float64 `json:"pageY"`
		} `json:"cssVisualViewport"`
	}
	var at struct {
		Node int `json:"backendNodeId"`
	}
	var is struct {
		Node struct {
			Name       string   `json:"nodeName"`
			Attributes []string `json:"attributes"`
		} `json:"node"`
	}
	if !call("Page.getLayoutMetrics", nil, &metrics) ||
		!call("DOM.getNodeForLocation", map[string]any{"x": int(math.Round(x + metrics.Viewport.PageX)), "y": int(math.Round(y + metrics.Viewport.PageY))}, &at) ||
		!call("DOM.describeNode", map[string]any{"backendNodeId": at.Node}, &is) {
		return false
	}
	attribute := func(name string) (string, bool) {
		for i := 0; i+1 < len(is.Node.Attributes); i += 2 {
			if is.Node.Attributes[i] == name {
				return is.Node.Attributes[i+1], true
			}
		}
		return "", false
	}
	_, multiple := attribute("multiple")
	_, disabled := attribute("disabled")
	kind, _ := attribute("type")
	listed, _ := attribute("size")
	var message any
	switch {
	case disabled:
	case is.Node.Name == "SELECT" && !multiple && (listed == "" || listed == "0" || listed == "1"):
		if options, err := h.options(ctx, at.Node); err == nil {
			message = optionsMessage{"options", h.page.TargetID, options}
		}
	case is.Node.Name == "INPUT" && strings.EqualFold(kind, "file"):
		message = filesMessage{"files", h.page.TargetID, h.v.watch.exchanged(), multiple}
	}
	if message == nil {
		return false
	}
	text, err := json.Marshal(message)
	if err != nil {
		return false
	}
	h.v.reply(text)
	h.v.watch.mu.Lock()
	defer h.v.watch.mu.Unlock()
	h.v.chosen = chosen{h.page.TargetID, at.Node}
	return true
}

// onNode calls a function of JavaScript on a node. Without a fence it may only read.
func (h *hand) onNode(ctx context.Context, fence *lease.Fence, node int, function string, argument, result any) error {
	var r struct {
		Object struct {
			ID string `json:"objectId"`
		} `json:"object"`
	}
	if err := h.mon.Observer().Call(ctx, h.page.SessionID, "DOM.resolveNode", map[string]any{"backendNodeId": node}, &r); err != nil {
		return err
	}
	params := map[string]any{"objectId": r.Object.ID, "functionDeclaration": function, "arguments": []any{map[string]any{"value": argument}}, "returnByValue": true, "userGesture": true}
	var said struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	var err error
	if fence == nil {
		err = h.mon.Observer().Call(ctx, h.page.SessionID, "Runtime.callFunctionOn", params, &said)
	} else {
		err = h.mon.Observer().CallFenced(ctx, fence, h.page.SessionID, "Runtime.callFunctionOn", params, &said)
	}
	switch {
	case err != nil:
		return err
	case said.Exception != nil:
		return errors.New("the page does not let it be chosen: " + redact.Clip(said.Exception.Text, maxOption))
	case result == nil:
		return nil
	}
	return json.Unmarshal(said.Result.Value, result)
}

func (h *hand) options(ctx context.Context, node int) ([]option, error) {
	var options []option
	err := h.onNode(ctx, nil, node, fmt.Sprintf(`function() {
		return [...this.options].slice(0, %d).map(o => ({ text: String(o.label || o.text).slice(0, %d), disabled: o.disabled || o.parentNode.disabled === true, chosen: o.selected }));
	}`, maxOptions, maxOption), nil, &options)
	return options, err
}

// asked is the node that the viewer was asked about.
func (h *hand) asked() (int, error) {
	h.v.watch.mu.Lock()
	defer h.v.watch.mu.Unlock()
	if h.v.chosen.node == 0 || h.v.chosen.target != h.page.TargetID {
		return 0, errors.New("nothing was asked: click on the field first")
	}
	return h.v.chosen.node, nil
}

// choose chooses an option of the select box that was clicked.
func (h *hand) choose() error {
	node, err := h.asked()
	if err != nil {
		return err
	}
	return h.does(session.ActSelect, false, actPatience, func(ctx context.Context, fence *lease.Fence) error {
		return h.onNode(ctx, fence, node, `function(index) {
			const option = this.options[index];
			if (!option || option.disabled || this.selectedIndex === index) return;
			this.focus();
			this.selectedIndex = index;
			for (const event of ["input", "change"]) this.dispatchEvent(new Event(event, { bubbles: true }));
		}`, h.m.Index, nil)
	})
}

// files chooses files of the exchange directory for the field that was clicked.
func (h *hand) files() error {
	node, err := h.asked()
	if err != nil {
		return err
	}
	dir, there := h.v.watch.session.Show().ExchangeDir, h.v.watch.exchanged()
	paths := []string{}
	for _, name := range h.m.Names {
		if !slices.Contains(there, name) {
			return fmt.Errorf("there is no file %q in the exchange directory of the session", redact.Clip(name, maxOption))
		}
		path := filepath.Join(dir, name)
		if err := h.v.watch.session.Readable(path); err != nil {
			return err
		}
		paths = append(paths, path)
	}
	return h.does(session.ActFile, false, actPatience, func(ctx context.Context, fence *lease.Fence) error {
		return h.mon.Observer().CallFenced(ctx, fence, h.page.SessionID, "DOM.setFileInputFiles", map[string]any{"backendNodeId": node, "files": paths}, nil)
	})
}

// exchanged are the names of the files in the session's exchange directory.
func (w *watch) exchanged() []string {
	names := []string{}
	dir := w.session.Show().ExchangeDir
	if dir == "" {
		return names
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.log.Warn().Err(err).Msg("the exchange directory cannot be listed")
	}
	for _, e := range entries {
		if e.Type().IsRegular() && len(names) < maxOptions {
			names = append(names, e.Name())
		}
	}
	return names
}
