package httpapi

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

var updateRoutes = flag.Bool("update-routes", false, "write testdata/routes.txt from what is served")

// TestRoutesAnswerAsRecorded sends a wide range of methods and paths, well formed
// and not, and compares every answer with testdata/routes.txt: status, headers,
// body, the calls that the Service got and what the log says of the request. The
// file is a record of the contract, not of an implementation.
func TestRoutesAnswerAsRecorded(t *testing.T) {
	const file = "testdata/routes.txt"
	r := &recorder{names: map[string]bool{}}
	for _, l := range layouts {
		for _, s := range l.surfaces {
			r.surface(t, l, s)
		}
	}
	r.special(t)
	r.bodies(t)
	got := r.text.String() + "\n== Answers\n" + strings.Join(r.answers, "")
	if *updateRoutes {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	recorded, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(recorded), "\n")
	if len(gotLines) != len(wantLines) {
		t.Errorf("%d lines, want the %d of %s", len(gotLines), len(wantLines), file)
	}
	differences := 0
	for i := range min(len(gotLines), len(wantLines)) {
		if gotLines[i] != wantLines[i] && differences < 10 {
			differences++
			t.Errorf("%s:%d\n got %s\nwant %s", file, i+1, gotLines[i], wantLines[i])
		}
	}
}

// TestRecordHasEveryRoute: a route that is added is also added to the record.
func TestRecordHasEveryRoute(t *testing.T) {
	for i, routes := range [][]route{publicRoutes(), dedicatedRoutes("ses_1")} {
		mux, asked := newMux(routes), map[string]bool{}
		for _, path := range layouts[i].paths {
			for _, rt := range routes {
				_, pattern := mux.Handler(httptest.NewRequest(rt.method, path, nil))
				asked[pattern] = true
			}
		}
		for _, rt := range routes {
			if !asked[rt.method+" "+rt.pattern] && !asked[rt.method+" "+rt.pattern+"{$}"] {
				t.Errorf("%s: no path of the record leads to %s %s", layouts[i].name, rt.method, rt.pattern)
			}
		}
	}
}

// layout is one of the two URL layouts, with a path of each of its routes.
type layout struct {
	name     string
	handler  func(api.Service, Options) http.Handler
	surfaces []surface
	paths    []string
	// spelled are those of the paths that are asked in each of the spellings: of each way
	// that a route is found, one.
	spelled []string
}

