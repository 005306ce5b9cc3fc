package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// readersAtOnce is how many read at once: LEASEHOLD_READERS, or as many as the suite has time for.
func readersAtOnce(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LEASEHOLD_READERS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("LEASEHOLD_READERS: %q: want a number", text)
	}
	return n
}

// copies lists the copies of ephemeral sessions on the sidecar's disk, and what is kept of them.
func (s *sidecar) copies(t *testing.T) (found []string) {
	t.Helper()
	for _, pattern := range []string{"readers/*", "readers/.leasehold/ses_*", "readers/.leasehold/session-cookies/*", "sessions/*"} {
		names, err := filepath.Glob(filepath.Join(s.Dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if base := filepath.Base(name); base != ".leasehold" && base != ".unpacked" {
				found = append(found, name)
			}
		}
	}
	return found
}

func (s *sidecar) noCopies(t *testing.T) {
	t.Helper()
	eventually(t, "no copy and no browser is left", func() error {
		if left, browsers := s.copies(t), s.browsers(t); len(left)+len(browsers) > 0 {
			return fmt.Errorf("%v, browsers %v", left, browsers)
		}
		return nil
	})
}

// TestReaders: while a worker has a profile at its home, others read with its account at another
// host, each in a browser of its own. Nothing that they do reaches the site but reading, or the
// profile at all, and nothing of them is left. (What a launcher that is killed leaves of them, the next one
// removes: launcher/readers.TestWhatALauncherLeftIsRemoved.)
func TestReaders(t *testing.T) {
	t.Parallel()
	home, other, _ := travellers(t)
	shop := newSite(t)
	signIn := dial(t, home.socket("acct", "worker=w&wait=60s"))
	page, _ := signIn.visit(t, shop.URL+"/in")
	signIn.evaluate(t, page, `document.cookie = "lasting=ann; max-age=100000"; document.cookie = "session=ann"; localStorage.name = "ann"; 1`)
	signIn.call(t, "", "Lease.release", map[string]any{"outcome": "succeeded"}, nil)
	signIn.ended(t)
	signIn.drop()
	home.until(t, "acct", lease.Available)
	sealed := home.sealed(t, "acct")

	worker := dial(t, home.socket("acct", "worker=w&wait=60s"))
	working, _ := worker.visit(t, shop.URL+"/work")
	held := home.until(t, "acct", lease.Held)

	const signedIn = `document.querySelector('p').textContent.includes('lasting%3Dann') && document.cookie.includes('session=ann') && localStorage.name`
	// reads tells whether the connection is one of a browser with the account, which may only read.
	reads := func(t *testing.T, c *socket) {
		t.Helper()
		page, _ := c.visit(t, shop.URL+"/read")
		if got := c.evaluate(t, page, signedIn); got != `"ann"` {
			t.Errorf("a reader is not signed in: %s", got)
		}
		if got := c.evaluate(t, page, `fetch('/api', {method: 'POST'}).then((r) => 'sent', (e) => 'failed')`); got != `"failed"` {
			t.Errorf("a reader's POST: %s", got)
		}
		if got := c.evaluate(t, page, `document.cookie = "lasting=reader; max-age=100000"; localStorage.name += " reader"; localStorage.name`); got != `"ann reader"` {
			t.Errorf("a reader sees what another wrote: %s", got)
		}
	}
	read := func(t *testing.T, s *sidecar) (twoStep, *socket) {
		t.Helper()
		var ses twoStep
		var answer json.RawMessage
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "acct", "worker_id": "reader", "ephemeral": true}, &answer); code != http.StatusCreated {
			t.Fatalf("%d %s", code, answer)
		}
		if err := json.Unmarshal(answer, &ses); err != nil {
			t.Fatal(err)
		}
		return ses, dial(t, ses.CDPURL)
	}
	n := readersAtOnce(t)
	sessions, sockets := make([]twoStep, n), make([]*socket, n)
	for i := range n {
		sessions[i], sockets[i] = read(t, other)
	}
	for _, c := range sockets {
		reads(t, c)
	}
	var list struct{ Items []api.Session }
	other.call(t, "GET", "/v1/sessions", nil, &list)
	if len(list.Items) != n || !list.Items[0].Ephemeral || list.Items[0].SnapshotID != sealed.SnapshotID || list.Items[0].Token != sealed.Token {
		t.Errorf("%d sessions, %+v", len(list.Items), list.Items)
	}
	if out, errs, code := other.cli(t, "sessions"); code != 0 || strings.Count(out, "ephemeral") != n {
		t.Errorf("%d %s%s", code, out, errs)
	}
	for i, ses := range sessions {
		sockets[i].drop()
		var ended api.Session
		if code := other.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "done"}, &ended); code != 200 || ended.State != api.SessionEnded {
			t.Errorf("%d %+v", code, ended)
		}
	}
	other.noCopies(t)
	if other.metric(t, `leasehold_reader_fetches_total{result="fetched"}`) != "1" {
		t.Error("the snapshot was not fetched once")
	}

	if got := worker.evaluate(t, working, `document.cookie + ' ' + localStorage.name`); !strings.Contains(got, "lasting=ann") || !strings.Contains(got, `session=ann ann"`) {
		t.Errorf("the worker's profile: %s", got)
	}
	if now := home.record(t, "acct"); now.State != lease.Held || now.Token != held.Token || now.SessionID != held.SessionID || now.SnapshotID != held.SnapshotID {
		t.Errorf("%+v, want %+v", now, held)
	}
	if posts := shop.Posts.Load(); posts != 0 {
		t.Errorf("the site got %d POSTs", posts)
	}
	if events := names(home.events(t, "acct")); strings.Count(events, "granted") != 2 || strings.Contains(events, "conflict") || strings.Contains(events, "late_write") {
		t.Errorf("events: %s", events)
	}
	worker.call(t, "", "Lease.release", map[string]any{"outcome": "succeeded"}, nil)
	worker.ended(t)
	worker.drop()
	home.until(t, "acct", lease.Available)
	home.noReaders(t)
}

// noReaders waits until no ephemeral session is at the sidecar.
func (s *sidecar) noReaders(t *testing.T) {
	t.Helper()
	eventually(t, "no reader", func() error {
		if left, err := filepath.Glob(filepath.Join(s.Dir, "readers", "ses_*")); err != nil || len(left) > 0 {
			return errors.Join(err, fmt.Errorf("%v", left))
		}
		return nil
	})
}
