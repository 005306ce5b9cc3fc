package look

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"leasehold/internal/domsnapshot"
	"leasehold/launcher/recovery/findings"
)

// styles are the computed styles that a snapshot is asked for, in this order.
var styles = []string{"visibility", "opacity", "position", "pointer-events", "overflow-x"}

// The indexes of the styles.
const (
	styleVisibility = iota
	styleOpacity
	stylePosition
	stylePointer
	styleOverflow
)

func at[T any](list []T, i int) (v T) {
	if i >= 0 && i < len(list) {
		v = list[i]
	}
	return v
}

// Node types of the DOM.
const (
	elementNode = 1
	textNode    = 3
)

// box is a rectangle in Chrome's device pixels, measured from the upper left corner of the
// visible part of a page.
type box struct{ x, y, w, h float64 }

func (b box) empty() bool { return b.w < 1 || b.h < 1 }

func (b box) has(x, y float64) bool { return x >= b.x && x < b.x+b.w && y >= b.y && y < b.y+b.h }

func (b box) center() (x, y float64) { return b.x + b.w/2, b.y + b.h/2 }

// and is the intersection of two boxes.
func (b box) and(o box) box {
	x, y := max(b.x, o.x), max(b.y, o.y)
	return box{x, y, max(0, min(b.x+b.w, o.x+o.w)-x), max(0, min(b.y+b.h, o.y+o.h)-y)}
}

// or is the smallest box that contains both.
func (b box) or(o box) box {
	switch {
	case b.empty():
		return o
	case o.empty():
		return b
	}
	x, y := min(b.x, o.x), min(b.y, o.y)
	return box{x, y, max(b.x+b.w, o.x+o.w) - x, max(b.y+b.h, o.y+o.h) - y}
}

// element is one element of a page, or of a frame in it at any depth.
type element struct {
	tag    string // in lower case
	attrs  map[string]string
	parent int // index in scene.elements; -1: none
	// box is the area where it is drawn. full includes what its ancestors cut off, which is
	// everything outside clip. They are empty if it is not drawn.
	box, full, clip box
	// order is the painting order of the frames around it and of the element itself: a later
	// one is above.
	order    []int
	shown    bool // it is drawn, and is neither hidden nor transparent
	position string
	rtl      bool    // it is written from right to left
	cuts     bool    // it cuts off what its descendants draw outside it
	passes   bool    // the pointer passes through it
	opacity  float64 // multiplied with its ancestors'
	// text is the number of characters in its own text nodes; asks says that there is a
	// question mark among them.
	text      int
	asks      bool
	value     string // of a field; it is never reported
	initial   string // the value that the field had in the page's source
	checked   bool
	clickable bool
	session   string // the CDP session whose snapshot has it
	backend   int64  // its id in that session
	site      string // site of its document
	url       string // URL of its document
}

func (e *element) attr(name string) string {
	return strings.ToLower(strings.TrimSpace(e.attrs[name]))
}

func (e *element) has(name string) bool { _, ok := e.attrs[name]; return ok }

// scene is a page with its frames, as a flat list of elements: parents come before their
// children.
type scene struct {
	view     box     // visible part of the page
	scale    float64 // device pixels per CSS pixel
	elements []element
	last     []int  // for each element the last element inside it, or itself
	site     string // site of the page
}

// graft is a snapshot together with the snapshots of the frames in it that have processes of
// their own, by the backend id of the element that contains the frame.
type graft struct {
	snapshot domsnapshot.Snapshot
	session  string
	inside   map[int64]graft
}

// maxElements bounds a scene.
const maxElements = 200_000

// newScene makes a scene of a page. view is the visible part of the page, with x and y zero;
// scale is the number of device pixels per CSS pixel.
func newScene(page graft, view box, scale float64) *scene {
	s := &scene{view: view, scale: cmp.Or(scale, 1)}
	if len(page.snapshot.Documents) > 0 {
		s.site = siteOf(page.snapshot.Text(page.snapshot.Documents[0].URL))
		s.add(page, 0, -1, element{full: view, clip: everywhere, shown: true, opacity: 1}, 0)
	}
	s.last = make([]int, len(s.elements))
	for i := len(s.elements) - 1; i >= 0; i-- {
		s.last[i] = max(s.last[i], i)
		if parent := s.elements[i].parent; parent >= 0 {
			s.last[parent] = max(s.last[parent], s.last[i])
		}
	}
	return s
}

// maxDepth is how deeply frames may be nested.
const maxDepth = 8

// everywhere is a box that cuts nothing off.
var everywhere = box{-1e9, -1e9, 2e9, 2e9}

