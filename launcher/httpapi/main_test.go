package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/test/leaks"
	"leasehold/internal/test/testlog"
	"leasehold/launcher/api"
	"leasehold/launcher/catalog"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds waits that end sooner unless something is broken.
const patience = time.Minute

// fake is a Service that answers as a test scripted it, and fails the test at every
// other call. The values of answers, by the method's name, are a result or an error.
type fake struct {
	t *testing.T

	mu      sync.Mutex
	answers map[string]any
	calls   []string
	// stale is since when the lease store is away.
	stale time.Time
	// during is called while Acquire or BeginSignIn runs.
	during func(ctx context.Context)
}

var _ api.Service = (*fake)(nil)

var errNotScripted = errors.New("a call that no test scripted")

func (f *fake) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// answerTo records a call as text and returns its scripted answer.
func answerTo[T any](f *fake, method string, args ...any) (T, error) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	text := method
	for _, a := range args {
		b, err := json.Marshal(a)
		if err != nil {
			f.t.Errorf("%s: %v", method, err)
		}
		text += " " + string(b)
	}
	f.calls = append(f.calls, text)
	var zero T
	answer, ok := f.answers[method]
	if !ok {
		f.t.Errorf("unexpected call: %s", text)
		return zero, errNotScripted
	}
	if err, isError := answer.(error); isError {
		return zero, err
	}
	if answer == nil {
		return zero, nil
	}
	return answer.(T), nil
}

// errorOf drops the result of a method that returns only an error.
func errorOf(_ any, err error) error { return err }

func (f *fake) Acquire(ctx context.Context, m api.Manifest) (api.Session, error) {
	s, err := answerTo[api.Session](f, "Acquire", m, m.OneShot)
	if f.during != nil {
		f.during(ctx)
	}
	return s, err
}

func (f *fake) Connect(_ context.Context, sessionID, targetID string, closeFrames bool) (api.Connection, error) {
	return answerTo[api.Connection](f, "Connect", sessionID, targetID, closeFrames)
}

func (f *fake) View(_ context.Context, sessionID string) (api.Connection, error) {
	return answerTo[api.Connection](f, "View", sessionID)
}

func (f *fake) Sessions() []api.Session {
	s, _ := answerTo[[]api.Session](f, "Sessions")
	return s
}

func (f *fake) Session(id string) (api.Session, error) {
	return answerTo[api.Session](f, "Session", id)
}

func (f *fake) SessionByCapability(capability string) (api.Session, error) {
	return answerTo[api.Session](f, "SessionByCapability", capability)
}

func (f *fake) SessionOf(_ context.Context, profile, worker, task string, ephemeral bool) (api.Session, bool) {
	s, err := answerTo[api.Session](f, "SessionOf", append([]any{profile, worker, task}, ephemeralOnly(ephemeral)...)...)
	return s, err == nil
}

// ephemeralOnly is what is scripted besides the names, for an ephemeral session.
func ephemeralOnly(ephemeral bool) []any {
	if ephemeral {
		return []any{"ephemeral"}
	}
	return nil
}

func (f *fake) Heartbeat(_ context.Context, id string, h api.Heartbeat) (api.Session, error) {
	return answerTo[api.Session](f, "Heartbeat", id, h)
}

func (f *fake) Step(_ context.Context, id string, s api.Step) error {
	return errorOf(answerTo[any](f, "Step", id, s))
}

func (f *fake) Checkpoint(_ context.Context, id string, c api.Checkpoint) error {
	return errorOf(answerTo[any](f, "Checkpoint", id, c))
}

func (f *fake) Event(_ context.Context, id string, e api.TaskEvent) error {
	return errorOf(answerTo[any](f, "Event", id, e))
}

func (f *fake) Release(_ context.Context, id string, r api.Release) (api.Session, error) {
	return answerTo[api.Session](f, "Release", id, r)
}

func (f *fake) Ask(_ context.Context, id string, a api.AskPerson) (api.Answer, error) {
	return answerTo[api.Answer](f, "Ask", id, a)
}

func (f *fake) TakeOver(_ context.Context, id string, t api.TakeOver) (api.Session, error) {
	return answerTo[api.Session](f, "TakeOver", id, t)
}

func (f *fake) HandBack(_ context.Context, id string, h api.HandBack) (api.Session, error) {
	return answerTo[api.Session](f, "HandBack", id, h)
}

