package api

import (
	"slices"
	"testing"

	"leasehold/lease"
)

// TestSettingsAreShownWhereTheyDifferFromTheDefaults: in words, and none of the others.
func TestSettingsAreShownWhereTheyDifferFromTheDefaults(t *testing.T) {
	if got := SettingsShown(lease.Settings{MaxActiveRuns: 1}); len(got) > 0 {
		t.Errorf("the defaults are shown: %v", got)
	}
	warm := true
	got := SettingsShown(lease.Settings{
		MaxActiveRuns: 3, KeepWarm: &warm, BrowserMemory: 1 << 30, HarmlessRequests: []string{"POST https://shop.example/search", "POST https://shop.example/poll"},
		SessionCheck: &lease.SessionCheck{URL: "https://shop.example/account"}, Labels: lease.Labels{"country": "us"}, Appearance: lease.Appearance{Timezone: "Europe/Berlin"},
	})
	want := []Setting{
		{"browser memory bytes", "1073741824"}, {"harmless requests", "POST https://shop.example/search, POST https://shop.example/poll"}, {"keep warm", "true"}, {"labels", "country us"},
		{"max active runs", "3"}, {"session check", "url https://shop.example/account"}, {"timezone", "Europe/Berlin"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
