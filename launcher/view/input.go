package view

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"leasehold/cdpproxy"
	"leasehold/cdpproxy/methods"
	"leasehold/evidence/capture"
	"leasehold/launcher/monitor"
	"leasehold/launcher/session"
	"leasehold/lease"
)

// This file has the input of a person who has the session. Each act goes through
// Session.ByPerson, which checks who has the session, notes the kind of act in the journal, and
// provides the fence that the commands have to pass. What is typed is only in the commands.

const (
	// inputPatience is how long to wait for the answer to an input. A page that is busy, or has
	// opened a dialog because of it, answers later. That delays the next input only if it is typed:
	// see settled.
	inputPatience = 300 * time.Millisecond
	// actPatience bounds other acts.
	actPatience = 5 * time.Second
	// maxPoints is how many fingers a touch may have.
	maxPoints = 10
)

// point is one finger of a touch, in pixels of the picture, according to the picture's head.
type point struct {
	X  float64 `json:"x"`
	Y  float64 `json:"y"`
	ID int     `json:"id"`
}

// hand does one input on a page.
type hand struct {
	v     *viewer
	m     up
	page  capture.Page
	mon   *monitor.Monitor
	scale float64 // of the page's newest picture
}

// inputs are the messages of the person who has the session, by type.
var inputs = map[string]func(*hand) error{
	"mouse": (*hand).mouse, "wheel": (*hand).wheel, "touch": (*hand).touch, "key": (*hand).key, "text": (*hand).text, "compose": (*hand).compose, "paste": (*hand).paste, "copy": (*hand).copySelected, "cut": (*hand).cut,
	"navigate": (*hand).navigate, "back": (*hand).back, "forward": (*hand).forward, "reload": (*hand).reload,
	"new_tab": (*hand).newTab, "close_tab": (*hand).closeTab, "front": (*hand).front, "dialog": (*hand).dialog, "select": (*hand).choose, "file": (*hand).files,
}

// notByLink are the inputs that are not for who has a sign-in link: what leads out of the pages that
// they were given.
var notByLink = []string{"navigate", "new_tab", "file", "copy", "cut"}

// mayInput refuses who has a sign-in link what is not for them.
func (v *viewer) mayInput(kind string) error {
	if v.who.Link && slices.Contains(notByLink, kind) {
		return fmt.Errorf("a sign-in link is for the pages that are open, and not for %s", kind)
	}
	return nil
}

// input does what a message of the person who has the session says.
func (v *viewer) input(m up) error {
	w := v.watch
	if err := v.mayInput(m.Type); err != nil {
		return err
	}
	if err := w.session.PersonIs(v.who); err != nil {
		return err
	}
	mon, err := w.session.Monitor()
	if err != nil {
		return err
	}
	h := &hand{v: v, m: m, mon: mon, scale: 1}
	w.mu.Lock()
	target := m.Target
	if target == "" {
		target = v.showing()
	}
	if f := w.frames[target]; f != nil && f.head.Scale > 0 {
		h.scale = f.head.Scale
	}
	w.mu.Unlock()
	for _, p := range mon.Pages() {
		if p.TargetID == target {
			h.page = p
		}
	}
	if h.page.TargetID == "" && m.Type != "new_tab" {
		return errors.New("there is no such page any more")
	}
	err = inputs[m.Type](h)
	w.nudge(target)
	return err
}

// at converts a coordinate on the picture to one on the page.
func (h *hand) at(n float64) float64 {
	if n = n / h.scale; math.IsNaN(n) || math.IsInf(n, 0) {
		return 0
	}
	return n
}

// sends carries out an act that consists of one command, which the page handles. goesOn says
// that it belongs to the act before.
func (h *hand) sends(kind session.ActKind, goesOn bool, method string, params map[string]any) error {
	return h.does(kind, goesOn, inputPatience, func(ctx context.Context, fence *lease.Fence) error {
		err := h.mon.Observer().CallFenced(ctx, fence, h.page.SessionID, method, params, nil)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	})
}

