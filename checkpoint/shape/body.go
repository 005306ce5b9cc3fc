package shape

import (
	"cmp"
	"encoding/json"
	"mime/multipart"
	"slices"
	"strings"
)

// maxCollected bounds how many names of a body are looked at.
const maxCollected = 640

func body(r Request) (kind string, names, ops []string) {
	if r.Method == Websocket {
		return message(r)
	}
	media, boundary := contentType(r.Headers)
	switch {
	case r.Body == "" && r.Whole:
		return "", nil, nil
	case len(r.Body) > maxBody || !r.Whole && r.Body == "":
		return cmp.Or(kindOf(media), "body"), []string{unknown}, nil
	}
	switch kind = kindOf(media); kind {
	case "form":
		names = queryNames(r.Body, r.Show)
	case "multipart":
		names = partNames(r.Body, boundary)
	case "json", "text", "":
		v, ok := parse(r.Body)
		if !ok {
			if kind == "" {
				kind = "text"
			}
			break
		}
		kind, names, ops = "json", v.names(r.Show), v.operations()
	}
	if !r.Whole {
		names = append(names, unknown)
	}
	return kind, names, ops
}

// kindOf is the kind of a body by its media type; empty if it has none.
func kindOf(media string) string {
	switch {
	case media == "":
		return ""
	case media == "application/x-www-form-urlencoded":
		return "form"
	case media == "multipart/form-data":
		return "multipart"
	case media == "application/json" || strings.HasSuffix(media, "+json") || media == "application/csp-report":
		return "json"
	case strings.HasPrefix(media, "application/grpc-web"):
		return "grpc-web"
	case strings.HasPrefix(media, "application/connect+") || media == "application/proto" || strings.HasSuffix(media, "protobuf"):
		return "protobuf"
	case media == "application/offset+octet-stream":
		return "upload"
	case strings.HasSuffix(media, "/xml") || strings.HasSuffix(media, "+xml"):
		return "xml"
	case strings.HasPrefix(media, "text/"):
		return "text"
	}
	return "binary"
}

func partNames(body, boundary string) []string {
	if boundary == "" || len(boundary) > 70 {
		return nil
	}
	var fields, files, more []string
	for r := multipart.NewReader(strings.NewReader(body), boundary); ; {
		p, err := r.NextRawPart()
		if err != nil {
			break
		}
		if len(fields)+len(files) >= maxCollected {
			more = []string{unknown}
			break
		}
		if p.FileName() != "" {
			files = append(files, p.FormName())
		} else {
			fields = append(fields, p.FormName())
		}
	}
	none := func(string) (string, bool) { return "", false }
	fields, files = counted(fields, none), counted(files, none)
	for i := range files {
		files[i] += "@"
	}
	return slices.Concat(fields, files, more)
}

// value is a JSON value, whose objects keep names that occur twice.
type value struct {
	scalar any // string, json.Number, bool or nil
	list   []value
	object []member
	kind   byte // '{', '[' or 's'
}

type member struct {
	name  string
	value value
}

func parse(s string) (value, bool) {
	s = strings.TrimLeft(s, "\ufeff \t\r\n")
	if !strings.HasPrefix(s, "{") && !strings.HasPrefix(s, "[") {
		return value{}, false
	}
	if !json.Valid([]byte(s)) { // which bounds the depth, too
		return value{}, false
	}
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	v, err := next(d)
	return v, err == nil
}

func next(d *json.Decoder) (value, error) {
	t, err := d.Token()
	if err != nil {
		return value{}, err
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return value{scalar: t, kind: 's'}, nil
	}
	v := value{kind: byte(delim)}
	for d.More() {
		var m member
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				return value{}, err
			}
			m.name, _ = name.(string)
		}
		if m.value, err = next(d); err != nil {
			return value{}, err
		}
		if delim == '{' {
			v.object = append(v.object, m)
		} else {
			v.list = append(v.list, m.value)
		}
	}
	_, err = d.Token()
	return v, err
}

// names are the names in objects, with the names of the objects around them, and with the values
// that are shown.
func (v value) names(show []string) []string {
	var all []string
	v.collect("", 0, show, &all)
	slices.Sort(all)
	return slices.Compact(all)
}

func (v value) collect(prefix string, depth int, show []string, all *[]string) {
	for _, e := range v.list {
		e.collect(prefix+"[]", depth, show, all)
	}
	times := map[string]int{}
	for _, m := range v.object {
		times[m.name]++
	}
	for _, m := range v.object {
		name := prefix
		if name != "" {
			name += "."
		}
		name += bareName(m.name)
		if times[m.name] > 1 {
			name += "*"
		}
		if len(m.value.object)+len(m.value.list) > 0 && depth+1 < maxDepth && len(name) < maxName {
			before := len(*all)
			m.value.collect(name, depth+1, show, all)
			if len(*all) > before {
				continue
			}
		}
		if text, isText := m.value.scalar.(string); isText && times[m.name] == 1 && slices.Contains(show, name) {
			name += "=" + word(text)
		}
		if len(*all) == maxCollected {
			name = unknown
		}
		if len(*all) <= maxCollected {
			*all = append(*all, name)
		}
	}
}

// text returns the string member of an object that occurs once.
func (v value) text(name string) (string, bool) {
	m, ok := v.member(name)
	s, isText := m.scalar.(string)
	return s, ok && isText
}

// member returns the member of an object that occurs once. A name that occurs twice is equal to
// nothing: the site may read the other one.
func (v value) member(name string) (found value, ok bool) {
	for _, m := range v.object {
		if m.name == name {
			if ok {
				return value{}, false
			}
			found, ok = m.value, true
		}
	}
	return found, ok
}
