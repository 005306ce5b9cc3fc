package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
)

// TestAFragmentHidesNoGET: Chrome names a request without its fragment, and what a link or a script asks
// for, or a document shows within, with it. The events are those of Chromium.
func TestAFragmentHidesNoGET(t *testing.T) {
	var got []string
	m := New(func(e checkpoint.Entry) {})
	m.gets.sink = func(e checkpoint.Entry) {
		if e.Kind == checkpoint.KindGetAfter || e.Kind == checkpoint.KindGetWrite {
			got = append(got, fmt.Sprintf("%s %s %s", e.Kind, e.Name, e.URL))
		}
	}
	m.gets.acted, m.gets.actedOn = nil, func(string) (acted, typed bool) { return true, false }
	say := func(method, params string) {
		m.readerEvent(cdpproxy.Event{Session: "S", Method: method, Params: json.RawMessage(params)})
	}
	m.readerEvent(cdpproxy.Event{Session: "B", Method: eventAttached, Params: json.RawMessage(`{"sessionId":"S","targetInfo":{"targetId":"F","type":"page","url":"http://a.test/list"}}`)})
	say(eventNavigatedWithin, `{"frameId":"F","url":"http://a.test/list#/cart","navigationType":"fragment"}`)
	// A button is pressed: a script asks, and the page loads itself anew, at its route.
	say(ledger.Sent, `{"requestId":"1","loaderId":"L","documentURL":"http://a.test/list","request":{"url":"http://a.test/again?id=6","method":"GET"},"initiator":{"type":"script"},"type":"Fetch","frameId":"F"}`)
	say(ledger.Answered, `{"requestId":"1","loaderId":"L","response":{"url":"http://a.test/again?id=6","status":200},"frameId":"F"}`)
	say(eventFrameRequested, `{"frameId":"F","reason":"reload","url":"http://a.test/list#/cart","disposition":"currentTab"}`)
	say(ledger.Sent, `{"requestId":"M","loaderId":"M","documentURL":"http://a.test/list","request":{"url":"http://a.test/list","urlFragment":"#/cart","method":"GET"},"initiator":{"type":"other"},"type":"Document","frameId":"F"}`)
	say(ledger.Answered, `{"requestId":"M","loaderId":"M","response":{"url":"http://a.test/list","status":200},"frameId":"F"}`)
	say(eventFrameNavigated, `{"frame":{"id":"F","loaderId":"M","url":"http://a.test/list","urlFragment":"#/cart"}}`)
	// A link to a part of another page is pressed, which a redirect answers.
	say(eventFrameRequested, `{"frameId":"F","reason":"anchorClick","url":"http://a.test/take#part","disposition":"currentTab"}`)
	say(ledger.Sent, `{"requestId":"N","loaderId":"N","documentURL":"http://a.test/take","request":{"url":"http://a.test/take","urlFragment":"#part","method":"GET"},"initiator":{"type":"other"},"type":"Document","frameId":"F"}`)
	say(ledger.Sent, `{"requestId":"N","loaderId":"N","documentURL":"http://a.test/8","request":{"url":"http://a.test/8","urlFragment":"#part","method":"GET"},"redirectResponse":{"status":302},"initiator":{"type":"other"},"type":"Document","frameId":"F"}`)
	say(ledger.Answered, `{"requestId":"N","loaderId":"N","response":{"url":"http://a.test/8","status":200},"frameId":"F"}`)
	want := []string{
		"get_after_action  http://a.test/again?id=6", "get_after_action  http://a.test/list", "get_write reloaded http://a.test/again?id=6",
		"get_after_action  http://a.test/take", "get_write moved_on http://a.test/take",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWhoLedAPage: it is led by a page beside it if a link, a form or a script may have done that. Whichever
// of them asked, and whichever was acted on, an answer with yes confirms what is asked for next.
func TestWhoLedAPage(t *testing.T) {
	const list, popup = "list", "popup" // sessions; their targets are L and P
	for name, tt := range map[string]struct {
		led    string
		acted  []string
		asks   string // where a dialog is answered with yes
		reason string
		frame  string // the frame that is led; empty: the page
		status int    // of a redirect; 0: there is none
		want   []string
	}{
		"a confirmed link into a popup":                      {popup, []string{list, popup}, list, "anchorClick", "", 0, []string{"get_after_action ", "get_write confirmed"}},
		"a popup that asks, and leads its opener":            {list, []string{list, popup}, popup, "scriptInitiated", "", 0, []string{"get_after_action ", "get_write confirmed"}},
		"a confirmed link into a popup that nobody acted on": {popup, []string{list}, list, "anchorClick", "", 0, []string{"get_after_action ", "get_write confirmed"}},
		"a confirmed form":                                   {popup, []string{list}, list, "formSubmissionGet", "", 0, []string{"get_after_action ", "get_write confirmed"}},
		"a confirmed script that opens a tab by its name":    {popup, []string{list}, list, "other", "", 0, []string{"get_after_action ", "get_write confirmed"}},
		"nobody asked":                              {popup, []string{list, popup}, "", "anchorClick", "", 0, []string{"get_after_action "}},
		"a page that refreshes itself":              {popup, []string{list}, list, "metaTagRefresh", "", 302, nil},
		"a frame of its markup":                     {popup, []string{list}, list, "initialFrameNavigation", "I", 302, nil},
		"a page that was acted on refreshes itself": {popup, []string{list, popup}, list, "metaTagRefresh", "", 0, []string{"get_after_action "}},
		"a frame that a script leads":               {popup, []string{list}, "", "scriptInitiated", "I", 302, []string{"get_after_action ", "get_write moved_on"}},
	} {
		var got []string
		m := New(func(checkpoint.Entry) {})
		m.gets.sink = func(e checkpoint.Entry) {
			if e.Kind == checkpoint.KindGetAfter || e.Kind == checkpoint.KindGetWrite {
				got = append(got, fmt.Sprintf("%s %s", e.Kind, e.Name))
			}
		}
		m.gets.acted, m.gets.actedOn = nil, func(session string) (acted, typed bool) { return slices.Contains(tt.acted, session), false }
		say := func(session, method, params string, values ...any) {
			m.readerEvent(cdpproxy.Event{Session: session, Method: method, Params: fmt.Appendf(nil, params, values...)})
		}
		say("B", eventAttached, `{"sessionId":"list","targetInfo":{"targetId":"L","type":"page","url":"http://a.test/list"}}`)
		say("B", eventAttached, `{"sessionId":"popup","targetInfo":{"targetId":"P","type":"page","url":"","openerId":"L","canAccessOpener":true}}`)
		say(popup, ledger.Sent, `{"requestId":"1","loaderId":"1","documentURL":"http://a.test/popup","request":{"url":"http://a.test/popup","method":"GET"},"initiator":{"type":"other"},"type":"Document","frameId":"P"}`)
		say(popup, ledger.Answered, `{"requestId":"1","loaderId":"1","response":{"url":"http://a.test/popup","status":200},"frameId":"P"}`)
		say(popup, eventFrameNavigated, `{"frame":{"id":"P","loaderId":"1","url":"http://a.test/popup"}}`)
		got = nil
		if tt.asks != "" {
			say(tt.asks, eventDialogOpening, `{"url":"http://a.test/list","frameId":"F","message":"sure?","type":"confirm","hasBrowserHandler":false}`)
			say(tt.asks, eventDialogClosed, `{"frameId":"F","result":true,"userInput":""}`)
		}
		frame := map[string]string{list: "L", popup: "P"}[tt.led]
		if tt.frame != "" {
			frame = tt.frame
			say(tt.led, eventFrameNavigated, `{"frame":{"id":%q,"loaderId":"2","url":"http://a.test/frame"}}`, frame)
		}
		say(tt.led, eventFrameRequested, `{"frameId":%q,"reason":%q,"url":"http://a.test/drop","disposition":"currentTab"}`, frame, tt.reason)
		const sent = `{"requestId":"3","loaderId":"3","documentURL":"http://a.test/x","request":{"url":"http://a.test/%s","method":"GET"},%s"initiator":{"type":"other"},"type":"Document","frameId":%q}`
		say(tt.led, ledger.Sent, sent, "drop", "", frame)
		if tt.status != 0 {
			say(tt.led, ledger.Sent, sent, "8", fmt.Sprintf(`"redirectResponse":{"status":%d},`, tt.status), frame)
		}
		say(tt.led, ledger.Answered, `{"requestId":"3","loaderId":"3","response":{"url":"http://a.test/8","status":200},"frameId":%q}`, frame)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestADocumentThatNobodyIsSaidToHaveAskedFor: Chrome tells nothing of the process that had a tab until a moment
// ago, where a script may still lead it. That a document asked shows in the referrer, which no command gives; a
// reload and a tab's history have that of the first time. The events are those of Chromium.
func TestADocumentThatNobodyIsSaidToHaveAskedFor(t *testing.T) {
	for name, tt := range map[string]struct {
		begun, referrer string
		want            []string
	}{
		"a script of the page beside it": {"differentDocument", `"Referer":"http://a.test/list"`, []string{"get_after_action ", "get_write moved_on"}},
		"a command":                      {"differentDocument", "", nil},
		"a command that reloads it":      {"reload", `"Referer":"http://a.test/list"`, nil},
		"a command that goes back":       {"historyDifferentDocument", `"Referer":"http://a.test/list"`, nil},
	} {
		var got []string
		m := New(func(checkpoint.Entry) {})
		m.gets.sink = func(e checkpoint.Entry) { got = append(got, fmt.Sprintf("%s %s", e.Kind, e.Name)) }
		m.gets.acted, m.gets.actedOn = nil, func(session string) (acted, typed bool) { return session == "list", false }
		say := func(session, method, params string, values ...any) {
			m.readerEvent(cdpproxy.Event{Session: session, Method: method, Params: fmt.Appendf(nil, params, values...)})
		}
		say("B", eventAttached, `{"sessionId":"list","targetInfo":{"targetId":"L","type":"page","url":"http://a.test/list"}}`)
		say("B", eventAttached, `{"sessionId":"popup","targetInfo":{"targetId":"P","type":"page","url":"","openerId":"L","canAccessOpener":true}}`)
		say("popup", ledger.Sent, `{"requestId":"1","loaderId":"1","documentURL":"http://b.test/","request":{"url":"http://b.test/","method":"GET"},"initiator":{"type":"other"},"type":"Document","frameId":"P"}`)
		say("popup", ledger.Answered, `{"requestId":"1","loaderId":"1","response":{"url":"http://b.test/","status":200},"frameId":"P"}`)
		say("popup", eventFrameNavigated, `{"frame":{"id":"P","loaderId":"1","url":"http://b.test/"}}`)
		got = nil
		say("popup", eventFrameStarted, `{"frameId":"P","url":"http://a.test/take","loaderId":"2","navigationType":%q}`, tt.begun)
		say("popup", ledger.Sent, `{"requestId":"2","loaderId":"2","documentURL":"http://a.test/take","request":{"url":"http://a.test/take","method":"GET","headers":{%s}},"initiator":{"type":"other"},"type":"Document","frameId":"P"}`, tt.referrer)
		say("popup", ledger.Sent, `{"requestId":"2","loaderId":"2","documentURL":"http://a.test/8","request":{"url":"http://a.test/8","method":"GET","headers":{%s}},"redirectResponse":{"status":302},"initiator":{"type":"other"},"type":"Document","frameId":"P"}`, tt.referrer)
		say("popup", ledger.Answered, `{"requestId":"2","loaderId":"2","response":{"url":"http://a.test/8","status":200},"frameId":"P"}`)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestAGETWhoseRedirectIsRefusedWasSent: its site had it, whether Chrome tells of that before or after it tells that
// the browser refuses to go where the redirect leads.
func TestAGETWhoseRedirectIsRefusedWasSent(t *testing.T) {
	const (
		carried = `{"requestId":"1","associatedCookies":[],"headers":{}}`
		refused = `{"requestId":"1","errorText":"net::ERR_BLOCKED_BY_CSP","blockedReason":"csp"}`
	)
	type event struct{ method, params string }
	for name, tt := range map[string]struct {
		events []event
		want   []string
	}{
		"never sent": {[]event{{ledger.Failed, refused}}, nil},
		"sent first": {[]event{{ledger.Carried, carried}, {ledger.Failed, refused}}, []string{"unanswered"}},
		"sent last":  {[]event{{ledger.Failed, refused}, {ledger.Carried, carried}, {ledger.Carried, carried}}, []string{"unanswered"}},
	} {
		var got []string
		m := New(func(checkpoint.Entry) {})
		m.gets.sink = func(e checkpoint.Entry) {
			if e.Kind == checkpoint.KindGetWrite {
				got = append(got, e.Name)
			}
		}
		m.gets.acted, m.gets.actedOn = nil, func(string) (acted, typed bool) { return true, false }
		say := func(method, params string) {
			m.readerEvent(cdpproxy.Event{Session: "S", Method: method, Params: json.RawMessage(params)})
		}
		m.readerEvent(cdpproxy.Event{Session: "B", Method: eventAttached, Params: json.RawMessage(`{"sessionId":"S","targetInfo":{"targetId":"F","type":"page","url":"http://a.test/list"}}`)})
		say(ledger.Sent, `{"requestId":"1","loaderId":"L","documentURL":"http://a.test/list","request":{"url":"http://a.test/take?id=6","method":"GET"},"initiator":{"type":"script"},"type":"Fetch","frameId":"F"}`)
		for _, e := range tt.events {
			say(e.method, e.params)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// busyPage is a page that answers when it is told to.
type busyPage struct{ answers chan struct{} }

func (b busyPage) Call(ctx context.Context, _, _ string, _, _ any) error {
	select {
	case <-b.answers:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (busyPage) Post(string, string, any) {}

// TestAnAnswerToADialogCountsUntilThePageHasGoneOn: on a busy host the script that asked goes on late.
func TestAnAnswerToADialogCountsUntilThePageHasGoneOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		m := New(func(checkpoint.Entry) {})
		m.gets.sink = func(e checkpoint.Entry) {
			if e.Kind == checkpoint.KindGetWrite {
				got = append(got, fmt.Sprintf("%s %s", e.Name, e.URL))
			}
		}
		m.gets.acted, m.gets.actedOn = nil, func(string) (acted, typed bool) { return true, false }
		page := busyPage{make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		go m.gets.followAgreements(ctx, page)
		defer stop()
		say := func(method, params string) {
			m.readerEvent(cdpproxy.Event{Session: "S", Method: method, Params: json.RawMessage(params)})
		}
		asks := func(id string) {
			say(ledger.Sent, `{"requestId":"`+id+`","loaderId":"L","documentURL":"http://a.test/list","request":{"url":"http://a.test/drop?id=`+id+`","method":"GET"},"initiator":{"type":"script"},"type":"Fetch","frameId":"F"}`)
			say(ledger.Answered, `{"requestId":"`+id+`","loaderId":"L","response":{"url":"http://a.test/drop?id=`+id+`","status":200},"frameId":"F"}`)
		}
		dialog := func() {
			say(eventDialogOpening, `{"url":"http://a.test/list","frameId":"F","message":"sure?","type":"confirm","hasBrowserHandler":false}`)
			say(eventDialogClosed, `{"frameId":"F","result":true,"userInput":""}`)
			synctest.Wait()
		}
		dialog()
		time.Sleep(time.Minute) // the page gets no processor
		asks("1")
		dialog() // the page asks again before it has answered about the first time
		page.answers <- struct{}{}
		time.Sleep(time.Minute)
		asks("2")
		page.answers <- struct{}{}
		synctest.Wait()
		asks("3")
		time.Sleep(2 * agreeing)
		asks("4")
		if want := []string{"confirmed http://a.test/drop?id=1", "confirmed http://a.test/drop?id=2", "confirmed http://a.test/drop?id=3"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestAGETThatIsWithheldWasNotSent: what a page asks for while the browser stands still leaves it only if that goes on.
// Until then it is no GET after an action, and none that is not answered, however its page ends.
func TestAGETThatIsWithheldWasNotSent(t *testing.T) {
	const stop = 100 * time.Second
	after, unanswered, guarded := "get_after_action ", "get_write unanswered", "get_write guarded"
	crash := func(m *Monitor) { m.readerEvent(cdpproxy.Event{Session: "S", Method: eventCrashed}) }
	fail := func(m *Monitor) {
		m.readerEvent(cdpproxy.Event{Session: "S", Method: ledger.Failed, Params: json.RawMessage(`{"requestId":"1","errorText":"net::ERR_ABORTED","canceled":true}`)})
	}
	giveUp := func(m *Monitor) { m.gets.GiveUp() }
	moves, ended := func(m *Monitor) { m.still.Moves() }, func(m *Monitor) { m.still.PagesEnd() }
	for name, tt := range map[string]struct {
		at    float64
		query string
		then  []func(*Monitor)
		want  []string
	}{
		"it stands still":                           {101, "", []func(*Monitor){giveUp}, nil},
		"its page crashes":                          {101, "", []func(*Monitor){crash}, nil},
		"its page takes it back":                    {101, "", []func(*Monitor){fail}, nil},
		"its pages are ended":                       {101, "", []func(*Monitor){giveUp, ended, crash}, nil},
		"one that looks like a write":               {101, "?nonce=a", []func(*Monitor){giveUp, ended}, nil},
		"made before":                               {99, "", []func(*Monitor){giveUp, ended}, []string{after, unanswered}},
		"the browser goes on":                       {101, "", []func(*Monitor){moves, giveUp}, []string{after, unanswered}},
		"its page crashed, and the browser goes on": {101, "", []func(*Monitor){crash, moves}, []string{after, unanswered}},
		"given up, and the browser goes on":         {101, "?nonce=a", []func(*Monitor){giveUp, moves}, []string{after, guarded}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			m := direct(func(e checkpoint.Entry) {
				if e.Kind == checkpoint.KindGetAfter || e.Kind == checkpoint.KindGetWrite {
					got = append(got, fmt.Sprintf("%s %s", e.Kind, e.Name))
				}
			})
			m.gets.acted, m.gets.actedOn = nil, func(string) (acted, typed bool) { return true, false }
			m.still.Begins(stop)
			m.readerEvent(cdpproxy.Event{Session: "S", Method: ledger.Sent, Params: fmt.Appendf(nil,
				`{"requestId":"1","loaderId":"L","documentURL":"http://a.test/list","request":{"url":"http://a.test/take%s","method":"GET"},"timestamp":%f,"initiator":{"type":"script"},"type":"Fetch","frameId":"F"}`, tt.query, tt.at)})
			for _, do := range tt.then {
				do(m)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
