package launcher

import (
	"maps"
	"slices"

	"github.com/dustin/go-humanize"

	"leasehold/launcher/api"
	"leasehold/launcher/monitor"
	"leasehold/launcher/recovery/decision"
	"leasehold/lease"
)

// checkSettings refuses settings that are wrong by themselves.
func checkSettings(profileID string, set api.ProfileSettings) error {
	if err := lease.CheckProfileID(profileID); err != nil {
		return api.Invalid("profile_id", "%v", err)
	}
	if m := set.Mobility; m != nil && *m != lease.MobilityPinned && *m != lease.MobilityFree {
		return api.Invalid("mobility", "%q: want %s or %s", *m, lease.MobilityPinned, lease.MobilityFree)
	}
	if set.MaxActiveRuns != nil && (*set.MaxActiveRuns < 1 || *set.MaxActiveRuns > maxRuns) {
		return api.Invalid("max_active_runs", "want 1 to %d", maxRuns)
	}
	if m := set.BrowserMemory; m != nil && *m != 0 && *m < leastMemory {
		return api.Invalid("browser_memory_bytes", "%d: want %d (%s) or more, or 0 for the host's own limit", *m, uint64(leastMemory), humanize.IBytes(leastMemory))
	}
	for _, list := range []struct {
		name  string
		items *[]string
	}{{"expected_domains", set.ExpectedDomains}, {"sensitive_urls", set.SensitiveURLs}, {"sensitive_words", set.SensitiveWords}, {"harmless_requests", set.HarmlessRequests}} {
		if list.items != nil && (len(*list.items) > 100 || slices.ContainsFunc(*list.items, func(s string) bool { return len(s) > 256 })) {
			return api.Invalid(list.name, "want at most 100 entries of at most 256 bytes")
		}
	}
	if set.FenceHeaderOrigins != nil {
		if err := checkOrigins(*set.FenceHeaderOrigins); err != nil {
			return err
		}
	}
	if c := set.SessionCheck; c != nil && *c != (lease.SessionCheck{}) {
		if err := c.Validate(); err != nil {
			return api.Invalid("session_check", "%v", err)
		}
	}
	if set.Labels != nil {
		if err := set.Labels.Check(); err != nil {
			return api.Invalid("labels", "%v", err)
		}
	}
	return checkHarmless(set.HarmlessRequests)
}

// maxOrigins is the most origins that may get the token.
const maxOrigins = 20

// checkOrigins refuses what is not an origin, or not written the way Chrome writes it.
func checkOrigins(origins []string) error {
	for _, o := range origins {
		if !monitor.CheckOrigin(o) {
			return api.Invalid("fence_header_origins", "%.200q: want an origin such as https://queue.example:8443: lower case, no path, and no port that is the scheme's own", o)
		}
	}
	if len(origins) > maxOrigins {
		return api.Invalid("fence_header_origins", "want at most %d", maxOrigins)
	}
	return nil
}

// applySettings puts the settings that are given into a record.
func applySettings(r lease.Record, set api.ProfileSettings) lease.Record {
	if set.MaxActiveRuns != nil {
		r.MaxActiveRuns = *set.MaxActiveRuns
	}
	if set.AccountID != nil {
		r.AccountID = *set.AccountID
	}
	if set.ProxyID != nil {
		r.ProxyID = *set.ProxyID
	}
	if set.ExpectedDomains != nil {
		r.ExpectedDomains = *set.ExpectedDomains
	}
	if set.SensitiveURLs != nil {
		r.SensitiveURLs = *set.SensitiveURLs
	}
	if set.SensitiveWords != nil {
		r.SensitiveWords = *set.SensitiveWords
	}
	if set.KeepWarm != nil {
		r.KeepWarm = set.KeepWarm
	}
	if set.BrowserMemory != nil {
		r.BrowserMemory = *set.BrowserMemory
	}
	if set.Mobility != nil {
		r.Mobility = *set.Mobility
	}
	if set.ReadOnly != nil {
		r.ReadOnly = *set.ReadOnly
	}
	if set.FenceHeaderOrigins != nil {
		r.FenceHeaderOrigins = *set.FenceHeaderOrigins
	}
	if set.HarmlessRequests != nil {
		r.HarmlessRequests = *set.HarmlessRequests
	}
	if set.Labels != nil {
		r.Labels = maps.Clone(*set.Labels)
	}
	if set.SessionCheck != nil {
		r.SessionCheck = set.SessionCheck
		if set.SessionCheck.URL == "" {
			r.SessionCheck = nil
		}
	}
	return r
}

// checkHarmless refuses declarations that cannot be parsed, or that could never apply.
func checkHarmless(list *[]string) error {
	if list == nil {
		return nil
	}
	for _, text := range *list {
		h, err := decision.ParseHarmless(text)
		if err != nil {
			return api.Invalid("harmless_requests", "%v", err)
		}
		if decision.SensitiveURL(h.URL(), decision.Task{}) {
			return api.Invalid("harmless_requests", "%q: its URL is a sensitive one: requests to it count, whatever is declared", text)
		}
	}
	return nil
}
