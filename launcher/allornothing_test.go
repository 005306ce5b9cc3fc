package launcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/natsd"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/fileroots"
	"leasehold/launcher/principal"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

// hookedStore is the lease store of a running launcher, in which a test makes things happen.
type hookedStore struct {
	lease.Store
	hooks atomic.Pointer[hooks]
}

// hooks are what happens before a record is read, before it is written, and when it is written,
// before anybody is told, and before a presence is written. What fails is the answer. Each may be nil.
type hooks struct {
	get           func(profile string)
	swap, swapped func(next lease.Record) error
	presence      func() error
}

// set replaces all hooks.
func (s *hookedStore) set(h hooks) { s.hooks.Store(&h) }

func (s *hookedStore) Get(ctx context.Context, profile string) (lease.Entry, error) {
	if h := s.hooks.Load(); h.get != nil {
		h.get(profile)
	}
	return s.Store.Get(ctx, profile)
}

func (s *hookedStore) Swap(ctx context.Context, prev lease.Entry, next lease.Record) (lease.Entry, error) {
	h := s.hooks.Load()
	if h.swap != nil {
		if err := h.swap(next); err != nil {
			return lease.Entry{}, err
		}
	}
	e, err := s.Store.Swap(ctx, prev, next)
	if err == nil && h.swapped != nil {
		if err := h.swapped(next); err != nil {
			return lease.Entry{}, err
		}
	}
	return e, err
}

func (s *hookedStore) SwapPresence(ctx context.Context, prev lease.PresenceEntry, next lease.Presence) (lease.PresenceEntry, error) {
	if h := s.hooks.Load(); h.presence != nil {
		if err := h.presence(); err != nil {
			return lease.PresenceEntry{}, err
		}
	}
	return s.Store.SwapPresence(ctx, prev, next)
}

// hooked gives the launcher of the options a store with hooks.
func hooked(o *Options) *hookedStore {
	s := &hookedStore{Store: o.Store}
	s.set(hooks{})
	o.Store = s
	return s
}

// startLauncher starts a launcher with a real NATS and proxies of which none answers.
func startLauncher(t *testing.T) (*Launcher, *hookedStore) {
	t.Helper()
	return startEncrypting(t, evidence.Keys{})
}

// optionsIn are those that the launchers of these tests share, with a NATS of their own. All that
// they keep is in the directory.
func optionsIn(t *testing.T, dir string, keys evidence.Keys) Options {
	t.Helper()
	must := mustIn(t)
	server, err := natsd.Start(natsd.Options{Dir: filepath.Join(dir, "nats"), Log: zerolog.Nop()})
	must(err)
	t.Cleanup(server.Shutdown)
	nc, err := server.Connect()
	must(err)
	t.Cleanup(nc.Close)
	kv, err := natskv.Open(t.Context(), nc, natskv.Options{Log: zerolog.Nop(), LauncherID: "here"})
	must(err)
	t.Cleanup(kv.Close)
	root, err := profiledir.Open(filepath.Join(dir, "profiles"), testkey.Key)
	must(err)
	spool, err := evidence.OpenEncryptedSpool(filepath.Join(dir, "spool"), keys)
	must(err)
	bundles, err := evidence.OpenDirStore(filepath.Join(dir, "evidence"))
	must(err)
	file := filepath.Join(dir, "proxies.yaml")
	must(os.WriteFile(file, []byte("down:\n  server: http://127.0.0.1:1\n"), 0o600))
	known, err := proxies.Load(file)
	must(err)
	roots, err := fileroots.New(fileroots.Options{Private: []string{dir}, DataDir: dir})
	must(err)
	return Options{
		ID: "here", DataDir: dir, Key: testkey.Key, Root: root, FileRoots: roots, Store: kv, Archive: evidence.NewArchive(spool, bundles, zerolog.Nop()), Ping: kv.Ping,
		Headless: true, Proxies: known, Timing: lease.Timing{TTL: 30 * time.Second}, HomeTimeout: time.Hour, PersonGrace: time.Minute, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
	}
}

