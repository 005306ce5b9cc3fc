package witness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/recorder"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
)

// digestsBefore is the part with the account's state at the grant; evidence.DigestsPart has the
// state at the capture.
const digestsBefore = "digests_before.json"

// cookiesTimeout bounds how long a browser may take to show its cookies.
const cookiesTimeout = 10 * time.Second

// recordings is the witness of what was recorded while the session lived: commands, requests,
// console messages, and digests of the account's state at the grant and now.
type recordings struct {
	browser *browser.Browser // nil: there is none
	files   sessionfile.Dir
	archive *evidence.Archive
}

func (r recordings) Add(_ context.Context, c recovery.Capture, to recovery.Parts) {
	var err error
	if c.Commands == nil {
		err = errors.New("the launcher that carried them is gone")
	}
	to.Put(recorder.CommandsPart, evidence.KindCommands, recovery.MediaJSON, c.Commands, err)
	before, err := r.files.ReadDigests(c.Record.SessionID)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("none were made at the grant")
	}
	to.Put(digestsBefore, evidence.KindDigests, recovery.MediaJSON, before, err)
	if !r.browser.Driven() {
		return
	}
	m := r.browser.Monitor()
	to.Put(recorder.NetworkPart, evidence.KindNetwork, recovery.MediaJSON, m.Network(), nil)
	to.Put(recorder.ConsolePart, evidence.KindConsole, recovery.MediaJSON, m.Console(), nil)
	// What the pages took of the time of the capture does not count.
	asking, cancel := context.WithTimeout(context.Background(), cookiesTimeout)
	cookies, asked := r.browser.Cookies(asking)
	cancel()
	m.Cookies().Compare(cookies, asked)
	var digest []byte
	if err = asked; err == nil {
		digest, err = evidence.CookieDigest(cookies, r.archive.Salt(c.Record.ProfileID))
	}
	to.Put(evidence.CookiesDigestName, evidence.KindCookiesDigest, recovery.MediaJSON, digest, err)
	digest, err = Digests(r.archive, c.Record.ProfileID, cookies, asked)
	to.Put(evidence.DigestsPart, evidence.KindDigests, recovery.MediaJSON, digest, err)
	to.SetStateChanged(before, digest)
}

// Facts tells whether cookies or storage changed since the grant: from the digests, of which the
// bundle's manifest has the result, and from what the monitor saw pages store.
func (r recordings) Facts(ctx context.Context, c recovery.Closed, _ *api.Inspection) []table.Fact {
	answer, how := string(table.Unknown), "the bundle does not say"
	m, err := manifest(ctx, r.archive, c.File.Evidence.EvidenceID)
	switch {
	case err != nil:
		how = err.Error()
	case m.StateChanged != nil:
		answer, how = m.StateChanged.Answer, cmp.Or(m.StateChanged.How, "by the digests in the bundle, which is encrypted")
	}
	f := table.Fact{Name: table.StateChanged, Answer: table.Answer(answer), How: how}
	for _, e := range c.Journal {
		if e.Kind == checkpoint.KindStorage {
			f.Answer, f.How = table.Yes, fmt.Sprintf("%s storage of %s; cookies: %s (%s)", e.Name, e.URL, answer, how)
			break
		}
	}
	if f.Answer == table.No {
		f.How = "no page changed local or session storage, and " + f.How + "; databases of pages are not watched"
		if c.Unseen {
			f.Answer, f.How = table.Unknown, "nobody watched the pages' storage while the launcher was away; cookies: "+how
		}
	}
	return []table.Fact{f}
}

// Digests returns digests of the account's state, from the result of Storage.getCookies or the
// reason why there is none. Storage is not read: that takes a page of each origin, and asking a
// page could wake it. The monitor reports who changes storage.
func Digests(a *evidence.Archive, profile string, cookies json.RawMessage, problem error) ([]byte, error) {
	d, err := evidence.NewDigests(a.Salt(profile))
	if err != nil {
		return nil, err
	}
	d.SetCookies(cookies, problem)
	return d.Part()
}
