package api

import "leasehold/checkpoint/site"

// Site is what is known of a site.
type Site struct {
	site.File
	// Revision rises with each change. It is zero for a file of --sites-dir that the store does not
	// have yet.
	Revision uint64 `json:"revision"`
}

// SiteSummary is what a list shows of a site.
type SiteSummary struct {
	Name     string   `json:"name"`
	Origins  []string `json:"origins"`
	Requests int      `json:"requests"`
	Revision uint64   `json:"revision"`
}

// SitePut is the whole file that is to be known of a site. Who said each line, and when, is noted by
// the launcher.
type SitePut struct {
	site.File
	// Revision is the one that was seen: a file that somebody has changed since is not replaced;
	// zero: there was none. Without it, whatever is there is replaced.
	Revision *uint64 `json:"revision,omitempty"`
}

// SiteTeaching says what requests of one shape do, in the file about their site.
type SiteTeaching struct {
	// Shape is a whole shape as an inspection shows it: UnsafeRequest.Shape.
	Shape string `json:"shape"`
	// Is is read, write, or empty, which takes back what was said of this shape.
	Is string `json:"is"`
	// Incident is the evidence because of which it is said; for people.
	Incident string `json:"incident,omitempty"`
}

// SiteDelete removes a file.
type SiteDelete struct {
	// Revision is the one that was seen, as in SitePut.
	Revision *uint64
}

// SiteRemoved is what was removed.
type SiteRemoved struct {
	Name string `json:"name"`
}

// SiteTry is a file about a site that is tried on a profile: nothing of it is kept.
type SiteTry struct {
	site.File
	// ProfileID is a profile that nobody uses, whose account the site knows.
	ProfileID string `json:"profile_id"`
}

// SiteTried is what a site answered to the questions of a file.
type SiteTried struct {
	Name      string          `json:"name"`
	ProfileID string          `json:"profile_id"`
	Questions []QuestionTried `json:"questions"`
	// Sent is what the try's pages wanted to send beside the questions; none of it was sent, if it
	// does more than read.
	Sent []string `json:"sent,omitempty"`
}

// QuestionTried is what a site answered to one question, which was asked twice.
type QuestionTried struct {
	// Name is that of the probe, or identity.
	Name string `json:"name"`
	// URL is what was asked for, without what may be secret.
	URL string `json:"url"`
	// State is told, not_shown (what somebody gets who is signed out), or unknown.
	State string `json:"state"`
	// Picked is what was picked out of the answer, shortened, without what looks like a secret.
	Picked string `json:"picked,omitempty"`
	// How is how the site answered.
	How string `json:"how"`
	// Problems are why the question is not fit to be asked; none: it is.
	Problems []string `json:"problems,omitempty"`
}
