package cdpproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/id"
)

// privacy is what nobody but the launcher may see: of the pages that CreateHidden opens only their
// opener is told; while the browser is kept private, no client sends anything, and the same holds for those
// that CreatePage opens.
type privacy struct {
	shut    atomic.Pointer[methods.Refusal] // why clients send nothing; nil: they may. Written with mu held
	holding atomic.Bool                     // what the browser says may have to be held, see creating

	mu sync.Mutex
	// creating is the session on which a page is being opened. Until its target is known, what the
	// browser says to others is held.
	creating *ClientSession
	calls    pendingCalls // by which it is opened, on the root session: their replies are not held
	held     [][]byte
	// pages are the targets that are hidden, with the session of their opener, and sessions those that
	// Chrome opened on them for others. Both are kept: Chrome tells of an end some time after it.
	pages    map[string]*ClientSession
	sessions map[string]bool
	// hidden are the pages of CreateHidden that are open.
	hidden map[string]bool
	// logged are the pages that the pipe log names: the next launcher would have to close them, and to clear
	// the cache.
	logged map[string]bool
	// listening are the commands of listens that hold, or may. unanswered are how many of them the browser
	// has not answered.
	listening  map[listener]*hearing
	unanswered atomic.Int32
}

// listener is a CDP session of a client, and the method that it sent there.
type listener struct{ session, method string }

// hearing is what is known of a client's commands of one method on one CDP session.
type hearing struct {
	on    bool    // one succeeded, or may have
	asked []int64 // the ids of those that are not answered
}

// ErrPrivate says that the browser is kept to the launcher already.
var ErrPrivate = errors.New("the launcher keeps the browser to itself already")

// ListeningError says that a client would hear what a private page does, or that such a page would believe
// whoever is on the way to a site.
type ListeningError struct{ Method string }

func (e *ListeningError) Error() string {
	if e.Method == ignoreCertificates {
		return fmt.Sprintf("the browser accepts every certificate since a client's %s, and whoever is on the way to the site would see the sign-in: "+
			"the client has to send that with ignore false first (with Puppeteer: connect without acceptInsecureCerts)", e.Method)
	}
	return fmt.Sprintf("a client hears what every page does since its %s, and would see the sidecar's own: it has to send %s first", e.Method, listens[e.Method][0])
}

// forget forgets what was heard on CDP sessions that have ended.
func (p *privacy) forget(ended []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(func(l listener) bool { return slices.Contains(ended, l.session) })
}

// end forgets what was heard by listeners. The caller holds p.mu.
func (p *privacy) end(which func(listener) bool) {
	for l, h := range p.listening {
		if which(l) {
			p.unanswered.Add(int32(-len(h.asked)))
			delete(p.listening, l)
		}
	}
}

