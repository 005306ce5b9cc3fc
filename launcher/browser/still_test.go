package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chromedp/cdproto/target"
	"golang.org/x/sys/unix"

	"leasehold/cdpproxy/methods"
	"leasehold/checkpoint"
	"leasehold/evidence/capture"
	"leasehold/internal/test/sockets"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/chrome"
	"leasehold/launcher/monitor"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// writer is a site with a page that posts numbers without pause, also when it is closed.
type writer struct {
	URL string

	mu      sync.Mutex
	numbers []string // that were posted, in the order in which they came
	unknown []string // those of them that came without the cookie "session"
}

func newWriter(t *testing.T) *writer {
	t.Helper()
	w := &writer{}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.mu.Lock()
			w.numbers = append(w.numbers, r.URL.Query().Get("n"))
			if _, err := r.Cookie("session"); err != nil {
				w.unknown = append(w.unknown, r.URL.Query().Get("n"))
			}
			w.mu.Unlock()
			return
		}
		rw.Header().Set("Content-Type", "text/html")
		http.SetCookie(rw, &http.Cookie{Name: "visited", Value: "yes"})
		if r.URL.Path == "/quiet" {
			_, _ = fmt.Fprint(rw, `<title>quiet</title><link rel="icon" href="data:,">`)
			return
		}
		if r.URL.Path == "/order" {
			_, _ = fmt.Fprint(rw, `<title>order</title><script>addEventListener('pagehide', () => navigator.sendBeacon('/write?n=closed', 'x'))</script>`)
			return
		}
		_, _ = fmt.Fprint(rw, `<title>writer</title><script>
let n = 0
setInterval(() => fetch('/write?n=' + (++n), {method: 'POST', body: 'x'}).catch(() => {}), 50)
setInterval(() => navigator.sendBeacon('/write?n=beacon', 'x'), 75)
addEventListener('pagehide', () => navigator.sendBeacon('/write?n=closed', 'x'))
</script>`)
	}))
	t.Cleanup(s.Close)
	w.URL = s.URL
	return w
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.numbers)
}

// from are the numbers that were posted after the first count.
func (w *writer) from(count int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.numbers[count:])
}

// more waits until the page has written again.
func (w *writer) more(t *testing.T) {
	t.Helper()
	from := w.count()
	for end := time.Now().Add(testchrome.Patience); w.count() < from+5; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the page does not write")
		}
	}
}

// quiet waits until what had left the browser has arrived, and returns how much it is.
func (w *writer) quiet(t *testing.T) (count int) {
	t.Helper()
	for end := time.Now().Add(testchrome.Patience); ; {
		count = w.count()
		time.Sleep(200 * time.Millisecond) // four times what the page takes for the next
		under, err := sockets.UnderWay(w.URL)
		if err != nil {
			t.Fatal(err)
		}
		if under == 0 && w.count() == count {
			return count
		}
		if time.Now().After(end) {
			t.Fatal("the page does not stand still")
		}
	}
}

