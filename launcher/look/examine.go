package look

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"leasehold/cdpproxy"
	"leasehold/evidence/capture"
	"leasehold/launcher/recovery/table"
)

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
		v.show(table.HTTPAuthAsked, "%s asks for HTTP authentication", place(v.known.Authentication))
	}
	if v.known.Offline {
		v.show(table.OfflineOn, "a worker keeps the page offline: %s", where)
	}
	switch {
	case v.target.Dialog != "":
		kind, _, _ := strings.Cut(v.target.Dialog, ":")
		if !isAlert(v.target.Dialog) {
			v.show(table.DialogWaits, "a dialog (%s) is open on %s", kind, where)
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
	return capture.Patiently(ctx, askTimeout, func(ctx context.Context) error {
		return v.looker.caller.Call(ctx, session, method, params, result)
	})
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
		if f.question == table.PasswordAsked && (f.covers || state.Used || !v.known.First) {
			v.seen.Shows = append(v.seen.Shows, Show{Question: table.SignedOut, How: f.how + ", and came after other things", at: f.at, view: shown})
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
		v.show(table.WritesWaiting, "%d tasks for later (background sync or fetch) are registered on %s", n, place(v.target.URL))
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
