package shape

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// operations are what a JSON body says that it does, in each element if it is a list: {} in those that do
// not say it beside others that do.
func (v value) operations() []string {
	elements := []value{v}
	if v.kind == '[' {
		elements = v.list
	}
	var ops []string
	for _, e := range elements {
		if op := e.operation(); op != "" {
			ops = append(ops, op)
		}
	}
	if len(ops) > 0 && len(ops) < len(elements) {
		ops = append(ops, hole)
	}
	return ops
}

// TellsKinds tells whether a request's body has GraphQL operations, and its shape the kind of each.
func TellsKinds(r Request) bool {
	_, _, ops := body(r)
	return len(ops) > 0 && !slices.ContainsFunc(ops, func(op string) bool {
		return !slices.ContainsFunc(strings.Fields(op), func(w string) bool {
			return mutates(w) || w == "query" || w == "subscription" || w == "query+subscription"
		})
	})
}

// operation is that of one object: of GraphQL, or of JSON-RPC.
func (v value) operation() string {
	if v.kind != '{' {
		return ""
	}
	if op := v.graphQL(); op != "" {
		return op
	}
	_, rpc := v.member("jsonrpc")
	_, params := v.member("params")
	if method, ok := v.text("method"); ok && (rpc || params) {
		return "method=" + word(method)
	}
	return ""
}

// graphQL returns the kind of a GraphQL operation, its name, and a hash of its text. The kind and
// the name of a stored operation are what its sender says.
func (v value) graphQL() string {
	text, _ := v.text("query")
	name, _ := v.text("operationName")
	extensions, _ := v.member("extensions")
	stored, _ := extensions.member("persistedQuery")
	hash, _ := stored.text("sha256Hash")
	return graphQL(text, name, hash)
}

// graphQLQuery is a GraphQL operation in a URL's query.
func graphQLQuery(q url.Values) []string {
	one := func(name string) string {
		if len(q[name]) == 1 {
			return q[name][0]
		}
		return ""
	}
	var extensions struct {
		PersistedQuery struct {
			Hash string `json:"sha256Hash"`
		} `json:"persistedQuery"`
	}
	_ = json.Unmarshal([]byte(one("extensions")), &extensions)
	text, name := one("query"), one("operationName")
	if _, has := q["operationName"]; !has && !strings.Contains(text, "{") && extensions.PersistedQuery.Hash == "" {
		return nil // a search
	}
	if op := graphQL(text, name, extensions.PersistedQuery.Hash); op != "" {
		return []string{op}
	}
	return nil
}

func graphQL(text, name, hash string) string {
	plain, kinds, names := document(text)
	if len(kinds) == 0 && name == "" && hash == "" {
		return ""
	}
	var parts []string
	if len(kinds) > 0 {
		parts = append(parts, strings.Join(kinds, "+"))
	}
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	if name != "" {
		parts = append(parts, "operation="+word(name))
	}
	switch {
	case plain != "" && len(kinds) > 0:
		sum := sha256.Sum256([]byte(plain))
		parts = append(parts, "text="+hex.EncodeToString(sum[:6]))
	case isHex(hash) && len(hash) >= 12:
		parts = append(parts, "stored="+strings.ToLower(hash[:12]))
	}
	return strings.Join(parts, " ")
}

