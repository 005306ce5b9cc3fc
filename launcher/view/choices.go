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

// Chrome shows the list of a select box, and the file chooser, in windows of their own, which
// are not in any picture. So a click on one is not carried out: instead the viewer is asked
// what to choose, and that is set.

const (
	// maxOptions bounds the options of a select box, and the files, that a viewer is shown.
	maxOptions = 500
	maxOption  = 200 // in bytes, of one option
)

// chosen is the node about which a viewer is asked. session is the observer's on the page, or
// on the frame in another process that has the node. If it is empty, the node is in the frame
// with that target or, if target is empty too, in the page.
type chosen struct {
	target, session, frame string
	node                   int // Chrome's backend node id
}

// maxDepth is how many levels of frames are followed.
const maxDepth = 8

// optionsMessage asks which option of a select box the person wants.
type optionsMessage struct {
	Type    string   `json:"type"` // "options"
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
	Type     string   `json:"type"` // "files"
	Target   string   `json:"target"`
	Names    []string `json:"names"`
	Multiple bool     `json:"multiple"`
}

// asksFor tells whether a click at a position of the page is on a select box or on a file
// field. Then the viewer is asked, and the click must not be carried out.
func (h *hand) asksFor(ctx context.Context, x, y float64) bool {
	in, is, err := h.nodeAt(ctx, x, y)
	if err != nil {
		return false
	}
	attribute := func(name string) (string, bool) {
		for i := 0; i+1 < len(is.Attributes); i += 2 {
			if is.Attributes[i] == name {
				return is.Attributes[i+1], true
			}
		}
		return "", false
	}
	_, multiple := attribute("multiple")
	_, disabled := attribute("disabled")
	kind, _ := attribute("type")
	listed, _ := attribute("size")
	var text []byte
	switch {
	case disabled:
	case is.Name == "SELECT" && !multiple && (listed == "" || listed == "0" || listed == "1"):
		if options, err := h.options(ctx, in, is.ID); err == nil {
			text, _ = json.Marshal(optionsMessage{"options", h.page.TargetID, options}) // it can always be encoded
		}
	case is.Name == "INPUT" && strings.EqualFold(kind, "file"):
		text = h.v.askForFiles(h.page.TargetID, multiple)
	}
	if text == nil {
		return false
	}
	h.v.reply(text)
	h.v.watch.mu.Lock()
	defer h.v.watch.mu.Unlock()
	h.v.chosen = chosen{target: h.page.TargetID, session: in, node: is.ID}
	return true
}

// askForFiles is the question which files the person wants, or why they can choose none.
func (v *viewer) askForFiles(page string, multiple bool) []byte {
	if err := v.mayInput("file"); err != nil {
		return refusal("file", err)
	}
	text, _ := json.Marshal(filesMessage{"files", page, v.watch.exchanged(), multiple}) // it can always be encoded
	return text
}

// node is an element, as DOM.describeNode returns it. Frame is the id of the frame that the
// element contains.
type node struct {
	ID         int      `json:"backendNodeId"`
	Name       string   `json:"nodeName"`
	Attributes []string `json:"attributes"`
	Frame      string   `json:"frameId"`
}

func (h *hand) describe(ctx context.Context, in string, params map[string]any) (node, error) {
	var r struct {
		Node node `json:"node"`
	}
	err := h.mon.Observer().Call(ctx, in, "DOM.describeNode", params, &r)
	return r.Node, err
}