// pointed are the last inputs of a pointer that their pages have not answered, by page.
type pointed map[string]*cdpproxy.SentCall

func (p pointed) forget(target string) {
	if input := p[target]; input != nil {
		input.Forget()
		delete(p, target)
	}
}

func (p pointed) forgetAll() {
	for target := range p {
		p.forget(target)
	}
}

// points is sends for what a pointer does.
func (h *hand) points(kind session.ActKind, goesOn bool, method string, params map[string]any) error {
	return h.does(kind, goesOn, inputPatience, func(ctx context.Context, fence *lease.Fence) error {
		input, err := h.mon.Observer().SendFenced(fence, h.page.SessionID, method, params)
		if err != nil {
			return err
		}
		h.v.pointed.forget(h.page.TargetID) // a page answers them in their order
		if err = input.Wait(ctx, nil); errors.Is(err, context.DeadlineExceeded) {
			h.v.pointed[h.page.TargetID] = input
			return nil
		}
		input.Forget()
		return err
	})
}

// types is sends for what goes to the field that has the focus. A pointer may just have chosen it, and
// a page that is busy handles text before a touch that came earlier: what is typed would be lost, or be
// in another field.
func (h *hand) types(kind session.ActKind, goesOn bool, method string, params map[string]any) error {
	if err := h.settled(); err != nil {
		return err
	}
	return h.sends(kind, goesOn, method, params)
}

// settled returns once the page has answered what a pointer did on it.
func (h *hand) settled() error {
	waiting := h.v.pointed[h.page.TargetID]
	switch {
	case waiting == nil:
		return nil
	case h.page.Dialog != "":
		return errors.New("nothing was done: the page asks something, which has to be answered first")
	}
	ctx, cancel := context.WithTimeout(h.v.watch.ctx, h.patience())
	defer cancel()
	if err := waiting.Wait(ctx, nil); err != nil && errors.Is(err, ctx.Err()) {
		h.v.hangs = h.page.TargetID
		return fmt.Errorf("nothing was done: the page has not answered yet what was touched or clicked before: %w", err)
	}
	h.v.pointed.forget(h.page.TargetID)
	h.v.hangs = ""
	return nil
}

// patience is how long what a page has to answer first may hold up an input. One that hangs must not
// hold up what else the person does, such as going to another tab.
func (h *hand) patience() time.Duration {
	if h.v.hangs == h.page.TargetID {
		return inputPatience
	}
	return actPatience
}

func (h *hand) does(kind session.ActKind, goesOn bool, patience time.Duration, do func(context.Context, *lease.Fence) error) error {
	act := session.Act{Kind: kind, URL: h.page.URL, Target: h.page.TargetID, GoesOn: goesOn}
	return h.v.watch.session.ByPerson(h.v.who, act, func(fence *lease.Fence) error {
		ctx, cancel := context.WithTimeout(h.v.watch.ctx, patience)
		defer cancel()
		return do(ctx, fence)
	})
}

// pointerEvents are Chrome's names for what a pointer does.
var pointerEvents = map[string]string{"move": "mouseMoved", "down": "mousePressed", "up": "mouseReleased"}

func (h *hand) mouse() error {
	event, ok := pointerEvents[h.m.Kind]
	if !ok {
		return fmt.Errorf("mouse: %q: want move, down or up", h.m.Kind)
	}
	kind := session.ActClick
	if h.m.Kind == "move" {
		kind = session.ActMove
	}
	button := h.m.Button
	if button == "" {
		button = "none"
	}
	if button == "left" && kind == session.ActClick {
		if asks, err := h.click(); asks || err != nil {
			return err
		}
	}
	return h.points(kind, h.m.Kind != "down", "Input.dispatchMouseEvent", map[string]any{
		"type": event, "x": h.at(h.m.X), "y": h.at(h.m.Y), "button": button, "buttons": h.m.Buttons, "clickCount": h.m.Clicks, "modifiers": h.m.Modifiers,
	})
}

