package adopt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/proxies"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

// A session goes on only where nothing speaks against it.
func TestWhatMayGoOn(t *testing.T) {
	h := newStoredHost(t)
	served := h.granted(lease.Record{ProfileID: "p"}, "ses_p")
	for _, f := range []struct {
		id     string
		change func(*sessionfile.File)
	}{
		{"ses_p", func(*sessionfile.File) {}},
		{"ses_ending", func(f *sessionfile.File) { f.Reason = api.ReasonHeartbeat }},
		{"ses_ended", func(f *sessionfile.File) { f.Ended = "released" }},
		{"ses_sealed", func(f *sessionfile.File) { f.Evidence.EvidenceID = "ev_1" }},
		{"ses_other_token", func(f *sessionfile.File) { f.Token = 2 }},
	} {
		file := fileOf(served)
		file.SessionID = f.id
		f.change(&file)
		h.must(h.files.Save(file))
	}
	of := func(sessionID string) func(*launcher, *lease.Record) {
		return func(_ *launcher, r *lease.Record) { r.SessionID, r.Runs[0].SessionID = sessionID, sessionID }
	}
	for _, tt := range []struct {
		name   string
		change func(*launcher, *lease.Record)
		want   string // part of why it does not; empty: it does
		notYet bool
	}{
		{"nothing speaks against it", func(*launcher, *lease.Record) {}, "", false},
		{"the launcher drains", func(l *launcher, _ *lease.Record) { l.o.Sessions.Drain() }, "draining", false},
		{"a session that is not known", of("ses_unknown"), "no session file", false},
		{"its end had begun", of("ses_ending"), "its end had begun", false},
		{"it has ended", of("ses_ended"), "its end had begun", false},
		{"its evidence is sealed", of("ses_sealed"), "its end had begun", false},
		{"its file has another token", of("ses_other_token"), "it had token 2, the profile has 1", false},
		{"it expired meanwhile", func(l *launcher, _ *lease.Record) { l.presence.over = true }, "expired", false},
		{"a lease of an epoch before", func(_ *launcher, r *lease.Record) { r.PresenceEpoch = 0 }, "expired", false},
		{"no presence", func(l *launcher, _ *lease.Record) { l.presence.err = errors.New("the store is away") }, "the store is away", true},
		{"no presence, and it expired", func(l *launcher, _ *lease.Record) {
			l.presence.err, l.presence.over = errors.New("the store is away"), true
		}, "expired", false},
		{"another boot", func(_ *launcher, r *lease.Record) { r.BootID = "another" }, "the lease is held", false},
		{"another launcher's", func(_ *launcher, r *lease.Record) { r.LauncherID = "near" }, "the lease is held", false},
		{"suspected", func(_ *launcher, r *lease.Record) { r.State = lease.SuspectedStale }, "the lease is suspected_stale", false},
		{"two runs", func(_ *launcher, r *lease.Record) { r.Runs = append(r.Runs, lease.Run{SessionID: "ses_2", Token: 1}) }, "with 2 runs", false},
		{"a run was lost", func(_ *launcher, r *lease.Record) { r.LostRuns = []lease.Run{{SessionID: "ses_2"}} }, "the lease is held", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := h.launch(nil)
			defer l.end()
			r := served.Clone()
			tt.change(l, &r)
			err := l.resumable(r)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || errors.Is(err, errNotYet) != tt.notYet {
				t.Errorf("%v", err)
			}
		})
	}
}

// Its browser has to be there, and to be one that can be driven. Otherwise nothing is
// changed.
func TestASessionNeedsItsBrowser(t *testing.T) {
	h := newStoredHost(t)
	before := h.serves("p")
	l := h.launch(nil)
	lock := h.lock("p")
	for want, b := range map[string]*browser.Browser{"its browser is gone": nil, "its browser cannot be driven": {}} {
		slot := l.o.Slots.Occupy("p")
		if l.resume(slot, before, filepath.Join(h.root.Dir(), "p"), lock, b, &entryBuffer{}, h.log()) {
			t.Errorf("it goes on, although %s", want)
		}
		slot.Vacate()
		if !strings.Contains(h.said.String(), want) {
			t.Errorf("not said: %s", want)
		}
	}
	h.must(lock.Unlock())
	if h.record("p").Nonce != before.Nonce || h.file("ses_p").Unseen || l.adoptions() != 0 {
		t.Error("changed")
	}
}

// A session whose launcher was killed goes on in the next one, in the same browser and
// under the same token. Where its lease has expired it is recovered, and its browser shows
// what there was.
func TestASessionGoesOn(t *testing.T) {
	t.Parallel()
	h := newStoredHost(t)
	before := h.serves("p")
	id := h.browser(before)
	l := h.launch(nil)
	got := l.adopts("p")
	if got.State != lease.Held || got.Token != 1 || got.PresenceEpoch != l.presence.keeper.Epoch() || got.SessionID != "ses_p" || l.adoptions() != 1 {
		t.Errorf("%+v, %v adoptions", got, l.adoptions())
	}
	s, err := l.o.Sessions.Lookup("ses_p")
	h.must(err)
	slot := l.o.Slots.Find("p")
	if s.Browser().PID() != id.PID || s.Fence().Check() != nil || slot.StartedFor() != "ses_p" || slot.State() != slots.Serving {
		t.Errorf("browser %d, fence %v, started for %s", s.Browser().PID(), s.Fence().Check(), slot.StartedFor())
	}
	if f := h.file("ses_p"); !f.Unseen || f.Reason != "" {
		t.Errorf("its file: %+v", f)
	}
	// What is seen in the browser goes into the session's journal from now on.
	slot.Note(checkpoint.Entry{Kind: checkpoint.KindURL, URL: "https://shop.example/paid"})

	l.end()
	l = h.launch(nil)
	l.presence.over = true
	got = l.adopts("p")
	if got.State != lease.ManualReview || got.Token != 2 || h.lives(id) || l.adoptions() != 0 {
		t.Errorf("%+v, the browser lives: %v", got, h.lives(id))
	}
	if m := l.manifest(got.EvidenceID); m.LastScreenshot == "" || m.LastKnownURL != "https://shop.example/paid" {
		t.Errorf("%+v", m)
	}
	if f := h.file("ses_p"); f.CloseMethod != "cdp" || f.Ended == "" {
		t.Errorf("its file: %+v", f)
	}
	h.given("p")
}

