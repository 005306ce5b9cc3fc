package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/evidence/capture"
)

// calling is a browser that answers calls as the function does, and keeps what was posted.
type calling struct {
	answer func(ctx context.Context, session, method string) (result string, err error)

	mu     sync.Mutex
	posted []string
}

func (c *calling) Call(ctx context.Context, session, method string, _, result any) error {
	text, err := c.answer(ctx, session, method)
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal([]byte(text), result)
}

func (c *calling) Post(session, method string, _ any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.posted = append(c.posted, session+" "+method)
}

// TestTheBacklogIsWorkedOffToTheEnd: what was heard before the browser was gone is processed,
// in order, and whoever waits for it wakes.
func TestTheBacklogIsWorkedOffToTheEnd(t *testing.T) {
	t.Parallel()
	b := newBacklog()
	for i := range 10 {
		if !b.queue(heard{answer: &answer{id: fmt.Sprint(i)}}) {
			t.Fatal("there is no room")
		}
	}
	b.processed()
	if b.caughtUp(1) {
		t.Error("it counts as caught up with while something waits")
	}
	gone := make(chan struct{})
	close(gone)
	var order string
	b.workOff(gone, func(h heard) {
		if b.empty() {
			t.Error("what is being processed does not count")
		}
		order += h.answer.id
	})
	if order != "0123456789" || !b.caughtUp(1) || b.caughtUp(2) {
		t.Errorf("processed %s, caught up with one event: %t, with two: %t", order, b.caughtUp(1), b.caughtUp(2))
	}
}

// TestWhetherAnotherPageStays: only pages of the profile's own browser context count, and
// none that was asked to close before.
func TestWhetherAnotherPageStays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		contexts []string
		want     []bool // at each page that closes
	}{
		"one page":                       {[]string{"own"}, []bool{false}},
		"two pages":                      {[]string{"own", "own"}, []bool{true, false}},
		"one of a client's context, too": {[]string{"own", "client"}, []bool{false}},
	} {
		ps := newPages(newNavigations())
		ps.ownContext = "own"
		for i, c := range tt.contexts {
			ps.open[fmt.Sprint(i)] = &page{context: c}
		}
		for i, want := range tt.want {
			if got := ps.closes(fmt.Sprint(i)); got != want {
				t.Errorf("%s, the %d. that closes: another one stays: %t", name, i+1, got)
			}
		}
		ps.forget()
		if got := ps.closes("0"); got != tt.want[0] {
			t.Errorf("%s, in the next session: another one stays: %t", name, got)
		}
	}
}

// TestAPageThatClosesByItself: one of three pages was asked to close, another one closes by itself
// before it does, and then the third is asked: none stays.
func TestAPageThatClosesByItself(t *testing.T) {
	t.Parallel()
	ps := newPages(newNavigations())
	for _, id := range []string{"A", "B", "C"} {
		ps.open[id], ps.targets["S"+id] = &page{}, id
	}
	if !ps.closes("A") {
		t.Error("A closes: B and C stay")
	}
	ps.detached("SB")
	if ps.closes("C") {
		t.Error("C closes: A was asked to close before, and B has ended")
	}
	if ps.detached("SA"); len(ps.closing) != 1 {
		t.Errorf("still asked to close: %v, want C alone", ps.closing)
	}
}

// TestWhichPageIsKept: the one that is open alone.
func TestWhichPageIsKept(t *testing.T) {
	t.Parallel()
	ps := newPages(newNavigations())
	for _, id := range []string{"A", "B"} {
		ps.open[id] = &page{Page: capture.Page{TargetID: id}}
	}
	if ps.keep("A") || ps.kept() != "" {
		t.Errorf("%q is kept beside another one", ps.kept())
	}
	delete(ps.open, "A")
	if ps.keep("A") || !ps.keep("B") || ps.kept() != "B" {
		t.Errorf("%q is kept, which is not open", ps.kept())
	}
}

// TestADocumentThatHangsHoldsUpNoOther: each document gets the function by which its script
// tells once its world is there, and one that never has a world gets none.
func TestADocumentThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chrome := &calling{answer: func(ctx context.Context, session, _ string) (string, error) {
			switch session {
			case "hangs":
				<-ctx.Done()
				return "", ctx.Err()
			case "gone":
				return "", errors.New("no frame with the given id")
			}
			return "{}", nil
		}}
		ty := newTyping(chrome, newPages(newNavigations()), nil)
		ctx, cancel := context.WithCancel(t.Context())
		var binding sync.WaitGroup
		binding.Go(func() { ty.bindDocuments(ctx) })
		for _, session := range []string{"hangs", "gone", "S"} {
			ty.watch(session, "F")
		}
		synctest.Wait()
		chrome.mu.Lock()
		posted := slices.Clone(chrome.posted)
		chrome.mu.Unlock()
		if len(posted) != 1 || posted[0] != "S Runtime.addBinding" {
			t.Errorf("posted %q", posted)
		}
		cancel()
		binding.Wait()
	})
}