// TestABrowserStandsStill: nothing leaves a browser that stands still, and it can be looked
// at. What its pages wrote goes out when it goes on, and never when its pages are ended; then
// its cookies are as they were.
func TestABrowserStandsStill(t *testing.T) {
	// No browser shows its cookies that soon: its pages are stopped until it does.
	h, site := newHost(t, Options{CookiesWithin: time.Nanosecond}), newWriter(t)
	b := h.start()
	log := h.options.Log
	h.open(b, site.URL)
	site.more(t)
	if b.Still() || b.EndPages(t.Context(), log) != nil {
		t.Error("it moves, and its worker is there")
	}
	set := func(b *Browser, value string) {
		t.Helper()
		cookies := []map[string]any{{"name": "kept", "value": value, "url": site.URL, "expires": time.Now().Add(time.Hour).Unix()}, {"name": "session", "value": value, "url": site.URL}}
		if err := b.Monitor().Observer().Call(t.Context(), "", "Storage.setCookies", map[string]any{"cookies": cookies}, nil); err != nil {
			t.Fatal(err)
		}
	}
	set(b, "1")

	// It stands still, and can be looked at.
	b.StandStill(log)
	b.StandStill(log)
	count := site.quiet(t)
	page, ok := b.Monitor().Primary()
	var result struct{ Result struct{ Value int } }
	if err := b.Monitor().Observer().Call(t.Context(), page.SessionID, "Runtime.evaluate", map[string]any{"expression": "n"}, &result); err != nil || !ok || result.Result.Value <= count/3 {
		t.Errorf("its page says %+v, %v", result, err)
	}
	made := result.Result.Value
	var picture struct{ Data []byte }
	if err := b.Monitor().Observer().Call(t.Context(), page.SessionID, "Page.captureScreenshot", nil, &picture); err != nil || len(picture.Data) == 0 {
		t.Errorf("its picture: %d bytes, %v", len(picture.Data), err)
	}
	if raw, err := b.Cookies(t.Context()); err != nil || !strings.Contains(string(raw), `"kept"`) {
		t.Errorf("its cookies: %s %v", raw, err)
	}
	list, _ := b.Monitor().Still().Withheld()
	if len(list) == 0 || site.count() != count {
		t.Errorf("%d withheld, %d came", len(list), site.count()-count)
	}
	if h.kinds()[checkpoint.KindWithheld] > 0 {
		t.Error("what may still be sent is reported as never sent")
	}

	// Its worker is back: what it withheld goes out, and no page waits any more.
	b.PagesWait()
	b.GoOn(log)
	if b.TakePagesWait() {
		t.Error("pages of a browser that goes on wait for its network service")
	}
	site.all(t, made)
	set(b, "2")

	// The kernel kills what is stopped: the next one is stopped, too.
	b.StandStill(log)
	n, err := b.process.NetworkService()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(n.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.AwaitEnd()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testchrome.Patience); !b.Still() || h.methods()[checkpoint.Unseen] == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the next network service is not stopped")
		}
	}
	site.quiet(t)
	if got := b.StillFacts()[0]; got.Answer != table.Unknown {
		t.Errorf("it did not stand still throughout: %+v", got)
	}

	// The next launcher keeps it standing still, and knows what this one knew.
	count = site.quiet(t)
	kept, err := h.files.ReadStillCookies(session)
	if err != nil || kept.Missing != "" {
		t.Errorf("the kept cookies: %+v, %v", kept, err)
	}
	kept.Missing = "a document did not answer in time"
	if err := h.files.SaveStillCookies(session, kept); err != nil {
		t.Fatal(err)
	}
	b = h.adopted(b, lease.Appearance{})
	if !b.Still() {
		t.Fatal("it does not stand still")
	}
	b.StandStill(log)

	// Its worker does not come back.
	if err := b.EndPages(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if b.Still() || b.EndPages(t.Context(), log) != nil {
		t.Error("its pages are ended, and nothing is stopped any more")
	}
	if got := h.cookies(b); got != "kept=2 session=2 visited=yes" {
		t.Errorf("its cookies: %s", got)
	}
	// A page of the launcher's own may be let pass.
	for _, pass := range []bool{false, true} {
		var made target.CreateTargetResult
		if err := b.Monitor().Observer().Call(t.Context(), "", target.CommandCreateTarget, map[string]any{"url": "about:blank"}, &made); err != nil {
			t.Fatal(err)
		}
		rules := monitor.Rules{Ended: true}
		if pass {
			rules.Pass = string(made.TargetID)
		}
		if err := b.Monitor().Guard().Enforce(t.Context(), rules); err != nil {
			t.Fatal(err)
		}
		var attached target.AttachToTargetResult
		var moved struct{ ErrorText string }
		err := b.Monitor().Observer().Call(t.Context(), "", target.CommandAttachToTarget, map[string]any{"targetId": made.TargetID, "flatten": true}, &attached)
		if err == nil {
			err = b.Monitor().Observer().Call(t.Context(), string(attached.SessionID), "Page.navigate", map[string]any{"url": site.URL + "/quiet"}, &moved)
		}
		if err != nil || (moved.ErrorText == "") != pass {
			t.Errorf("let pass: %v, and it says %q, %v", pass, moved.ErrorText, err)
		}
	}
	method, err := b.Close(profile, nil, log)
	if err != nil || method != chrome.ClosedByCDP {
		t.Errorf("closed by %s, %v", method, err)
	}
	if got := site.quiet(t); got != count {
		t.Errorf("%d requests came after the loss", got-count)
	}
	facts := b.StillFacts()
	if facts[0].Answer != table.Yes || facts[1].Answer != table.No || !strings.Contains(facts[1].How, "did not answer in time") || h.kinds()[checkpoint.KindCrash] > 0 {
		t.Errorf("%+v, %v", facts, h.kinds())
	}
	if _, err := h.files.ReadStillCookies(session); err == nil {
		t.Error("the cookies are still beside the session")
	}
	if in, err := h.root.Inspect(profile); err != nil || in.ClosedCleanly.Answer != "yes" {
		t.Errorf("closed cleanly: %+v, %v", in.ClosedCleanly, err)
	}
}

// adopted lets go of a browser, and returns it as the next launcher has it.
func (h *host) adopted(b *Browser, looks lease.Appearance) *Browser {
	h.t.Helper()
	if err := b.Detach(); err != nil {
		h.t.Fatal(err)
	}
	h.end()
	if err := h.lock.Unlock(); err != nil {
		h.t.Fatal(err)
	}
	h.launch()
	h.locked(h.root.Adopt)
	running, ok, err := h.root.Running(profile)
	if err != nil || !ok {
		h.t.Fatalf("the profile runs: %v, error %v; want true", ok, err)
	}
	return h.driver.Adopt(running, h.path, looks, h.sink, h.options.Log)
}

// slowToStop is a network service of which nobody can tell in time whether it has stopped.
type slowToStop struct{ NetworkService }