var layouts = []layout{
	{
		"public", New, []surface{open, upgrading, closed},
		[]string{
			"/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/hosts", "/updates", "/hosts/updates", "/queue", "/queue/updates", "/accounts", "/accounts/updates", "/reviews", "/sites/shop", "/mcp",
			"/console/p", "/console/p/review", "/console/p/hold", "/console/p/check", "/console/p/hand-back", "/console/p/restore", "/console/p/rehome", "/console/p/teach", "/console/p/live", "/console/p/picture",
			"/devtools/browser/p", "/profiles/p", "/profiles/p/devtools/browser/i", "/profiles/p/devtools/page/T",
			"/profiles/p/json", "/profiles/p/json/version", "/profiles/p/json/list", "/profiles/p/json/protocol",
			"/profiles/p/json/new", "/profiles/p/json/activate/T", "/profiles/p/json/close/T",
			"/s/secret", "/s/secret/devtools/browser/p", "/s/secret/devtools/page/T",
			"/s/secret/json", "/s/secret/json/version", "/s/secret/json/list", "/s/secret/json/protocol",
			"/s/secret/json/new", "/s/secret/json/activate/T", "/s/secret/json/close/T",
			"/v1/sessions", "/v1/sessions/ses_1", "/v1/sessions/ses_1/heartbeat", "/v1/sessions/ses_1/steps", "/v1/sessions/ses_1/checkpoints", "/v1/sessions/ses_1/events", "/v1/sessions/ses_1/ask", "/v1/sessions/ses_1/take-over", "/v1/sessions/ses_1/hand-back", "/v1/sessions/ses_1/view",
			"/v1/profiles", "/v1/profiles/p", "/v1/profiles/p/import", "/v1/profiles/p/clone", "/v1/profiles/p/move", "/v1/profiles/p/rehome", "/v1/profiles/p/archive", "/v1/profiles/p/snapshots", "/v1/profiles/p/restore", "/v1/profiles/p/verify", "/v1/profiles/p/remove-clone", "/v1/profiles/p/check",
			"/v1/profiles/p/history", "/v1/profiles/p/evidence", "/v1/profiles/p/inspection", "/v1/profiles/p/review", "/v1/profiles/p/hold", "/v1/profiles/p/sign-in-link", "/sign-in/lnk_1", "/sign-in/lnk_1/view", "/sign-in/lnk_1/session", "/sign-in/lnk_1/done",
			"/v1/events", "/v1/evidence/e", "/v1/evidence/e/x", "/v1/evidence/e/export",
			"/any", "/any/devtools/browser", "/any/json", "/any/json/version", "/any/json/list", "/any/json/protocol", "/any/json/new", "/any/json/activate/T", "/any/json/close/T", "/v1/queue", "/v1/sites", "/v1/sites/shop", "/v1/sites/shop/try", "/v1/sites/shop/replay", "/v1/sites/shop/shapes",
			"/v1", "/v1/nothing", "/json", "/json/version", "/devtools", "/devtools/page/T", "/profiles", "/s",
		},
		[]string{
			"/", "/healthz", "/console/p/review", "/profiles/p", "/profiles/p/devtools/page/T", "/profiles/p/json/new", "/s/secret", "/s/secret/json/version",
			"/v1/sessions", "/v1/profiles/p", "/v1/sessions/ses_1/steps", "/v1/evidence/e/x", "/any/json/activate/T", "/v1/nothing",
		},
	},
	{
		"dedicated", func(svc api.Service, o Options) http.Handler { return Dedicated(svc, "ses_1", o) }, []surface{open, upgrading, closed},
		[]string{
			"/json", "/json/version", "/json/list", "/json/protocol", "/json/new", "/json/activate/T", "/json/close/T",
			"/devtools/browser/i", "/devtools/page/T", "/", "/healthz", "/v1/sessions", "/profiles/p/json",
		},
		[]string{"/json/version", "/json/new", "/devtools/page/T", "/"},
	},
}

// surface is how a layout is asked: which methods, in which spellings of its paths.
type surface struct {
	name      string
	o         Options
	refuses   bool // every call of the Service is refused
	upgrade   bool
	methods   []string
	spellings []spelling
}

var (
	open = surface{"without a token", Options{}, false, false, []string{
		"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "PURGE",
	}, spellings}
	upgrading = surface{"upgrade", Options{}, false, true, []string{"GET", "HEAD", "POST"}, spellings[:plainSpellings]}
	unwilling = surface{"all is refused", Options{}, true, false, nil, nil}
	closed    = surface{"token not shown", Options{Gate: gate(aToken)}, false, false, []string{"GET", "PUT"}, spellings[:plainSpellings]}
)

// spelling is a way to write a path.
type spelling struct {
	name  string
	write func(path string) string
}

// plainSpellings of the spellings are asked with every method, and on every surface;
// the rest with the first five methods, without a token. A path that need not be asked in
// all of them is asked in the first two.
const plainSpellings = 7

