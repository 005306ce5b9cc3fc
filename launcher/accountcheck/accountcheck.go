// Package accountcheck asks sites about a profile's account: whether it is signed in, and what is
// asked by the files about sites. It opens a browser on the profile, which nobody else may use
// meanwhile, or asks in one that is open, beside whoever has it. It requests each URL by GET with the account's cookies, or with the token that an
// application keeps, and judges the answer. No page gets anything of the answer: no script
// runs, no redirect is followed, nothing else is loaded, and nothing is sent that could change
// the account. Only the pages that a file names to be opened run as they do for the account; what
// they want to send and may write is failed, and noted.
package accountcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence/capture"
	"leasehold/internal/id"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/monitor"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// Answer says whether the account is signed in.
type Answer string

// The answers. Unknown means that the check could not be made, or that the site itself has
// problems.
const (
	SignedIn  Answer = "yes"
	SignedOut Answer = "no"
	Unknown   Answer = "unknown"
)

// Result is the result of a check.
type Result struct {
	Answer Answer
	// Status is the status of the site's answer; zero if there was none.
	Status int
	// How tells a person how the result was found, or why there is none.
	How string
}

func unknown(format string, args ...any) Result {
	return Result{Answer: Unknown, How: fmt.Sprintf(format, args...)}
}

// Options are what a Checker works with.
type Options struct {
	Driver  *browser.Driver
	Root    *profiledir.Root
	Files   sessionfile.Dir
	Jar     sessionfile.Jar
	Proxies *proxies.Set // nil: none are configured, and proxy ids are labels
	// Headless says that browsers have no windows, unless a request says otherwise.
	Headless bool
}

// Checker makes checks. Its methods may be called concurrently, for one profile at a time.
type Checker struct {
	o        Options
	preserve slots.Preserve // nil: nothing is stored
}

// New returns a checker.
func New(o Options) *Checker { return &Checker{o: o} }

// PreserveBy has store keep evidence of a check's browser before it is ended by a signal. It is called
// once, before the first check.
func (c *Checker) PreserveBy(store slots.Preserve) { c.preserve = store }

// Request says what to check. The caller occupies the profile and has its lock, and no process
// uses its directory.
type Request struct {
	Profile string
	Path    string // of its directory
	Lock    *profiledir.Lock
	Token   lease.Token // of the record
	// Check is the session check; nil: none is made. Sites is what is known of sites, by which its
	// URL may be asked for in another way.
	Check *lease.SessionCheck
	Sites *site.Book
	// Questions are asked in their order; pages are opened after all others. What these want to send is
	// judged by Task. Again names those that are asked once more when the account
	// had time to settle; nil: none.
	Questions []site.Question
	Again     func([]site.Answer) []site.Question
	Task      findings.Task
	// Known is what is known of sites, by which these requests are judged; nil: what the launcher knows.
	Known site.Source
	// Settle is that time.
	Settle time.Duration
	// GiveUp ends the questions when it is closed: somebody wants the profile. nil: nothing does.
	GiveUp <-chan struct{}
	// Sink gets what the browser's pages did meanwhile; nil: nobody does.
	Sink func(checkpoint.Entry)
	// ProxyID is the proxy id of the record.
	ProxyID string
	// Headless, Args, Memory and Appearance are those of the profile's tasks, so that the site sees
	// the browser that it knows.
	Headless   *bool // nil: the launcher's own
	Appearance lease.Appearance
	Args       []string
	Memory     uint64
	// ReadOnly says that these are read-only, so that they go past the host's own proxy, as a check does.
	ReadOnly bool
	// KeepCookies says that the profile's session cookies are kept from one browser to the
	// next.
	KeepCookies bool
	Log         zerolog.Logger
}

// Found is what sites answered.
type Found struct {
	// Session is what the session check found; the zero value if none was made.
	Session Result
	// Answers are those to the questions, and Again to those that were asked once more.
	Answers, Again []site.Answer
	// Unchanged says that no browser was started, or that it opened no page, and ended with the cookies with
	// which it began: the profile is as it was.
	Unchanged bool

	before json.RawMessage // the cookies with which it began; nil: they are not known
}

