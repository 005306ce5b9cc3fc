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
	"leasehold/evidence/capture"
	"leasehold/evidence/redact"
	"leasehold/launcher/browser"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/sessionfile"
)

// hostFiles are the files of the host that the worker and the pages of a session may touch.
type hostFiles struct {
	*terms
	roots     *fileroots.Roots
	otherUser bool   // browsers run as another user than the launcher
	exchange  string // the exchange directory; empty before it is made
}

func newHostFiles(h *Registry, t *terms) *hostFiles {
	return &hostFiles{terms: t, roots: h.o.FileRoots, otherUser: h.o.OtherUser}
}

// open makes the session's exchange directory: the only place on the host that its worker and
// its pages have for themselves.
func (f *hostFiles) open() (err error) {
	f.exchange, err = f.roots.Exchange(f.owner(), f.id)
	return err
}

// owner is the name of the directory that contains the exchange directory. A browser sees those
// of all sessions of its profile; a browser on a copy sees only that of its own session.
func (t *terms) owner() string {
	if t.ephemeral {
		return t.id
	}
	return t.profile
}

// inUsersFolder tells whether downloads go where Chrome itself puts them: a person finds them there,
// unless the browser runs as another user, whose home directory ends with it. Who came by a sign-in
// link is a stranger to the host.
func (f *hostFiles) inUsersFolder() bool {
	return f.policy.byHand && !f.policy.byLink && !f.otherUser
}

// downloadDir is where downloads of the session's pages go until its worker says where. ""
// stands for Chrome's own choice.
func (f *hostFiles) downloadDir() string {
	if f.inUsersFolder() {
		return ""
	}
	return f.exchange
}

// ownDirs are the directories that a confined browser of the profile may use besides the file
// roots. A browser may serve several sessions in turn, so they include the exchange directories
// of all the profile's sessions.
func (f *hostFiles) ownDirs() []string {
	dirs := []string{f.roots.OfProfile(f.owner())}
	if f.inUsersFolder() {
		if home, err := os.UserHomeDir(); err == nil {
			downloads := filepath.Join(home, "Downloads")
			if fi, err := os.Stat(downloads); err == nil && fi.IsDir() {
				dirs = append(dirs, downloads)
			}
		}
	}
	return dirs
}

// takeDownloads sends downloads to the session's exchange directory, whatever an earlier
// session of the browser had set.
func (f *hostFiles) takeDownloads(ctx context.Context, b *browser.Browser) error {
	dir := f.downloadDir()
	if dir == "" {
		return nil
	}
	asking, cancel := capture.Patience(ctx, askTimeout)
	defer cancel()
	return b.Mux().SetDownloads(asking, dir)
}

// remove removes the exchange directory of a session that was never granted.
func (f *hostFiles) remove() error { return f.roots.Remove(f.profile, f.id) }

// forget removes everything that an ephemeral session had.
func (f *hostFiles) forget() error { return f.roots.Forget(f.owner()) }

// readable returns nil for a file that pages of the session may read.
func (f *hostFiles) readable(path string) error { return f.roots.Readable(f.exchange, path) }

// writable returns nil for a directory that pages of the session may download to.
func (f *hostFiles) writable(dir string) error { return f.roots.Writable(f.exchange, dir) }

// leaveDownloads sends downloads to the exchange directory of another run on the same browser,
// if there is one.
func (e *ending) leaveDownloads() {
	s := e.s
	for _, other := range s.h.Living() {
		if other != s && other.browser == s.browser && !other.life.isEnding() {
			if err := other.files.takeDownloads(s.h.ctx, other.browser); err != nil {
				s.log.Warn().Err(err).Msg("downloads without a place of their own may be lost")
			}
			return
		}
	}
}

// maxNamedDownloads is how many unfinished downloads the journal names.
const maxNamedDownloads = 16

// noteDownloads notes the downloads that the end of the browser is about to cut off.
func (e *ending) noteDownloads() {
	s := e.s
	if !s.browser.Driven() {
		return
	}
	unfinished := s.browser.Monitor().Downloads().Unfinished()
	if len(unfinished) == 0 {
		return
	}
	for _, d := range unfinished[:min(len(unfinished), maxNamedDownloads)] {
		s.Note(checkpoint.Entry{Kind: checkpoint.KindUnfinished, URL: d.URL, Text: d.Name})
	}
	if more := len(unfinished) - maxNamedDownloads; more > 0 {
		s.Note(checkpoint.Entry{Kind: checkpoint.KindUnfinished, Count: uint64(more)})
	}
	s.file.change(func(f *sessionfile.File) { f.UnfinishedDownloads = len(unfinished) })
	s.log.Warn().Int("downloads", len(unfinished)).Msg("downloads are not finished at the session's end")
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

// Denied notes a command that the worker may not send. The journal has the first of each method
// and reason, and then one entry for those since, whenever their number has grown tenfold.
func (l *Limits) Denied(method string, why *methods.Refusal) {
	l.denied.WithLabelValues(why.Reason).Inc()
	if why.Reason == methods.ReasonUnknown {
		method = "" // a worker may make up any number of names
	}
	count := l.denials.add(method + " " + why.Reason)
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
	l.log.Warn().Str("method", method).Str("reason", why.Reason).Int("count", count).Msg("command refused")
	l.note(checkpoint.Entry{Kind: checkpoint.KindDenied, Name: method, Action: why.Reason, Text: strings.ToValidUTF8(what, "?"), Count: uint64(count - count/10)})
}

// Readable returns nil for a file that pages of the session may read.
func (h handler) Readable(path string) error { return h.s.files.readable(path) }

// Writable returns nil for a directory that pages of the session may download to.
func (h handler) Writable(dir string) error { return h.s.files.writable(dir) }

// DownloadDir is where downloads go until the worker says where.
func (h handler) DownloadDir() string { return h.s.files.downloadDir() }

// Opened takes in the connection of a page that the worker has exposed. It is not a connection of the
// worker itself: it is no sign of its life, and ends with that on which it was exposed. left closes what it
// has in the browser if it ends before that.
func (h handler) Opened(conn *cdpproxy.Conn) (left func(context.Context)) {
	h.s.take(conn)
	return func(ctx context.Context) { h.s.clients.closeExposed(ctx, conn) }
}

// Takeover tells whether a person has the session.
func (h handler) Takeover() *cdpproxy.Takeover { return &h.s.people.taken }

// Denied is called for a command that the worker may not send.
func (h handler) Denied(method string, why *methods.Refusal) { h.s.limits.Denied(method, why) }
