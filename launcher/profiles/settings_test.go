package profiles

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// Whatever settings are taken, in however many steps: together they are within their bound, and
// what is refused names one of the fields that were given.
func TestSettingsAreBoundedTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r lease.Record
		taken := 0
		for range rapid.IntRange(1, 6).Draw(t, "requests") {
			list := func() *[]string {
				entry := strings.Repeat(rapid.SampledFrom([]string{"a", "&", `"`, "\x01"}).Draw(t, "character"), rapid.SampledFrom([]int{1, 100, 256}).Draw(t, "length"))
				entries := make([]string, rapid.SampledFrom([]int{0, 5, 60, 100}).Draw(t, "entries"))
				for i := range entries {
					entries[i] = entry
				}
				return &entries
			}
			field := rapid.SampledFrom([]string{"expected_domains", "sensitive_urls", "sensitive_words"}).Draw(t, "field")
			var set api.ProfileSettings
			switch field {
			case "expected_domains":
				set.ExpectedDomains = list()
			case "sensitive_urls":
				set.SensitiveURLs = list()
			default:
				set.SensitiveWords = list()
			}
			if err := CheckSettings("p", set); err != nil {
				t.Fatal(err)
			}
			next, err := withSettings(r, set)
			var p *api.Problem
			switch {
			case err == nil:
				r, taken = next, taken+1
			case !errors.As(err, &p) || p.Code != api.CodeInvalidRequest || !strings.Contains(fmt.Sprint(p.More, p.Detail), field):
				t.Fatalf("refused: %v, want invalid_request that names %s", err, field)
			}
			if n := r.Settings.Size(); n > lease.MaxSettings {
				t.Fatalf("%d bytes are taken", n)
			}
		}
	})
}

// A profile that had more settings before there was a bound can be made smaller, step by step.
func TestTooManySettingsCanBeReduced(t *testing.T) {
	list := func(n int) []string { return strings.Split(strings.Repeat(strings.Repeat("w", 256)+" ", n), " ")[:n] }
	r := lease.Record{Settings: lease.Settings{ExpectedDomains: list(100), SensitiveWords: list(100)}}
	fewer, more := list(50), list(101)
	if _, err := withSettings(r, api.ProfileSettings{SensitiveWords: &fewer}); err != nil {
		t.Errorf("fewer: %v", err)
	}
	if _, err := withSettings(r, api.ProfileSettings{SensitiveWords: &more}); err == nil {
		t.Error("more were taken")
	}
}
