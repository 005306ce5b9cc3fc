package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"leasehold/internal/test/otheruser"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// The whole matrix: each operation of the OpenAPI document, asked by each role, with and
// without a pattern that is of the profile, on its own session and on another's; and by
// another user of the host, and by nobody.
//
// What a connection carries, CDP and Lease.*, has the row of the operation that opened it: it
// is of one session, and of nobody else's. What is not HTTP has its tests where it is
// served: the relay to a proxy in launcher/proxies, NATS in internal/natsd.

// expected is who may have an operation.
type expected struct {
	// roles may, whoever's the thing is.
	roles string
	// own roles may as well, if the session is one that they opened.
	own string
	// about says which profile a pattern has to be of: that of the path, session or bundle
	// ("profile"), or none ("nothing").
	about string
}

const (
	everyRole = "worker viewer reviewer operator admin"
	users     = "worker reviewer operator admin" // who can have sessions
	openers   = "worker operator admin"
	readers   = "viewer reviewer operator admin"
	managers  = "operator admin"
)

// matrix has a row for each operation of the document. "open" operations ask for nobody,
// or for a capability.
var matrix = map[string]expected{
	"connectOneShot": {openers, "", "profile"}, "connectOneShotBase": {openers, "", "profile"}, "connectOneShotBelow": {openers, "", "profile"},
	"versionOneShot": {openers, "", "profile"},
	// Of sessions that the caller opened: another's is not found, whatever the role.
	"connectOneShotTarget": {users, "", "profile"}, "targetsOneShot": {users, "", "profile"}, "targetListOneShot": {users, "", "profile"},
	"protocolOneShot": {users, "", "profile"}, "newTargetOneShot": {users, "", "profile"}, "activateTargetOneShot": {users, "", "profile"},
	"closeTargetOneShot": {users, "", "profile"},
	// Of any profile that fits: of the profiles the service looks at those that the caller may open.
	"connectAny": {openers, "", "nothing"}, "connectAnyBase": {openers, "", "nothing"}, "versionAny": {openers, "", "nothing"},
	"targetsAny": {users, "", "nothing"}, "targetListAny": {users, "", "nothing"}, "protocolAny": {users, "", "nothing"}, "newTargetAny": {users, "", "nothing"},
	"activateTargetAny": {users, "", "nothing"}, "closeTargetAny": {users, "", "nothing"}, "listQueue": {everyRole, "", "nothing"},
	"connect": {"open", "", ""}, "connectTarget": {"open", "", ""}, "version": {"open", "", ""}, "targets": {"open", "", ""}, "targetList": {"open", "", ""},
	"protocol": {"open", "", ""}, "newTarget": {"open", "", ""}, "activateTarget": {"open", "", ""}, "closeTarget": {"open", "", ""},
	"createSession": {openers, "", "profile"}, "listSessions": {everyRole, "", "nothing"},
	"connectView": {"reviewer operator admin", "", "profile"}, "consoleLive": {"reviewer operator admin", "", "profile"},
	"getSession": {readers, "worker", "profile"}, "releaseSession": {"admin", "worker reviewer operator", "profile"},
	"heartbeat": {"admin", "worker reviewer operator", "profile"}, "step": {"admin", "worker reviewer operator", "profile"},
	"checkpoint": {"admin", "worker reviewer operator", "profile"}, "event": {"admin", "worker reviewer operator", "profile"},
	"followEvents": {readers, "", "nothing"},
	"askPerson":    {"admin", "worker reviewer operator", "profile"}, "takeOver": {"reviewer operator admin", "", "profile"}, "handBack": {"reviewer operator admin", "", "profile"},
	// What an agent does is asked for as all of these are, with its own credentials.
	"mcp": {everyRole, "", "nothing"}, "mcpStream": {everyRole, "", "nothing"}, "mcpEnd": {everyRole, "", "nothing"},
	"listProfiles": {everyRole, "", "nothing"}, "getProfile": {readers, "worker", "profile"},
	"putProfile": {managers, "", "profile"}, "importProfile": {managers, "", "profile"}, "cloneProfile": {managers, "", "profile"},
	"moveProfile": {managers, "", "profile"}, "rehomeProfile": {"reviewer operator admin", "", "profile"},
	"listSnapshots": {readers, "", "profile"}, "restoreProfile": {managers, "", "profile"}, "verifySnapshots": {managers, "", "profile"},
	"archiveProfile": {managers, "", "profile"}, "removeClone": {managers, "", "profile"}, "checkProfile": {"reviewer operator admin", "", "profile"},
	"getHistory": {readers, "", "profile"}, "listEvidence": {readers, "", "profile"}, "getInspection": {readers, "", "profile"},
	"makeSignInLink": {"reviewer operator admin", "", "profile"}, "revokeSignInLink": {"reviewer operator admin", "", "profile"},
	// Of who has the link: without it there is nothing.
	"signInPage": {"open", "", ""}, "useSignInLink": {"open", "", ""}, "connectSignInView": {"open", "", ""}, "signInSession": {"open", "", ""}, "signInDone": {"open", "", ""},
	"review": {"reviewer operator admin", "", "profile"}, "hold": {"reviewer operator admin", "", "profile"},
	"getEvidence": {readers, "", "profile"}, "getEvidencePart": {readers, "", "profile"}, "exportEvidence": {readers, "", "profile"},
	"health": {"open", "", ""}, "ready": {"open", "", ""}, "metrics": {readers, "", "nothing"}, "openapi": {everyRole, "", "nothing"}, "console": {readers, "", "nothing"},
	"consoleUpdates": {readers, "", "nothing"}, "consoleHosts": {readers, "", "nothing"}, "consoleHostsUpdates": {readers, "", "nothing"},
	"consoleReviewAgain": {readers, "", "profile"}, "consoleHoldAgain": {readers, "", "profile"}, "consoleCheckAgain": {readers, "", "profile"}, "consoleHandBackAgain": {readers, "", "profile"},
	"consoleRestoreAgain": {readers, "", "profile"}, "consoleRehomeAgain": {readers, "", "profile"}, "consoleTeachAgain": {readers, "", "profile"},
	"consoleProfile": {readers, "", "profile"}, "consolePicture": {readers, "", "profile"}, "consoleReview": {"reviewer operator admin", "", "profile"}, "consoleHold": {"reviewer operator admin", "", "profile"},
	"consoleHandBack": {"reviewer operator admin", "", "profile"}, "consoleRehome": {"reviewer operator admin", "", "profile"}, "consoleRestore": {"operator admin", "", "profile"},
	"listSites": {readers, "", "nothing"}, "getSite": {readers, "", "nothing"}, "listSiteShapes": {readers, "", "nothing"}, "putSite": {managers, "", "everything"}, "replaySite": {readers, "", "nothing"}, "trySite": {managers, "", "everything"}, "teachSite": {managers, "", "everything"}, "consoleTeach": {managers, "", "everything"}, "deleteSite": {managers, "", "everything"},
	"consoleSite": {readers, "", "nothing"}, "consoleQueue": {readers, "", "nothing"}, "consoleQueueUpdates": {readers, "", "nothing"},
	"consoleAccounts": {readers, "", "nothing"}, "consoleAccountsUpdates": {readers, "", "nothing"}, "consoleReviews": {readers, "", "nothing"}, "consoleDecide": {"reviewer operator admin", "", "nothing"}, "consoleCheck": {"reviewer operator admin", "", "profile"},
}

