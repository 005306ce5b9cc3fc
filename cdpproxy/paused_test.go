package cdpproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"

	"leasehold/lease"
)

// TestAPausedRequestIsFailedUntilTheBrowserTookItsEnd: a command that was refused, or that
// only names the request, leaves it paused.
func TestAPausedRequestIsFailedUntilTheBrowserTookItsEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		method, reply string
		shut, failed  bool
	}{
		"refused by the fence":    {"Fetch.continueRequest", "", true, true},
		"refused by the browser":  {"Fetch.continueRequest", `{"id":1,"error":{"code":-32602,"message":"Invalid header"},"sessionId":"S"}`, false, true},
		"only asked about":        {"Fetch.getResponseBody", `{"id":1,"result":{},"sessionId":"S"}`, false, true},
		"continued":               {"Fetch.continueRequest", `{"id":1,"result":{},"sessionId":"S"}`, false, false},
		"fulfilled":               {"Fetch.fulfillRequest", `{"id":1,"result":{},"sessionId":"S"}`, false, false},
		"its answer is not there": {"Fetch.continueRequest", `{"id":2,"result":{},"sessionId":"S"}`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOffline(t)
			c := b.conn()
			c.session.conn, c.session.paused = c, map[pausedRequest]pause{}
			c.session.requestPaused(pausedRequest{"S", "r1"}, false)
			if tt.shut {
				c.fence.Shut(lease.ErrExpired)
			}
			c.handleInput(clientFrame(0x81, `{"id":1,"method":"`+tt.method+`","params":{"requestId":"r1"}}`), false)
			c.offloading.Wait()
			if browser := b.read(); bytes.Contains(browser, []byte(tt.method)) == tt.shut {
				t.Fatalf("the browser got %q", browser)
			}
			b.mux.route([]byte(tt.reply))
			c.session.Fence()
			if browser := b.read(); bytes.Contains(browser, []byte(`"method":"Fetch.failRequest"`)) != tt.failed {
				t.Errorf("the browser got %q; failed, want %v", browser, tt.failed)
			}
		})
	}
}

