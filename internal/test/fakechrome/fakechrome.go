// Package fakechrome is a scripted browser: a process that answers on its pipe what the
// launcher asks of Chrome, starts in milliseconds, and misbehaves where a test says so. It is
// a small program of its own: a test's own binary, with the race detector, takes a tenth of a
// second of processor time to start.
package fakechrome

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/internal/test/built"
	"leasehold/internal/test/source"
)

// Script is how a browser behaves. The zero value behaves as Chrome does, with one page
// at about:blank and no cookies.
type Script struct {
	// URL is where its page is.
	URL string
	// Cookies are what Storage.getCookies lists.
	Cookies []Cookie
	// RefusesClose answers Browser.close with an error.
	RefusesClose bool
	// Stubborn lets SIGINT do nothing.
	Stubborn bool
	// Crashes ends without a note that it ended in order, whatever ends it.
	Crashes bool
	// Mute answers nothing at all.
	Mute bool
}

// Cookie is one cookie of the browser.
type Cookie struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Domain  string `json:"domain"`
	Path    string `json:"path"`
	Session bool   `json:"session"`
	// Expires is in seconds since 1970. The browser writes no cookie to the disk.
	Expires float64 `json:"expires"`
}

const scriptFile = "fakechrome.json"

var program = sync.OnceValues(func() (string, error) {
	return built.Tool(source.Path("."), "leasehold/internal/test/fakechrome/chrome")
})

