package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"leasehold/internal/boottime"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// workerConfig configures a worker process.
type workerConfig struct {
	ID       string
	Seed     uint64
	Launcher string // URL of its host's launcher
	Name     string // name of that launcher
	Token    string // content of --token-file
	Witness  string
	Profiles []string
	// Reads says that it asks for ephemeral sessions only.
	Reads bool
	// Roams says that it also asks for any profile that fits, with priorities.
	Roams bool
	TTL   time.Duration
}

// worker is a process that takes profiles, works on them, and leaves them in many ways.
// It does not judge anything, but reports all answers to the witness.
type worker struct {
	workerConfig
	rest    *sidecar
	witness *http.Client
	rnd     *rand.Rand
	tasks   int
	resume  map[string]string // by profile: the task that it is reserved for
}

// runWorker works until SIGTERM, or until it is killed.
func runWorker(c workerConfig) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w := &worker{
		workerConfig: c, rest: newSidecar(c.Launcher, c.Token), witness: &http.Client{Timeout: callTime},
		rnd: rand.New(rand.NewPCG(c.Seed, uint64(os.Getpid()))), resume: map[string]string{},
	}
	for ctx.Err() == nil {
		does := w.session
		if w.Reads {
			does = w.read
		}
		if err := does(ctx); err != nil {
			return err
		}
		longest := 600 * time.Millisecond
		if w.Roams { // a profile that everybody always wants never moves
			longest = w.TTL
		}
		w.sleep(ctx, w.between(50*time.Millisecond, longest))
	}
	return nil
}

func (w *worker) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rnd.Int64N(int64(high-low)))
}

func (w *worker) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// report sends an entry to the witness. A worker whose reports do not arrive ends,
// since nothing of it would be judged.
func (w *worker) report(e Entry) error {
	if e.At == 0 {
		e.At = boottime.Now()
	}
	e.Worker, e.Launcher = w.ID, w.Name
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	resp, err := w.witness.Post(w.Witness+"/report", "application/json", bytes.NewReader(b))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the witness answers %s", resp.Status)
	}
	return err
}

// stay is one session as its worker sees it.
type stay struct {
	*worker
	rest    *sidecar // the launcher that serves it
	profile string
	task    string
	id      string
	token   lease.Token
	client  *cdpClient
	// explicit says that heartbeats have to be sent. lastHeartbeat is when the last one
	// was.
	explicit      bool
	lastHeartbeat time.Time
	count         int
}

// session tries to get a profile, and works on it if that succeeds. It returns only
// errors of the harness.
func (w *worker) session(ctx context.Context) error {
	profile := w.Profiles[w.rnd.IntN(len(w.Profiles))]
	w.tasks++
	task := fmt.Sprintf("%s-%d-%d", w.ID, os.Getpid(), w.tasks)
	if waits, ok := w.resume[profile]; ok {
		task = waits
		delete(w.resume, profile)
	}
	m := api.Manifest{ProfileID: profile, WorkerID: w.ID, TaskID: task, Resumable: w.rnd.IntN(2) == 0}
	if w.rnd.IntN(3) == 0 {
		m.Wait = api.Duration(2 * time.Second)
	}
	if w.rnd.IntN(10) < 4 {
		m.Heartbeat = api.HeartbeatExplicit
	}
	if w.Roams {
		w.roams(&m)
	}
	s := &stay{worker: w, rest: w.rest, profile: m.ProfileID, task: task, explicit: m.Heartbeat == api.HeartbeatExplicit, lastHeartbeat: time.Now()}
	since := boottime.Now()
	err := s.acquire(ctx, m, w.rnd.IntN(3) == 0)
	if err != nil {
		return w.refused(m, err)
	}
	if err := w.report(Entry{Kind: Granted, Profile: s.profile, Task: task, Token: s.token, Session: s.id, Waited: m.Wait > 0, Since: since}); err != nil {
		return err
	}
	return s.run(ctx)
}

// roams has the request be for any profile that fits, at times, and come before others, or
// behind them.
func (w *worker) roams(m *api.Manifest) {
	switch w.rnd.IntN(6) {
	case 0:
		m.ProfileID, m.Labels = "", lease.Labels{roamLabel: "*"}
	case 1:
		m.ProfileID, m.AccountID = "", roamAccount
	}
	if m.ProfileID == "" || w.rnd.IntN(3) == 0 {
		m.Wait = api.Duration(w.between(w.TTL/2, 4*w.TTL))
	}
	if w.rnd.IntN(3) == 0 {
		m.Priority = w.rnd.IntN(6) - 2
	}
}

// The ways of asking.
const (
	byProfile  = "for a profile"
	byLabels   = "for any with a label"
	byAccount  = "for any of an account"
	byTurn     = "again elsewhere, with the turn"
	byRedirect = "again elsewhere, by a redirect"
	byPriority = "with a priority above the usual"
)

// asks reports that a request is made.
func (s *stay) asks(m api.Manifest, way string) error {
	e := Entry{Kind: Asked, Profile: m.ProfileID, Task: m.TaskID, Text: way}
	if err := s.report(e); err != nil || m.Priority <= 0 || way == byTurn || way == byRedirect {
		return err
	}
	e.Text = byPriority
	return s.report(e)
}

