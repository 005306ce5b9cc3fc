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

// unreadTitle stands for the title of a page of which it is not known what was typed into it.
func unreadTitle(title string) string {
	if title == "" {
		return ""
	}
	return redact.Mark
}

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

// snapshot is the result of DOMSnapshot.captureSnapshot, as far as it is used.
// Numbers other than indexes of nodes point into Strings; -1 is none.
type snapshot struct {
	Documents []document `json:"documents"`
	Strings   []string   `json:"strings"`

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

type document struct {
	Nodes struct {
		ParentIndex []int   `json:"parentIndex"`
		NodeType    []int   `json:"nodeType"`
		NodeName    []int   `json:"nodeName"`
		NodeValue   []int   `json:"nodeValue"`
		Attributes  [][]int `json:"attributes"`

		ShadowRootType       rare `json:"shadowRootType"`
		PseudoType           rare `json:"pseudoType"`
		TextValue            rare `json:"textValue"`  // of text areas: their present content
		InputValue           rare `json:"inputValue"` // of inputs: their present content
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

// editableStyle is the computed style that shows where text can be typed, whether by
// contenteditable or by designMode.
const editableStyle = "-webkit-user-modify"

// text returns the string with an index; empty if there is none.
func (s snapshot) text(i int) string {
	if i < 0 || i >= len(s.Strings) {
		return ""
	}
	return s.Strings[i]
}

// at returns an element of a list; -1 if there is none.
func at(list []int, i int) int {
	if i < 0 || i >= len(list) {
		return -1
	}
	return list[i]
}

// attributes returns the attributes of a node; nil if there is no such node.
func (s snapshot) attributes(d *document, node int) map[string]string {
	if node < 0 || node >= len(d.Nodes.Attributes) {
		return nil
	}
	list := d.Nodes.Attributes[node]
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[strings.ToLower(s.text(list[i]))] = s.text(list[i+1])
	}
	return m
}

// tree is a document whose nodes are linked to their children.
type tree struct {
	*document
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
	for node, parent := range d.Nodes.ParentIndex {
		if parent >= 0 && parent < node && t.editable[parent] || isEditable(s.attributes(d, node)) {
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
		for _, value := range t.Nodes.TextValue.byNode() {
			texts.add(s.text(value))
		}
		for node, value := range t.Nodes.InputValue.byNode() {
			texts.addField(strings.ToLower(s.attributes(t.document, node)["type"]), s.text(value))
		}
		for node := range t.editable {
			if at(t.Nodes.NodeType, node) == textNode {
				texts.add(s.text(at(t.Nodes.NodeValue, node)))
			}
		}
	}
	for _, field := range s.Typed {
		texts.addField(field[0], field[1])
	}
	return texts.replacer()
}
