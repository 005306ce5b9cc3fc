package cdpproxy

import (
	"strings"
	"testing"
)

func TestScan(t *testing.T) {
	for _, tt := range []struct {
		name, msg string
		want      *Error
		method    string
		session   string
	}{
		{"plain", `{"id":1,"method":"Page.enable"}`, nil, "Page.enable", ""},
		{"with params and session", `{"id":1,"method":"a","params":{"x":[1,{"sessionId":"n"}]},"sessionId":"S1"}`, nil, "a", "S1"},
		{"any order and white space", " {\n\"sessionId\" : \"S\" , \"params\":{} ,\t\"method\":\"m\",\"id\":-7 } ", nil, "m", "S"},
		{"an escaped key is the key", `{"id":1,"method":"m","\u0073essionId":"S"}`, nil, "m", "S"},
		{"an escaped method is the method", `{"id":1,"method":"Browser.c\u006cose"}`, nil, "Browser.close", ""},
		{"the last session does not win", `{"id":1,"method":"m","sessionId":"A","sessionId":"B"}`, errDuplicate, "m", "A"},
		{"two methods", `{"id":1,"method":"m","method":"n"}`, errDuplicate, "m", ""},
		{"two ids", `{"id":1,"id":2,"method":"m"}`, errDuplicate, "m", ""},
		{"id too large for Chrome", `{"id":2147483648,"method":"m"}`, errNoID, "m", ""},
		{"id with a fraction", `{"id":1.5,"method":"m"}`, errNoID, "m", ""},
		{"id as a string", `{"id":"1","method":"m"}`, errNoID, "m", ""},
		{"no id", `{"method":"m"}`, errNoID, "m", ""},
		{"no method", `{"id":1}`, errNoMethod, "", ""},
		{"another member", `{"id":1,"method":"m","lease_token":4}`, errUnknownMember, "m", ""},
		{"session that is no string", `{"id":1,"method":"m","sessionId":7}`, errBadSession, "m", ""},
		{"params that are no object", `{"id":1,"method":"m","params":"x"}`, errBadParams, "m", ""},
		{"params that are an array", `{"id":1,"method":"m","params":[]}`, nil, "m", ""},
		{"a second message behind a zero byte", "{\"id\":1,\"method\":\"m\"}\x00{\"id\":2,\"method\":\"n\"}", errNotJSON, "m", ""},
		{"a zero byte in a string", "{\"id\":1,\"method\":\"m\",\"params\":{\"a\":\"\x00\"}}", errNotJSON, "m", ""},
		{"two objects", `{"id":1,"method":"m"}{}`, errNotJSON, "m", ""},
		{"a trailing comma", `{"id":1,"method":"m",}`, errNotJSON, "m", ""},
		{"a comment", `{"id":1,/* */"method":"m"}`, errNotJSON, "", ""},
		{"bad UTF-8", "{\"id\":1,\"method\":\"\xff\"}", errBadUTF8, "", ""},
		{"an array", `[]`, errNotJSON, "", ""},
		{"nothing", ``, errNotJSON, "", ""},
		{"too deep", `{"id":1,"method":"m","params":` + strings.Repeat(`{"a":`, 400) + `1` + strings.Repeat(`}`, 400) + `}`, errNotJSON, "m", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := scan([]byte(tt.msg))
			if err != tt.want {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if err != errNotJSON && err != errBadUTF8 && (string(c.method) != tt.method || string(c.sessionID) != tt.session) {
				t.Errorf("method %q session %q, want %q %q", c.method, c.sessionID, tt.method, tt.session)
			}
		})
	}
}

// TestACommandWithAnEmptySessionGetsNoLonger: what fits into Chrome's pipe with the session still does without.
func TestACommandWithAnEmptySessionGetsNoLonger(t *testing.T) {
	long := strings.Repeat("<>&\u2028", 100)
	got := string(withoutSession([]byte(`{"sessionId":"","id":1,"method":"m","params":{"a":"` + long + `"}}`)))
	if want := `{"id":1,"method":"m","params":{"a":"` + long + `"}}`; got != want {
		t.Errorf("%d bytes %.100s, want %d bytes %.100s", len(got), got, len(want), want)
	}
}
