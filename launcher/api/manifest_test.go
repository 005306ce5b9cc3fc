package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"leasehold/checkpoint/site"
	"leasehold/lease"
)

func TestManifestFromQuery(t *testing.T) {
	yes := true
	for _, tt := range []struct {
		query string
		want  Manifest
		field string // of the refusal; "-": none is named
	}{
		{"worker=w&task=t", Manifest{WorkerID: "w", TaskID: "t"}, ""},
		{"worker_id=w&wait=10s&create=true&expected_domains=a.example,b.example", Manifest{WorkerID: "w", Wait: Duration(10 * time.Second), Create: true, ExpectedDomains: []string{"a.example", "b.example"}}, ""},
		{"wait=2.5&headless=1&lock_timeout_seconds=900&resumable", Manifest{Wait: Duration(2500 * time.Millisecond), Headless: &yes, LockTimeoutSeconds: 900, Resumable: true}, ""},
		{"labels=region:us-*,tier:1&priority=-2&turn=x", Manifest{Labels: lease.Labels{"region": "us-*", "tier": "1"}, Priority: -2, Turn: "x"}, ""},
		{"label=a:b&label=c:", Manifest{Labels: lease.Labels{"a": "b", "c": ""}}, ""},
		{"labels=us", Manifest{}, "labels"},
		{"priority=high", Manifest{}, "priority"},
		{"token=secret&task=t", Manifest{}, "token"},
		{"colour=red", Manifest{}, "colour"},
		{"wait=soon", Manifest{}, "wait"},
		{"wait=-1s", Manifest{}, "wait"},
		{"create=perhaps", Manifest{}, "create"},
		{"worker=a&worker=b", Manifest{}, "worker_id"},
		{"worker=a&worker_id=b", Manifest{}, "worker_id"},
		{"profile_id=other", Manifest{}, "profile_id"},
		{"lock_timeout_seconds=x", Manifest{}, "lock_timeout_seconds"},
	} {
		q, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ManifestFromQuery("p", q)
		var p *Problem
		switch {
		case tt.field != "":
			if !errors.As(err, &p) || p.Field != tt.field || p.Status != 400 {
				t.Errorf("%s: %v, want a refusal of %s", tt.query, err, tt.field)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.query, err)
		default:
			tt.want.ProfileID = "p"
			if !reflect.DeepEqual(m, tt.want) {
				t.Errorf("%s: %+v", tt.query, m)
			}
			again, err := ManifestFromQuery("p", m.Query())
			if err != nil || !reflect.DeepEqual(again, m) {
				t.Errorf("%s comes back as %+v, %v", m.Query().Encode(), again, err)
			}
		}
	}
}

// A manifest names a profile, or says which would do.
func TestWhichProfileAManifestIsFor(t *testing.T) {
	us := lease.Labels{"region": "us"}
	for name, tt := range map[string]struct {
		m     Manifest
		any   bool
		field string // of the refusal
	}{
		"a profile":                 {Manifest{ProfileID: "p"}, false, ""},
		"a profile of an account":   {Manifest{ProfileID: "p", AccountID: "a"}, false, ""},
		"an account":                {Manifest{AccountID: "a"}, true, ""},
		"labels":                    {Manifest{Labels: us, AccountID: "a", Priority: 5}, true, ""},
		"nothing":                   {Manifest{}, false, "profile_id"},
		"both":                      {Manifest{ProfileID: "p", Labels: us}, false, "labels"},
		"to be made":                {Manifest{Labels: us, Create: true}, true, "create"},
		"a label that none can be":  {Manifest{Labels: lease.Labels{"a b": "c"}}, true, "labels"},
		"a priority that none has":  {Manifest{ProfileID: "p", Priority: 6}, false, "priority"},
		"a priority below the last": {Manifest{ProfileID: "p", Priority: -6}, false, "priority"},
		"a turn that none is":       {Manifest{ProfileID: "p", Turn: strings.Repeat("x", 65)}, false, "turn"},
	} {
		var p *Problem
		err := tt.m.Check()
		if tt.m.AnyProfile() != tt.any || (tt.field == "") != (err == nil) || err != nil && (!errors.As(err, &p) || p.Field != tt.field) {
			t.Errorf("%s: %v, any %v", name, err, tt.m.AnyProfile())
		}
	}
}