func (s slowToStop) Stop(ctx context.Context) error {
	if err := s.NetworkService.Stop(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", chrome.ErrStopping, context.DeadlineExceeded)
}

// TestWhatIsSlowToStopIsNotLetGoOn: on a busy host a network service may stop later than it is waited
// for. It stays stopped, and a person decides; it goes on when the worker is back.
func TestWhatIsSlowToStopIsNotLetGoOn(t *testing.T) {
	h, site := newHost(t, Options{}), newWriter(t)
	b := h.start()
	log := h.options.Log
	h.open(b, site.URL)
	site.more(t)
	lose := func() (count int) {
		t.Helper()
		n, err := b.process.NetworkService()
		if err != nil {
			t.Fatal(err)
		}
		b.still.mu.Lock()
		if b.still.known != nil {
			err = b.still.known.Close()
		}
		b.still.known = slowToStop{n}
		b.still.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		b.StandStill(log)
		if !b.Still() {
			t.Error("it does not stand still")
		}
		h.reported("that something may have been sent", func(e checkpoint.Entry) bool { return e.Method == checkpoint.Unseen })
		return site.quiet(t)
	}
	lose()
	b.GoOn(log)
	site.more(t)
	count := lose()
	if err := b.EndPages(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if method, err := b.Close(profile, nil, log); err != nil || method != chrome.ClosedByCDP {
		t.Errorf("closed by %s, %v", method, err)
	}
	if got := site.quiet(t); got != count {
		t.Errorf("%d requests came after the loss", got-count)
	}
	if got := b.StillFacts()[0]; got.Answer != table.No {
		t.Errorf("%+v", got)
	}
}

// TestABrowserThatIsKilledWhileItStandsStill, as by a kernel that needs its memory: what its pages wanted to send was
// never sent, and is reported so.
func TestABrowserThatIsKilledWhileItStandsStill(t *testing.T) {
	for name, tt := range map[string]struct {
		group bool // its helpers are killed with it
		then  func(h *host, b *Browser)
	}{
		"alone":                      {false, func(*host, *Browser) {}},
		"with its network service":   {true, func(*host, *Browser) {}},
		"and its task ends in order": {false, func(h *host, b *Browser) { b.GoOn(h.options.Log) }},
	} {
		t.Run(name, func(t *testing.T) {
			// What is stopped does not end with the browser: it is killed after the usual time.
			h, site := newHost(t, Options{CloseTimeouts: chrome.CloseTimeouts{Ask: testchrome.Patience}}), newWriter(t)
			b := h.start()
			h.open(b, site.URL)
			site.more(t)
			b.StandStill(h.options.Log)
			count := site.quiet(t)
			for end := time.Now().Add(testchrome.Patience); ; time.Sleep(5 * time.Millisecond) {
				if list, _ := b.Monitor().Still().Withheld(); len(list) > 0 {
					break
				}
				if time.Now().After(end) {
					t.Fatal("the page does not write")
				}
			}
			if err := b.Monitor().CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			pid := b.PID()
			if tt.group {
				pid = -pid
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-b.Exited()
			tt.then(h, b)
			if _, err := b.Close(profile, nil, h.options.Log); err != nil {
				t.Error(err)
			}
			// The page counts: what is reported as sent was made before all that is withheld.
			withheld, sent := h.numbers(checkpoint.KindWithheld), h.numbers(checkpoint.KindRequest)
			if len(withheld) == 0 || len(sent) == 0 || slices.Max(sent) >= slices.Min(withheld) || site.count() != count {
				t.Errorf("%v are reported as withheld and %v as sent, and %d more came", withheld, sent, site.count()-count)
			}
			if facts := b.StillFacts(); !tt.group && facts[0].Answer != table.Yes {
				t.Errorf("%+v", facts[0])
			}
		})
	}
}

// losesSight starts processes whose network services cannot be found while it is blind, for the reason err.
type losesSight struct {
	Kernel
	blind *atomic.Bool
	err   error
}

func (l losesSight) Start(ctx context.Context, o chrome.Options) (Process, error) {
	p, err := l.Kernel.Start(ctx, o)
	return outOfSight{p, l}, err
}

type outOfSight struct {
	Process
	sight losesSight
}

func (p outOfSight) NetworkService() (NetworkService, error) {
	if p.sight.blind.Load() {
		return nil, p.sight.err
	}
	return p.Process.NetworkService()
}

// TestWhatCannotBeStoppedMoves: a stopped network service ends, and the next one cannot be stopped. What pages send
// then is sent, and the next loss is one like any other.
func TestWhatCannotBeStoppedMoves(t *testing.T) {
	sight := losesSight{blind: &atomic.Bool{}, err: errors.New("too many open files")}
	h, site := newHost(t, Options{Processes: sight}), newWriter(t)
	b := h.start()
	log := h.options.Log
	h.open(b, site.URL)
	site.more(t)
	b.StandStill(log)
	n, err := b.process.NetworkService()
	if err != nil || !b.Still() {
		t.Fatalf("it stands still: %v, %v", b.Still(), err)
	}
	sight.blind.Store(true)
	if err := errors.Join(n.Kill(t.Context()), n.Close()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testchrome.Patience); b.StillFacts()[0].Answer != table.No; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", b.StillFacts()[0])
		}
	}
	site.more(t)
	if err := b.Monitor().CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, more := b.Monitor().Still().Withheld(); len(list) > 0 {
		t.Errorf("%d requests of a browser that moves are withheld, the first %+v", uint64(len(list))+more, list[0])
	}

	sight.blind.Store(false)
	if !b.AskedStill() {
		t.Error("nobody asked it to stand still")
	}
	b.GoOn(log) // its worker is back
	if _, err := h.files.ReadStillCookies(session); b.AskedStill() || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still asked to stand still: %v; its cookies beside the session: %v", b.AskedStill(), err)
	}
	b.StandStill(log)
	count := site.quiet(t)
	if err := b.EndPages(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if method, err := b.Close(profile, nil, log); err != nil || method != chrome.ClosedByCDP {
		t.Errorf("closed by %s, %v", method, err)
	}
	if got := site.quiet(t); got != count {
		t.Errorf("%d requests came after the loss", got-count)
	}
	if got := b.StillFacts()[0]; got.Answer != table.Yes {
		t.Errorf("%+v", got)
	}
}

// TestAWorkerThatComesBackFindsItsCookies: the network service that had them has ended while it was stopped. What pages
// want to send waits for the cookies, or is never sent.
func TestAWorkerThatComesBackFindsItsCookies(t *testing.T) {
	for name, tt := range map[string]struct {
		blind   bool // the next one cannot be stopped
		adopted bool // by another launcher
	}{
		"the next one is stopped":        {},
		"the next one cannot be stopped": {blind: true},
		"another launcher lets it go on": {adopted: true},
	} {
		t.Run(name, func(t *testing.T) {
			sight := losesSight{blind: &atomic.Bool{}, err: errors.New("too many open files")}
			h, site := newHost(t, Options{Processes: sight}), newWriter(t)
			b := h.start()
			log := h.options.Log
			set := []map[string]any{{"name": "kept", "value": "1", "url": site.URL, "expires": time.Now().Add(time.Hour).Unix()}, {"name": "session", "value": "1", "url": site.URL}}
			if err := b.Monitor().Observer().Call(t.Context(), "", "Storage.setCookies", map[string]any{"cookies": set}, nil); err != nil {
				t.Fatal(err)
			}
			h.open(b, site.URL)
			site.more(t)
			b.StandStill(log)
			site.quiet(t)
			n, err := b.process.NetworkService()
			if err != nil || !b.Still() {
				t.Fatalf("it stands still: %v, %v", b.Still(), err)
			}
			sight.blind.Store(tt.blind)
			// Chrome gets to it once the launcher has. What pages send before is reported so, and has no cookies.
			if err := errors.Join(unix.Kill(b.PID(), unix.SIGSTOP), n.Kill(t.Context()), n.Close()); err != nil {
				t.Fatal(err)
			}
			h.reported("that something may have been sent", func(e checkpoint.Entry) bool { return e.Method == checkpoint.Unseen })
			if err := unix.Kill(b.PID(), unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(testchrome.Patience); b.Still() == tt.blind; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("it stands still: %v", !tt.blind)
				}
			}
			if tt.adopted {
				b = h.adopted(b, lease.Appearance{})
			}
			b.GoOn(log)
			if got := h.cookies(b); got != "kept=1 session=1 visited=yes" {
				t.Errorf("its cookies: %s", got)
			}
			site.more(t)
			site.mu.Lock()
			// A beacon that had reached the browser is the browser's to send, at once.
			unknown := slices.DeleteFunc(slices.Clone(site.unknown), func(n string) bool { return n == "beacon" })
			site.mu.Unlock()
			if len(unknown) > 0 {
				t.Errorf("%q came without the account's cookie", unknown)
			}
			if _, err := h.files.ReadStillCookies(session); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its cookies are beside the session: %v", err)
			}
			if _, err := b.Close(profile, nil, log); err != nil {
				t.Error(err)
			}
			if whole := b.StillFacts()[1]; whole.Answer != table.Yes {
				t.Errorf("%+v", whole)
			}
		})
	}
}

