package cdpproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/lease"
)

// TestWhatWasPostedGoesFirst: nothing that is sent after a post reaches the browser before it, although
// posts are sent by a goroutine, which has not run yet here. A request that a post fails would be sent if
// the end of its CDP session came first.
func TestWhatWasPostedGoesFirst(t *testing.T) {
	for _, tt := range []struct {
		name string
		send func(*offline, *Conn)
	}{
		{"a call", func(b *offline, _ *Conn) {
			if _, err := b.mux.start(nil, "", "Test.second", nil, &b.mux.calls); err != nil {
				t.Error(err)
			}
		}},
		{"a client's command", func(_ *offline, c *Conn) {
			c.handleInput(clientFrame(0x81, `{"id":1,"method":"DOM.enable","params":{"Test.second":1}}`), false)
			c.offloading.Wait()
		}},
		{"a client's command that is looked at", func(_ *offline, c *Conn) {
			c.handleInput(clientFrame(0x81, `{"id":1,"method":"Target.closeTarget","params":{"targetId":"Test.second"}}`), false)
			c.offloading.Wait()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newOffline(t)
			c := b.conn()
			b.mux.post(oneWay("S", "Test.first", nil))
			tt.send(b, c)
			sent := b.read()
			if first, second := bytes.Index(sent, []byte("Test.first")), bytes.Index(sent, []byte("Test.second")); first < 0 || second < first {
				t.Errorf("the browser got %q", sent)
			}
		})
	}
}

// TestDroppedCommandsAreCounted: one of them may have been to turn on the events of a page. What ends the
// pause of a request is not dropped, since the request would be sent when its CDP session ends.
func TestDroppedCommandsAreCounted(t *testing.T) {
	b := newOffline(t)
	c := b.conn()
	o := &Observer{session: c.session}
	for range maxPosts {
		o.Post("S", "Test.waits", nil)
	}
	o.Post("S", "Test.dropped", nil)
	o.Resolve("S", "ends", "Fetch.failRequest", map[string]string{"requestId": "ends"})
	c.session.fenced = true
	c.session.requestPaused(pausedRequest{"S", "fenced"}, false)
	if b.mux.Dropped() != 1 {
		t.Errorf("%d dropped, want 1", b.mux.Dropped())
	}
	for _, post := range b.mux.posts[maxPosts:] {
		if bytes.Contains(post, []byte(`"requestId":"ends"`)) || bytes.Contains(post, []byte(`"requestId":"fenced"`)) {
			continue
		}
		t.Errorf("behind the bound waits %q", post)
	}
	if n := len(b.mux.posts) - maxPosts; n != 2 {
		t.Errorf("%d are behind the bound, want 2", n)
	}
}

// TestAPostThatThePipeDoesNotTakeWaits: the browser does not read, and nobody waits for that. What is sent
// once it reads again still comes behind what was posted, of which a part may be in the pipe.
func TestAPostThatThePipeDoesNotTakeWaits(t *testing.T) {
	b := newOffline(t)
	b.mux.LimitWrites(time.Nanosecond)
	long := oneWay("S", "Test.first", map[string]string{"a": strings.Repeat("x", 100<<10)}) // a pipe takes 64 KiB
	b.mux.post(long)
	if _, err := b.mux.start(nil, "", "Test.refused", nil, &b.mux.calls); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("while the pipe is full: %v", err)
	}
	part := b.read()
	b.mux.LimitWrites(0)
	if _, err := b.mux.start(nil, "", "Test.second", nil, &b.mux.calls); err != nil {
		t.Fatal(err)
	}
	sent := append(part, b.read()...)
	first, second, _ := bytes.Cut(sent, []byte{0})
	if len(part) == 0 || !bytes.Equal(first, long) || !bytes.Contains(second, []byte("Test.second")) || bytes.Count(second, []byte{0}) != 1 {
		t.Errorf("%d bytes at first; in all %d, and then %q", len(part), len(first), second)
	}
}

// paused is a browser for which nobody waits when its pipe is full, and a session whose client has
// paused a request.
func paused(t *testing.T) (*offline, *ClientSession) {
	b := newOffline(t)
	s := b.conn().session
	s.paused = map[pausedRequest]pause{}
	s.requestPaused(pausedRequest{"S", "r1"}, false)
	b.mux.LimitWrites(time.Nanosecond)
	return b, s
}

// TestAFenceWhoseFailuresThePipeDoesNotTake: the browser does not read for so long that nobody waits for it.
// What was paused is failed once it reads, before anything that is sent later, which might let it go.
func TestAFenceWhoseFailuresThePipeDoesNotTake(t *testing.T) {
	b, s := paused(t)
	b.mux.post(oneWay("S", "Test.first", map[string]string{"a": strings.Repeat("x", 100<<10)})) // a pipe takes 64 KiB
	s.Fence()
	sent := b.read()
	b.mux.LimitWrites(0)
	b.mux.post(oneWay("S", "Target.detachFromTarget", nil))
	if _, err := b.mux.start(nil, "", "Test.last", nil, &b.mux.calls); err != nil {
		t.Fatal(err)
	}
	sent = append(sent, b.read()...)
	if failed, detached := bytes.Index(sent, []byte("Fetch.failRequest")), bytes.Index(sent, []byte("Target.detachFromTarget")); failed < 0 || detached < failed {
		t.Errorf("the browser got, of %d bytes, at last %q", len(sent), sent[max(0, len(sent)-400):])
	}
}

