package checkpoint

// CookieChange is the part of an entry of KindCookie: what became of a cookie that may carry
// the account's identity, or what a worker did with the account's cookies. It reveals neither
// the name nor the value of a cookie.
type CookieChange struct {
	What CookieEvent `json:"what"`
	By   CookieActor `json:"by,omitempty"`
	// Cookie is the same for all changes of one cookie in one journal, and different for other
	// cookies.
	Cookie string `json:"cookie,omitempty"`
	// Domain is the cookie's domain as Chrome writes it: with a leading dot if the cookie is
	// also sent to subdomains.
	Domain string `json:"domain,omitempty"`
	// Status is the status of the answer that did it; zero if no answer did it.
	Status int `json:"status,omitempty"`
	// Typed says that this was the answer to an unsafe request that came after the worker
	// had entered text into the page.
	Typed bool `json:"typed,omitempty"`
	// Subject says whether the values before and after name the same account, if they name one
	// (by the claims iss and sub of a JSON web token).
	Subject CookieSubject `json:"subject,omitempty"`
	// Same says of a cookie that was set again that it has its former value.
	Same bool `json:"same,omitempty"`
	// Kept says of a cookie that expired that its site still has another cookie which may carry
	// the identity as well.
	Kept bool `json:"kept,omitempty"`
}

// CookieEvent is what happened.
type CookieEvent string

// What can happen to a cookie, and what a worker can do with all of them.
const (
	CookieDropped  CookieEvent = "dropped"   // it is not there any more
	CookieReplaced CookieEvent = "replaced"  // it has another value
	CookieSetAgain CookieEvent = "set_again" // it was dropped, and now exists again
	// CookiesRead says that all cookies were compared with what was known of them;
	// CookiesUnread, that they could not be.
	CookiesRead   CookieEvent = "read"
	CookiesUnread CookieEvent = "unread"
	// CookiesGiven says that the worker read cookies of the account; CookiesWritten, that it
	// wrote or removed some, by the CDP method Entry.Method.
	CookiesGiven   CookieEvent = "given"
	CookiesWritten CookieEvent = "written"
)

// CookieActor is who changed a cookie.
type CookieActor string

// Who can change a cookie. No event reports a change by a script: it is assumed for a cookie
// that scripts may write, if nobody else made the change.
const (
	BySite    CookieActor = "site"   // an answer of the site
	ByScript  CookieActor = "script" // a page's script
	ByWorker  CookieActor = "worker" // a CDP command
	ByExpiry  CookieActor = "expiry" // it expired
	ByUnknown CookieActor = "unknown"
)

// CookieSubject tells whether two values belong to one account.
type CookieSubject string

// SubjectSame and SubjectOther are for two values that both name their account; otherwise it is
// not known.
const (
	SubjectSame  CookieSubject = "same"
	SubjectOther CookieSubject = "other"
)
