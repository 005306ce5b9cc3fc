// Package shape describes requests by what they do, and not by what is in them: two requests that
// do the same to different things have one shape, and a shape has no value that somebody typed,
// bought or wrote.
package shape

import (
	"crypto/sha256"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// Websocket is the Method of a message on a websocket.
const Websocket = "WEBSOCKET"

// Request is what a page sent, as the browser reports it.
type Request struct {
	Method  string // of HTTP, or Websocket
	URL     string
	Headers map[string]string
	Body    string // the message, of a websocket
	// Whole says that Body is complete. The browser leaves out long bodies and files, and messages
	// that are no text.
	Whole bool
	// Show are the names in the query and in the body whose values the shape has, too: those of
	// which the site's owner says that they are no secret, and say what the request does.
	Show []string
}

// Bounds of a shape.
const (
	MaxLen      = 768 // bytes
	maxNames    = 40  // in a query, and in a body
	maxAllNames = 480 // bytes, of those in a query, and of those in a body
	maxName     = 64  // bytes
	maxDepth    = 4   // of objects in a body
	maxOps      = 8   // of a body that is a list
	maxSegment  = 64  // bytes
	maxPath     = 256 // bytes
	maxBody     = 1 << 20
)

// hole stands for an identifier, or for another value.
const hole = "{}"

// unknown stands among names for those of a body that the browser does not show as a whole, or that
// are too many to be told apart.
const unknown = "..."

// Of returns the shape of a request: its method, its URL with {} for identifiers and with the
// names in its query, the kind of its body with the names in it, and the operation that it names,
// if it names one. A name that occurs twice has a star. For example:
//
//	POST https://shop.example/cart/{}?ref form(color,qty)
//	POST https://shop.example/graphql json(operationName,query,variables.id) mutation operation=AddToCart text=1f0c7d0a93b2
//	WEBSOCKET wss://shop.example/live json type=ping
//
// It is at most MaxLen bytes of printable text. Of the values in a request it only has those that
// name the operation.
func Of(r Request) string {
	method := "{}"
	if isToken(r.Method) {
		method = r.Method
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return method + " " + hole
	}
	kind, names, ops := body(r)
	if len(ops) == 0 && r.Method != Websocket {
		ops = graphQLQuery(u.Query())
	}
	if id := header(r.Headers, "Next-Action"); id != "" {
		ops = append(ops, "action="+word(id))
	}
	var b strings.Builder
	b.WriteString(method + " " + origin(u) + path(u.EscapedPath()))
	if query := queryNames(u.RawQuery, r.Show); len(query) > 0 {
		b.WriteString("?" + strings.Join(bounded(query), "&"))
	}
	if kind != "" {
		b.WriteString(" " + kind)
	}
	if len(names) > 0 {
		b.WriteString("(" + strings.Join(bounded(names), ",") + ")")
	}
	slices.Sort(ops)
	ops = slices.Compact(ops)
	if len(ops) > maxOps {
		ops = append(ops[:maxOps:maxOps], "...")
	}
	if len(ops) > 0 {
		b.WriteString(" " + strings.Join(ops, "; "))
	}
	return clip(b.String())
}

// Content returns what a shape says beside the method and the URL: the kind of the body with the
// names in it, and the operation.
func Content(shape string) string {
	_, rest, _ := strings.Cut(shape, " ")
	_, content, _ := strings.Cut(rest, " ")
	return content
}

// clip cuts a shape that is too long.
func clip(s string) string {
	if len(s) <= MaxLen {
		return s
	}
	s = s[:MaxLen-len("...")]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "..."
}

func origin(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if strings.ContainsFunc(host, func(c rune) bool { return c <= ' ' || c > '~' || c == '*' }) || len(host) > 255 {
		host = hole
	}
	if u.Scheme == "" && host == "" {
		return ""
	}
	return u.Scheme + "://" + host
}

func path(escaped string) string {
	if escaped == "" {
		return "/"
	}
	segments := strings.Split(escaped, "/")
	for i, s := range segments {
		segments[i] = segment(s)
	}
	p := strings.Join(segments, "/")
	if len(p) > maxPath {
		p = p[:maxPath] + "..."
	}
	return p
}

// segment returns one segment of a path. Parameters of it keep their names.
func segment(escaped string) string {
	s, parameters, has := strings.Cut(escaped, ";")
	if plain, err := url.PathUnescape(s); err != nil || plain != s && strings.ContainsFunc(plain, func(c rune) bool { return c <= ' ' || c > '~' }) {
		s = hole // a title, in another alphabet or with spaces
	}
	base, extension, dotted := cutLast(s, '.')
	if dotted && isIdentifier(base) && isWord(extension) && !strings.Contains(base, "@") {
		s = hole + "." + extension
	} else {
		s = plainName(s, isIdentifier)
	}
	s = strings.ReplaceAll(s, "*", "%2A") // in a pattern it would stand for others
	if has {
		for _, p := range strings.Split(parameters, ";") {
			name, _, _ := strings.Cut(p, "=")
			s += ";" + bareName(name)
		}
	}
	return s
}

// queryNames are the names in a query, as they were sent, with the values that are shown.
func queryNames(raw string, show []string) []string {
	var names []string
	values := map[string]string{}
	for _, pair := range strings.Split(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if name != "" {
			name = unescaped(name)
			names = append(names, name)
			values[name] = unescaped(value)
		}
	}
	return counted(names, func(name string) (string, bool) {
		return values[name], slices.Contains(show, name)
	})
}

func unescaped(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		return plain
	}
	return s
}