// bodies are what operations need to be asked for at all.
var bodies = map[string]string{
	"createSession": `{"profile_id":"shop_1"}`, "cloneProfile": `{"to":"shop_2"}`, "importProfile": `{"from":"/x"}`,
	"heartbeat": `{"lease_token":1}`, "step": `{"lease_token":1,"name":"n"}`, "checkpoint": `{"lease_token":1,"name":"n"}`, "event": `{"lease_token":1,"type":"t"}`,
	"releaseSession": `{"lease_token":1,"outcome":"succeeded"}`, "review": `{"lease_token":1,"decision":"keep","reviewer":"r"}`, "hold": `{"lease_token":1,"holder":"h"}`,
	"removeClone": `{"lease_token":1}`, "takeOver": `{"lease_token":1}`, "askPerson": `{"lease_token":1,"reason":"r"}`, "handBack": `{"lease_token":1}`,
	"putSite":    `{"origins":["https://shop.example"]}`,
	"teachSite":  `{"shape":"POST https://shop.example/x","is":"read"}`,
	"replaySite": `{"origins":["https://shop.example"]}`,
	"trySite":    `{"origins":["https://shop.example"],"profile_id":"shop"}`,
}

// lookups are the calls by which the surface finds out whose a thing is.
var lookups = []string{"Session", "Sessions", "SessionOf", "SessionByCapability", "EvidenceManifest", "Profile"}

// operation is one of the document, as a request.
type operation struct{ id, method, path string }

func operations(t *testing.T) []operation {
	t.Helper()
	var all []operation
	for pattern, item := range document(t).Paths.Map() {
		path := strings.NewReplacer("{profile}", "shop_1", "{capability}", capability, "{session}", "ses_1", "{target}", "T", "{evidence}", "e", "{part}", "x", "{id}", "i", "{site}", "shop", "{link}", "lnk_1").Replace(pattern)
		for method, op := range item.Operations() {
			query := "?worker=w&task=t"
			if strings.HasPrefix(path, "/any") {
				query += "&labels=region:us"
			}
			all = append(all, operation{op.OperationID, method, path + query})
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.id, b.id) })
	return all
}