// Bounds of a check, in time that the host gives (capture.Patience): a browser that gets none is not a
// site that does not answer. The close has its own.
const (
	startTimeout = 20 * time.Second
	// askTimeout bounds how long the site may take to answer a session check, and to answer all
	// questions at a time; questionTimeout bounds one of these.
	askTimeout      = 10 * time.Second
	questionTimeout = 5 * time.Second
)

// idPrefix begins the ids under which the browsers of checks are noted.
const idPrefix = "chk"

// IsCheck tells whether the browser that is noted under this id was a check's. It had no
// worker, and may not have had all cookies of the account.
func IsCheck(sessionID string) bool { return strings.HasPrefix(sessionID, idPrefix+"_") }

// Run asks. An error says that the browser did not end in order: the directory may be damaged.
func (c *Checker) Run(ctx context.Context, r Request) (_ Found, err error) {
	begun := time.Now()
	server, relay, err := c.openProxy(r)
	if err != nil {
		found := unasked(r, "its proxy cannot be used: %v", err)
		found.Unchanged = true
		return found, nil
	}
	defer func() { err = errors.Join(err, relay.Close()) }()
	session := id.New(idPrefix)
	headless := c.o.Headless
	if r.Headless != nil {
		headless = *r.Headless
	}
	said := &reported{to: r.Sink}
	ctx, cancel := capture.Patience(ctx, startTimeout+4*askTimeout+r.Settle)
	defer cancel()
	starting, started := capture.Patience(ctx, startTimeout)
	defer started()
	b, err := c.o.Driver.Start(starting, browser.Start{
		SessionID: session, Token: r.Token, Lock: r.Lock, Path: r.Path, Headless: headless, Proxy: server, ProxySocket: relay.Reserved(), ReadOnly: true,
		Args: r.Args, Memory: r.Memory, Appearance: r.Appearance, Sink: said.take, Log: r.Log,
	})
	found := Found{}
	lent := false
	if err != nil {
		found = unasked(r, "no browser could be started: %v", err)
	} else {
		asking, stop := context.WithCancel(ctx)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			select {
			case <-r.GiveUp:
				stop()
			case <-asking.Done():
			}
		})
		found, lent = c.ask(asking, b, r, said)
		stop()
		waiting.Wait()
	}
	err = c.end(b, r, lent)
	found.Unchanged = err == nil && lent && sameCookies(found.before, b.CookiesAtClose())
	if err == nil {
		err = c.o.Files.Remove(session)
	}
	r.Log.Info().Str("signed_in", string(found.Session.Answer)).Int("status", found.Session.Status).Int("questions", len(found.Answers)).
		Dur("took", time.Since(begun)).AnErr("problem", err).Msg("account checked")
	return found, err
}

// unasked is what is found where nothing could be asked.
func unasked(r Request, format string, args ...any) (f Found) {
	why := fmt.Sprintf(format, args...)
	if r.Check != nil {
		f.Session = unknown("%s", why)
	}
	for _, q := range r.Questions {
		f.Answers = append(f.Answers, site.Answer{Question: q, State: site.NotHad, How: why})
	}
	return f
}

