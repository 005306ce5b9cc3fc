package capture

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"leasehold/internal/domsnapshot"
)

// row is a node of a snapshot.
type row struct {
	parent, nodeType int
	name, value      string
	attributes       []string // names and values in turn
}

// snap builds a snapshot of one document.
func snap(rows ...row) *snapshot {
	s := &snapshot{Snapshot: domsnapshot.Snapshot{Documents: make([]domsnapshot.Document, 1)}}
	d := &s.Documents[0]
	put := func(text string) int {
		s.Strings = append(s.Strings, text)
		return len(s.Strings) - 1
	}
	for _, r := range rows {
		d.Nodes.ParentIndex = append(d.Nodes.ParentIndex, r.parent)
		d.Nodes.NodeType = append(d.Nodes.NodeType, r.nodeType)
		d.Nodes.NodeName = append(d.Nodes.NodeName, put(r.name))
		d.Nodes.NodeValue = append(d.Nodes.NodeValue, put(r.value))
		var attributes []int
		for _, a := range r.attributes {
			attributes = append(attributes, put(a))
		}
		d.Nodes.Attributes = append(d.Nodes.Attributes, attributes)
	}
	return s
}

// rare sets a rare value of a node.
func (s *snapshot) rare(r *domsnapshot.Rare, node int, text string) *snapshot {
	s.Strings = append(s.Strings, text)
	r.Index, r.Value = append(r.Index, node), append(r.Value, len(s.Strings)-1)
	return s
}

