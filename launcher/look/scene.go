package look

import (
	"slices"
	"strings"
)

// within tells whether an element is the other one, or inside it.
func (s *scene) within(i, outer int) bool {
	return outer >= 0 && i >= outer && i <= s.last[outer]
}

// each calls f with an element and every element inside it; with -1, with all elements.
func (s *scene) each(outer int, f func(i int, e *element)) {
	from, to := 0, len(s.elements)-1
	if outer >= 0 {
		from, to = outer, s.last[outer]
	}
	for i := from; i <= to; i++ {
		f(i, &s.elements[i])
	}
}

// topAt is the element that is above all others at a position and receives the pointer; -1 if
// there is none.
func (s *scene) topAt(x, y float64) int {
	top := -1
	for i := range s.elements {
		e := &s.elements[i]
		if e.shown && !e.passes && e.box.has(x, y) && (top < 0 || slices.Compare(e.order, s.elements[top].order) >= 0) {
			top = i
		}
	}
	return top
}

// reachable tells whether an element can be clicked at its centre, as far as it is in view. An
// element out of view may be scrolled to.
func (s *scene) reachable(i int) bool {
	seen := s.elements[i].box.and(s.view)
	if seen.empty() {
		return true
	}
	top := s.topAt(seen.center())
	return s.within(top, i) || s.within(i, top)
}

// up is the nearest of an element and its ancestors for which is returns true; -1: none.
func (s *scene) up(i int, is func(*element) bool) int {
	for ; i >= 0; i = s.elements[i].parent {
		if is(&s.elements[i]) {
			return i
		}
	}
	return -1
}

// aside tells whether an element belongs to what pages have besides their content: a header, a
// navigation, a column at the side, a footer, a search.
func (s *scene) aside(i int) bool {
	return s.up(i, func(e *element) bool {
		switch e.tag {
		case "header", "nav", "footer", "aside", "search":
			return true
		}
		switch e.attr("role") {
		case "banner", "navigation", "contentinfo", "complementary", "search":
			return true
		}
		return false
	}) >= 0
}

// formOf is the form that contains an element; if there is none, the dialog; else the root of
// its document.
func (s *scene) formOf(i int) int {
	form := s.up(i, func(e *element) bool { return e.tag == "form" || e.attr("role") == "form" })
	if form < 0 {
		form = s.up(i, func(e *element) bool { return e.tag == "dialog" || isDialog(e) })
	}
	if form < 0 {
		form = s.up(i, func(e *element) bool { return e.tag == "html" || e.parent < 0 })
	}
	return form
}

func isDialog(e *element) bool { r := e.attr("role"); return r == "dialog" || r == "alertdialog" }

// isModal tells whether an element says that nothing else can be used, or is in the browser's
// top layer.
func isModal(e *element) bool {
	return e.attr("aria-modal") == "true" || e.attr("role") == "alertdialog" || e.tag == "dialog" && e.position == "fixed"
}

func floats(e *element) bool { return e.position == "fixed" || e.position == "absolute" }

func enabled(e *element) bool {
	return !e.has("disabled") && !e.has("readonly") && e.attr("aria-disabled") != "true" && e.attr("aria-readonly") != "true"
}

// inputType is the type of an input, "" for other elements.
func inputType(e *element) string {
	if e.tag != "input" {
		return ""
	}
	if t := e.attr("type"); t != "" {
		return t
	}
	return "text"
}

func isButton(e *element) bool {
	switch inputType(e) {
	case "submit", "button", "image", "reset":
		return true
	}
	return e.tag == "button" || e.attr("role") == "button"
}

func isLink(e *element) bool { return e.tag == "a" && e.has("href") || e.attr("role") == "link" }

// isCheckbox tells whether an element is a box to tick. Some boxes are transparent, below an
// element that draws them.
func isCheckbox(e *element) bool {
	return inputType(e) == "checkbox" || e.attr("role") == "checkbox" || e.attr("role") == "switch"
}

func isChecked(e *element) bool { return e.checked || e.attr("aria-checked") == "true" }

// isTextField tells whether something can be typed into an element.
func isTextField(e *element) bool {
	switch inputType(e) {
	case "text", "email", "tel", "url", "number", "search", "password", "date", "datetime-local", "month", "week", "time":
		return true
	case "":
	default:
		return false
	}
	if v, ok := e.attrs["contenteditable"]; ok && !strings.EqualFold(v, "false") {
		return true
	}
	return e.tag == "textarea" || e.attr("role") == "textbox" || e.attr("role") == "searchbox"
}

// isOther tells whether an element is a control of any other kind.
func isOther(e *element) bool {
	switch inputType(e) {
	case "radio", "file", "range", "color":
		return true
	}
	switch e.attr("role") {
	case "tab", "menuitem", "slider", "combobox", "listbox", "radio", "grid", "tree", "treeitem", "option":
		return true
	}
	return e.tag == "select"
}

// content is how much of each kind a part of a page shows.
type content struct {
	text, links, buttons, fields, unchecked, checked, others int
	items, pictures, frames, players                         int
	asks                                                     bool
	box                                                      box // area of text and controls
}

func (c content) controls() int {
	return c.links + c.buttons + c.fields + c.unchecked + c.checked + c.others
}