// ask asks the sites. lent says that the browser has all cookies of the account.
func (c *Checker) ask(ctx context.Context, b *browser.Browser, r Request, said *reported) (f Found, lent bool) {
	if r.Known != nil {
		b.Monitor().KnowSites(r.Known)
	}
	rules := monitor.Rules{ReadOnly: true, ByFiles: true}
	if r.Check != nil {
		rules.Asked = []string{r.Check.URL}
	}
	for _, q := range r.Questions {
		if !q.Opens {
			rules.Asked = append(rules.Asked, q.URL)
		}
	}
	if err := b.Monitor().Guard().Enforce(ctx, rules); err != nil {
		return unasked(r, "the browser could not be held to reading: %v", err), false
	}
	if r.KeepCookies {
		if err := c.o.Jar.Lend(ctx, b.Monitor().Observer(), r.Profile); err != nil {
			return unasked(r, "the account's cookies could not be put back: %v", err), false
		}
	}
	opens := func(q site.Question) bool { return q.Opens }
	pages := slices.DeleteFunc(slices.Clone(r.Questions), func(q site.Question) bool { return !opens(q) })
	r.Questions = slices.DeleteFunc(slices.Clone(r.Questions), opens)
	before, _ := b.Cookies(ctx)
	f = InOpen(ctx, b.Mux(), r)
	if r.Again != nil {
		if again := r.Again(f.Answers); len(again) > 0 {
			select {
			case <-time.After(r.Settle):
			case <-ctx.Done():
			}
			f.Again = Ask(ctx, b.Mux(), again)
		}
	}
	if len(pages) == 0 {
		b.StoredNothing()
		f.before = before
	}
	f.Answers = append(f.Answers, rehearse(ctx, b, pages, r.Task, said)...)
	return f, true
}

// sameCookies tells whether two lists, as browser.Browser.Cookies returns them, are known and have the same cookies.
func sameCookies(a, b json.RawMessage) bool {
	list := func(jar json.RawMessage) (all []string, known bool) {
		var listed struct{ Cookies []json.RawMessage }
		if json.Unmarshal(jar, &listed) != nil {
			return nil, false
		}
		for _, c := range listed.Cookies {
			all = append(all, string(c))
		}
		slices.Sort(all)
		return all, true
	}
	before, known := list(a)
	after, too := list(b)
	return known && too && slices.Equal(before, after)
}

// InOpen makes the session check, and asks the questions, of a request in a living browser, whose
// pages stay as they are.
func InOpen(ctx context.Context, mux *cdpproxy.Mux, r Request) (f Found) {
	if r.Check != nil {
		f.Session = checkSession(ctx, mux, *r.Check, r.Sites.AskFor(r.Check.URL))
	}
	f.Answers = Ask(ctx, mux, r.Questions)
	return f
}

// checkSession makes a session check in a living browser.
func checkSession(ctx context.Context, mux *cdpproxy.Mux, check lease.SessionCheck, ask site.Ask) Result {
	ctx, cancel := capture.Patience(ctx, askTimeout)
	defer cancel()
	o, err := mux.Observe(ctx, eventPaused, eventAuth)
	if err != nil {
		return unknown("the browser does not answer: %v", err)
	}
	defer release(o)
	most := 0
	if check.Text != "" {
		most = maxBody
	}
	p, err := openPage(ctx, o)
	if err != nil {
		return unknown("no page could be opened: %v", err)
	}
	defer p.close()
	return judgeSession(check, get(ctx, p, ask, check.WantStatus(), most))
}

// release closes an observer, as far as the browser lets it.
func release(o *cdpproxy.Observer) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = o.Close(ctx) // it ends with its browser otherwise
}

// Ask asks the questions, one after the other, in a living browser, of which whoever has it sees nothing.
// What does not fit into the time is not known.
func Ask(ctx context.Context, mux *cdpproxy.Mux, questions []site.Question) []site.Answer {
	return slices.Collect(Answers(ctx, mux, questions))
}

// Answers is Ask, with each answer when it is there.
func Answers(ctx context.Context, mux *cdpproxy.Mux, questions []site.Question) iter.Seq[site.Answer] {
	return func(yield func(site.Answer) bool) {
		if len(questions) == 0 {
			return
		}
		ctx, cancel := capture.Patience(ctx, askTimeout)
		defer cancel()
		o, err := mux.Observe(ctx, eventPaused, eventAuth)
		if err == nil {
			defer release(o)
		}
		var p *page // nil: there is none that can ask
		defer func() {
			if p != nil {
				p.close()
			}
		}()
		for _, q := range questions {
			a := none("the browser does not answer: %v", err)
			if err == nil {
				a, p = askNext(ctx, o, p, q)
			}
			if !yield(judge(q, a)) {
				return
			}
		}
	}
}

