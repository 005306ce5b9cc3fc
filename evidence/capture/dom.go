package capture

import (
	"cmp"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"leasehold/evidence/redact"
)

// snapshot is the result of DOMSnapshot.captureSnapshot, as far as it is used.
// Numbers other than indexes of nodes point into Strings; -1 is none.
type snapshot struct {
	Documents []document `json:"documents"`
	Strings   []string   `json:"strings"`

	// Of a page that is too large, beside its beginning: what is in fields anywhere
	// in it, each with the kind of its field ("" is something editable), and why
	// there is no more.
	Typed [][2]string `json:"typed"`
	Full  bool        `json:"full"`
	why   string
	// bare says that not all of what was typed is known: no text may be written.
	bare bool
}

type document struct {
	DocumentURL int `json:"documentURL"`
	Nodes       struct {
		ParentIndex []int   `json:"parentIndex"`
		NodeType    []int   `json:"nodeType"`
		NodeName    []int   `json:"nodeName"`
		NodeValue   []int   `json:"nodeValue"`
		Attributes  [][]int `json:"attributes"`

		ShadowRootType       rare `json:"shadowRootType"`
		PseudoType           rare `json:"pseudoType"`
		TextValue            rare `json:"textValue"`  // of text areas, live
		InputValue           rare `json:"inputValue"` // of inputs, live
		ContentDocumentIndex rare `json:"contentDocumentIndex"`
	} `json:"nodes"`
	Layout struct {
		NodeIndex []int   `json:"nodeIndex"`
		Styles    [][]int `json:"styles"`
	} `json:"layout"`
}

// rare is a value that few nodes have: Value[i] belongs to the node Index[i].
type rare struct {
	Index []int `json:"index"`
	Value []int `json:"value"`
}

func (r rare) byNode() map[int]int {
	m := make(map[int]int, len(r.Index))
	for i, node := range r.Index {
		if i < len(r.Value) {
			m[node] = r.Value[i]
		}
	}
	return m
}

// editableStyle is the computed style that tells where text can be typed,
// contenteditable and designMode alike.
const editableStyle = "-webkit-user-modify"

// redact writes the snapshot as HTML that shows the structure and the text of the
// page and of its frames. It is made from a list of what may be in it, not by
// taking things out: elements without scripts, styles and templates, a few harmless
// attributes, redacted URLs, and the text that is neither in a field nor in
// something editable. What was typed (four characters or more) is replaced
// wherever else the page repeats it. The result is at most a little longer than
// limit bytes, runs nothing and loads nothing. The replacer takes what was typed
// out of other texts about the page.
func (s snapshot) redact(limit int) (string, *strings.Replacer) {
	w := domWriter{s: s, limit: limit, done: map[int]bool{}}
	for i := range s.Documents {
		w.docs = append(w.docs, s.tree(i))
	}
	w.scrub = s.typed(w.docs)
	w.out.WriteString(`<!DOCTYPE html><meta charset="utf-8">` +
		`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; form-action 'none'; base-uri 'none'">` +
		"\n<!-- structure and text only: field values, typed text, scripts and styles were left out -->\n")
	if s.why != "" {
		fmt.Fprintf(&w.out, "<!-- the page is large (%s): only its beginning is here, without its frames and long texts -->\n", s.why)
	}
	if s.bare {
		w.out.WriteString("<!-- its fields hold more text than is looked for: no text is here, nor any attribute but types -->\n")
	}
	if len(s.Documents) > 0 {
		w.document(0, 0)
	}
	if w.full || s.Full {
		fmt.Fprintf(&w.out, "\n<!-- cut off at %d bytes -->\n", limit)
	}
	return w.out.String(), w.scrub
}

func (s snapshot) text(i int) string {
	if i < 0 || i >= len(s.Strings) {
		return ""
	}
	return s.Strings[i]
}

func at(list []int, i int) int {
	if i < 0 || i >= len(list) {
		return -1
	}
	return list[i]
}

// tree is a document with its nodes linked downwards.
type tree struct {
	*document
	children map[int][]int
	roots    []int
	shadow   map[int]int
	pseudo   map[int]int
	frames   map[int]int // documents of frames, by node
	editable map[int]bool
}

