package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
)

// Browsers are left to the next sidecar if that is wanted and there will be one soon.
func TestBrowsersAreClosedBeforeTheHostStops(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for _, tt := range []struct {
		onExit, systemctl string
		leaves            bool
	}{
		{"leave", "", true}, // no systemd
		{"leave", "echo running", true},
		{"leave", "echo degraded; exit 1", true},
		{"leave", "echo offline; exit 1", true},
		{"leave", "echo stopping; exit 1", false},
		{"close", "echo running", false},
	} {
		path := filepath.Join(dir, "systemctl")
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if tt.systemctl != "" {
			if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$*\" = is-system-running ] || exit 9\n"+tt.systemctl+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		s := newService(RunConfig{}, zerolog.Nop(), func() uint64 { return 0 })
		s.config.OnExit = tt.onExit
		if got := s.leaves(); got != tt.leaves {
			t.Errorf("%s, systemctl: %q: left %t, want %t", tt.onExit, tt.systemctl, got, tt.leaves)
		}
	}
}