// click tells whether the viewer is asked instead of a click, because the click is on something
// that no picture shows. The release of the button is then left out, too.
func (h *hand) click() (asks bool, err error) {
	if h.m.Kind == "up" {
		asks, h.v.asking = h.v.asking, false
		return asks, nil
	}
	h.takeFrameChoosers()
	// A page that is only slow must not get a click that nobody could see the effect of.
	ctx, cancel := context.WithTimeout(h.v.watch.ctx, h.patience())
	defer cancel()
	h.v.asking = h.page.Dialog == "" && h.asksFor(ctx, h.at(h.m.X), h.at(h.m.Y))
	h.v.hangs = ""
	if ctx.Err() != nil {
		h.v.hangs = h.page.TargetID
	}
	return h.v.asking, nil
}

func (h *hand) wheel() error {
	return h.sends(session.ActScroll, false, "Input.dispatchMouseEvent", map[string]any{
		"type": "mouseWheel", "x": h.at(h.m.X), "y": h.at(h.m.Y), "deltaX": h.at(h.m.DX), "deltaY": h.at(h.m.DY), "modifiers": h.m.Modifiers,
	})
}

// touchEvents are Chrome's names for what fingers do.
var touchEvents = map[string]string{"start": "touchStart", "move": "touchMove", "end": "touchEnd", "cancel": "touchCancel"}

func (h *hand) touch() error {
	event, ok := touchEvents[h.m.Kind]
	if !ok || len(h.m.Points) > maxPoints {
		return fmt.Errorf("touch: %q with %d points: want start, move, end or cancel, and at most %d", h.m.Kind, len(h.m.Points), maxPoints)
	}
	if h.m.Kind == "start" {
		h.takeFrameChoosers()
	}
	points := []map[string]any{}
	for _, p := range h.m.Points {
		points = append(points, map[string]any{"x": h.at(p.X), "y": h.at(p.Y), "id": p.ID})
	}
	return h.points(session.ActTouch, h.m.Kind != "start", "Input.dispatchTouchEvent", map[string]any{"type": event, "touchPoints": points, "modifiers": h.m.Modifiers})
}

func (h *hand) key() error {
	params := map[string]any{
		"type": "keyUp", "key": h.m.Key, "code": h.m.Code, "windowsVirtualKeyCode": h.m.KeyCode, "location": h.m.Location, "modifiers": h.m.Modifiers,
	}
	switch h.m.Kind {
	case "down":
		if h.m.Key == "Enter" || h.m.Key == " " {
			h.takeFrameChoosers()
		}
		params["type"], params["autoRepeat"] = "rawKeyDown", h.m.Repeat
		if h.m.Text != "" {
			params["type"], params["text"] = "keyDown", h.m.Text
		}
	case "up":
	default:
		return fmt.Errorf("key: %q: want down or up", h.m.Kind)
	}
	return h.types(session.ActKey, h.m.Kind == "up", "Input.dispatchKeyEvent", params)
}

func (h *hand) text() error {
	return h.types(session.ActText, false, "Input.insertText", map[string]any{"text": h.m.Text})
}

func (h *hand) compose() error {
	return h.types(session.ActText, true, "Input.imeSetComposition", map[string]any{"text": h.m.Text, "selectionStart": h.m.Start, "selectionEnd": h.m.End})
}

func (h *hand) paste() error {
	return h.types(session.ActClipboard, false, "Input.insertText", map[string]any{"text": h.m.Text})
}

