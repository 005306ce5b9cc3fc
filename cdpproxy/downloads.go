package cdpproxy

import (
	"leasehold/cdpproxy/methods"
)

// Chrome keeps one behaviour for downloads per browser context. It goes back to its own,
// which writes into the folder Downloads of the launcher's user, when the CDP session ends
// on which the behaviour was set, and when a client asks for that. So each time the
// launcher's own behaviour is set again: into the session's exchange directory.

// SetDownloadDir says where downloads go while the client has not said where. Empty: as
// Chrome will have it.
func (s *ClientSession) SetDownloadDir(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.downloadDir = dir
}

// DownloadsTo sets where downloads of the profile's own browser context go, while no
// client says otherwise. It returns at once.
func (m *Mux) DownloadsTo(dir string) { m.post(downloadsTo("", dir)) }

// downloadsTo is the command by which the downloads of a browser context go to the
// directory, under the names that pages give them. "" is the profile's own context.
func downloadsTo(context, dir string) []byte {
	params := map[string]string{"behavior": "allow", "downloadPath": dir}
	if context != "" {
		params["browserContextId"] = context
	}
	return oneWay("", "Browser.setDownloadBehavior", params)
}

// downloadCommands are the launcher's own commands that a client's command needs: one
// before it, if it may make the first page of a browser context, and one after it, if it
// goes back to Chrome's own behaviour. Either may be nil. sessionID is the CDP session of
// the client's command.
func (s *ClientSession) downloadCommands(sessionID string, named methods.Named) (before, after []byte) {
	context := named.Context
	m := s.mux
	m.mu.Lock()
	if named.Downloads && context == "" {
		context = m.contexts[sessionID] // "" for a browser session
	}
	fresh := m.freshContexts[context]
	delete(m.freshContexts, context)
	m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.downloadDir == "":
	case named.Downloads:
		if s.downloads[sessionID] == nil {
			s.downloads[sessionID] = map[string]bool{}
		}
		s.downloads[sessionID][context] = true
		if named.Default {
			after = downloadsTo(context, s.downloadDir)
		}
	case fresh:
		before = downloadsTo(context, s.downloadDir)
	}
	return before, after
}

// restoreDownloads sets the launcher's own behaviour again where it ended with a CDP
// session. s.mu is held.
func (s *ClientSession) restoreDownloads(sessionID string) {
	for context := range s.downloads[sessionID] {
		s.mux.post(downloadsTo(context, s.downloadDir))
	}
	delete(s.downloads, sessionID)
}

// restoreAllDownloads is restoreDownloads for all CDP sessions of the client session.
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
