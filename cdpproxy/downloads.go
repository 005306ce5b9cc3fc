package cdpproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"leasehold/cdpproxy/methods"
)

// Chrome keeps one download behaviour per browser context. It returns to its default, which
// writes into the folder Downloads of the launcher's user, when the CDP session ends on which
// the behaviour was set, and when a client asks for that. So the launcher's own behaviour,
// which writes into the session's exchange directory, is set again each time.

// SetDownloadDir says where downloads go as long as the client has not said where. Empty: where
// Chrome puts them.
func (s *ClientSession) SetDownloadDir(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.downloadDir = dir
}

// SetDownloads sets where downloads of the profile's own browser context go, until a
// client says otherwise.
func (m *Mux) SetDownloads(ctx context.Context, dir string) error {
	var err error
	if m.ownContext.Load() == nil {
		var r struct {
			Own string `json:"defaultBrowserContextId"`
		}
		if err = m.Call(ctx, "Target.getBrowserContexts", nil, &r); err == nil {
			m.ownContext.Store(&r.Own)
		}
	}
	return errors.Join(err, m.Call(ctx, setDownloads, downloadParams("", dir), nil))
}

// contextOfPage is the browser context of the page of a CDP session; empty: the profile's own, which not every Chrome
// takes by its id.
func (m *Mux) contextOfPage(sessionID string) string {
	in := m.sessions.get(sessionID).context
	if own := m.ownContext.Load(); own != nil && in == *own {
		return ""
	}
	return in
}

const setDownloads = "Browser.setDownloadBehavior"

// downloadParams are the parameters of setDownloads with which the downloads of a browser
// context go to the directory, under the names that pages give them. "" is the profile's own
// context.
func downloadParams(browserContext, dir string) map[string]string {
	params := map[string]string{"behavior": "allow", "downloadPath": dir}
	if browserContext != "" {
		params["browserContextId"] = browserContext
	}
	return params
}

// downloadsTo is SetDownloads for any browser context, as a command whose reply nobody needs.
func downloadsTo(browserContext, dir string) []byte {
	return oneWay("", setDownloads, downloadParams(browserContext, dir))
}

// downloadCommands are the launcher's own commands that a client's command makes necessary: one
// before it, if it may make the first page of a browser context, and one after it, if it
// returns to Chrome's default behaviour. Either may be nil. sessionID is the CDP session of the
// client's command.
func (s *ClientSession) downloadCommands(sessionID string, named methods.Named) (before, after []byte) {
	in := named.Context
	if named.OfPage {
		in = s.mux.contextOfPage(sessionID)
	}
	fresh := s.mux.fresh.take(in)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.downloadDir == "":
	case named.Downloads:
		if s.downloads[sessionID] == nil {
			s.downloads[sessionID] = map[string]bool{}
		}
		s.downloads[sessionID][in] = true
		if named.Default {
			after = downloadsTo(in, s.downloadDir)
		}
	case fresh:
		before = downloadsTo(in, s.downloadDir)
	}
	return before, after
}

// restoreDownloads sets the launcher's own behaviour again if it ended with a CDP session. The
// caller holds s.mu.
func (s *ClientSession) restoreDownloads(sessionID string) {
	for in := range s.downloads[sessionID] {
		s.mux.post(downloadsTo(in, s.downloadDir))
	}
	delete(s.downloads, sessionID)
}

func (s *ClientSession) restoreAllDownloads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inherited && s.downloadDir != "" { // it is not known what the client had set
		s.mux.post(downloadsTo("", s.downloadDir))
	}
	for sessionID := range s.downloads {
		s.restoreDownloads(sessionID)
	}
}

// freshContexts are the browser contexts that clients made and that have no download behaviour yet.
type freshContexts struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (f *freshContexts) add(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ids == nil || len(f.ids) >= maxNoted {
		f.ids = map[string]bool{}
	}
	f.ids[id] = true
}

// take removes a browser context, and tells whether it was one of them.
func (f *freshContexts) take(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	had := f.ids[id]
	delete(f.ids, id)
	return had
}

func (f *freshContexts) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = nil
}

// contextReply is how Chrome's reply to Target.createBrowserContext begins, after the id. Pages
// cannot influence that.
var contextReply = []byte(`,"result":{"browserContextId":"`)

// noteContext notes from a reply which browser context a command made.
func (m *Mux) noteContext(msg []byte) {
	if !bytes.Contains(msg[:min(len(msg), maxReplyHead)], contextReply) {
		return
	}
	var r struct {
		Result struct {
			Context string `json:"browserContextId"`
		} `json:"result"`
	}
	if json.Unmarshal(msg, &r) != nil || r.Result.Context == "" {
		return
	}
	m.fresh.add(r.Result.Context)
	m.acts.MadeContext(r.Result.Context)
}