var spellings = []spelling{
	{"plain", func(p string) string { return p }},
	{"p/", func(p string) string { return p + "/" }},
	{"p//", func(p string) string { return p + "//" }},
	{"//p", func(p string) string { return "//" + p }},
	{"p?worker&task", func(p string) string { return p + "?worker=w&task=t" }},
	{"/x/../p", func(p string) string { return "/x/.." + p }},
	{"p/more", func(p string) string { return p + "/more" }},
	{"doubled slashes", func(p string) string { return strings.ReplaceAll(p, "/", "//") }},
	{"letters escaped", func(p string) string {
		return regexp.MustCompile(`/[^/]`).ReplaceAllStringFunc(p, func(s string) string { return fmt.Sprintf("/%%%02x", s[1]) })
	}},
	{"/./p", func(p string) string { return "/." + p }},
	{"/../p", func(p string) string { return "/.." + p }},
	{"/%2e%2e/p", func(p string) string { return "/%2e%2e" + p }},
	{"p/.", func(p string) string { return p + "/." }},
	{"p/..", func(p string) string { return p + "/.." }},
	{"p/%2E%2E", func(p string) string { return p + "/%2E%2E" }},
	{"last segment is .", func(p string) string { return p[:strings.LastIndex(p, "/")+1] + "." }},
	{"last segment is ..", func(p string) string { return p[:strings.LastIndex(p, "/")+1] + ".." }},
	{"last segment is %2e%2e", func(p string) string { return p[:strings.LastIndex(p, "/")+1] + "%2e%2e" }},
	{"last slash escaped", func(p string) string {
		at := strings.LastIndex(p, "/")
		return "/" + strings.TrimPrefix(p[:at], "/") + "%2F" + p[at+1:]
	}},
	{"p%2F", func(p string) string { return p + "%2F" }},
	{"p%2Fq", func(p string) string { return p + "%2Fq" }},
	{`p%5Cq`, func(p string) string { return p + "%5Cq" }},
	{`p\q`, func(p string) string { return p + `\q` }},
	{"p%00", func(p string) string { return p + "%00" }},
	{"odd characters", func(p string) string { return p + "%20+;v=1%25%3F{a}%7Bb%7D&%23é%C3%A9%FF" }},
	{"{name}", func(p string) string { return p[:strings.LastIndex(p, "/")+1] + "{profile}" }},
	{"capitals", strings.ToUpper},
	{"long", func(p string) string { return p + strings.Repeat("x", 1000) }},
	{"deep", func(p string) string { return p + strings.Repeat("/x", 500) }},
}

// everyAnswer is a script in which every call succeeds, and the calls that lead to
// a connection are refused in ways that show how far the request came.
func everyAnswer() map[string]any {
	return map[string]any{
		"Acquire":    api.Refuse(api.CodeWrongHome, "elsewhere").With("location", "http://h2:9333/pool"),
		"Connect":    api.Refuse(api.CodeNotFound, "no such target"),
		"View":       api.Refuse(api.CodeTooManyViewers, "session ses_1 is watched by 8"),
		"Sites":      []api.SiteSummary{{Name: "shop", Origins: []string{"https://shop.example"}}},
		"Site":       shop,
		"SiteShapes": []api.SiteShape{},
		"PutSite":    shop, "TeachSite": shop, "DeleteSite": nil, "ReplaySite": api.SiteReplayed{Name: "shop", Incidents: []api.IncidentReplayed{}}, "TrySite": api.SiteTried{Name: "shop", Questions: []api.QuestionTried{}},
		"Queue":    []api.Waiting{{ProfileID: "p", WorkerID: "w", TaskID: "t", LauncherID: "l", Position: 1, Profiles: 1}},
		"Sessions": []api.Session{held}, "Session": held, "SessionByCapability": held, "SessionOf": held,
		"Heartbeat": held, "Step": nil, "Checkpoint": nil, "Event": nil, "Ask": api.Answer{}, "TakeOver": held, "HandBack": held, "Release": held, "Hold": held,
		"PlanSignIn": api.Refuse(api.CodeInReview, "profile p waits for a decision first"), // a link would be another one each time
		"Targets":    []api.Target{{ID: "T1", Type: "page"}}, "NewTarget": api.Target{ID: "T2", Type: "page"}, "ActivateTarget": nil, "CloseTarget": nil,
		"Version": chromium, "Protocol": json.RawMessage(`{"domains":[]}`),
		"ListProfiles": []api.Profile{record}, "Profile": record, "PutProfile": record, "ImportProfile": record, "CloneProfile": record,
		"MoveProfile": api.Profile{Record: lease.Record{ProfileID: "p", Token: 8}}, "RehomeProfile": api.Profile{Record: lease.Record{ProfileID: "p", Token: 8}}, "ArchiveProfile": api.Archived{ProfileID: "p"}, "Snapshots": []api.Snapshot{}, "RestoreProfile": api.Restored{ProfileID: "p"}, "VerifySnapshots": api.SnapshotsChecked{ProfileID: "p"}, "RemoveClone": api.Removed{ProfileID: "p"}, "CheckProfile": api.SessionChecked{ProfileID: "p"},
		"History": []lease.Event{}, "Evidence": []api.Bundle{}, "Inspection": api.Inspection{}, "Review": record,
		"EvidenceManifest": json.RawMessage(`{}`), "EvidencePart": content{[]byte("part"), "text/plain"}, "ExportEvidence": exported("<p>"), "Ready": nil, "Events": newFollower(api.EventBatch{Through: lease.Place{Sequence: 7}, Ended: true}),
	}
}