func TestReadManifestNamesTheField(t *testing.T) {
	for body, field := range map[string]string{
		`{"profile_id":7}`: "profile_id", `{"colour":1}`: "colour", `{"wait":"soon"}`: "wait", `{"wait":{}}`: "wait",
		`{"create":"yes"}`: "create", `{} {}`: "", ``: "", `[`: "",
	} {
		_, err := ReadManifest(strings.NewReader(body))
		var p *Problem
		if !errors.As(err, &p) || p.Field != field || p.Code != CodeInvalidRequest {
			t.Errorf("%s: %v (field %q), want field %q", body, err, p.Field, field)
		}
	}
}

// TestABodyHasEachMemberOnce: of one that is there twice the decoder would mix both, so that what a line of the first
// says is repeatable would make one of the second repeatable.
func TestABodyHasEachMemberOnce(t *testing.T) {
	for body, field := range map[string]string{
		`{"requests":[{"shape":"POST /a","is":"write","repeatable":true}],"requests":[{"shape":"POST /pay","is":"write"}]}`: "requests",
		`{"requests":[{"shape":"POST /a","is":"write","repeatable":true}],"Requests":[{"shape":"POST /pay","is":"write"}]}`: "Requests",
		`{"requests":[{"shape":"POST /a","is":"read","is":"write"}]}`:                                                       "requests[0].is",
		`{"requests":[{"shape":"POST /a","is":"write","where":{"a":"1","A":"2"}}]}`:                                         "",
	} {
		var f site.File
		err := DecodeBody([]byte(body), &f, "file")
		var p *Problem
		if errors.As(err, &p); (p == nil) != (field == "") || p != nil && (p.Field != field || p.Code != CodeInvalidRequest) {
			t.Errorf("%s: %+v, %v; want a refusal that names %q", body, f.Requests, err, field)
		}
	}
}

func TestProblemComesBack(t *testing.T) {
	p := Refuse(CodeConflict, "held by %s", "w").With("current_worker_id", "w")
	p.RetryAfter = 3
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var q Problem
	if err := json.Unmarshal(b, &q); err != nil || !reflect.DeepEqual(*p, q) {
		t.Errorf("%s\n%+v\n%+v %v", b, *p, q, err)
	}
	for code, status := range statuses {
		if code == "" || status < 400 {
			t.Errorf("%s has status %d", code, status)
		}
	}
}

func FuzzManifestFromQuery(f *testing.F) {
	for _, s := range []string{
		"worker=w&wait=1s&expected_domains=a,b&create", "", "worker=w&worker=x", "wait=-1s", "wait=9999999h", "ttl=30", "create=maybe", "no_such_name=1",
		"account_id=%00&proxy_id=%ff", "expected_domains=,,a,", "a=%zz&b=;&c", "on_drop=recover&on_close=release&max_active_runs=2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		m, err := ManifestFromQuery("p", q)
		var p *Problem
		if err != nil && !errors.As(err, &p) {
			t.Fatalf("%q: %v is no refusal", raw, err)
		}
		if err == nil && m.ProfileID != "p" {
			t.Fatalf("%q changed the profile to %q", raw, m.ProfileID)
		}
	})
}

// Refusals speak of JSON, and not of Go.
// TestAProblemKeepsTheWordsAroundIt: they say what the problem alone does not.
func TestAProblemKeepsTheWordsAroundIt(t *testing.T) {
	inner := Refuse(CodeStoreUnavailable, "the store does not answer").With("reason", "away")
	got, ok := ProblemIn(fmt.Errorf("it is not known whether it came: %w", errors.Join(inner, io.ErrUnexpectedEOF)))
	if want := "it is not known whether it came: the store does not answer\nunexpected EOF"; !ok || got.Detail != want || got.Code != inner.Code || got.More["reason"] != "away" {
		t.Errorf("%+v, want the detail %q", got, want)
	}
	if inner.Detail != "the store does not answer" {
		t.Errorf("the wrapped problem became %+v", inner)
	}
	if got, ok := ProblemIn(io.EOF); ok {
		t.Errorf("an error without a problem: %+v", got)
	}
}

func TestRefusalsSayWhatIsWanted(t *testing.T) {
	for body, want := range map[string]string{
		`{"wait":"soon"}`:                 `wait: want a length of time such as "10s", or a number of seconds, got "soon"`,
		`{"create":"yes"}`:                "create: want true or false, got string",
		`{"worker_id":7}`:                 "worker_id: want a text, got number",
		`{"allowed_actions":"pay"}`:       "allowed_actions: want a list, got string",
		`{"lock_timeout_seconds":"long"}`: "lock_timeout_seconds: want a number, got string",
		`[]`:                              "want an object, got array",
	} {
		var m Manifest
		var p *Problem
		if err := DecodeBody([]byte(body), &m, "manifest"); !errors.As(err, &p) || p.Detail != want {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