// mustIn returns a function that ends the test after an error.
func mustIn(t *testing.T) func(error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// runIn starts a launcher that is stopped with the test.
func runIn(t *testing.T, o Options) *Launcher {
	t.Helper()
	l, err := New(o)
	mustIn(t)(err)
	l.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

// startEncrypting is startLauncher for evidence that is encrypted as the keys say.
func startEncrypting(t *testing.T, keys evidence.Keys) (*Launcher, *hookedStore) {
	t.Helper()
	o := optionsIn(t, t.TempDir(), keys)
	store := hooked(&o)
	o.Chrome, o.ImportRoots = fakechrome.Binary(t), []string{os.TempDir()}
	return runIn(t, o), store
}

// userDataDir makes a directory that can be imported.
func userDataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Local State"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// making are all the ways to make a profile that is of an account and goes out by a proxy.
func making(t *testing.T, l *Launcher, source string) map[string]func(ctx context.Context, profile, proxy string) error {
	from, account := userDataDir(t), "store-18"
	return map[string]func(context.Context, string, string) error{
		"put": func(ctx context.Context, profile, proxy string) error {
			_, err := l.PutProfile(ctx, profile, api.ProfileSettings{AccountID: &account, ProxyID: &proxy})
			return err
		},
		"import": func(ctx context.Context, profile, proxy string) error {
			_, err := l.ImportProfile(ctx, profile, api.ProfileImport{From: from, AccountID: &account, ProxyID: &proxy})
			return err
		},
		"clone": func(ctx context.Context, profile, _ string) error {
			_, err := l.CloneProfile(ctx, source, api.ProfileClone{To: profile})
			return err
		},
		"session": func(ctx context.Context, profile, proxy string) error {
			_, err := l.Acquire(byOperator(ctx), api.Manifest{ProfileID: profile, AccountID: account, ProxyID: proxy, Create: true})
			return err
		},
		"one-shot": func(ctx context.Context, profile, proxy string) error {
			_, err := l.Acquire(byOperator(ctx), api.Manifest{ProfileID: profile, ProxyID: proxy, Create: true, OneShot: true})
			return err
		},
	}
}

// byOperator is the context of a request of somebody who may manage profiles.
func byOperator(ctx context.Context) context.Context {
	return principal.In(ctx, principal.Principal{Name: "op", Role: principal.Operator, Profiles: principal.Patterns{"*"}})
}

// sourceProfile makes the profile that is cloned.
func sourceProfile(t *testing.T, l *Launcher) string {
	t.Helper()
	account, proxy := "store-18", "down"
	if _, err := l.ImportProfile(t.Context(), "source", api.ProfileImport{From: userDataDir(t), AccountID: &account, ProxyID: &proxy}); err != nil {
		t.Fatal(err)
	}
	return "source"
}

// TestARefusedCreateMakesNothing: neither a directory, with which a worker would go out
// directly, nor a record.
func TestARefusedCreateMakesNothing(t *testing.T) {
	l, store := startLauncher(t)
	source := sourceProfile(t, l)
	nothing := func(name, profile string) {
		t.Helper()
		if _, err := os.Lstat(filepath.Join(l.o.Root.Dir(), profile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: there is a directory (%v)", name, err)
		}
		if _, err := store.Get(t.Context(), profile); !errors.Is(err, lease.ErrNotFound) {
			t.Errorf("%s: there is a record (%v)", name, err)
		}
		if list, err := l.ListProfiles(t.Context(), api.ProfileQuery{}); err != nil || len(list.Items) != 1 {
			t.Errorf("%s: %d profiles, %v", name, len(list.Items), err)
		}
		var p *api.Problem
		if _, err := l.Profile(t.Context(), profile); !errors.As(err, &p) || p.Code != api.CodeUnknownProfile {
			t.Errorf("%s: shown with %v", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(l.o.Root.Dir(), ".leasehold", ".import*")); len(left) > 0 {
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
	for name, ask := range making(t, l, source) {
		if name == "clone" {
			continue // it takes the proxy of its source
		}
		profile := "unknown-proxy-" + name
		var p *api.Problem
		if err := ask(byOperator(t.Context()), profile, "nope"); !errors.As(err, &p) || p.Field != "proxy_id" {
			t.Errorf("%s with a proxy that nobody knows: %v", name, err)
		}
		nothing(name+" with an unknown proxy", profile)
		if name == "session" || name == "one-shot" {
			if err := ask(byOperator(t.Context()), "down-"+name, "down"); !errors.As(err, &p) || p.Code != api.CodeBrowserStartFailed {
				t.Errorf("%s with a proxy that does not answer: %v", name, err)
			}
			nothing(name+" with a proxy that does not answer", "down-"+name)
		}
	}
	// The last thing that may refuse before the grant: the session's file cannot be written.
	sessions := filepath.Join(l.o.DataDir, "sessions")
	if err := errors.Join(os.Rename(sessions, sessions+".away"), os.WriteFile(sessions, nil, 0o600)); err != nil {
		t.Fatalf("the folder of the sessions cannot be put away: %v", err)
	}
	var p *api.Problem
	if _, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "unrecorded", Create: true}); !errors.As(err, &p) {
		t.Errorf("session that cannot be recorded: %v", err)
	}
	nothing("session that cannot be recorded", "unrecorded")
	if err := errors.Join(os.Remove(sessions), os.Rename(sessions+".away", sessions)); err != nil {
		t.Fatalf("the folder of the sessions cannot be put back: %v", err)
	}
	bad, none := 0, "nope"
	for name, ask := range map[string]func() error{
		"put, too few runs": func() error {
			_, err := l.PutProfile(t.Context(), "p", api.ProfileSettings{MaxActiveRuns: &bad})
			return err
		},
		"put, a token of before": func() error {
			_, err := l.PutProfile(t.Context(), "p", api.ProfileSettings{Token: 7})
			return err
		},
		"import, no user-data-dir": func() error {
			_, err := l.ImportProfile(t.Context(), "p", api.ProfileImport{From: t.TempDir()})
			return err
		},
		"clone of nothing": func() error {
			_, err := l.CloneProfile(t.Context(), "q", api.ProfileClone{To: "p"})
			return err
		},
		"hold of nothing": func() error {
			_, err := l.Hold(t.Context(), "p", api.HoldRequest{Holder: "ana"})
			return err
		},
		"review of nothing": func() error {
			_, err := l.Review(t.Context(), "p", api.ReviewRequest{Decision: lease.ReviewApprove, Reviewer: "ana"})
			return err
		},
		"archive of nothing": func() error {
			_, err := l.ArchiveProfile(t.Context(), "p", api.ProfileArchive{})
			return err
		},
		"session, an argument that is not allowed": func() error {
			_, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "p", Create: true, ChromeArgs: []string{"--proxy-server=x"}})
			return err
		},
		"session without create": func() error {
			_, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "p", ProxyID: none})
			return err
		},
	} {
		var p *api.Problem
		if err := ask(); !errors.As(err, &p) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
		nothing(name, "p")
	}
}

