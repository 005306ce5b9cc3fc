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
