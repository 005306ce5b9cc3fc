package methods

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// params are the members of one JSON object. They have to mean what Chrome reads, so everything
// that two parsers could read in different ways is refused: a member that occurs twice, half of
// a character, a value of another type.
type params struct {
	members map[string]json.RawMessage
	bad     *Refusal // the first error
}

func (p *params) fail(r *Refusal) {
	if p.bad == nil {
		p.bad = r
	}
}

// readParams reads an object; members of its members are not read. A missing value and null
// count as an object without members. raw is JSON without syntax errors.
func readParams(raw []byte) (*params, *Refusal) {
	p := &params{members: map[string]json.RawMessage{}}
	if len(raw) == 0 || raw[0] == 'n' {
		return p, nil
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, formRefusal("params", "an object")
	}
	for d.More() {
		before := d.InputOffset()
		token, err := d.Token()
		key, isText := token.(string)
		if err != nil || !isText || !whole(raw[before:d.InputOffset()], key) {
			return nil, formRefusal("params", "names in valid Unicode")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, formRefusal("params", "valid JSON")
		}
		if _, again := p.members[key]; again {
			return nil, formRefusal(shown(key), "it once")
		}
		p.members[key] = value
	}
	return p, nil
}

// Members are the members of a command's parameters. ok is false if another parser, such as
// Chrome's, could read them in a different way.
func Members(params []byte) (_ map[string]json.RawMessage, ok bool) {
	p, bad := readParams(params)
	if bad != nil {
		return nil, false
	}
	return p.members, true
}

// ReadMembers reads members of a command's parameters under their exact names, as Chrome does. It is
// false if one has another type, or if another parser could read the parameters in a different way.
func ReadMembers(params []byte, into map[string]any) bool {
	found, ok := Members(params)
	for name, value := range into {
		if raw, has := found[name]; ok && has {
			ok = json.Unmarshal(raw, value) == nil
		}
	}
	return ok
}

// Text is the string that a value is. ok is false if it is none, or if another parser could read
// it in a different way.
func Text(raw json.RawMessage) (value string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &value) != nil || !whole(raw, value) {
		return "", false
	}
	return value, true
}

// whole tells whether a JSON string has only whole characters. Half of a surrogate pair is read
// differently by different parsers.
func whole(raw []byte, decoded string) bool {
	return utf8.ValidString(decoded) && (!strings.ContainsRune(decoded, utf8.RuneError) || !strings.Contains(strings.ToLower(string(raw)), `\ud`))
}

func (p *params) text(name string) (value string, given bool) {
	raw, given := p.members[name]
	if !given {
		return "", false
	}
	value, ok := Text(raw)
	if !ok {
		p.fail(formRefusal(name, "a string"))
	}
	return value, true
}

// maxTexts is how many strings an array may have.
const maxTexts = 10000

// texts returns the strings of an array; none if it is missing.
func (p *params) texts(name string) []string {
	raw, given := p.members[name]
	if !given {
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); raw[0] != '[' || err != nil || len(list) > maxTexts {
		p.fail(formRefusal(name, "an array of at most 10000 strings"))
		return nil
	}
	values := make([]string, len(list))
	for i, one := range list {
		var ok bool
		if values[i], ok = Text(one); !ok {
			p.fail(formRefusal(name, "an array of strings"))
			return nil
		}
	}
	return values
}

func skip(b []byte, i int) int {
	for i < len(b)-1 && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}
