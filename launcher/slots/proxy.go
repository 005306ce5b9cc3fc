package slots

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rs/zerolog"

	"leasehold/internal/foreign"
	"leasehold/launcher/chrome"
	"leasehold/launcher/proxies"
	"leasehold/launcher/sessionfile"
)

// proxyFile is a file in a profile's directory that names the proxy of the last browser
// that was started there. It is copied and moved with the directory.
const proxyFile = "leasehold_proxy"

// LastProxy returns the id of the proxy of the last browser that was started on the
// directory. It is empty if that had none.
func LastProxy(path string) (string, error) {
	id, err := foreign.Read(path, proxyFile, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(id), err
}

// ProxyUse describes the slot's proxy for a session's file; nil if there is none.
func (s *Slot) ProxyUse() *sessionfile.ProxyUse {
	p := s.Proxy()
	if p == nil {
		return nil
	}
	return &sessionfile.ProxyUse{ID: p.ID(), Server: p.Server(), Sum: p.Sum()}
}

// OpenProxy returns the value of Chrome's --proxy-server: the profile's proxy itself
// or, if that requires credentials, a relay to it that ends with the browser, and the
// socket that the browser inherits to keep the relay's address. It is empty if there is
// no proxy.
func (s *Slot) OpenProxy(path string, log zerolog.Logger) (server string, reserved *os.File, err error) {
	p := s.Proxy()
	if p == nil {
		return "", nil, nil
	}
	server, relay, err := Through(p, path, log)
	if relay != nil {
		s.setRelay(relay)
	}
	return server, relay.Reserved(), err
}

// Through notes in a profile's directory that its next browser goes out through the proxy, and returns the
// value of that one's --proxy-server. relay ends with the browser; nil: the proxy needs none.
func Through(p *proxies.Proxy, path string, log zerolog.Logger) (server string, relay *proxies.Relay, err error) {
	if err := foreign.Replace(path, proxyFile, []byte(p.ID())); err != nil {
		return "", nil, err
	}
	if !p.NeedsRelay() {
		return p.Server(), nil, nil
	}
	if relay, err = proxies.Open(p, path, chrome.UsesProxy, log); err != nil {
		return "", nil, err
	}
	return relay.URL(), relay, nil
}

// ReopenRelay opens the relay to its proxy again for a browser that outlived its
// launcher. p is the proxy with the id in the configuration; nil if there is none.
// Without a relay the browser stays offline, since it never uses another way out.
func (s *Slot) ReopenRelay(p *proxies.Proxy, id string, pid int, path string, log zerolog.Logger) {
	if id == "" || p != nil && !p.NeedsRelay() {
		return
	}
	relay, err := func() (*proxies.Relay, error) {
		if p == nil {
			return nil, fmt.Errorf("the configuration has no proxy %q", id)
		}
		server, err := chrome.ProxyAt(pid)
		if err != nil {
			return nil, err
		}
		return proxies.Reopen(p, server, path, chrome.UsesProxy, log)
	}()
	if err != nil {
		log.Warn().Err(err).Msg("the browser of the launcher before has no proxy any more: it is offline")
		return
	}
	s.setRelay(relay)
}

func (s *Slot) setRelay(relay *proxies.Relay) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.relay = relay
}

// HasRelay tells whether there is a relay to the profile's proxy.
func (s *Slot) HasRelay() bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.relay != nil
}

// closeRelay ends the slot's relay, if it has one. It is called once the browser is
// closed or detached from.
func (s *Slot) closeRelay() {
	s.t.mu.Lock()
	relay := s.relay
	s.relay = nil
	s.t.mu.Unlock()
	if err := relay.Close(); err != nil {
		s.t.o.Log.Error().Err(err).Str("profile", s.profile).Msg("relay not closed cleanly")
	}
}
