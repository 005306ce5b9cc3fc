package methods

import "testing"

func TestCookieUse(t *testing.T) {
	for _, tt := range []struct {
		method, params string
		reads, writes  bool
	}{
		{"Network.getCookies", `{}`, true, false},
		{"Network.getAllCookies", ``, true, false},
		{"Storage.getCookies", ``, true, false},
		{"Runtime.evaluate", `{"expression":"document.cookie"}`, true, false},
		{"Runtime.evaluate", `{"expression":"document.title"}`, false, false},
		{"Runtime.callFunctionOn", `{"functionDeclaration":"async () => await cookieStore.getAll()"}`, true, false},
		{"Page.addScriptToEvaluateOnNewDocument", `{"source":"x = document.cookie"}`, true, false},
		{"Input.insertText", `{"text":"document.cookie"}`, false, false},
		{"Network.setCookie", `{}`, false, true},
		{"Network.deleteCookies", `{}`, false, true},
		{"Storage.clearDataForOrigin", `{}`, false, true},
		{"Network.enable", ``, false, false},
		{"", ``, false, false},
	} {
		if reads, writes := CookieUse([]byte(tt.method), []byte(tt.params)); reads != tt.reads || writes != tt.writes {
			t.Errorf("%s %s: reads %t, writes %t", tt.method, tt.params, reads, writes)
		}
	}
	for _, name := range []string{"Network.getCookies", "Network.setCookie", "Storage.clearDataForStorageKey", "Runtime.evaluate"} {
		if Find([]byte(name)) == nil {
			t.Errorf("%s is no method of Chrome", name)
		}
	}
	if n := testing.AllocsPerRun(100, func() { CookieUse([]byte("Runtime.evaluate"), nil) }); n > 0 {
		t.Errorf("%v allocations for a command", n)
	}
}
