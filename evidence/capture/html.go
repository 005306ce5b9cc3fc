package capture

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"

	"leasehold/evidence/redact"
)

// html writes the snapshot as HTML that shows the structure and the text of the page and of its
// frames. It only writes what is on lists of allowed things: elements without scripts, styles
// and templates, a few harmless attributes, redacted URLs, and text that is neither in a field
// nor in something editable. Typed text of four characters or more is replaced wherever else
// the page repeats it. The result is at most a little longer than limit bytes, runs nothing and
// loads nothing. typed removes typed text from other texts about the page.
func (s snapshot) html(limit int) (content string, typed *strings.Replacer) {
	w := htmlWriter{snapshot: s, limit: limit, written: map[int]bool{}}
	for i := range s.Documents {
		w.trees = append(w.trees, s.tree(i))
	}
	w.typed = s.typed(w.trees)
	w.out.WriteString(`<!DOCTYPE html><meta charset="utf-8">` +
		`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; form-action 'none'; base-uri 'none'">` +
		"\n<!-- structure and text only: field values, typed text, scripts and styles were left out -->\n")
	if s.large != "" {
		fmt.Fprintf(&w.out, "<!-- the page is large (%s): only its beginning is here, without its frames and long texts -->\n", s.large)
	}
	if s.structureOnly {
		w.out.WriteString("<!-- its fields hold more text than is looked for: no text is here, nor any attribute but types -->\n")
	}
	if len(s.Documents) > 0 {
		w.document(0, 0)
	}
	if w.full || s.Truncated {
		fmt.Fprintf(&w.out, "\n<!-- cut off at %d bytes -->\n", limit)
	}
	return w.out.String(), w.typed
}

// Node types of the DOM.
const (
	elementNode  = 1
	textNode     = 3
	documentNode = 9
	fragmentNode = 11
)

// Which elements and attributes are written, and how.
var (
	// skippedElements are left out with everything in them.
	skippedElements = map[string]bool{
		"script": true, "style": true, "noscript": true, "template": true, "object": true, "embed": true, "applet": true,
		"meta": true, "link": true, "base": true, "param": true, "source": true, "track": true, "noembed": true, "noframes": true,
	}
	// fieldElements are written without their content.
	fieldElements = map[string]bool{"input": true, "textarea": true}
	// voidElements have no end tag.
	voidElements = map[string]bool{"area": true, "br": true, "col": true, "hr": true, "img": true, "input": true, "wbr": true}
	// renamedElements are elements that a parser treats specially, with the names that are
	// written instead.
	renamedElements = map[string]string{
		"iframe": "section", "frame": "section", "frameset": "section", "fencedframe": "section",
		"plaintext": "pre", "xmp": "pre", "listing": "pre", "image": "span",
	}
	elementName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,60}$`)

	textAttributes = map[string]bool{
		"id": true, "class": true, "name": true, "type": true, "role": true, "alt": true, "title": true, "placeholder": true,
		"for": true, "rel": true, "target": true, "lang": true, "dir": true, "method": true, "autocomplete": true,
		"contenteditable": true, "checked": true, "disabled": true, "selected": true, "readonly": true, "required": true,
		"hidden": true, "open": true, "colspan": true, "rowspan": true, "aria-label": true, "aria-labelledby": true,
		"aria-describedby": true, "aria-hidden": true, "aria-expanded": true, "aria-disabled": true, "aria-checked": true,
		"aria-selected": true, "aria-invalid": true, "aria-live": true,
	}
	urlAttributes = map[string]bool{"href": true, "src": true, "action": true, "formaction": true}
)

// maxDepth bounds how deeply nodes may be nested.
const maxDepth = 1000

// htmlWriter writes documents of a snapshot. When the limit is reached it is full, and writes
// nothing more.
type htmlWriter struct {
	snapshot snapshot
	trees    []tree
	typed    *strings.Replacer
	limit    int
	full     bool
	written  map[int]bool // documents
	out      strings.Builder
}

func (w *htmlWriter) write(text string) {
	if w.full = w.full || w.out.Len()+len(text) > w.limit; !w.full {
		w.out.WriteString(text)
	}
}

func (w *htmlWriter) document(i, depth int) {
	if i < 0 || i >= len(w.trees) || w.written[i] {
		return
	}
	w.written[i] = true
	for _, root := range w.trees[i].roots {
		w.node(w.trees[i], root, depth)
	}
}

func (w *htmlWriter) node(t tree, node, depth int) {
	if depth > maxDepth {
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
		if !t.editable[node] && !w.snapshot.structureOnly {
			w.write(html.EscapeString(w.typed.Replace(w.snapshot.Text(at(t.Nodes.NodeValue, node)))))
		}
	case documentNode:
		w.children(t, node, depth)
	case fragmentNode:
		// The browser's own shadow trees contain what fields show.
		if kind, ok := t.shadow[node]; ok && kind >= 0 && w.snapshot.Text(kind) != "user-agent" {
			w.children(t, node, depth)
		}
	case elementNode:
		w.element(t, node, depth)
	}
}

func (w *htmlWriter) children(t tree, node, depth int) {
	for _, child := range t.children[node] {
		w.node(t, child, depth+1)
	}
}

func (w *htmlWriter) element(t tree, node, depth int) {
	name := strings.ToLower(w.snapshot.Text(at(t.Nodes.NodeName, node)))
	if skippedElements[name] {
		return
	}
	tag := tagName(name)
	w.write("<" + tag + w.attributes(w.snapshot.Attributes(t.Document, node)) + ">")
	if voidElements[name] {
		return
	}
	if !fieldElements[name] {
		w.children(t, node, depth)
		if frame, ok := t.frames[node]; ok {
			w.document(frame, depth+1)
		}
	}
	w.write("</" + tag + ">")
}

func tagName(element string) string {
	if other, ok := renamedElements[element]; ok {
		return other
	}
	if !elementName.MatchString(element) {
		return "span"
	}
	return element
}

// attributes returns the attributes that are written, sorted, with a space before
// each.
func (w *htmlWriter) attributes(all map[string]string) string {
	var names []string
	for name := range all {
		if name == "type" || !w.snapshot.structureOnly && (textAttributes[name] || urlAttributes[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out strings.Builder
	for _, name := range names {
		value := all[name]
		if urlAttributes[name] {
			value = redact.URL(value)
		}
		fmt.Fprintf(&out, ` %s="%s"`, name, html.EscapeString(w.typed.Replace(value)))
	}
	return out.String()
}
