package site

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// document is an answer in HTML, as it came: no script has run.
type document struct{ root *html.Node }

func parseHTML(body []byte) (document, error) {
	root, err := html.Parse(bytes.NewReader(body))
	if err != nil {
		return document{}, errors.New("the answer is no HTML")
	}
	return document{root}, nil
}

// compound is one part of a selector: what one element has to be.
type compound struct {
	tag   string
	attrs []attribute
}

type attribute struct {
	name, value string
	word        bool // the value is one of the words
	any         bool // any value
}

// selectorPart is what a compound consists of.
var selectorPart = regexp.MustCompile(`^(?:([A-Za-z][A-Za-z0-9-]*|\*)|#([A-Za-z_][\w-]*)|\.([A-Za-z_][\w-]*)|\[([A-Za-z_][\w:-]*)(?:=(?:"([^"]*)"|'([^']*)'|([\w-]+)))?\])`)

// parseSelector reads a selector: compounds of a tag, #id, .class and [name=value], each within the
// one before.
func parseSelector(text string) (all []compound, err error) {
	for _, word := range strings.Fields(text) {
		var c compound
		for rest := word; rest != ""; {
			m := selectorPart.FindStringSubmatch(rest)
			if m == nil || m[1] != "" && rest != word {
				return nil, fmt.Errorf("%q: want elements by tag, #id, .class or [name=value], such as #unread or div.cart b", text)
			}
			switch rest = rest[len(m[0]):]; {
			case m[1] != "":
				c.tag = strings.TrimPrefix(strings.ToLower(m[1]), "*")
			case m[2] != "":
				c.attrs = append(c.attrs, attribute{name: "id", value: m[2]})
			case m[3] != "":
				c.attrs = append(c.attrs, attribute{name: "class", value: m[3], word: true})
			default:
				c.attrs = append(c.attrs, attribute{name: strings.ToLower(m[4]), value: m[5] + m[6] + m[7], any: !strings.Contains(m[0], "=")})
			}
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("want a selector, such as #unread")
	}
	return all, nil
}

func (c compound) is(n *html.Node) bool {
	if n.Type != html.ElementNode || c.tag != "" && c.tag != n.Data {
		return false
	}
	return !slices.ContainsFunc(c.attrs, func(a attribute) bool {
		return !slices.ContainsFunc(n.Attr, func(have html.Attribute) bool {
			return have.Key == a.name && (a.any || have.Val == a.value || a.word && slices.Contains(strings.Fields(have.Val), a.value))
		})
	})
}

// text is the text of the elements that a selector selects; found tells whether there are any.
func (d document) text(selector string) (text string, found bool) {
	all, err := parseSelector(selector) // Check has parsed it
	if err != nil {
		return "", false
	}
	var b strings.Builder
	for n := range d.root.Descendants() {
		if !all[len(all)-1].is(n) || !inside(n.Parent, all[:len(all)-1]) {
			continue
		}
		found = true
		for inner := range n.Descendants() {
			if inner.Type == html.TextNode {
				b.WriteString(inner.Data + " ")
			}
		}
	}
	return strings.Join(strings.Fields(b.String()), " "), found
}

// inside tells whether a node is in elements that the compounds select, in their order.
func inside(n *html.Node, all []compound) bool {
	for ; n != nil && len(all) > 0; n = n.Parent {
		if all[len(all)-1].is(n) {
			all = all[:len(all)-1]
		}
	}
	return len(all) == 0
}
