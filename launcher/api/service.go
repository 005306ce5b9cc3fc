package api

import (
	"bufio"
	"context"
	"encoding/json"
	"net"

	"leasehold/lease"
)

// Service is the launcher as the HTTP interface and the console see it. The caller has checked
// that the principal of ctx (principal.Of) may do what is asked for. An error is a *Problem if
// the client has to know more than that the call failed.
//
// It has 60 methods because it is the whole public interface; whoever needs a part of it asks for that.
type Service interface {
	SessionService
	PersonService
	TabService
	ProfileService
	TravelService
	EvidenceService
	SiteService

	// Events follows the events of all profiles for the principal of ctx, beginning after a
	// place, or now if that is lease.PlaceNow. The follower has to be closed.
	Events(ctx context.Context, after lease.Place) (EventFollower, error)
	// Ready returns nil if a lease could be granted now, or else the reason.
	Ready(ctx context.Context) error
}

// SessionService begins sessions, and takes in what their workers report. It has 11 methods because
// each is one request of the public interface.
type SessionService interface {
	// Acquire grants the manifest's profile to the principal of ctx and starts its
	// browser. With OneShot it joins a living session of the same worker and task that
	// this principal opened. It waits as long as the manifest says.
	Acquire(ctx context.Context, m Manifest) (Session, error)
	// Connect opens a connection to one target of a session, or to its browser if targetID is
	// "". closeFrames says that the client understands websocket close frames; for one that
	// does not, the connection simply ends.
	Connect(ctx context.Context, sessionID, targetID string, closeFrames bool) (Connection, error)
	// Sessions returns the living sessions, oldest first.
	Sessions() []Session
	// Session returns a session, living or over.
	Session(sessionID string) (Session, error)
	// SessionByCapability returns the session that is opened by the secret in a path. If that
	// session is over, but still known, it returns session_ended.
	SessionByCapability(capability string) (Session, error)
	// SessionOf returns the living session of a profile, worker and task that the
	// principal of ctx opened; an empty profile stands for any.
	SessionOf(ctx context.Context, profileID, workerID, taskID string, ephemeral bool) (Session, bool)
	// Heartbeat, Step, Checkpoint and Event are writes under the session's lease token.
	Heartbeat(ctx context.Context, sessionID string, h Heartbeat) (Session, error)
	Step(ctx context.Context, sessionID string, s Step) error
	Checkpoint(ctx context.Context, sessionID string, c Checkpoint) error
	Event(ctx context.Context, sessionID string, e TaskEvent) error
	// Release ends the session. It returns when the profile is free, or when it is decided
	// about.
	Release(ctx context.Context, sessionID string, r Release) (Session, error)
}

// PersonService lets a person watch a session, answer its worker, and take it over. It has 9 methods
// because each is one request of the public interface.
type PersonService interface {
	// View opens a connection on which the principal of ctx watches a session: pictures, tabs,
	// and what its worker does. It refuses a viewer if there are too many already.
	View(ctx context.Context, sessionID string) (Connection, error)
	// Ask waits until a person hands the session back, or for as long as the request says.
	// The worker keeps its lease and counts as alive meanwhile.
	Ask(ctx context.Context, sessionID string, a AskPerson) (Answer, error)
	// TakeOver gives a session to the principal of ctx, as a person. Its worker keeps the
	// lease, and may only read until HandBack.
	TakeOver(ctx context.Context, sessionID string, t TakeOver) (Session, error)
	// HandBack lets the worker of a session that the principal of ctx took over go on.
	HandBack(ctx context.Context, sessionID string, h HandBack) (Session, error)
	// Hold gives the profile to a person and starts its browser, even if the profile is in
	// review. It ends with Release, or when the person closes the browser.
	Hold(ctx context.Context, profileID string, h HoldRequest) (Session, error)
	// PlanSignIn returns the page with which a person would begin who signs the profile's account
	// in here: the given one, if any. It is refused if nobody can by a link.
	PlanSignIn(ctx context.Context, profileID, url string) (string, error)
	// BeginSignIn gives the principal of ctx, who has a sign-in link, a session of the profile: the
	// one whose worker waits for a person, or else a new one.
	BeginSignIn(ctx context.Context, profileID string, s SignInStart) (Session, error)
	// CheckSignIn asks sites, in the browser of the session that the principal of ctx has by such a
	// link, whether the account is signed in. If it is, or if no site can be asked, it ends what
	// BeginSignIn began.
	CheckSignIn(ctx context.Context, sessionID string) (SignInChecked, error)
	// EndSignIn ends what BeginSignIn began for the principal of ctx. The account counts as not
	// signed in by them.
	EndSignIn(ctx context.Context, sessionID, why string) error
}

