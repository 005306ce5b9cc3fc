package capture

import (
	"context"
	"fmt"
)

// The bounds of Worlds: of the nodes and the characters of a page and its frames.
const (
	maxWorldNodes = 300_000
	maxWorldChars = 16 << 20
)

// Worlds returns an isolated world of each document of a page, or of a frame in another
// process, that a snapshot of it would have, its own document first. It returns at most
// maxFrames; the rest is not measured. large says why it is too large for a snapshot; it is
// empty if it is not.
func Worlds(ctx context.Context, c Caller, session string) (worlds []int, large string, err error) {
	p := pageCapture{caller: c, page: Page{SessionID: session}, limits: Limits{}.orDefaults()}
	frames, err := p.frames(ctx)
	if err != nil {
		return nil, "", err
	}
	nodes, chars := 0, 0
	for _, f := range frames {
		worlds = append(worlds, f.world)
		var size struct{ Nodes, Chars int }
		if err := p.run(ctx, f, fmt.Sprintf("size(%d, %d)", maxWorldNodes-nodes, maxWorldChars-chars), &size); err != nil {
			return nil, "", err
		}
		nodes, chars = nodes+size.Nodes, chars+size.Chars
		switch {
		case nodes > maxWorldNodes:
			return worlds, fmt.Sprintf("more than %d nodes", maxWorldNodes), nil
		case chars > maxWorldChars:
			return worlds, fmt.Sprintf("more than %d characters", maxWorldChars), nil
		}
	}
	return worlds, "", nil
}