// ask sends the operation.
func (f *fixture) ask(client *http.Client, o operation, headers ...string) (*http.Response, string) {
	f.t.Helper()
	path := o.path
	if slices.Contains([]string{"releaseSession", "createSession"}, o.id) || strings.HasPrefix(path, "/v1/") {
		path, _, _ = strings.Cut(path, "?")
	}
	r, err := http.NewRequestWithContext(f.t.Context(), o.method, f.URL+path, strings.NewReader(bodies[o.id]))
	if err != nil {
		f.t.Fatal(err)
	}
	if bodies[o.id] != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if strings.HasPrefix(o.id, "connect") {
		headers = append(headers, upgradeHeaders...)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := client.Transport.RoundTrip(r)
	if err != nil {
		f.t.Fatalf("%s: %v", o.id, err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatalf("%s: %v", o.id, err)
	}
	return response, string(b)
}

// people is a gate with a token for each role: NAME-match has the pattern shop_*, and
// NAME-other another. The token of a name is "token-of-NAME".
func people(t *testing.T) *principal.Gate {
	t.Helper()
	var file strings.Builder
	file.WriteString("tokens:\n")
	for _, role := range principal.Roles() {
		for _, p := range [][2]string{{"match", "shop_*"}, {"other", "bank_*"}} {
			name := fmt.Sprintf("%s-%s", role, p[0])
			fmt.Fprintf(&file, "  - {name: %s, sha256: \"%x\", role: %s, profiles: [\"%s\"]}\n", name, principal.Hash("token-of-"+name), role, p[1])
		}
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := principal.NewGate(principal.Options{Own: uint32(os.Geteuid()), File: path, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// ofShop has the fake know one session, of the opener, and one bundle, both of shop_1. All
// else it refuses.
func ofShop(opener string) map[string]any {
	answers := map[string]any{}
	for m := range reflect.TypeFor[api.Service]().Methods() {
		answers[m.Name] = api.Refuse(api.CodeNotFound, "asked for")
	}
	s := held
	s.ProfileID, s.Principal = "shop_1", opener
	answers["Session"], answers["Sessions"], answers["Version"] = s, []api.Session{s}, chromium
	answers["EvidenceManifest"] = json.RawMessage(`{"profile_id":"shop_1"}`)
	answers["ListProfiles"] = []api.Profile{{Record: lease.Record{ProfileID: "shop_1"}}, {Record: lease.Record{ProfileID: "bank_1"}}}
	return answers
}

// acted are the calls that are no lookups.
func (f *fixture) acted() []string {
	return slices.DeleteFunc(f.taken(), func(call string) bool {
		method, _, _ := strings.Cut(call, " ")
		return slices.Contains(lookups, method)
	})
}

func TestTheMatrixHasEveryOperation(t *testing.T) {
	var described []string
	for _, o := range operations(t) {
		described = append(described, o.id)
	}
	if rows := slices.Sorted(maps.Keys(matrix)); !slices.Equal(rows, described) {
		t.Errorf("rows for %v\nthe document has %v", rows, described)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	f := serve(t, Options{Gate: people(t), Metrics: http.NotFoundHandler(), Console: http.NotFoundHandler()}, nil)
	for _, o := range operations(t) {
		t.Run(o.id, func(t *testing.T) {
			row := matrix[o.id]
			for _, role := range principal.Roles() {
				for _, pattern := range []string{"match", "other"} {
					for _, own := range []bool{false, true} {
						name := fmt.Sprintf("%s-%s", role, pattern)
						opener := "somebody"
						if own {
							opener = name
						}
						f.mu.Lock()
						f.answers = ofShop(opener)
						f.mu.Unlock()
						has := func(roles string) bool { return slices.Contains(strings.Fields(roles), string(role)) }
						want := row.roles == "open" || (has(row.roles) || own && has(row.own)) && (row.about == "nothing" || row.about == "profile" && pattern == "match")
						r, body := f.ask(f.Client(), o, "Authorization: Bearer token-of-"+name)
						acted := f.acted()
						refused := r.StatusCode == 401 || r.StatusCode == 403
						if refused == want {
							t.Errorf("%s, own %v: %s %s, want allowed: %v", name, own, r.Status, body, want)
						}
						if !refused {
							continue
						}
						p := problemOf(t, r, body)
						if r.StatusCode != 403 || p.Code != api.CodeForbidden || len(acted) > 0 || !strings.Contains(p.Detail, name) {
							t.Errorf("%s: %s %s after %v, want 403 that names who is refused, and no call", name, r.Status, body, acted)
						}
					}
				}
			}
		})
	}
}

func TestStrangersGetNothing(t *testing.T) {
	stranger := otheruser.Client(otheruser.UID)
	plain := serve(t, Options{Metrics: http.NotFoundHandler(), Console: http.NotFoundHandler()}, ofShop("somebody"))
	behind := serve(t, Options{Gate: people(t), Metrics: http.NotFoundHandler(), Console: http.NotFoundHandler()}, ofShop("somebody"))
	for _, o := range operations(t) {
		t.Run(o.id, func(t *testing.T) {
			for _, c := range []struct {
				who    string
				f      *fixture
				client *http.Client
				header string
				says   string
				open   bool // for a capability: it is enough by itself
			}{
				{"another user", plain, stranger, "X: y", fmt.Sprintf("--allow-uid %d=worker:PATTERN", otheruser.UID), true},
				{"another user with a wrong token", plain, stranger, "Authorization: Bearer x", "the token is nobody's", false},
				{"the own user with a wrong token", plain, plain.Client(), "Authorization: Bearer x", "the token is nobody's", false},
				{"the own user through a proxy", behind, behind.Client(), "X-Forwarded-For: 10.0.0.1", "you come through a proxy", true},
			} {
				r, body := c.f.ask(c.client, o, c.header)
				acted := c.f.acted()
				if probe := o.id == "health" || o.id == "ready"; probe || matrix[o.id].roles == "open" && c.open {
					if r.StatusCode == 401 || r.StatusCode == 403 {
						t.Errorf("%s: %s %s, want that it is served", c.who, r.Status, body)
					}
					continue
				}
				if p := problemOf(t, r, body); r.StatusCode != 401 || p.Code != api.CodeUnauthenticated || !strings.Contains(p.Detail, c.says) || len(acted) > 0 {
					t.Errorf("%s: %s %s after %v, want 401 that says %q", c.who, r.Status, body, acted, c.says)
				}
			}
			if r, body := plain.ask(plain.Client(), o); r.StatusCode == 401 || r.StatusCode == 403 {
				t.Errorf("the own user: %s %s, want that it is served", r.Status, body)
			}
			plain.taken()
		})
	}
}

func TestADedicatedPortServesItsUser(t *testing.T) {
	opener := uint32(otheruser.UID)
	of := func(uid *uint32) map[string]any {
		s := held
		s.OpenerUID = uid
		return map[string]any{"Session": s, "Version": chromium, "Targets": []api.Target{}, "Protocol": json.RawMessage(`{}`)}
	}
	dedicated := func(svc api.Service, o Options) http.Handler { return Dedicated(svc, "ses_1", o) }
	allowed, err := principal.ParseUser("54322=admin")
	if err != nil {
		t.Fatal(err)
	}
	worker, err := principal.ParseUser("54323=worker:*")
	if err != nil {
		t.Fatal(err)
	}
	banker, err := principal.ParseUser("54325=admin:bank_*")
	if err != nil {
		t.Fatal(err)
	}
	g, err := principal.NewGate(principal.Options{Own: 1000, Users: []principal.Principal{allowed, worker, banker}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who    string
		uid    uint32
		opener *uint32
		served bool
	}{
		{"who opened it", otheruser.UID, &opener, true},
		{"root", 0, &opener, true},
		{"the sidecar's own user", 1000, &opener, true},
		{"another admin", 54322, &opener, true},
		{"an admin of other profiles", 54325, &opener, false},
		{"another worker", 54323, &opener, false},
		{"somebody", 54324, &opener, false},
		{"somebody, where nobody knows who opened it", otheruser.UID, nil, false},
	} {
		t.Run(c.who, func(t *testing.T) {
			f := serveWith(t, Options{Gate: g}, of(c.opener), dedicated)
			client := otheruser.Client(c.uid)
			for _, o := range []operation{
				{"version", "GET", "/json/version"}, {"list", "GET", "/json/list"}, {"protocol", "GET", "/json/protocol"}, {"close", "GET", "/json/close/T"},
				{"new", "PUT", "/json/new"}, {"connect", "GET", "/devtools/browser/x"}, {"connectPage", "GET", "/devtools/page/T"},
			} {
				f.mu.Lock()
				f.answers["Connect"], f.answers["CloseTarget"], f.answers["NewTarget"] = api.Refuse(api.CodeNotFound, "x"), nil, api.Target{}
				f.mu.Unlock()
				r, body := f.ask(client, o)
				acted := f.acted()
				if served := r.StatusCode != 401 && r.StatusCode != 403; served != c.served || !served && len(acted) > 0 {
					t.Errorf("%s: %s %s after %v, want served: %v", o.id, r.Status, body, acted, c.served)
				}
			}
		})
	}
}
