package view

import (
	"context"
	"encoding/json"
)

// While a person has the session, file choosers that a page opens are shown to that person:
// Chrome would open them in a window of its own, or nowhere. The browser has to be told so for
// the page and for each frame that has a process of its own.

// maxFrames bounds the frames in other processes whose file choosers are intercepted.
const maxFrames = 64

// pageFrame is a frame in another process, with the target of its page.
type pageFrame struct{ page, frame string }

// takeChoosers makes file choosers that a page opens go to the person, for as long as a person
// has the session. The caller holds w.mu.
func (w *watch) takeChoosers() {
	byHand := w.person.Principal != ""
	for _, c := range w.bySession {
		if c.byHand != byHand {
			c.byHand = byHand
			w.intercept(c.session, byHand)
		}
	}
	if byHand {
		return
	}
	for in := range w.byFrame { // it ends with the session on the frame
		w.observer.Post("", "Target.detachFromTarget", map[string]any{"sessionId": in})
	}
	clear(w.byFrame)
}

func (w *watch) intercept(in string, on bool) {
	if on { // Chrome reports them only then
		w.observer.Post(in, "Page.enable", nil)
	}
	w.observer.Post(in, "Page.setInterceptFileChooserDialog", map[string]any{"enabled": on})
}

// takeFrameChoosers does the same for the page's frames that have processes of their own. It is
// called before anything that lets a script open a chooser, such as a click or a key.
func (h *hand) takeFrameChoosers() {
	w := h.v.watch
	ctx, cancel := context.WithTimeout(w.ctx, actPatience) // the browser answers, not the page
	defer cancel()
	for _, p := range h.mon.ToLookAt() {
		if p.TargetID != h.page.TargetID {
			continue
		}
		for _, f := range p.Frames {
			if err := w.takeFrame(ctx, pageFrame{p.TargetID, f.TargetID}); err != nil {
				w.log.Debug().Err(err).Msg("choosers of files of a frame are not asked of the person")
			}
		}
	}
}

func (w *watch) takeFrame(ctx context.Context, f pageFrame) error {
	w.mu.Lock()
	taken := len(w.byFrame) >= maxFrames
	for _, known := range w.byFrame {
		taken = taken || known == f
	}
	w.mu.Unlock()
	if taken {
		return nil
	}
	var r struct {
		SessionID string `json:"sessionId"`
	}
	if err := w.observer.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": f.frame, "flatten": true}, &r); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byFrame[r.SessionID] = f
	w.intercept(r.SessionID, true)
	if w.person.Principal == "" { // it was handed back meanwhile
		w.takeChoosers()
	}
	return nil
}

// opened is called with a file chooser that a script in the page, or in one of its frames, has
// opened.
func (w *watch) opened(in pageFrame, params json.RawMessage) {
	var p struct {
		Mode string `json:"mode"`
		Node int    `json:"backendNodeId"`
	}
	if json.Unmarshal(params, &p) != nil || p.Node == 0 {
		return
	}
	w.mu.Lock()
	var asked []*viewer
	for v := range w.viewers {
		if v.hands().yours {
			v.chosen = chosen{target: in.page, frame: in.frame, node: p.Node}
			asked = append(asked, v)
		}
	}
	w.mu.Unlock()
	for _, v := range asked {
		v.reply(v.askForFiles(in.page, p.Mode == "selectMultiple"))
	}
}

// frameEnded forgets a frame whose session the browser ended.
func (w *watch) frameEnded(params json.RawMessage) {
	var p struct {
		SessionID string `json:"sessionId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byFrame, p.SessionID)
}
