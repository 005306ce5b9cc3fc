package session

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/internal/test/fakechrome"
)

// chromium is the script of one profile's browser, and of those that follow it on the
// profile. Their processes are real ones (fakechrome.Socket). A command that it does not know
// fails the test.
type chromium struct {
	t        testing.TB
	dir      string // the profile's
	listener *net.UnixListener
	serving  sync.WaitGroup

	mu       sync.Mutex
	pipe     net.Conn // nil: no process runs
	opened   int      // browser sessions that there ever were
	watching []string // browser sessions that are attached to every tab
	tabs     []tab
	fresh    bool // no tab was opened yet
	created  int
	cookies  string // the list that Storage.getCookies answers with
	heard    []command
	// silent are the methods that are not answered.
	silent map[string]bool
	// at are called when a command with the method has come, before it is answered.
	at map[string]func()
}

type tab struct{ target, url string }

type command struct {
	ID        int64           `json:"id"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	SessionID string          `json:"sessionId"`
}

// script waits for the browsers of the profile in the directory.
func script(t testing.TB, dir string) *chromium {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fakechrome.Socket(dir)})
	if err != nil {
		t.Fatal(err)
	}
	c := &chromium{t: t, dir: dir, listener: l, cookies: "[]", silent: map[string]bool{}, at: map[string]func(){}}
	c.serving.Go(func() {
		for {
			pipe, err := l.Accept()
			if err != nil {
				return
			}
			c.serving.Go(func() { c.serve(pipe) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.exit(false)
		c.serving.Wait()
	})
	return c
}

// serve answers one process until it ends.
func (c *chromium) serve(pipe net.Conn) {
	c.note(false)
	c.mu.Lock()
	c.pipe, c.watching, c.tabs, c.fresh = pipe, nil, nil, true
	c.mu.Unlock()
	for r := bufio.NewReader(pipe); ; {
		msg, err := r.ReadBytes(0)
		if err != nil {
			_ = pipe.Close()
			return
		}
		if bytes.HasSuffix(msg, []byte("!\x00")) { // by which a launcher ends what another one may have begun
			continue
		}
		var m command
		if err := json.Unmarshal(msg[:len(msg)-1], &m); err != nil {
			c.t.Errorf("the browser got %.200q: %v", msg, err)
			return
		}
		c.mu.Lock()
		c.heard = append(c.heard, m)
		at, silent := c.at[m.Method], c.silent[m.Method]
		c.mu.Unlock()
		if at != nil {
			at()
		}
		if !silent {
			c.answer(m)
		}
	}
}

// nothing are the methods that are answered with an empty object.
var nothing = []string{
	"Target.setDiscoverTargets", "Target.detachFromTarget", "Fetch.disable", "Tracing.end", "Security.disable", "Inspector.enable", "Page.enable", "Page.addScriptToEvaluateOnNewDocument", "Runtime.addBinding", "DOMStorage.enable", "Log.enable",
	"Network.enable", "Runtime.runIfWaitingForDebugger", "Runtime.terminateExecution", "Fetch.enable", "Fetch.failRequest", "Storage.setCookies", "Browser.getVersion",
	"Target.disposeBrowserContext", "Target.activateTarget", "Target.getBrowserContexts", "Browser.setDownloadBehavior",
	"Input.insertText", "Input.dispatchMouseEvent", "Input.dispatchKeyEvent", "Page.reload",
}

// answer answers one command as Chrome does.
func (c *chromium) answer(m command) {
	var p struct{ TargetID, URL, Expression string }
	_ = json.Unmarshal(m.Params, &p)
	result := "{}"
	switch m.Method {
	case "Target.attachToBrowserTarget":
		c.mu.Lock()
		c.opened++
		result = fmt.Sprintf(`{"sessionId":"B%d"}`, c.opened)
		c.mu.Unlock()
	case "Target.setAutoAttach":
		if strings.Contains(string(m.Params), `"autoAttach":true`) && m.SessionID[0] == 'B' && !strings.Contains(m.SessionID, "-") {
			c.mu.Lock()
			c.watching = append(c.watching, m.SessionID)
			tabs := slices.Clone(c.tabs)
			c.mu.Unlock()
			for _, t := range tabs {
				c.attached(m.SessionID, t, false)
			}
		}
	case "Target.attachToTarget":
		c.mu.Lock()
		i := slices.IndexFunc(c.tabs, func(t tab) bool { return t.target == p.TargetID })
		c.mu.Unlock()
		if i < 0 {
			c.say(`{"id":%d,"error":{"code":-32602,"message":"No target with given id found"},"sessionId":%q}`, m.ID, m.SessionID)
			return
		}
		c.attached(m.SessionID, tab{p.TargetID, ""}, false)
		result = fmt.Sprintf(`{"sessionId":"%s-%s"}`, m.SessionID, p.TargetID)
	case "Target.createTarget":
		c.mu.Lock()
		if p.TargetID = "T0"; !c.fresh { // the launcher opens the first one
			c.created++
			p.TargetID = fmt.Sprint("T", c.created)
		}
		c.fresh = false
		c.mu.Unlock()
		c.open(tab{p.TargetID, p.URL})
		result = fmt.Sprintf(`{"targetId":%q}`, p.TargetID)
	case "Target.closeTarget":
		c.mu.Lock()
		c.tabs = slices.DeleteFunc(c.tabs, func(t tab) bool { return t.target == p.TargetID })
		watching := slices.Clone(c.watching)
		c.mu.Unlock()
		for _, session := range watching {
			c.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"%s-%s","targetId":%q},"sessionId":%q}`, session, p.TargetID, p.TargetID, session)
		}
		result = `{"success":true}`
	case "Target.getTargets":
		var infos []string
		c.mu.Lock()
		for _, t := range c.tabs {
			infos = append(infos, fmt.Sprintf(`{"targetId":%q,"type":"page","url":%q,"browserContextId":"C"}`, t.target, t.url))
		}
		c.mu.Unlock()
		result = `{"targetInfos":[` + strings.Join(infos, ",") + `]}`
	case "Target.getTargetInfo":
		result = fmt.Sprintf(`{"targetInfo":{"targetId":%q,"url":"about:blank"}}`, p.TargetID)
	case "Runtime.enable":
		_, target, _ := strings.Cut(m.SessionID, "-")
		c.say(`{"method":"Runtime.executionContextCreated","params":{"context":{"id":7,"auxData":{"isDefault":true,"frameId":%q}}},"sessionId":%q}`, target, m.SessionID)
	case "Storage.getCookies":
		c.mu.Lock()
		result = `{"cookies":` + c.cookies + `}`
		c.mu.Unlock()
	case "Page.captureScreenshot":
		result = `{"data":"aGk="}`
	case "Browser.close":
		c.say(`{"id":%d,"result":{}}`, m.ID)
		c.exit(true)
		return
	case "Page.getNavigationHistory":
		c.say(`{"id":%d,"error":{"code":-32000,"message":"not in the script"},"sessionId":%q}`, m.ID, m.SessionID)
		return
	default:
		if of, ok := fakechrome.EmptyPage(m.Method, p.Expression); ok {
			result = of
		} else if !slices.Contains(nothing, m.Method) {
			c.t.Errorf("the browser does not know %s %s", m.Method, m.Params)
		}
	}
	if m.SessionID == "" {
		c.say(`{"id":%d,"result":%s}`, m.ID, result)
		return
	}
	c.say(`{"id":%d,"result":%s,"sessionId":%q}`, m.ID, result, m.SessionID)
}