func (f *fake) Targets(_ context.Context, id string) ([]api.Target, error) {
	return answerTo[[]api.Target](f, "Targets", id)
}

func (f *fake) NewTarget(_ context.Context, id, url string) (api.Target, error) {
	return answerTo[api.Target](f, "NewTarget", id, url)
}

func (f *fake) ActivateTarget(_ context.Context, id, target string) error {
	return errorOf(answerTo[any](f, "ActivateTarget", id, target))
}

func (f *fake) CloseTarget(_ context.Context, id, target string) error {
	return errorOf(answerTo[any](f, "CloseTarget", id, target))
}

func (f *fake) Version(context.Context) (api.BrowserVersion, error) {
	return answerTo[api.BrowserVersion](f, "Version")
}

func (f *fake) Protocol(_ context.Context, id string) (json.RawMessage, error) {
	return answerTo[json.RawMessage](f, "Protocol", id)
}

// ListProfiles lists the records of the script as a launcher does.
func (f *fake) ListProfiles(_ context.Context, q api.ProfileQuery) (api.ProfilePage, error) {
	records, err := answerTo[[]api.Profile](f, "ListProfiles")
	var rows []*catalog.Row
	for _, r := range records {
		rows = append(rows, catalog.NewRow(lease.Entry{Record: r.Record}))
	}
	page := catalog.List(rows, q, when)
	page.Stale = f.stale
	return page, err
}

func (f *fake) Changes() api.Changes { return api.Changes{} }

func (f *fake) Hosts(context.Context) (api.Hosts, error) { return answerTo[api.Hosts](f, "Hosts") }

func (f *fake) Queue(context.Context) ([]api.Waiting, error) {
	return answerTo[[]api.Waiting](f, "Queue")
}

func (f *fake) Profile(_ context.Context, id string) (api.Profile, error) {
	return answerTo[api.Profile](f, "Profile", id)
}

func (f *fake) ImportProfile(_ context.Context, id string, i api.ProfileImport) (api.Profile, error) {
	return answerTo[api.Profile](f, "ImportProfile", id, i)
}

func (f *fake) CloneProfile(_ context.Context, id string, c api.ProfileClone) (api.Profile, error) {
	return answerTo[api.Profile](f, "CloneProfile", id, c)
}

func (f *fake) RemoveClone(_ context.Context, id string, r api.ProfileRemove) (api.Removed, error) {
	return answerTo[api.Removed](f, "RemoveClone", id, r)
}

func (f *fake) CheckProfile(_ context.Context, id string) (api.SessionChecked, error) {
	return answerTo[api.SessionChecked](f, "CheckProfile", id)
}

func (f *fake) PlanSignIn(_ context.Context, id, url string) (string, error) {
	return answerTo[string](f, "PlanSignIn", id, url)
}

func (f *fake) BeginSignIn(ctx context.Context, id string, s api.SignInStart) (api.Session, error) {
	begun, err := answerTo[api.Session](f, "BeginSignIn", id, principal.Of(ctx).Name[:5], s.URL)
	if f.during != nil {
		f.during(ctx)
	}
	return begun, err
}

func (f *fake) CheckSignIn(_ context.Context, id string) (api.SignInChecked, error) {
	return answerTo[api.SignInChecked](f, "CheckSignIn", id)
}

func (f *fake) EndSignIn(_ context.Context, id, why string) error {
	return errorOf(answerTo[any](f, "EndSignIn", id, why))
}

func (f *fake) MoveProfile(_ context.Context, id string, m api.ProfileMove) (api.Profile, error) {
	return answerTo[api.Profile](f, "MoveProfile", id, m)
}

func (f *fake) RehomeProfile(_ context.Context, id string, r api.ProfileRehome) (api.Profile, error) {
	return answerTo[api.Profile](f, "RehomeProfile", id, r)
}

func (f *fake) Snapshots(_ context.Context, id string) ([]api.Snapshot, error) {
	return answerTo[[]api.Snapshot](f, "Snapshots", id)
}

func (f *fake) RestoreProfile(_ context.Context, id string, r api.ProfileRestore) (api.Restored, error) {
	return answerTo[api.Restored](f, "RestoreProfile", id, r)
}

