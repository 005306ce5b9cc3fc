package differ

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"leasehold/internal/test/sides"
	"leasehold/launcher/chrome"
)

// attempts is how often a script is played before a difference counts: much of what
// Chrome sends at the same time has no order of its own, and a play is a sample. What
// differs every time is a difference.
const attempts = 4

// sample are the scripts that are played without being asked for.
var sample = []string{
	"popup-that-opens-a-dialog-at-once",
	"command-on-a-child-of-a-detached-session",
	"page-socket-ends-by-json-close",
	"another-connection-waits-while-the-browser-closes",
	"same-id-twice-on-one-session",
	"target-tab-attached",
	"disconnect-takes-nothing-away",
	"debugger-statement",
	"oopif-nested-session-detached",
	"envelope-not-an-object",
	"frame-fragments-with-a-ping",
	"connections-share-a-page",
	"popup-waits-for-two-clients",
	"discovery-new",
}

// scripts reads the scripts that LEASEHOLD_DIFFER names: all, those of its
// patterns, with commas between, or the sample.
func scripts(t *testing.T) (list []*Script, all bool) {
	t.Helper()
	files, err := filepath.Glob("testdata/scripts/*.cdp")
	if err != nil {
		t.Fatal(err)
	}
	asked := os.Getenv("LEASEHOLD_DIFFER")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".cdp")
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(name, string(source))
		if err != nil {
			t.Error(err)
			continue
		}
		if asked == "all" || matches(strings.Split(asked, ","), name) || asked == "" && slices.Contains(sample, name) {
			list = append(list, s)
		}
	}
	// Those that end their browser come last: the next one would need a new one.
	slices.SortStableFunc(list, func(a, b *Script) int { return cmp.Compare(ends(a), ends(b)) })
	return list, asked == "all"
}

// ends is 1 for a script that closes its browser.
func ends(s *Script) int {
	if slices.ContainsFunc(s.steps, func(st step) bool { return slices.Contains(st.words, "Browser.close") }) {
		return 1
	}
	return 0
}

// side keeps a browser for one script after the other.
type side struct {
	start   func() (*Browser, error)
	browser *Browser
	starts  int
}

func (s *side) play(script *Script, site *Site) (*Play, error) {
	if s.browser == nil {
		b, err := s.start()
		if err != nil {
			return nil, err
		}
		s.browser, s.starts = b, s.starts+1
	}
	p, err := s.browser.Run(script, site)
	if tidied := s.browser.Tidy(site); tidied != nil {
		// The script ended the browser, or left it in a state that cannot be undone.
		closed := s.browser.Close()
		s.browser = nil
		err = errors.Join(err, closed)
	}
	return p, err
}

func (s *side) close() error {
	if s.browser == nil {
		return nil
	}
	return s.browser.Close()
}

// newSides returns the two sides. With LEASEHOLD_DIFFER_AGAINST=port the second is a port
// as well: what differs then has no order in Chrome.
func newSides(t *testing.T) (port, through *side) {
	t.Helper()
	chromium, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	onPort := func(name string) *side {
		base, n := t.TempDir(), 0
		return &side{start: func() (*Browser, error) {
			n++
			return OnPort(chromium, filepath.Join(base, fmt.Sprint(name, n)))
		}}
	}
	port = onPort("a")
	if os.Getenv("LEASEHOLD_DIFFER_AGAINST") == "port" {
		through = onPort("b")
	} else {
		through = &side{start: (&Sidecar{Sidecar: sides.ForTest(t)}).Browser}
	}
	t.Cleanup(func() {
		if err := errors.Join(port.close(), through.close()); err != nil {
			t.Error(err)
		}
	})
	return port, through
}

// TestClientsSeeWhatChromeSends plays each script on a port and through a sidecar.
func TestClientsSeeWhatChromeSends(t *testing.T) {
	list, all := scripts(t)
	site := NewSite("testdata/site")
	t.Cleanup(site.Close)
	port, through := newSides(t)
	total, differences, met := 0, 0, map[string]int{}
	var again []string
	for _, s := range list {
		t.Run(s.Name, func(t *testing.T) {
			var left []Difference
			for try := range attempts {
				plays := playBoth(t, s, site, port, through)
				if plays == nil {
					return
				}
				var explained map[string]int
				var n int
				left, explained, n = Compare(s, plays[0], plays[1])
				if os.Getenv("LEASEHOLD_DIFFER_SHOW") != "" {
					t.Logf("%s\n%s", plays[0].Transcript(s), plays[1].Transcript(s))
				}
				if plays[0].Failed != nil {
					left = append(left, Difference{Stream: "the port: the script is wrong", Port: []string{plays[0].Failed.Error()}})
				}
				if len(left) == 0 || try == attempts-1 || plays[0].Failed != nil {
					total += n
					for name, times := range explained {
						met[name] += times
					}
				}
				if len(left) == 0 {
					break
				}
				if plays[0].Failed != nil {
					break // a script has to end on the port each time
				}
				if try == 0 {
					again = append(again, s.Name)
				}
			}
			if len(left) > 0 {
				differences++
				t.Errorf("%s\nIn each of up to %d plays a client saw something else than on Chrome's port:", s.About, attempts)
				for _, d := range left {
					t.Log(d)
				}
			}
		})
	}
	for _, name := range sample {
		if asked := os.Getenv("LEASEHOLD_DIFFER"); asked == "" && !slices.ContainsFunc(list, func(s *Script) bool { return s.Name == name }) {
			t.Errorf("there is no script %s", name)
		}
	}
	t.Logf("%d scripts, %d messages compared, %d scripts differ, exceptions met %v; played again: %v; browsers %d and %d",
		len(list), total, differences, met, again, port.starts, through.starts)
	for _, e := range Exceptions {
		if all && met[e.Name] == 0 {
			t.Errorf("no script meets the exception %s any more: take it out", e.Name)
		}
	}
}

// playBoth plays a script on both sides at once. It returns nil if a side cannot play.
func playBoth(t *testing.T, s *Script, site *Site, sides ...*side) []*Play {
	t.Helper()
	plays, errs := make([]*Play, len(sides)), make([]error, len(sides))
	var wait sync.WaitGroup
	for i, side := range sides {
		wait.Go(func() { plays[i], errs[i] = side.play(s, site) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
		return nil
	}
	return plays
}
