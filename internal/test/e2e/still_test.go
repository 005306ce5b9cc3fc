package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/procfs"
	"leasehold/lease"
)

// open opens the site's page, and waits until it writes in every way.
func (s *restless) open(t *testing.T, c *socket) (session string) {
	t.Helper()
	begun := time.Now()
	c.call(t, "", "Security.setIgnoreCertificateErrors", map[string]any{"ignore": true}, nil)
	session, _ = c.page(t, s.URL, "")
	s.writing(t, begun, restlessWays...)
	return session
}

// networkServices are the stopped and the running network services of the sidecar's
// browsers.
func (s *sidecar) networkServices(t *testing.T) (stopped, moving int) {
	t.Helper()
	for _, pid := range running(t, func(line []byte) bool {
		return bytes.Contains(line, []byte("--user-data-dir="+s.Dir)) && bytes.Contains(line, []byte("network.mojom.NetworkService"))
	}) {
		if p, err := procfs.Read(pid); err == nil && p.State == 'T' {
			stopped++
		} else {
			moving++
		}
	}
	return stopped, moving
}

// TestTheAccountStandsStill: from the loss of its worker on nothing leaves a page that
// writes without pause. What it wrote meanwhile is sent when the worker comes back, and
// never if it does not, also if the launcher is killed in between. Cookies and storage stay
// whole.
func TestTheAccountStandsStill(t *testing.T) {
	t.Parallel()
	s, site := start(t, "--reconnect-grace", "60s"), newRestless(t)
	ses := s.open(t, "restless", map[string]any{"lock_timeout_seconds": 3600})
	c := dial(t, ses.CDPURL)
	session := site.open(t, c)
	c.evaluate(t, session, fmt.Sprintf(keep, 7))
	still := func(what string) int {
		t.Helper()
		eventually(t, "the browser to stand still: "+what, func() error {
			if stopped, moving := s.networkServices(t); stopped != 1 || moving != 0 {
				return fmt.Errorf("%d stopped, %d moving", stopped, moving)
			}
			return nil
		})
		return site.quiet(t)
	}

	// The worker comes back.
	c.drop()
	still("dropped")
	back := time.Now()
	c = dial(t, ses.CDPURL)
	site.writing(t, back, "/fetch", "/socket", "/worker") // beacons have to wait where the host is busy
	var targets struct {
		TargetInfos []struct{ TargetID, Type, URL string }
	}
	c.call(t, "", "Target.getTargets", nil, &targets)
	for _, i := range targets.TargetInfos {
		if i.Type == "page" && i.URL == site.URL {
			session = c.attach(t, i.TargetID)
		}
	}
	if got := c.evaluate(t, session, kept); got != `"persistent=7, session=7, localStorage=7, indexedDB=7"` {
		t.Errorf("after the worker came back: %s", got)
	}
	c.evaluate(t, session, fmt.Sprintf(keep, 8)) // which nothing has written to disk yet

	// The launcher is killed while the browser stands still: the next one keeps it so.
	c.drop()
	count := still("dropped again")
	s.kill(t)
	s.launch(t)
	if now := still("adopted"); now != count {
		t.Errorf("%d requests and messages came when the launcher was gone", now-count)
	}
	// The worker does not come back: a person says so.
	if code := s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "failed", "recover": "always"}, nil); code != 200 {
		t.Errorf("ending the session: status %d", code)
	}
	s.until(t, "restless", lease.ManualReview)
	if now := site.quiet(t); now != count {
		t.Errorf("%d requests and messages came after the loss: %v", now-count, site.ways(count))
	}
	answers, how := s.inspection(t, "restless")
	if answers["account_stood_still"] != "yes" || answers["requests_withheld"] != "yes" || answers["closed_cleanly"] != "yes" {
		t.Errorf("facts: %v %v", answers, how)
	}
	withheld := map[string]bool{}
	for _, e := range s.journal(t, "restless") {
		if e.Kind == checkpoint.KindWithheld {
			path, _, _ := strings.Cut(strings.TrimPrefix(e.URL, strings.TrimSuffix(site.URL, "/")), "?")
			withheld[e.Method+" "+path] = true
		}
	}
	for _, want := range []string{"PUT /fetch", "POST /beacon", "DELETE /xhr", "POST /worker"} {
		if !withheld[want] {
			t.Errorf("the journal does not say that %s was withheld: %v", want, slices.Sorted(maps.Keys(withheld)))
		}
	}
	// A host that is too busy to show the cookies within the bound says so, to a person.
	if r := s.record(t, "restless"); answers["cookies_whole"] == "yes" {
		s.foundWhole(t, "restless", site, 8)
	} else if answers["cookies_whole"] != "no" || !strings.Contains(fmt.Sprint(r.Reasons), "cookies") {
		t.Errorf("cookies: %s (%s), and the reasons are %q", answers["cookies_whole"], how["cookies_whole"], r.Reasons)
	}
	if n := losses(t); n > 0 {
		loseMany(t, n)
	}
}

