package monitor

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold/cdpproxy/acts"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/launcher/recovery/findings"
)

// cookieWatch follows the cookies of the profile's own browser context from the grant on, and
// reports what becomes of those that may carry the account's identity. It knows which cookies
// were there, sees those that answers set, and compares all that with the browser's cookies at
// the end: a change that no answer made was made by the worker or a script, or the cookie
// expired.
//
// Names and values are kept in memory only as hashes, under a key of this browser's own.
type cookieWatch struct {
	key [32]byte

	mu        sync.Mutex
	known     map[string]*watchedCookie // by id
	values    map[string]bool           // hashes of all values that answers set
	documents int                       // requests for documents
	written   bool                      // the worker wrote cookies
	full      bool                      // there were more cookies than can be remembered
	blind     string                    // why some cookies were not seen; empty: all were
	commands  []acts.CookieCommand      // of clients, not reported yet
	learning  chan struct{}             // nil unless those of a grant are being learned; closed when they are
}

type watchedCookie struct {
	id, domain string
	form       findings.CookieForm
	value      string // its hash
	subject    string // hash of the account that it names; empty: it names none
	expires    time.Time
	// setAt is the number of documents at the time when it was first set; negative: it existed
	// at the grant.
	setAt int
	brief bool // it was set to end with the browser, or within minutes
	// dropped says that the cookie is gone; told, that this was reported.
	dropped, told bool
	reports       int
}

const (
	// maxCookieReports bounds how many entries one cookie gets.
	maxCookieReports = 16
	// briefly is the longest life of a cookie that only carries a message to the next page.
	briefly = 10 * time.Minute
)

func newCookieWatch() *cookieWatch {
	w := &cookieWatch{known: map[string]*watchedCookie{}, values: map[string]bool{}}
	_, _ = rand.Read(w.key[:]) // it never fails
	return w
}

// forget forgets everything about a session that is over.
func (w *cookieWatch) forget() {
	w.lock()
	defer w.mu.Unlock()
	clear(w.known)
	clear(w.values)
	w.documents, w.written, w.full, w.blind, w.commands = 0, false, false, "", nil
}

// begin says that the cookies of a grant are about to be learned. What becomes of cookies is not judged before the
// caller says that they are.
func (w *cookieWatch) begin() (learned func()) {
	w.lock()
	defer w.mu.Unlock()
	learning := make(chan struct{})
	w.learning = learning
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.learning = nil
		close(learning)
	}
}

// lock locks w.mu once the cookies of a grant are known.
func (w *cookieWatch) lock() {
	for {
		w.mu.Lock()
		learning := w.learning
		if learning == nil {
			return
		}
		w.mu.Unlock()
		<-learning
	}
}

// missed notes why cookies were not seen when they should have been.
func (w *cookieWatch) missed(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blind = why
}

