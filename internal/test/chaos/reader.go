package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// readerMark is in what readers leave in their copies, above every token: whoever finds it
// elsewhere has what a reader wrote.
const readerMark lease.Token = 1 << 40

// reader is an ephemeral session as the worker sees it that has it.
type reader struct {
	*worker
	profile, id string
	token       lease.Token // of its snapshot
	client      *cdpClient
	explicit    bool
	count       int
}

// read has a reader of a profile, if there is one to be had, and ends it in one of many ways. It
// returns only errors of the harness.
func (w *worker) read(ctx context.Context) error {
	w.tasks++
	m := api.Manifest{
		ProfileID: w.Profiles[w.rnd.IntN(len(w.Profiles))], WorkerID: w.ID, TaskID: fmt.Sprintf("%s-%d-%d", w.ID, os.Getpid(), w.tasks), Ephemeral: true,
	}
	oneShot := w.rnd.IntN(3) == 0
	switch n := w.rnd.IntN(6); {
	case oneShot:
	case n == 0:
		m.ProfileID, m.Labels = "", lease.Labels{roamLabel: "*"}
	case n == 1:
		m.ProfileID, m.AccountID = "", roamAccount
	}
	if w.rnd.IntN(3) == 0 {
		m.Wait = api.Duration(w.TTL)
	}
	if w.rnd.IntN(3) == 0 {
		m.Heartbeat = api.HeartbeatExplicit
	}
	r := &reader{worker: w, profile: m.ProfileID, explicit: m.Heartbeat == api.HeartbeatExplicit}
	since := boottime.Now()
	err := r.begin(context.WithoutCancel(ctx), m, oneShot)
	var p *api.Problem
	switch {
	case errors.As(err, &p):
		return w.report(Entry{Kind: ReaderRefused, Profile: m.ProfileID, Task: m.TaskID, Text: p.Code})
	case err != nil:
		return w.report(Entry{Kind: Unknown, Profile: m.ProfileID, Task: m.TaskID, Text: "a reader"})
	}
	if err := r.report(Entry{Kind: Reader, Task: m.TaskID, Since: since}); err != nil {
		return err
	}
	if r.client == nil { // its worker never connects
		return nil
	}
	defer r.client.Drop()
	if err := r.work(ctx); err != nil {
		return w.report(Entry{Kind: Closed, Profile: r.profile, Session: r.id, Text: "of a reader: " + closeCode(err)})
	}
	return r.end()
}

// report completes an entry by what the reader is.
func (r *reader) report(e Entry) error {
	e.Profile, e.Session, e.Token = r.profile, r.id, r.token
	return r.worker.report(e)
}

// begin asks for the session, and connects to it.
func (r *reader) begin(ctx context.Context, m api.Manifest, oneShot bool) (err error) {
	limit := dialTime + time.Duration(m.Wait)
	if oneShot {
		at := strings.Replace(r.Launcher, "http", "ws", 1) + "/devtools/browser/" + url.PathEscape(m.ProfileID) + "?" + m.Query().Encode()
		if r.client, err = dial(ctx, at, r.Token, limit); err != nil {
			return err
		}
		token, err := strconv.ParseUint(r.client.Header.Get("Leasehold-Token"), 10, 64)
		r.id, r.token = r.client.Header.Get("Leasehold-Session"), lease.Token(token)
		return err
	}
	var s api.Session
	if err := r.rest.call(ctx, limit, http.MethodPost, "/v1/sessions", m, &s); err != nil {
		return err
	}
	r.profile, r.id, r.token = s.ProfileID, s.SessionID, s.Token
	if r.rnd.IntN(10) == 0 {
		return nil
	}
	if c, err := dial(ctx, s.CDPURL, r.worker.Token, dialTime); err == nil {
		r.client = c
	}
	return nil // it is there, even if the connection failed
}

// work reads for a while: what the profile had, and what the web site answers. It also tries what
// a reader may not do to the account, and what it may do to its copy.
func (r *reader) work(ctx context.Context) error {
	if err := r.client.open(r.Witness + "/page?" + r.query("page").Encode()); err != nil {
		return err
	}
	cookie, stored, err := r.client.kept()
	if errors.Is(err, errNoValue) { // the web site was not had
		return nil
	}
	if err == nil {
		err = r.report(Entry{Kind: ReaderFound, Cookie: cookie, Stored: stored})
	}
	if err != nil {
		return err
	}
	if err := r.client.keep(readerMark + r.token); err != nil && !errors.Is(err, errNoValue) {
		return err
	}
	beaten := time.Now()
	for range 2 + r.rnd.IntN(15) {
		if ctx.Err() != nil {
			return nil
		}
		method := http.MethodGet
		if r.rnd.IntN(5) == 0 {
			method = http.MethodPost // it is failed, and never seen at the witness
		}
		if err := r.client.request(method, r.query("cdp")); err != nil {
			return err
		}
		if r.explicit && time.Since(beaten) > r.TTL/4 {
			beaten = time.Now()
			if err := r.client.call("Lease.heartbeat", nil, nil); err != nil {
				return err
			}
		}
		r.sleep(ctx, r.between(20*time.Millisecond, 200*time.Millisecond))
	}
	return nil
}

func (r *reader) query(by string) url.Values {
	r.count++
	return url.Values{"profile": {r.profile}, "token": {fmt.Sprint(r.token)}, "session": {r.id}, "by": {by}, "n": {fmt.Sprint(r.count)}, "reader": {"1"}}
}

// end leaves in one of many ways. Of a release that was answered it is known that it is over.
func (r *reader) end() error {
	switch n := r.rnd.IntN(10); {
	case n < 5:
		body := api.Release{Write: api.Write{Token: r.token}, Outcome: "read"}
		err := r.rest.call(context.Background(), dialTime, http.MethodDelete, "/v1/sessions/"+r.id, body, nil)
		var p *api.Problem
		switch {
		case errors.As(err, &p):
			return r.report(Entry{Kind: ReaderRefused, Text: "release: " + p.Code})
		case err != nil:
			return r.report(Entry{Kind: Unknown, Text: "the release of a reader"})
		}
		return r.report(Entry{Kind: ReaderEnded})
	case n < 6:
		r.client.page = ""
		_ = r.client.call("Browser.close", nil, nil) // the answer may be lost in the close
	case n < 7:
		r.client.leave()
	case n < 9:
		r.client.Drop()
	default:
		os.Exit(0) // the worker vanishes
	}
	return nil
}
