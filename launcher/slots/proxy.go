package slots

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"leasehold/internal/durable"
	"leasehold/internal/procfs"
	"leasehold/launcher/proxies"
	"leasehold/launcher/sessionfile"
)

// proxyFile is a file in a profile's directory, which goes wherever that goes: it names
// the proxy that a browser on it was started with last.
const proxyFile = "leasehold_proxy"

// LastProxy names the proxy that a browser on the directory was started with last;
// empty: it was started with none.
func LastProxy(path string) (string, error) {
	id, err := os.ReadFile(filepath.Join(path, proxyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(id), err
}

// ProxyUse is what a session's file says of the slot's proxy; nil: there is none.
func (s *Slot) ProxyUse() *sessionfile.ProxyUse {
	p := s.Proxy()
	if p == nil {
		return nil
	}
	return &sessionfile.ProxyUse{ID: p.ID(), Server: p.Server(), Sum: p.Sum()}
}

// OpenProxy returns what Chrome is told of the profile's proxy: the server itself or,
// where that wants credentials, a relay to it that ends with the browser. Empty: there
// is no proxy.
func (s *Slot) OpenProxy(path string, log zerolog.Logger) (string, error) {
	p := s.Proxy()
	if p == nil {
		return "", nil
	}
	if err := durable.Replace(filepath.Join(path, proxyFile), []byte(p.ID())); err != nil {
		return "", err
	}
	if !p.NeedsRelay() {
		return p.Server(), nil
	}
	relay, err := proxies.Open(p, path, log)
	if err != nil {
		return "", err
	}
	s.setRelay(relay)
	return relay.URL(), nil
}

// ReopenRelay gives a browser that outlived its launcher the relay to its proxy again.
// p is what the configuration has for the proxy with the id; nil: nothing. Where the
// relay cannot be had the browser stays offline: it never goes out another way.
func (s *Slot) ReopenRelay(p *proxies.Proxy, id string, pid int, path string, log zerolog.Logger) {
	if id == "" || p != nil && !p.NeedsRelay() {
		return
	}
	relay, err := func() (*proxies.Relay, error) {
		if p == nil {
			return nil, fmt.Errorf("the configuration has no proxy %q", id)
		}
		line, err := procfs.CommandLine(pid)
		if err != nil {
			return nil, err
		}
		return proxies.Reopen(p, argument(line, "--proxy-server="), path, log)
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

// closeRelay ends the slot's relay, if it has one, once the browser is closed or
// detached from.
func (s *Slot) closeRelay() {
	s.t.mu.Lock()
	relay := s.relay
	s.relay = nil
	s.t.mu.Unlock()
	if err := relay.Close(); err != nil {
		s.t.o.Log.Error().Err(err).Str("profile", s.profile).Msg("relay not closed cleanly")
	}
}

// argument is the value of a command line's last argument with the prefix.
func argument(line []byte, prefix string) string {
	value := ""
	for arg := range strings.SplitSeq(string(line), "\x00") {
		if v, ok := strings.CutPrefix(arg, prefix); ok {
			value = v
		}
	}
	return value
}
