package httpapi

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"leasehold/checkpoint/site"
	"leasehold/launcher/api"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// readOnce reads the description. Under the race detector that takes a fifth of a second.
var readOnce = sync.OnceValues(func() (*openapi3.T, error) { return openapi3.NewLoader().LoadFromData(description) })

// document is the description, which all tests share.
func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := readOnce()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDescriptionIsValid(t *testing.T) {
	doc := document(t)
	if !doc.IsOpenAPI31OrLater() {
		t.Errorf("openapi %s, want 3.1", doc.OpenAPI)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableSchemaPatternValidation(), openapi3.EnableSchemaDefaultsValidation()); err != nil {
		t.Error(err)
	}
}

func TestDescriptionHasEveryRouteAndNoOther(t *testing.T) {
	doc := document(t)
	served, described := map[string]bool{}, map[string]bool{}
	for _, rt := range publicRoutes() {
		served[rt.method+" "+rt.pattern] = true
		item := doc.Paths.Value(rt.pattern)
		if item == nil || item.GetOperation(rt.method) == nil {
			t.Errorf("%s %s is served, not described", rt.method, rt.pattern)
			continue
		}
		op := item.GetOperation(rt.method)
		open := op.Security != nil && len(*op.Security) == 1 && len((*op.Security)[0]) == 0
		if open != (rt.access.proof != byPrincipal) {
			t.Errorf("%s %s: described as open: %v, served with access %d", rt.method, rt.pattern, open, rt.access.proof)
		}
		if upgrades := op.Responses.Value("101") != nil; upgrades != rt.websocket {
			t.Errorf("%s %s: described as a websocket: %v", rt.method, rt.pattern, upgrades)
		}
	}
	ids := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			described[method+" "+path] = true
			if ids[op.OperationID] || op.OperationID == "" {
				t.Errorf("%s %s: operationId %q is not unique", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(described)) {
		if !served[name] {
			t.Errorf("%s is described, not served", name)
		}
	}
}

// TestDescriptionFollowsTheTypes compares the members of each schema with those
// of the type that is sent or read.
func TestDescriptionFollowsTheTypes(t *testing.T) {
	doc := document(t)
	for name, v := range map[string]any{
		"Manifest": api.Manifest{}, "Waiting": api.Waiting{}, "Session": api.Session{}, "Resume": api.Resume{}, "Heartbeat": api.Heartbeat{}, "Step": api.Step{},
		"Checkpoint": api.Checkpoint{}, "TaskEvent": api.TaskEvent{}, "Person": api.Person{}, "TakeOver": api.TakeOver{}, "HandBack": api.HandBack{}, "AskPerson": api.AskPerson{}, "Ask": api.Ask{}, "Answer": api.Answer{}, "Release": api.Release{}, "Record": api.Profile{}, "Run": lease.Run{},
		"Review": lease.Review{}, "Event": lease.Event{}, "Bundle": api.Bundle{}, "Part": api.Part{}, "Inspection": api.Inspection{},
		"Fact": api.Fact{}, "UnsafeRequest": api.UnsafeRequest{}, "Typed": api.Typed{}, "Objection": api.Objection{}, "BundlePage": api.BundlePage{}, "BundlePicture": api.BundlePicture{}, "ReviewRequest": api.ReviewRequest{}, "ProfileSettings": api.ProfileSettings{},
		"ProfileImport": api.ProfileImport{}, "ProfileClone": api.ProfileClone{}, "ProfileArchive": api.ProfileArchive{}, "Archived": api.Archived{}, "Snapshot": api.Snapshot{}, "Snapshots": list[api.Snapshot]{}, "ProfileRestore": api.ProfileRestore{}, "Restored": api.Restored{}, "ProfileVerify": api.ProfileVerify{}, "SnapshotsChecked": api.SnapshotsChecked{}, "CheckedSnapshot": snapshots.CheckedSnapshot{}, "ProfileRemove": api.ProfileRemove{}, "Removed": api.Removed{}, "SessionCheck": lease.SessionCheck{}, "SessionChecked": api.SessionChecked{}, "Site": api.Site{}, "SiteSummary": api.SiteSummary{}, "SiteShape": api.SiteShape{}, "SitePut": api.SitePut{}, "SiteTeaching": api.SiteTeaching{}, "SiteTry": api.SiteTry{}, "SiteTried": api.SiteTried{}, "QuestionTried": api.QuestionTried{}, "SiteReplay": api.SiteReplay{}, "SiteReplayed": api.SiteReplayed{}, "IncidentReplayed": api.IncidentReplayed{}, "SiteRemoved": api.SiteRemoved{}, "SignInLinkRequest": api.SignInLinkRequest{}, "SignInLink": api.SignInLink{}, "SignInRevoked": api.SignInRevoked{}, "SignInChecked": api.SignInChecked{}, "SignInSession": api.SignInSession{}, "SiteLine": site.Line{}, "SiteProbe": site.Probe{}, "Target": target{},
	} {
		schema := doc.Components.Schemas[name]
		if schema == nil {
			t.Errorf("%s is not described", name)
			continue
		}
		want := members(reflect.TypeOf(v))
		if name == "Record" { // Record.Public clears these
			want = slices.DeleteFunc(want, func(m string) bool { return m == "nonce" || m == "outbox" })
		}
		got := slices.Sorted(maps.Keys(schema.Value.Properties))
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s is described with %v, has %v", name, got, want)
		}
	}
}

// TestDescriptionHasEveryProblem: a client made from the description knows each code that is answered.
func TestDescriptionHasEveryProblem(t *testing.T) {
	var got []string
	for _, code := range document(t).Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		got = append(got, code.(string))
	}
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys(api.Meanings)); !slices.Equal(got, want) {
		t.Errorf("described are the codes %v, there are %v", got, want)
	}
}

func members(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, members(f.Type)...)
		case name != "-":
			names = append(names, name)
		}
	}
	return names
}

func TestDescriptionIsOneDocument(t *testing.T) {
	if !json.Valid(description) {
		t.Error("openapi.json is not JSON")
	}
	for _, unused := range unusedComponents(t) {
		t.Errorf("%s is described, and nothing refers to it", unused)
	}
}

func unusedComponents(t *testing.T) []string {
	t.Helper()
	var doc struct {
		Components map[string]map[string]json.RawMessage `json:"components"`
	}
	if err := json.Unmarshal(description, &doc); err != nil {
		t.Fatal(err)
	}
	var unused []string
	for kind, named := range doc.Components {
		for name := range named {
			if kind != "securitySchemes" && !strings.Contains(string(description), `"#/components/`+kind+`/`+name+`"`) {
				unused = append(unused, kind+"/"+name)
			}
		}
	}
	return unused
}
