package natskv

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"leasehold/lease"
)

// TestSites: a file changes by compare-and-swap only, is seen by who watches, and may be made again
// after it was removed or lost.
func TestSites(t *testing.T) {
	s := single(t)
	sights := make(chan lease.SiteSight, 100)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.WatchSites(ctx, func(sight lease.SiteSight) { sights <- sight }) }()
	seen := func() string {
		t.Helper()
		switch got := <-sights; {
		case got.Fresh:
			return "fresh"
		case got.Complete:
			return "complete"
		case got.Gone:
			return got.Entry.Name + " gone"
		default:
			return got.Entry.Name + "=" + string(got.Entry.Data)
		}
	}
	wants := func(all ...string) {
		t.Helper()
		var got []string
		for range all {
			got = append(got, seen())
		}
		if !slices.Equal(got, all) {
			t.Fatalf("seen %q, want %q", got, all)
		}
	}
	wants("fresh", "complete")
	put := func(name, data string, at uint64) (uint64, error) {
		return s.PutSite(t.Context(), lease.SiteEntry{Name: name, Data: []byte(data), Revision: at})
	}
	first, err := put("shop", "1", 0)
	if err != nil {
		t.Fatal(err)
	}
	wants("shop=1")
	for _, at := range []uint64{0, first + 1} {
		if _, err := put("shop", "2", at); !errors.Is(err, lease.ErrSiteMoved) {
			t.Errorf("at %d: %v", at, err)
		}
	}
	second, err := put("shop", "2", first)
	if err != nil {
		t.Fatal(err)
	}
	wants("shop=2")
	if _, err := put("shop", "", first); !errors.Is(err, lease.ErrSiteMoved) {
		t.Errorf("removed at another revision: %v", err)
	}
	if _, err := put("shop", "", second); err != nil {
		t.Fatal(err)
	}
	wants("shop gone")
	if _, err := put("shop", "3", 0); err != nil {
		t.Fatal(err)
	}
	wants("shop=3")
	if _, err := put("shop.*", "3", 0); err == nil || !strings.Contains(err.Error(), "want 1 to 64") {
		t.Errorf("a wildcard: %v", err)
	}
	deleteStream(t, s.sites)
	wants("fresh", "complete")
	if _, err := put("shop", "4", 0); err != nil {
		t.Fatal(err)
	}
	wants("shop=4")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
