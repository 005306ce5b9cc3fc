// Package acts knows what clients did in a browser by the commands that they sent: when they acted on
// a page, and typed into it, which page they brought to the front, which one they keep offline, how
// they used the account's cookies, and what stays set until the browser ends. It does not know what
// any of that means for an account.
package acts

import (
	"sync"
	"sync/atomic"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/boottime"
)

// Effect judges a client's command by its method and its parameters, which are JSON or empty.
// acts says that the command can make the page do something, rather than only load it or look
// at it. types says that it enters text into the page.
//
// It is called on the data path, with every command on its way to the browser, for several
// connections at once. It must not block, and must not keep the slices.
type Effect func(method, params []byte) (acts, types bool)

// Attached returns the target that a client's CDP session is attached to, and its browser context.
// Both are empty for any other session. It must not keep the slice.
type Attached func(session []byte) (target, context string)

// Command is a command on its way to the browser.
type Command struct {
	Session, Method, Params []byte
	// Listed is the method in the table; nil for a command of the launcher's own, which is sent on
	// behalf of a lease.
	Listed *methods.Method
}

// Acts is what clients did in one browser. In a zero one nobody did anything. Its methods are safe for
// concurrent use, but for Follow.
type Acts struct {
	effect   Effect
	attached Attached
	cookies  func(CookieCommand)

	last    atomic.Int64 // see Last; written with mu held
	lasting atomic.Pointer[methods.Method]

	mu        sync.Mutex
	typed     map[string]boottime.Instant // by target
	acted     map[string]boottime.Instant // by target
	activated map[string]boottime.Instant // by target
	offline   map[string]bool             // by CDP session
	reported  map[string]boottime.Instant // when the last use of cookies was reported, by method
	made      map[string]bool             // browser contexts that clients made, whose cookies are not the account's
}

// Follow comes before the first command. cookies is told of those that concern cookies, on the data
// path: it must not block.
func (a *Acts) Follow(effect Effect, attached Attached, cookies func(CookieCommand)) {
	a.effect, a.attached, a.cookies = effect, attached, cookies
}

// Sent notes a command. Connections may report out of order: the latest time is kept. A command
// that does nothing of what is noted takes no lock, and is not kept.
func (a *Acts) Sent(at boottime.Instant, c Command) {
	if c.Listed != nil && c.Listed.Effect == methods.Stays {
		a.lasting.CompareAndSwap(nil, c.Listed)
	}
	a.noteActivation(at, c)
	a.noteConditions(c)
	a.noteCookies(at, c)
	acts, types := a.effect(c.Method, c.Params)
	if !acts {
		return
	}
	target, _ := a.attached(c.Session)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last.Store(max(a.last.Load(), int64(at)))
	noteTime(&a.acted, target, at)
	if types {
		noteTime(&a.typed, target, at)
	}
}

// maxNoted is how many targets, sessions or contexts are noted in one map. A full map is emptied. The
// next act then counts as done on every target.
const maxNoted = 4096

// noteTime notes when something was done on a target; "" is an unknown one. The caller holds
// the mutex.
func noteTime(times *map[string]boottime.Instant, target string, at boottime.Instant) {
	if *times == nil || len(*times) >= maxNoted {
		full := *times != nil
		*times = map[string]boottime.Instant{}
		if full {
			target = ""
		}
	}
	(*times)[target] = max((*times)[target], at)
}

// Forget makes Typed and ActedOn forget everything, and with them the contexts that clients made. It
// is called when the pages that clients had are gone.
func (a *Acts) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.typed, a.acted, a.reported, a.made = nil, nil, nil, nil
}

// Last returns when a client last sent a command that acts (see Effect) on any page.
// Zero is never.
func (a *Acts) Last() boottime.Instant { return boottime.Instant(a.last.Load()) }

// Typed returns when a client last entered text into the page with that target id, or
// into an unknown one. Zero is never.
func (a *Acts) Typed(target string) boottime.Instant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.typed[target], a.typed[""])
}

// On returns when a client last sent a command that acts (see Effect) on the target
// with that id, or on an unknown one. Zero is never.
func (a *Acts) On(target string) boottime.Instant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.acted[target], a.acted[""])
}

// Lasting is the first method that a client has used by which the browser is no longer as it was
// started, whatever is closed in it; empty if none was.
func (a *Acts) Lasting() string {
	if method := a.lasting.Load(); method != nil {
		return method.Name
	}
	return ""
}