// TestWhatAWorkerKeepsBackIsTold: an unsafe request that it fails, or answers itself, before it
// was sent; and that it did not, if the command is refused.
func TestWhatAWorkerKeepsBackIsTold(t *testing.T) {
	const done, refused = `{"id":1,"result":{},"sessionId":"S"}`, `{"id":1,"error":{"code":-32602,"message":"Invalid header"},"sessionId":"S"}`
	for name, tt := range map[string]struct {
		paused, command, params, reply string
		want                           []KeptRequest
	}{
		"failed":                 {`"request":{"method":"POST"}`, "failRequest", "", done, []KeptRequest{{"n1", true}}},
		"answered":               {`"request":{"method":"PUT"}`, "fulfillRequest", `,"responseCode":201`, done, []KeptRequest{{"n1", true}}},
		"answered by a redirect": {`"request":{"method":"POST"}`, "fulfillRequest", `,"responseCode":307`, done, nil},
		"continued":              {`"request":{"method":"POST"}`, "continueRequest", "", done, nil},
		"a GET":                  {`"request":{"method":"GET"}`, "failRequest", "", done, nil},
		"it was sent":            {`"request":{"method":"POST"},"responseStatusCode":200`, "failRequest", "", done, nil},
		"it was sent in vain":    {`"request":{"method":"POST"},"responseErrorReason":"TimedOut"`, "failRequest", "", done, nil},
		"refused":                {`"request":{"method":"POST"}`, "failRequest", "", refused, []KeptRequest{{"n1", true}, {"n1", false}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOffline(t)
			var got []KeptRequest
			b.mux.traffic = func(t Traffic) { got = append(got, *t.Kept) }
			c := b.conn()
			c.session.conn, c.session.paused = c, map[pausedRequest]pause{}
			b.mux.route([]byte(`{"method":"Fetch.requestPaused","params":{"requestId":"r1","networkId":"n1",` + tt.paused + `},"sessionId":"S"}`))
			c.handleInput(clientFrame(0x81, `{"id":1,"method":"Fetch.`+tt.command+`","params":{"requestId":"r1"`+tt.params+`}}`), false)
			c.offloading.Wait()
			b.mux.route([]byte(tt.reply))
			if !slices.Equal(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestWhatAWorkerChangesIsTold: Chrome reports a request as it was before a client that had paused
// it changed it. What is unsafe then is told as it is sent.
func TestWhatAWorkerChangesIsTold(t *testing.T) {
	const done, refused = `{"id":1,"result":{},"sessionId":"S"}`, `{"id":1,"error":{"code":-32602,"message":"Invalid header"},"sessionId":"S"}`
	get, post := `{"url":"http://a.test/x","method":"GET","headers":{"Accept":"y"}}`, `{"url":"http://a.test/x","method":"POST","headers":{},"hasPostData":true}`
	for name, tt := range map[string]struct {
		request, command, params, reply string
		want                            []string // method, URL, body; "..." for a body that is not known
	}{
		"a GET that becomes a POST":           {get, "continueRequest", `"requestId":"r1","method":"POST","postData":"YnV5PTE="`, done, []string{"POST http://a.test/x buy=1"}},
		"a POST to another URL":               {post, "continueRequest", `"requestId":"r1","url":"http://a.test/pay"`, done, []string{"POST http://a.test/pay ..."}},
		"a POST with another body":            {post, "continueRequest", `"requestId":"r1","postData":"eA=="`, done, []string{"POST http://a.test/x x"}},
		"a POST as it was":                    {post, "continueRequest", `"requestId":"r1","url":"http://a.test/x","method":"POST"`, done, nil},
		"a POST that becomes a GET":           {post, "continueRequest", `"requestId":"r1","method":"GET"`, done, nil},
		"a GET of another URL":                {get, "continueRequest", `"requestId":"r1","url":"http://a.test/y"`, done, nil},
		"other headers":                       {get, "continueRequest", `"requestId":"r1","headers":[{"name":"a","value":"b"}]`, done, nil},
		"its answer, with what changes one":   {get, "continueResponse", `"requestId":"r1","method":"POST"`, done, nil},
		"two methods":                         {get, "continueRequest", `"requestId":"r1","method":"POST","method":"GET"`, done, nil},   // it does not reach Chrome
		"two requests":                        {get, "continueRequest", `"requestId":"r1","requestId":"r2","method":"POST"`, done, nil}, // nor does this
		"a method that Chrome does not read":  {get, "continueRequest", `"requestId":"r1","METHOD":"POST"`, done, nil},
		"hidden by what Chrome does not read": {get, "continueRequest", `"requestId":"r1","method":"POST","Method":"GET"`, done, []string{"POST http://a.test/x "}},
		"a body that is none":                 {post, "continueRequest", `"requestId":"r1","postData":"%"`, done, []string{"UNKNOWN http://a.test/x ..."}},
		"a change that is refused":            {post, "continueRequest", `"requestId":"r1","method":"PUT"`, refused, []string{"PUT http://a.test/x ...", "POST http://a.test/x ..."}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOffline(t)
			var got []string
			b.mux.traffic = func(t Traffic) {
				w := *t.Rewritten
				if w.Body == "" && w.HasBody {
					w.Body = "..."
				}
				got = append(got, w.Method+" "+w.URL+" "+w.Body)
			}
			c := b.conn()
			c.session.conn, c.session.paused = c, map[pausedRequest]pause{}
			b.mux.route([]byte(`{"method":"Fetch.requestPaused","params":{"requestId":"r1","networkId":"n1","frameId":"F","resourceType":"Fetch","request":` + tt.request + `},"sessionId":"S"}`))
			c.handleInput(clientFrame(0x81, `{"id":1,"method":"Fetch.`+tt.command+`","params":{`+tt.params+`}}`), false)
			c.offloading.Wait()
			b.mux.route([]byte(tt.reply))
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// releases is a handler whose session goes on for a while after it was released.
type releases struct{ Handler }

func (releases) Lease(context.Context, string, json.RawMessage) (any, *Error) {
	return Last{Result: "released", Then: func() {}}, nil
}

// TestNothingFollowsARelease: what a client sends behind Lease.release does not reach the browser,
// however long the session takes to end.
func TestNothingFollowsARelease(t *testing.T) {
	b := newOffline(t)
	c := b.conn()
	c.handler = releases{}
	behind := clientFrame(0x81, `{"id":2,"method":"Runtime.evaluate","params":{"expression":"pay()"}}`)
	c.handleInput(slices.Concat(clientFrame(0x81, `{"id":1,"method":"Lease.release","params":{"outcome":"ok"}}`), behind), true)
	c.offloading.Wait()
	c.handleInput(behind, false)
	c.offloading.Wait()
	if browser := b.read(); len(browser) != 0 {
		t.Errorf("the browser got %q", browser)
	}
}

// TestACommandBesideACutSendsNothing: the connection is cut while the loop is at work on a
// command.
func TestACommandBesideACutSendsNothing(t *testing.T) {
	b := newOffline(t)
	c := b.conn()
	c.Cut(CloseFenced, "token 1 superseded by 2")
	c.handleInput(clientFrame(0x81, `{"id":1,"method":"DOM.enable"}`), false)
	c.offloading.Wait()
	if browser := b.read(); len(browser) != 0 {
		t.Errorf("the browser got %q", browser)
	}
}
