package agents

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"leasehold/launcher/api"
)

// Refusal is what a model reads when a tool is refused: one sentence that says why, and what to do
// next.
type Refusal struct {
	Tool string    `json:"tool"`
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	// Code is that of the problem, and More are its members (current_worker_id, ...). Both are
	// empty if the sidecar did not answer.
	Code string `json:"code,omitempty"`
	// RetryAfter is in seconds; zero means that there is no advice.
	RetryAfter int            `json:"retry_after_seconds,omitempty"`
	More       map[string]any `json:"details,omitempty"`
}

// next says for a code what a model can do. A %s stands for when to try again.
var next = map[string]string{
	api.CodeConflict:           "call lease_profile again %s or with wait_seconds, or lease another profile that list_profiles shows as free",
	api.CodeQuarantined:        "call lease_profile again %s, or lease another profile",
	api.CodeCoolingDown:        "call lease_profile again %s or with wait_seconds, or lease another profile",
	api.CodeSignedOut:          "tell the user, since a person signs the account in, or lease another profile",
	api.CodeHostFull:           "call lease_profile again %s or with wait_seconds",
	api.CodeWaitTimeout:        "call lease_profile again %s, or lease another profile that list_profiles shows as free",
	api.CodeResumePending:      "lease it with that task_id to resume the task, or lease another profile",
	api.CodeInReview:           "a person has to decide first, so lease another profile or tell the user",
	api.CodeStoreUnavailable:   "call the tool again %s",
	api.CodeEvidenceStore:      "call lease_profile again %s or with wait_seconds",
	api.CodeShuttingDown:       "call the tool again %s",
	api.CodeBrowserStartFailed: "tell the user, since only who runs the sidecar can mend that",
	api.CodeStaleToken:         "call why to see what was decided, and lease_profile to lease it again",
	api.CodeSessionEnded:       "call why to see what was decided, and lease_profile to lease it again",
	api.CodeUnknownSession:     "call lease_profile first, but why with its profile_id if you had one before",
	api.CodeUnknownProfile:     "call list_profiles to see which there are",
	api.CodeWrongHome:          "use the MCP server of that host for it, or lease another profile",
	api.CodeTakenOver:          "a person has the browser by hand, so call ask_person to wait for them, or try again %s",
	api.CodeStandsStill:        "call the tool again %s",
	api.CodeAsksAlready:        "wait for the answer to the first request",
	api.CodeForbidden:          "tell the user, since only who runs the sidecar can give you that right",
	api.CodeUnauthenticated:    "tell the user, since only who runs the sidecar can give you a token",
	api.CodeInvalidRequest:     "correct the arguments and call the tool again",
	api.CodeActionNotAllowed:   "do only what this task is allowed to, or tell the user",
}

func refusalOf(tool string, err error) *Refusal {
	r := &Refusal{Tool: tool, At: time.Now().UTC()}
	why, then := err.Error(), "call the tool again in a moment, or tell the user"
	if p, ok := errors.AsType[*api.Problem](err); ok {
		why = p.Detail
		lost, isLost := errors.AsType[*lostError](err)
		if isLost {
			why, p = lost.says(p.Detail), p.With("profile_id", lost.profile)
		}
		r.Code, r.RetryAfter, r.More = p.Code, p.RetryAfter, maps.Clone(p.More)
		then = cmp.Or(next[p.Code], "tell the user")
		if isLost && isOver(p) {
			then = next[api.CodeSessionEnded]
		}
	}
	when := "in a moment"
	if r.RetryAfter > 0 {
		when = fmt.Sprintf("in %d seconds", r.RetryAfter)
	}
	r.Text = strings.ReplaceAll(strings.TrimRight(why, ". "), ". ", "; ") + ": " + strings.Replace(then, "%s", when, 1) + "."
	return r
}

func (r *Refusal) result() *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: r.Text}}, StructuredContent: r}
}

// Refuse is the answer to a call that is refused because of err. The tool why shows it later.
func (a *Agent) Refuse(tool string, err error) *sdk.CallToolResult {
	r := refusalOf(tool, err)
	a.mu.Lock()
	a.refused = r
	a.mu.Unlock()
	return r.result()
}
