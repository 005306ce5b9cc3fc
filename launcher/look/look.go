// Package look finds out what the open pages of a browser ask for, and what was left unfinished
// in them. This is done once, at the loss of a worker, before anything is closed. It reads one
// snapshot of each page and of each frame in another process, including closed shadow roots,
// and judges it by its structure: the types and autocomplete of fields, roles, and which
// element covers which. It reads no words, so pages may be in any language, and it keeps
// nothing that was typed.
//
// A look changes nothing in a page, and needs no network.
package look

import (
	"context"
	"errors"
	"sync"
	"time"

	"leasehold/evidence/capture"
)

// Page is an open page, and what is known of it without asking it.
type Page struct {
	TargetID string
	// Frames are the frames in it that have processes of their own, at any depth.
	Frames []Frame
	// Typed says that a worker typed into the page's document or one of its frames; Acted, that
	// it did anything there.
	Typed, Acted bool
	// First says that the page's document was the first one that the session saw.
	First bool
	// Silent says that the page has sent no request since a worker last typed.
	Silent bool
	// Offline says that a worker keeps the page offline.
	Offline bool
	// Authentication is the URL whose answer asks for HTTP authentication, if that is the
	// page's last document; empty if none does.
	Authentication string
	// Leaving tells whether the page is by now navigating to another document. It may be nil.
	Leaving func() bool
}

// Frame is a frame in another process.
type Frame struct {
	TargetID  string // also the frame's id
	SessionID string // the observer's session on the frame
	Parent    string // the target that contains it
}

// Looker looks at the pages of one browser. Look may be called for several pages at the same
// time.
type Looker struct {
	caller capture.Caller
	pages  map[string]Page

	mu   sync.Mutex
	seen []Seen
}

// New returns a looker for pages.
func New(caller capture.Caller, pages []Page) *Looker {
	e := &Looker{caller: caller, pages: map[string]Page{}}
	for _, p := range pages {
		e.pages[p.TargetID] = p
	}
	return e
}

// Seen is what was seen of one page.
type Seen struct {
	// Number is the page's number in the bundle, from one on.
	Number int `json:"page"`
	// Blind says what could not be looked at, and why; empty: everything was looked at.
	// Harmless says that there was nothing to see.
	Blind    string `json:"not_seen,omitempty"`
	Harmless bool   `json:"nothing_to_see,omitempty"`
	Frames   int    `json:"frames"` // number of frames in other processes that were looked at
	Shows    []Show `json:"shows"`
}

// Show is one thing that a page shows.
type Show struct {
	Question string `json:"fact"`
	How      string `json:"how"`
	at       box
	view     box
	image    []byte // of the page
}

// Bounds of one look, in time that the host gives (capture.Patience).
const (
	lookTimeout = 4 * time.Second
	// askTimeout bounds each answer except that of the snapshot.
	askTimeout = 2 * time.Second
	maxFrames  = 24
	// maxEdited is how many fields are asked whether somebody typed into them.
	maxEdited = 24
)

// Look begins to look at one page. number is its number in the bundle. The returned function is
// called once, and ends the look: image is a screenshot of what the page shows, or missing says
// why there is none. A page that answers is looked at even without an image, because its
// structure says what it asks for.
func (e *Looker) Look(ctx context.Context, number int, p capture.Page) (end func(p capture.Page, image []byte, missing string)) {
	early := e.examine(ctx, number, p)
	return func(p capture.Page, image []byte, missing string) {
		v := &view{looker: e, target: p, known: e.pages[p.TargetID], seen: Seen{Number: number, Shows: []Show{}}}
		if !v.obstructed(missing) {
			if early.failed() { // the page is drawn by now
				early.drop()
				early = e.examine(ctx, number, p)
			}
			<-early.ended
			v.seen = early.seen
			v.judge(early.large, early.err, image != nil)
		}
		early.drop()
		for i := range v.seen.Shows {
			v.seen.Shows[i].image = image
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen = append(e.seen, v.seen)
	}
}

// examination is the examination of a page, which runs beside its caller.
type examination struct {
	stop  context.CancelFunc
	ended chan struct{}
	// The following may be read when it has ended.
	seen  Seen
	large string
	err   error
}

// examine begins to ask a page what it shows, unless something is known to prevent that.
func (e *Looker) examine(ctx context.Context, number int, p capture.Page) *examination {
	ctx, stop := capture.Patience(ctx, lookTimeout)
	x := &examination{stop: stop, ended: make(chan struct{})}
	v := &view{looker: e, target: p, known: e.pages[p.TargetID], seen: Seen{Number: number, Shows: []Show{}}}
	if v.obstructed("") {
		x.err = errors.New("it was not asked")
		close(x.ended)
		return x
	}
	go func() {
		defer close(x.ended)
		if x.large, x.err = v.examine(ctx); x.err != nil && ctx.Err() != nil {
			x.err = context.Cause(ctx)
		}
		x.seen = v.seen
	}()
	return x
}

// failed tells whether it has ended without a result.
func (x *examination) failed() bool {
	select {
	case <-x.ended:
		return x.err != nil
	default:
		return false
	}
}

func (x *examination) drop() {
	x.stop()
	<-x.ended
}