// everyRefusal is a script in which every call is refused.
func everyRefusal() map[string]any {
	conflict := api.Refuse(api.CodeConflict, "held by another").With("current_worker_id", "w2")
	conflict.RetryAfter = 7
	refusals := everyAnswer()
	for method := range refusals {
		refusals[method] = conflict
	}
	return refusals
}

// recorder writes the record. Each different answer is written once, under a name
// made from its text, so that a new answer does not rename the others.
type recorder struct {
	text    strings.Builder
	answers []string
	names   map[string]bool
}

func (r *recorder) name(answer string) string {
	name := fmt.Sprintf("#%x", sha256.Sum256([]byte(answer)))[:7]
	if !r.names[name] {
		r.names[name] = true
		r.answers = append(r.answers, fmt.Sprintf("\n%s %s\n", name, answer))
	}
	return name
}

// surface records one surface. Methods with the same answer stand together, as do
// spellings with the same answers to all methods.
func (r *recorder) surface(t *testing.T, l layout, s surface) {
	c := newAsker(t, l, s)
	defer c.close()
	for _, path := range l.paths {
		var bySpelling groups
		asked := s.spellings
		if !slices.Contains(l.spelled, path) {
			asked = asked[:2]
		}
		for i, sp := range asked {
			var byAnswer groups
			methods := s.methods
			if i >= plainSpellings {
				methods = methods[:min(5, len(methods))]
			}
			for _, method := range methods {
				byAnswer.add(c.ask(r, method, sp.write(path), `{"lease_token":42}`), method)
			}
			var answers strings.Builder
			byAnswer.each(func(answer, methods string) { fmt.Fprintf(&answers, "    %s: %s\n", methods, answer) })
			bySpelling.add(answers.String(), sp.name)
		}
		fmt.Fprintf(&r.text, "\n== %s, %s: %s\n", l.name, s.name, path)
		bySpelling.each(func(answers, spellings string) { fmt.Fprintf(&r.text, "  %s\n%s", spellings, answers) })
	}
}

// groups are names by what they have in common, in the order in which they came.
type groups struct {
	common []string
	names  map[string][]string
}

func (g *groups) add(common, name string) {
	if g.names == nil {
		g.names = map[string][]string{}
	}
	if g.names[common] == nil {
		g.common = append(g.common, common)
	}
	g.names[common] = append(g.names[common], name)
}

// each calls write for each group. The largest comes last, and if it is not alone
// its names are "others".
func (g *groups) each(write func(common, names string)) {
	largest := slices.MaxFunc(g.common, func(a, b string) int { return len(g.names[a]) - len(g.names[b]) })
	for _, common := range g.common {
		if common != largest {
			write(common, strings.Join(g.names[common], " | "))
		}
	}
	if len(g.common) == 1 {
		write(largest, "all")
	} else {
		write(largest, "others")
	}
}