// TestAFailedWorkersPageSendsNothing: what a page wants to send after its worker was gone, and before it is
// known that the worker had failed, is never sent. So the profile is let go as one that nothing touched, with
// all that is stored in it.
func TestAFailedWorkersPageSendsNothing(t *testing.T) {
	t.Parallel()
	s, web := start(t, "--reconnect-grace", "60s"), newSite(t)
	ses := s.open(t, "failed", nil)
	c := dial(t, ses.CDPURL)
	session, _ := c.visit(t, web.URL+"/list")
	c.evaluate(t, session, fmt.Sprintf(keep, 7))
	const later = 3 * time.Second
	c.evaluate(t, session, fmt.Sprintf(`setTimeout(() => setInterval(() => fetch("/orders", {method: "POST", body: "x"}), 50), %d)`, later.Milliseconds()))
	begun := time.Now()
	c.drop()
	eventually(t, "the browser to stand still", func() error {
		if stopped, moving := s.networkServices(t); stopped != 1 || moving != 0 {
			return fmt.Errorf("%d stopped, %d moving", stopped, moving)
		}
		return nil
	})
	time.Sleep(time.Until(begun.Add(later + 500*time.Millisecond))) // for the page to try it
	var ended struct {
		Ended    string
		Released bool
	}
	if code := s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "failed", "reason": "exit status 3", "recover": "touched"}, &ended); code != 200 {
		t.Errorf("ending the session: status %d", code)
	}
	if n := web.Posts.Load(); n > 0 || ended.Ended != "released: exit status 3" || !ended.Released {
		t.Errorf("%d orders were sent, and the session ended: %+v", n, ended)
	}
	if !slices.ContainsFunc(s.journal(t, "failed"), func(e checkpoint.Entry) bool { return e.Kind == checkpoint.KindWithheld && e.Method == "POST" }) {
		t.Errorf("the page has not tried to send one: %+v", s.journal(t, "failed"))
	}
	c = dial(t, s.socket("failed", "worker=w&task=look&wait=30s"))
	session, _ = c.visit(t, web.URL+"/list")
	if got := c.evaluate(t, session, kept); got != `"persistent=7, session=7, localStorage=7, indexedDB=7"` {
		t.Errorf("the profile has %s", got)
	}
}

// ways counts what was received after the first n, by how.
func (s *restless) ways(n int) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	ways := map[string]int{}
	for _, w := range s.received[min(n, len(s.received)):] {
		ways[w.how]++
	}
	return ways
}

// foundWhole reviews a profile, and finds what keep stored in it.
func (s *sidecar) foundWhole(t *testing.T, profile string, site *restless, round int) {
	t.Helper()
	if r := s.record(t, profile); r.State == lease.ManualReview {
		if code := s.call(t, "POST", "/v1/profiles/"+profile+"/review", map[string]any{
			"decision": "approve", "reviewer": "ann", "lease_token": r.Token,
		}, nil); code != 200 {
			t.Errorf("review: status %d", code)
		}
	}
	c := dial(t, s.socket(profile, "worker=w&task=look&wait=30s"))
	session, _ := c.visit(t, site.URL+"quiet")
	if got, want := c.evaluate(t, session, kept), fmt.Sprintf(`"persistent=%[1]d, session=%[1]d, localStorage=%[1]d, indexedDB=%[1]d"`, round); got != want {
		t.Errorf("the recovered profile has %s, want %s", got, want)
	}
	c.close(t)
	c.ended(t)
	s.until(t, profile, lease.Available)
}

// losses is how many workers are lost in TestTheAccountStandsStill after its own story:
// none, or LEASEHOLD_LOSSES, which `make still` sets.
func losses(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LEASEHOLD_LOSSES")
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("LEASEHOLD_LOSSES=%q: want how many losses", text)
	}
	return n
}

