package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/capture"
	"leasehold/evidence/recorder"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/look"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// Bounds of a capture.
const (
	captureTimeout = 15 * time.Second // but for the cookies
	cookiesTimeout = 10 * time.Second
)

// maxOutput is how many bytes of what Chrome printed go into a bundle.
const maxOutput = 64 << 10

// digestsBefore is the part with the account's state at the grant; evidence.DigestsPart has the
// state at the capture.
const digestsBefore = "digests_before.json"

// JournalPart is the part of a bundle with the session's journal.
const JournalPart = "journal.jsonl"

// Capture is everything that a bundle is made from.
type Capture struct {
	// Record is the lease as it was granted, or as it is now: it names the bundle before this
	// one.
	Record  lease.Record
	Path    string      // of the profile's directory
	Token   lease.Token // the worker's
	Reason  string
	Outcome string    // what the worker said about its task, if anything
	SeenAt  time.Time // the worker's last sign of life
	Journal []checkpoint.Entry
	// Commands is the part with the last CDP commands; nil: they are not known.
	Commands []byte
	Browser  *browser.Browser // nil: there is none to ask
	Shared   bool             // other runs are using the browser
}

// Capture fills a bundle with the present state of everything, before anything is changed. What
// could not be captured is named in the bundle. If no bundle can be written at all, it is
// logged, and the result is nil.
func (r *Recoverer) Capture(c Capture, log zerolog.Logger) *evidence.Bundle {
	now := time.Now().UTC()
	sum := checkpoint.Summarize(c.Journal)
	m := r.Manifest(c.Record, now)
	m.LeaseToken, m.LastHeartbeatAt, m.DetectedStaleAt = uint64(c.Token), c.SeenAt.UTC(), now
	m.LastKnownStep, m.LastKnownURL = sum.LastStep, sum.LastURL
	m.ProfileDir, m.RecoveryReason, m.Outcome = c.Path, c.Reason, c.Outcome
	ctx, cancel := context.WithTimeout(context.Background(), captureTimeout)
	defer cancel()
	b, err := r.o.Archive.New(m)
	if err != nil {
		log.Error().Err(err).Msg("evidence cannot be written")
		return nil
	}
	p := parts{b, log}
	var dir profiledir.Inspection
	var unseen error
	var beside sync.WaitGroup // on a host with many processes it takes as long as a picture
	beside.Go(func() { dir, unseen = r.o.Root.Inspect(c.Record.ProfileID) })
	defer beside.Wait()
	if c.Browser.Driven() {
		r.capturePages(ctx, c, b, log)
	} else {
		b.AddMissing("screenshot-1.jpg", "screenshot", c.noPicture())
	}
	r.addRecorded(c, p)
	p.add(JournalPart, "journal", "application/x-ndjson", checkpoint.Encode(c.Journal), nil)
	beside.Wait()
	users, err := dir.Users()
	p.addJSON("processes.json", "processes", users, errors.Join(unseen, err))
	p.addJSON("lock.json", "lock", dir, unseen)
	if c.Browser != nil {
		p.addJSON("browser.json", evidence.KindBrowser, c.Browser.State(ctx, c.Record.AcquiredAt), nil)
		p.add("chrome-output.txt", "output", "text/plain", []byte(c.Browser.OutputTail(maxOutput)), nil)
	}
	return b
}

// noPicture says why the browser could not be asked what its pages show.
func (c Capture) noPicture() string {
	if c.Browser != nil {
		return "the browser's pipe could not be had, so that nobody could ask it"
	}
	return "there was no browser left to ask"
}

// capturePages adds what the pages show and what they ask for. A browser that hangs is not
// asked anything.
func (r *Recoverer) capturePages(ctx context.Context, c Capture, b *evidence.Bundle, log zerolog.Logger) {
	m := c.Browser.Monitor()
	limits := capture.Limits{LeaveBusy: c.Shared, Still: c.Browser.Still(), Crashed: m.Crashed}
	if c.Reason == api.ReasonBrowserHangs {
		limits.Silent = c.Browser.Failure().Detail
		b.SetFound([]evidence.Found{{Name: table.PagesLookedAt, Answer: string(table.No), How: limits.Silent}})
		capture.Pages(ctx, m.Observer(), m.Pages(), b, limits)
		return
	}
	looker := look.New(m.Observer(), m.ToLookAt())
	limits.Look = looker.Look
	capture.Pages(ctx, m.Observer(), m.Pages(), b, limits)
	if err := looker.AddTo(b); err != nil {
		log.Warn().Err(err).Msg("what the pages ask for is not in the evidence")
	}
}

// parts adds parts to a bundle, or the reasons why they are missing.
type parts struct {
	bundle *evidence.Bundle
	log    zerolog.Logger
}

func (p parts) add(name, kind, mediaType string, content []byte, err error) {
	switch {
	case err != nil:
		p.bundle.AddMissing(name, kind, err.Error())
	case len(content) == 0:
		p.bundle.AddMissing(name, kind, "empty")
	default:
		err = p.bundle.Add(name, kind, mediaType, content)
	}
	if err != nil {
		p.log.Warn().Err(err).Str("part", name).Msg("evidence part missing")
	}
}

const mediaJSON = "application/json"

func (p parts) addJSON(name, kind string, content any, err error) {
	b, marshalErr := json.Marshal(content)
	p.add(name, kind, mediaJSON, b, errors.Join(err, marshalErr))
}

// addRecorded adds what was recorded while the session lived.
func (r *Recoverer) addRecorded(c Capture, p parts) {
	var err error
	if c.Commands == nil {
		err = errors.New("the launcher that carried them is gone")
	}
	p.add(recorder.CommandsPart, evidence.KindCommands, mediaJSON, c.Commands, err)
	before, err := r.o.Files.ReadDigests(c.Record.SessionID)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("none were made at the grant")
	}
	p.add(digestsBefore, evidence.KindDigests, mediaJSON, before, err)
	if !c.Browser.Driven() {
		return
	}
	p.add(recorder.NetworkPart, evidence.KindNetwork, mediaJSON, c.Browser.Monitor().Network(), nil)
	p.add(recorder.ConsolePart, evidence.KindConsole, mediaJSON, c.Browser.Monitor().Console(), nil)
	// What the pages took of the time of the capture does not count.
	asking, cancel := context.WithTimeout(context.Background(), cookiesTimeout)
	cookies, asked := c.Browser.Cookies(asking)
	cancel()
	c.Browser.Monitor().Cookies().Compare(cookies, asked)
	var digest []byte
	if err = asked; err == nil {
		digest, err = evidence.CookieDigest(cookies, r.o.Archive.Salt(c.Record.ProfileID))
	}
	p.add(evidence.CookiesDigestName, evidence.KindCookiesDigest, mediaJSON, digest, err)
	digest, err = r.Digests(c.Record.ProfileID, cookies, asked)
	p.add(evidence.DigestsPart, evidence.KindDigests, mediaJSON, digest, err)
	p.bundle.SetStateChanged(before, digest)
}

// Digests returns digests of the account's state, from the result of Storage.getCookies or the
// reason why there is none. Storage is not read: that takes a page of each origin, and asking a
// page could wake it. The monitor reports who changes storage.
func (r *Recoverer) Digests(profile string, cookies json.RawMessage, problem error) ([]byte, error) {
	d, err := evidence.NewDigests(r.o.Archive.Salt(profile))
	if err != nil {
		return nil, err
	}
	d.SetCookies(cookies, problem)
	return d.Part()
}
