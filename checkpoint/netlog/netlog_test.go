package netlog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const constants = `{"constants":{"logCaptureMode":"Default","logEventTypes":{"HTTP_TRANSACTION_SEND_REQUEST":40,"REQUEST_ALIVE":2,"URL_REQUEST_START_JOB":136,"WEBSOCKET_SENT_FRAME_HEADER":623}},` + "\n"

func start(id int, method, url, initiator string) string {
	return fmt.Sprintf(`{"params":{"initiator":%q,"method":%q,"url":%q},"phase":1,"source":{"id":%d,"start_time":"9","type":1},"time":"1500","type":136},`+"\n", initiator, method, url, id)
}

func simple(id, phase, kind int) string {
	return fmt.Sprintf(`{"phase":%d,"source":{"id":%d,"start_time":"9","type":1},"time":"1501","type":%d},`+"\n", phase, id, kind)
}

func frame(id, opcode int) string {
	return fmt.Sprintf(`{"params":{"final":true,"opcode":%d},"phase":0,"source":{"id":%d,"start_time":"9","type":1},"time":"1500","type":623},`+"\n", opcode, id)
}

// TestWhatLeft: a request counts when its sending begins, whoever asked for it among pages.
func TestWhatLeft(t *testing.T) {
	const shop, page = "https://shop.example/buy", "https://shop.example"
	send, gone := simple(7, 1, 40), simple(7, 2, 2)
	for _, tt := range []struct {
		name     string
		lines    []string
		want     string // what left, in their order
		open     string
		underWay bool
	}{
		{"a page's", []string{start(7, "POST", shop, page), send, gone}, "POST " + shop, "", false},
		{"that of a page in a sandbox", []string{start(7, "POST", shop, "null [internally: (1) derived from https://shop.example]"), send}, "POST " + shop, "", true},
		{"Chrome's own", []string{start(7, "POST", shop, "not an origin"), send}, "", "", false},
		{"an extension's", []string{start(7, "POST", shop, "chrome-extension://abc"), send}, "", "", false},
		{"one that reads", []string{start(7, "GET", shop, page), send}, "", "", false},
		{"Chrome's question whether a page may", []string{start(7, "OPTIONS", shop, page), send}, "", "", true},
		{"that question, answered", []string{start(7, "OPTIONS", shop, page), send, gone}, "", "", false},
		{"one that never left", []string{start(7, "POST", shop, page), gone}, "", "", false},
		{"one of which the log does not say more", []string{start(7, "PUT", shop, page)}, "", "PUT " + shop, true},
		{"one that is sent twice", []string{start(7, "POST", shop, page), send, send}, "POST " + shop, "", true},
		{"one that is redirected", []string{start(7, "POST", shop, page), send, start(7, "POST", shop+"/2", page), send}, "POST " + shop + " POST " + shop + "/2", "", true},
		{"one that is redirected to what reads", []string{start(7, "POST", shop, page), send, start(7, "GET", shop+"/2", page), send}, "POST " + shop, "", false},
		{"another one's sending", []string{start(7, "POST", shop, page), simple(8, 1, 40)}, "", "POST " + shop, true},
		{"with a fragment", []string{start(7, "DELETE", shop+"#a", page), send}, "DELETE " + shop, "", true},
		{"messages on a websocket", []string{start(7, "GET", "wss://shop.example/feed", page), send, gone, frame(7, 1), frame(7, 2), frame(8, 1)}, "WEBSOCKET wss://shop.example/feed WEBSOCKET wss://shop.example/feed", "", false},
		{"frames that begin no message", []string{start(7, "GET", "wss://shop.example/feed", page), frame(7, 0), frame(7, 8), frame(7, 9)}, "", "", false},
		{"an extension's websocket", []string{start(7, "GET", "wss://shop.example/feed", "chrome-extension://abc"), frame(7, 1)}, "", "", false},
		{"no JSON", []string{`{"params":,"type":136},`}, "", "", false},
	} {
		var r Reader
		if _, err := r.Begin([]byte(constants)); err != nil {
			t.Fatal(err)
		}
		var left, open []string
		for _, line := range tt.lines {
			if s, ok := r.Line([]byte(line)); ok {
				left = append(left, s.Method+" "+s.URL)
				if s.At.Milliseconds() != 1500 {
					t.Errorf("%s: at %v", tt.name, s.At)
				}
			}
		}
		for _, s := range r.Open() {
			open = append(open, s.Method+" "+s.URL)
		}
		if strings.Join(left, " ") != tt.want || strings.Join(open, " ") != tt.open {
			t.Errorf("%s: %q left and %q is open, want %q and %q", tt.name, left, open, tt.want, tt.open)
		}
		if r.UnderWay() != tt.underWay {
			t.Errorf("%s: any is under way: %v", tt.name, !tt.underWay)
		}
	}
}