// askNext asks a question in the page, or in a new one. It returns the page that can ask the next.
func askNext(ctx context.Context, o *cdpproxy.Observer, p *page, q site.Question) (reply, *page) {
	ctx, cancel := capture.Patience(ctx, questionTimeout)
	defer cancel()
	if p == nil {
		opened, err := openPage(ctx, o)
		if err != nil {
			return none("no page could be opened: %v", err), nil
		}
		p = &opened
	}
	a := get(ctx, *p, q.Ask, http.StatusOK, maxAnswer)
	if a.problem != "" || a.challenged {
		p.close()
		p = nil
	}
	return a, p
}

// end closes the browser in order. Its cookies replace the kept ones only if it had all of
// them, and those that last are kept no longer once it has written them.
func (c *Checker) end(b *browser.Browser, r Request, lent bool) error {
	if b == nil {
		return nil
	}
	var jar *sessionfile.Jar
	if lent && r.KeepCookies {
		jar = &c.o.Jar
	}
	var preserve func() error
	if c.preserve != nil {
		preserve = func() error {
			return c.preserve(r.Profile, "session check", "it does not close when it is asked to", b)
		}
	}
	inOrder := func(method chrome.CloseMethod) error { return EndedInOrder(c.o.Root, r.Profile, method) }
	judge := inOrder
	if !lent { // no site was asked, so that none has replaced the login
		judge = nil
	}
	method, err := slots.CloseUnused(b, r.Lock, c.o.Root, jar, preserve, judge, r.Log)
	if method == "" {
		return errors.Join(err, errors.New("the browser of the session check did not end"))
	}
	if err == nil && !lent {
		err = inOrder(method)
	}
	return err
}

// EndedInOrder returns nil if the browser of a check, which has ended by the method, ended in order, and a
// *profiledir.NotStoredError otherwise: sites may have replaced the login, and Chrome may have written nothing
// of that for half a minute. The method is empty if nobody knows it.
func EndedInOrder(root *profiledir.Root, profile string, method chrome.CloseMethod) error {
	in, err := root.Inspect(profile)
	why := ""
	switch {
	case err != nil:
		return err
	case method.Killed():
		why = "the browser of a session check had to be ended by " + string(method)
	case in.ClosedCleanly.Answer != profiledir.Yes:
		why = "the browser of a session check did not end in order: " + in.ClosedCleanly.How
	default:
		return nil
	}
	return &profiledir.NotStoredError{Profile: profile, Why: why}
}

// openProxy opens the way to the profile's proxy: never to another one, and never around it.
func (c *Checker) openProxy(r Request) (server string, relay *proxies.Relay, err error) {
	if r.ProxyID == "" || c.o.Proxies == nil {
		was, err := slots.LastProxy(r.Path)
		if err == nil && was != "" {
			err = fmt.Errorf("the profile was opened through %s, which the record or the configuration does not have", was)
		}
		if err == nil && !r.ReadOnly {
			err = c.pastHostProxy()
		}
		return "", nil, err
	}
	p := c.o.Proxies.Find(r.ProxyID)
	if p == nil {
		return "", nil, fmt.Errorf("the configuration has no proxy %s", r.ProxyID)
	}
	return slots.Through(p, r.Path, r.Log)
}

// pastHostProxy returns an error if the host has a proxy of its own. The sessions of a profile without proxy go out
// through it, and a check would show the site the same account at another address.
func (c *Checker) pastHostProxy() error {
	variable, err := c.o.Driver.HostProxy()
	if err == nil && variable != "" {
		err = fmt.Errorf("the profile has none, and its sessions go out through that of %s in the sidecar's environment, which a check cannot use: name that proxy in the file of --proxies, and give the profile its proxy_id; or start the sidecar without %s", variable, variable)
	}
	return err
}
