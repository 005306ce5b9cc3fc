package checkpoint

// CookieChange is the part of an entry of KindCookie: what became of a cookie that may carry
// the account's identity, or what was asked about the account's cookies. Nothing in it tells
// the name or the value of a cookie.
type CookieChange struct {
	What CookieEvent `json:"what"`
	By   CookieActor `json:"by,omitempty"`
	// Cookie is the same for one cookie in one journal, and for no other.
	Cookie string `json:"cookie,omitempty"`
	// Domain is the cookie's, as Chrome names it: with a dot in front for one that is sent
	// to subdomains, too.
	Domain string `json:"domain,omitempty"`
	// Status is that of the answer which did it; zero for what no answer did.
	Status int `json:"status,omitempty"`
	// Typed says that this was the answer to an unsafe request that came after the worker
	// had entered text into the page.
	Typed bool `json:"typed,omitempty"`
	// Subject says whether the value before and the value after name the same account, for
	// values that say for whom they are (the claims iss and sub of a JSON web token).
	Subject CookieSubject `json:"subject,omitempty"`
	// Same says of a cookie that was set again that it has the value that it had before.
	Same bool `json:"same,omitempty"`
	// Kept says of a cookie that expired that another one, which may carry the identity as
	// well, is still there at its site.
	Kept bool `json:"kept,omitempty"`
}

// CookieEvent is what happened.
type CookieEvent string

// What can happen to a cookie, and what can be asked about all of them.
const (
	CookieDropped  CookieEvent = "dropped"   // it is not there any more
	CookieReplaced CookieEvent = "replaced"  // it has another value
	CookieSetAgain CookieEvent = "set_again" // it was dropped, and is there again
	// CookiesRead says that all cookies were compared with what was known of them, and
	// CookiesUnread that they could not be.
	CookiesRead   CookieEvent = "read"
	CookiesUnread CookieEvent = "unread"
	// CookiesGiven says that the worker asked for cookies of the account, and
	// CookiesWritten that it wrote or removed some, by the CDP method Entry.Method.
	CookiesGiven   CookieEvent = "given"
	CookiesWritten CookieEvent = "written"
)

// CookieActor is who changed a cookie.
type CookieActor string

// Who can change a cookie. Nobody tells of a change by script: it is what is left for a
// cookie that scripts may write.
const (
	BySite    CookieActor = "site"   // an answer of the site
	ByScript  CookieActor = "script" // a page's script
	ByWorker  CookieActor = "worker" // a CDP command
	ByExpiry  CookieActor = "expiry" // its time was over
	ByUnknown CookieActor = "unknown"
)

// CookieSubject tells whether two values are of one account.
type CookieSubject string

// SubjectSame and SubjectOther are for values that both say for whom they are; others leave
// it open.
const (
	SubjectSame  CookieSubject = "same"
	SubjectOther CookieSubject = "other"
)