// loseMany loses n workers, each at a random moment, while a page writes in every way.
// Nothing may arrive later than 100 ms after a loss, and cookies and storage of every tenth
// profile have to be whole.
func loseMany(t *testing.T, n int) {
	s, site := start(t, "--reconnect-grace", "300ms"), newRestless(t)
	begun := time.Now()
	var latest, recoveries []time.Duration
	late := map[string]int{}
	whole, unread := 0, 0
	for i := range n {
		profile := fmt.Sprintf("lost-%04d", i)
		c := dial(t, s.socket(profile, "worker=w&task=t&wait=30s"))
		session := site.open(t, c)
		c.evaluate(t, session, fmt.Sprintf(keep, i))
		time.Sleep(time.Duration(rand.Int64N(int64(400 * time.Millisecond))))
		lost := time.Now()
		c.drop()
		s.until(t, profile, lease.ManualReview, lease.Available)
		recoveries = append(recoveries, time.Since(lost))
		last := time.Duration(0)
		for _, w := range site.after(lost) {
			if last = max(last, w.at.Sub(lost)); w.at.Sub(lost) > 100*time.Millisecond {
				late[w.how]++
				t.Logf("%s: %s came %v after the loss", profile, w.how, w.at.Sub(lost))
			}
		}
		latest = append(latest, last)
		if answers, how := s.inspection(t, profile); answers["account_stood_still"] != "yes" {
			t.Errorf("%s: %v", profile, how["account_stood_still"])
		} else if answers["cookies_whole"] != "yes" {
			unread++
			t.Logf("%s: %s", profile, how["cookies_whole"])
		} else if i%10 == 0 {
			s.foundWhole(t, profile, site, i)
			whole++
		}
		if i%20 == 19 {
			t.Logf("%d losses in %v", i+1, time.Since(begun).Round(time.Second))
		}
	}
	slices.Sort(latest)
	slices.Sort(recoveries)
	t.Logf("%d losses: the last write came %v after the loss (median), %v at most; late: %v; %d recovered profiles looked at, whole; %d cookies not read in time; decided %v after the loss (median), %v at most",
		n, latest[len(latest)/2], latest[len(latest)-1], late, whole, unread, recoveries[len(recoveries)/2], recoveries[len(recoveries)-1])
	if len(late) > 0 {
		t.Errorf("late: %v", late)
	}
}

// TestAPageThatWaitsForTheNetworkIsSeenLater: the launcher is killed while the page waits. Its worker does not come
// back to the guard, nor to the next launcher if a session cannot go on there: both free the page, and capture it.
func TestAPageThatWaitsForTheNetworkIsSeenLater(t *testing.T) {
	for by, more := range map[string]struct {
		orphans string
		runs    int // several do not go on
	}{"the guard": {"1s", 1}, "the next launcher": {"10m", 2}} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s, site := start(t, "--reconnect-grace", "60s", "--orphan-timeout", more.orphans), newSite(t)
			if code := s.call(t, "PUT", "/v1/profiles/waits", map[string]any{"max_active_runs": more.runs}, nil); code != 200 {
				t.Fatalf("status %d", code)
			}
			var workers []*socket
			for i := range more.runs {
				ses := s.open(t, "waits", map[string]any{"task_id": fmt.Sprint("task-", i), "requires_exclusive_profile_lock": more.runs == 1})
				workers = append(workers, dial(t, ses.CDPURL))
			}
			page, _ := workers[0].page(t, site.URL, "")
			workers[0].evaluate(t, page, "setInterval(() => { document.cookie = 'n=' + Math.random(); document.cookie }, 5), 1")
			for _, c := range workers {
				c.drop()
			}
			eventually(t, "the browser to stand still", func() error {
				if stopped, moving := s.networkServices(t); stopped != 1 || moving != 0 {
					return fmt.Errorf("%d stopped, %d moving", stopped, moving)
				}
				return nil
			})
			s.kill(t)
			if more.runs == 1 {
				eventually(t, "the guard to end the browser", func() error {
					if left := s.browsers(t); len(left) > 0 {
						return fmt.Errorf("browsers %v", left)
					}
					return nil
				})
			}
			s.launch(t)
			s.until(t, "waits", lease.ManualReview)
			m := s.bundle(t, "waits")
			if at := slices.IndexFunc(m.Pages, func(p evidence.PageResult) bool { return p.URL == site.URL+"/" || p.URL == site.URL }); at < 0 || m.Pages[at].Screenshot == "" || m.Pages[at].DOM == "" {
				t.Errorf("the evidence of the pages is %+v", m.Pages)
			}
		})
	}
}
