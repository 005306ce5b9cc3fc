package methods

import (
	"encoding/json"
	"strings"
)

// wire refuses parameters that HTTP cannot carry: what is the method or the name of a header has to
// be a token, and no other text may have a line end, wherever it stands.
func (p *params) wire() {
	if method, given := p.text("method"); given && !isToken(method) {
		p.fail(wireRefusal("method", "a token, such as GET"))
	}
	if url, given := p.text("url"); given && p.bad == nil {
		p.fail(CheckURL(url))
	}
	for name, value := range p.members {
		p.carry(name, value)
	}
}

func (p *params) carry(name string, value json.RawMessage) {
	if p.bad != nil || len(value) == 0 {
		return
	}
	switch value[0] {
	case '"':
		text, ok := Text(value)
		switch {
		case !ok:
			p.fail(formRefusal(shown(name), "a string"))
		case strings.ContainsAny(text, "\r\n\x00"):
			p.fail(wireRefusal(name, "no line end, and no zero byte"))
		}
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			p.fail(formRefusal(shown(name), "an array"))
		}
		for _, one := range list {
			p.carry(name, one)
		}
	case '{':
		inner, bad := readParams(value)
		if p.fail(bad); bad != nil {
			return
		}
		for member, of := range inner.members {
			switch header, isText := Text(of); {
			case name == "headers" && !isHeaderEntry(inner.members) && !isToken(member):
				p.fail(wireRefusal(name, "names of headers"))
			case isHeaderList(name) && member == "name" && (!isText || !isToken(header)):
				p.fail(wireRefusal(name, "names of headers"))
			}
			p.carry(member, of)
		}
	}
}

// isHeaderList tells whether a parameter is, in some method, a list of headers with a name and a
// value each. Network.setExtraHTTPHeaders has an object of headers instead.
func isHeaderList(name string) bool { return name == "headers" || name == "responseHeaders" }

func isHeaderEntry(members map[string]json.RawMessage) bool {
	_, name := members["name"]
	_, value := members["value"]
	return name && value && len(members) == 2
}

func wireRefusal(name, want string) *Refusal {
	return &Refusal{Reason: ReasonParameter, What: name, Code: codeInvalidParams, Text: "HTTP cannot carry the parameter " + shown(name) + ": want " + want}
}

// isToken tells whether a text is a token of HTTP (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