// TestNoProfileIsThereBeforeItsRecord: a launcher that is killed while it makes a profile,
// at whatever write, leaves none that would go out without its proxy. Each write to the
// store is such a moment, as it fails here; what is on disk then is what a kill leaves.
func TestNoProfileIsThereBeforeItsRecord(t *testing.T) {
	l, store := startLauncher(t)
	source := sourceProfile(t, l)
	killed := errors.New("killed here")
	for name, ask := range making(t, l, source) {
		profile := "cut-short-" + name
		proxy := "down"
		if name == "session" || name == "one-shot" {
			proxy = "" // one that does not answer is refused before; the account is stored in the same way
		}
		writes := 0
		store.set(hooks{swap: func(next lease.Record) error {
			if next.ProfileID != profile {
				return nil
			}
			writes++
			_, err := os.Lstat(filepath.Join(l.o.Root.Dir(), profile))
			if there := err == nil; there && next.State != lease.Held {
				t.Errorf("%s: its directory is there before its record", name)
			}
			return killed
		}})
		if err := ask(byOperator(t.Context()), profile, proxy); !errors.Is(err, killed) {
			t.Errorf("%s: %v", name, err)
		}
		if writes != 1 {
			t.Errorf("%s: %d writes", name, writes)
		}
		if _, err := os.Lstat(filepath.Join(l.o.Root.Dir(), profile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: there is a directory (%v)", name, err)
		}
	}
	store.set(hooks{})

	// One that was killed between the two: the record is there, and nothing can be opened.
	// The same request makes the profile whole.
	proxy, account := "down", "store-18"
	if _, err := l.profiles.PutRecord(byOperator(t.Context()), "half", api.ProfileSettings{AccountID: &account, ProxyID: &proxy}, false); err != nil {
		t.Fatal(err)
	}
	var p *api.Problem
	if _, err := l.Acquire(byOperator(t.Context()), api.Manifest{ProfileID: "half"}); !errors.As(err, &p) || p.Code != api.CodeUnknownProfile {
		t.Errorf("half a profile is opened: %v", err)
	}
	if _, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "half", Create: true}); !errors.As(err, &p) || p.Code != api.CodeBrowserStartFailed {
		t.Errorf("it is opened without its proxy: %v", err)
	}
	if r, err := l.PutProfile(t.Context(), "half", api.ProfileSettings{AccountID: &account, ProxyID: &proxy}); err != nil || r.ProxyID != proxy || r.Reason != lease.ReasonRemade {
		t.Errorf("made whole: %+v, %v", r, err)
	}
}
