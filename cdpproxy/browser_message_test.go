package cdpproxy

import (
	"strings"
	"testing"
)

func TestParseBrowserMessage(t *testing.T) {
	for _, tt := range []struct {
		msg     string
		id      int64
		reply   bool
		session string
		rest    string
	}{
		{`{"id":5,"result":{}}`, 5, true, "", `{"id":5,"result":{}`},
		{`{"id":5,"result":{},"sessionId":"AB"}`, 5, true, "AB", `{"id":5,"result":{}`},
		{`{"method":"M","params":{},"sessionId":"AB"}`, 0, false, "AB", `{"method":"M","params":{}`},
		{`{"id":1,"result":{"sessionId":"AB"}}`, 1, true, "", `{"id":1,"result":{"sessionId":"AB"}`},
		{`{"method":"M","params":{"a":",\"sessionId\":\"AB\""}}`, 0, false, "", `{"method":"M","params":{"a":",\"sessionId\":\"AB\""}`},
		{`{"method":"M","params":",\"sessionId\":\"AB"}`, 0, false, "", `{"method":"M","params":",\"sessionId\":\"AB"`},
	} {
		parsed := parseBrowserMessage([]byte(tt.msg))
		if parsed.id != tt.id || parsed.isReply != tt.reply || string(parsed.sessionID) != tt.session || tt.msg[:parsed.bodyEnd] != tt.rest {
			t.Errorf("%s: %+v (session %q, rest %q)", tt.msg, parsed, parsed.sessionID, tt.msg[:parsed.bodyEnd])
		}
	}
}

func TestSplitEvent(t *testing.T) {
	for _, c := range []struct{ msg, method, params string }{
		{`{"method":"A.b","params":{"x":"\"}"},"sessionId":"S"}`, "A.b", `{"x":"\"}"}`},
		{`{"method":"A.b","params":{}}`, "A.b", `{}`},
		{`{"method":"A.b"}`, "A.b", ""},
		{`{"method":"A.b","sessionId":"S"}`, "A.b", ""},
		{`{"id":1,"result":{}}`, "", ""},
		{`{"method":"A.b}`, "", ""},
	} {
		method, params := splitEvent([]byte(c.msg), parseBrowserMessage([]byte(c.msg)))
		if string(method) != c.method || !strings.HasPrefix(string(params), c.params) || c.params != "" && string(params) != c.params {
			t.Errorf("%s: %q %q", c.msg, method, params)
		}
	}
}