// document returns the text of a GraphQL document with one space between its tokens and without
// comments, with {} for each string and 0 for each number, and the kinds and the names of the
// operations in it.
func document(text string) (plain string, kinds, names []string) {
	var b strings.Builder
	depth, fresh := 0, true // fresh: a definition begins here
	begun := -1             // the length of plain right after the word that begins an operation
	for i := 0; i < len(text); {
		c := text[i]
		start := i
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',' || strings.HasPrefix(text[i:], "\ufeff"):
			i++
			if c == 0xef {
				i += 2
			}
			continue
		case c == '#':
			for i < len(text) && text[i] != '\n' && text[i] != '\r' {
				i++
			}
			continue
		case strings.HasPrefix(text[i:], `"""`):
			for i += 3; i < len(text) && !strings.HasPrefix(text[i:], `"""`); i++ {
				if strings.HasPrefix(text[i:], `\"""`) {
					i += 3
				}
			}
			i = min(i+3, len(text))
			b.WriteString(hole + " ")
			continue
		case c == '"':
			for i++; i < len(text) && text[i] != '"' && text[i] != '\n'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i = min(i+1, len(text))
			b.WriteString(hole + " ")
			continue
		case isNameByte(c) && (c < '0' || c > '9'):
			for i < len(text) && isNameByte(text[i]) {
				i++
			}
			switch w := text[start:i]; {
			case depth == 0 && fresh:
				if w == "query" || w == "mutation" || w == "subscription" {
					kinds = append(kinds, w)
					begun = b.Len() + len(w) + len(" ")
				}
				fresh = false
			case b.Len() == begun:
				names = append(names, w)
			}
		case c == '-' || c >= '0' && c <= '9':
			for i++; i < len(text) && (isNameByte(text[i]) || strings.IndexByte(".+-", text[i]) >= 0); i++ {
			}
			b.WriteString("0 ")
			continue
		default:
			i++
			switch c {
			case '{':
				if depth == 0 && fresh {
					kinds = append(kinds, "query")
				}
				fresh = false
				depth++
			case '}':
				if depth--; depth <= 0 {
					depth, fresh = 0, true
				}
			}
		}
		b.WriteString(text[start:i] + " ")
	}
	slices.Sort(kinds)
	return b.String(), slices.Compact(kinds), names
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// message returns the kind of a websocket's message, and what it says that it does.
func message(r Request) (kind string, names, ops []string) {
	switch {
	case !r.Whole:
		return "binary", nil, nil
	case len(r.Body) > maxBody:
		return "text", nil, nil
	}
	if kind, ops, ok := socketIO(r.Body); ok {
		return kind, nil, ops
	}
	v, ok := parse(r.Body)
	switch {
	case !ok:
		return "text", nil, nil
	case v.kind == '[':
		return "json", nil, channel(v.list)
	}
	if ops = v.saying(); len(ops) == 0 {
		names = v.names(r.Show)
	}
	return "json", names, ops
}

// messageNames are the names by which messages say what they are.
var messageNames = []string{"type", "event", "op", "method"}

// saying returns what a message says that it is, by the names that messages have for it.
func (v value) saying() []string {
	var parts []string
	for _, name := range messageNames {
		m, ok := v.member(name)
		switch s := m.scalar.(type) {
		case string:
			parts = append(parts, name+"="+word(s))
		case json.Number:
			if ok && len(s) <= 4 { // an opcode
				parts = append(parts, name+"="+s.String())
			}
		}
	}
	for _, name := range []string{"payload", "data"} { // GraphQL and commands within an envelope
		inner, ok := v.member(name)
		if !ok || inner.kind != '{' {
			continue
		}
		if op := inner.operation(); op != "" {
			parts = append(parts, op)
		}
	}
	if op := v.graphQL(); op != "" && len(parts) == 0 {
		parts = append(parts, op)
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{strings.Join(parts, " ")}
}

// channel reads a message of a Phoenix channel, [join, ref, topic, event, payload]. The topic
// names one thing among many.
func channel(list []value) []string {
	if len(list) != 5 {
		return nil
	}
	event, ok := list[3].scalar.(string)
	if !ok {
		return nil
	}
	op := "event=" + word(event)
	if inner := list[4].saying(); event == "event" && len(inner) == 1 { // of LiveView
		op += " " + inner[0]
	} else if inner := list[4].graphQL(); inner != "" {
		op += " " + inner
	}
	return []string{op}
}

// socketIO reads a message of engine.io, which may carry one of socket.io.
func socketIO(s string) (kind string, ops []string, ok bool) {
	if s == "" || s[0] < '0' || s[0] > '6' {
		return "", nil, false
	}
	names := map[byte]string{'0': "open", '1': "close", '2': "ping", '3': "pong", '5': "upgrade", '6': "noop"}
	if name := names[s[0]]; name != "" {
		if len(s) > 1 && !strings.HasPrefix(s[1:], "probe") && s[1] != '{' {
			return "", nil, false
		}
		return "socket.io", []string{"type=" + name}, true
	}
	if len(s) < 2 || s[1] < '0' || s[1] > '6' {
		return "", nil, false
	}
	types := []string{"connect", "disconnect", "event", "ack", "error", "binary_event", "binary_ack"}
	op := "type=" + types[s[1]-'0']
	rest := s[2:]
	if i := strings.IndexAny(rest, "[{"); i >= 0 {
		rest = rest[i:]
	}
	if v, valid := parse(rest); valid && len(v.list) > 0 && (s[1] == '2' || s[1] == '5') {
		if event, isText := v.list[0].scalar.(string); isText {
			op += " event=" + word(event)
		}
	}
	return "socket.io", []string{op}, true
}