func TestRedactSnapshot(t *testing.T) {
	root := row{-1, documentNode, "#document", "", nil}
	shadow := func(kind string) *snapshot {
		s := snap(root, row{0, elementNode, "DIV", "", nil}, row{1, fragmentNode, "#document-fragment", "", nil}, row{2, textNode, "#text", "in it", nil})
		return s.rare(&s.Documents[0].Nodes.ShadowRootType, 2, kind)
	}
	typed := func(kind, value, page string) *snapshot {
		s := snap(root, row{0, elementNode, "INPUT", "", []string{"type", kind}}, row{0, textNode, "#text", page, nil})
		return s.rare(&s.Documents[0].Nodes.InputValue, 1, value)
	}
	for _, c := range []struct {
		name string
		s    *snapshot
		want string
	}{
		{"text is escaped", snap(root, row{0, elementNode, "P", "", nil}, row{1, textNode, "#text", "<script>&", nil}), "<p>&lt;script&gt;&amp;</p>"},
		{"attributes from the list only", snap(root, row{0, elementNode, "A", "", []string{"onclick", "x", "href", "javascript:x", "id", `"><`, "value", "x", "style", "x"}}),
			`<a href="javascript:REDACTED" id="&#34;&gt;&lt;"></a>`},
		{"left out elements", snap(root, row{0, elementNode, "SCRIPT", "", nil}, row{1, textNode, "#text", "x", nil}, row{0, elementNode, "style", "", nil}), ""},
		{"strange names", snap(root, row{0, elementNode, "A B><", "", nil}, row{0, elementNode, "PLAINTEXT", "", nil}, row{0, elementNode, "X-Y", "", nil}), "<span></span><pre></pre><x-y></x-y>"},
		{"void elements", snap(root, row{0, elementNode, "BR", "", nil}, row{0, elementNode, "INPUT", "", []string{"value", "x"}}, row{2, textNode, "#text", "x", nil}), "<br><input>"},
		{"text area", snap(root, row{0, elementNode, "TEXTAREA", "", nil}, row{1, textNode, "#text", "x", nil}), "<textarea></textarea>"},
		{"comments", snap(root, row{0, 8, "#comment", "x", nil}), ""},
		{"open shadow", shadow("open"), "<div>in it</div>"},
		{"closed shadow", shadow("closed"), "<div>in it</div>"},
		{"the browser's shadow", shadow("user-agent"), "<div></div>"},
		{"nested in something editable", snap(root, row{0, elementNode, "DIV", "", []string{"contenteditable", ""}}, row{1, elementNode, "B", "", nil}, row{2, textNode, "#text", "gone", nil}, row{0, textNode, "#text", "not gone, it is REDACTED", nil}),
			`<div contenteditable=""><b></b></div>not REDACTED, it is REDACTED`},
		{"not editable", snap(root, row{0, elementNode, "DIV", "", []string{"contenteditable", "false"}}, row{1, textNode, "#text", "x", nil}), `<div contenteditable="false">x</div>`},
		{"typed text elsewhere", typed("text", " Maple Street ", "to Maple Street 5"), `<input type="text">to REDACTED 5`},
		{"short typed text", typed("text", "abc", "abc"), `<input type="text">abc`},
		{"a button's label", typed("submit", "Send now", "Send now"), `<input type="submit">Send now`},
		{"a flag in a hidden field", typed("hidden", "true", "true"), `<input type="hidden">true`},
		{"a secret in a hidden field", typed("hidden", "0123456789abcdef", "x0123456789abcdef"), `<input type="hidden">xREDACTED`},
		{"a cycle", snap(root, row{2, elementNode, "A", "", nil}, row{1, elementNode, "B", "", nil}, row{3, elementNode, "C", "", nil}), ""},
		{"no nodes", &snapshot{Snapshot: domsnapshot.Snapshot{Documents: make([]domsnapshot.Document, 1)}}, ""},
		{"no documents", &snapshot{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := c.s.html(1 << 20)
			if _, got, _ = strings.Cut(got, "-->\n"); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestRedactSnapshotIsBounded(t *testing.T) {
	wide := []row{{-1, documentNode, "#document", "", nil}}
	deep := []row{{-1, documentNode, "#document", "", nil}}
	for i := range 20_000 {
		wide = append(wide, row{0, textNode, "#text", "0123456789", nil})
		deep = append(deep, row{i, elementNode, "DIV", "", nil})
	}
	got, _ := snap(wide...).html(10_000)
	if len(got) > 10_100 || !strings.Contains(got, "cut off at 10000 bytes") {
		t.Errorf("%d bytes, which end in %q", len(got), got[len(got)-50:])
	}
	got, _ = snap(deep...).html(1 << 20)
	if !strings.Contains(got, "nested too deeply") || strings.Count(got, "<div>") != strings.Count(got, "</div>") {
		t.Errorf("%d bytes: %.100q", len(got), got)
	}
}

func FuzzRedactSnapshot(f *testing.F) {
	for _, s := range []*snapshot{
		snap(row{-1, 9, "#document", "", nil}, row{0, 1, "INPUT", "", []string{"type", "text", "value", "x"}}, row{1, 3, "#text", "x", nil}),
		snap(row{-1, 9, "", "", nil}, row{0, 1, "IFRAME", "", []string{"src", "https://u:p@a/?token=x"}}, row{0, 11, "", "", nil}),
	} {
		raw, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"documents":[{"nodes":{"parentIndex":[-1,0,-7,99],"nodeType":[9,1],"nodeName":[0,-5,99],"attributes":[[],[1]],"inputValue":{"index":[1,-1],"value":[0]},"contentDocumentIndex":{"index":[1],"value":[0]}},"layout":{"nodeIndex":[-1,9],"styles":[[0]]}}],"strings":["a"]}`))
	f.Add([]byte(`{"documents":[{"nodes":{"parentIndex":[-1],"nodeType":[9],"inputValue":{"index":[-1],"value":[0]}}}],"strings":["typed"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s snapshot
		if json.Unmarshal(raw, &s) != nil {
			return
		}
		got, _ := s.html(1 << 16)
		_, body, _ := strings.Cut(got, "-->\n")
		for _, tag := range tagText.FindAllString(body, -1) {
			name, attributes, _ := strings.Cut(strings.Trim(quoted.ReplaceAllString(tag, ""), "</>"), " ")
			for _, a := range strings.Fields(attributes) {
				if a = strings.TrimSuffix(a, "="); !textAttributes[a] && !urlAttributes[a] {
					t.Fatalf("attribute %s of %q", a, tag)
				}
			}
			if skippedElements[name] || !elementName.MatchString(name) && !strings.HasPrefix(name, "!--") {
				t.Fatalf("element %q", tag)
			}
		}
	})
}

// Quotes and angle brackets in texts are escaped, so that these match only tags and
// values.
var (
	tagText = regexp.MustCompile(`<[^>]*>`)
	quoted  = regexp.MustCompile(`"[^"]*"`)
)
