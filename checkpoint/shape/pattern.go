package shape

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Pattern describes shapes: "POST /cart/*", "POST /graphql operation=Feed", "WEBSOCKET /live
// type=ping", or a whole shape as Of returns it. It consists of
//
//   - a method.
//   - a path, in which * stands for a part of a segment or for a whole one, ** for any number of
//     segments, and {} for what a shape has {} for; %2A is a * of the address. An origin may stand before it, in which * stands
//     for one or more parts of a host in front. The names of a query may follow it.
//   - if wanted, the kind of the body, with its names or without: form, form(a,b). Where names of
//     the query or of the body are given, or an origin, the request has the names in its query that
//     the pattern has, and no others.
//   - if wanted, the operations of which the request has no other: words, in which * stands for
//     any characters, and of which the request's operation may have more. Several have "; " between
//     them. One that names a message by its type, event, op or method has each event and method that the
//     message has, but for the event=event of an envelope.
type Pattern struct {
	text   string
	method string
	origin string // empty: any
	path   []string
	query  []string // nil: any
	content
}

// content is what a shape says beside the address.
type content struct {
	kind  string
	names []string // nil: none are said
	ops   [][]string
}

const (
	anySegments = "**"
	maxPattern  = MaxLen
)

// ParsePattern reads a pattern.
func ParsePattern(text string) (Pattern, error) {
	p := Pattern{text: strings.Join(strings.Fields(text), " ")}
	method, rest, _ := strings.Cut(p.text, " ")
	address, said, _ := strings.Cut(rest, " ")
	switch {
	case len(text) > maxPattern:
		return p, fmt.Errorf("%.60q...: want at most %d bytes", text, maxPattern)
	case !isToken(method) || method != strings.ToUpper(method) || address == "":
		return p, fmt.Errorf("%q: want METHOD PATH, such as POST /cart/* or %s /live type=ping", text, Websocket)
	}
	p.method = method
	address, query, hasQuery := strings.Cut(address, "?")
	if scheme, after, whole := strings.Cut(address, "://"); whole {
		host, path, _ := strings.Cut(after, "/")
		p.origin, address = OriginPattern(scheme+"://"+host), "/"+path
		if p.origin == "" {
			return p, fmt.Errorf("%q: want a whole origin, such as https://shop.example or https://*.shop.example, before the path, or none", text)
		}
	}
	if !strings.HasPrefix(address, "/") || strings.ContainsAny(address, "#") {
		return p, fmt.Errorf("%q: want a path that begins with / and has no #, such as /cart/*", text)
	}
	p.path = strings.Split(address, "/")[1:]
	for _, s := range p.path {
		if strings.Contains(s, anySegments) && s != anySegments {
			return p, fmt.Errorf("%q: %s: want ** as a whole segment, such as /api/**, or * for a part of one", text, s)
		}
	}
	p.content = splitContent(said)
	if hasQuery || p.names != nil || p.origin != "" {
		p.query = splitNames(query, "&")
	}
	return p, nil
}

// String is the pattern as it is written, with one space between its words.
func (p Pattern) String() string { return p.text }

// Method is its method.
func (p Pattern) Method() string { return p.method }

// Origin is its origin as OriginPattern returns it; empty for any.
func (p Pattern) Origin() string { return p.origin }

// Vague tells whether one of its operations has {} for a name and no hash of a text: then it is of
// many that have nothing in common.
func (p Pattern) Vague() bool {
	return slices.ContainsFunc(p.ops, func(op []string) bool {
		hashed := func(w string) bool { return strings.HasPrefix(w, "text=") || strings.HasPrefix(w, "stored=") }
		return strings.Contains(strings.Join(op, " "), hole) && !slices.ContainsFunc(op, hashed)
	})
}

