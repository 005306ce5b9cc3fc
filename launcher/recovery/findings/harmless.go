package findings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"leasehold/checkpoint"
)

// Harmless is a kind of request that a profile's owner declares to change nothing in
// the account, such as a search by POST, a visitor count, or a websocket message that
// only asks. The zero value covers nothing.
type Harmless struct {
	text    string
	method  string
	address *regexp.Regexp
	fields  []field
}

// field is a field, with its value, that the body has to have.
type field struct{ name, value string }

// ParseHarmless reads "METHOD URL [NAME=VALUE]...". The method is POST, WEBSOCKET, or GET for a
// GET that looks like a write (see Get). The URL is complete. The body has to have the fields
// with these values; a GET has none.
//
// In the URL's path, * stands for one or more letters, digits, and any of - . _ ~ . The query
// has to be equal, like the rest of the URL, but "?*" at the end accepts any query or none. The
// body is one JSON object, or a list of objects, with the fields at the top level of each; or a
// URL-encoded form, if the Content-Type says so. Without fields any body is covered, within the
// limits that Covers names.
func ParseHarmless(s string) (Harmless, error) {
	parts := strings.Fields(s)
	if len(parts) < 2 || !utf8.ValidString(s) {
		return Harmless{}, fmt.Errorf("%q: want METHOD URL [NAME=VALUE]..., such as POST https://shop.example/search", s)
	}
	h := Harmless{text: s, method: parts[0]}
	schemes := map[string][]string{http.MethodPost: {"http", "https"}, http.MethodGet: {"http", "https"}, checkpoint.Websocket: {"ws", "wss"}}[h.method]
	if schemes == nil {
		return Harmless{}, fmt.Errorf("%q: method %s: want POST, GET or %s, nothing else can be harmless", s, h.method, checkpoint.Websocket)
	}
	u, err := url.Parse(parts[1])
	switch {
	case err != nil || !slices.Contains(schemes, u.Scheme) || u.Hostname() == "" || !strings.HasPrefix(u.Path, "/"):
		return Harmless{}, fmt.Errorf("%q: want a whole URL with %s, a host and a path, such as %s://shop.example/search", s, strings.Join(schemes, " or "), schemes[1])
	case u.User != nil || u.Fragment != "" || strings.Contains(u.Host, "*") || u.Host != strings.ToLower(u.Host):
		return Harmless{}, fmt.Errorf("%q: want a host in small letters without *, no user and no fragment", s)
	}
	base, query, hasQuery := strings.Cut(parts[1], "?")
	pattern := strings.ReplaceAll(regexp.QuoteMeta(base), `\*`, `[A-Za-z0-9._~-]+`)
	switch {
	case hasQuery && query == "*":
		pattern += `(\?[^#]*)?`
	case hasQuery:
		pattern += `\?` + regexp.QuoteMeta(query)
	}
	h.address = regexp.MustCompile("^" + pattern + "$")
	for _, p := range parts[2:] {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return Harmless{}, fmt.Errorf("%q: %q: want NAME=VALUE, a field of the body", s, p)
		}
		h.fields = append(h.fields, field{name, value})
	}
	if h.method == http.MethodGet && len(h.fields) > 0 {
		return Harmless{}, fmt.Errorf("%q: a GET has no body, so it has no fields: want its query in the URL", s)
	}
	return h, nil
}

// Sent is what a page sent, as the browser reports it.
type Sent struct {
	Method string // of HTTP, or checkpoint.Websocket
	URL    string
	Body   string
	// Whole says that Body is complete. The browser leaves out long bodies and files.
	Whole bool
	// Form says that the request's headers declare Body to be a URL-encoded form.
	Form bool
	// Overridden says that a header names another method, as X-HTTP-Method-Override does.
	Overridden bool
}

// IsOverridden tells whether a header of a request names another method.
func IsOverridden(headers map[string]string) bool {
	for name := range headers {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-") && strings.Contains(name, "method") {
			return true
		}
	}
	return false
}

// IsForm tells whether a request's headers declare a URL-encoded form.
func IsForm(headers map[string]string) bool {
	form := false
	for name, value := range headers {
		if strings.EqualFold(name, "Content-Type") {
			kind, _, err := mime.ParseMediaType(value)
			if err != nil || kind != "application/x-www-form-urlencoded" {
				return false
			}
			form = true
		}
	}
	return form
}

// Covers tells whether a request is of this kind. It never covers a request whose body is not
// completely known, or contains "mutation", or with a header that names another method, whatever is
// declared. If a GraphQL URL is declared
// without fields, it covers only bodies that consist of the text of queries, because the name
// of a stored operation does not say what the operation does.
func (h Harmless) Covers(s Sent) bool {
	if h.address == nil || s.Method != h.method || !s.Whole || s.Overridden || !h.address.MatchString(s.URL) {
		return false
	}
	if saysMutation(s.Body) {
		return false
	}
	if len(h.fields) > 0 {
		found := objects(s.Body)
		// Almost any text can be parsed as a form: a string inside JSON may look like
		// fields.
		if s.Form && !looksLikeJSON(s.Body) {
			found = form(s.Body)
		}
		return len(found) > 0 && !slices.ContainsFunc(found, func(object map[string]string) bool { return !h.fits(object) })
	}
	return !isGraphQL(s.URL) || onlyQueries(s.Body)
}

