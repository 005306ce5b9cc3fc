package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// Problem is a refusal: application/problem+json as in RFC 9457, with a stable code. Every
// Service method returns it as its error if the caller can correct the request, or can wait.
type Problem struct {
	Status int
	Code   string
	Detail string
	// Field is the name of the wrong request field, for invalid_request.
	Field string
	// RetryAfter is in seconds; zero means that there is no advice.
	RetryAfter int
	// More are the further members that belong to the code (current_worker_id, ...).
	More map[string]any
}

// The stable codes. Each has an HTTP status.
const (
	CodeInvalidRequest     = "invalid_request"
	CodeUnauthenticated    = "unauthenticated"
	CodeForbidden          = "forbidden"
	CodeUnknownProfile     = "unknown_profile"
	CodeUnknownSession     = "unknown_session"
	CodeNotFound           = "not_found"
	CodeActionNotAllowed   = "action_not_allowed"
	CodeConflict           = "profile_lock_conflict"
	CodeStaleToken         = "stale_lease_token"
	CodeProxyChanged       = "proxy_mapping_changed"
	CodeAccountMismatch    = "account_mismatch"
	CodeBrowserOlder       = "browser_older_than_profile"
	CodeNotInReview        = "profile_not_in_review"
	CodeTakenOver          = "session_taken_over"
	CodeNotTakenOver       = "session_not_taken_over"
	CodeStandsStill        = "session_stands_still"
	CodeAsksAlready        = "session_asks_already"
	CodeSessionEnded       = "session_ended"
	CodeWrongHome          = "wrong_home"
	CodeQuarantined        = "profile_quarantined"
	CodeInReview           = "profile_in_review"
	CodeResumePending      = "profile_resume_pending"
	CodeCoolingDown        = "profile_cooling_down"
	CodeSignedOut          = "profile_signed_out"
	CodeHostFull           = "host_full"
	CodeInternal           = "internal_error"
	CodeBrowserStartFailed = "browser_start_failed"
	CodeStoreUnavailable   = "lease_store_unavailable"
	CodeShuttingDown       = "launcher_shutting_down"
	CodeWaitTimeout        = "wait_timeout"
	CodeEvidenceDamaged    = "evidence_damaged"
	CodeEvidenceEncrypted  = "evidence_encrypted"
	CodeEvidenceStore      = "evidence_store_unavailable"
	CodeSnapshotDamaged    = "snapshot_damaged"
	CodeNoSnapshot         = "no_snapshot"
	CodeNoProfileStore     = "no_profile_store"
	CodeEphemeral          = "ephemeral_session"
	CodeSnapshotUnusable   = "snapshot_unusable"
	CodeProfileStore       = "profile_store_unavailable"
	CodeTooManyStreams     = "too_many_streams"
	CodeTooManyViewers     = "too_many_viewers"
	CodeSiteChanged        = "site_changed"
)

// ReasonServers is the "reason" of lease_store_unavailable while the servers of NATS are not one
// store.
const ReasonServers = "nats_servers"

