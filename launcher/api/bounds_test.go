package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"leasehold/lease"
)

// A manifest is kept in the session's file, so all its lists together are bounded. The refusal
// names the longest.
func TestAManifestIsBounded(t *testing.T) {
	long := strings.Split(strings.Repeat(strings.Repeat("&", 256)+" ", 300), " ")
	for field, m := range map[string]Manifest{
		"allowed_actions": {ProfileID: "p", AllowedActions: long}, "expected_domains": {ProfileID: "p", ExpectedDomains: long},
		"chrome_args": {ProfileID: "p", ChromeArgs: long, SensitiveWords: long[:5]}, "": {ProfileID: "p", ExpectedDomains: long[:200]},
	} {
		err := m.Check()
		var p *Problem
		if field == "" {
			if b, _ := lease.Encode(m); err != nil || len(b) > maxManifest {
				t.Errorf("%d bytes: %v, want them taken", len(b), err)
			}
		} else if !errors.As(err, &p) || p.Code != CodeInvalidRequest || !strings.Contains(fmt.Sprint(p.Detail, p.More), field) {
			t.Errorf("%v, want a refusal of %s", err, field)
		}
	}
}