func wayOf(m api.Manifest) string {
	switch {
	case len(m.Labels) > 0:
		return byLabels
	case m.ProfileID == "":
		return byAccount
	}
	return byProfile
}

// acquire takes the profile, one-shot or in two steps.
func (s *stay) acquire(ctx context.Context, m api.Manifest, oneShot bool) error {
	// The worker's end does not cancel the request, since its answer has to be known.
	ctx = context.WithoutCancel(ctx)
	if err := s.asks(m, wayOf(m)); err != nil {
		return err
	}
	limit := dialTime + time.Duration(m.Wait)
	if oneShot {
		return s.acquireOneShot(ctx, m, limit)
	}
	var session api.Session
	err := s.rest.call(ctx, limit, http.MethodPost, "/v1/sessions", m, &session)
	var p *api.Problem
	if errors.As(err, &p) && p.Code == api.CodeWrongHome {
		if turn, ok := p.More["turn"].(string); ok {
			location, _ := p.More["location"].(string)
			m.Turn = turn
			if err := s.asks(m, byTurn); err != nil {
				return err
			}
			elsewhere := newSidecar(location, s.Token)
			if err = elsewhere.call(ctx, limit, http.MethodPost, "/v1/sessions", m, &session); err == nil {
				s.rest = elsewhere
			}
		}
	}
	if err != nil {
		return err
	}
	s.id, s.token, s.profile = session.SessionID, session.Token, session.ProfileID
	c, err := dial(ctx, session.CDPURL, s.Token, dialTime)
	if err == nil {
		s.client = c
	}
	return nil // the profile is granted, even if the connection failed
}

// acquireOneShot takes the profile by a websocket.
func (s *stay) acquireOneShot(ctx context.Context, m api.Manifest, limit time.Duration) error {
	path := "/devtools/browser/" + url.PathEscape(m.ProfileID)
	if m.ProfileID == "" {
		path = "/any/devtools/browser"
	}
	c, err := dial(ctx, strings.Replace(s.Launcher, "http", "ws", 1)+path+"?"+m.Query().Encode(), s.Token, limit)
	var elsewhere *redirect
	if errors.As(err, &elsewhere) {
		if err := s.asks(m, byRedirect); err != nil {
			return err
		}
		if c, err = dial(ctx, elsewhere.location, s.Token, limit); err == nil {
			s.rest = newSidecar(originOf(elsewhere.location), s.Token)
		}
	}
	if err != nil {
		return err
	}
	token, err := strconv.ParseUint(c.Header.Get("Leasehold-Token"), 10, 64)
	if err != nil {
		return fmt.Errorf("the 101 names no token: %w", err)
	}
	s.client, s.id, s.token = c, c.Header.Get("Leasehold-Session"), lease.Token(token)
	if s.profile != "" {
		return nil
	}
	var got struct {
		ProfileID string `json:"profile_id"`
	}
	if err := c.call("Lease.getLease", nil, &got); err != nil {
		c.Drop()
		return fmt.Errorf("which profile it is: %w", err)
	}
	s.profile = got.ProfileID
	return nil
}

// originOf is the http URL of the launcher that a websocket's URL leads to.
func originOf(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return location
	}
	return "http://" + u.Host
}

// refused reports why the worker got no session.
func (w *worker) refused(m api.Manifest, err error) error {
	var p *api.Problem
	var elsewhere *redirect
	e := Entry{Kind: Unknown, Profile: m.ProfileID, Task: m.TaskID, Text: "acquire"}
	switch {
	case errors.As(err, &p):
		e.Kind, e.Text = Refused, p.Code
		e.Holder, _ = p.More["current_worker_id"].(string)
		if task, ok := p.More["current_task_id"].(string); ok && p.Code == api.CodeResumePending && m.ProfileID != "" {
			w.resume[m.ProfileID] = task
		}
		if reason, _ := p.More["reason"].(string); reason == api.ReasonDirectoryLeft || reason == api.ReasonDirectoryMissing {
			e.Text = reason // a person has to help
		}
	case errors.As(err, &elsewhere):
		e.Kind, e.Text = Refused, api.CodeWrongHome
	}
	return w.report(e)
}

// run works for a while, and then leaves in one of many ways.
func (s *stay) run(ctx context.Context) error {
	if s.client == nil {
		return s.lost(ctx, errors.New("not connected"))
	}
	defer s.client.Drop()
	if err := s.client.open(s.Witness + "/page?" + s.query("page").Encode()); err != nil {
		return s.lost(ctx, err)
	}
	if err := s.look(); err != nil {
		return s.lost(ctx, err)
	}
	rounds := 3 + s.rnd.IntN(20)
	if s.rnd.IntN(8) == 0 {
		rounds += 60
	}
	unsafe := s.rnd.IntN(10) == 0
	for range rounds {
		if ctx.Err() != nil {
			break
		}
		if err := s.step(ctx, unsafe); err != nil {
			return s.lost(ctx, err)
		}
		s.sleep(ctx, s.between(10*time.Millisecond, 150*time.Millisecond))
	}
	return s.leave(ctx)
}