// Covers tells whether all that a request does is what the pattern describes, so that it may speak
// for the request. Where something of the request is not known, or is such that a site could read it
// in another way, it is not covered.
func (p Pattern) Covers(q Read) bool {
	if q.method != p.method || q.cut || !p.at(q, true) {
		return false
	}
	if p.query != nil && !slices.Equal(p.query, like(p.query, q.query)) || p.kind != "" && p.kind != q.kind {
		return false
	}
	if p.names != nil && !slices.Equal(p.names, like(p.names, q.names)) || q.unread() {
		return false
	}
	if q.saysTwice() {
		return false
	}
	if len(p.ops) == 0 {
		return !q.doesMore()
	}
	return !p.Vague() && len(q.ops) > 0 && !slices.ContainsFunc(q.ops, func(op []string) bool { return !p.namesOp(op, namesMessage) })
}

// NamesMutations tells whether the pattern says of each GraphQL mutation of a request that it is one, or
// has its text. Otherwise it may speak for what is repeatable, and for no read.
func (p Pattern) NamesMutations(q Read) bool {
	says := func(want, op []string) bool {
		return slices.ContainsFunc(want, func(w string) bool {
			return strings.HasPrefix(w, "text=") && slices.Contains(op, w) || strings.Contains(w, "mutation") && slices.ContainsFunc(op, func(has string) bool { return mutates(has) && glob(w, has) })
		})
	}
	return len(p.ops) == 0 || !slices.ContainsFunc(q.ops, func(op []string) bool { return slices.ContainsFunc(op, mutates) && !p.namesOp(op, says) })
}

// namesMessage tells whether words that name a message by its type, event, op or method have each event and
// method of it: a type may say how a message comes, and the event what it does.
func namesMessage(want, op []string) bool {
	names := func(w string, names ...string) bool {
		name, _, _ := strings.Cut(w, "=")
		return slices.Contains(names, name)
	}
	return !slices.ContainsFunc(want, func(w string) bool { return names(w, messageNames...) }) || !slices.ContainsFunc(op, func(has string) bool {
		return names(has, "event", "method") && has != "event=event" && !slices.ContainsFunc(want, func(w string) bool { return glob(w, has) })
	})
}

// Touches tells whether anything that a request does may be what the pattern describes, so that it
// may speak against the request.
func (p Pattern) Touches(q Read) bool {
	if q.method != p.method || !p.at(q, false) || p.kind != "" && q.kind != "" && p.kind != q.kind {
		return false
	}
	if slices.ContainsFunc(p.query, func(name string) bool { return !q.mayHave(name) }) {
		return false
	}
	return len(p.ops) == 0 || slices.ContainsFunc(q.ops, func(op []string) bool { return p.namesOp(op, nil) })
}

// Near tells whether a request may be at the pattern's place, whatever it has in its query and body. Where
// it is not, the pattern neither covers nor touches it.
func (p Pattern) Near(q Read) bool { return q.method == p.method && (p.at(q, false) || p.at(q, true)) }

// namesOp tells whether an operation has all words of one of the pattern's, of which more may be asked.
func (p Pattern) namesOp(op []string, more func(want, op []string) bool) bool {
	return slices.ContainsFunc(p.ops, func(want []string) bool {
		return (more == nil || more(want, op)) && !slices.ContainsFunc(want, func(w string) bool {
			return !slices.ContainsFunc(op, func(has string) bool { return glob(w, has) })
		})
	})
}

// Read is the shape of a request that was read, to be compared with patterns. The zero value is like
// none of them.
type Read struct {
	Pattern
	segments []string // those of the URL's path, escaped; of the shape, where the URL is not known
	cut      bool     // the shape does not have all
	sent     Fields   // those of the URL's query, as QueryOf returns them
}

// mayHave tells whether a site may find a name of a pattern in the query, with its value if the pattern has
// one.
func (q Read) mayHave(want string) bool {
	several := func(n string) bool { return n == unknown || strings.HasPrefix(n, "+") }
	more := slices.ContainsFunc(q.query, several)
	if several(want) {
		return more
	}
	var shown Fields
	for _, n := range q.query {
		name, value, has := strings.Cut(strings.TrimSuffix(n, "*"), "=")
		if !has {
			value = hole
		}
		shown.add(name, value, has)
	}
	name, value, valued := strings.Cut(strings.TrimSuffix(want, "*"), "=")
	name = strings.TrimSuffix(name, "[]")
	values, _ := shown.Values(name)
	sent, _ := q.sent.Values(name)
	if len(values) == 0 || !valued {
		return len(values)+len(sent) > 0 || more
	}
	return slices.Contains(values, value) || slices.Contains(values, hole) || slices.ContainsFunc(sent, func(v string) bool { return word(v) == value })
}