// hash is the first half of HMAC-SHA-256 over the texts, in hex.
func (w *cookieWatch) hash(texts ...string) string {
	h := hmac.New(sha256.New, w.key[:])
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// jarCookie is a cookie as Storage.getCookies describes it.
type jarCookie struct {
	Name         string          `json:"name"`
	Value        string          `json:"value"`
	Domain       string          `json:"domain"`
	Path         string          `json:"path"`
	Expires      float64         `json:"expires"`
	HTTPOnly     bool            `json:"httpOnly"`
	Secure       bool            `json:"secure"`
	Session      bool            `json:"session"`
	PartitionKey json.RawMessage `json:"partitionKey"`
}

func (w *cookieWatch) idOf(j jarCookie) string {
	return w.hash("id", j.Name, j.Domain, j.Path, string(j.PartitionKey))
}

// watched is what is remembered of one of the browser's cookies as it is now.
func (w *cookieWatch) watched(id string, j jarCookie) *watchedCookie {
	c := &watchedCookie{
		id: id, domain: j.Domain, setAt: -1,
		form: findings.CookieForm{HTTPOnly: j.HTTPOnly, Secure: j.Secure, Prefixed: prefixed(j.Name), Session: j.Session, Partitioned: len(j.PartitionKey) > 0},
	}
	if !j.Session && j.Expires > 0 {
		c.expires = time.Unix(int64(j.Expires), 0)
	}
	w.setValue(c, j.Value)
	return c
}

func (w *cookieWatch) setValue(c *watchedCookie, value string) {
	c.form.Value, c.value, c.subject = findings.FormOfValue(value), w.hash("value", value), ""
	if s := findings.SubjectOfValue(value); s != "" {
		c.subject = w.hash("subject", s)
	}
}

func prefixed(name string) bool {
	return strings.HasPrefix(name, "__Host-") || strings.HasPrefix(name, "__Secure-")
}

// learn takes in those of the browser's cookies, the result of Storage.getCookies, that are not
// known yet: at the grant, and later for a new page, whose first document Chrome does not
// report.
func (w *cookieWatch) learn(result json.RawMessage, atGrant bool, now time.Time) error {
	cookies, err := decodeJar(result)
	if err != nil {
		return err
	}
	all := make([]*watchedCookie, len(cookies)) // hashed before mu is held, for which the reader of the pipe may wait
	for i, j := range cookies {
		all[i] = w.watched(w.idOf(j), j)
	}
	if atGrant {
		w.mu.Lock()
	} else {
		w.lock()
	}
	defer w.mu.Unlock()
	for _, c := range all {
		if w.known[c.id] != nil {
			continue
		}
		if !atGrant {
			c.setAt, c.brief = w.documents, c.expires.IsZero() || c.expires.Sub(now) <= briefly
		}
		w.add(c)
	}
	return nil
}

// add adds a cookie. The caller holds w.mu.
func (w *cookieWatch) add(c *watchedCookie) {
	w.full = w.full || len(w.known) >= maxKnown
	if !w.full {
		w.known[c.id] = c
	}
}

func decodeJar(result json.RawMessage) ([]jarCookie, error) {
	var r struct {
		Cookies []jarCookie `json:"cookies"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, fmt.Errorf("not the result of Storage.getCookies: %w", err)
	}
	return r.Cookies, nil
}

// observe takes in a fact about a request of a page. typed tells whether the worker has typed into
// the page that sends it; foreign, whether that page uses other cookies than the account's. Both
// are called only if it matters.
func (w *cookieWatch) observe(f ledger.Fact, typed, foreign func() bool, now time.Time) []checkpoint.Entry {
	switch f.Method {
	case ledger.Sent:
		hop := &f.Request.Hops[f.Hop]
		hop.Typed = hop.Unsafe && typed()
		if isDocument(f.Params) {
			w.mu.Lock()
			w.documents++
			w.mu.Unlock()
		}
	case ledger.Headers:
		if f.Hop < 0 {
			return nil
		}
		if a := parseCookieAnswer(f.Params); !a.empty() && !foreign() {
			w.lock()
			defer w.mu.Unlock()
			return w.answered(f.Request.Hops[f.Hop], a, now)
		}
	}
	return nil
}

// answered takes in what an answer does to cookies. For each cookie the last change counts,
// because answers often remove a cookie and set it again. The caller holds w.mu.
func (w *cookieWatch) answered(h ledger.Hop, a cookieAnswer, now time.Time) []checkpoint.Entry {
	var sent ledger.Params
	if json.Unmarshal(h.Sent, &sent) != nil {
		return nil
	}
	u, err := url.Parse(sent.Request.URL)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	by := checkpoint.CookieChange{By: checkpoint.BySite, Status: a.status, Typed: h.Typed}
	entry := checkpoint.Entry{Kind: checkpoint.KindCookie, URL: sent.Request.URL, Method: sent.Request.Method, Type: sent.Type}
	var ids []string
	set := map[string]*http.Cookie{}
	for _, line := range a.lines {
		c, ok := parseSetCookie(line)
		if !ok || c.Partitioned {
			continue
		}
		if c.Domain = cookieDomain(c.Domain, u.Hostname()); c.Domain == "" {
			continue
		}
		if c.Path == "" || c.Path[0] != '/' {
			c.Path = defaultPath(u.Path)
		}
		id := w.hash("id", c.Name, c.Domain, c.Path, "")
		if set[id] == nil {
			ids = append(ids, id)
		}
		set[id] = c
	}
	var entries []checkpoint.Entry
	if a.cleared {
		for _, c := range w.sorted() {
			if !c.dropped && set[c.id] == nil && findings.Site("http://"+strings.TrimPrefix(c.domain, ".")) == findings.Site("http://"+u.Hostname()) {
				entries = w.drop(entries, c, entry, by)
			}
		}
	}
	for _, id := range ids {
		c, next := w.known[id], set[id]
		gone := strings.Trim(next.Value, `"`) == "" || next.MaxAge < 0 || next.MaxAge == 0 && !next.Expires.IsZero() && !next.Expires.After(now)
		if gone {
			if c != nil && !c.dropped {
				entries = w.drop(entries, c, entry, by)
			}
			continue
		}
		entries = w.set(entries, id, next, entry, by, now)
	}
	return entries
}

// set takes in that an answer has set a cookie. The caller holds w.mu.
func (w *cookieWatch) set(entries []checkpoint.Entry, id string, next *http.Cookie, entry checkpoint.Entry, by checkpoint.CookieChange, now time.Time) []checkpoint.Entry {
	after := &watchedCookie{
		id: id, domain: next.Domain, setAt: w.documents,
		form: findings.CookieForm{HTTPOnly: next.HttpOnly, Secure: next.Secure, Prefixed: prefixed(next.Name), Session: next.MaxAge == 0 && next.Expires.IsZero(), BySite: true},
	}
	switch {
	case next.MaxAge > 0:
		after.expires = now.Add(time.Duration(next.MaxAge) * time.Second)
	case !next.Expires.IsZero():
		after.expires = next.Expires
	}
	after.brief = after.expires.IsZero() || after.expires.Sub(now) <= briefly
	w.setValue(after, next.Value)
	remember(w.values, after.value, true)
	before := w.known[id]
	if before == nil {
		w.add(after)
		return entries
	}
	entries = w.change(entries, before, after, entry, by)
	after.setAt, after.brief = before.setAt, after.brief && before.brief
	after.reports = before.reports
	w.known[id] = after
	return entries
}

// drop takes in that a cookie is gone. The caller holds w.mu.
func (w *cookieWatch) drop(entries []checkpoint.Entry, c *watchedCookie, entry checkpoint.Entry, by checkpoint.CookieChange) []checkpoint.Entry {
	c.dropped = true
	// A message to the next page is a cookie set with one page and removed with the next.
	message := by.By == checkpoint.BySite && c.setAt >= 0 && c.brief && w.documents-c.setAt <= 1
	identity := c.form.Identity()
	by.Kept = w.likely(c.domain)
	if message || identity == findings.IdentityNone || identity == findings.IdentityMaybe && (by.By != checkpoint.BySite || by.Kept) {
		return entries
	}
	c.told = true
	by.What, by.Kept = checkpoint.CookieDropped, by.Kept && by.By == checkpoint.ByExpiry
	return c.report(entries, entry, by)
}

// likely tells whether a site has another cookie that is likely to carry the identity. The
// caller holds w.mu.
func (w *cookieWatch) likely(domain string) bool {
	site := findings.Site("http://" + strings.TrimPrefix(domain, "."))
	for _, c := range w.known {
		if !c.dropped && c.form.Identity() == findings.IdentityLikely && findings.Site("http://"+strings.TrimPrefix(c.domain, ".")) == site {
			return true
		}
	}
	return false
}

// change takes in that a cookie which existed, or had been dropped, was set. The caller holds
// w.mu.
func (w *cookieWatch) change(entries []checkpoint.Entry, before, after *watchedCookie, entry checkpoint.Entry, by checkpoint.CookieChange) []checkpoint.Entry {
	by.Same = before.value == after.value
	switch {
	case before.subject == "" || after.subject == "":
	case before.subject == after.subject:
		by.Subject = checkpoint.SubjectSame
	default:
		by.Subject = checkpoint.SubjectOther
	}
	switch {
	case before.dropped && before.told:
		by.What = checkpoint.CookieSetAgain
	case before.dropped || by.Same || before.form.Identity() != findings.IdentityLikely:
		return entries
	default:
		by.What = checkpoint.CookieReplaced
	}
	return before.report(entries, entry, by)
}

// report adds an entry about the cookie, unless it was renewed and enough entries say that. A loss, and what
// another account may have brought, is always reported.
func (c *watchedCookie) report(entries []checkpoint.Entry, entry checkpoint.Entry, by checkpoint.CookieChange) []checkpoint.Entry {
	if findings.Renewed(&by) {
		if c.reports++; c.reports > maxCookieReports {
			return entries
		}
	}
	by.Cookie, by.Domain = c.id[:16], c.domain
	entry.Cookie = &by
	return append(entries, entry)
}

func (w *cookieWatch) sorted() []*watchedCookie {
	var all []*watchedCookie
	for _, id := range slices.Sorted(maps.Keys(w.known)) {
		all = append(all, w.known[id])
	}
	return all
}

// compare compares what is known with the browser's present cookies: the result of
// Storage.getCookies, or problem, the reason why there is none.
func (w *cookieWatch) compare(result json.RawMessage, problem error, now time.Time) []checkpoint.Entry {
	var cookies []jarCookie
	err := problem
	if err == nil {
		cookies, err = decodeJar(result)
	}
	entry := checkpoint.Entry{Kind: checkpoint.KindCookie}
	if err != nil {
		entry.Text, entry.Cookie = err.Error(), &checkpoint.CookieChange{What: checkpoint.CookiesUnread}
		return []checkpoint.Entry{entry}
	}
	w.lock()
	defer w.mu.Unlock()
	if w.full {
		w.blind = "there were more cookies than can be watched"
	}
	if w.blind != "" {
		entry.Text, entry.Cookie = w.blind, &checkpoint.CookieChange{What: checkpoint.CookiesUnread}
		return []checkpoint.Entry{entry}
	}
	there := map[string]*watchedCookie{}
	for _, j := range cookies {
		c := w.watched(w.idOf(j), j)
		there[c.id] = c
	}
	var entries []checkpoint.Entry
	for _, c := range w.sorted() {
		after := there[c.id]
		switch {
		case after == nil && !c.dropped:
			entries = w.drop(entries, c, entry, checkpoint.CookieChange{By: w.actor(c, now)})
		case after == nil || after.value == c.value && !c.dropped:
		case w.values[after.value] && !c.dropped: // an answer set it, but its request is not known
			after.reports, w.known[c.id] = c.reports, after
		default:
			by := checkpoint.CookieChange{By: w.actor(c, time.Time{})}
			entries = w.change(entries, c, after, entry, by)
			after.reports, w.known[c.id] = c.reports, after
		}
	}
	entry.Cookie = &checkpoint.CookieChange{What: checkpoint.CookiesRead}
	return append(entries, entry)
}

// actor is who may have made a change of a cookie that no answer made. The caller holds w.mu.
func (w *cookieWatch) actor(c *watchedCookie, now time.Time) checkpoint.CookieActor {
	switch {
	case !c.expires.IsZero() && !now.IsZero() && !c.expires.After(now):
		return checkpoint.ByExpiry
	case w.written:
		return checkpoint.ByWorker
	case !c.form.HTTPOnly:
		return checkpoint.ByScript
	}
	return checkpoint.ByUnknown
}

// command notes a client's command that concerns cookies, until takeCommands.
func (w *cookieWatch) command(c acts.CookieCommand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written = w.written || c.Writes
	w.commands = append(w.commands, c)
}

// takeCommands returns the entries for the clients' cookie commands since its last call.
func (w *cookieWatch) takeCommands() []checkpoint.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	var entries []checkpoint.Entry
	for _, c := range w.commands {
		what := checkpoint.CookiesGiven
		if c.Writes {
			what = checkpoint.CookiesWritten
		}
		entries = append(entries, checkpoint.Entry{Kind: checkpoint.KindCookie, Method: c.Method, Cookie: &checkpoint.CookieChange{What: what, By: checkpoint.ByWorker}})
	}
	w.commands = nil
	return entries
}

// cookieDomain is a cookie's domain as Chrome writes it, from the attribute and the host that
// set the cookie; empty if that host may not set it.
func cookieDomain(attribute, host string) string {
	host = strings.ToLower(host)
	domain := strings.ToLower(strings.TrimPrefix(attribute, "."))
	switch {
	case domain == "":
		return host
	case domain == host || strings.HasSuffix(host, "."+domain):
		return "." + domain
	}
	return ""
}

// defaultPath is the path of a cookie that names none: the directory part of the URL's path.
func defaultPath(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}