func (s *stay) query(by string) url.Values {
	s.count++
	return url.Values{"profile": {s.profile}, "token": {fmt.Sprint(s.token)}, "session": {s.id}, "by": {by}, "n": {fmt.Sprint(s.count)}}
}

// step makes the page send a request. Sometimes it also sends a heartbeat, a checkpoint
// or a step.
func (s *stay) step(ctx context.Context, unsafe bool) error {
	method := http.MethodGet
	if unsafe && s.rnd.IntN(5) == 0 {
		method = http.MethodPost
	}
	if err := s.client.request(method, s.query("cdp")); err != nil {
		return err
	}
	if s.explicit && time.Since(s.lastHeartbeat) > s.TTL/4 {
		s.lastHeartbeat = time.Now()
		if err := s.write(ctx, "heartbeat", api.Heartbeat{Write: api.Write{Token: s.token}}); err != nil {
			return err
		}
	}
	switch s.rnd.IntN(12) {
	case 0:
		name := fmt.Sprintf("point-%d", s.count)
		return s.write(ctx, "checkpoints", api.Checkpoint{Write: api.Write{Token: s.token}, Name: name, Idempotent: api.Idempotent{Declared: true}})
	case 1:
		return s.client.call("Lease.step", map[string]any{"name": fmt.Sprintf("step-%d", s.count)}, nil)
	}
	return nil
}

// write makes a REST write under the session's token, and reports the answer.
func (s *stay) write(ctx context.Context, what string, body any) error {
	since := boottime.Now()
	err := s.rest.call(context.WithoutCancel(ctx), callTime, http.MethodPost, "/v1/sessions/"+s.id+"/"+what, body, nil)
	e := Entry{Kind: Accepted, Profile: s.profile, Token: s.token, Session: s.id, Since: since, Text: what}
	var p *api.Problem
	switch {
	case errors.As(err, &p):
		e.Kind, e.Text = Fenced, p.Code
	case err != nil:
		e.Kind = Unknown
	}
	return errors.Join(err, s.report(e))
}

// look reports what sessions before left in the profile.
func (s *stay) look() error {
	cookie, stored, err := s.client.kept()
	if errors.Is(err, errNoValue) { // the web site was not had
		return nil
	}
	if err != nil {
		return err
	}
	return s.report(Entry{Kind: Found, Profile: s.profile, Token: s.token, Session: s.id, Cookie: cookie, Stored: stored})
}

// keep leaves the session's token in the profile, where later ones have to find it if the
// session ends in order.
func (s *stay) keep() error {
	if err := s.client.keep(s.token); errors.Is(err, errNoValue) {
		return nil
	} else if err != nil {
		return err
	}
	return s.report(Entry{Kind: Wrote, Profile: s.profile, Token: s.token, Session: s.id})
}

// leave ends the session in one of many ways.
func (s *stay) leave(ctx context.Context) error {
	if err := s.keep(); err != nil {
		return s.lost(ctx, err)
	}
	switch n := s.rnd.IntN(20); {
	case n < 7 || ctx.Err() != nil:
		return s.release(ctx)
	case n < 9:
		_ = s.client.call("Lease.release", map[string]any{"outcome": "succeeded"}, nil) // the answer may be lost in the close
	case n < 11:
		s.client.page = ""
		_ = s.client.call("Browser.close", nil, nil)
	case n < 14:
		s.client.leave()
	case n < 17:
		s.client.Drop()
		return s.lost(ctx, errors.New("dropped"))
	default:
		os.Exit(0) // the worker vanishes
	}
	return nil
}

func (s *stay) release(ctx context.Context) error {
	since := boottime.Now()
	body := api.Release{Write: api.Write{Token: s.token}, Outcome: "succeeded"}
	err := s.rest.call(context.WithoutCancel(ctx), dialTime, http.MethodDelete, "/v1/sessions/"+s.id, body, nil)
	e := Entry{Kind: Released, Profile: s.profile, Token: s.token, Session: s.id, Since: since, Text: "release"}
	var p *api.Problem
	switch {
	case errors.As(err, &p):
		e.Kind, e.Text = Fenced, p.Code
	case err != nil:
		e.Kind = Unknown
	}
	return s.report(e)
}

// lost is the end of a session that its worker does not believe in: it goes on writing
// for a while.
func (s *stay) lost(ctx context.Context, cause error) error {
	if err := s.report(Entry{Kind: Closed, Profile: s.profile, Token: s.token, Session: s.id, Text: closeCode(cause)}); err != nil {
		return err
	}
	for range 3 {
		s.sleep(ctx, s.between(100*time.Millisecond, s.TTL/2))
		name := fmt.Sprintf("late-%d", s.count)
		_ = s.write(ctx, "checkpoints", api.Checkpoint{Write: api.Write{Token: s.token}, Name: name}) // the answer is reported in any case
		if s.client != nil {
			_ = s.client.request(http.MethodPost, s.query("cdp")) // the witness records it if it arrives
		}
	}
	return nil
}