func (f *fake) VerifySnapshots(_ context.Context, id string, v api.ProfileVerify) (api.SnapshotsChecked, error) {
	return answerTo[api.SnapshotsChecked](f, "VerifySnapshots", id, v)
}

func (f *fake) ArchiveProfile(_ context.Context, id string, a api.ProfileArchive) (api.Archived, error) {
	return answerTo[api.Archived](f, "ArchiveProfile", id, a)
}

func (f *fake) PutProfile(_ context.Context, id string, s api.ProfileSettings) (api.Profile, error) {
	return answerTo[api.Profile](f, "PutProfile", id, s)
}

func (f *fake) History(_ context.Context, id string) ([]lease.Event, error) {
	return answerTo[[]lease.Event](f, "History", id)
}

func (f *fake) Evidence(_ context.Context, id string) ([]api.Bundle, error) {
	return answerTo[[]api.Bundle](f, "Evidence", id)
}

func (f *fake) EvidenceManifest(_ context.Context, id string) (json.RawMessage, error) {
	return answerTo[json.RawMessage](f, "EvidenceManifest", id)
}

// content is a scripted part of evidence.
type content struct {
	bytes     []byte
	mediaType string
}

func (f *fake) EvidencePart(_ context.Context, id, part string, stored bool) ([]byte, string, error) {
	c, err := answerTo[content](f, "EvidencePart", id, part, stored)
	return c.bytes, c.mediaType, err
}

func (f *fake) ExportEvidence(_ context.Context, id string, e api.EvidenceExport) (api.ExportedEvidence, error) {
	return answerTo[api.ExportedEvidence](f, "ExportEvidence", id, e)
}

func (f *fake) Inspection(_ context.Context, id string) (api.Inspection, error) {
	return answerTo[api.Inspection](f, "Inspection", id)
}

func (f *fake) Review(_ context.Context, id string, r api.ReviewRequest) (api.Profile, error) {
	return answerTo[api.Profile](f, "Review", id, r)
}

func (f *fake) Hold(_ context.Context, id string, h api.HoldRequest) (api.Session, error) {
	return answerTo[api.Session](f, "Hold", id, h)
}

func (f *fake) Events(_ context.Context, after lease.Place) (api.EventFollower, error) {
	return answerTo[api.EventFollower](f, "Events", after.String())
}

func (f *fake) Sites(context.Context) ([]api.SiteSummary, error) {
	return answerTo[[]api.SiteSummary](f, "Sites")
}

func (f *fake) Site(_ context.Context, name string) (api.Site, error) {
	return answerTo[api.Site](f, "Site", name)
}

func (f *fake) TeachSite(_ context.Context, t api.SiteTeaching) (api.Site, error) {
	return answerTo[api.Site](f, "TeachSite", t)
}

func (f *fake) PutSite(_ context.Context, name string, p api.SitePut) (api.Site, error) {
	return answerTo[api.Site](f, "PutSite", name, p)
}

func (f *fake) SiteShapes(_ context.Context, name string) ([]api.SiteShape, error) {
	return answerTo[[]api.SiteShape](f, "SiteShapes", name)
}

func (f *fake) SiteAnswers(_ context.Context, name string) ([]api.SiteAnswer, error) {
	return answerTo[[]api.SiteAnswer](f, "SiteAnswers", name)
}

func (f *fake) DeleteSite(_ context.Context, name string, d api.SiteDelete) error {
	return errorOf(answerTo[any](f, "DeleteSite", name, d))
}

func (f *fake) ReplaySite(_ context.Context, name string, r api.SiteReplay) (api.SiteReplayed, error) {
	return answerTo[api.SiteReplayed](f, "ReplaySite", name, r)
}

func (f *fake) TrySite(_ context.Context, name string, t api.SiteTry) (api.SiteTried, error) {
	return answerTo[api.SiteTried](f, "TrySite", name, t)
}

func (f *fake) Ready(context.Context) error { return errorOf(answerTo[any](f, "Ready")) }

// connection is a scripted api.Connection, which hands the sockets it gets to the test.
type connection struct {
	session   api.Session
	served    chan net.Conn
	cancelled chan struct{}
	serve     func(net.Conn, *bufio.Reader)
}

func newConnection(serve func(net.Conn, *bufio.Reader)) *connection {
	return &connection{session: held, served: make(chan net.Conn, 1), cancelled: make(chan struct{}, 1), serve: serve}
}

func (c *connection) Session() api.Session { return c.session }

