package profiles

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"leasehold/launcher/api"
	"leasehold/launcher/monitor"
	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery/findings"
	"leasehold/lease"
)

// CheckSettings refuses settings that are wrong by themselves.
func CheckSettings(profileID string, set api.ProfileSettings) error {
	if err := lease.CheckProfileID(profileID); err != nil {
		return api.Invalid("profile_id", "%v", err)
	}
	for field, id := range map[string]*string{"account_id": set.AccountID, "proxy_id": set.ProxyID} {
		if id != nil {
			if err := api.CheckName(field, *id); err != nil {
				return err
			}
		}
	}
	if m := set.Mobility; m != nil && *m != lease.MobilityPinned && *m != lease.MobilityFree {
		return api.Invalid("mobility", "%q: want %s or %s", *m, lease.MobilityPinned, lease.MobilityFree)
	}
	if set.MaxActiveRuns != nil && (*set.MaxActiveRuns < 1 || *set.MaxActiveRuns > lease.MaxRuns) {
		return api.Invalid("max_active_runs", "want 1 to %d", lease.MaxRuns)
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
		if err := CheckOrigins(*set.FenceHeaderOrigins); err != nil {
			return err
		}
	}
	if c := set.SessionCheck; c != nil && *c != (lease.SessionCheck{}) {
		if err := c.Validate(); err != nil {
			return api.Invalid("session_check", "%v", err)
		}
	}
	if c := set.CheckEvery; c != nil && *c != 0 && (time.Duration(*c) < lease.LeastCheckEvery || time.Duration(*c) > lease.MostCheckEvery) {
		return api.Invalid("check_every", "%v: want %v to %v, or 0s: only after sessions", time.Duration(*c), lease.LeastCheckEvery, lease.MostCheckEvery)
	}
	var wrong *lease.AppearanceError
	if err := applySettings(lease.Record{}, set).Appearance.Check(); errors.As(err, &wrong) {
		return api.Invalid(wrong.Field, "%s", wrong.Why)
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

// CheckOrigins refuses what is not an origin, or not written the way Chrome writes it.
func CheckOrigins(origins []string) error {
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

// withSettings puts the settings that are given into a record. It refuses those that make the
// record's settings too large together, and names the largest that is given. A profile that has
// more than that from an earlier version may keep or reduce it.
func withSettings(r lease.Record, set api.ProfileSettings) (lease.Record, error) {
	next := applySettings(r, set)
	size := next.Settings.Size()
	if size <= lease.MaxSettings || size <= r.Settings.Size() {
		return next, nil
	}
	largest, most := "", 0
	for _, given := range []struct {
		field string
		is    bool
		alone lease.Settings
	}{
		{"expected_domains", set.ExpectedDomains != nil, lease.Settings{ExpectedDomains: next.ExpectedDomains}},
		{"sensitive_urls", set.SensitiveURLs != nil, lease.Settings{SensitiveURLs: next.SensitiveURLs}},
		{"sensitive_words", set.SensitiveWords != nil, lease.Settings{SensitiveWords: next.SensitiveWords}},
		{"harmless_requests", set.HarmlessRequests != nil, lease.Settings{HarmlessRequests: next.HarmlessRequests}},
		{"fence_header_origins", set.FenceHeaderOrigins != nil, lease.Settings{FenceHeaderOrigins: next.FenceHeaderOrigins}},
		{"session_check", set.SessionCheck != nil, lease.Settings{SessionCheck: next.SessionCheck}},
		{"labels", set.Labels != nil, lease.Settings{Labels: next.Labels}},
	} {
		if n := given.alone.Size(); given.is && n > most {
			largest, most = given.field, n
		}
	}
	return r, api.Invalid(largest, "with it the profile's settings take %d bytes together: want at most %d", size, lease.MaxSettings)
}

// applySettings puts the settings that are given into a record.
func applySettings(r lease.Record, set api.ProfileSettings) lease.Record {
	for text, to := range map[*string]*string{set.Timezone: &r.Timezone, set.Locale: &r.Locale, set.Viewport: &r.Viewport, set.Geolocation: &r.Geolocation} {
		if text != nil {
			*to = *text
		}
	}
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
	if set.CheckEvery != nil {
		r.CheckEvery = *set.CheckEvery
	}
	if set.SessionCheck != nil {
		r.SessionCheck = set.SessionCheck
		if set.SessionCheck.URL == "" {
			r.SessionCheck = nil
		}
	}
	return r
}

// checkHarmless refuses declarations that cannot be parsed.
func checkHarmless(list *[]string) error {
	if list == nil {
		return nil
	}
	for _, text := range *list {
		if _, err := findings.ParseHarmless(text); err != nil {
			return api.Invalid("harmless_requests", "%v", err)
		}
	}
	return nil
}

// CheckProxy refuses a proxy that the profile cannot be given.
func (ps *Service) CheckProxy(r lease.Record, set *string) error {
	switch {
	case set == nil || *set == r.ProxyID:
		return nil
	case r.ProxyID != "":
		return api.Refuse(api.CodeProxyChanged, "profile %s is mapped to proxy %s for good", r.ProfileID, r.ProxyID).With("proxy_id", r.ProxyID)
	case ps.host.Proxies == nil: // proxy ids are only labels
		return nil
	case ps.host.Proxies.Find(*set) == nil:
		return UnknownProxy(ps.host.Proxies, *set)
	case !slices.Contains([]lease.State{lease.Available, ""}, r.State):
		return api.Refuse(api.CodeConflict, "profile %s is %s: its proxy is set when nobody uses it", r.ProfileID, r.State).With("state", r.State)
	}
	return nil
}

// UnknownProxy refuses a proxy that the configuration does not have.
func UnknownProxy(set *proxies.Set, id string) *api.Problem {
	known := "it has none"
	if ids := set.IDs(); len(ids) > 0 {
		known = "it has " + strings.Join(ids[:min(len(ids), 20)], ", ")
	}
	return api.Invalid("proxy_id", "the configuration has no proxy %q: %s (--proxies)", id, known)
}