// say writes one message to the launcher, if the process runs.
func (c *chromium) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pipe != nil {
		_, _ = fmt.Fprintf(c.pipe, format+"\x00", args...) // the process may have been killed
	}
}

func (c *chromium) attached(session string, t tab, waiting bool) {
	c.say(`{"method":"Target.attachedToTarget","params":{"sessionId":"%s-%s","targetInfo":{"targetId":%q,"type":"page","url":%q,"browserContextId":"C"},"waitingForDebugger":%t},"sessionId":%q}`,
		session, t.target, t.target, t.url, waiting, session)
}

// open opens a tab.
func (c *chromium) open(t tab) {
	c.mu.Lock()
	c.tabs = append(c.tabs, t)
	watching := slices.Clone(c.watching)
	c.mu.Unlock()
	for _, session := range watching {
		c.attached(session, t, true)
	}
}

// exit ends the process. It notes in the profile whether it ended in order.
func (c *chromium) exit(inOrder bool) {
	c.note(inOrder)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pipe != nil {
		_ = c.pipe.Close()
		c.pipe = nil
	}
}

// note writes Chrome's two notes of how it ended.
func (c *chromium) note(inOrder bool) {
	exit := map[bool]string{true: "Normal", false: "Crashed"}[inOrder]
	if _, err := os.Stat(c.dir); err != nil {
		return // the test is over
	}
	_ = os.MkdirAll(filepath.Join(c.dir, "Default"), 0o700)
	for name, text := range map[string]string{
		"Variations":          fmt.Sprintf(`{"user_experience_metrics.stability.exited_cleanly":%t}`, inOrder),
		"Default/Preferences": fmt.Sprintf(`{"profile":{"exit_type":%q}}`, exit),
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
			c.t.Error(err)
		}
	}
}

// kill kills the process, as a crash does.
func (c *chromium) kill(pid int) {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		c.t.Error(err)
	}
}

// set changes the script under its mutex.
func (c *chromium) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// all is what the browser was told so far.
func (c *chromium) all() []command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.heard)
}

// commands are the same, each as method and session.
func (c *chromium) commands() (all []string) {
	for _, m := range c.all() {
		all = append(all, strings.TrimSpace(m.Method+" "+m.SessionID))
	}
	return all
}

// pause pauses a request of a page that the client's CDP session intercepts.
func (c *chromium) pause(session, request string) {
	c.say(`{"method":"Fetch.requestPaused","params":{"requestId":%q},"sessionId":%q}`, request, session)
}

// told are the parts of the browser's commands from here on that have these methods, in
// order, without the monitor's own.
func (c *chromium) told(from int, methods ...string) (found []string) {
	for _, m := range c.commands()[from:] {
		method, session, _ := strings.Cut(m, " ")
		if slices.Contains(methods, method) && session != "B1" {
			found = append(found, m)
		}
	}
	return found
}