// special records single request lines, whose target need not be a path.
func (r *recorder) special(t *testing.T) {
	for _, l := range layouts {
		for _, s := range []surface{open, closed} {
			c := newAsker(t, l, s)
			fmt.Fprintf(&r.text, "\n== %s, %s: single requests\n", l.name, s.name)
			for _, line := range []string{
				"GET *", "OPTIONS *", "CONNECT localhost:1", "CONNECT /v1/sessions", "CONNECT /v1//sessions", "GET http://localhost/v1/sessions", "GET http://localhost",
				"GET //", "GET ///", "GET /?x=1", "GET /%2F", "GET /.", "GET /..", "GET /%", "GET /v1/sessions/%zz", "GET /v1/sessions#top", "GET v1/sessions",
				"GET /json//version/", "GET /%6Ason/version", "GET /a/json", "GET /json?https://example.com", "GET /%6ason",
				"GET /v1/sessions?a;b", "GET /v1/sessions?%zz", "GET /v1/sessions/?token=x", "GET /healthz?token=x",
				"GET /v1/profiles/store%2E18", "GET /v1/profiles/a%2Fb", "GET /v1/profiles/%7Bprofile%7D", "GET /v1/profiles/{$}", "GET /v1/profiles/p...", "GET /v1/profiles/%20",
				"GET /v1/evidence/e/%2525", "GET /v1/evidence/e/a;b", "GET /v1/evidence/e/a:b", "GET /v1/evidence/e/%E2%82%AC", "GET /v1/evidence/e/€", "GET /v1/evidence//e//x//",
				"GET /profiles/p?worker=w&task=t/json/version", "GET /profiles//p/?worker=w&task=t//json/list/", "GET /profiles/p?task=t&token=x/json/protocol", "GET /profiles/p?/json/version",
				"HEAD /profiles/p?worker=w&task=t/json/version", "PUT /profiles/p?worker=w&task=t/json/new", "GET /s/secret?/json/list", "POST /s/secret?x/json/version", "GET /s/%2E%2E?/json/list",
				"GET /v1/sessions?/json/version",
				"PUT /profiles/p/json/new?worker=w&task=t&https://example.com/?a=1&b=2", "PUT /profiles/p/json/new?task=t&https%3A%2F%2Fexample.com%2F..%2F%2Fx",
				"PUT /profiles/p/json/new/?task=t&url=https://example.com//a/../b", "PUT /profiles//p/json/new?https://example.com/&token=x", "GET /profiles/p/json/new?https://example.com/&token=x",
				"PUT /profiles/p/json/new?token=" + aToken + "&task=t&about:blank", "GET /profiles/p/json/new?token=" + aToken + "&https://example.com/?token=x",
				"PUT /s/secret/json/new?https://example.com/?token=x", "PUT /s/secret/json/new/?https://example.com//", "PUT /s/secret/json/new?%zz", "PUT /s/secret/json/new?", "GET /s/secret/json/new?token=x",
				"PUT /json/new?https://example.com/?a=1&b=2", "PUT /json/new/?url=https%3A%2F%2Fexample.com", "PUT //json//new?//", "GET /json/new?https://example.com", "POST /json/new?%zz",
				"HEAD /s/secret/json/close/T", "HEAD /s/secret/json/activate/T", "HEAD /s/secret/json/new", "HEAD /profiles/p", "GET /s/secret/json/close/", "GET /s/secret/json/close/%2e", "GET /s/secret/json/close/T%2FU",
				"POST /v1/sessions/%2e%2e/steps", "DELETE /v1/sessions/s/?lease_token=1&outcome=done", "GET /v1/sessions/" + strings.Repeat("%C3%A9", 500),
				"GET /" + strings.Repeat("/", 3000) + "healthz", "GET /" + strings.Repeat("../", 3000) + "healthz", "GET /?" + strings.Repeat("x", 1000),
			} {
				method, target, _ := strings.Cut(line, " ")
				fmt.Fprintf(&r.text, "  %s -> %s\n", shortened(line), c.ask(r, method, target, `{"lease_token":42}`))
			}
			c.close()
		}
	}
}

