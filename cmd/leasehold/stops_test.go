package main

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// TestAPartThatHangsIsLeftBehind: whichever it is, the others are stopped in their order, and
// the service manager has no reason to kill the sidecar.
func TestAPartThatHangsIsLeftBehind(t *testing.T) {
	const killedAfter = 90 * time.Second // TimeoutStopSec in deploy/leasehold.service
	parts := []string{"guard", "nats", "lease store", "evidence store", "profile store", "traces", "http server", "launcher", "retention"}
	hangings := [][]string{nil, parts}
	for _, part := range parts {
		hangings = append(hangings, []string{part})
	}
	for _, hanging := range hangings {
		t.Run(strings.Join(hanging, " and "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list, over := stopList{log: zerolog.Nop()}, make(chan struct{})
				var mu sync.Mutex // a part that is left behind says nothing to what comes after it
				var stopped []string
				for _, part := range parts {
					list.add(part, func() error {
						mu.Lock()
						stopped = append(stopped, part)
						mu.Unlock()
						if slices.Contains(hanging, part) {
							<-over
						}
						return nil
					})
				}
				begun := time.Now()
				err := list.run()
				mu.Lock()
				defer mu.Unlock()
				slices.Reverse(stopped)
				if !slices.Equal(stopped, parts) || time.Since(begun) >= killedAfter {
					t.Errorf("stopped %q in %s", stopped, time.Since(begun))
				}
				for _, part := range parts {
					if slices.Contains(hanging, part) != (err != nil && strings.Contains(err.Error(), "stopping the "+part+": it has not ended")) {
						t.Errorf("%s: %v", part, err)
					}
				}
				close(over)
			})
		})
	}
}
