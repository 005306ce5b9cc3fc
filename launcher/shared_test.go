package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// refuseShared has a launcher find at its nth look that another host could have the directory
// open, and at no other one. It returns the paths that were looked at.
func refuseShared(l *Launcher, nth int) *[]string {
	var asked []string
	l.host.SharedReady = func(path string) error {
		asked = append(asked, path)
		if len(asked) == nth {
			return api.Refuse(api.CodeStoreUnavailable, "the profile's directory may be open on another host")
		}
		return nil
	}
	return &asked
}

// TestASharedDirectoryIsLookedAtThroughoutAGrant: the store may be lost before the grant, after
// it, and while the browser starts.
func TestASharedDirectoryIsLookedAtThroughoutAGrant(t *testing.T) {
	for nth, tt := range map[int]struct {
		name             string
		granted, started bool
	}{
		1: {name: "before the grant"},
		2: {name: "after the grant", granted: true},
		3: {name: "while the browser starts", granted: true, started: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, store := startLauncher(t)
			path, err := l.o.Root.Create("p")
			if err != nil {
				t.Fatal(err)
			}
			granted := false
			store.set(hooks{swap: func(next lease.Record) error {
				granted = granted || next.ProfileID == "p" && next.State == lease.Held
				return nil
			}})
			refuseShared(l, nth)
			var p *api.Problem
			s, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "p"})
			if !errors.As(err, &p) || p.Code != api.CodeStoreUnavailable {
				t.Errorf("session %q, or refused otherwise: %v", s.SessionID, err)
			}
			if granted != tt.granted {
				t.Errorf("granted: %t", granted)
			}
			if _, err := os.Stat(filepath.Join(path, "Variations")); (err == nil) != tt.started {
				t.Errorf("whether a browser was started: %v", err)
			}
			if living := l.Sessions(); len(living) > 0 {
				t.Errorf("living: %+v", living)
			}
		})
	}
}

// TestASharedDirectoryIsLookedAtBeforeItIsUsed otherwise than for a task: to check, copy, archive
// and remove it.
func TestASharedDirectoryIsLookedAtBeforeItIsUsed(t *testing.T) {
	l, _ := startLauncher(t)
	nothingIsDone(t, l, func() { refuseShared(l, 1) })
}