// proxySet is the configuration of proxies with that content.
func proxySet(t *testing.T, content string) *proxies.Set {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxies.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := proxies.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// use is how a session's file names the proxy p0 of a set.
func use(set *proxies.Set) *sessionfile.ProxyUse {
	p := set.Find("p0")
	return &sessionfile.ProxyUse{ID: p.ID(), Server: p.Server(), Sum: p.Sum()}
}

// A browser that outlived its launcher has a way out only to the proxy with which it was started: until it
// is known whether its session goes on, its pages are open, and nothing of them may be seen at another
// address. That of a session check is closed, and needs none.
func TestABrowserHasNoRelayToAnotherProxy(t *testing.T) {
	const configured = "p0: {server: 'http://127.0.0.1:3128', username: u, password: secret}"
	before := proxySet(t, configured)
	for name, tt := range map[string]struct {
		now   string
		check bool // the browser is one of a session check
		relay bool
	}{
		"the same":         {now: configured, relay: true},
		"another password": {now: "p0: {server: 'http://127.0.0.1:3128', username: u, password: changed}", relay: true},
		"another server":   {now: "p0: {server: 'http://127.0.0.1:3129', username: u, password: secret}"},
		"another user":     {now: "p0: {server: 'http://127.0.0.1:3128', username: v, password: secret}"},
		"of a check":       {now: configured, check: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newStoredHost(t)
			r := h.granted(lease.Record{ProfileID: "p", ProxyID: "p0"}, "ses_p")
			f := fileOf(r)
			f.Proxy = use(before)
			h.must(h.files.Save(f))
			noted := r
			if tt.check {
				noted.SessionID = "chk_1"
			}
			h.browserAt(noted, before.Find("p0"))
			l := h.launch(func(o *Options) { o.Proxies = proxySet(t, tt.now) })
			slot := l.o.Slots.Occupy("p")
			defer slot.Vacate()
			lock, b, err := l.adoptBrowser(slot, r, filepath.Join(h.root.Dir(), "p"), slot.Note, h.log())
			h.must(err)
			if b == nil {
				t.Fatal("the browser is not found")
			}
			if got := slot.HasRelay(); got != tt.relay {
				t.Errorf("it has a relay: %v, want %v", got, tt.relay)
			}
			_, err = b.Close("p", nil, h.log())
			h.must(err, lock.ClearRunning(), lock.Unlock())
		})
	}
}

// A browser goes on only through the proxy that its profile has now.
func TestTheProxyHasToBeTheSame(t *testing.T) {
	load := func(content string) *proxies.Set { return proxySet(t, content) }
	plain := load("p0: {server: 'http://127.0.0.1:3128'}")
	moved := load("p0: {server: 'http://127.0.0.1:3129'}")
	wants := load("p0: {server: 'http://127.0.0.1:3128', username: u, password: secret}")
	for _, tt := range []struct {
		name string
		now  *proxies.Set
		used *sessionfile.ProxyUse
		id   string
		want string // part of why not; empty: it may go on
	}{
		{"no proxy", nil, nil, "", ""},
		{"the same", plain, use(plain), "p0", ""},
		{"another server", moved, use(plain), "p0", "was http://127.0.0.1:3128"},
		{"none any more", nil, use(plain), "p0", "does not have any more"},
		{"the record has none", plain, use(plain), "", "the record has"},
		{"the browser has none", plain, nil, "p0", "is not known"},
		{"one that wants credentials, without the relay", wants, use(wants), "p0", "could not be opened again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newStoredHost(t)
			r := h.granted(lease.Record{ProfileID: "p", ProxyID: tt.id}, "ses_p")
			f := fileOf(r)
			f.Proxy = tt.used
			h.must(h.files.Save(f))
			l := h.launch(func(o *Options) { o.Proxies = tt.now })
			slot := l.o.Slots.Occupy("p")
			defer slot.Vacate()
			if err := l.sameProxy(slot, r); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestEntriesArePassedOn(t *testing.T) {
	var b entryBuffer
	b.add(checkpoint.Entry{Seq: 1})
	b.add(checkpoint.Entry{Seq: 2})
	var got []uint64
	b.passTo(func(e checkpoint.Entry) { got = append(got, e.Seq) })
	b.add(checkpoint.Entry{Seq: 3})
	if len(got) != 3 || got[0] != 1 || got[1] != 2 || got[2] != 3 {
		t.Errorf("passed on: %v", got)
	}
}

// What is seen while the buffer is passed on comes after what it had.
func TestEntriesStayInOrder(t *testing.T) {
	for range 50 {
		var b entryBuffer
		const all = 200
		begun, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for i := range uint64(all) {
				b.add(checkpoint.Entry{Seq: i})
				if i == all/4 {
					close(begun)
				}
			}
		}()
		<-begun
		var got []uint64
		b.passTo(func(e checkpoint.Entry) { got = append(got, e.Seq) })
		<-ended
		for i, seq := range got {
			if seq != uint64(i) {
				t.Fatalf("entry %d came as %d", seq, i)
			}
		}
		if len(got) != all {
			t.Fatalf("%d of %d came", len(got), all)
		}
	}
}
