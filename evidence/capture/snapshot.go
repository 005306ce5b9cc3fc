package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"leasehold/evidence/redact"
	"leasehold/internal/domsnapshot"
)

// dom is a redacted snapshot of a page as HTML, or the reason why there is none.
type dom struct {
	html    []byte
	missing string
	// hideTyped removes from the page's title what was typed into the page.
	hideTyped func(title string) string
}

func (p pageCapture) dom(ctx context.Context) dom {
	d := dom{hideTyped: unreadTitle}
	s, err := p.snapshot(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		d.missing = fmt.Sprintf("the page did not answer within %v", p.limits.Part)
	case err != nil:
		d.missing = "Chrome gave no snapshot: " + err.Error()
	case len(s.Documents) == 0:
		d.missing = "the snapshot is empty"
	default:
		text, typed := s.html(p.limits.DOMBytes)
		d.html, d.hideTyped = []byte(text), typed.Replace
		if s.structureOnly {
			d.hideTyped = unreadTitle
		}
	}
	return d
}

// unreadTitle leaves out the title of a page of which it is not known what was typed into it.
func unreadTitle(string) string { return "" }

// snapshot asks for a snapshot of the page, or of the beginning of a large one.
func (p pageCapture) snapshot(ctx context.Context) (s snapshot, err error) {
	frames, large, err := p.measure(ctx)
	switch {
	case err != nil:
		return s, err
	case large != "":
		s, err = p.beginning(ctx, frames)
		s.large = large
		return s, err
	}
	params := map[string]any{"computedStyles": []string{editableStyle}}
	err = p.call(ctx, p.page.SessionID, "DOMSnapshot.captureSnapshot", params, &s)
	return s, err
}

// snapshot is Chrome's answer.
type snapshot struct {
	domsnapshot.Snapshot

	// The other fields are for a large page, of which this is only the beginning. large says
	// why the page is large; empty for other pages.
	large string
	// Typed are the texts in fields anywhere in the page, each with the type of its
	// field; "" is something editable.
	Typed [][2]string `json:"typed"`
	// Truncated says that nodes of the beginning itself were left out.
	Truncated bool `json:"truncated"`
	// structureOnly says that not all typed text is known: none of the page's texts may be
	// written.
	structureOnly bool
}

// editableStyle is the computed style that shows where text can be typed, whether by
// contenteditable or by designMode.
const editableStyle = "-webkit-user-modify"

// at returns an element of a list; -1 if there is none.
func at(list []int, i int) int {
	if i < 0 || i >= len(list) {
		return -1
	}
	return list[i]
}

// tree is a document whose nodes are linked to their children.
type tree struct {
	*domsnapshot.Document
	roots    []int
	children map[int][]int
	shadow   map[int]int // types of shadow roots, by node
	pseudo   map[int]int // types of pseudo elements, by node
	frames   map[int]int // documents of frames, by node
	editable map[int]bool
}

// tree links the nodes of a document. Parents come before their children in a snapshot. A node
// for which that is not so is left out, so that there are no cycles.
func (s snapshot) tree(i int) tree {
	d := &s.Documents[i]
	t := tree{
		Document: d, children: map[int][]int{}, editable: map[int]bool{},
		shadow: d.Nodes.ShadowRootType.ByNode(), pseudo: d.Nodes.PseudoType.ByNode(),
		frames: d.Nodes.ContentDocumentIndex.ByNode(),
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
		if j < len(d.Layout.Styles) && strings.HasPrefix(s.Text(at(d.Layout.Styles[j], 0)), "read-write") {
			t.editable[node] = true
		}
	}
	for node, parent := range d.Nodes.ParentIndex {
		if parent >= 0 && parent < node && t.editable[parent] || isEditable(s.Attributes(d, node)) {
			t.editable[node] = true
		}
	}
	return t
}

// isEditable tells whether attributes say that an element's text can be typed.
func isEditable(attributes map[string]string) bool {
	if v, ok := attributes["contenteditable"]; ok && !strings.EqualFold(v, "false") {
		return true
	}
	return strings.EqualFold(attributes["role"], "textbox") || strings.EqualFold(attributes["role"], "searchbox")
}

// typedTexts collects what is in fields and editable elements, and replaces it in other texts.
type typedTexts map[string]bool

// minTypedChars is the length from which on typed text is searched for outside its field.
// Replacing shorter texts would tear words apart.
const minTypedChars = 4

// minHiddenBytes is the length from which on the value of a hidden field counts as typed.
// Nobody types into such a field: a shorter value is a flag or a number, and no secret.
const minHiddenBytes = 16

// untypedInputs are the inputs whose value nobody typed: it is their label, or the same for
// everybody.
var untypedInputs = map[string]bool{"button": true, "submit": true, "reset": true, "image": true, "checkbox": true, "radio": true}

// add adds a text, and each of its lines.
func (t typedTexts) add(text string) {
	for _, line := range append(strings.Split(text, "\n"), text) {
		if line = strings.TrimSpace(line); utf8.RuneCountInString(line) >= minTypedChars {
			t[line] = true
		}
	}
}

func (t typedTexts) addField(inputType, text string) {
	if !untypedInputs[inputType] && (inputType != "hidden" || len(text) >= minHiddenBytes) {
		t.add(text)
	}
}

// replacer replaces the texts by redact.Mark, the longest first.
func (t typedTexts) replacer() *strings.Replacer {
	var texts []string
	for text := range t {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var pairs []string
	for _, text := range texts {
		pairs = append(pairs, text, redact.Mark)
	}
	return strings.NewReplacer(pairs...)
}

// typed returns a function that replaces typed text in any text about the page.
func (s snapshot) typed(trees []tree) *strings.Replacer {
	texts := typedTexts{}
	for _, t := range trees {
		for _, value := range t.Nodes.TextValue.ByNode() {
			texts.add(s.Text(value))
		}
		for node, value := range t.Nodes.InputValue.ByNode() {
			texts.addField(strings.ToLower(s.Attributes(t.Document, node)["type"]), s.Text(value))
		}
		for node := range t.editable {
			if at(t.Nodes.NodeType, node) == textNode {
				texts.add(s.Text(at(t.Nodes.NodeValue, node)))
			}
		}
	}
	for _, field := range s.Typed {
		texts.addField(field[0], field[1])
	}
	return texts.replacer()
}