// answered notes that a command of a client failed, or may have succeeded: by one that failed, it hears nothing.
func (p *privacy) answered(command inFlight, failed bool) {
	if p.unanswered.Load() == 0 { // nearly always
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for l, h := range p.listening {
		i := slices.Index(h.asked, command.id)
		if l.session != command.sessionID || i < 0 {
			continue
		}
		h.asked = slices.Delete(h.asked, i, i+1)
		p.unanswered.Add(-1)
		if h.on = h.on || !failed; !h.on && len(h.asked) == 0 {
			delete(p.listening, l)
		}
	}
}

// sessionGone forgets what was heard on CDP sessions that have ended, of which a command came too late.
func (p *privacy) sessionGone(isOpen func(session string) bool) {
	if p.unanswered.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(func(l listener) bool { return !isOpen(l.session) })
}

// heard is the error that a client would hear what a private page does; nil: none would. A secret needs
// checked certificates, too.
func (p *privacy) heard(secret bool) error {
	for l := range p.listening {
		if secret || l.method != ignoreCertificates {
			return &ListeningError{l.method}
		}
	}
	return nil
}

// KeepPrivate refuses every command of every client, with the reason, until open is called, except for what
// lets a target run that waits for its debugger. When it returns, no other can reach the browser any more. It
// fails with a *ListeningError if what one has sent before would tell it of the launcher's pages.
//
// open closes these pages first. With forget, it also clears the browser's cache, which has what sites
// answered them. If that fails, the browser stays private.
func (m *Mux) KeepPrivate(why *methods.Refusal) (open func(ctx context.Context, forget bool) error, _ error) {
	m.privacy.mu.Lock()
	first := m.privacy.shut.CompareAndSwap(nil, why)
	m.privacy.mu.Unlock()
	if !first {
		return nil, ErrPrivate
	}
	m.Barrier()
	m.privacy.mu.Lock()
	defer m.privacy.mu.Unlock()
	if heard := m.privacy.heard(false); heard != nil {
		m.privacy.shut.Store(nil)
		return nil, heard
	}
	return m.endPrivate, nil
}

// ChecksCertificates fails with a *ListeningError while a client has all pages accept every certificate. While
// the browser is kept private, none begins to.
func (m *Mux) ChecksCertificates() error {
	m.privacy.mu.Lock()
	defer m.privacy.mu.Unlock()
	return m.privacy.heard(true)
}

// KeptPrivate is why the launcher keeps the browser to itself now; nil: it does not.
func (m *Mux) KeptPrivate() *methods.Refusal { return m.privacy.shut.Load() }

// endPrivate closes all private pages, and what they opened, and then clears the cache if they are to be
// forgotten. When that is done, clients may go on.
func (m *Mux) endPrivate(ctx context.Context, forget bool) error {
	in := ""
	return m.endPrivateIn(ctx, &in, forget)
}

// endPrivateIn is endPrivate with what is known of the pages' browser context, see closePrivate.
func (m *Mux) endPrivateIn(ctx context.Context, in *string, forget bool) error {
	if forget {
		other, err := m.closePrivate(ctx, in, false)
		if err != nil {
			return err
		}
		if err := m.clearCache(ctx, other); err != nil {
			return fmt.Errorf("the browser stays closed to its clients, since its cache may have what was typed: %w", err)
		}
	}
	_, err := m.closePrivate(ctx, in, true)
	return err
}

// closePrivate closes all private pages, and what they opened. Their browser context is noted in in, and other is a
// page of others there, or empty. With open, clients may go on as soon as no private page is left.
func (m *Mux) closePrivate(ctx context.Context, in *string, open bool) (other string, err error) {
	for {
		m.privacy.mu.Lock()
		logged := slices.Collect(maps.Keys(m.privacy.logged))
		m.privacy.mu.Unlock()
		var all struct {
			TargetInfos []targetInfo `json:"targetInfos"`
		}
		if err := m.Call(ctx, "Target.getTargets", map[string]any{"filter": []struct{}{{}}}, &all); err != nil {
			return "", fmt.Errorf("which private pages are open: %w", err)
		}
		var left []targetInfo
		other = ""
		m.privacy.mu.Lock()
		for _, t := range all.TargetInfos {
			switch {
			case m.privacy.opener(t) == nil && t.Type == "page" && t.Context == *in:
				other = t.TargetID
			case m.privacy.opener(t) != nil && t.Type != "tab":
				left = append(left, t)
				*in = t.Context
			}
		}
		closed := len(left) == 0
		if closed && open {
			m.privacy.shut.Store(nil)
		}
		m.privacy.mu.Unlock()
		if closed {
			if open {
				m.privateGone(logged...)
			}
			return other, nil
		}
		for _, t := range left {
			if t.Type == "page" || t.Type == hiddenType {
				m.post(oneWay("", "Target.closeTarget", map[string]string{"targetId": t.TargetID}))
			}
		}
		select {
		case <-time.After(privateCloses):
		case <-ctx.Done():
			return "", fmt.Errorf("%d private pages do not close, and the browser stays closed to its clients: %w", len(left), ctx.Err())
		}
	}
}

// privateGone notes that private pages are closed, and that nothing is left to do for the next launcher.
func (m *Mux) privateGone(targets ...string) {
	for _, target := range targets {
		m.privacy.mu.Lock()
		logged := m.privacy.logged[target]
		delete(m.privacy.logged, target)
		delete(m.privacy.hidden, target)
		m.privacy.mu.Unlock()
		if logged {
			m.pipeLog.append(lineGone, target)
		}
	}
}

// clearCache clears the cache of the browser context of a page, which only a session on a page can; with
// none, that of the first context, by a private page.
func (m *Mux) clearCache(ctx context.Context, page string) error {
	o, err := m.Observe(ctx)
	if err != nil {
		return err
	}
	if page == "" {
		page, err = o.CreatePage(ctx)
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	if err == nil {
		err = o.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": page, "flatten": true}, &attached)
	}
	if err == nil {
		err = o.Call(ctx, attached.SessionID, "Network.clearBrowserCache", nil, nil)
	}
	return errors.Join(err, o.Close(ctx))
}

// privateCloses is the time between two looks whether private pages are closed.
const privateCloses = 20 * time.Millisecond

// createTimeout bounds how long somebody waits until Chrome opens a page of which only its opener is told.
const createTimeout = 5 * time.Second

// hiddenType is the type that Chrome gives to a page in no window.
const hiddenType = "other"

type targetInfo struct {
	TargetID string `json:"targetId"`
	Type     string `json:"type"`
	URL      string `json:"url"`
	OpenerID string `json:"openerId"`
	ParentID string `json:"parentFrameId"`
	Context  string `json:"browserContextId"`
}

// nobody has the tabs that were opened while the browser was kept private, since Chrome does not say by which
// page, and the pages of an earlier launcher. They are hidden, and go with their pages.
var nobody = &ClientSession{}

// opener returns whose private page a target is, or belongs to; nil if it is none. What such a page
// opens is private, too.
func (p *privacy) opener(t targetInfo) *ClientSession {
	for _, from := range []string{t.TargetID, t.OpenerID, t.ParentID} {
		if owner := p.pages[from]; owner != nil {
			p.pages[t.TargetID] = owner
			return owner
		}
	}
	return nil
}

// isPrivate tells whether a target is, or was, a private page.
func (m *Mux) isPrivate(target string) bool {
	m.privacy.mu.Lock()
	defer m.privacy.mu.Unlock()
	return m.privacy.pages[target] != nil
}

// IsPrivate tells whether a target is a page of the launcher's own of which nobody else is told, or belongs
// to one: opener and frame are the targets that opened it and that it is in, or empty.
func (m *Mux) IsPrivate(target, opener, frame string) bool {
	m.privacy.mu.Lock()
	defer m.privacy.mu.Unlock()
	return m.privacy.opener(targetInfo{TargetID: target, OpenerID: opener, ParentID: frame}) != nil
}

// ignoreCertificates has Chrome accept every certificate: on a browser's own session, for all pages.
const ignoreCertificates = "Security.setIgnoreCertificateErrors"

// listens are the commands that make a client hear what every page does, each with those that end it. Traces
// have what every process does; on a browser's own session, Fetch has the requests of all pages, and Security
// their errors of certificates, which it can also have Chrome overlook. ignoreCertificates stands here, too.
var listens = map[string][]string{
	"Tracing.start":    {"Tracing.end"},
	"Fetch.enable":     {"Fetch.disable"},
	"Security.enable":  {"Security.disable"},
	ignoreCertificates: {ignoreCertificates, "Security.disable"}, // by its parameter
}

var tracingDomain, securityDomain = []byte("Tracing."), []byte("Security.")

// mayListen tells whether a method may be one of listens, or end one: nearly none may.
func mayListen(method []byte) bool {
	return bytes.HasPrefix(method, tracingDomain) || bytes.HasPrefix(method, fetchDomain) || bytes.HasPrefix(method, securityDomain)
}

// listensTo is the method of listens that a client's command on a CDP session begins, or those that it ends.
func (m *Mux) listensTo(session string, cmd command) (begins string, ends []string) {
	if !bytes.HasPrefix(cmd.method, tracingDomain) {
		if kind := m.sessions.get(session).kind; kind != "" && kind != "browser" { // it is a page's
			return "", nil
		}
	}
	method := string(cmd.method)
	if listens[method] != nil && (method != ignoreCertificates || ignores(cmd.params)) {
		return method, nil
	}
	for one, ended := range listens {
		if slices.Contains(ended, method) {
			ends = append(ends, one)
		}
	}
	return "", ends
}

// ignores tells whether ignoreCertificates has these parameters, or others that Chrome may read so.
func ignores(params []byte) bool {
	ignore := true
	return !methods.ReadMembers(params, map[string]any{"ignore": &ignore}) || ignore
}

// startsListening is the method of listens that a client's command begins; empty: none.
func (c *Conn) startsListening(cmd command) string {
	if !mayListen(cmd.method) {
		return ""
	}
	begins, _ := c.session.mux.listensTo(c.target(cmd), cmd)
	return begins
}

// noteListening notes that a client's command makes it hear what every page does: before the command is
// on its way, so that no page is opened meanwhile that it would hear. another says that the client waits for
// the answer to another command with that id: then no answer tells which of them failed. The caller holds
// c.mu.
func (c *Conn) noteListening(cmd command, another bool) {
	p := &c.session.mux.privacy
	if p.unanswered.Load() == 0 && !mayListen(cmd.method) { // nearly always
		return
	}
	session := c.target(cmd)
	if own := c.session.defaultID; session == own { // with and without its name
		other := c.pending[own]
		if cmd.hasSession {
			other = c.pending[""]
		}
		_, waits := other[cmd.id]
		another = another || waits
	}
	if another {
		p.answered(inFlight{session, cmd.id}, false)
	}
	begins := c.startsListening(cmd)
	if begins == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := listener{session, begins}
	h := p.listening[l]
	if h == nil {
		if p.listening == nil {
			p.listening = map[listener]*hearing{}
		}
		h = &hearing{}
		p.listening[l] = h
	}
	if another || cmd.id >= ownID {
		h.on = true
		return
	}
	h.asked = append(h.asked, cmd.id)
	p.unanswered.Add(1)
}

// endsListening notes which of the commands end that a client hears what every page does. They are on
// their way to the browser: one that is refused ends nothing, and its client goes on to hear.
func (m *Mux) endsListening(sent []stagedCommand) {
	for i := range sent {
		if !mayListen(sent[i].method) {
			continue
		}
		session := string(sent[i].session)
		_, ends := m.listensTo(session, sent[i].command)
		if len(ends) == 0 {
			continue
		}
		m.privacy.mu.Lock()
		m.privacy.end(func(l listener) bool { return l.session == session && slices.Contains(ends, l.method) })
		m.privacy.mu.Unlock()
	}
}

// CreatePage opens an empty page, and returns its target. While the browser is kept private, nobody
// else is told of the page, also not afterwards.
func (o *Observer) CreatePage(ctx context.Context) (target string, err error) {
	if o.session.mux.KeptPrivate() != nil {
		return o.createUnseen(ctx, map[string]any{}, false)
	}
	var created struct {
		TargetID string `json:"targetId"`
	}
	err = o.Call(ctx, "", "Target.createTarget", map[string]string{"url": "about:blank"}, &created)
	return created.TargetID, err
}

// CreateHidden opens an empty page beside those of clients, which go on, and returns its target. The page
// is in no window, so that no other one loses its place or the focus. Nobody else is told of it, also not
// afterwards. It fails with a *ListeningError while a client hears what every page does; for one that
// begins to, the page is closed first. The caller closes it with CloseHidden.
func (o *Observer) CreateHidden(ctx context.Context) (target string, err error) {
	// A Chrome that knows no hidden pages opens it behind the others.
	return o.createUnseen(ctx, map[string]any{"hidden": true, "background": true}, true)
}

// CloseHidden closes a page of CreateHidden.
func (o *Observer) CloseHidden(ctx context.Context, target string) error {
	return o.session.mux.closeHidden(ctx, target)
}

func (m *Mux) closeHidden(ctx context.Context, target string) error {
	err := m.Call(ctx, "Target.closeTarget", map[string]string{"targetId": target}, nil)
	var chromes *Error
	if errors.As(err, &chromes) { // it is closed already
		err = nil
	}
	if err == nil {
		m.privateGone(target)
	}
	return err
}

// createUnseen opens an empty page of which nobody else is told. A page that comes when the caller waits no
// longer is closed.
func (o *Observer) createUnseen(ctx context.Context, params map[string]any, hidden bool) (string, error) {
	m := o.session.mux
	select { // one after the other, as browser sessions
	case m.attaching <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	m.privacy.mu.Lock()
	if heard := m.privacy.heard(false); heard != nil && hidden { // otherwise KeepPrivate has looked
		m.privacy.mu.Unlock()
		<-m.attaching
		return "", heard
	}
	m.privacy.creating = o.session
	m.privacy.holding.Store(true)
	m.privacy.mu.Unlock()
	var opened struct {
		target string
		err    error
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		opened.target, opened.err = m.openUnseen(o.session, params, hidden)
		<-m.attaching
	}()
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	select {
	case <-done:
		if opened.err != nil && opened.target != "" {
			_ = m.closeHidden(ctx, opened.target)
		}
		return opened.target, opened.err
	case <-ctx.Done():
	}
	go func() {
		if <-done; opened.target != "" {
			_ = m.closeHidden(context.Background(), opened.target)
		}
	}()
	return "", fmt.Errorf("the browser has not opened a page of the launcher's own yet: %w", ctx.Err())
}

// openUnseen is createUnseen while what the browser says to others is held. However late the browser
// answers, it is held until then: nothing else tells which page it is.
func (m *Mux) openUnseen(opener *ClientSession, params map[string]any, hidden bool) (target string, err error) {
	call := func(method string, params, result any) error {
		return m.call(context.Background(), nil, "", method, params, result, &m.privacy.calls)
	}
	// The tab of a page is a target, too, which only its URL tells.
	url := "about:blank#" + id.New("page")
	params["url"] = url
	var created struct {
		TargetID string `json:"targetId"`
	}
	if err = call("Target.createTarget", params, &created); created.TargetID != "" {
		m.pipeLog.append(linePrivate, opener.id, created.TargetID)
	}
	var unseen []string
	for named, late := false, time.Now().Add(createTimeout); err == nil && !named; {
		unseen = []string{created.TargetID}
		var all struct {
			TargetInfos []targetInfo `json:"targetInfos"`
		}
		err = call("Target.getTargets", map[string]any{"filter": []map[string]string{{"type": "page"}, {"type": "tab"}, {"type": hiddenType}}}, &all)
		open := false
		for _, t := range all.TargetInfos {
			open = open || t.TargetID == created.TargetID
			if t.URL == url && t.TargetID != created.TargetID {
				unseen, named = append(unseen, t.TargetID), true
			}
		}
		switch {
		case err != nil || named:
		case !open || time.Now().After(late): // an extension has closed it, or had it go elsewhere
			err = errors.New("a page of the launcher's own did not stay as it was opened")
		default:
			time.Sleep(privateCloses)
		}
	}
	m.privacy.mu.Lock()
	for _, target := range unseen {
		m.privacy.pages[target] = opener
	}
	if hidden {
		for _, target := range unseen[:min(len(unseen), 1)] { // the page; its tab goes with it
			m.privacy.hidden[target] = true
		}
	}
	if created.TargetID != "" {
		m.privacy.logged[created.TargetID] = true
	}
	m.privacy.creating = nil
	m.privacy.mu.Unlock()
	// The answer to this comes when what was held is passed on.
	err = errors.Join(err, m.Call(context.Background(), "Browser.getVersion", nil, nil))
	m.privacy.holding.Store(false)
	return created.TargetID, err
}

// endHidden closes the pages of CreateHidden that are open, and returns when they are gone.
func (m *Mux) endHidden(ctx context.Context) error {
	for {
		m.privacy.mu.Lock()
		open := slices.Collect(maps.Keys(m.privacy.hidden))
		done := len(open) == 0 && m.privacy.creating == nil
		m.privacy.mu.Unlock()
		if done {
			return nil
		}
		for _, target := range open {
			m.post(oneWay("", "Target.closeTarget", map[string]string{"targetId": target}))
		}
		select {
		case <-time.After(privateCloses):
		case <-ctx.Done():
			return fmt.Errorf("%d pages of the launcher's own do not close: %w", len(open), ctx.Err())
		}
		var all struct {
			TargetInfos []targetInfo `json:"targetInfos"`
		}
		if err := m.Call(ctx, "Target.getTargets", nil, &all); err != nil {
			return fmt.Errorf("which pages of the launcher's own are open: %w", err)
		}
		for _, target := range open {
			if !slices.ContainsFunc(all.TargetInfos, func(t targetInfo) bool { return t.TargetID == target }) {
				m.privateGone(target)
			}
		}
	}
}

// ClosePrivate closes the pages that an earlier launcher kept to itself, before any client can see them. If there may
// be some, the browser is kept private until forget has cleared its cache, which takes its network service.
func (m *Mux) ClosePrivate(ctx context.Context) (forget func(ctx context.Context) error, err error) {
	m.privacy.mu.Lock()
	found := len(m.privacy.logged) > 0
	if found {
		m.privacy.shut.Store(methods.RefuseSignIn())
	}
	m.privacy.mu.Unlock()
	if !found {
		return func(context.Context) error { return nil }, nil
	}
	in := ""
	_, err = m.closePrivate(ctx, &in, false)
	return func(ctx context.Context) error { return m.endPrivateIn(ctx, &in, true) }, err
}

// hold keeps a message of the browser while it is not known whether it is about a private page. It
// passes on what was held before as soon as that is known. The loop calls it.
func (m *Mux) hold(parsed browserMessage, msg []byte) bool {
	if !m.privacy.holding.Load() {
		return false
	}
	if parsed.isReply && len(parsed.sessionID) == 0 {
		if take := m.privacy.calls.remove(parsed.id); take != nil {
			take(msg)
			return true
		}
	}
	m.privacy.mu.Lock()
	if s := m.privacy.creating; s != nil {
		defer m.privacy.mu.Unlock()
		own := string(parsed.sessionID) == s.id
		if !own {
			m.privacy.held = append(m.privacy.held, bytes.Clone(msg))
		}
		return !own
	}
	held := m.privacy.held
	m.privacy.held = nil
	m.privacy.mu.Unlock()
	for _, one := range held {
		m.route(one)
	}
	return false
}

// withoutPrivate returns a reply that lists targets as it would be without private pages.
func (m *Mux) withoutPrivate(msg []byte) []byte {
	m.privacy.mu.Lock()
	defer m.privacy.mu.Unlock()
	if len(m.privacy.pages) == 0 {
		return msg
	}
	var r struct {
		Result struct {
			TargetInfos []json.RawMessage `json:"targetInfos"`
		} `json:"result"`
	}
	if json.Unmarshal(msg, &r) != nil {
		return msg
	}
	shown := slices.DeleteFunc(slices.Clone(r.Result.TargetInfos), func(raw json.RawMessage) bool {
		var t targetInfo
		return json.Unmarshal(raw, &t) == nil && m.privacy.opener(t) != nil
	})
	if len(shown) == len(r.Result.TargetInfos) {
		return msg
	}
	// Chrome writes the list without white space.
	before, after := bytes.Join(raws(r.Result.TargetInfos), []byte(",")), bytes.Join(raws(shown), []byte(","))
	return bytes.Replace(msg, before, after, 1)
}

func raws(list []json.RawMessage) (all [][]byte) {
	for _, raw := range list {
		all = append(all, raw)
	}
	return all
}

var targetEvents = []byte(`{"method":"Target.`)

// hides tells whether an event that came for a client session is about a private page of somebody
// else. A page that Chrome attached the client to runs at once, and the client is detached. The session
// is nil for what is under a tab to which one was attached. The loop calls it.
func (m *Mux) hides(s *ClientSession, parsed browserMessage, msg []byte) bool {
	if parsed.isReply || !bytes.HasPrefix(msg, targetEvents) {
		return false
	}
	m.privacy.mu.Lock()
	defer m.privacy.mu.Unlock()
	if len(m.privacy.pages) == 0 {
		return false
	}
	var e struct {
		Params struct {
			SessionID  string     `json:"sessionId"`
			TargetID   string     `json:"targetId"`
			TargetInfo targetInfo `json:"targetInfo"`
		} `json:"params"`
	}
	if json.Unmarshal(msg, &e) != nil {
		return false
	}
	if m.privacy.sessions[e.Params.SessionID] {
		return true
	}
	owner := m.privacy.pages[e.Params.TargetID]
	if owner == nil {
		if info := e.Params.TargetInfo; info.Type == "tab" && m.KeptPrivate() != nil && !bytes.HasPrefix(msg, targetChangedEvent) {
			m.privacy.pages[info.TargetID] = nobody
		}
		owner = m.privacy.opener(e.Params.TargetInfo)
	}
	if owner == nil || owner == s {
		return false
	}
	if bytes.HasPrefix(msg, attachedEvent) {
		m.privacy.sessions[e.Params.SessionID] = true
		m.letRunPrivate(e.Params.SessionID, string(parsed.sessionID), e.Params.TargetInfo.Type == "tab")
	}
	return true
}

// letRunPrivate lets a private target run on a CDP session that Chrome opened on it for a client, below
// another one: a page that waits for a debugger may hold up the one that opened it. It is not the tab
// that waits but its page, which only a session of its own lets run: the one that Chrome is asked for
// here, and opens at once, comes as the next. The sessions on tabs end with them.
func (m *Mux) letRunPrivate(session, parent string, tab bool) {
	commands := [][]byte{oneWay(session, letRunCommand, nil), oneWay(parent, "Target.detachFromTarget", map[string]string{"sessionId": session})}
	if tab {
		commands[1] = oneWay(session, "Target.setAutoAttach", map[string]bool{"autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true})
	}
	for _, command := range commands {
		m.post(command)
	}
}