func (h *hand) navigate() error {
	if refused := methods.CheckURL(h.m.URL); refused != nil {
		return errors.New(refused.Text)
	}
	return h.does(session.ActNavigate, false, actPatience, func(ctx context.Context, fence *lease.Fence) error {
		var r struct {
			ErrorText string `json:"errorText"`
		}
		err := h.mon.Observer().CallFenced(ctx, fence, h.page.SessionID, "Page.navigate", map[string]any{"url": h.m.URL, "transitionType": "typed"}, &r)
		switch {
		case errors.Is(err, context.DeadlineExceeded): // the site is slow
			return nil
		case err == nil && r.ErrorText != "":
			return errors.New("the page cannot be opened: " + r.ErrorText)
		}
		return err
	})
}

func (h *hand) back() error    { return h.history(session.ActBack, -1) }
func (h *hand) forward() error { return h.history(session.ActForward, 1) }

func (h *hand) history(kind session.ActKind, by int) error {
	return h.does(kind, false, actPatience, func(ctx context.Context, fence *lease.Fence) error {
		var r struct {
			CurrentIndex int `json:"currentIndex"`
			Entries      []struct {
				ID  int    `json:"id"`
				URL string `json:"url"`
			} `json:"entries"`
		}
		if err := h.mon.Observer().Call(ctx, h.page.SessionID, "Page.getNavigationHistory", nil, &r); err != nil {
			return err
		}
		to := r.CurrentIndex + by
		if to < 0 || to >= len(r.Entries) {
			return errors.New("the page has nothing there")
		}
		if refused := methods.CheckURL(r.Entries[to].URL); refused != nil {
			return errors.New(refused.Text)
		}
		return h.mon.Observer().CallFenced(ctx, fence, h.page.SessionID, "Page.navigateToHistoryEntry", map[string]any{"entryId": r.Entries[to].ID}, nil)
	})
}

func (h *hand) reload() error { return h.sends(session.ActReload, false, "Page.reload", nil) }

func (h *hand) newTab() error {
	if refused := methods.CheckURL(h.m.URL); h.m.URL != "" && refused != nil {
		return errors.New(refused.Text)
	}
	return h.does(session.ActNewTab, false, actPatience, func(ctx context.Context, fence *lease.Fence) error {
		opened, err := h.mon.Tabs().Open(ctx, fence, h.m.URL)
		if err == nil {
			h.v.shows(string(opened.TargetID))
		}
		return err
	})
}

func (h *hand) closeTab() error {
	return h.does(session.ActCloseTab, false, actPatience, func(ctx context.Context, fence *lease.Fence) error {
		h.v.watch.session.PageCloses(h.page.TargetID)
		return h.mon.Tabs().Close(ctx, fence, h.page.TargetID)
	})
}

// front brings the page to the front, and shows it: Chrome draws only that page, and gives the
// focus to no other.
func (h *hand) front() error {
	return h.does(session.ActTab, false, actPatience, func(ctx context.Context, fence *lease.Fence) error {
		h.v.shows(h.page.TargetID)
		return h.mon.Tabs().Activate(ctx, fence, h.page.TargetID)
	})
}

// dialog answers the dialog that the message names. The browser would give the answer to the one that is
// open then, which may be another one, with the same text, that nobody has read yet. What was answered
// already is known here before the monitor hears that it closed.
func (h *hand) dialog() error {
	if h.page.Dialog == "" || h.m.Number != h.page.DialogNumber || h.m.Number == h.v.answered {
		return errors.New("nothing was answered: the page does not ask this any more")
	}
	params := map[string]any{"accept": h.m.Accept}
	if h.m.Accept && h.m.Text != "" {
		params["promptText"] = h.m.Text
	}
	err := h.sends(session.ActDialog, false, "Page.handleJavaScriptDialog", params)
	if err == nil {
		h.v.answered = h.m.Number
	}
	return err
}

// shows makes the viewer see a page, as soon as the page is known to be open.
func (v *viewer) shows(target string) {
	v.watch.mu.Lock()
	defer v.watch.mu.Unlock()
	v.target = target
	v.wake()
}

// nudge makes a picture of the page at once, because somebody waits for the effect of their
// input.
func (w *watch) nudge(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.bySession {
		if c.target == target {
			c.hurry()
		}
	}
}