// tree links the nodes of a document. Parents come before their children in a
// snapshot; a node that claims otherwise is left out, so that there are no rings.
func (s snapshot) tree(i int) tree {
	d := &s.Documents[i]
	t := tree{
		document: d, children: map[int][]int{}, editable: map[int]bool{},
		shadow: d.Nodes.ShadowRootType.byNode(), pseudo: d.Nodes.PseudoType.byNode(),
		frames: d.Nodes.ContentDocumentIndex.byNode(),
	}
	for node, parent := range d.Nodes.ParentIndex {
		switch {
		case parent < 0:
			t.roots = append(t.roots, node)
		case parent < node:
			t.children[parent] = append(t.children[parent], node)
		}
	}
	for j, node := range d.Layout.NodeIndex {
		if j < len(d.Layout.Styles) && strings.HasPrefix(s.text(at(d.Layout.Styles[j], 0)), "read-write") {
			t.editable[node] = true
		}
	}
	for node := range d.Nodes.ParentIndex {
		parent := d.Nodes.ParentIndex[node]
		if parent >= 0 && parent < node && t.editable[parent] || s.saysEditable(s.attributes(d, node)) {
			t.editable[node] = true
		}
	}
	return t
}

func (s snapshot) saysEditable(attributes map[string]string) bool {
	if v, ok := attributes["contenteditable"]; ok && !strings.EqualFold(v, "false") {
		return true
	}
	return strings.EqualFold(attributes["role"], "textbox") || strings.EqualFold(attributes["role"], "searchbox")
}

func (s snapshot) attributes(d *document, node int) map[string]string {
	if node >= len(d.Nodes.Attributes) {
		return nil
	}
	list := d.Nodes.Attributes[node]
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[strings.ToLower(s.text(list[i]))] = s.text(list[i+1])
	}
	return m
}

// buttons are the inputs whose value is no secret of the user's: it is their
// label, or the same for everybody.
var buttons = map[string]bool{"button": true, "submit": true, "reset": true, "image": true, "checkbox": true, "radio": true}

// shortest is the length, in characters, from which typed text is looked for
// outside of its field. Shorter ones would take apart every word.
const shortest = 4

// secretLength is the same for hidden fields, which nobody types into: what is
// shorter is a flag or a number and no secret.
const secretLength = 16