// TestWhatIsTooMuchToRememberLeft: no request is forgotten because others wait to be sent.
func TestWhatIsTooMuchToRememberLeft(t *testing.T) {
	var r Reader
	if _, err := r.Begin([]byte(constants)); err != nil {
		t.Fatal(err)
	}
	for i := range maxOpen + 1 {
		_, left := r.Line([]byte(start(i, "POST", "https://shop.example/buy", "https://shop.example")))
		if left != (i == maxOpen) {
			t.Fatalf("request %d left: %v", i, left)
		}
	}
}

// TestTheOldestWebsocketIsForgotten when there are too many.
func TestTheOldestWebsocketIsForgotten(t *testing.T) {
	var r Reader
	if _, err := r.Begin([]byte(constants)); err != nil {
		t.Fatal(err)
	}
	for i := range maxOpen + 1 {
		r.Line([]byte(start(i, "GET", "wss://shop.example/feed", "https://shop.example")))
	}
	for id, want := range map[int]bool{0: false, 1: true, maxOpen: true} {
		if _, left := r.Line([]byte(frame(id, 1))); left != want {
			t.Errorf("a message on websocket %d left: %v", id, left)
		}
	}
}

func TestAnotherLog(t *testing.T) {
	for _, line := range []string{"", "{", `{"constants":{"logEventTypes":{"URL_REQUEST_START_JOB":1}},`, "hello"} {
		var r Reader
		if _, err := r.Begin([]byte(line)); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", line, err)
		}
		if _, ok := r.Line([]byte(start(7, "POST", "https://a.example/", "https://a.example"))); ok || len(r.Open()) > 0 {
			t.Errorf("%q: its events are believed", line)
		}
	}
}

// FuzzLine: whatever a log says, what left was begun before, by a page, and does more than read; or it
// is a message.
func FuzzLine(f *testing.F) {
	f.Add(start(7, "POST", "https://a.example/", "https://a.example") + simple(7, 1, 40) + simple(7, 2, 2))
	f.Add(start(7, "GET", "https://a.example/", "null") + simple(7, 1, 40))
	f.Add(start(7, "GET", "wss://a.example/", "https://a.example") + frame(7, 1) + frame(7, 2))
	f.Fuzz(func(t *testing.T, log string) {
		var r Reader
		if _, err := r.Begin([]byte(constants)); err != nil {
			t.Fatal(err)
		}
		begun := 0
		for line := range strings.Lines(log) {
			begun += strings.Count(line, `"type":136}`) + strings.Count(line, `"type":623}`)
			s, ok := r.Line([]byte(line))
			if begun -= boolToInt(ok); begun < 0 || ok && (s.Method == "" || s.Method == "GET" || !ofPage(s.Initiator) || strings.Contains(s.URL, "#")) {
				t.Errorf("%+v left, and %d are begun", s, begun)
			}
			if len(r.Open()) > maxOpen {
				t.Error("there is no bound")
			}
		}
	})
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
