package findings

import "testing"

func TestCommandEffect(t *testing.T) {
	for _, tt := range []struct {
		method, params string
		acts, types    bool
	}{
		{"Page.navigate", `{"url":"https://shop.example/?a=1\u0026b=2"}`, false, false},
		{"Page.navigate", `{"url":"javascript:pay()"}`, true, false},
		{"Page.navigate", `{"url":" Java\nScript:pay()"}`, true, false},
		{"Page.navigate", `{"url":"\u006aavascript:pay()"}`, true, false},
		{"Page.navigate", `{"url":"https://shop.example/javascript:x"}`, false, false},
		{"Page.navigate", `{"url":7}`, true, false},
		{"Page.captureScreenshot", ``, false, false},
		{"Network.enable", ``, false, false},
		{"Network.replayXHR", ``, true, false},
		{"Lease.step", `{"name":"x"}`, false, false},
		{"Page.reload", ``, true, false},
		{"Runtime.evaluate", `{"expression":"1"}`, true, false},
		{"Runtime.callFunctionOn", ``, true, false},
		{"DOM.setFileInputFiles", ``, true, false},
		{"Input.dispatchMouseEvent", ``, true, false},
		{"Input.dispatchKeyEvent", ``, true, true},
		{"Input.insertText", ``, true, true},
		{"Input.imeSetComposition", ``, true, true},
		{"Prophecy.tell", ``, true, false},
		{"Network", ``, false, false},
		{"", ``, true, false},
	} {
		acts, types := CommandEffect([]byte(tt.method), []byte(tt.params))
		if acts != tt.acts || types != tt.types {
			t.Errorf("%s %s: acts %v, types %v, want %v, %v", tt.method, tt.params, acts, types, tt.acts, tt.types)
		}
	}
}

func TestCommandEffectAllocatesNothing(t *testing.T) {
	for _, method := range []string{"Runtime.evaluate", "Input.dispatchMouseEvent", "Runtime.callFunctionOn", "Page.enable", "Network.enable"} {
		m := []byte(method)
		if n := testing.AllocsPerRun(100, func() { CommandEffect(m, nil) }); n != 0 {
			t.Errorf("%s: %v allocations", method, n)
		}
	}
}