// TestPagesSendNothingThroughTheNextNetworkService: the kernel ends the one that is stopped, and Chrome starts another.
// Until that is stopped, too, the pages are. A beacon of theirs that had reached the browser is the browser's to send:
// it may come, which is why something counts as sent.
func TestPagesSendNothingThroughTheNextNetworkService(t *testing.T) {
	sight := losesSight{blind: &atomic.Bool{}, err: chrome.ErrNoNetworkService} // found late, as on a busy host
	h, site := newHost(t, Options{Processes: sight}), newWriter(t)
	b := h.start()
	log := h.options.Log
	h.open(b, site.URL)
	site.more(t)
	b.StandStill(log)
	count := site.quiet(t)
	n, err := b.process.NetworkService()
	if err != nil || !b.Still() {
		t.Fatalf("it stands still: %v, %v", b.Still(), err)
	}
	sight.blind.Store(true)
	// Chrome gets to it once the launcher has.
	if err := errors.Join(unix.Kill(b.PID(), unix.SIGSTOP), n.Kill(t.Context()), n.Close()); err != nil {
		t.Fatal(err)
	}
	h.reported("that something may have been sent", func(e checkpoint.Entry) bool { return e.Method == checkpoint.Unseen })
	if err := unix.Kill(b.PID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testchrome.Patience); ; time.Sleep(5 * time.Millisecond) {
		next, err := b.process.(outOfSight).Process.NetworkService()
		if err == nil && next.PID() != n.PID() {
			if err := errors.Join(next.AwaitRest(t.Context()), next.Close()); err != nil {
				t.Fatal(err)
			}
			break
		}
		if err == nil {
			err = next.Close()
		}
		if time.Now().After(end) {
			t.Fatalf("there is no other network service: %v", err)
		}
	}
	after := site.quiet(t)
	if came := site.from(count); slices.ContainsFunc(came, func(n string) bool { return n != "beacon" }) {
		t.Errorf("through the next network service came %q", came)
	}
	sight.blind.Store(false)
	for end := time.Now().Add(testchrome.Patience); !b.Still(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the next network service is not stopped")
		}
	}
	h.titles(b, "writer")
	page := h.page(b, site.URL+"/")
	if err := b.Monitor().Observer().Call(t.Context(), page.SessionID, "Runtime.evaluate", map[string]any{"expression": "n"}, nil); err != nil {
		t.Errorf("its pages do not go on: %v", err)
	}
	if err := b.EndPages(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if method, err := b.Close(profile, nil, log); err != nil || method != chrome.ClosedByCDP {
		t.Errorf("closed by %s, %v", method, err)
	}
	if got := site.quiet(t); got != after {
		t.Errorf("%d requests came once the next network service was stopped", got-after)
	}
}

