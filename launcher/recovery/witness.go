package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// A Witness saw something of a session that matters when its worker is lost. Package witness has
// one file for each, and their list; this package knows none of them by name.
type Witness interface {
	// Add adds to a bundle what the witness has to show, before anything is changed. The witnesses
	// of a bundle do so side by side.
	Add(ctx context.Context, c Capture, to Parts)
	// Facts answers the questions of the witness, once the browser is gone. What a person is shown
	// besides the facts it puts into shown.
	Facts(ctx context.Context, c Closed, shown *api.Inspection) []table.Fact
}

// Browser is what the end of a session does with its browser. It has 9 methods because the order of
// these steps is what the package decides, and any of them may be the last that succeeds.
type Browser interface {
	// Driven tells whether the browser can be asked anything. If not, it can only be closed, and let
	// go of.
	Driven() bool
	// StandStill stops everything that the browser would send.
	StandStill(log zerolog.Logger)
	// EndPages ends the pages of a browser that stands still, without letting them send anything.
	EndPages(ctx context.Context, log zerolog.Logger) error
	// AddWithheld adds to a bundle what the pages wanted to send after their worker was lost.
	AddWithheld(to Parts)
	// CompareCookies reports to the journal what became of the account's cookies.
	CompareCookies(ctx context.Context)
	// Close ends the browser. method is how, as the session file has it, and empty if the browser
	// still runs; killed says that it was ended in a way that may have lost data.
	Close(profile string, keep KeepCookies, log zerolog.Logger) (method string, killed bool, err error)
	// CookiesLost is, after the close, why cookies of the account may be lost; empty: they are not.
	CookiesLost() string
	// LimitWrites says that no write waits for a browser that does not read once d has passed.
	LimitWrites(d time.Duration)
	// Detach lets go of the browser as it is.
	Detach() error
}

// KeepCookies saves the session cookies of a profile's browser before it closes.
type KeepCookies = func(ctx context.Context, browser sessionfile.Caller, profile string) error

// Closed is a session whose browser is gone.
type Closed struct {
	Record  lease.Record
	File    sessionfile.File
	Lost    []sessionfile.LostRun // further runs of the profile that were lost
	Profile string
	Path    string // of the profile's directory
	Lock    *profiledir.Lock
	// Problem is why the last browser on the directory was not closed in order, or nil.
	Problem error
	// Journal has the entries of all the runs, in the order of their times.
	Journal []checkpoint.Entry
	// Unseen says that for some time nobody watched the pages.
	Unseen bool
	// Sites is what is known of sites. Unchanged are the questions to them whose answers are what they
	// were before the session, and UnchangedSinceSafe those whose answers are what they were at its last
	// safe checkpoint; none, as long as nobody has asked.
	Sites                         *site.Book
	Unchanged, UnchangedSinceSafe []site.Question
}

// Questions are what the sites of the session are asked about its account.
func (c Closed) Questions() []site.Question {
	did, task := checkpoint.Summarize(c.Journal), c.Task()
	return slices.Concat(findings.Questions(did, task), findings.Rehearsals(did, task))
}

// Parts adds parts to a bundle, or the reasons why they are missing. Its methods may be called
// concurrently.
type Parts struct {
	*evidence.Bundle
	Log zerolog.Logger
}

// MediaJSON is the media type of a part in JSON.
const MediaJSON = "application/json"

// Put adds a part. With an error, or without content, the part is missing.
func (p Parts) Put(name, kind, mediaType string, content []byte, err error) {
	switch {
	case err != nil:
		p.AddMissing(name, kind, err.Error())
	case len(content) == 0:
		p.AddMissing(name, kind, "empty")
	default:
		err = p.Add(name, kind, mediaType, content)
	}
	if err != nil {
		p.Log.Warn().Err(err).Str("part", name).Msg("evidence part missing")
	}
}

// PutJSON adds a part in JSON.
func (p Parts) PutJSON(name, kind string, content any, err error) {
	b, marshalErr := json.Marshal(content)
	p.Put(name, kind, MediaJSON, b, errors.Join(err, marshalErr))
}