var statuses = map[string]int{
	CodeInvalidRequest: http.StatusBadRequest, CodeUnauthenticated: http.StatusUnauthorized,
	CodeForbidden: http.StatusForbidden, CodeUnknownProfile: http.StatusNotFound,
	CodeActionNotAllowed: http.StatusForbidden,
	CodeUnknownSession:   http.StatusNotFound, CodeNotFound: http.StatusNotFound,
	CodeConflict: http.StatusConflict, CodeStaleToken: http.StatusConflict,
	CodeProxyChanged: http.StatusConflict, CodeAccountMismatch: http.StatusConflict, CodeBrowserOlder: http.StatusConflict,
	CodeTakenOver: http.StatusConflict, CodeNotTakenOver: http.StatusConflict, CodeStandsStill: http.StatusConflict, CodeAsksAlready: http.StatusConflict,
	CodeNotInReview: http.StatusConflict, CodeSessionEnded: http.StatusGone,
	CodeWrongHome: http.StatusMisdirectedRequest, CodeQuarantined: http.StatusLocked,
	CodeInReview: http.StatusLocked, CodeResumePending: http.StatusLocked,
	CodeCoolingDown: http.StatusLocked, CodeSignedOut: http.StatusLocked, CodeHostFull: http.StatusTooManyRequests,
	CodeInternal: http.StatusInternalServerError, CodeBrowserStartFailed: http.StatusBadGateway,
	CodeStoreUnavailable: http.StatusServiceUnavailable, CodeShuttingDown: http.StatusServiceUnavailable,
	CodeWaitTimeout: http.StatusGatewayTimeout, CodeEvidenceDamaged: http.StatusInternalServerError,
	CodeSnapshotDamaged: http.StatusInternalServerError, CodeSnapshotUnusable: http.StatusConflict, CodeProfileStore: http.StatusServiceUnavailable,
	CodeNoSnapshot: http.StatusConflict, CodeNoProfileStore: http.StatusConflict, CodeEphemeral: http.StatusConflict,
	CodeEvidenceEncrypted: http.StatusForbidden, CodeEvidenceStore: http.StatusServiceUnavailable, CodeTooManyStreams: http.StatusTooManyRequests,
	CodeTooManyViewers: http.StatusTooManyRequests, CodeSiteChanged: http.StatusConflict,
}

// Refuse makes a problem with the status of its code.
func Refuse(code, format string, args ...any) *Problem {
	return &Problem{Status: statuses[code], Code: code, Detail: fmt.Sprintf(format, args...)}
}

// The "reason" of host_full while all browsers that the host may run are in use, and while files
// cannot be read or written.
const ReasonBrowsers, ReasonFiles = "browsers", "files"

// ShortRetry is after how many seconds a request that was refused for want of room should be made
// again.
const ShortRetry = 30

// HostShort is the refusal of every browser on a host that lacks something.
func HostShort(reason string, err error) *Problem {
	p := Refuse(CodeHostFull, "no browser is started: %v", err).With("reason", reason)
	p.RetryAfter = ShortRetry
	return p
}

// Invalid makes an invalid_request problem that names the field, or none if it is "".
func Invalid(field, format string, args ...any) *Problem {
	p := Refuse(CodeInvalidRequest, format, args...)
	p.Field = field
	if field != "" {
		p.Detail = field + ": " + p.Detail
	}
	return p
}

// With returns a copy of the problem with one more member.
func (p *Problem) With(name string, value any) *Problem {
	more := maps.Clone(p.More)
	if more == nil {
		more = map[string]any{}
	}
	more[name] = value
	q := *p
	q.More = more
	return &q
}

// Error returns the code and the detail.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// ProblemIn returns the problem that an error wraps, with the words that stand around it in its
// detail: they may say what the problem alone does not, as that something may have happened all the same.
func ProblemIn(err error) (*Problem, bool) {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		return nil, false
	}
	q := *p
	q.Detail = strings.Replace(err.Error(), p.Error(), p.Detail, 1)
	return &q, true
}

// MarshalJSON writes the members of RFC 9457, the code, and the members that belong to
// it.
func (p *Problem) MarshalJSON() ([]byte, error) {
	m := maps.Clone(p.More)
	if m == nil {
		m = map[string]any{}
	}
	m["type"] = "urn:leasehold:problem:" + p.Code
	m["title"] = http.StatusText(p.Status)
	m["status"], m["code"], m["detail"] = p.Status, p.Code, p.Detail
	if p.Field != "" {
		m["field"] = p.Field
	}
	if p.RetryAfter > 0 {
		m["retry_after_seconds"] = p.RetryAfter
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Problem) UnmarshalJSON(b []byte) error {
	m := map[string]any{}
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	status, _ := m["status"].(float64)
	retry, _ := m["retry_after_seconds"].(float64)
	p.Status, p.RetryAfter = int(status), int(retry)
	p.Code, _ = m["code"].(string)
	p.Detail, _ = m["detail"].(string)
	p.Field, _ = m["field"].(string)
	for _, known := range []string{"type", "title", "status", "code", "detail", "field", "retry_after_seconds"} {
		delete(m, known)
	}
	p.More = m
	return nil
}
