// Package api is the outside contract of the sidecar in Go types: the manifest that a worker
// sends, the answers and refusals that it gets, and the Service that the launcher offers to its
// HTTP and console packages. The command line, which is a client, uses the same types.
package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"leasehold/internal/members"
	"leasehold/lease"
)

// Duration is a length of time, in JSON and in queries as lease.ParseDuration reads it.
type Duration = lease.Duration

// The values of Manifest.Heartbeat (how a worker proves that it lives), OnClose and
// OnDrop (what the end of its last connection means) and SessionCookies.
const (
	HeartbeatConnection = "connection"
	HeartbeatExplicit   = "explicit"

	OnCloseRelease = "release"
	OnCloseKeep    = "keep"
	OnDropLost     = "lost"
	OnDropRelease  = "release"

	CookiesKeep = "keep"
	CookiesDrop = "drop"
)

// Manifest is a task's request for a profile. The zero value of a field means its
// default. A manifest can narrow the settings of the profile itself, never widen them.
type Manifest struct {
	TaskID   string `json:"task_id,omitempty"`
	WorkerID string `json:"worker_id,omitempty"`
	// ProfileID is empty in a request for any profile that has the account and the labels.
	ProfileID string       `json:"profile_id,omitempty"`
	AccountID string       `json:"account_id,omitempty"`
	Labels    lease.Labels `json:"labels,omitempty"`
	ProxyID   string       `json:"proxy_id,omitempty"`

	RequiresExclusiveProfileLock *bool    `json:"requires_exclusive_profile_lock,omitempty"`
	Wait                         Duration `json:"wait,omitempty"`
	Priority                     int      `json:"priority,omitempty"`
	// Turn is the turn of an earlier request, whose place in the queue this one takes over.
	Turn               string   `json:"turn,omitempty"`
	LockTimeoutSeconds float64  `json:"lock_timeout_seconds,omitempty"`
	AllowedActions     []string `json:"allowed_actions,omitempty"`
	// ReadOnly keeps the session's pages to reading. If it is nil, the profile's setting
	// applies, and an ephemeral session is read-only.
	ReadOnly                  *bool    `json:"read_only,omitempty"`
	FenceHeaderOrigins        []string `json:"fence_header_origins,omitempty"`
	HumanReviewOnLockConflict bool     `json:"human_review_on_lock_conflict,omitempty"`
	Resumable                 bool     `json:"resumable,omitempty"`
	ExpectedDomains           []string `json:"expected_domains,omitempty"`
	SensitiveURLs             []string `json:"sensitive_urls,omitempty"`
	SensitiveWords            []string `json:"sensitive_words,omitempty"`
	Heartbeat                 string   `json:"heartbeat,omitempty"`
	OnClose                   string   `json:"on_close,omitempty"`
	OnDrop                    string   `json:"on_drop,omitempty"`
	Create                    bool     `json:"create,omitempty"`
	Headless                  *bool    `json:"headless,omitempty"`
	ChromeArgs                []string `json:"chrome_args,omitempty"`
	DedicatedPort             bool     `json:"dedicated_port,omitempty"`
	SessionCookies            string   `json:"session_cookies,omitempty"`
	KeepWarm                  *bool    `json:"keep_warm,omitempty"`
	// SignIn says that the task is to sign the account in: it gets a profile that is known to be
	// signed out.
	SignIn bool `json:"sign_in,omitempty"`
	// Ephemeral asks for a browser on a throwaway copy of the profile's newest snapshot,
	// without the profile's lease.
	Ephemeral bool `json:"ephemeral,omitempty"`

	// OneShot says that the request came with a websocket upgrade: it joins a living
	// session of the same worker and task, and closing the connection ends the session.
	OneShot bool `json:"-"`
	// Opener is the part of the principal that is kept: name and user. The launcher sets it.
	Opener Opener `json:"-"`
	// ByHand is set if a person asks. It cannot be set in a manifest that comes in from
	// outside.
	ByHand *ByHand `json:"-"`
}

// Opener is the principal that opened a session.
type Opener struct {
	// Name is the name of the principal; empty if it is not known.
	Name string
	// UID is the user on this host; nil if the kernel does not know it.
	UID *uint32
	// Manages says that it may change profiles, and GivesAccount that it may give one the manifest's account. Neither
	// is kept.
	Manages, GivesAccount bool
}

// ByHand is the person who uses a profile by hand.
type ByHand struct {
	Holder string `json:"holder"`
	Note   string `json:"note,omitempty"`
	// TokenSeen is the profile's lease token as the person saw it.
	TokenSeen lease.Token `json:"lease_token"`
	// SignInLink is the id of the sign-in link by which the person came; empty: they came by no
	// link.
	SignInLink string `json:"sign_in_link,omitempty"`
}

// MaxWait bounds how long a request may wait for a lease.
const MaxWait = 10 * time.Minute

