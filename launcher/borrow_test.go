package launcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/lease"
)

// nothingIsDone checks that a profile is not checked, copied or archived, and its clone not
// removed, after lose: the store cannot be used then.
func nothingIsDone(t *testing.T, l *Launcher, lose func()) {
	t.Helper()
	if _, err := l.ImportProfile(t.Context(), "p", api.ProfileImport{From: userDataDir(t)}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.CloneProfile(t.Context(), "p", api.ProfileClone{To: "q"}); err != nil {
		t.Fatal(err)
	}
	check := lease.SessionCheck{URL: "https://shop.example/me"}
	if _, err := l.PutProfile(t.Context(), "p", api.ProfileSettings{SessionCheck: &check}); err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func() error{
		"check":   func() error { _, err := l.CheckProfile(t.Context(), "p"); return err },
		"clone":   func() error { _, err := l.CloneProfile(t.Context(), "p", api.ProfileClone{To: "r"}); return err },
		"archive": func() error { _, err := l.ArchiveProfile(t.Context(), "p", api.ProfileArchive{}); return err },
		"remove":  func() error { _, err := l.RemoveClone(t.Context(), "q", api.ProfileRemove{}); return err },
	} {
		lose()
		var p *api.Problem
		if err := ask(); !errors.As(err, &p) || p.Code != api.CodeStoreUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	for id, want := range map[string]bool{"p": true, "q": true, "r": false} {
		if _, err := l.o.Root.Path(id); (err == nil) != want {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestNothingIsDoneToAProfileWithoutAPresence: a launcher that may grant nothing, since another
// one is known under its id for example, opens no profile for a check, and copies and moves
// none.
func TestNothingIsDoneToAProfileWithoutAPresence(t *testing.T) {
	l, _ := startLauncher(t)
	nothingIsDone(t, l, sync.OnceFunc(func() { supersede(t, l) }))
}

// supersede writes the presence of another launcher with the same id, and returns when this one
// knows it.
func supersede(t *testing.T, l *Launcher) {
	t.Helper()
	var moved *lease.PresenceMovedError
	for err := error(&lease.PresenceMovedError{}); errors.As(err, &moved); { // by the launcher's own renewal
		var was lease.PresenceEntry
		was, err = l.o.Store.Presence(t.Context(), l.o.ID)
		mustIn(t)(err)
		other := was.Presence
		other.Epoch++
		_, err = l.o.Store.SwapPresence(t.Context(), was, other)
		if !errors.As(err, &moved) {
			mustIn(t)(err)
		}
	}
	l.host.Presence.StoreReset()
	for deadline := time.Now().Add(time.Minute); l.host.Presence.MayAct(lease.Record{}) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the launcher still acts a minute after another one superseded it")
		}
	}
}

// The browser of a session check changes a profile under the token that it has: what a site sets goes to the
// directory and the jar. The snapshot of before is then not the profile as it is now, and another is made;
// but not where nothing has changed.
func TestACheckIsFollowedByASnapshot(t *testing.T) {
	r, _ := startImporting(t)
	_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
	mustIn(t)(err)
	free := lease.MobilityFree
	_, err = r.PutProfile(t.Context(), "p", api.ProfileSettings{Mobility: &free, SessionCheck: &lease.SessionCheck{URL: "http://127.0.0.1:1/me"}})
	mustIn(t)(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	record := func() lease.Record {
		t.Helper()
		mustIn(t)(r.snapshotter.Drain(ctx))
		e, err := r.o.Store.Get(ctx, "p")
		mustIn(t)(err)
		if err := e.Record.MayMove(); err != nil || e.Record.Token != 0 {
			t.Errorf("token %d: %v", e.Record.Token, err)
		}
		return e.Record
	}
	check := func() {
		t.Helper()
		_, err := r.CheckProfile(ctx, "p")
		mustIn(t)(err)
	}
	path, err := r.o.Root.Path("p")
	mustIn(t)(err)
	site := func(sets string) {
		fakechrome.Direct(t, path, fakechrome.Script{Cookies: []fakechrome.Cookie{{Name: "sid", Value: sets, Domain: "shop.example", Path: "/", Session: true}}})
	}
	site("1")
	before := record()

	var asked, during lease.Record
	r.leases.set(hooks{swapped: func(next lease.Record) error { // of the note that comes before the browser
		if next.Opened == 1 && asked.Opened == 0 {
			asked = next
		}
		return nil
	}})
	check()
	if during = record(); during.SnapshotID != before.SnapshotID || asked.HasSnapshot() || asked.UsualSnapshot() != before.SnapshotID {
		t.Errorf("a check that changed nothing: snapshot %s before, %s after; noted before its browser: %+v", before.SnapshotID, during.SnapshotID, asked)
	}
	r.leases.set(hooks{})

	rotating, stop := context.WithCancel(ctx)
	var rotates sync.WaitGroup
	rotates.Go(func() {
		for n := 2; rotating.Err() == nil; n++ {
			site(strconv.Itoa(n))
		}
	})
	check()
	stop()
	rotates.Wait()
	if after := record(); after.SnapshotID == before.SnapshotID {
		t.Errorf("a check that changed cookies: snapshot %s before and after", before.SnapshotID)
	}
}

// A check whose browser had cookies that could not be kept leaves a profile that nobody gets before a person has
// decided: a site may have replaced the login.
func TestACheckThatLosesCookiesGoesToAPerson(t *testing.T) {
	r, _ := startImporting(t)
	_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
	mustIn(t)(err)
	_, err = r.PutProfile(t.Context(), "p", api.ProfileSettings{SessionCheck: &lease.SessionCheck{URL: "http://127.0.0.1:1/me"}})
	mustIn(t)(err)
	path, err := r.o.Root.Path("p")
	mustIn(t)(err)
	fakechrome.Direct(t, path, fakechrome.Script{Cookies: []fakechrome.Cookie{{Name: "sid", Value: "2", Domain: "shop.example", Path: "/", Session: true}}})
	jar := filepath.Join(r.o.DataDir, "session-cookies")
	mustIn(t)(os.RemoveAll(jar))
	mustIn(t)(os.Symlink("nowhere", jar))
	if _, err := r.CheckProfile(t.Context(), "p"); err == nil {
		t.Error("the check found no fault in its end")
	}
	if why, err := r.o.Root.Replaced("p"); err != nil || !strings.Contains(why, "cookies were not kept") {
		t.Errorf("a person is told %q, %v", why, err)
	}
	if _, err := r.Acquire(t.Context(), api.Manifest{ProfileID: "p"}); err == nil {
		t.Error("the profile is granted")
	}
}

// noted are scripted browsers. It has what the last one that only reads was started with.
type noted struct {
	scripted
	mu   sync.Mutex
	last chrome.Options
}

func (n *noted) Start(ctx context.Context, o chrome.Options) (browser.Process, error) {
	if o.ReadOnly {
		n.mu.Lock()
		n.last = o
		n.mu.Unlock()
	}
	return n.scripted.Start(ctx, o)
}

// A check is made by the browser of the profile's last task: a site that ties a session to its browser would end it
// otherwise. A person's browser is not that of a task.
func TestACheckHasTheBrowserOfTheTasks(t *testing.T) {
	browsers := &noted{}
	r := startReading(t, 2, func(o *Options) { o.ImportRoots, o.Processes = []string{os.TempDir()}, browsers })
	_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
	mustIn(t)(err)
	_, err = r.PutProfile(t.Context(), "p", api.ProfileSettings{SessionCheck: &lease.SessionCheck{URL: "http://127.0.0.1:1/me"}})
	mustIn(t)(err)
	session := func(m api.Manifest) {
		t.Helper()
		m.ProfileID, m.WorkerID, m.TaskID = "p", "w", "t"
		if m.ByHand != nil {
			e, err := r.o.Store.Get(t.Context(), "p")
			mustIn(t)(err)
			m.ByHand.TokenSeen = e.Record.Token
		}
		s, err := r.Acquire(t.Context(), m)
		mustIn(t)(err)
		r.end(s)
		for changed := r.host.Slots.Changed(); r.host.Slots.Find("p") != nil; changed = r.host.Slots.Changed() {
			<-changed
		}
	}
	args := []string{"--user-agent=Chrome of ann", "--lang=de-DE"}
	for _, tt := range []struct {
		name     string
		last     *api.Manifest
		headless bool
		args     []string
	}{
		{"nobody used it", nil, true, nil},
		{"a task", &api.Manifest{Headless: new(false), ChromeArgs: args}, false, args},
		{"a task without", &api.Manifest{}, true, nil},
		{"a person", &api.Manifest{Headless: new(false), ByHand: &api.ByHand{Holder: "ann"}}, true, nil},
	} {
		if tt.last != nil {
			session(*tt.last)
		}
		_, err := r.CheckProfile(t.Context(), "p")
		mustIn(t)(err)
		browsers.mu.Lock()
		if got := browsers.last; got.Headless != tt.headless || !slices.Equal(got.ExtraArgs, tt.args) {
			t.Errorf("%s: headless %v, arguments %q; want %v, %q", tt.name, got.Headless, got.ExtraArgs, tt.headless, tt.args)
		}
		browsers.mu.Unlock()
	}
}

// A check does not go past the host's own proxy, by which the sessions of a profile without one go. Where they go past it
// themselves, since they are read-only, a check does so, too.
func TestACheckGoesTheWayOfTheSessions(t *testing.T) {
	browsers := &noted{}
	r := startReading(t, 2, func(o *Options) { o.ImportRoots, o.Processes = []string{os.TempDir()}, browsers })
	_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
	mustIn(t)(err)
	for _, tt := range []struct {
		name, variable    string
		readOnly, refused bool
	}{
		{"no variable", "", false, false},
		{"no proxy for some", "no_proxy", false, false},
		{"its sessions go through it", "https_proxy", false, true},
		{"the same by another name", "ALL_PROXY", false, true},
		{"its sessions go past it", "https_proxy", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{"http_proxy", "https_proxy", "all_proxy", "auto_proxy", "socks_server"} { // the machine's own
				t.Setenv(name, "")
				t.Setenv(strings.ToUpper(name), "")
			}
			if tt.variable != "" {
				t.Setenv(tt.variable, "http://10.0.0.9:3128")
			}
			_, err := r.PutProfile(t.Context(), "p", api.ProfileSettings{SessionCheck: &lease.SessionCheck{URL: "http://127.0.0.1:1/me"}, ReadOnly: &tt.readOnly})
			mustIn(t)(err)
			browsers.mu.Lock()
			browsers.last = chrome.Options{}
			browsers.mu.Unlock()
			said, err := r.CheckProfile(t.Context(), "p")
			mustIn(t)(err)
			says := strings.Contains(said.How, "through that of "+tt.variable+" in") && strings.Contains(said.How, "--proxies")
			browsers.mu.Lock()
			defer browsers.mu.Unlock()
			if started := browsers.last.ProfileDir != ""; started == tt.refused || says != tt.refused {
				t.Errorf("a browser was started: %v; %s: %s", started, said.SignedIn, said.How)
			}
		})
	}
}

// A check whose browser cannot be noted beforehand is not made.
func TestNothingIsCheckedThatIsNotNoted(t *testing.T) {
	r, _ := startImporting(t)
	_, err := r.ImportProfile(t.Context(), "p", api.ProfileImport{From: closedInOrder(t, "it")})
	mustIn(t)(err)
	_, err = r.PutProfile(t.Context(), "p", api.ProfileSettings{SessionCheck: &lease.SessionCheck{URL: "http://127.0.0.1:1/me"}})
	mustIn(t)(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mustIn(t)(r.snapshotter.Drain(ctx))
	r.leases.set(hooks{swap: func(lease.Record) error { return lease.ErrUnavailable }})
	var p *api.Problem
	if _, err := r.CheckProfile(ctx, "p"); !errors.As(err, &p) || p.Code != api.CodeStoreUnavailable {
		t.Errorf("while the store takes nothing: %v", err)
	}
	families, err := r.registry.Gather()
	mustIn(t)(err)
	for _, f := range families {
		if f.GetName() == "leasehold_browser_start_seconds" && f.GetMetric()[0].GetHistogram().GetSampleCount() > 0 {
			t.Error("a browser was started")
		}
	}
}