// TabService does what Chrome's own HTTP endpoints do. It has 6 methods because there are as many of
// them.
type TabService interface {
	// Targets lists what Chrome's own /json/list would.
	Targets(ctx context.Context, sessionID string) ([]Target, error)
	// NewTarget opens a tab with the URL.
	NewTarget(ctx context.Context, sessionID, url string) (Target, error)
	// ActivateTarget brings a tab to the front.
	ActivateTarget(ctx context.Context, sessionID, targetID string) error
	// CloseTarget closes a tab.
	CloseTarget(ctx context.Context, sessionID, targetID string) error
	// Version describes the browser binary. It starts no browser.
	Version(ctx context.Context) (BrowserVersion, error)
	// Protocol returns Chrome's protocol description, with the Lease domain added.
	Protocol(ctx context.Context, sessionID string) (json.RawMessage, error)
}

// ProfileService lists, makes and changes profiles. It has 11 methods because each is one request of
// the public interface.
type ProfileService interface {
	// ListProfiles lists the profiles that have a record or a directory here, as this launcher
	// has seen them. So it works even while the lease store cannot be reached.
	ListProfiles(ctx context.Context, q ProfileQuery) (ProfilePage, error)
	// Changes tells when such lists may have changed.
	Changes() Changes
	// Hosts lists the launchers on the lease store, as far as this launcher has seen them.
	Hosts(ctx context.Context) (Hosts, error)
	// Queue lists the requests that wait for a lease, at this launcher and at the other living
	// ones, in the order in which they began to wait.
	Queue(ctx context.Context) ([]Waiting, error)
	// Profile returns the record of a profile.
	Profile(ctx context.Context, profileID string) (Profile, error)
	// PutProfile creates the profile (directory and record) or changes its settings.
	PutProfile(ctx context.Context, profileID string, s ProfileSettings) (Profile, error)
	// ImportProfile makes a profile from a copy of a user-data-dir on this host.
	ImportProfile(ctx context.Context, profileID string, i ProfileImport) (Profile, error)
	// CloneProfile makes a new profile from a copy of one that nobody uses, or from a
	// snapshot of one, and returns the record of the new one.
	CloneProfile(ctx context.Context, profileID string, c ProfileClone) (Profile, error)
	// ArchiveProfile archives a profile that nobody uses. It deletes nothing.
	ArchiveProfile(ctx context.Context, profileID string, a ProfileArchive) (Archived, error)
	// RemoveClone deletes a profile that CloneProfile made and that nobody uses. It deletes no
	// other profile.
	RemoveClone(ctx context.Context, profileID string, r ProfileRemove) (Removed, error)
	// CheckProfile makes the session check of a profile that nobody uses.
	CheckProfile(ctx context.Context, profileID string) (SessionChecked, error)
}

// TravelService handles snapshots, and the home of a profile.
type TravelService interface {
	// MoveProfile makes this launcher the home of a profile, by way of its snapshot.
	MoveProfile(ctx context.Context, profileID string, m ProfileMove) (Profile, error)
	// RehomeProfile makes this launcher the home of a profile.
	RehomeProfile(ctx context.Context, profileID string, r ProfileRehome) (Profile, error)
	// Snapshots lists a profile's snapshots, newest first.
	Snapshots(ctx context.Context, profileID string) ([]Snapshot, error)
	// RestoreProfile puts back a snapshot of a profile that nobody uses, under a higher token.
	// The present state is kept.
	RestoreProfile(ctx context.Context, profileID string, r ProfileRestore) (Restored, error)
	// VerifySnapshots reads every byte of a profile's snapshots.
	VerifySnapshots(ctx context.Context, profileID string, v ProfileVerify) (SnapshotsChecked, error)
}