// counted sorts names. Those that occur twice get a star; others get the value that is shown of
// them, if there is one.
func counted(names []string, shown func(string) (string, bool)) []string {
	times := map[string]int{}
	for _, n := range names {
		times[n]++
	}
	var all []string
	for n, t := range times {
		value, has := shown(n)
		if n = structured(n); t > 1 {
			n += "*"
		} else if has {
			n += "=" + word(value)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// bounded leaves out names if there are too many, last those that occur twice or have a value. In
// their place stands how many they are, and a hash of them: requests with other names have another
// shape. If one that occurs twice is left out, not all of the request is known.
func bounded(names []string) []string {
	var special, plain []string
	for _, n := range names {
		if strings.ContainsAny(n, "*=") || n == unknown {
			special = append(special, n)
		} else {
			plain = append(plain, n)
		}
	}
	all := slices.Concat(special, plain)
	fit, size := 0, 0
	for fit < len(all) && fit < maxNames && size+len(all[fit]) <= maxAllNames {
		size += len(all[fit])
		fit++
	}
	if fit == len(all) {
		return names
	}
	rest := all[fit:]
	sum := sha256.Sum256([]byte(strings.Join(rest, ",")))
	kept := append(all[:fit:fit], fmt.Sprintf("+%d:%x", len(rest), sum[:4]))
	if fit < len(special) {
		kept = append(kept, unknown)
	}
	return kept
}

// structured returns a name in which some sites put identifiers in brackets: items[17][qty].
func structured(name string) string {
	head, rest, ok := strings.Cut(name, "[")
	if !ok {
		return bareName(name)
	}
	out := bareName(head)
	for part := range strings.SplitSeq(rest, "[") {
		inner, _, _ := strings.Cut(part, "]")
		if inner != "" {
			inner = bareName(inner)
		}
		out += "[" + inner + "]"
	}
	if len(out) > 2*maxName {
		return hole
	}
	return out
}

// bareName is a name without brackets.
func bareName(name string) string {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(c rune) bool {
		return !isLetter(c) && !isDigit(c) && !strings.ContainsRune("_-.$:@!", c)
	}) {
		return hole
	}
	return plainName(name, isNumber)
}

// word is a value that names an operation.
func word(s string) string {
	s = strings.ReplaceAll(s, " ", "_") // the words of a shape stand apart
	if s == "" || len(s) > maxName || strings.ContainsFunc(s, func(c rune) bool {
		return !isLetter(c) && !isDigit(c) && !strings.ContainsRune("_-.$:@/#", c)
	}) {
		return hole
	}
	if isHex(s) && len(s) >= 32 { // the id of a Server Action or a stored operation
		return s[:12]
	}
	parts := strings.Split(s, "/")
	for i, p := range parts {
		parts[i] = plainName(p, isIdentifier)
	}
	return strings.Join(parts, "/")
}

func header(headers map[string]string, want string) string {
	for name, value := range headers {
		if strings.EqualFold(name, want) {
			return value
		}
	}
	return ""
}

// contentType is the media type of a request's body, in small letters; empty if it has none.
func contentType(headers map[string]string) (kind, boundary string) {
	raw := header(headers, "Content-Type")
	kind, parameters, err := mime.ParseMediaType(raw)
	if err != nil && kind == "" {
		kind, _, _ = strings.Cut(strings.ToLower(raw), ";")
	}
	return strings.TrimSpace(kind), parameters["boundary"]
}

func isToken(s string) bool {
	return s != "" && len(s) <= 20 && !strings.ContainsFunc(s, func(c rune) bool { return !isLetter(c) && c != '-' && c != '_' })
}