// add adds one document of a graft. in is the index of the frame's element, and frame is a copy
// of it.
func (s *scene) add(g graft, doc, in int, frame element, depth int) {
	if doc < 0 || doc >= len(g.snapshot.Documents) || depth > maxDepth {
		return
	}
	d := &g.snapshot.Documents[doc]
	address := g.snapshot.Text(d.URL)
	site := cmp.Or(siteOf(address), frame.site)
	layout := make(map[int]int, len(d.Layout.NodeIndex))
	for i, node := range d.Layout.NodeIndex {
		if _, ok := layout[node]; !ok {
			layout[node] = i
		}
	}
	texts, inputs, checked := d.Nodes.TextValue.ByNode(), d.Nodes.InputValue.ByNode(), d.Nodes.InputChecked.ByNode()
	frames, clickable := d.Nodes.ContentDocumentIndex.ByNode(), d.Nodes.IsClickable.ByNode()
	indexes := make([]int, len(d.Nodes.ParentIndex)) // of elements, by node; -1: none
	for node, parent := range d.Nodes.ParentIndex {
		above := in
		if parent >= 0 && parent < node {
			above = indexes[parent]
		}
		indexes[node] = above
		switch at(d.Nodes.NodeType, node) {
		case textNode:
			if above >= 0 && above != in {
				s.addText(&s.elements[above], g.snapshot.Text(at(d.Nodes.NodeValue, node)), layout, node)
			}
			continue
		case elementNode:
		default:
			continue
		}
		if len(s.elements) >= maxElements {
			return
		}
		e := element{
			tag: strings.ToLower(g.snapshot.Text(at(d.Nodes.NodeName, node))), attrs: g.snapshot.Attributes(d, node), parent: above,
			session: g.session, backend: at(d.Nodes.BackendNodeID, node), site: site, url: address,
		}
		i, drawn := layout[node]
		over := &frame
		if above != in {
			over = &s.elements[above]
		}
		e.opacity, e.clip = over.opacity, over.clip
		e.rtl = above != in && over.rtl || e.attr("dir") == "rtl"
		if over.cuts {
			e.clip = e.clip.and(over.full)
		}
		if drawn {
			e.place(d, &g.snapshot, i, frame)
		}
		_, e.checked = checked[node]
		_, e.clickable = clickable[node]
		if v, ok := inputs[node]; ok {
			e.value, e.initial = g.snapshot.Text(v), e.attrs["value"]
		} else if v, ok := texts[node]; ok {
			e.value = g.snapshot.Text(v)
		}
		here := len(s.elements)
		indexes[node] = here
		s.elements = append(s.elements, e)
		inner := s.elements[here]
		inner.cuts = true
		if child, ok := frames[node]; ok {
			s.add(g, child, here, inner, depth+1)
		} else if other, ok := g.inside[e.backend]; ok {
			s.add(other, 0, here, inner, depth+1)
		}
	}
}

func (s *scene) addText(e *element, text string, layout map[int]int, node int) {
	if e.tag == "textarea" {
		e.initial += text
	}
	if _, drawn := layout[node]; !drawn || !e.shown || e.tag == "script" || e.tag == "style" || e.tag == "noscript" {
		return
	}
	text = strings.TrimSpace(text)
	e.text += len([]rune(text))
	e.asks = e.asks || strings.ContainsAny(text, questionMarks)
}

// questionMarks are the question marks of various scripts: Latin, Greek, Arabic, fullwidth,
// Armenian, Ethiopic, Vai and others.
const questionMarks = "?\u037e\u061f\uff1f\u055e\u1367\ua60f\u2047\u2048\u2049"

// place finds out where an element is drawn in its frame, and whether it is visible.
func (e *element) place(d *domsnapshot.Document, from *domsnapshot.Snapshot, layout int, frame element) {
	style := func(n int) string { return from.Text(at(at(d.Layout.Styles, layout), n)) }
	if v, err := strconv.ParseFloat(style(styleOpacity), 64); err == nil {
		e.opacity *= v
	}
	e.position, e.passes = style(stylePosition), style(stylePointer) == "none"
	overflow := style(styleOverflow)
	e.cuts = overflow != "" && overflow != "visible" && e.tag != "html" && e.tag != "body"
	e.order = append(slices.Clone(frame.order), at(d.Layout.PaintOrders, layout))
	if e.position == "fixed" { // only its frame cuts it off
		e.clip = frame.clip.and(frame.full)
	}
	if b := at(d.Layout.Bounds, layout); len(b) == 4 {
		e.full = box{frame.full.x + b[0] - d.ScrollX, frame.full.y + b[1] - d.ScrollY, b[2], b[3]}
	}
	e.box = e.full.and(e.clip)
	// Nobody can scroll to what lies before the beginning of a document.
	if x, y := e.full.x-frame.full.x+d.ScrollX, e.full.y-frame.full.y+d.ScrollY; !e.rtl && x+e.full.w <= 0 || y+e.full.h <= 0 {
		e.box = box{}
	}
	e.shown = frame.shown && !e.box.empty() && style(styleVisibility) == "visible" && e.opacity > 0.05
}

// siteOf is a URL's site; empty for a URL without a host.
func siteOf(raw string) string {
	if site := findings.Site(raw); site != raw {
		return site
	}
	return ""
}
