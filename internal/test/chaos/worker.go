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
	TTL      time.Duration
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
		if err := w.session(ctx); err != nil {
			return err
		}
		w.sleep(ctx, w.between(50*time.Millisecond, 600*time.Millisecond))
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
	profile string
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
	s := &stay{worker: w, profile: profile, explicit: m.Heartbeat == api.HeartbeatExplicit, lastHeartbeat: time.Now()}
	since := boottime.Now()
	err := s.acquire(ctx, m, w.rnd.IntN(3) == 0)
	if err != nil {
		return w.refused(profile, err)
	}
	if err := w.report(Entry{Kind: Granted, Profile: profile, Token: s.token, Session: s.id, Since: since}); err != nil {
		return err
	}
	return s.run(ctx)
}

// acquire takes the profile, one-shot or in two steps.
func (s *stay) acquire(ctx context.Context, m api.Manifest, oneShot bool) error {
	// The worker's end does not cancel the request, since its answer has to be known.
	ctx = context.WithoutCancel(ctx)
	if oneShot {
		q := m.Query()
		c, err := dial(ctx, strings.Replace(s.Launcher, "http", "ws", 1)+"/devtools/browser/"+url.PathEscape(m.ProfileID)+"?"+q.Encode(), s.Token)
		if err != nil {
			return err
		}
		token, err := strconv.ParseUint(c.header.Get("Leasehold-Token"), 10, 64)
		if err != nil {
			return fmt.Errorf("the 101 names no token: %w", err)
		}
		s.client, s.id, s.token = c, c.header.Get("Leasehold-Session"), lease.Token(token)
		return nil
	}
	var session api.Session
	if err := s.rest.call(ctx, dialTime, http.MethodPost, "/v1/sessions", m, &session); err != nil {
		return err
	}
	s.id, s.token = session.SessionID, session.Token
	c, err := dial(ctx, session.CDPURL, s.Token)
	if err == nil {
		s.client = c
	}
	return nil // the profile is granted, even if the connection failed
}

// refused reports why the worker got no session.
func (w *worker) refused(profile string, err error) error {
	var p *api.Problem
	var elsewhere *redirect
	e := Entry{Kind: Unknown, Profile: profile, Text: "acquire"}
	switch {
	case errors.As(err, &p):
		e.Kind, e.Text = Refused, p.Code
		if task, ok := p.More["current_task_id"].(string); ok && p.Code == api.CodeResumePending {
			w.resume[profile] = task
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
	defer s.client.drop()
	if err := s.client.open(s.Witness + "/page?" + s.query("page").Encode()); err != nil {
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
		return s.write(ctx, "checkpoints", api.Checkpoint{Write: api.Write{Token: s.token}, Name: name, Idempotent: true})
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

// leave ends the session in one of many ways.
func (s *stay) leave(ctx context.Context) error {
	switch n := s.rnd.IntN(20); {
	case n < 7 || ctx.Err() != nil:
		return s.release(ctx)
	case n < 9:
		_ = s.client.call("Lease.release", map[string]any{"outcome": "succeeded"}, nil) // the answer may be lost in the close
	case n < 11:
		s.client.page = ""
		_ = s.client.call("Browser.close", nil, nil)
	case n < 14:
		_ = s.client.leave()
	case n < 17:
		s.client.drop()
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