// TestAMessageThatCannotBeFinishedIsEnded: half of it is in the pipe when nobody waits for the browser any
// more. What is sent once it reads again is not taken for the other half.
func TestAMessageThatCannotBeFinishedIsEnded(t *testing.T) {
	b, s := paused(t)
	if err := b.mux.send(nil, oneWay("S", "Test.long", map[string]string{"a": strings.Repeat("x", 100<<10)})); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("while the pipe is full: %v", err)
	}
	sent := b.read()
	b.mux.LimitWrites(0)
	s.Fence()
	sent = append(sent, b.read()...)
	messages := bytes.Split(sent, []byte{0})
	if last := messages[max(0, len(messages)-2)]; !json.Valid(last) || !bytes.Contains(last, []byte("Fetch.failRequest")) {
		t.Errorf("the browser got %d bytes, and at last %q", len(sent), last[max(0, len(last)-200):])
	}
}

// TestAMessageThatWouldEndThePipeIsNotSent, whoever sends it: the browser would be lost with its pipe.
func TestAMessageThatWouldEndThePipeIsNotSent(t *testing.T) {
	b := newOffline(t)
	b.mux.LimitWrites(time.Nanosecond)
	if err := b.mux.send(nil, make([]byte, 100<<20)); err == nil || errors.Is(err, ErrBrowserGone) {
		t.Errorf("it is sent: %v", err)
	}
	if sent := b.read(); len(sent) > 0 {
		t.Errorf("%d bytes of it are in the pipe", len(sent))
	}
}

// TestWhatIsToldToAnExposedPageStaysShort: of some characters JSON for HTML makes six bytes, and a string within a string
// seven. The answer to a command of the page would be too long for Chrome, and the page would wait for ever.
func TestWhatIsToldToAnExposedPageStaysShort(t *testing.T) {
	b := newOffline(t)
	b.mux.LimitWrites(time.Nanosecond) // nobody reads the pipe
	x := &exposure{page: &Observer{session: newClientSession(b.mux, "O", 0)}, name: `"cdp"`}
	if err := x.tell(t.Context(), bytes.Repeat([]byte("<>&"), 5<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it is not sent: %v", err)
	}
}

// refusals is a Handler that notes the methods of commands that came too late.
type refusals struct {
	noHandler
	methods *[]string
}

func (r refusals) Refused(method string) { *r.methods = append(*r.methods, method) }

// TestTheRestOfAMessageMeetsTheFence: the lease of a client expires while one of its commands is half in the
// pipe, or lacks only its end. It is none for the browser. What came before it was sent, and is not told as
// refused.
func TestTheRestOfAMessageMeetsTheFence(t *testing.T) {
	pipe, err := unix.FcntlInt(uintptr(newOffline(t).mux.commands), unix.F_GETPIPE_SZ, 0) // what the pipe takes
	if err != nil {
		t.Fatal(err)
	}
	first := `{"id":1,"method":"DOM.enable","params":{}}`
	large := func(n int) string {
		begin, end := `{"id":2,"method":"DOM.disable","params":{"a":"`, `"}}`
		return begin + strings.Repeat("x", n-len(begin)-len(end)) + end
	}
	name := len(sessionKey) + len(`S"`) // of the session, which each of the commands gets
	for what, second := range map[string]string{"half": large(2 * pipe), "all but the zero byte": large(pipe - len(first) - 2*name - 1)} {
		t.Run(what, func(t *testing.T) {
			b := newOffline(t)
			c := b.conn()
			var refused []string
			c.handler = refusals{methods: &refused}
			c.handleInput(append(clientFrame(0x81, first), clientFrame(0x81, second)...), false)
			c.fence.Shut(lease.ErrExpired)
			done := make(chan struct{})
			go func() { defer close(done); c.offloading.Wait() }()
			var sent []byte
			for over := false; !over; {
				select {
				case <-done:
					over = true
				default:
				}
				sent = append(sent, b.read()...)
			}
			if err := b.mux.flushPosts(); err != nil {
				t.Fatal(err)
			}
			messages := bytes.Split(append(sent, b.read()...), []byte{0})
			if len(messages) != 3 || !json.Valid(messages[0]) || json.Valid(messages[1]) || len(messages[2]) > 0 {
				t.Errorf("the browser got %d messages; the last are of %d and %d bytes", len(messages)-1, len(messages[max(0, len(messages)-2)]), len(messages[len(messages)-1]))
			}
			if len(refused) != 1 || refused[0] != "DOM.disable" {
				t.Errorf("told as refused: %q", refused)
			}
		})
	}
}
