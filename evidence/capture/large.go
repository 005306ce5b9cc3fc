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

// A snapshot of a page comes as one message, however large the page is. So a page is
// measured first, by a script in a world of its own that stops counting at a bound;
// of one above that only the beginning is asked for.

// The bounds of what is asked for, of one page.
const (
	mostNodes  = 100_000
	mostFrames = 16
	// mostFields is how many texts in fields are looked for in the rest of a page: of
	// one that has more, or a longer one than the script takes, no text is written.
	mostFields = 2000
	// charsPerByte is how many characters a page may have for each byte that its
	// part may: much of a page is not written.
	charsPerByte = 2
)

//go:embed large.js
var largeScript string

// largeWorld is the name of the script's world, the same each time.
const largeWorld = "leasehold"

// frame is a document of a page, and the world in it.
type frame struct {
	id    string
	world int
}

// frames lists the documents that a snapshot of the page would have, the page's own
// first. Those of other processes are targets of their own.
func (s shot) frames(ctx context.Context) ([]frame, error) {
	type tree struct {
		Frame struct {
			ID string `json:"id"`
		} `json:"frame"`
		Children []json.RawMessage `json:"childFrames"`
	}
	var r struct {
		FrameTree json.RawMessage `json:"frameTree"`
	}
	if err := s.call(ctx, s.page.SessionID, "Page.getFrameTree", nil, &r); err != nil {
		return nil, err
	}
	var all []frame
	for left := []json.RawMessage{r.FrameTree}; len(left) > 0 && len(all) < mostFrames; left = left[1:] {
		var t tree
		if err := json.Unmarshal(left[0], &t); err != nil {
			return nil, err
		}
		all = append(all, frame{id: t.Frame.ID})
		left = append(left, t.Children...)
	}
	for i := range all {
		var world struct {
			ID int `json:"executionContextId"`
		}
		params := map[string]any{"frameId": all[i].id, "worldName": largeWorld}
		if err := s.call(ctx, s.page.SessionID, "Page.createIsolatedWorld", params, &world); err != nil {
			return nil, err
		}
		all[i].world = world.ID
	}
	return all, nil
}

// run calls one of the script's functions in a frame. The browser ends it where it
// takes too long.
func (s shot) run(ctx context.Context, f frame, call string, result any) error {
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
		"timeout": s.limits.Part / time.Millisecond,
	}
	if err := s.call(ctx, s.page.SessionID, "Runtime.evaluate", params, &r); err != nil {
		return err
	}
	if r.Exception != nil {
		return errors.New(r.Exception.Text)
	}
	return json.Unmarshal(r.Result.Value, result)
}

// large measures the page and tells whether a snapshot of it would be too much.
func (s shot) large(ctx context.Context) (frames []frame, why string, err error) {
	if frames, err = s.frames(ctx); err != nil {
		return nil, "", err
	}
	if len(frames) == mostFrames {
		return frames, fmt.Sprintf("it has %d frames or more", mostFrames), nil
	}
	nodes, chars, most := 0, 0, s.limits.DOMBytes*charsPerByte
	for _, f := range frames {
		var size struct{ Nodes, Chars int }
		if err := s.run(ctx, f, fmt.Sprintf("size(%d, %d)", mostNodes-nodes, most-chars), &size); err != nil {
			return nil, "", err
		}
		nodes, chars = nodes+size.Nodes, chars+size.Chars
		switch {
		case nodes > mostNodes:
			return frames, fmt.Sprintf("it has more than %d nodes", mostNodes), nil
		case chars > most:
			return frames, fmt.Sprintf("it has more than %d characters", most), nil
		}
	}
	return frames, "", nil
}

// beginning is a snapshot of the beginning of a page that is large, with what is typed
// anywhere in it.
func (s shot) beginning(ctx context.Context, frames []frame) (snapshot, error) {
	var snap snapshot
	if err := s.run(ctx, frames[0], fmt.Sprintf("cut(%d, %d, %d)", mostNodes, s.limits.DOMBytes, mostFields), &snap); err != nil {
		return snap, err
	}
	snap.bare = snap.Typed == nil
	for _, f := range frames[1:] {
		var typed [][2]string
		if err := s.run(ctx, f, fmt.Sprintf("typed(%d)", mostFields), &typed); err != nil {
			return snap, err
		}
		snap.bare = snap.bare || typed == nil
		snap.Typed = append(snap.Typed, typed...)
	}
	return snap, nil
}