// Binary is the path to start the browser by.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Direct sets how the browser on a profile's directory behaves from now on.
func Direct(t testing.TB, profileDir string, s Script) {
	t.Helper()
	b, err := json.Marshal(s)
	if err == nil {
		path := filepath.Join(profileDir, scriptFile)
		if err = os.WriteFile(path+".new", b, 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Play is the browser that was started with the arguments. It returns when the browser ends.
func Play(args []string) error {
	for _, arg := range args {
		if dir, ok := strings.CutPrefix(arg, "--user-data-dir="); ok {
			if _, err := os.Stat(Socket(dir)); err == nil {
				script, err := net.Dial("unix", Socket(dir))
				if err != nil {
					return err
				}
				return errors.Join(relay(script), leave(dir))
			}
			p := &player{dir: dir, out: os.NewFile(4, "events")}
			if !slices.Contains(args, "--no-startup-window") {
				p.pages = []string{p.nextPage()}
			}
			return p.play()
		}
	}
	return fmt.Errorf("%q: want --user-data-dir", args)
}

// Socket is the path of the socket at which a test may wait for the browser of a profile. If it
// does, the browser passes its pipe on to the test, which answers every command itself, and ends
// with that connection, or by a signal as Chrome does.
func Socket(profileDir string) string { return filepath.Join(filepath.Dir(profileDir), ".script") }

// Leaving is the path of a file that a test may lock: a browser whose connection ended at the socket
// then closes its pipe, and ends when the file is unlocked.
func Leaving(profileDir string) string { return Socket(profileDir) + ".leaving" }

func leave(profileDir string) error {
	f, err := os.Open(Leaving(profileDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return errors.Join(unix.Close(3), unix.Close(4), unix.Flock(int(f.Fd()), unix.LOCK_SH))
}

// relay passes the pipe on.
func relay(script net.Conn) error {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, unix.SIGINT)
	ended := make(chan error, 1)
	go func() { _, _ = io.Copy(script, os.NewFile(3, "commands")) }()
	go func() {
		_, err := io.Copy(os.NewFile(4, "events"), script)
		ended <- err
	}()
	select {
	case <-interrupted:
		return nil
	case err := <-ended:
		return err
	}
}

// player is a browser on a profile's directory.
type player struct {
	dir      string
	out      *os.File
	sessions int      // that were opened on the browser itself
	watchers []string // those of them that are told of every page
	opened   int      // pages
	pages    []string // the target ids of those that are open
}

// play begins as Chrome does and serves the pipe until it is asked to end, or nobody has the
// other end of the pipe any more.
func (p *player) play() error {
	if err := p.begin(); err != nil {
		return err
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, unix.SIGINT)
	ended := make(chan error, 1)
	go func() { ended <- p.serve(bufio.NewReader(os.NewFile(3, "commands"))) }()
	for {
		select {
		case err := <-ended:
			return errors.Join(err, p.end())
		case <-interrupts:
			if !p.script().Stubborn {
				return p.end()
			}
		}
	}
}

// script is how to behave now.
func (p *player) script() Script {
	s := Script{}
	b, err := os.ReadFile(filepath.Join(p.dir, scriptFile))
	if err == nil {
		_ = json.Unmarshal(b, &s)
	}
	if s.URL == "" {
		s.URL = "about:blank"
	}
	return s
}

// begin writes into the profile what tells an inspection that a browser is on it.
func (p *player) begin() error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	singleton := filepath.Join(p.dir, "SingletonLock")
	_ = os.Remove(singleton) // of one that crashed
	if err := os.Symlink(fmt.Sprintf("%s-%d", host, os.Getpid()), singleton); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(p.dir, "Default"), 0o700); err != nil {
		return err
	}
	return errors.Join(p.exitNotes(false), os.WriteFile(filepath.Join(p.dir, "Default", "Cookies"), []byte("cookies"), 0o600))
}

// end takes that back, as an orderly exit does.
func (p *player) end() error {
	if p.script().Crashes {
		return nil
	}
	return errors.Join(p.exitNotes(true), os.Remove(filepath.Join(p.dir, "SingletonLock")))
}

// exitNotes writes the two notes by which Chrome remembers how it ended.
func (p *player) exitNotes(clean bool) error {
	exit := map[bool]string{true: "Normal", false: "Crashed"}[clean]
	return errors.Join(
		os.WriteFile(filepath.Join(p.dir, "Variations"), fmt.Appendf(nil, `{"user_experience_metrics.stability.exited_cleanly":%v}`, clean), 0o600),
		os.WriteFile(filepath.Join(p.dir, "Default", "Preferences"), fmt.Appendf(nil, `{"profile":{"exit_type":%q}}`, exit), 0o600),
	)
}

// serve answers commands until one says that the browser is to close.
func (p *player) serve(in *bufio.Reader) error {
	for {
		msg, err := in.ReadBytes(0)
		if err != nil {
			return err
		}
		if bytes.HasSuffix(msg, []byte("!\x00")) { // a launcher that adopts the browser begins with it
			continue
		}
		var c command
		if err := json.Unmarshal(msg[:len(msg)-1], &c); err != nil {
			return fmt.Errorf("%q: %w", msg, err)
		}
		s := p.script()
		if s.Mute {
			continue
		}
		closing, err := p.answer(c, s)
		if closing || err != nil {
			return err
		}
	}
}

// EmptyPage is the answer of a page with nothing on it to what is asked of it for the
// evidence: by a method, and by an expression where it evaluates one. known is false where
// it is asked for anything else.
func EmptyPage(method, expression string) (result string, known bool) {
	if method == "Runtime.evaluate" && strings.Contains(expression, "serviceWorker.getRegistrations()") {
		return `{"result":{"value":0}}`, true // how many tasks they have for later
	}
	result, known = emptyPage[method]
	return result, known
}

var emptyPage = map[string]string{
	"Page.getFrameTree":        `{"frameTree":{"frame":{"id":"T","url":"about:blank"}}}`,
	"Page.createIsolatedWorld": `{"executionContextId":1}`,
	"Page.getLayoutMetrics":    `{"layoutViewport":{"clientWidth":800,"clientHeight":600},"cssLayoutViewport":{"clientWidth":800,"clientHeight":600}}`,
	// How large it is, and who used it.
	"Runtime.evaluate": `{"result":{"value":{"nodes":2,"chars":0,"used":false,"focus":{}}}}`,
	"DOMSnapshot.captureSnapshot": `{"documents":[{"documentURL":0,"nodes":{"parentIndex":[-1,0],"nodeType":[9,1],"nodeName":[1,2],"nodeValue":[-1,-1],` +
		`"backendNodeId":[1,2],"attributes":[[],[]]},"layout":{"nodeIndex":[1],"styles":[[]],"bounds":[[0,0,800,600]],"paintOrders":[0]}}],` +
		`"strings":["about:blank","#document","HTML"]}`,
}

type command struct {
	ID        int64
	Method    string
	SessionID string
	Params    struct{ Expression, TargetID string }
}

// firstPage is the target of the page that is opened first.
const firstPage = "T"

// at is where a page is. Only the first is where the script says.
func (s Script) at(target string) string {
	if target == firstPage {
		return s.URL
	}
	return "about:blank"
}

// info describes a page.
func (p *player) info(target string, s Script) string {
	return fmt.Sprintf(`{"targetId":%q,"type":"page","title":"a page","url":%q,"attached":true,"browserContextId":"C"}`, target, s.at(target))
}

// attached is the session in which a watcher has a page.
func attached(watcher, target string) string {
	return "S" + strings.TrimPrefix(watcher, "B") + strings.TrimPrefix(target, firstPage)
}

// showPage tells a watcher of a page.
func (p *player) showPage(watcher, target string, s Script) error {
	return p.say(`{"method":"Target.attachedToTarget","params":{"sessionId":%q,"targetInfo":%s,"waitingForDebugger":false},"sessionId":%q}`,
		attached(watcher, target), p.info(target, s), watcher)
}

// nextPage is the target of the page that is opened next.
func (p *player) nextPage() string {
	p.opened++
	if p.opened == 1 {
		return firstPage
	}
	return fmt.Sprintf("%s.%d", firstPage, p.opened)
}

// open opens a page, and returns its target.
func (p *player) open(s Script) (target string, err error) {
	target = p.nextPage()
	p.pages = append(p.pages, target)
	for _, w := range p.watchers {
		err = errors.Join(err, p.showPage(w, target, s))
	}
	return target, err
}

// closePage closes a page, if it is open.
func (p *player) closePage(target string) (err error) {
	i := slices.Index(p.pages, target)
	if i < 0 {
		return nil
	}
	p.pages = slices.Delete(p.pages, i, i+1)
	for _, w := range p.watchers {
		err = errors.Join(err, p.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":%q,"targetId":%q},"sessionId":%q}`, attached(w, target), target, w))
	}
	return err
}

// answer answers one command, and tells whether the browser ends with it.
func (p *player) answer(c command, s Script) (closing bool, err error) {
	result := `{}`
	switch c.Method {
	case "Browser.close":
		if s.RefusesClose {
			return false, p.say(`{"id":%d,"error":{"code":-32000,"message":"not now"}}`, c.ID)
		}
		closing = true
	case "Target.attachToBrowserTarget":
		p.sessions++
		result = fmt.Sprintf(`{"sessionId":"B%d"}`, p.sessions)
	case "Target.setAutoAttach":
		if strings.HasPrefix(c.SessionID, "B") {
			if !slices.Contains(p.watchers, c.SessionID) {
				p.watchers = append(p.watchers, c.SessionID)
			}
			for _, target := range p.pages {
				err = errors.Join(err, p.showPage(c.SessionID, target, s))
			}
		}
	case "Target.createTarget":
		var target string
		target, err = p.open(s)
		result = fmt.Sprintf(`{"targetId":%q}`, target)
	case "Target.closeTarget":
		err = p.closePage(c.Params.TargetID)
	case "Target.getTargets":
		infos := make([]string, 0, len(p.pages))
		for _, target := range p.pages {
			infos = append(infos, p.info(target, s))
		}
		result = fmt.Sprintf(`{"targetInfos":[%s]}`, strings.Join(infos, ","))
	case "Target.getTargetInfo":
		result = fmt.Sprintf(`{"targetInfo":%s}`, p.info(cmp.Or(c.Params.TargetID, firstPage), s))
	case "Page.getFrameTree":
		target := firstPage
		if _, opened, ok := strings.Cut(c.SessionID, "."); ok {
			target += "." + opened
		}
		result = fmt.Sprintf(`{"frameTree":{"frame":{"id":%q,"url":%q}}}`, target, s.at(target))
	case "Page.captureScreenshot":
		result = `{"data":"aGk="}`
	case "Storage.getCookies":
		cookies := []byte("[]")
		if len(s.Cookies) > 0 {
			if cookies, err = json.Marshal(s.Cookies); err != nil {
				return false, err
			}
		}
		result = fmt.Sprintf(`{"cookies":%s}`, cookies)
	default:
		if of, ok := EmptyPage(c.Method, c.Params.Expression); ok {
			result = of
		}
	}
	if err == nil {
		if c.SessionID == "" {
			err = p.say(`{"id":%d,"result":%s}`, c.ID, result)
		} else {
			err = p.say(`{"id":%d,"result":%s,"sessionId":%q}`, c.ID, result, c.SessionID)
		}
	}
	return closing, err
}

// say sends one message.
func (p *player) say(format string, args ...any) error {
	_, err := fmt.Fprintf(p.out, format+"\x00", args...)
	return err
}