// bodies records what is answered to bodies of all kinds, where a body is asked for at all.
func (r *recorder) bodies(t *testing.T) {
	for _, s := range []surface{open, unwilling} {
		c := newAsker(t, layouts[0], s)
		for _, path := range layouts[0].paths {
			if !strings.HasPrefix(path, "/v1/") {
				continue
			}
			fmt.Fprintf(&r.text, "\n== bodies, %s: %s\n", s.name, path)
			for _, method := range []string{"POST", "PUT", "DELETE"} {
				var byAnswer groups
				for _, body := range []string{
					"", "{}", "null", "{} {}", "[", `{"lease_token":0}`, `{"lease_token":7}`, `{"lease_token":"7"}`, `{"nothing":1}`,
					`{"to":"q"}`, `{"from":"/d"}`, `{"holder":"Ada"}`, `{"account_id":"a"}`,
				} {
					answer := c.ask(r, method, path, body)
					byAnswer.add(answer, "<"+body+">")
					if strings.HasPrefix(answer, "405") || strings.HasPrefix(answer, "404") {
						break
					}
				}
				byAnswer.each(func(answer, bodies string) { fmt.Fprintf(&r.text, "  %s %s -> %s\n", method, bodies, answer) })
			}
		}
		c.close()
	}
}

// asker sends requests over one connection as long as the server keeps it.
type asker struct {
	t       *testing.T
	svc     *fake
	log     *lines
	srv     *httptest.Server
	begun   atomic.Int64
	done    chan struct{}
	upgrade bool
	conn    net.Conn
	answers *bufio.Reader
}

func newAsker(t *testing.T, l layout, s surface) *asker {
	answers := everyAnswer()
	if s.refuses {
		answers = everyRefusal()
	}
	c := &asker{t: t, svc: &fake{t: t, answers: answers}, log: &lines{}, done: make(chan struct{}, 1), upgrade: s.upgrade}
	echo := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s of %s, whose URL is as it came: %v", name, r.Method, r.URL.String() == r.RequestURI)
		})
	}
	o := s.o
	if o.Gate == nil {
		o.Gate = gate("")
	}
	o.Log, o.Metrics, o.Console = zerolog.New(c.log), echo("metrics"), echo("console")
	h := l.handler(c.svc, o)
	h.(*server).denials.most = math.MaxInt
	c.srv = listening(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.begun.Add(1)
		defer func() { c.done <- struct{}{} }()
		h.ServeHTTP(w, r)
	}))
	return c
}

func (c *asker) close() {
	c.hangUp()
	c.srv.Close()
}

func (c *asker) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// ask sends one request and describes its answer in one line.
func (c *asker) ask(r *recorder, method, target, body string) string {
	c.t.Helper()
	fail := func(err error) {
		if err != nil {
			c.t.Helper()
			c.t.Fatalf("%s %s: %v", method, shortened(target), err)
		}
	}
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.srv.Listener.Addr().String())
		fail(err)
		c.conn, c.answers = conn, bufio.NewReader(conn)
	}
	fail(c.conn.SetDeadline(time.Now().Add(patience)))
	headers := "Host: localhost:9333\r\n"
	if c.upgrade {
		headers += strings.Join(upgradeHeaders, "\r\n") + "\r\n"
	}
	if !slices.Contains([]string{"POST", "PUT", "DELETE", "PATCH"}, method) {
		body = ""
	} else {
		headers += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	before := c.begun.Load()
	_, err := io.WriteString(c.conn, method+" "+target+" HTTP/1.1\r\n"+headers+"\r\n"+body)
	fail(err)
	response, err := http.ReadResponse(c.answers, &http.Request{Method: method})
	fail(err)
	content, err := io.ReadAll(response.Body)
	fail(err)
	if c.upgrade || response.Close {
		c.hangUp()
	}
	var note string
	if c.begun.Load() == before {
		note = " not our handler"
	} else {
		<-c.done
		note = c.logged(target)
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := response.Header.Values(name); !slices.Equal(got, []string{want}) {
				c.t.Errorf("%s %s: %s %q, want %q", method, shortened(target), name, got, want)
			}
			response.Header.Del(name)
		}
	}
	length := strconv.FormatInt(response.ContentLength, 10)
	switch response.ContentLength {
	case int64(len(content)):
		length = "that of the body"
	case int64(len(description)):
		length = "that of the description"
	}
	response.Header.Del("Date")
	response.Header.Del("Content-Length")
	answer := response.Status
	for _, name := range slices.Sorted(maps.Keys(response.Header)) {
		answer += "\n" + name + ": " + strings.Join(response.Header[name], " | ")
	}
	if answer += fmt.Sprintf("\nlength: %s, closes: %v\n", length, response.Close); string(content) == string(description) {
		answer += "the description"
	} else {
		answer += strings.TrimRight(string(content), "\n")
	}
	answer = strings.ReplaceAll(answer, ", not "+method, ", not METHOD")
	answer = aTicket.ReplaceAllString(answer, "/s/TICKET/")
	line := fmt.Sprintf("%d %s%s", response.StatusCode, r.name(shortened(answer)), note)
	if calls := c.svc.taken(); len(calls) > 0 {
		line += " " + strings.Join(calls, ", ")
	}
	return shortened(line)
}

