package api

import "time"

// A sign-in link is for a person who is to sign an account in, on a phone for example: whoever has
// it first may use the pages of one session of its profile, and nothing else.

// SignInTime is how long a link that nobody used is valid, and how long its person may go on then.
const SignInTime = 30 * time.Minute

// SignInLinkRequest asks for a sign-in link.
type SignInLinkRequest struct {
	// URL is the page with which the person begins; empty: where the account was found not to be
	// signed in.
	URL string `json:"url,omitempty"`
}

// SignInLink is a new sign-in link. Its secret is in URL, and nowhere else.
type SignInLink struct {
	LinkID    string    `json:"link_id"`
	ProfileID string    `json:"profile_id"`
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// SignInRevoked is what became of the sign-in link of a profile.
type SignInRevoked struct {
	ProfileID string `json:"profile_id"`
	// LinkID is the link that was revoked; empty: there was none.
	LinkID string `json:"link_id,omitempty"`
	// SessionID is the session that its person had, which has ended or was handed back; empty:
	// nobody had used it.
	SessionID string `json:"session_id,omitempty"`
}

// SignInStart is what a sign-in link is used for.
type SignInStart struct {
	LinkID string
	// By is the name of the principal who made the link.
	By string
	// URL is the page with which the person begins.
	URL string
}

// SignInChecked is what a person is told who says that they have signed the account in.
type SignInChecked struct {
	// SignedIn is yes, no or unknown. How tells a person how that was found.
	SignedIn string `json:"signed_in"`
	How      string `json:"how"`
	// Over says that nothing is left to be done: the browser is closed, or the worker goes on.
	Over bool `json:"over"`
}

// SignInSession is the session of a sign-in link, as its person sees it.
type SignInSession struct {
	State string `json:"state"`
	// Ended says how it ended, if it has.
	Ended string `json:"ended,omitempty"`
}
