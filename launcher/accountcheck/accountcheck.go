// Package accountcheck finds out whether a profile's account is still signed in. It opens a
// browser on the profile, which nobody else may use meanwhile, requests one URL by GET with the
// account's cookies, and judges the answer. No page gets anything of the answer: no script
// runs, no redirect is followed, nothing else is loaded, and nothing is sent that could change
// the account.
package accountcheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/internal/id"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/monitor"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
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
	Files   sessionfile.Dir
	Jar     sessionfile.Jar
	Proxies *proxies.Set // nil: none are configured, and proxy ids are labels
	// Headless says that browsers have no windows, unless a request says otherwise.
	Headless bool
	// Witness stores evidence of a check's browser before it is ended by a signal; nil: none is
	// stored.
	Witness slots.Witness
}

// Checker makes checks. Its methods may be called concurrently, for one profile at a time.
type Checker struct{ o Options }

// New returns a checker.
func New(o Options) *Checker { return &Checker{o} }

// Request says what to check. The caller occupies the profile and has its lock, and no process
// uses its directory.
type Request struct {
	Profile string
	Path    string // of its directory
	Lock    *profiledir.Lock
	Token   lease.Token // of the record
	Check   lease.SessionCheck
	// ProxyID is the proxy id of the record.
	ProxyID string
	// Headless, Args and Memory are those of the profile's tasks, so that the site sees the
	// browser that it knows.
	Headless *bool // nil: the launcher's own
	Args     []string
	Memory   uint64
	// KeepCookies says that the profile's session cookies are kept from one browser to the
	// next.
	KeepCookies bool
	Log         zerolog.Logger
}

// Bounds of a check. The close has its own.
const (
	startTimeout = 20 * time.Second
	// askTimeout bounds how long the site may take to answer.
	askTimeout = 10 * time.Second
)

// idPrefix begins the ids under which the browsers of checks are noted.
const idPrefix = "chk"

// IsCheck tells whether the browser that is noted under this id was a check's. It had no
// worker, and may not have had all cookies of the account.
func IsCheck(sessionID string) bool { return strings.HasPrefix(sessionID, idPrefix+"_") }

// Run makes a check. An error says that the browser did not end in order: the directory may be
// damaged.
func (c *Checker) Run(ctx context.Context, r Request) (_ Result, err error) {
	begun := time.Now()
	server, relay, err := c.openProxy(r)
	if err != nil {
		return unknown("its proxy cannot be used: %v", err), nil
	}
	defer func() { err = errors.Join(err, relay.Close()) }()
	session := id.New(idPrefix)
	headless := c.o.Headless
	if r.Headless != nil {
		headless = *r.Headless
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout+askTimeout)
	defer cancel()
	b, err := c.o.Driver.Start(ctx, browser.Start{
		SessionID: session, Token: r.Token, Lock: r.Lock, Path: r.Path, Headless: headless, Proxy: server, ProxySocket: relay.Reserved(), ReadOnly: true,
		Args: r.Args, Memory: r.Memory, Sink: func(checkpoint.Entry) {}, Log: r.Log,
	})
	result := Result{}
	lent := false
	if err != nil {
		result = unknown("no browser could be started: %v", err)
	} else {
		result, lent = c.ask(ctx, b, r)
	}
	err = c.end(b, r, lent)
	if err == nil {
		err = c.o.Files.Remove(session)
	}
	r.Log.Info().Str("signed_in", string(result.Answer)).Int("status", result.Status).Dur("took", time.Since(begun)).AnErr("problem", err).Msg("session checked")
	return result, err
}

// ask asks the site. lent says that the browser has all cookies of the account.
func (c *Checker) ask(ctx context.Context, b *browser.Browser, r Request) (_ Result, lent bool) {
	if err := b.Monitor().Guard().Enforce(ctx, monitor.Rules{ReadOnly: true}); err != nil {
		return unknown("the browser could not be held to reading: %v", err), false
	}
	if r.KeepCookies {
		if err := c.o.Jar.Lend(ctx, b.Monitor().Observer(), r.Profile); err != nil {
			return unknown("the account's cookies could not be put back: %v", err), false
		}
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return get(asking, b.Mux(), r.Check), true
}

// end closes the browser in order. Its cookies replace the kept ones only if it had all of
// them.
func (c *Checker) end(b *browser.Browser, r Request, lent bool) error {
	if b == nil {
		return nil
	}
	var keep browser.KeepCookies
	if lent && r.KeepCookies {
		keep = c.o.Jar.KeepOfWarm
	}
	var witness func() error
	if c.o.Witness != nil {
		witness = func() error {
			return c.o.Witness(r.Profile, "session check", "it does not close when it is asked to", b)
		}
	}
	method, err := b.CloseWitnessed(r.Profile, keep, witness, r.Log)
	if err == nil && method.Killed() {
		err = fmt.Errorf("the browser of the session check had to be ended by %s", method)
	}
	if method == "" {
		return errors.Join(err, errors.New("the browser of the session check did not end"))
	}
	return errors.Join(err, r.Lock.ClearRunning())
}

// openProxy opens the way to the profile's proxy: never to another one, and never around it.
func (c *Checker) openProxy(r Request) (server string, relay *proxies.Relay, err error) {
	if r.ProxyID == "" || c.o.Proxies == nil {
		was, err := slots.LastProxy(r.Path)
		if err == nil && was != "" {
			err = fmt.Errorf("the profile was opened through %s, which the record or the configuration does not have", was)
		}
		return "", nil, err
	}
	p := c.o.Proxies.Find(r.ProxyID)
	if p == nil {
		return "", nil, fmt.Errorf("the configuration has no proxy %s", r.ProxyID)
	}
	if !p.NeedsRelay() {
		return p.Server(), nil, nil
	}
	if relay, err = proxies.Open(p, r.Path, chrome.UsesProxy, r.Log); err != nil {
		return "", nil, err
	}
	return relay.URL(), relay, nil
}
