package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/recorder"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery"
	"leasehold/lease"
)

// digestsBefore is the part with the account's state at the grant; that of the
// capture is evidence.DigestsPart.
const digestsBefore = "digests_before.json"

// observed says that from now on what is seen of the browser is of this run, too,
// and keeps digests of the account's state, for the bundle.
func (s *session) observed(ctx context.Context) {
	cookies, err := s.open.live.cookies(ctx)
	s.observedWith(cookies, err)
}

// cookies asks for those of the profile's own context.
func (b *live) cookies(ctx context.Context) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var cookies json.RawMessage
	err := b.eyes.observer.Call(ctx, "", "Storage.getCookies", nil, &cookies)
	return cookies, err
}

// observedWith is observed, with the cookies at the grant or why there are none.
func (s *session) observedWith(cookies json.RawMessage, err error) {
	e := s.open.live.eyes
	e.token.Store(uint64(s.token))
	e.declare(s.granted)
	content, err := s.l.digests(s.profile, cookies, err)
	if err == nil {
		err = os.WriteFile(s.l.cases.digests(s.id), content, 0o600)
	}
	if err != nil {
		s.log.Warn().Err(err).Msg("no digests of the account's state: whether it changes cannot be told")
	}
}

// digests of the account's state, from the result of Storage.getCookies or why
// there is none. Storage is not read: it takes a page of each origin, and asking
// one could wake it. The eyes note who changes it.
func (l *Launcher) digests(profile string, cookies json.RawMessage, problem error) ([]byte, error) {
	d, err := evidence.NewDigests(l.o.Archive.Salt(profile))
	if err != nil {
		return nil, err
	}
	d.SetCookies(cookies, problem)
	return d.Part()
}

// stateChanged tells whether cookies or storage changed since the grant: from the
// digests that the case's bundle has, and from what the eyes saw pages store.
func (c *recoveryCase) stateChanged(journal []checkpoint.Entry) recovery.Fact {
	f := recovery.Fact{Name: recovery.StateChanged}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	var parts [2][]byte
	for i, name := range []string{digestsBefore, evidence.DigestsPart} {
		// Where it cannot be read, the answer is unknown.
		parts[i], _ = c.l.o.Archive.Part(ctx, c.file.Evidence.EvidenceID, name)
	}
	answer, how := evidence.Changed(parts[0], parts[1])
	f.Answer, f.How = recovery.Answer(answer), how
	for _, e := range journal {
		if e.Kind == checkpoint.KindStorage {
			f.Answer, f.How = recovery.Yes, fmt.Sprintf("%s storage of %s; cookies: %s (%s)", e.Name, e.URL, answer, how)
			break
		}
	}
	if f.Answer == recovery.No {
		f.How = "no page changed local or session storage, and " + f.How + "; databases of pages are not watched"
		if c.unseen() {
			f.Answer, f.How = recovery.Unknown, "nobody watched the pages' storage while the launcher was away; cookies: "+how
		}
	}
	return f
}

// keepCommands takes over what a peer's connection sent since it was last asked.
func (s *session) keepCommands(peers ...*cdpproxy.Peer) {
	for _, p := range peers {
		sent, missed := p.Commands()
		entries := make([]recorder.CommandEntry, len(sent))
		for i, c := range sent {
			entries[i] = recorder.CommandEntry{At: c.At, LeaseToken: uint64(s.token), Target: c.Target, Session: c.Session, Method: c.Method}
		}
		s.commands.Record(missed, entries...)
	}
}

// sentCommands is the part with the last commands of all connections.
func (s *session) sentCommands() []byte {
	for _, c := range s.connections() {
		s.keepCommands(c.Peer())
	}
	return s.commands.Part()
}

// cookiesTimeout bounds each question for cookies.
const cookiesTimeout = 3 * time.Second

// recorded adds what was recorded on the way to the bundle.
func (c captureCase) recorded(ctx context.Context, add func(name, kind, mediaType string, content []byte, err error)) {
	const isJSON = "application/json"
	var err error
	if c.commands == nil {
		err = errors.New("the launcher that carried them is gone")
	}
	add(recorder.CommandsPart, evidence.KindCommands, isJSON, c.commands, err)
	before, err := os.ReadFile(c.l.cases.digests(c.record.SessionID))
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("none were made at the grant")
	}
	add(digestsBefore, evidence.KindDigests, isJSON, before, err)
	if c.live == nil || c.live.eyes == nil {
		return
	}
	add(recorder.NetworkPart, evidence.KindNetwork, isJSON, c.live.eyes.network.Part(), nil)
	add(recorder.ConsolePart, evidence.KindConsole, isJSON, c.live.eyes.console.Part(), nil)
	var cookies json.RawMessage
	asking, cancel := context.WithTimeout(ctx, cookiesTimeout)
	asked := c.live.eyes.observer.Call(asking, "", "Storage.getCookies", nil, &cookies)
	cancel()
	var digest []byte
	if err = asked; err == nil {
		digest, err = evidence.CookieDigest(cookies, c.l.o.Archive.Salt(c.record.ProfileID))
	}
	add(evidence.CookiesDigestName, evidence.KindCookiesDigest, isJSON, digest, err)
	digest, err = c.l.digests(c.record.ProfileID, cookies, asked)
	add(evidence.DigestsPart, evidence.KindDigests, isJSON, digest, err)
}

// taskOf is what a manifest, and the profile that it is for, say of a task.
func taskOf(m api.Manifest, r lease.Record) recovery.Task {
	return recovery.Task{
		Resumable: m.Resumable, ExpectedDomains: m.ExpectedDomains,
		SensitiveURLs:  slices.Concat(r.SensitiveURLs, m.SensitiveURLs),
		SensitiveWords: recovery.Words(r.SensitiveWords, m.SensitiveWords),
		Harmless:       r.HarmlessRequests,
	}
}

// declare says which requests the profile's owner declares harmless. One that is
// declared later, or is not any more when it is decided, counts.
func (e *eyes) declare(r lease.Record) {
	var list []recovery.Harmless
	for _, text := range r.HarmlessRequests {
		if h, err := recovery.ParseHarmless(text); err == nil { // PutProfile takes no other
			list = append(list, h)
		}
	}
	e.harmless.Store(&list)
}