// TestCookiesOfANewPageThatCannotBeRead: then nobody can tell what became of them, unless the
// browser stands still, in which no new one comes.
func TestCookiesOfANewPageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for still, want := range map[bool]checkpoint.CookieEvent{false: checkpoint.CookiesUnread, true: checkpoint.CookiesRead} {
		asked := make(chan struct{})
		chrome := &calling{answer: func(context.Context, string, string) (string, error) {
			defer close(asked)
			return "", errors.New("it hangs")
		}}
		var got []checkpoint.Entry
		s := newStill(&requestLog{}, newUnreported(), nil)
		if still {
			s.Begins(time.Second)
		}
		n := newNavigations()
		c := newCookies(chrome, newPages(n), n, s, func(e checkpoint.Entry) { got = append(got, e) })
		gone := make(chan struct{})
		var learning sync.WaitGroup
		learning.Go(func() { c.learnNew(gone) })
		c.documentCame()
		<-asked
		close(gone)
		learning.Wait()
		c.Compare(json.RawMessage(`{"cookies":[]}`), nil)
		if len(got) != 1 || got[0].Cookie.What != want {
			t.Errorf("standing still: %t: %+v", still, got)
		}
	}
}

// TestCookiesAreJudgedOnceTheGrantsAreKnown, also if Chrome tells earlier what becomes of them: a login that is replaced
// a moment after the grant is no new cookie.
func TestCookiesAreJudgedOnceTheGrantsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []checkpoint.Entry
		c := newCookies(nil, nil, nil, nil, func(e checkpoint.Entry) { got = append(got, e) })
		const jar = `{"cookies":[{"name":"sid","value":%q,"domain":"a.example","path":"/","expires":4000000000,"httpOnly":true,"secure":true}]}`
		learn := c.Learn(fmt.Appendf(nil, jar, "f3Kq81Lz0vXw7Bt2Yc9Dn4Hs"), nil)
		go c.Compare(fmt.Appendf(nil, jar, "pR7mWx20QaZ5uVb8Ke3Jt6Gd"), nil)
		synctest.Wait()
		if len(got) != 0 {
			t.Errorf("judged before the grant's cookies are known: %+v", got)
		}
		learn()
		synctest.Wait()
		if len(got) != 2 || got[0].Cookie.What != checkpoint.CookieReplaced || got[1].Cookie.What != checkpoint.CookiesRead {
			t.Errorf("%+v", got)
		}
	})
}

// TestWhichPagesHaveTheirFirstCookiesRead: those whose first document Chrome may have begun to load before the
// monitor listened. A jar of thousands of cookies occupies Chrome for as long as a page takes to load.
func TestWhichPagesHaveTheirFirstCookiesRead(t *testing.T) {
	const (
		request   = `Network.requestWillBeSent {"requestId":"D","loaderId":"D","frameId":%q%s,"documentURL":"http://a.example/","request":{"url":"http://a.example/","method":"GET"},"type":"Document"}`
		changes   = `Target.targetInfoChanged {"targetInfo":{"targetId":"T","type":"page","url":"http://a.example/"}}`
		navigates = `Page.frameNavigated {"frame":{"id":"T","loaderId":"D","url":"http://a.example/"}}`
	)
	begins, inFrame := fmt.Sprintf(request, "T", ""), fmt.Sprintf(request, "F", "")
	redirected := fmt.Sprintf(request, "T", `,"redirectResponse":{"status":302}`)
	for name, c := range map[string]struct {
		url, opener string
		events      []string
		want        bool
	}{
		"heard in the middle of redirects": {"about:blank", "", []string{redirected, changes, navigates}, true},
		"opened empty, then led to a site": {"about:blank", "", []string{begins, changes, navigates, begins, navigates}, false},
		"opened with a site":               {"about:blank", "", []string{changes, navigates}, true},
		"its change was not told":          {"about:blank", "", []string{navigates}, true},
		"led to another site since":        {"about:blank", "", []string{changes, begins, navigates}, true},
		"only a frame was led to a site":   {"about:blank", "", []string{inFrame, changes}, true},
		"it was there before":              {"http://a.example/", "", []string{begins, navigates}, true},
		"opened by a page":                 {"about:blank", "O", []string{begins, changes, navigates}, true},
		"nothing was loaded":               {"about:blank", "", nil, false},
	} {
		m, _ := attached(t)
		attached := fmt.Sprintf(`Target.attachedToTarget {"sessionId":"S","targetInfo":{"targetId":"T","type":"page","url":%q,"openerId":%q}}`, c.url, c.opener)
		for i, e := range append([]string{attached}, c.events...) {
			method, params, _ := strings.Cut(e, " ")
			event := cdpproxy.Event{Method: method, Params: json.RawMessage(params)}
			if i > 0 && !strings.HasPrefix(method, "Target.") {
				event.Session = "S"
			}
			m.readerEvent(event)
			m.process(event)
		}
		if err := m.chrome.Call(t.Context(), "", "Browser.getVersion", nil, nil); err != nil { // what was posted is written
			t.Fatalf("the last command: %v", err)
		}
		if got := len(m.cookies.newPage) > 0; got != c.want {
			t.Errorf("%s: the cookies are read again: %t", name, got)
		}
	}
}

// TestTheURLOfASocketIsKnown until the session is over.
func TestTheURLOfASocketIsKnown(t *testing.T) {
	m := direct(func(checkpoint.Entry) {})
	m.chrome.mux = &cdpproxy.Mux{}
	m.navigations.follow(m.chrome.mux)
	m.readerEvent(cdpproxy.Event{Method: ledger.Socket, Params: []byte(`{"requestId":"s","url":"ws://a/"}`)})
	m.readerEvent(requested("r", "GET", "http://a/", ""))
	if m.log.socketURL("s") != "ws://a/" || m.log.socketURL("r") != "" {
		t.Errorf("%q, %q", m.log.socketURL("s"), m.log.socketURL("r"))
	}
	if m.forget(); m.log.socketURL("s") != "" {
		t.Error("a session that is over is known")
	}
}
