package session

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"leasehold/cdpproxy"
	"leasehold/cdpproxy/methods"
	"leasehold/checkpoint"
	"leasehold/evidence/redact"
)

// openExchange makes the session's exchange directory: the one place on the host that its
// worker and its pages share with nobody.
func (s *Session) openExchange() (err error) {
	s.exchange, err = s.h.o.FileRoots.Exchange(s.owner(), s.id)
	return err
}

// owner is under what the exchange directory lies. A browser sees those of all sessions of its
// profile; that of a copy sees its own session's alone.
func (s *Session) owner() string {
	if s.ephemeral {
		return s.id
	}
	return s.profile
}

// downloadDir is where downloads of the session's pages go while its worker has not said
// where. "" is where Chrome puts them: a person finds them there, unless the browser is of
// another user, whose home directory ends with it.
func (s *Session) downloadDir() string {
	if s.policy.byHand && !s.h.o.OtherUser {
		return ""
	}
	return s.exchange
}

// ownDirs are the directories that a confined browser of the profile may use besides the
// file roots. A browser may serve one session after the other, so that the exchange
// directories of all the profile's sessions are among them.
func (s *Session) ownDirs() []string {
	dirs := []string{s.h.o.FileRoots.OfProfile(s.owner())}
	if s.policy.byHand && !s.h.o.OtherUser {
		if home, err := os.UserHomeDir(); err == nil {
			downloads := filepath.Join(home, "Downloads")
			if fi, err := os.Stat(downloads); err == nil && fi.IsDir() {
				dirs = append(dirs, downloads)
			}
		}
	}
	return dirs
}

// takeDownloads has downloads go to the session's exchange directory, whatever an earlier
// session of the browser had set.
func (s *Session) takeDownloads(ctx context.Context) error {
	dir := s.downloadDir()
	if dir == "" {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.browser.Mux().SetDownloads(asking, dir)
}

// leaveDownloads hands what takeDownloads did to another run on the same browser.
func (s *Session) leaveDownloads() {
	for _, other := range s.h.Living() {
		if other != s && other.browser == s.browser && !other.Ending() {
			if err := other.takeDownloads(s.h.ctx); err != nil {
				s.log.Warn().Err(err).Msg("downloads without a place of their own may be lost")
			}
			return
		}
	}
}

// denials count the commands that were refused, by method and reason.
type denials struct {
	mu     sync.Mutex
	counts map[string]int
}

// add counts one more, and returns how many there are now.
func (d *denials) add(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counts == nil {
		d.counts = map[string]int{}
	}
	d.counts[key]++
	return d.counts[key]
}

// Denied notes a command that the worker may not send. The journal has the first of a
// method and reason, and then one entry for those since, whenever ten times as many have
// come.
func (s *Session) Denied(method string, why *methods.Refusal) {
	s.h.metrics.denied.WithLabelValues(why.Reason).Inc()
	if why.Reason == methods.ReasonUnknown {
		method = "" // a worker may make up any number of names
	}
	count := s.denials.add(method + " " + why.Reason)
	for n := count; ; n /= 10 {
		if n%10 != 0 {
			if n != 1 {
				return
			}
			break
		}
	}
	what := why.What
	if why.Reason == methods.ReasonURL {
		what = redact.URL(what)
	}
	s.log.Warn().Str("method", method).Str("reason", why.Reason).Int("count", count).Msg("command refused")
	s.Note(checkpoint.Entry{Kind: checkpoint.KindDenied, Name: method, Action: why.Reason, Text: strings.ToValidUTF8(what, "?"), Count: uint64(count - count/10)})
}

// Readable returns nil for a file that pages of the session may read.
func (h handler) Readable(path string) error { return h.s.h.o.FileRoots.Readable(h.s.exchange, path) }

// Writable returns nil for a directory that pages of the session may download to.
func (h handler) Writable(dir string) error { return h.s.h.o.FileRoots.Writable(h.s.exchange, dir) }

// DownloadDir is where downloads go while the worker has not said where.
func (h handler) DownloadDir() string { return h.s.downloadDir() }

// Takeover says whether a person has the session.
func (h handler) Takeover() *cdpproxy.Takeover { return &h.s.people.taken }

// Denied is told of a command that the worker may not send.
func (h handler) Denied(method string, why *methods.Refusal) { h.s.Denied(method, why) }