func (c *connection) Serve(conn net.Conn, buffered *bufio.Reader) {
	c.served <- conn
	defer conn.Close()
	if c.serve != nil {
		c.serve(conn, buffered)
	}
}

func (c *connection) Cancel() { c.cancelled <- struct{}{} }

const (
	capability = "zrT6mVeryUnguessableCapability"
	aToken     = "the-operators-token"
)

var (
	when = time.Date(2026, 11, 20, 12, 0, 30, 123456789, time.UTC)
	own  = "http://127.0.0.1:40001"
	held = api.Session{
		SessionID: "ses_1", ProfileID: "store.18", Token: 42, WorkerID: "worker-7", TaskID: "task_101", State: api.SessionServing,
		DedicatedURL: &own, AcquiredAt: when.Add(-time.Minute), ExpiresAt: when, Connections: 1, Capability: capability,
	}
	chromium = api.BrowserVersion{Browser: "Chrome/156.0.8078.79", ProtocolVersion: "1.3", UserAgent: "Mozilla/5.0", V8Version: "15.6", WebKitVersion: "537.36"}
)

// fixture serves a handler on loopback, with a fake behind it.
type fixture struct {
	*fake
	*httptest.Server
	log *testlog.Buffer
}

func serve(t *testing.T, o Options, answers map[string]any) *fixture {
	return serveWith(t, o, answers, func(svc api.Service, o Options) http.Handler { return New(svc, o) })
}

func serveWith(t *testing.T, o Options, answers map[string]any, handler func(api.Service, Options) http.Handler) *fixture {
	t.Helper()
	f := &fixture{fake: &fake{t: t, answers: answers}, log: &testlog.Buffer{}}
	o.Log = zerolog.New(f.log)
	if o.Gate == nil {
		o.Gate = gate("")
	}
	f.Server = listening(handler(f.fake, o))
	t.Cleanup(f.Server.Close)
	return f
}

// listening serves a handler that may ask who is at the other end.
func listening(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnContext = ConnContext
	s.Start()
	return s
}

// gate admits the user of the tests, as an admin, and whoever shows the token; with a token
// nobody is proved by the user alone.
func gate(token string) *principal.Gate {
	g, err := principal.NewGate(principal.Options{Own: uint32(os.Geteuid()), OnlyNamedUsers: token != "", Token: token, Log: zerolog.Nop()})
	if err != nil {
		panic(err) // only a file of tokens can be wrong
	}
	return g
}

// addr is where the fixture listens.
func (f *fixture) addr() string { return f.Listener.Addr().String() }

// request sends one request with headers given as "Name: value".
func (f *fixture) request(method, path, body string, headers ...string) (*http.Response, string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.URL+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Content-Type" {
			r.Header.Del(name)
		}
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	// http.Client would follow redirects.
	response, err := f.Client().Transport.RoundTrip(r)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	return response, string(b)
}

// wantCalls compares the calls that the Service got since the last time.
func (f *fixture) wantCalls(want ...string) {
	f.t.Helper()
	if got := f.taken(); !slices.Equal(got, want) {
		f.t.Errorf("calls\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func problemOf(t *testing.T, r *http.Response, body string) api.Problem {
	t.Helper()
	if got := r.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q of %q, want application/problem+json", got, body)
	}
	var p api.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Errorf("problem %q: %v", body, err)
	}
	if p.Status != r.StatusCode {
		t.Errorf("problem says status %d, the answer %d", p.Status, r.StatusCode)
	}
	return p
}

// dial opens a raw connection with a deadline.
func (f *fixture) dial() net.Conn {
	f.t.Helper()
	c, err := net.Dial("tcp", f.addr())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		f.t.Fatal(err)
	}
	return c
}

// upgrade writes the request of a websocket client. headers replace or add lines; an
// empty value removes one.
func (f *fixture) upgrade(path string, headers ...string) string {
	lines := []string{
		"Host: " + f.addr(), "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+":") })
		switch {
		case at >= 0 && strings.TrimSpace(value) == "":
			lines = slices.Delete(lines, at, at+1)
		case at >= 0:
			lines[at] = h
		default:
			lines = append(lines, h)
		}
	}
	return fmt.Sprintf("GET %s HTTP/1.1\r\n%s\r\n\r\n", path, strings.Join(lines, "\r\n"))
}