// EvidenceService shows what happened to a profile, and takes a person's decision. It has 7 methods
// because each is one request of the public interface.
type EvidenceService interface {
	// History returns the profile's events, oldest first.
	History(ctx context.Context, profileID string) ([]lease.Event, error)
	// Evidence lists the profile's bundles, newest first.
	Evidence(ctx context.Context, profileID string) ([]Bundle, error)
	// EvidenceManifest returns a bundle's manifest, byte for byte as it was sealed.
	EvidenceManifest(ctx context.Context, evidenceID string) (json.RawMessage, error)
	// EvidencePart returns the bytes of a part and its media type: decrypted or, with stored,
	// as the store has it. The two differ only for encrypted evidence. If the launcher cannot
	// decrypt it, the first form is refused with evidence_encrypted.
	EvidencePart(ctx context.Context, evidenceID, part string, stored bool) ([]byte, string, error)
	// ExportEvidence reads and checks a bundle, and returns it as a file that can be written. A
	// bundle that is not as it was sealed is refused with evidence_damaged, unless the request
	// accepts that; one that the launcher cannot decrypt is refused with evidence_encrypted.
	ExportEvidence(ctx context.Context, evidenceID string, e EvidenceExport) (ExportedEvidence, error)
	// Inspection returns what the profile's last recovery found here; nothing if its record is about
	// another recovery.
	Inspection(ctx context.Context, profileID string) (Inspection, error)
	// Review applies a person's decision to a profile in manual review.
	Review(ctx context.Context, profileID string, r ReviewRequest) (Profile, error)
}

// SiteService shows and changes what is known of sites, which counts for all profiles of all
// launchers. It has 9 methods because each is one request of the public interface.
type SiteService interface {
	// Sites lists the sites by name.
	Sites(ctx context.Context) ([]SiteSummary, error)
	// Site returns the file about one site, or not_found.
	Site(ctx context.Context, name string) (Site, error)
	// PutSite replaces the file about a site, or makes it. The problem is site_changed if somebody
	// else has changed it since the given revision.
	PutSite(ctx context.Context, name string, p SitePut) (Site, error)
	// TeachSite says what requests of one shape do, in the file about their site, which is made if
	// there is none. It returns that file.
	TeachSite(ctx context.Context, t SiteTeaching) (Site, error)
	// SiteShapes are the shapes that were counted for a site, by their texts. A site
	// without a file has the name that its file would get. The problem is not_found if there is
	// neither.
	SiteShapes(ctx context.Context, name string) ([]SiteShape, error)
	// SiteAnswers are the last answers to the questions of a site's file that this host keeps, of all its
	// profiles; for the console, which shows those of the profiles that its user may see.
	SiteAnswers(ctx context.Context, name string) ([]SiteAnswer, error)
	// DeleteSite removes the file about a site.
	DeleteSite(ctx context.Context, name string, d SiteDelete) error
	// TrySite asks the questions of a file on a profile that nobody uses, twice, and keeps nothing.
	TrySite(ctx context.Context, name string, t SiteTry) (SiteTried, error)
	// ReplaySite decides the last incidents of a site at this launcher again, those of profiles that the
	// principal may read, as if the file had been known all the time. Nothing is kept.
	ReplaySite(ctx context.Context, name string, r SiteReplay) (SiteReplayed, error)
}

// Connection is an accepted websocket of a session whose upgrade is not answered yet. Either
// Serve or Cancel has to be called, once.
type Connection interface {
	// Session is the session that the headers of the 101 describe.
	Session() Session
	// Serve speaks the websocket protocol on conn until either side ends it, and closes conn.
	// The upgrade has been answered before. What the client has sent since then is read from
	// buffered first.
	Serve(conn net.Conn, buffered *bufio.Reader)
	// Cancel gives up the connection without serving it.
	Cancel()
}
