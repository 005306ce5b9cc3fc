package reads

import "testing"

func TestWhatOnlyReads(t *testing.T) {
	const head, script, preflight = `{"requestId":"1","documentURL":"https://a.example/","request":{"url":"https://b.example/x",`, `"initiator":{"type":"script"}}`, `"initiator":{"type":"preflight","url":"https://a.example/"}}`
	for params, want := range map[string]bool{
		head + `"method":"GET","headers":{}},` + script:                                                             true,
		head + `"method":"HEAD","headers":{}},` + script:                                                            true,
		head + `"method":"POST","headers":{}},` + script:                                                            false,
		head + `"method":"GETX","headers":{}},` + script:                                                            false,
		head + `"method":"get","headers":{}},` + script:                                                             false,
		head + `"method":"OPTIONS","headers":{}},` + script:                                                         false,
		head + `"method":"OPTIONS","headers":{}},` + preflight:                                                      true,
		head + `"method":"OPTIONS","headers":{"type":"preflight","initiator":"{\"type\":\"preflight\""}},` + script: false,
		head + `"method":"POST","headers":{"method":"GET"}},` + script:                                              false,
		head + `"method":"POST","headers":{}},` + preflight:                                                         false,
		head: false,
		``:   false,
	} {
		if got := Event([]byte(params)); got != want {
			t.Errorf("%s: %t, want %t", params, got, want)
		}
	}
	asks := map[string]string{"access-control-request-method": "PUT"}
	for method, want := range map[string][2]bool{"GET": {true, true}, "HEAD": {true, true}, "OPTIONS": {false, true}, "POST": {false, false}, "": {false, false}} {
		if got := [2]bool{Paused(method, nil), Paused(method, asks)}; got != want {
			t.Errorf("%s: %v, want %v", method, got, want)
		}
	}
}
