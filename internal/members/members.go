// Package members finds the member that an object in JSON has twice. Of such a member the decoder keeps the last
// value, and what only the first one had may stay in it.
package members

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Doubled is the path of a member that an object in this JSON value, which is valid, has twice; empty if there is
// none. into is the type into which it is decoded: capitals mean nothing in the names of its fields, and something
// in the keys of its maps. What it keeps as JSON, or in an interface, may have anything in it.
func Doubled(text []byte, into reflect.Type) string {
	return doubled(json.NewDecoder(bytes.NewReader(text)), "", into)
}

func doubled(d *json.Decoder, path string, into reflect.Type) (found string) {
	for into.Kind() == reflect.Pointer {
		into = into.Elem()
	}
	t, _ := d.Token() // it is valid
	seen := map[string]bool{}
	for n := 0; (t == json.Delim('{') || t == json.Delim('[')) && d.More(); n++ {
		inner, name := fmt.Sprintf("%s[%d]", path, n), ""
		if t == json.Delim('{') {
			token, _ := d.Token()
			name, _ = token.(string)
			inner = strings.TrimPrefix(path+"."+name, ".")
			if into.Kind() != reflect.Map {
				name = folded(name)
			}
			if seen[name] && !opaque(into) {
				found = cmp.Or(found, inner)
			}
			seen[name] = true
		}
		found = cmp.Or(found, doubled(d, inner, within(into, name)))
	}
	if _, opened := t.(json.Delim); opened {
		_, _ = d.Token() // its end
	}
	return found
}

// anything is the type of what is not decoded further.
var anything = reflect.TypeFor[any]()

// opaque tells whether a type keeps JSON as it is.
func opaque(t reflect.Type) bool {
	return t.Kind() == reflect.Interface || t == reflect.TypeFor[json.RawMessage]()
}

// within is the type of a part of a value of this type: of an element, or of the field with this folded name.
func within(t reflect.Type, name string) reflect.Type {
	switch {
	case opaque(t):
		return anything
	case t.Kind() == reflect.Map, t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return t.Elem()
	case t.Kind() != reflect.Struct:
		return anything
	}
	fields := reflect.VisibleFields(t)
	i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
		named, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return folded(cmp.Or(named, f.Name)) == name
	})
	if i < 0 {
		return anything
	}
	return fields[i].Type
}

// folded is the same for names that the decoder takes for one.
func folded(name string) string { return strings.ToLower(strings.ToUpper(name)) }
