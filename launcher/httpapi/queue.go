package httpapi

import (
	"fmt"
	"slices"
	"strings"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// queueOrder is the order in which the requests began to wait.
var queueOrder = ascending(func(w api.Waiting) string {
	return fmt.Sprintf("%020d %s %s %s", w.Arrival, w.LauncherID, w.WorkerID, w.TaskID)
})

// listQueue lists the requests that wait for profiles that the caller may read, and the
// caller's own requests.
func listQueue(c *call) error {
	if c.queryErr != nil {
		return api.Invalid("", "the query cannot be read: %v", c.queryErr)
	}
	profile := c.query.Get("profile_id")
	all, err := c.svc.Queue(c.r.Context())
	if err != nil {
		return err
	}
	shown := []api.Waiting{}
	for _, w := range all {
		if profile != "" && w.ProfileID != profile && !slices.Contains(w.Candidates, profile) {
			continue
		}
		reads := func(p string) bool { return c.who.May(principal.Read, p) }
		own := w.Own && c.who.Role.Has(principal.Use) && c.who.Is(w.Principal)
		if own || w.ProfileID != "" && reads(w.ProfileID) || slices.ContainsFunc(w.Candidates, reads) {
			shown = append(shown, w)
		}
	}
	slices.SortFunc(shown, func(a, b api.Waiting) int { return strings.Compare(queueOrder.position(a), queueOrder.position(b)) })
	return answerPage(queueOrder)(c, shown)
}