func (h Harmless) fits(object map[string]string) bool {
	return !slices.ContainsFunc(h.fields, func(f field) bool {
		value, ok := object[f.name]
		return !ok || value != f.value
	})
}

// Declared returns the text of the first declaration that covers a request, or
// nothing.
func Declared(list []Harmless, s Sent) string {
	for _, h := range list {
		if h.Covers(s) {
			return h.text
		}
	}
	return ""
}

// isGraphQL tells whether a URL is one of GraphQL, judged by its path. One that cannot
// be parsed counts as such.
func isGraphQL(raw string) bool {
	u, err := url.Parse(raw)
	return err != nil || slices.ContainsFunc(words(u.Path), func(w string) bool {
		return strings.HasPrefix(w, "graphql") || w == "gql"
	})
}

var mutation = regexp.MustCompile(`(?i)\bmutation`)

// saysMutation tells whether a body contains the word, as it stands or after its
// escapes are resolved. A GraphQL document that changes something has to contain it.
func saysMutation(body string) bool {
	if mutation.MatchString(body) {
		return true
	}
	if plain, err := url.QueryUnescape(body); err == nil && mutation.MatchString(plain) {
		return true
	}
	var v any
	return strings.Contains(body, `\`) && (json.Unmarshal([]byte(body), &v) != nil || within(v))
}

func within(v any) bool {
	switch x := v.(type) {
	case string:
		return mutation.MatchString(x)
	case []any:
		return slices.ContainsFunc(x, within)
	case map[string]any:
		for name, value := range x {
			if mutation.MatchString(name) || within(value) {
				return true
			}
		}
	}
	return false
}

// query matches how a GraphQL document without a mutation may begin.
var query = regexp.MustCompile(`^(\s|,|#[^\n]*\n)*(query\b|fragment\b|\{)`)

// onlyQueries tells whether a body is the text of one or more queries.
func onlyQueries(body string) bool {
	found := objects(body)
	return len(found) > 0 && !slices.ContainsFunc(found, func(o map[string]string) bool { return !query.MatchString(o["query"]) })
}

// IsQuery tells whether what was sent is the text of GraphQL queries, and of nothing else: a JSON
// object with the members that the protocol has, or a list of such objects. The name or the hash of
// a stored operation does not say what it does. Servers take the operation from the query of the URL
// before that of the body, and another method from a header: with either, the body does not say it.
func IsQuery(s Sent) bool {
	return s.Method == http.MethodPost && s.Whole && !s.Overridden && !strings.Contains(s.URL, "?") &&
		!saysMutation(s.Body) && !strings.Contains(s.Body, "persistedQuery") && onlyQueries(s.Body) && onlyMembers(s.Body)
}

// onlyMembers tells whether the objects of a body have no member but those of a GraphQL request.
func onlyMembers(body string) bool {
	for _, raw := range oneOrList(body) {
		var o map[string]json.RawMessage
		if json.Unmarshal(raw, &o) != nil {
			return false
		}
		for name := range o {
			if !slices.Contains([]string{"query", "variables", "operationName", "extensions"}, name) {
				return false
			}
		}
	}
	return true
}

// oneOrList are the elements of a body that is a list, or else the body.
func oneOrList(body string) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal([]byte(body), &list) != nil {
		list = []json.RawMessage{json.RawMessage(body)}
	}
	return list
}

// objects returns the strings, numbers and booleans at the top level of a JSON object,
// or of each object in a list. A name that occurs twice is left out, since the server may
// read the other one: it is equal to nothing.
func objects(body string) []map[string]string {
	var found []map[string]string
	for _, raw := range oneOrList(body) {
		o, ok := object(raw)
		if !ok {
			return nil
		}
		found = append(found, o)
	}
	return found
}

func object(raw json.RawMessage) (map[string]string, bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	o, seen := map[string]string{}, map[string]bool{}
	repeated := func(name string) bool {
		was := seen[name]
		seen[name] = true
		return was
	}
	for d.More() {
		name, err := d.Token()
		key, ok := name.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			return nil, false
		}
		if repeated(key) {
			delete(o, key)
			continue
		}
		var v any
		d := json.NewDecoder(bytes.NewReader(value))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return nil, false
		}
		switch x := v.(type) {
		case string:
			o[key] = x
		case json.Number:
			o[key] = x.String()
		case bool:
			o[key] = strconv.FormatBool(x)
		}
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') || d.More() {
		return nil, false
	}
	return o, true
}

// looksLikeJSON tells whether a body is JSON, or begins like it.
func looksLikeJSON(body string) bool {
	trimmed := strings.TrimLeft(body, "\ufeff \t\r\n")
	return strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") || json.Valid([]byte(trimmed))
}

// form returns the fields of a URL-encoded body. A name that occurs twice is left out, as in
// objects.
func form(body string) []map[string]string {
	values, err := url.ParseQuery(body)
	if err != nil {
		return nil
	}
	o := map[string]string{}
	for name, list := range values {
		if len(list) == 1 {
			o[name] = list[0]
		}
	}
	return []map[string]string{o}
}
