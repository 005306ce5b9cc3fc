package api

import (
	"fmt"
	"time"

	"leasehold/checkpoint/site"
)

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

// SiteShape is a shape of requests of which nothing was known when they were sent, and what was counted
// of it in sessions that ended in order.
type SiteShape struct {
	Shape    string `json:"shape"`
	Sessions uint64 `json:"sessions"`
	// Accounts is of how many profiles these sessions were; ten stands for ten or more.
	Accounts int `json:"accounts"`
	// Unchanged and Changed are the sessions at whose ends the site's probes all showed what they had
	// shown before, or one of them did not.
	Unchanged uint64    `json:"unchanged"`
	Changed   uint64    `json:"changed"`
	LastAt    time.Time `json:"last_at"`
	// Is is what the file says of the shape by now; empty: nothing.
	Is     string    `json:"is,omitempty"`
	SaidBy string    `json:"said_by,omitempty"`
	SaidAt time.Time `json:"said_at,omitzero"`
	// Proposed is what the file could say, if a person agrees: read, or nothing.
	Proposed string `json:"proposed,omitempty"`
}

// AlwaysChanged tells whether the account had changed at the end of each session that sent the shape,
// where that is known. This speaks against calling it a read; no count speaks for it.
func (s SiteShape) AlwaysChanged() bool { return s.Changed > 0 && s.Unchanged == 0 }

// Tell says in words what was counted; empty: nothing was.
func (s SiteShape) Tell() string {
	if s.Sessions == 0 {
		return ""
	}
	several := func(n uint64, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	accounts := several(uint64(s.Accounts), "account")
	if s.Accounts >= site.MaxAccounts {
		accounts = fmt.Sprintf("%d or more accounts", site.MaxAccounts)
	}
	text := fmt.Sprintf("in %s of %s, ", several(s.Sessions, "orderly session"), accounts)
	switch {
	case s.AlwaysChanged():
		return text + fmt.Sprintf("the account changed whenever a probe could tell: in %d", s.Changed)
	case s.Changed+s.Unchanged == 0:
		return text + "in none could a probe tell whether the account changed"
	case s.Changed == 0:
		return text + fmt.Sprintf("the account unchanged in %d", s.Unchanged)
	}
	return text + fmt.Sprintf("the account unchanged in %d, changed in %d", s.Unchanged, s.Changed)
}

// SiteAnswer is what a site said about an account last, while nobody used it.
type SiteAnswer struct {
	Question  string // its id, see site.Question
	ProfileID string
	Text      string // as a person may see it; not of an identity
	At        time.Time
	Moved     bool // the answer was once seen to change
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

// SiteReplay is a file about a site, with which the last incidents are decided again: nothing of it is kept.
type SiteReplay struct {
	site.File
}

// SiteReplayed are the last incidents of a site at a launcher, the newest first.
type SiteReplayed struct {
	Name      string             `json:"name"`
	Incidents []IncidentReplayed `json:"incidents"`
}

// IncidentReplayed is an incident as it was decided, and as it would be decided with a file.
type IncidentReplayed struct {
	EvidenceID string    `json:"evidence_id"`
	ProfileID  string    `json:"profile_id"`
	At         time.Time `json:"at"`
	// Decided is the decision that was made: release, resume, retry or manual_review.
	Decided string `json:"decided"`
	// Would is the decision that the table would make; empty: it cannot be told again, and Doubt says why.
	Would string `json:"would,omitempty"`
	Doubt string `json:"doubt,omitempty"`
	// Reasons are those of Would.
	Reasons []string `json:"reasons,omitempty"`
}

// LetGo tells whether the profile would be let go without a person.
func (i IncidentReplayed) LetGo() bool { return i.Would != "" && i.Would != decidedByPerson }

// Otherwise tells whether it would be decided otherwise than it was.
func (i IncidentReplayed) Otherwise() bool { return i.Would != "" && i.Would != i.Decided }

// Tell says in words what would be decided.
func (i IncidentReplayed) Tell() string {
	switch {
	case i.Would == "":
		return "cannot be told again: " + i.Doubt
	case i.LetGo():
		return "would be let go: " + i.Would
	}
	return "a person would decide"
}

// decidedByPerson is the outcome after which a person decides.
const decidedByPerson = "manual_review"

// Tell sums up what would be decided.
func (r SiteReplayed) Tell() string {
	if len(r.Incidents) == 0 {
		return "no incident of this site is kept here"
	}
	waited, free, let, back, unknown := 0, 0, 0, 0, 0
	for _, i := range r.Incidents {
		person := i.Decided == decidedByPerson
		if person {
			waited++
		} else {
			let++
		}
		switch {
		case i.Would == "":
			unknown++
		case person && i.LetGo():
			free++
		case !person && !i.LetGo():
			back++
		}
	}
	return fmt.Sprintf("of %d incidents that went to a person, %d would be let go; of %d that were let go, %d would go to a person; %d cannot be told again", waited, free, let, back, unknown)
}