// logged is what the log says of the last request. The path is left out where it is
// what was asked for, decoded and without empty segments, and so is the user of the tests.
func (c *asker) logged(target string) string {
	// A line about a caller who is refused says what the answer says.
	written := slices.DeleteFunc(c.log.taken(), func(line []byte) bool { return bytes.Contains(line, []byte(`"message":"caller refused"`)) })
	said := fmt.Sprintf(" %d lines of the log", len(written))
	if len(written) == 1 {
		said = ""
	}
	for _, line := range written {
		var entry map[string]any
		if err := json.Unmarshal(line, &entry); err != nil {
			c.t.Fatalf("log %q: %v", line, err)
		}
		for _, name := range slices.Sorted(maps.Keys(entry)) {
			switch v := fmt.Sprint(entry[name]); {
			case slices.Contains([]string{"method", "status", "peer", "took", "time"}, name), v == "debug", v == "request":
			case name == "path" && v == plainPath(target):
			case name == "principal" && v == principal.UserName(uint32(os.Geteuid())):
			default:
				said += " " + name + "=" + v
			}
		}
	}
	return said
}

func plainPath(target string) string {
	target, _, _ = strings.Cut(target, "?")
	var path strings.Builder
	for segment := range strings.SplitSeq(target, "/") {
		if decoded, err := url.PathUnescape(segment); err == nil && segment != "" {
			path.WriteString("/" + decoded)
		}
	}
	return strings.ToValidUTF8(clip("/"+strings.TrimPrefix(path.String(), "/")), "\ufffd")
}

// lines is a log that is read line by line.
type lines struct {
	mu      sync.Mutex
	written [][]byte
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = append(l.written, bytes.Clone(line))
	return len(line), nil
}

func (l *lines) taken() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	written := l.written
	l.written = nil
	return written
}

var random = regexp.MustCompile(`adhoc-[a-z0-9]{12}`)

// shortened writes long repetitions, random names and what is not text so that it
// can stand in the record.
func shortened(text string) string {
	for _, unit := range []string{"x", "/x", "../", "/", "%C3%A9", "é"} {
		text = collapsed(text, unit)
	}
	if strings.Contains(text, "adhoc-") {
		text = random.ReplaceAllString(text, "adhoc-RANDOM")
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "[00]"), "[?]")
}

// collapsed writes each long repetition of unit as its length.
func collapsed(text, unit string) string {
	long := strings.Repeat(unit, 30)
	for {
		before, after, found := strings.Cut(text, long)
		if !found {
			return text
		}
		rest := after
		for strings.HasPrefix(rest, unit) {
			rest = rest[len(unit):]
		}
		text = fmt.Sprintf("%s[%s %d times]%s", before, unit, 30+(len(after)-len(rest))/len(unit), rest)
	}
}