// ReadManifest reads a JSON manifest. A field that is not known, or has the
// wrong type, is an invalid_request problem that names it.
func ReadManifest(r io.Reader) (Manifest, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return Manifest{}, Invalid("", "the manifest cannot be read: %v", err)
	}
	var m Manifest
	err = DecodeBody(b, &m, "manifest")
	return m, err
}

// decodeProblem turns an error of encoding/json into a refusal that names the
// field.
func decodeProblem(err error, what string) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return Invalid(strings.TrimPrefix(wrong.Field, "Write."), "want %s, got %s", wanted(wrong.Type), wrong.Value)
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		field := strings.Trim(strings.TrimPrefix(err.Error(), "json: unknown field "), `"`)
		return Invalid(field, "the %s has no such field", what)
	case errors.Is(err, io.EOF):
		return Invalid("", "the body is empty: want a JSON object, the %s", what)
	default:
		return Invalid("", "the %s is not valid JSON: %v", what, err)
	}
}

// wanted describes the values of a type in JSON.
func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[time.Duration]() {
		return `a length of time such as "10s", or a number of seconds`
	}
	if t == reflect.TypeFor[Idempotent]() {
		return `a list of shapes such as "POST /votes", or true or false`
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "another type"
}

// DecodeBody reads one JSON object into v. A field that is not known, has the wrong type, or is there twice, is
// an invalid_request problem that names it. what is the name of the object in refusals.
func DecodeBody(body []byte, v any, what string) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return decodeProblem(err, what)
	}
	if d.More() {
		return Invalid("", "something follows the %s: want one JSON object", what)
	}
	if name := members.Doubled(body, reflect.TypeOf(v)); name != "" { // the decoder would mix both
		return Invalid(name, "it is there twice: want it once")
	}
	return nil
}

// queryNames maps the short names that one-shot URLs allow to those of the manifest.
var queryNames = map[string]string{"worker": "worker_id", "task": "task_id", "account": "account_id", "proxy": "proxy_id", "label": "labels"}

// ManifestFromQuery reads the options of a one-shot URL. Its query parameters have the
// manifest's names, or worker, task, account and proxy for short; lists are separated by
// commas. A parameter that is not known, or has the wrong type, is an invalid_request
// problem that names it.
func ManifestFromQuery(profile string, q url.Values) (Manifest, error) {
	fields := map[string]any{}
	for name, values := range q {
		if long, ok := queryNames[name]; ok {
			name = long
		}
		kind, known := manifestKinds[name]
		_, twice := fields[name]
		switch {
		case twice:
			return Manifest{}, Invalid(name, "given by its long and its short name: want one")
		case !known || name == "profile_id":
			return Manifest{}, Invalid(name, "the manifest has no such field")
		case len(values) > 1 && kind != reflect.Slice && kind != reflect.Map:
			return Manifest{}, Invalid(name, "given %d times: want it once", len(values))
		}
		v, err := queryValue(kind, values)
		if err != nil {
			return Manifest{}, Invalid(name, "%v", err)
		}
		fields[name] = v
	}
	fields["profile_id"] = profile
	b, err := json.Marshal(fields)
	if err != nil {
		return Manifest{}, Invalid("", "%v", err)
	}
	return ReadManifest(bytes.NewReader(b))
}

// queryValue reads a query parameter as a value of the kind that its field in the manifest has.
func queryValue(kind reflect.Kind, values []string) (any, error) {
	value := values[len(values)-1]
	switch kind {
	case reflect.Slice:
		return strings.FieldsFunc(strings.Join(values, ","), func(r rune) bool { return r == ',' }), nil
	case reflect.Map:
		return lease.ParseLabels(strings.FieldsFunc(strings.Join(values, ","), func(r rune) bool { return r == ',' }))
	case reflect.Int:
		i, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("%q: want a whole number", value)
		}
		return i, nil
	case reflect.Bool:
		if value == "" {
			return true, nil
		}
		b, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("%q: want true or false", value)
		}
		return b, nil
	case reflect.Float64:
		f, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: want a number", value)
		}
		return f, nil
	default:
		return value, nil
	}
}

// Query writes the manifest, without its profile, as ManifestFromQuery reads it.
func (m Manifest) Query() url.Values {
	q := url.Values{}
	v, t := reflect.ValueOf(m), reflect.TypeFor[Manifest]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		f := v.Field(i)
		if name == "-" || name == "profile_id" || f.IsZero() {
			continue
		}
		for short, long := range queryNames {
			if long == name && (short == "worker" || short == "task") {
				name = short
			}
		}
		if f.Kind() == reflect.Pointer {
			f = f.Elem()
		}
		switch x := f.Interface().(type) {
		case []string:
			q.Set(name, strings.Join(x, ","))
		case lease.Labels:
			q.Set(name, strings.Join(x.Texts(), ","))
		case Duration:
			q.Set(name, time.Duration(x).String())
		default:
			q.Set(name, fmt.Sprint(x))
		}
	}
	return q
}

