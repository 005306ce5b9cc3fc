package shape

import (
	"encoding/json"
	"io"
	"mime/multipart"
	"net/url"
	"strconv"
	"strings"
)

// Fields are the names in a request's query and body, with their values. A name within JSON has the
// names around it: variables.id, or items[0].id.
type Fields struct {
	fields []field
	// Whole says that there are no others.
	Whole bool
}

type field struct {
	name, value string
	scalar      bool // value is the whole value, as a text
}

// maxFields bounds how many fields are kept.
const maxFields = 2000

// FieldsOf returns the fields of a request.
func FieldsOf(r Request) Fields {
	f := Fields{Whole: r.Whole && len(r.Body) <= maxBody}
	if u, err := url.Parse(r.URL); err == nil && r.Method != Websocket {
		f.pairs(u.RawQuery)
	}
	if !f.Whole || r.Body == "" {
		return f
	}
	media, boundary := contentType(r.Headers)
	kind := kindOf(media)
	switch v, isJSON := parse(r.Body); {
	case isJSON:
		f.Whole = f.Whole && kind != "form" // a server may find other names in it
		f.flatten("", v)
	case kind == "form":
		f.pairs(r.Body)
	case kind == "multipart":
		f.parts(r.Body, boundary)
	default:
		f.Whole = false
	}
	return f
}

func (f *Fields) add(name, value string, scalar bool) {
	if len(f.fields) >= maxFields {
		f.Whole = false
		return
	}
	f.fields = append(f.fields, field{name, value, scalar})
}

// pairs takes in a query, or a form.
func (f *Fields) pairs(raw string) {
	for pair := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if pair == "" {
			continue
		}
		n, bad := url.QueryUnescape(name)
		v, worse := url.QueryUnescape(value)
		if bad != nil || worse != nil || strings.Contains(pair, ";") { // a separator, to some servers
			f.Whole = false
			continue
		}
		f.add(n, v, true)
	}
}

func (f *Fields) parts(body, boundary string) {
	if boundary == "" || len(boundary) > 70 {
		f.Whole = false
		return
	}
	for r := multipart.NewReader(strings.NewReader(body), boundary); ; {
		p, err := r.NextRawPart()
		if err != nil {
			f.Whole = f.Whole && err == io.EOF
			return
		}
		b, err := io.ReadAll(p)
		f.add(p.FormName(), string(b), err == nil && p.FileName() == "")
	}
}

func (f *Fields) flatten(name string, v value) {
	for i, e := range v.list {
		f.flatten(name+"["+strconv.Itoa(i)+"]", e)
	}
	for _, m := range v.object {
		f.flatten(strings.TrimPrefix(name+"."+m.name, "."), m.value)
	}
	if name == "" {
		return
	}
	switch s := v.scalar.(type) {
	case string:
		f.add(name, s, true)
	case json.Number:
		f.add(name, s.String(), true)
	case bool:
		f.add(name, strconv.FormatBool(s), true)
	default:
		f.add(name, "", false)
	}
}

// QueryOf returns all fields that any server may find in a query: to some a ; separates them, too, and what
// cannot be unescaped stays as it is.
func QueryOf(raw string) (f Fields) {
	for pair := range strings.SplitSeq(raw, "&") {
		parts := []string{pair}
		if strings.Contains(pair, ";") {
			parts = append(parts, strings.Split(pair, ";")...)
		}
		for _, part := range parts {
			name, value, _ := strings.Cut(part, "=")
			f.add(unescaped(name), unescaped(value), true)
		}
	}
	return f
}

// Values returns the values of all fields that a site may take for the one of this name: servers
// differ in whether capitals, brackets and dots in names mean something. one tells whether there is
// exactly one, and it has this name and a value.
func (f Fields) Values(name string) (values []string, one bool) {
	name = strings.TrimPrefix(name, "$.")
	whole := strings.Contains(name, "[")
	want := plainest(name, whole)
	for _, have := range f.fields {
		if plainest(have.name, whole) == want {
			values = append(values, have.value)
			one = have.name == name && have.scalar
		}
	}
	return values, one && len(values) == 1
}

// plainest is what the most generous server makes of a name.
func plainest(name string, whole bool) string {
	if !whole {
		name, _, _ = strings.Cut(name, "[")
	}
	return underscores.Replace(strings.ToLower(strings.TrimSpace(name)))
}

var underscores = strings.NewReplacer(".", "_", " ", "_")
