package session

import (
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/sessionfile"
)

func TestFactsLeft(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f := sessionfile.File{AcquiredAt: now.Add(-time.Hour)}
	for _, tt := range []struct {
		name               string
		connections        []string
		connected, dropped bool
	}{
		{"nobody ever connected", nil, false, false},
		{"connected", []string{"opened"}, true, true},
		{"two, and one closed", []string{"opened", "opened", "closed"}, true, true},
		{"closed", []string{"opened", "closed"}, true, false},
		{"both closed", []string{"opened", "opened", "closed", "closed"}, true, false},
		{"dropped, in the grace", []string{"opened", "dropped"}, true, true},
		{"left by the launcher", []string{"opened", "cut"}, true, true},
		{"back at another launcher, and closed there", []string{"opened", connectionsOver, "opened", "closed"}, true, false},
		{"back at another launcher", []string{"opened", connectionsOver, "opened"}, true, true},
		{"not back yet at another launcher", []string{"opened", connectionsOver}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			entries := []checkpoint.Entry{{Kind: checkpoint.KindStart}, {Kind: checkpoint.KindURL, Name: "opened"}}
			for _, name := range tt.connections {
				entries = append(entries, checkpoint.Entry{Kind: checkpoint.KindConnection, Name: name})
			}
			got := factsLeft(f, entries, now)
			if got.connected != tt.connected || got.dropped != tt.dropped || got.left != tt.dropped || got.connections != 0 || !got.startedAt.Equal(f.AcquiredAt) || !got.seenAt.Equal(now) {
				t.Errorf("%+v", got)
			}
		})
	}
}