// TestABrowserThatStoodStillIsStoppedByTheNextLauncher: a launcher that is killed while it replaces
// the network service leaves one that runs. The next one stops it before the pages go on, and says
// that something may have been sent.
func TestABrowserThatStoodStillIsStoppedByTheNextLauncher(t *testing.T) {
	h, site := newHost(t, Options{}), newWriter(t)
	b := h.start()
	h.open(b, site.URL)
	site.more(t)
	b.StandStill(h.options.Log)
	if err := errors.Join(b.process.StopRenderers(), b.still.network.Continue()); err != nil {
		t.Fatal(err)
	}
	count := site.quiet(t)
	b = h.adopted(b, lease.Appearance{})
	if got := site.quiet(t); !b.Still() || got != count {
		t.Errorf("it stands still: %v, and %d requests came", b.Still(), got-count)
	}
	if err := b.EndPages(t.Context(), h.options.Log); err != nil {
		t.Error(err)
	}
	if got := b.StillFacts()[0]; got.Answer != table.Unknown {
		t.Errorf("it stood still throughout: %+v", got)
	}
	if method, err := b.Close(profile, nil, h.options.Log); err != nil || method != chrome.ClosedByCDP {
		t.Errorf("closed by %s, %v", method, err)
	}
}

// TestASignInOfABrowserThatStandsStill: its launcher is killed. The next one closes the page, and drives the browser,
// whose cache does not answer while it stands still. That is cleared before clients may send anything: once the worker
// is back, or once the pages are ended.
func TestASignInOfABrowserThatStandsStill(t *testing.T) {
	for name, after := range map[string]func(h *host, b *Browser) error{
		"the worker is back": func(h *host, b *Browser) error { b.GoOn(h.options.Log); return nil },
		"the worker is lost": func(h *host, b *Browser) error { return b.EndPages(h.t.Context(), h.options.Log) },
		"its pages are freed": func(h *host, b *Browser) error {
			return errors.Join(b.FreePages(h.t.Context()), b.EndPages(h.t.Context(), h.options.Log))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, site := newHost(t, Options{}), newWriter(t)
			b := h.start()
			h.open(b, site.URL+"/quiet")
			if _, err := b.mux.KeepPrivate(methods.RefuseSignIn()); err != nil {
				t.Fatal(err)
			}
			o, err := b.mux.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			target, err := o.CreatePage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			b.StandStill(h.options.Log)
			b = h.adopted(b, lease.Appearance{})
			if !b.Driven() || !b.Still() {
				t.Fatalf("driven %v, stands still %v", b.Driven(), b.Still())
			}
			if err := b.Monitor().Observer().Call(t.Context(), "", "Target.getTargetInfo", map[string]string{"targetId": target}, nil); err == nil {
				t.Error("the page of the sign-in is open")
			}
			if b.mux.KeptPrivate() == nil {
				t.Error("clients may send while the cache has what was typed")
			}
			if err := after(h, b); err != nil || b.mux.KeptPrivate() != nil {
				t.Errorf("then clients may send: %v, %v", b.mux.KeptPrivate() == nil, err)
			}
			if _, err := b.Close(profile, nil, h.options.Log); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestACacheThatIsNotClearedAtFirst: the launcher was killed during a sign-in, and the next one's first try to clear the
// cache fails. Clients are shut out until a later try succeeds, and not for ever.
func TestACacheThatIsNotClearedAtFirst(t *testing.T) {
	h, site := newHost(t, Options{}), newWriter(t)
	b := h.start()
	h.open(b, site.URL+"/quiet")
	if _, err := b.mux.KeepPrivate(methods.RefuseSignIn()); err != nil {
		t.Fatal(err)
	}
	o, err := b.mux.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.CreatePage(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.StandStill(h.options.Log)
	b = h.adopted(b, lease.Appearance{})
	if !b.Driven() || !b.Still() {
		t.Fatalf("driven %v, stands still %v", b.Driven(), b.Still())
	}
	tries, forget := 0, b.still.forget
	b.still.forget = func(ctx context.Context) error {
		if tries++; tries == 1 {
			return errors.New("no cache")
		}
		return forget(ctx)
	}
	b.GoOn(h.options.Log)
	if b.mux.KeptPrivate() == nil {
		t.Error("clients may send while the cache has what was typed")
	}
	for end := time.Now().Add(testchrome.Patience); b.mux.KeptPrivate() != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("clients stay shut out")
		}
	}
	if _, err := b.Close(profile, nil, h.options.Log); err != nil {
		t.Error(err)
	}
}

// all waits until the numbers from 1 to n have come.
func (w *writer) all(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(testchrome.Patience); ; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		missing := 0
		for i := range n {
			if !slices.Contains(w.numbers, fmt.Sprint(i+1)) {
				missing++
			}
		}
		w.mu.Unlock()
		if missing == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d requests were lost", missing, n)
		}
	}
}

// kinds counts what was reported, by kind, and methods by method.
func (h *host) kinds() map[checkpoint.Kind]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	kinds := map[checkpoint.Kind]int{}
	for _, e := range h.entries {
		kinds[e.Kind]++
	}
	return kinds
}