// typed collects what fields and editable elements hold into a replacer that
// takes it out of any text, the longest first.
func (s snapshot) typed(docs []tree) *strings.Replacer {
	found := map[string]bool{}
	add := func(text string) {
		for _, line := range append(strings.Split(text, "\n"), text) {
			if line = strings.TrimSpace(line); utf8.RuneCountInString(line) >= shortest {
				found[line] = true
			}
		}
	}
	addField := func(kind, text string) {
		if !buttons[kind] && (kind != "hidden" || len(text) >= secretLength) {
			add(text)
		}
	}
	for _, t := range docs {
		for _, value := range t.Nodes.TextValue.byNode() {
			add(s.text(value))
		}
		for node, value := range t.Nodes.InputValue.byNode() {
			addField(strings.ToLower(s.attributes(t.document, node)["type"]), s.text(value))
		}
		for node := range t.editable {
			if at(t.Nodes.NodeType, node) == textNode {
				add(s.text(at(t.Nodes.NodeValue, node)))
			}
		}
	}
	for _, field := range s.Typed {
		addField(field[0], field[1])
	}
	var texts []string
	for text := range found {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var pairs []string
	for _, text := range texts {
		pairs = append(pairs, text, redact.Mark)
	}
	return strings.NewReplacer(pairs...)
}

// Node types of the DOM.
const (
	elementNode  = 1
	textNode     = 3
	documentNode = 9
	fragmentNode = 11
)

// The elements that are not written as they are.
var (
	leftOut = map[string]bool{
		"script": true, "style": true, "noscript": true, "template": true, "object": true, "embed": true, "applet": true,
		"meta": true, "link": true, "base": true, "param": true, "source": true, "track": true, "noembed": true, "noframes": true,
	}
	// fields are written without what is in them.
	fields = map[string]bool{"input": true, "textarea": true}
	// void elements have no end.
	void = map[string]bool{"area": true, "br": true, "col": true, "hr": true, "img": true, "input": true, "wbr": true}
	// renamed are elements that a parser reads in a way of its own.
	renamed = map[string]string{
		"iframe": "section", "frame": "section", "frameset": "section", "fencedframe": "section",
		"plaintext": "pre", "xmp": "pre", "listing": "pre", "image": "span",
	}
	shown = map[string]bool{
		"id": true, "class": true, "name": true, "type": true, "role": true, "alt": true, "title": true, "placeholder": true,
		"for": true, "rel": true, "target": true, "lang": true, "dir": true, "method": true, "autocomplete": true,
		"contenteditable": true, "checked": true, "disabled": true, "selected": true, "readonly": true, "required": true,
		"hidden": true, "open": true, "colspan": true, "rowspan": true, "aria-label": true, "aria-labelledby": true,
		"aria-describedby": true, "aria-hidden": true, "aria-expanded": true, "aria-disabled": true, "aria-checked": true,
		"aria-selected": true, "aria-invalid": true, "aria-live": true,
	}
	shownURLs   = map[string]bool{"href": true, "src": true, "action": true, "formaction": true}
	elementName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,60}$`)
)

// deepestNode bounds how far elements may be nested.
const deepestNode = 1000

type domWriter struct {
	s     snapshot
	docs  []tree
	scrub *strings.Replacer
	limit int
	full  bool
	done  map[int]bool // documents written
	out   strings.Builder
}

func (w *domWriter) write(text string) {
	if w.full = w.full || w.out.Len()+len(text) > w.limit; !w.full {
		w.out.WriteString(text)
	}
}

func (w *domWriter) document(i, depth int) {
	if i < 0 || i >= len(w.docs) || w.done[i] {
		return
	}
	w.done[i] = true
	for _, root := range w.docs[i].roots {
		w.node(w.docs[i], root, depth)
	}
}

func (w *domWriter) node(t tree, node, depth int) {
	if depth > deepestNode {
		w.write("<!-- nested too deeply -->")
		return
	}
	if w.full {
		return
	}
	if _, pseudo := t.pseudo[node]; pseudo {
		return
	}
	switch at(t.Nodes.NodeType, node) {
	case textNode:
		if !t.editable[node] && !w.s.bare {
			w.write(html.EscapeString(w.scrub.Replace(w.s.text(at(t.Nodes.NodeValue, node)))))
		}
	case documentNode:
		w.children(t, node, depth)
	case fragmentNode:
		// The browser's own shadow trees hold what fields show.
		if kind, ok := t.shadow[node]; ok && w.s.text(kind) != "user-agent" {
			w.children(t, node, depth)
		}
	case elementNode:
		w.element(t, node, depth)
	}
}

func (w *domWriter) children(t tree, node, depth int) {
	for _, child := range t.children[node] {
		w.node(t, child, depth+1)
	}
}

func (w *domWriter) element(t tree, node, depth int) {
	name := strings.ToLower(w.s.text(at(t.Nodes.NodeName, node)))
	if leftOut[name] {
		return
	}
	w.write("<" + w.tag(name) + w.visible(w.s.attributes(t.document, node)) + ">")
	if void[name] {
		return
	}
	if !fields[name] {
		w.children(t, node, depth)
		if frame, ok := t.frames[node]; ok {
			w.document(frame, depth+1)
		}
	}
	w.write("</" + w.tag(name) + ">")
}

func (w *domWriter) tag(name string) string {
	if other, ok := renamed[name]; ok {
		return other
	}
	if !elementName.MatchString(name) {
		return "span"
	}
	return name
}

func (w *domWriter) visible(attributes map[string]string) string {
	var names []string
	for name := range attributes {
		if name == "type" && shown[name] || !w.s.bare && (shown[name] || shownURLs[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out strings.Builder
	for _, name := range names {
		value := attributes[name]
		if shownURLs[name] {
			value = redact.URL(value)
		}
		fmt.Fprintf(&out, ` %s="%s"`, name, html.EscapeString(w.scrub.Replace(value)))
	}
	return out.String()
}
