package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"leasehold/lease"
)

// rounds is how many sessions follow one another in TestNothingIsLost: a few, or
// LEASEHOLD_ROUNDS, which `make soak` sets.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LEASEHOLD_ROUNDS")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("LEASEHOLD_ROUNDS=%q: want how many sessions", text)
	}
	return n
}

// keep is a script that stores the round in each kind of storage that an account uses,
// and kept one that returns what is stored.
const (
	keep = `new Promise((done, failed) => {
	document.cookie = 'session=%[1]d'
	document.cookie = 'persistent=%[1]d; max-age=86400'
	localStorage.setItem('stored', '%[1]d')
	const open = indexedDB.open('kept', 1)
	open.onupgradeneeded = () => open.result.createObjectStore('values')
	open.onerror = () => failed(open.error)
	open.onsuccess = () => {
		const put = open.result.transaction('values', 'readwrite')
		put.objectStore('values').put('%[1]d', 'stored')
		put.onerror = () => failed(put.error)
		put.oncomplete = () => { open.result.close(); done('stored') }
	}
})`
	kept = `new Promise((done, failed) => {
	const open = indexedDB.open('kept', 1)
	open.onupgradeneeded = () => open.result.createObjectStore('values')
	open.onerror = () => failed(open.error)
	open.onsuccess = () => {
		const get = open.result.transaction('values').objectStore('values').get('stored')
		get.onerror = () => failed(get.error)
		get.onsuccess = () => {
			open.result.close()
			const cookies = document.cookie.split('; ').sort().join(', ')
			done(cookies + ', localStorage=' + localStorage.getItem('stored') + ', indexedDB=' + get.result)
		}
	}
})`
)

// TestNothingIsLost ends sessions in each orderly way, right after a value was stored
// in each kind of storage. The next session has to find the values, whether it has a
// new browser or the same one. It comes at once, and is not refused while the one before ends.
func TestNothingIsLost(t *testing.T) {
	temp, err := os.MkdirTemp("", "kept")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	t.Setenv("TMPDIR", temp)
	s, web := start(t), newSite(t)
	leave := []struct {
		how string
		do  func(c *socket, target string)
	}{
		{"closes the connection", func(c *socket, _ string) { c.close(t) }},
		{"closes the last tab", func(c *socket, _ string) {
			var targets struct {
				TargetInfos []struct{ TargetID, Type string }
			}
			c.call(t, "", "Target.getTargets", nil, &targets)
			for _, info := range targets.TargetInfos {
				if info.Type == "page" {
					c.call(t, "", "Target.closeTarget", map[string]any{"targetId": info.TargetID}, nil)
				}
			}
			c.close(t)
		}},
		{"closes the browser", func(c *socket, _ string) { c.call(t, "", "Browser.close", nil, nil) }},
		{"releases the session", func(c *socket, _ string) {
			c.call(t, "", "Lease.release", map[string]any{"outcome": "succeeded"}, nil)
		}},
		{"closes its own tab", func(c *socket, target string) {
			c.call(t, "", "Target.closeTarget", map[string]any{"targetId": target}, nil)
			c.close(t)
		}},
	}
	n := rounds(t)
	for i := range n {
		how := leave[i%len(leave)]
		// Every other session leaves its browser warm for the next one.
		c := dial(t, s.socket("kept", fmt.Sprintf("worker=w&task=%d&keep_warm=%t", i, i%2 == 0 && i < n-1)))
		session, target := c.visit(t, web.URL+"/")
		if found, want := c.evaluate(t, session, kept), fmt.Sprintf(`"persistent=%[1]d, session=%[1]d, localStorage=%[1]d, indexedDB=%[1]d"`, i-1); i > 0 && found != want {
			t.Fatalf("round %d, after one that %s: %s, want %s", i, leave[(i+len(leave)-1)%len(leave)].how, found, want)
		}
		c.evaluate(t, session, fmt.Sprintf(keep, i))
		how.do(c, target)
		c.ended(t)
		c.drop()
	}
	s.until(t, "kept", lease.Available)
	// A conflict only means that a session waited for the end of the one before.
	if got, want := strings.ReplaceAll(names(s.events(t, "kept")), "profile_lock_conflict ", ""), strings.TrimSpace(strings.Repeat("granted released ", n)); got != want {
		t.Errorf("events: %s", got)
	}
	// A session's files go after its lease.
	for _, pattern := range []string{
		filepath.Join(s.Dir, "profiles", "kept", "Singleton*"), filepath.Join(temp, "leasehold-*"),
		filepath.Join(temp, "leasehold-exchange-*", "*", "*"), // of sessions
	} {
		eventually(t, "nothing is left behind", func() error {
			found, err := filepath.Glob(pattern)
			found = slices.DeleteFunc(found, func(path string) bool { // the place of all of them stays while the sidecar runs
				return filepath.Dir(path) == temp && strings.HasPrefix(filepath.Base(path), "leasehold-exchange-")
			})
			if err == nil && len(found) != 0 {
				err = fmt.Errorf("left: %v", found)
			}
			return err
		})
	}
	if pids := s.browsers(t); len(pids) != 0 {
		t.Errorf("still running: %v", pids)
	}
}