// numbers are those that a writer gave to its requests of which there are entries of a kind.
func (h *host) numbers(kind checkpoint.Kind) (all []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.entries {
		_, number, _ := strings.Cut(e.URL, "?n=")
		if n, err := strconv.Atoi(number); e.Kind == kind && err == nil {
			all = append(all, n)
		}
	}
	return all
}

func (h *host) methods() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	methods := map[string]int{}
	for _, e := range h.entries {
		methods[e.Method]++
	}
	return methods
}

// cookies are those of the browser, by name.
func (h *host) cookies(b *Browser) string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), testchrome.Patience)
	defer cancel()
	raw, err := b.Cookies(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	var jar struct {
		Cookies []struct{ Name, Value string }
	}
	if err := json.Unmarshal(raw, &jar); err != nil {
		h.t.Fatal(err)
	}
	var got []string
	for _, c := range jar.Cookies {
		got = append(got, c.Name+"="+c.Value)
	}
	slices.Sort(got)
	return strings.Join(got, " ")
}

// TestAQuietBrowserKeepsItsNetworkService: where nothing waits in it, it goes on when the
// pages are ended, and nothing has to be put back.
func TestAQuietBrowserKeepsItsNetworkService(t *testing.T) {
	h, site := newHost(t, Options{}), newWriter(t)
	b := h.start()
	log := h.options.Log
	h.open(b, site.URL+"/quiet")
	h.titles(b, "quiet")
	h.settled(b)
	before, err := b.process.NetworkService()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	b.StandStill(log)
	if err := b.EndPages(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	after, err := b.process.NetworkService()
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	if stopped, err := after.Stopped(); err != nil || stopped || after.PID() != before.PID() {
		t.Errorf("network service %d, stopped: %v, %v; it was %d", after.PID(), stopped, err, before.PID())
	}
	if method, err := b.Close(profile, nil, log); err != nil || method != chrome.ClosedByCDP {
		t.Errorf("closed by %s, %v", method, err)
	}
}

// TestTheEndOfAWatchedNetworkServiceIsNoticed, each time; not where it ends with its browser.
func TestTheEndOfAWatchedNetworkServiceIsNoticed(t *testing.T) {
	h := newHost(t, Options{})
	b := h.start()
	for range 2 {
		if _, err := b.Cookies(t.Context()); err != nil { // it has one by then
			t.Fatal(err)
		}
		b.WatchNetwork()
		n, err := b.process.NetworkService()
		if err != nil {
			t.Fatal(err)
		}
		if b.NetworkEnded() {
			t.Error("it has ended before it was killed")
		}
		if err := errors.Join(n.Kill(t.Context()), n.Close()); err != nil {
			t.Fatal(err)
		}
		if !b.NetworkEnded() {
			t.Error("it has not ended")
		}
		select {
		case <-b.NetworkEnds():
		case <-time.After(testchrome.Patience):
			t.Fatal("nobody is told that it has ended")
		}
	}
	b.WatchNetwork()
	ends := b.NetworkEnds()
	if err := unix.Kill(-b.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-b.Exited()
	if _, err := b.Close(profile, nil, h.options.Log); err != nil {
		t.Error(err)
	}
	h.end()
	select {
	case <-ends:
		t.Error("it ended with its browser, and counts as lost alone")
	default:
	}
	if b.NetworkEnded() {
		t.Error("it ended alone, and ended with its browser")
	}
}

// TestWhatNoPageReportsIsNotSentLater: what a page sent while it ended, and no page has reported, waits in the
// network service for a connection. It is never sent, also if the launcher cannot know that it waits.
func TestWhatNoPageReportsIsNotSentLater(t *testing.T) {
	unread := func(h *host, b *Browser) *Browser {
		if err := b.netLog.Close(); err != nil {
			h.t.Fatal(err)
		}
		return b
	}
	for name, tt := range map[string]struct {
		unknown func(h *host, b *Browser) *Browser // nil: the log tells that it waits
		early   bool                               // before it is sent, and not after
	}{
		"the log tells of it": {},
		"it began under the launcher before": {func(h *host, b *Browser) *Browser {
			if err := b.Monitor().AwaitLogged(h.t.Context()); err != nil { // the log has no more of it for the next one
				h.t.Fatal(err)
			}
			return h.adopted(b, lease.Appearance{})
		}, false},
		"the log does not tell of it in time": {unread, true},
		"there is no log":                     {func(h *host, b *Browser) *Browser { unread(h, b).netLog = nil; return b }, true},
	} {
		t.Run(name, func(t *testing.T) {
			site := newHolder(t)
			h := newHost(t, Options{})
			b := h.start()
			log := h.options.Log
			h.open(b, site.URL+"/stays")
			h.open(b, site.URL+"/closed")
			h.titles(b, "/closed")
			if tt.early {
				b = tt.unknown(h, b)
			}
			if err := b.Monitor().Observer().Call(t.Context(), h.page(b, site.URL+"/closed").SessionID, "Page.close", nil, nil); err != nil {
				t.Fatal(err)
			}
			site.full(t)
			if tt.unknown != nil && !tt.early {
				b = tt.unknown(h, b)
			}
			b.StandStill(log)
			if !b.Still() || tt.unknown == nil && b.still.unseen != nil {
				t.Fatalf("it stands still: %v; what it sent is not known: %v", b.Still(), b.still.unseen)
			}
			site.answer() // so there is room for the one that waits, if the network service goes on
			if err := b.EndPages(t.Context(), log); err != nil {
				t.Fatal(err)
			}
			if method, err := b.Close(profile, nil, log); err != nil || method != chrome.ClosedByCDP {
				t.Errorf("closed by %s, %v", method, err)
			}
			site.none(t)
		})
	}
}

// TestWhatIsSentByAPageThatClosesWhileItStandsStill is never sent, although no page and no log tells of it.
func TestWhatIsSentByAPageThatClosesWhileItStandsStill(t *testing.T) {
	site := newHolder(t)
	h := newHost(t, Options{})
	b := h.start()
	log := h.options.Log
	h.open(b, site.URL+"/stays")
	h.open(b, site.URL+"/closed")
	h.titles(b, "/closed")
	page := h.page(b, site.URL+"/closed")
	h.settled(b)
	b.StandStill(log)
	if err := b.Monitor().Observer().Call(t.Context(), page.SessionID, "Page.close", nil, nil); err != nil || !b.Still() {
		t.Fatalf("it stands still: %v; the page is closed: %v", b.Still(), err)
	}
	for end := time.Now().Add(testchrome.Patience); slices.ContainsFunc(b.Monitor().Pages(), func(p capture.Page) bool { return p.TargetID == page.TargetID }); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the page does not close")
		}
	}
	if err := b.EndPages(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if method, err := b.Close(profile, nil, log); err != nil || method != chrome.ClosedByCDP {
		t.Errorf("closed by %s, %v", method, err)
	}
	site.answer()
	site.none(t)
}

// settled waits until nothing waits in the network service.
func (h *host) settled(b *Browser) {
	h.t.Helper()
	if err := b.Monitor().CatchUp(h.t.Context()); err != nil { // it knows of the page's requests
		h.t.Fatal(err)
	}
	for end := time.Now().Add(testchrome.Patience); b.Monitor().Still().MayWait(0); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatal("something waits in the network service")
		}
	}
}