// nodeAt returns the element at a position of the page, and the session to which it belongs:
// the page's, or that of a frame in another process.
func (h *hand) nodeAt(ctx context.Context, x, y float64) (in string, _ node, err error) {
	in = h.page.SessionID
	for range maxDepth {
		var metrics struct {
			Layout struct {
				Width  float64 `json:"clientWidth"`
				Height float64 `json:"clientHeight"`
			} `json:"cssLayoutViewport"`
			Viewport struct {
				PageX float64 `json:"pageX"`
				PageY float64 `json:"pageY"`
			} `json:"cssVisualViewport"`
		}
		if err := h.mon.Observer().Call(ctx, in, "Page.getLayoutMetrics", nil, &metrics); err != nil {
			return "", node{}, err
		}
		if in != h.page.SessionID { // the position is relative to the frame
			x, y = x*metrics.Layout.Width, y*metrics.Layout.Height
		}
		var at struct {
			Node int `json:"backendNodeId"`
		}
		place := map[string]any{"x": int(math.Round(x + metrics.Viewport.PageX)), "y": int(math.Round(y + metrics.Viewport.PageY))}
		if err := h.mon.Observer().Call(ctx, in, "DOM.getNodeForLocation", place, &at); err != nil {
			return "", node{}, err
		}
		is, err := h.describe(ctx, in, map[string]any{"backendNodeId": at.Node})
		of := h.frameSession(is.Frame)
		if err != nil || of == "" {
			return in, is, err
		}
		var box struct {
			Model struct {
				Content []float64 `json:"content"` // the corners, clockwise from the upper left one
			} `json:"model"`
		}
		if err := h.mon.Observer().Call(ctx, in, "DOM.getBoxModel", map[string]any{"backendNodeId": at.Node}, &box); err != nil {
			return "", node{}, err
		}
		c := box.Model.Content
		if len(c) != 8 || c[4] <= c[0] || c[5] <= c[1] {
			return in, is, nil
		}
		x, y, in = (x-c[0])/(c[4]-c[0]), (y-c[1])/(c[5]-c[1]), of
	}
	return "", node{}, errors.New("the frames are nested too deep")
}

// frameSession is the observer's session on a frame of the page that has a process of its own;
// empty for other frames.
func (h *hand) frameSession(frame string) string {
	if frame == "" {
		return ""
	}
	for _, p := range h.mon.ToLookAt() {
		for _, f := range p.Frames {
			if p.TargetID == h.page.TargetID && f.TargetID == frame {
				return f.SessionID
			}
		}
	}
	return ""
}

// onNode calls a JavaScript function on a node. Without a fence the function may only read.
func (h *hand) onNode(ctx context.Context, fence *lease.Fence, in string, node int, function string, argument, result any) error {
	var r struct {
		Object struct {
			ID string `json:"objectId"`
		} `json:"object"`
	}
	if err := h.mon.Observer().Call(ctx, in, "DOM.resolveNode", map[string]any{"backendNodeId": node}, &r); err != nil {
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
		err = h.mon.Observer().Call(ctx, in, "Runtime.callFunctionOn", params, &said)
	} else {
		err = h.mon.Observer().CallFenced(ctx, fence, in, "Runtime.callFunctionOn", params, &said)
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

func (h *hand) options(ctx context.Context, in string, node int) ([]option, error) {
	var options []option
	err := h.onNode(ctx, nil, in, node, fmt.Sprintf(`function() {
		return [...this.options].slice(0, %d).map(o => ({ text: String(o.label || o.text).slice(0, %d), disabled: o.disabled || o.parentNode.disabled === true, chosen: o.selected }));
	}`, maxOptions, maxOption), nil, &options)
	return options, err
}

// asked is the node about which the viewer was asked.
func (h *hand) asked() (chosen, error) {
	h.v.watch.mu.Lock()
	of := h.v.chosen
	h.v.watch.mu.Unlock()
	if of.node == 0 || of.target != h.page.TargetID {
		return chosen{}, errors.New("nothing was asked: click on the field first")
	}
	switch {
	case of.session != "":
	case of.frame == "":
		of.session = h.page.SessionID
	default:
		if of.session = h.frameSession(of.frame); of.session == "" {
			return chosen{}, errors.New("the frame that asked for files is gone: click on the field again")
		}
	}
	return of, nil
}

// choose chooses an option of the select box that was clicked.
func (h *hand) choose() error {
	of, err := h.asked()
	if err != nil {
		return err
	}
	return h.does(session.ActSelect, false, actPatience, func(ctx context.Context, fence *lease.Fence) error {
		return h.onNode(ctx, fence, of.session, of.node, `function(index) {
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
	of, err := h.asked()
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
		return h.mon.Observer().CallFenced(ctx, fence, of.session, "DOM.setFileInputFiles", map[string]any{"backendNodeId": of.node, "files": paths}, nil)
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
