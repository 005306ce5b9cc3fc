package acts

import (
	"slices"
	"testing"
	"time"

	"leasehold/internal/boottime"
)

// TestCommandsOnTheAccountsCookiesAreReported: once in a while by method, and not those on
// cookies of a context that a client made.
func TestCommandsOnTheAccountsCookiesAreReported(t *testing.T) {
	var got []string
	contexts := map[string]string{"S": "own", "F": "made"}
	m := &Acts{}
	m.Follow(testEffect, func(session []byte) (target, context string) { return "", contexts[string(session)] }, func(c CookieCommand) {
		if c.Reads == c.Writes {
			got = append(got, "?")
		}
		got = append(got, c.Method)
	})
	m.MadeContext("made")
	send := func(at time.Duration, session, method, params string) {
		m.Sent(boottime.Instant(at), Command{Method: []byte(method), Session: []byte(session), Params: []byte(params)})
	}
	send(1, "S", "Network.getCookies", `{}`)
	send(2, "S", "Network.getCookies", `{}`)
	send(3, "F", "Network.setCookie", `{}`)
	send(3, "", "Storage.getCookies", `{"browserContextId":"made"}`)
	send(4, "", "Storage.setCookies", `{"cookies":[],"browserContextId":"own"}`)
	send(5, "S", "Runtime.evaluate", `{"expression":"document.cookie"}`)
	send(6, "S", "Test.act", `{"text":"document.cookie"}`)
	// It has no such parameter, and Chrome ignores it.
	send(7, "S", "Network.setCookie", `{"name":"a","value":"b","browserContextId":"made"}`)
	send(8, "S", "Runtime.callFunctionOn", `{"functionDeclaration":"() => document.cookie","browserContextId":"made"}`)
	// Without a context, it is about the profile's own, on whichever page it is sent.
	send(9, "F", "Storage.clearCookies", `{}`)
	send(2*time.Second, "S", "Network.getCookies", `{}`)
	want := []string{"Network.getCookies", "Storage.setCookies", "Runtime.evaluate", "Network.setCookie", "Runtime.callFunctionOn", "Storage.clearCookies", "Network.getCookies"}
	if !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}