// holder is a site that does not answer what is posted until answer is called. Its page /closed posts one more
// beacon, while it is closed, than Chrome has connections to a site.
type holder struct {
	*httptest.Server
	came   chan string
	answer func()
}

const atOnce = 6 // connections of Chrome to a site

func newHolder(t *testing.T) *holder {
	came, answer := make(chan string, 2*atOnce), make(chan struct{})
	h := &holder{came: came, answer: sync.OnceFunc(func() { close(answer) })}
	h.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			came <- r.URL.RawQuery
			<-answer
			return
		}
		rw.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(rw, `<title>%s</title><link rel="icon" href="data:,"><script>
if (document.title == '/closed') addEventListener('pagehide', () => { for (let n = 0; n <= %d; n++) navigator.sendBeacon('/held?' + n, 'x') })
</script>`, r.URL.Path, atOnce)
	}))
	t.Cleanup(h.Close)
	t.Cleanup(h.answer)
	return h
}

// full waits until every connection of Chrome has a request that is not answered.
func (h *holder) full(t *testing.T) {
	t.Helper()
	for range atOnce {
		select {
		case <-h.came:
		case <-time.After(testchrome.Patience):
			t.Fatal("the page has not sent anything")
		}
	}
}

// none fails if anything else has come. The browser is gone.
func (h *holder) none(t *testing.T) {
	t.Helper()
	h.Close() // which waits for what has come
	select {
	case n := <-h.came:
		t.Errorf("request %s came after the loss", n)
	default:
	}
}

// TestPagesThatWaitForTheNetworkAreFreed: a script that waits for an answer of the network stops its
// page while the browser stands still. A page that is freed can be looked at; nothing leaves it, no
// script of it runs any more, and the cookies stay whole.
func TestPagesThatWaitForTheNetworkAreFreed(t *testing.T) {
	for by, adopts := range map[string]bool{"the launcher": false, "the next launcher": true} {
		t.Run(by, func(t *testing.T) { freesPages(t, adopts) })
	}
}