// measure counts what is shown inside an element (-1: in the whole page), except what skip
// returns true for.
func (s *scene) measure(outer int, skip func(i int, e *element) bool) content {
	var c content
	s.each(outer, func(i int, e *element) {
		ticked := isCheckbox(e) && !e.full.empty() // it may be transparent, below the element that draws it
		if !e.shown && !ticked || skip != nil && skip(i, e) {
			return
		}
		c.text += e.text
		c.asks = c.asks || e.asks
		switch {
		case isCheckbox(e) && isChecked(e):
			c.checked++
		case isCheckbox(e):
			c.unchecked++
		case isTextField(e):
			c.fields++
		case isButton(e):
			c.buttons++
		case isLink(e):
			c.links++
		case isOther(e):
			c.others++
		case e.tag == "li" || e.tag == "tr" || e.tag == "article" || e.attr("role") == "listitem" || e.attr("role") == "row":
			c.items++
		case e.tag == "canvas" || (e.tag == "img" || e.tag == "svg") && e.box.w >= 48*s.scale && e.box.h >= 48*s.scale:
			c.pictures++
		case e.tag == "iframe" || e.tag == "frame":
			c.frames++
		case e.tag == "video" || e.tag == "audio" || e.tag == "embed" || e.tag == "object":
			c.players++
		default:
			if e.text == 0 {
				return
			}
		}
		c.box = c.box.or(e.box)
	})
	return c
}

// bareText and bareControls are how much a page may show besides a form if the form is to count
// as the page's purpose. Headers and footers are not counted.
const (
	bareText     = 800
	bareControls = 20
	bareItems    = 12
)

// bare tells whether a page shows little outside an element (-1: none).
func (s *scene) bare(besides int) bool {
	c := s.measure(-1, func(i int, _ *element) bool { return s.within(i, besides) || s.aside(i) })
	return c.text <= bareText && c.controls() <= bareControls && c.items <= bareItems && c.players == 0
}

// central tells whether an element is where a page has its content: neither in a strip at the
// top nor at a side.
func (s *scene) central(i int) bool {
	x, y := s.elements[i].box.center()
	return x >= 0.2*s.view.w && x <= 0.8*s.view.w && y >= 0.15*s.view.h && y <= s.view.h
}

// reachSamples is how many elements are tried to find out whether a page can be used.
const reachSamples = 60

// cover is the element that lies over the middle of the page and prevents the use of the rest;
// -1 if there is none.
func (s *scene) cover() int {
	top := s.topAt(s.view.center())
	if modal := s.up(top, isModal); modal >= 0 {
		return modal
	}
	cover := -1
	for i := top; i >= 0; i = s.elements[i].parent {
		if e := &s.elements[i]; !floats(e) || e.tag == "html" || e.tag == "body" {
			continue
		}
		panel := i
		if c := s.measure(i, nil); c.controls() == 0 && c.frames == 0 { // a curtain: what is to be used is in front of it
			panel = s.before(i)
		}
		if s.blocks(i, panel) {
			cover = panel
		}
	}
	return cover
}

// before is the floating element with controls that is painted over a curtain; the curtain
// itself if there is none.
func (s *scene) before(curtain int) int {
	order := s.elements[curtain].order
	for i := range s.elements {
		e := &s.elements[i]
		if floats(e) && e.shown && !s.within(i, curtain) && !s.within(curtain, i) && slices.Compare(e.order, order) > 0 && s.measure(i, nil).controls() > 0 {
			return i
		}
	}
	return curtain
}

// blocks tells whether the page shows something outside an element, and outside the panel in
// front of it, most of which cannot be clicked.
func (s *scene) blocks(i, panel int) bool {
	var outside []int
	s.each(-1, func(j int, e *element) {
		content := e.text > 0 || isLink(e) || isButton(e) || isTextField(e)
		if content && e.shown && !s.within(j, i) && !s.within(j, panel) && !e.box.and(s.view).empty() {
			outside = append(outside, j)
		}
	})
	tried, reached := 0, 0
	for n := 0; n < len(outside); n += 1 + len(outside)/reachSamples {
		tried++
		if s.reachable(outside[n]) {
			reached++
		}
	}
	return tried > 0 && reached*5 <= tried
}

// smallControl is the largest size, in CSS pixels, of a control that closes something.
const smallControl = 72

// dismissible tells whether what covers a page can be closed: it has a small control without
// words in an upper corner.
func (s *scene) dismissible(cover int) bool {
	panel := s.measure(cover, func(_ int, e *element) bool { return e.box.w >= 0.9*s.view.w && e.box.h >= 0.9*s.view.h }).box
	found := false
	s.each(cover, func(i int, e *element) {
		if found || !e.shown || i == cover || !isButton(e) && !isLink(e) && !e.clickable {
			return
		}
		small := e.box.w <= smallControl*s.scale && e.box.h <= smallControl*s.scale
		x, y := e.box.center()
		corner := y <= panel.y+panel.h/3 && (x <= panel.x+panel.w/4 || x >= panel.x+panel.w*3/4)
		found = small && corner && s.measure(i, nil).text <= 2 && s.reachable(i)
	})
	return found
}
