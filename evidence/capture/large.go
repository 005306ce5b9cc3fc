package capture

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A snapshot of a page comes as one message, however large the page is. So a page is measured
// first, by a script that stops counting at a bound and runs in an isolated world, which the
// page cannot see. If a page is above the bound, only its beginning is requested.

// The bounds of what is requested from one page.
const (
	maxNodes  = 100_000
	maxFrames = 16
	// maxFields is how many texts in fields are searched for in the rest of a large page. If
	// there are more, or one that is longer than the script allows, no text of the page is
	// written.
	maxFields = 2000
	// charsPerByte is how many characters a page may have for each byte of its DOM part. Much
	// of a page is not written.
	charsPerByte = 2
)

//go:embed large.js
var largeScript string

// worldName is the name of the script's isolated world. It is always the same, so that a frame
// has only one.
const worldName = "leasehold"

// frame is a document of a page, and the isolated world in it.
type frame struct {
	id    string
	world int
}

// frames lists the documents that a snapshot of the page would have, the page's own first; at
// most maxFrames. Frames in other processes are targets of their own.
func (p pageCapture) frames(ctx context.Context) ([]frame, error) {
	type tree struct {
		Frame struct {
			ID string `json:"id"`
		} `json:"frame"`
		Children []json.RawMessage `json:"childFrames"`
	}
	var r struct {
		FrameTree json.RawMessage `json:"frameTree"`
	}
	if err := p.call(ctx, p.page.SessionID, "Page.getFrameTree", nil, &r); err != nil {
		return nil, err
	}
	var frames []frame
	for queue := []json.RawMessage{r.FrameTree}; len(queue) > 0 && len(frames) < maxFrames; queue = queue[1:] {
		var t tree
		if err := json.Unmarshal(queue[0], &t); err != nil {
			return nil, err
		}
		frames = append(frames, frame{id: t.Frame.ID})
		queue = append(queue, t.Children...)
	}
	for i := range frames {
		var world struct {
			ID int `json:"executionContextId"`
		}
		params := map[string]any{"frameId": frames[i].id, "worldName": worldName}
		if err := p.call(ctx, p.page.SessionID, "Page.createIsolatedWorld", params, &world); err != nil {
			return nil, err
		}
		frames[i].world = world.ID
	}
	return frames, nil
}

// run calls one of the script's functions in a frame. The browser terminates a call
// that takes longer than the limit for one part.
func (p pageCapture) run(ctx context.Context, f frame, call string, result any) error {
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	params := map[string]any{
		"expression": strings.TrimSpace(largeScript) + "." + call, "contextId": f.world, "returnByValue": true, "silent": true,
		"timeout": p.limits.Part / time.Millisecond,
	}
	if err := p.call(ctx, p.page.SessionID, "Runtime.evaluate", params, &r); err != nil {
		return err
	}
	if r.Exception != nil {
		return errors.New(r.Exception.Text)
	}
	return json.Unmarshal(r.Result.Value, result)
}

// measure returns the page's frames and, in large, why the page is too large for a snapshot;
// large is empty if it is not.
func (p pageCapture) measure(ctx context.Context) (frames []frame, large string, err error) {
	if frames, err = p.frames(ctx); err != nil {
		return nil, "", err
	}
	if len(frames) == maxFrames {
		return frames, fmt.Sprintf("it has %d frames or more", maxFrames), nil
	}
	nodes, chars, maxChars := 0, 0, p.limits.DOMBytes*charsPerByte
	for _, f := range frames {
		var size struct{ Nodes, Chars int }
		if err := p.run(ctx, f, fmt.Sprintf("size(%d, %d)", maxNodes-nodes, maxChars-chars), &size); err != nil {
			return nil, "", err
		}
		nodes, chars = nodes+size.Nodes, chars+size.Chars
		switch {
		case nodes > maxNodes:
			return frames, fmt.Sprintf("it has more than %d nodes", maxNodes), nil
		case chars > maxChars:
			return frames, fmt.Sprintf("it has more than %d characters", maxChars), nil
		}
	}
	return frames, "", nil
}

// beginning returns a snapshot of the beginning of a large page, with the texts in fields
// anywhere in it.
func (p pageCapture) beginning(ctx context.Context, frames []frame) (snapshot, error) {
	var s snapshot
	if err := p.run(ctx, frames[0], fmt.Sprintf("beginning(%d, %d, %d)", maxNodes, p.limits.DOMBytes, maxFields), &s); err != nil {
		return s, err
	}
	s.structureOnly = s.Typed == nil
	for _, f := range frames[1:] {
		var typed [][2]string
		if err := p.run(ctx, f, fmt.Sprintf("typed(%d)", maxFields), &typed); err != nil {
			return s, err
		}
		s.structureOnly = s.structureOnly || typed == nil
		s.Typed = append(s.Typed, typed...)
	}
	return s, nil
}