// freesPages is TestPagesThatWaitForTheNetworkAreFreed by the launcher that has the browser, or one that adopts it.
func freesPages(t *testing.T, adopts bool) {
	var posts atomic.Int64
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts.Add(1)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		http.SetCookie(w, &http.Cookie{Name: "visited", Value: "yes"})
		_, _ = fmt.Fprintf(w, "<title>%s</title>", strings.TrimPrefix(r.URL.Path, "/"))
	}))
	t.Cleanup(site.Close)
	h := newHost(t, Options{})
	b := h.start()
	log, o := h.options.Log, b.Monitor().Observer()
	sessions := map[string]string{}
	for path, waits := range map[string]string{
		"cookie":  "document.cookie = 'n=' + n, document.cookie",
		"request": "x = new XMLHttpRequest, x.open('POST', '/', false), x.send()",
	} {
		h.open(b, site.URL+"/"+path)
		h.titles(b, path)
		sessions[path] = h.page(b, site.URL+"/"+path).SessionID
		script := "let n = 0, x; const again = () => { n++; try { " + waits + " } finally { fetch('/', {method: 'POST'}).catch(() => {}) } }; for (let i = 0; i < 10; i++) setInterval(again, 5)"
		if err := o.Call(t.Context(), sessions[path], "Runtime.evaluate", map[string]any{"expression": script}, nil); err != nil {
			t.Fatal(err)
		}
	}
	says := func(ctx context.Context, session, expression string) (n int, err error) {
		var r struct{ Result struct{ Value int } }
		err = o.Call(ctx, session, "Runtime.evaluate", map[string]any{"expression": expression}, &r)
		return r.Result.Value, err
	}
	if err := b.FreePages(t.Context()); err == nil {
		t.Error("the pages of a browser that goes on were freed")
	}
	for path, session := range sessions { // a page whose script has begun has what is asked of it below
		for end := time.Now().Add(testchrome.Patience); ; {
			n, err := says(t.Context(), session, "n")
			if n > 0 {
				break
			}
			if err != nil || time.Now().After(end) {
				t.Fatalf("the script of the page %s does not begin: %v", path, err)
			}
		}
	}
	b.StandStill(log)
	for path, session := range sessions {
		for end := time.Now().Add(testchrome.Patience); ; {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := says(ctx, session, "n")
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				break // it waits
			}
			if err != nil || time.Now().After(end) {
				t.Fatalf("the page %s does not wait: %v", path, err)
			}
		}
	}
	var came int64
	for end := time.Now().Add(testchrome.Patience); ; { // until what had left has arrived, as writer.quiet does
		came = posts.Load()
		time.Sleep(200 * time.Millisecond)
		under, err := sockets.UnderWay(site.URL)
		if err != nil {
			t.Fatal(err)
		}
		if under == 0 && posts.Load() == came {
			break
		}
		if time.Now().After(end) {
			t.Fatal("what had left the browser does not arrive")
		}
	}

	if adopts {
		b = h.adopted(b, lease.Appearance{})
		o = b.Monitor().Observer()
		for path := range sessions {
			sessions[path] = h.page(b, site.URL+"/"+path).SessionID
		}
	}
	if err := errors.Join(b.FreePages(t.Context()), b.FreePages(t.Context())); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testchrome.Patience)
	defer cancel()
	for path, session := range sessions {
		var picture struct{ Data []byte }
		before, err := says(ctx, session, "n")
		if err == nil {
			err = o.Call(ctx, session, "Page.captureScreenshot", nil, &picture)
		}
		after, problem := says(ctx, session, "n")
		if err != nil || problem != nil || before == 0 || after != before || len(picture.Data) == 0 {
			t.Errorf("the page %s: n was %d and is %d, its picture has %d bytes, %v, %v", path, before, after, len(picture.Data), err, problem)
		}
	}
	if !b.Still() {
		t.Error("it goes on")
	}
	if err := b.EndPages(t.Context(), log); err != nil {
		t.Error(err)
	}
	if got := h.cookies(b); !strings.Contains(got, "visited=yes") || !strings.Contains(got, "n=") {
		t.Errorf("its cookies: %s", got)
	}
	if method, err := b.Close(profile, nil, log); err != nil || method != chrome.ClosedByCDP {
		t.Errorf("closed by %s, %v", method, err)
	}
	if got := posts.Load(); got != came {
		t.Errorf("%d requests came after the loss", got-came)
	}
	if facts := b.StillFacts(); facts[0].Answer != table.Yes || facts[1].Answer != table.Yes {
		t.Errorf("%+v", facts)
	}
}

// TestPagesThatOweAPictureAreEnded: a browser whose renderer ends with a picture owed crashes, and
// some pages never draw theirs.
func TestPagesThatOweAPictureAreEnded(t *testing.T) {
	over := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			select {
			case <-over:
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, "<title>%s</title>", strings.TrimPrefix(r.URL.Path, "/"))
	}))
	t.Cleanup(func() { close(over); site.Close() })
	h := newHost(t, Options{})
	b := h.start()
	log, o := h.options.Log, b.Monitor().Observer()
	left, leave := context.WithCancel(t.Context())
	leave() // as one who asks and does not wait
	for path, script := range map[string]string{
		"/drawn":    "0",
		"/opener":   "window.open('/hang'), 0", // a tab that waits for its first document
		"/dialog":   "setTimeout(() => alert('x')), 0",
		"/spinning": "setTimeout(() => { for (;;); }), 0",
	} {
		h.open(b, site.URL+path)
		h.titles(b, path[1:])
		session := h.page(b, site.URL+path).SessionID
		if err := o.Call(t.Context(), session, "Runtime.evaluate", map[string]any{"expression": script, "userGesture": true}, nil); err != nil {
			t.Fatal(err)
		}
	}
	waiting := func(p capture.Page) bool { return p.URL == "" }
	for end := time.Now().Add(testchrome.Patience); !slices.ContainsFunc(b.Monitor().Pages(), waiting) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	b.StandStill(log)
	pages := b.Monitor().Pages()
	if len(pages) != 6 { // the first tab and the one that was opened are among them
		t.Fatalf("%+v", pages)
	}
	for _, p := range pages {
		if err := o.Call(left, p.SessionID, "Page.captureScreenshot", nil, nil); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if err := b.EndPages(t.Context(), log); err != nil {
		t.Error(err)
	}
	if method, err := b.Close(profile, nil, log); err != nil || method != chrome.ClosedByCDP {
		t.Errorf("closed by %s, %v", method, err)
	}
}

// TestWhoFreesPagesTakesTurns: the pictures of two pages that wait are taken at the same time. The second waits while
// the network service is replaced for the first, but no longer than its own time.
func TestWhoFreesPagesTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Browser{still: stillness{mu: newTurn()}}
		b.still.mu.Lock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.FreePages(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in the first one's turn: %v", err)
		}
		b.still.mu.Unlock()
		if err := b.FreePages(t.Context()); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after it: %v, want that it does not stand still", err)
		}
	})
}
