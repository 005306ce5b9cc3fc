package cdpproxy

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestReadPacer: events that only the launcher listens to are read several at a time. The
// pipe is not left alone for that where a client gets a reply, or has sent a command a
// moment ago.
func TestReadPacer(t *testing.T) {
	const us = time.Microsecond
	type reading struct {
		after    time.Duration // since the read before
		messages int
		wanted   bool
		replied  bool
		want     time.Duration
	}
	for _, c := range []struct {
		name         string
		sinceCommand time.Duration // when the reads begin
		reads        []reading
	}{
		{"a page loads while a client waits for it", 80 * time.Millisecond, []reading{{200 * us, 1, false, false, launcherDelay}, {launcherDelay, 8, false, false, launcherDelay}}},
		{"a client asked just now", 100 * us, []reading{{200 * us, 1, false, false, 0}, {200 * us, 1, false, false, 0}}},
		{"a client asked a while ago", 8 * time.Millisecond, []reading{{0, 1, false, false, time.Millisecond}}},
		{"the client's own events", 80 * time.Millisecond, []reading{{200 * us, 1, true, false, 0}}},
		{"its answer", 80 * time.Millisecond, []reading{{200 * us, 2, true, true, 0}}},
		{"an answer to the launcher", 80 * time.Millisecond, []reading{{200 * us, 1, true, false, 0}}},
		{"a large message on its way", 80 * time.Millisecond, []reading{{200 * us, 0, false, false, 0}, {200 * us, 0, false, false, 0}}},
		{"they come slowly", 80 * time.Millisecond, []reading{{20 * time.Millisecond, 1, false, false, 0}, {20 * time.Millisecond, 1, false, false, 0}}},
		{"they end", 80 * time.Millisecond, []reading{{200 * us, 1, false, false, launcherDelay}, {launcherDelay, 1, false, false, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := readPacer{lastCommand: time.Now().Add(-c.sinceCommand), lastRead: time.Now()}
				for i, r := range c.reads {
					time.Sleep(r.after)
					p.afterRead(r.messages, r.replied, r.wanted, 1)
					if got := p.nextDelay(); got != r.want {
						t.Errorf("%d: a delay of %v, want %v", i, got, r.want)
					}
				}
			})
		})
	}
}