// manifestKinds maps the JSON name of each field of the manifest to the kind of its
// value.
var manifestKinds = func() map[string]reflect.Kind {
	kinds := map[string]reflect.Kind{}
	t := reflect.TypeFor[Manifest]()
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := f.Type.Kind()
		if kind == reflect.Pointer {
			kind = f.Type.Elem().Kind()
		}
		if name != "-" {
			kinds[name] = kind
		}
	}
	return kinds
}()

// Exclusive reports whether the task wants the profile to itself. One that drops session cookies
// does: in a browser that it shared, it would drop those of the others.
func (m Manifest) Exclusive() bool {
	return m.RequiresExclusiveProfileLock == nil || *m.RequiresExclusiveProfileLock || m.SessionCookies == CookiesDrop
}

// Check returns an invalid_request problem for the first field whose value is not
// allowed.
func (m Manifest) Check() error {
	if err := m.checkEphemeral(); err != nil {
		return err
	}
	if err := m.checkProfile(); err != nil {
		return err
	}
	for _, f := range []struct{ name, value string }{
		{"worker_id", m.WorkerID}, {"task_id", m.TaskID}, {"account_id", m.AccountID}, {"proxy_id", m.ProxyID},
	} {
		if err := CheckName(f.name, f.value); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name, value string
		want        []string
	}{
		{"heartbeat", m.Heartbeat, []string{HeartbeatConnection, HeartbeatExplicit}},
		{"on_close", m.OnClose, []string{OnCloseRelease, OnCloseKeep}},
		{"on_drop", m.OnDrop, []string{OnDropLost, OnDropRelease}},
		{"session_cookies", m.SessionCookies, []string{CookiesKeep, CookiesDrop}},
	} {
		if f.value != "" && !slices.Contains(f.want, f.value) {
			return Invalid(f.name, "%q: want %s", f.value, strings.Join(f.want, " or "))
		}
	}
	switch {
	case m.Priority < lease.MinPriority || m.Priority > lease.MaxPriority:
		return Invalid("priority", "%d: want %d to %d", m.Priority, lease.MinPriority, lease.MaxPriority)
	case len(m.Turn) > maxTurn:
		return Invalid("turn", "want the turn of the answer before")
	case time.Duration(m.Wait) > MaxWait:
		return Invalid("wait", "want at most %v", MaxWait)
	case m.LockTimeoutSeconds < 0 || m.LockTimeoutSeconds > 1e7:
		return Invalid("lock_timeout_seconds", "want 0 (none) to 10000000")
	}
	return m.checkSize()
}

// WantsReadOnly tells whether the task's pages are to be kept to reading, whatever the
// profile's setting is.
func (m Manifest) WantsReadOnly() bool {
	if m.ReadOnly == nil {
		return m.Ephemeral
	}
	return *m.ReadOnly
}

// checkEphemeral refuses what makes no sense for an ephemeral session: such a session is never
// shared, and nothing of it is kept.
func (m Manifest) checkEphemeral() error {
	if !m.Ephemeral {
		return nil
	}
	for _, f := range []struct {
		name  string
		given bool
		why   string
	}{
		{"requires_exclusive_profile_lock", m.RequiresExclusiveProfileLock != nil, "an ephemeral session holds no lock: leave it out"},
		{"create", m.Create, "an ephemeral session is of a profile that has a snapshot: none is made"},
		{"resumable", m.Resumable, "nothing of an ephemeral session is kept, so that it cannot be resumed"},
		{"keep_warm", m.KeepWarm != nil, "the browser of an ephemeral session is of no use to another task"},
		{"human_review_on_lock_conflict", m.HumanReviewOnLockConflict, "an ephemeral session has no conflict with others"},
		{"fence_header_origins", len(m.FenceHeaderOrigins) > 0, "an ephemeral session has no lease, and so no token to show"},
		{"turn", m.Turn != "", "an ephemeral session does not wait for the profile"},
	} {
		if f.given {
			return Invalid(f.name, "%s (ephemeral)", f.why)
		}
	}
	return nil
}

// maxTurn bounds Manifest.Turn, in bytes.
const maxTurn = 64

// AnyProfile tells whether the manifest asks for any profile that fits.
func (m Manifest) AnyProfile() bool {
	return m.ProfileID == "" && (m.AccountID != "" || len(m.Labels) > 0)
}

// checkProfile refuses a manifest that does not say which profile it wants.
func (m Manifest) checkProfile() error {
	if !m.AnyProfile() {
		if err := lease.CheckProfileID(m.ProfileID); err != nil {
			return Invalid("profile_id", "%v; or account_id or labels instead, for any profile that has them", err)
		}
	}
	switch err := m.Labels.CheckAsked(); {
	case err != nil:
		return Invalid("labels", "%v", err)
	case m.ProfileID != "" && len(m.Labels) > 0:
		return Invalid("labels", "they choose a profile, and profile_id names one: want one of the two")
	case m.ProfileID == "" && m.Create:
		return Invalid("create", "no profile is made of labels or an account: name it, profile_id")
	}
	return nil
}
