// Package signin signs an account in, in a page of the launcher's own: it fills the fields that a site's
// file names with a secret that is for the site's origin. What is seen of the page, and what is typed,
// goes through a world of its own in the page's document, which the page's scripts cannot reach; each
// time the origin, the frame and the field are checked in the very step that types.
package signin

import (
	"fmt"
	"time"
)

// field is a field of a sign-in.
type field string

// The fields, in the order in which they are filled.
const (
	username field = "username"
	password field = "password"
	code     field = "code"
)

var fields = []field{username, password, code}

// seen is what is seen of the page at one time.
type seen struct {
	at       time.Time
	document string // differs from one document to the next
	origin   string // of the document; of an empty page it is "null"
	loading  bool
	shown    map[field]bool // the fields that are there, and can be seen
}

// progress is how far a sign-in has come.
type progress struct {
	origin  string           // of the secret
	has     map[field]bool   // what the secret has
	given   map[field]string // in which document a field was filled
	changed time.Time        // when the page last was another one, or something was typed
	last    seen
}

// step is what is to be done next. Exactly one of its members is set, or none: it is waited.
type step struct {
	fill []field // these fields, and then what sends them
	done string  // nothing more: why
	stop error   // nothing more, and no answer of the site is worth asking for
}

const (
	// quiet is how long a page that has no field to fill is looked at after the password was given.
	// unanswered is the same for the document in which it was.
	quiet, unanswered = 1500 * time.Millisecond, 10 * time.Second
)

// next says what is to be done, by what is seen now.
func (p *progress) next(now seen) step {
	if now.document != p.last.document || now.origin != p.last.origin {
		p.changed = now.at
	}
	p.last = now
	in, given := p.given[password]
	switch {
	case now.origin == "null" || now.loading:
		return step{}
	case now.origin != p.origin && given:
		return step{done: "the site went on to " + now.origin}
	case now.origin != p.origin:
		return step{stop: fmt.Errorf("the page is on %s, and the secret is for %s: nothing was typed there", now.origin, p.origin)}
	}
	var fill []field
	for _, f := range fields {
		at, done := p.given[f]
		switch {
		case !now.shown[f]:
		case done && at != now.document:
			return step{done: "the site asks for the " + string(f) + " again"}
		case done:
		case !p.has[f]:
			return step{done: "the site asks for the " + string(f) + ", which the secret does not have"}
		default:
			fill = append(fill, f)
		}
	}
	wait := quiet
	if in == now.document && now.shown[password] {
		wait = unanswered
	}
	switch {
	case len(fill) > 0:
		return step{fill: fill}
	case given && now.at.Sub(p.changed) >= wait:
		return step{done: "the fields were filled"}
	}
	return step{}
}

// filled takes in that a field was filled in the document that was seen last.
func (p *progress) filled(f field, at time.Time) { p.given[f], p.changed = p.last.document, at }