// ReadShape reads a shape, and the URL of its request; empty: it is not known.
func ReadShape(shape, raw string) Read {
	method, rest, _ := strings.Cut(shape, " ")
	address, said, _ := strings.Cut(rest, " ")
	address, query, hasQuery := strings.Cut(address, "?")
	scheme, after, whole := strings.Cut(address, "://")
	if !whole {
		return Read{}
	}
	host, path, _ := strings.Cut(after, "/")
	own := cmp.Or(OriginOf(scheme+"://"+host), OriginOf(raw))
	q := Read{Pattern: Pattern{method: method, origin: own, path: strings.Split(path, "/"), content: splitContent(said)}}
	if q.origin == "" {
		return Read{}
	}
	q.segments, q.cut = q.path, strings.HasSuffix(shape, "...") || len(path) >= maxPath && strings.HasSuffix(path, "...")
	if u, err := url.Parse(raw); raw != "" && err == nil {
		if own := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/"); len(own) == len(q.path) {
			q.segments = own
		}
	}
	if hasQuery {
		q.query = splitNames(query, "&")
	}
	if _, query, has := strings.Cut(raw, "?"); has {
		query, _, _ = strings.Cut(query, "#")
		q.sent = QueryOf(query)
	}
	return q
}

func splitNames(s, sep string) []string {
	names := []string{}
	for name := range strings.SplitSeq(s, sep) {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var kinds = []string{"form", "multipart", "json", "grpc-web", "protobuf", "upload", "xml", "text", "binary", "body", "socket.io"}

func splitContent(text string) (p content) {
	first, rest, _ := strings.Cut(text, " ")
	if kind, names, has := strings.Cut(strings.TrimSuffix(first, ")"), "("); slices.Contains(kinds, kind) {
		if p.kind = kind; has {
			p.names = splitNames(names, ",")
		}
		text = rest
	}
	for op := range strings.SplitSeq(text, ";") {
		if words := strings.Fields(op); len(words) > 0 {
			p.ops = append(p.ops, words)
		}
	}
	return p
}

// like returns the names that a request has, without the values of those that the pattern names
// without a value.
func like(pattern, has []string) []string {
	plain := slices.Clone(has)
	for i, n := range plain {
		if name, _, shown := strings.Cut(n, "="); shown && slices.Contains(pattern, name) {
			plain[i] = name
		}
	}
	slices.Sort(plain)
	return plain
}

// unread tells whether the body has names or operations of which not all are known.
func (p content) unread() bool {
	readable := p.kind != "grpc-web" && p.kind != "protobuf" && p.kind != "upload" && p.kind != "xml" && p.kind != "binary"
	return readable && slices.Contains(p.names, unknown)
}

// saysTwice tells whether a request says twice what it does, so that nobody can tell which of them counts.
func (p content) saysTwice() bool {
	return slices.ContainsFunc(p.names, func(n string) bool {
		name, twice := strings.CutSuffix(strings.TrimPrefix(n, "[]."), "*")
		return twice && slices.Contains([]string{"query", "operationName", "method", "extensions", "jsonrpc"}, name)
	})
}

// doesMore tells whether a request does something that its address alone does not say: an
// operation that is no GraphQL query. Of websockets only mutations are.
func (p Pattern) doesMore() bool {
	return slices.ContainsFunc(p.ops, func(op []string) bool {
		if p.method == Websocket {
			return slices.ContainsFunc(op, mutates)
		}
		return op[0] != "query"
	})
}

// mutates tells whether a word is the kind of a GraphQL document with a mutation in it.
func mutates(word string) bool { return slices.Contains(strings.Split(word, "+"), "mutation") }

// at tells whether a shape is of the pattern's place. strictly: not in doubt.
func (p Pattern) at(q Read, strictly bool) bool {
	if p.origin != "" && !OriginMatches(p.origin, q.origin) {
		return false
	}
	return PathMatches(p.path, q.segments, q.path, strictly)
}

// PathMatches tells whether the segments of a path, escaped as in the URL, match those of a
// pattern; shape are the same segments as a shape has them. If not strictly, the case of letters
// and a slash at the end mean nothing.
func PathMatches(pattern, segments, shape []string, strictly bool) bool {
	if !strictly {
		pattern, segments, shape = withoutEnd(pattern), withoutEnd(segments), withoutEnd(shape)
	}
	i, j, star, mark := 0, 0, -1, 0
	for j < len(segments) {
		switch {
		case i < len(pattern) && pattern[i] == anySegments:
			star, mark = i, j
			i++
		case i < len(pattern) && segmentMatches(pattern[i], segments[j], shape[j], strictly):
			i, j = i+1, j+1
		case star >= 0 && (!strictly || segmentMatches("*", segments[mark], shape[mark], true) || segments[mark] == "" && mark == len(segments)-1):
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == anySegments {
		i++
	}
	return i == len(pattern)
}

func withoutEnd(segments []string) []string {
	if n := len(segments); n > 0 && segments[n-1] == "" {
		return segments[:n-1]
	}
	return segments
}

func segmentMatches(pattern, segment, shape string, strictly bool) bool {
	plain, err := url.PathUnescape(segment)
	want := strings.Split(pattern, "*") // before it is unescaped: %2A is a star that stands for itself
	for i := range want {
		part, bad := url.PathUnescape(want[i])
		if err != nil || bad != nil {
			return !strictly && err != nil
		}
		if want[i] = part; !strictly {
			want[i] = strings.ToLower(part)
		}
	}
	if !strictly {
		return pattern == shape || globParts(want, strings.ToLower(plain))
	}
	star := len(want) > 1
	if !star && (pattern == shape || want[0] == plain) {
		return true
	}
	odd := plain == "" || plain == "." || plain == ".." || strings.ContainsFunc(plain, func(c rune) bool { return c < ' ' || strings.ContainsRune(`/\;?#`, c) })
	return star && !odd && globParts(want, plain)
}

// glob tells whether a text matches a pattern in which * stands for any characters.
func glob(pattern, s string) bool { return globParts(strings.Split(pattern, "*"), s) }

// globParts tells whether a text consists of these parts, with any characters between each two.
func globParts(parts []string, s string) bool {
	last := len(parts) - 1
	if last == 0 {
		return parts[0] == s
	}
	s, ok := strings.CutPrefix(s, parts[0])
	for i := 1; ok && i < last; i++ {
		_, s, ok = strings.Cut(s, parts[i])
	}
	return ok && strings.HasSuffix(s, parts[last])
}

// OriginOf is the origin of a URL, in small letters, with that of a websocket as that of a page;
// empty if it has none.
func OriginOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	scheme := map[string]string{"http": "http", "https": "https", "ws": "http", "wss": "https"}[u.Scheme]
	if scheme == "" {
		return ""
	}
	host := strings.ToLower(u.Host)
	if port := map[string]string{"http": ":80", "https": ":443"}[scheme]; strings.HasSuffix(host, port) {
		host = strings.TrimSuffix(host, port)
	}
	return scheme + "://" + host
}

// OriginPattern is the origin of a URL, in which * may stand for one or more parts of a host in front;
// empty if it has none, or a * at another place.
func OriginPattern(raw string) string {
	o := OriginOf(raw)
	if strings.Contains(strings.Replace(o, "://*.", "://", 1), "*") {
		return ""
	}
	return o
}

// OriginMatches tells whether an origin is one for which a pattern stands, as OriginPattern returns it.
func OriginMatches(pattern, origin string) bool { return glob(pattern, origin) }
