package recovery_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// tidy leaves on the profile's directory what a Chrome leaves that ended in order.
func (w *world) tidy() {
	w.must(os.MkdirAll(filepath.Join(w.path, "Default"), 0o700))
	for name, content := range map[string]string{
		"Variations":          `{"user_experience_metrics.stability.exited_cleanly":true}`,
		"Default/Preferences": `{"profile":{"exit_type":"Normal"}}`,
		"Default/Cookies":     "cookies",
	} {
		w.must(os.WriteFile(filepath.Join(w.path, name), []byte(content), 0o600))
	}
}

// TestFacts goes through what an inspection finds, and what is decided because of it.
// Each row changes one thing of a session that touched nothing, on a profile that is in
// order and would be released.
func TestFacts(t *testing.T) {
	t.Parallel()
	reason := func(r string) func(*world, *Case) { return func(_ *world, c *Case) { c.File.Reason = r } }
	did := func(entries ...checkpoint.Entry) func(*world, *Case) {
		return func(_ *world, c *Case) {
			for i := range entries {
				entries[i].At = time.Now()
			}
			c.Journal = func() []checkpoint.Entry { return entries }
		}
	}
	record := func(change func(*lease.Record)) func(*world, *Case) {
		return func(w *world, _ *Case) {
			w.restate(func(r lease.Record) (lease.Record, error) { change(&r); return r, nil })
		}
	}
	manifest := func(m api.Manifest) func(*world, *Case) { return func(_ *world, c *Case) { c.File.Manifest = m } }
	lostRun := func(run sessionfile.LostRun) func(*world, *Case) {
		return func(_ *world, c *Case) { c.Lost = append(c.Lost, run) }
	}
	all := func(changes ...func(*world, *Case)) func(*world, *Case) {
		return func(w *world, c *Case) {
			for _, change := range changes {
				change(w, c)
			}
		}
	}
	at := func(url string) checkpoint.Entry { return checkpoint.Entry{Kind: checkpoint.KindURL, URL: url} }
	post := checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example/orders", Type: "Fetch"}
	safe := checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "listed", Safe: true}
	later := safe
	later.At = time.Now().Add(time.Hour)
	refused := checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: "https://shop.example/api", Page: cart, Status: 403}
	signIn := checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: "https://shop.example/login", Asked: "https://shop.example/account", SignIn: "password", Status: 200, Committed: true, Target: "another"}
	declared := post
	declared.Declared = "POST https://shop.example/orders"
	singleton := func(to string) func(*world, *Case) {
		return func(w *world, _ *Case) { w.must(os.Symlink(to, filepath.Join(w.path, "SingletonLock"))) }
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	bundle := func(fill func(w *world, b *evidence.Bundle)) func(*world, *Case) {
		return func(w *world, c *Case) {
			c.Bundle = func() *evidence.Bundle {
				b := w.bundle(c.File)
				fill(w, b)
				return b
			}
		}
	}
	found := func(found ...evidence.Found) func(*world, *Case) {
		return bundle(func(_ *world, b *evidence.Bundle) { b.SetFound(found) })
	}
	digests := func(before, after string) func(*world, *Case) {
		return bundle(func(w *world, b *evidence.Bundle) {
			var parts [2][]byte
			for i, cookies := range []string{before, after} {
				part, err := witness.Digests(w.archive, profile, []byte(cookies), nil)
				w.must(err)
				parts[i] = part
			}
			b.SetStateChanged(parts[0], parts[1])
		})
	}
	const one, two = `{"cookies":[{"name":"sid","value":"1","domain":"shop.example","path":"/"}]}`, `{"cookies":[{"name":"sid","value":"2","domain":"shop.example","path":"/"}]}`
	const yes, no, unknown = table.Yes, table.No, table.Unknown

	type facts = map[string]table.Answer
	for _, tt := range []struct {
		name    string
		change  func(*world, *Case)
		facts   facts
		outcome string
	}{
		{"nothing", func(*world, *Case) {}, facts{
			table.LeaseExpired: no, table.ChangedBySwap: yes, table.TokenAdvanced: yes, table.WorkerSilent: yes, table.LateHeartbeat: no,
			table.BrowserGone: yes, table.DirectoryUnlocked: yes, table.ClosedCleanly: yes, table.DirectoryPresent: yes, table.SessionState: yes,
			table.StateChanged: unknown, table.EvidenceStored: yes, table.ScreenshotKnown: no, table.TrafficSeen: yes, table.ProxyUnchanged: yes,
			table.ReviewFlag: no, table.InExpectedDomains: unknown, table.UnsafeRequests: no, table.Resumable: no, table.LastURLKnown: yes,
		}, table.Release},

		{"the lease ran out", reason(api.ReasonLeaseLost), facts{table.LeaseExpired: yes}, table.Release},
		{"another launcher saw it run out", reason(api.ReasonObserved), facts{table.LeaseExpired: yes}, table.Release},
		{"the worker wrote late", func(w *world, _ *Case) { w.wrote = true }, facts{table.LateHeartbeat: yes}, table.Release},
		{"the very token of the quarantine", func(_ *world, c *Case) { c.File.Token = token + 1 }, facts{table.TokenAdvanced: no}, table.ManualReview},
		{"a token that was never advanced", func(_ *world, c *Case) { c.File.Token = 99 }, facts{table.TokenAdvanced: no}, table.ManualReview},

		{"no directory", func(w *world, _ *Case) { w.must(os.RemoveAll(w.path)) },
			facts{table.DirectoryPresent: no, table.ClosedCleanly: unknown, table.SessionState: unknown, table.BrowserGone: yes}, table.ManualReview},
		{"a link instead of it", func(w *world, _ *Case) {
			w.must(os.Rename(w.path, w.path+".away"))
			w.must(os.Symlink(w.path+".away", w.path))
		}, facts{table.DirectoryPresent: unknown, table.ClosedCleanly: unknown}, table.ManualReview},
		{"a process on it", func(w *world, _ *Case) { w.process() }, facts{table.BrowserGone: no}, table.ManualReview},
		{"a process that has its lock", func(w *world, c *Case) { c.Lock = w.lockedElsewhere() }, facts{table.DirectoryUnlocked: no}, table.ManualReview},
		{"a SingletonLock of a process that is gone", singleton(host + "-4194300"), facts{table.DirectoryUnlocked: yes, table.ClosedCleanly: no}, table.ManualReview},
		{"a SingletonLock of another host", singleton("elsewhere-7"), facts{table.DirectoryUnlocked: unknown, table.ClosedCleanly: no}, table.ManualReview},
		{"a crash", func(w *world, _ *Case) {
			w.must(os.WriteFile(filepath.Join(w.path, "Default", "Preferences"), []byte(`{"profile":{"exit_type":"Crashed"}}`), 0o600))
		}, facts{table.ClosedCleanly: no}, table.ManualReview},
		{"no cookies", func(w *world, _ *Case) { w.must(os.Remove(filepath.Join(w.path, "Default", "Cookies"))) }, facts{table.SessionState: no}, table.Release},

		{"nobody watched", func(_ *world, c *Case) { c.File.Unseen = true }, facts{table.TrafficSeen: unknown, table.StateChanged: unknown}, table.ManualReview},
		{"nobody watched another run", lostRun(sessionfile.LostRun{File: sessionfile.File{Unseen: true}}), facts{table.TrafficSeen: unknown}, table.ManualReview},
		{"a request", did(at(cart), post), facts{table.UnsafeRequests: yes}, table.ManualReview},
		{"a request of another run", lostRun(sessionfile.LostRun{Journal: []checkpoint.Entry{post}}), facts{table.UnsafeRequests: yes}, table.ManualReview},
		{"a refusal of another run before a safe checkpoint", all(did(at(cart), safe), lostRun(sessionfile.LostRun{Journal: []checkpoint.Entry{refused}})),
			facts{table.SiteRefused: yes}, table.ManualReview},
		{"a sign-in of another run before a safe checkpoint", all(did(at(cart), safe), lostRun(sessionfile.LostRun{Journal: []checkpoint.Entry{signIn}})),
			facts{table.SentToSignIn: yes}, table.ManualReview},
		{"a safe checkpoint of another run after a refusal", all(did(at(cart), refused), lostRun(sessionfile.LostRun{Journal: []checkpoint.Entry{later}})),
			facts{table.SiteRefused: yes}, table.ManualReview},
		{"a refusal before a safe checkpoint of the same run", did(refused, at(cart), safe), facts{table.SiteRefused: no}, table.Release},
		{"a request that is declared harmless", all(did(at(cart), declared), record(func(r *lease.Record) { r.HarmlessRequests = []string{declared.Declared} })),
			facts{table.UnsafeRequests: no, table.HarmlessSent: yes}, table.Release},
		{"a request that is not declared so any more", did(at(cart), declared), facts{table.UnsafeRequests: yes}, table.ManualReview},
		{"a page that the profile calls sensitive", all(did(at("https://shop.example/vault")), record(func(r *lease.Record) { r.SensitiveURLs = []string{"shop.example/vault"} })),
			facts{table.SensitivePlace: yes}, table.ManualReview},
		{"a page that another run's task calls sensitive", all(did(at("https://shop.example/vault")),
			lostRun(sessionfile.LostRun{File: sessionfile.File{Manifest: api.Manifest{SensitiveURLs: []string{"shop.example/vault"}}}})),
			facts{table.SensitivePlace: yes}, table.ManualReview},
		{"a word that another run's task calls sensitive", all(did(at("https://shop.example/vault")),
			lostRun(sessionfile.LostRun{File: sessionfile.File{Manifest: api.Manifest{SensitiveWords: []string{"vault"}}}})),
			facts{table.SensitivePlace: yes}, table.ManualReview},
		{"within the task's domains", manifest(api.Manifest{ExpectedDomains: []string{"shop.example"}}), facts{table.InExpectedDomains: yes}, table.Release},
		{"outside of them", all(manifest(api.Manifest{ExpectedDomains: []string{"bank.example"}}), record(func(r *lease.Record) { r.ExpectedDomains = []string{"shop.example"} })),
			facts{table.InExpectedDomains: no}, table.ManualReview},
		{"within the task's, and outside of the profile's", all(manifest(api.Manifest{ExpectedDomains: []string{"shop.example"}}), record(func(r *lease.Record) { r.ExpectedDomains = []string{"bank.example"} })),
			facts{table.InExpectedDomains: no}, table.ManualReview},
		{"within another run's", all(manifest(api.Manifest{ExpectedDomains: []string{"bank.example"}}),
			lostRun(sessionfile.LostRun{File: sessionfile.File{Manifest: api.Manifest{ExpectedDomains: []string{"shop.example"}}}})),
			facts{table.InExpectedDomains: yes}, table.Release},
		{"outside of the profile's", record(func(r *lease.Record) { r.ExpectedDomains = []string{"bank.example"} }), facts{table.InExpectedDomains: no}, table.ManualReview},
		{"work that can resume", all(manifest(api.Manifest{Resumable: true}), did(checkpoint.Entry{Kind: checkpoint.KindStep, Name: "list"}, checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "listed", Safe: true})),
			facts{table.Resumable: yes, table.SafeCheckpointNamed: yes}, table.Resume},
		{"the same beside another run", all(manifest(api.Manifest{Resumable: true}), did(checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "listed", Safe: true}), lostRun(sessionfile.LostRun{})),
			facts{table.Resumable: no}, table.Release},
		{"work that a restart repeats nothing of", did(checkpoint.Entry{Kind: checkpoint.KindStep, Name: "list"}), facts{table.WorkDescribed: yes}, table.Retry},

		{"cookies as before", digests(one, one), facts{table.StateChanged: no}, table.Release},
		{"other cookies", digests(one, two), facts{table.StateChanged: yes}, table.Release},
		{"cookies as before, and nobody watched", all(digests(one, one), func(_ *world, c *Case) { c.File.Unseen = true }), facts{table.StateChanged: unknown}, table.ManualReview},
		{"cookies as before, and a page stored something", all(digests(one, one), did(checkpoint.Entry{Kind: checkpoint.KindStorage, Name: "local", URL: cart})),
			facts{table.StateChanged: yes}, table.Release},
		{"a screenshot", bundle(func(_ *world, b *evidence.Bundle) {
			b.SetPages([]evidence.PageResult{{Primary: true, Screenshot: "screenshot-1.jpg"}})
		}), facts{table.ScreenshotKnown: yes}, table.Release},
		{"a picture of the living session", bundle(func(_ *world, b *evidence.Bundle) {
			b.SetPictures([]evidence.Picture{{Missing: "sensitive"}, {EvidenceID: "pic_1"}})
		}), facts{table.ScreenshotKnown: yes}, table.Release},
		{"pictures that show nothing", bundle(func(_ *world, b *evidence.Bundle) { b.SetPictures([]evidence.Picture{{Missing: "sensitive"}}) }), facts{table.ScreenshotKnown: no}, table.Release},

		{"a page that asks for a code", found(evidence.Found{Name: table.CodeAsked, Answer: "yes", How: "a field", Picture: "fact-x.jpg"}),
			facts{table.CodeAsked: yes, table.PasswordAsked: unknown}, table.ManualReview},
		{"pages that ask for nothing", found(evidence.Found{Name: table.PagesLookedAt, Answer: "yes", How: "1"}, evidence.Found{Name: table.CodeAsked, Answer: "no", How: "1"}),
			facts{table.PagesLookedAt: yes, table.CodeAsked: no}, table.Release},
		{"a page that did not answer", found(evidence.Found{Name: table.PagesLookedAt, Answer: "no", How: "it hangs"}), facts{table.PagesLookedAt: no}, table.ManualReview},
		{"a page of another run that asked for a password", func(w *world, c *Case) {
			b := w.bundle(c.File)
			b.SetFound([]evidence.Found{{Name: table.SignedOut, Answer: "yes", How: "a form"}})
			sealed := w.r.Seal(b, w.log)
			c.Lost = append(c.Lost, sessionfile.LostRun{File: sessionfile.File{Evidence: sealed}})
		}, facts{table.SignedOut: yes}, table.ManualReview},

		{"a person used it", record(func(r *lease.Record) { r.ByHand = &lease.ByHand{Holder: "ann"} }), facts{table.ReviewFlag: yes}, table.ManualReview},
		{"a proxy that is a label", record(func(r *lease.Record) { r.ProxyID = "p0" }), facts{table.ProxyUnchanged: yes}, table.Release},
		{"a proxy of the configuration", all(record(func(r *lease.Record) { r.ProxyID = "p0" }), func(w *world, c *Case) {
			configured := filepath.Join(w.data, "proxies.yaml")
			w.must(os.WriteFile(configured, []byte("p0: {server: 'http://one:1'}\n"), 0o600))
			set, err := proxies.Load(configured)
			w.must(err)
			w.r = w.recoverer(func(o *Options) { o.Witnesses = w.witnesses(set) })
			c.File.Proxy = &sessionfile.ProxyUse{ID: "p0", Server: "http://one:1", Sum: set.Find("p0").Sum()}
		}), facts{table.ProxyUnchanged: yes}, table.Release},
		{"a task that asked for another proxy", all(record(func(r *lease.Record) { r.ProxyID = "p0" }), manifest(api.Manifest{ProxyID: "p1"})), facts{table.ProxyUnchanged: no}, table.ManualReview},
		{"what is configured to go to a person", func(w *world, _ *Case) {
			w.r = w.recoverer(func(o *Options) { o.ReviewWhen = []table.Caution{{Fact: table.WorkDescribed, Answer: no}} })
		}, facts{table.WorkDescribed: no}, table.ManualReview},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.tidy()
			c := w.caseOf(Recover)
			tt.change(w, &c)
			if _, err := w.r.Run(c); err != nil {
				t.Fatal(err)
			}
			i, err := w.r.Inspection(w.leases.record())
			if err != nil {
				t.Fatal(err)
			}
			found := facts{}
			for _, f := range i.Facts {
				if found[f.Name] != "" || f.How == "" || !slices.Contains(table.Questions, f.Name) {
					t.Errorf("%+v: want each question once, and how it was answered", f)
				}
				found[f.Name] = table.Answer(f.Answer)
			}
			for _, name := range table.Questions {
				if found[name] == "" && found[table.DirectoryPresent] != unknown { // then nothing in it could be looked at
					t.Errorf("%s was not asked", name)
				}
			}
			for name, want := range tt.facts {
				if got := found[name]; got != want && (got != "" || want != unknown) {
					t.Errorf("%s: %q, want %s", name, got, want)
				}
			}
			r := w.leases.record()
			if i.Decision != tt.outcome || r.Decision != tt.outcome || i.DecisionVersion != table.Version || r.DecisionVersion != table.Version || !slices.Equal(i.Reasons, r.Reasons) || len(r.Reasons) == 0 {
				t.Errorf("decided %s because of %q; the record has %s because of %q; want %s", i.Decision, i.Reasons, r.Decision, r.Reasons, tt.outcome)
			}
			if n := w.counted("leasehold_recoveries_total", tt.outcome); n != 1 {
				t.Errorf("%v recoveries are counted", n)
			}
			resumes := tt.outcome == table.Resume
			if resumed := r.ResumeFrom == "list" && r.LastSafeCheckpoint == "listed"; resumed != resumes || resumes != (r.State == lease.ResumePending) {
				t.Errorf("%s, to resume from %q at %q", r.State, r.ResumeFrom, r.LastSafeCheckpoint)
			}
		})
	}
}

// process runs a program whose command line names the profile's directory.
func (w *world) process() {
	cmd := exec.Command("sh", "-c", "read forever", "sh", "--user-data-dir="+w.path)
	in, err := cmd.StdinPipe()
	w.must(err)
	w.must(cmd.Start())
	w.t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err == nil {
			w.t.Error("the process ended by itself")
		}
	})
	for found := 0; found == 0; time.Sleep(time.Millisecond) {
		named, err := profiledir.Processes(w.path)
		w.must(err)
		found = len(named)
	}
}

// lockedElsewhere is the launcher's part of a lock whose other part some process has.
func (w *world) lockedElsewhere() *profiledir.Lock {
	w.must(w.lock.Unlock())
	f, err := os.OpenFile(filepath.Join(w.root.Dir(), ".leasehold", profile+".lock"), os.O_RDWR, 0)
	w.must(err)
	w.t.Cleanup(func() { f.Close() })
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue // a process that another test is starting had it until its exec
		}
		w.must(err)
		break
	}
	w.lock, err = w.root.Adopt(profile)
	w.must(err)
	return w.lock
}

// counted is a counter's value, for one value of its label.
func (w *world) counted(name, label string) float64 { return counted(w.t, w.metrics, name, label) }

func counted(t *testing.T, metrics *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// TestWhetherCookiesAreWhole: they are said to be only where the browser closed in order.
func TestWhetherCookiesAreWhole(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script  fakechrome.Script
		crashed bool // before the recovery
		want    table.Answer
	}{
		"it closes in order":        {want: table.Yes},
		"it ends because of SIGINT": {script: fakechrome.Script{RefusesClose: true}, want: table.Unknown},
		"it has to be killed":       {script: stubborn, want: table.No},
		"it crashes at the close":   {script: fakechrome.Script{Crashes: true}, want: table.No},
		"it crashed before":         {crashed: true, want: table.No},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.open(tt.script)
			if tt.crashed {
				w.must(unix.Kill(w.browser.PID(), unix.SIGKILL))
				<-w.browser.Exited()
			}
			e, err := w.r.Run(w.caseOf(Recover))
			w.must(err)
			i, err := w.r.Inspection(w.leases.record())
			w.must(err)
			whole := i.Facts[slices.IndexFunc(i.Facts, func(f api.Fact) bool { return f.Name == table.CookiesWhole })]
			if whole.Answer != string(tt.want) || (e.File.CookiesLost != "") != (tt.want == table.No) {
				t.Errorf("%+v, and the file says %q; want %s", whole, e.File.CookiesLost, tt.want)
			}
		})
	}
}

// TestACloseThatFailedIsAFact: what went wrong is said, of a browser that is gone and of one
// that left a process.
func TestACloseThatFailedIsAFact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open(fakechrome.Script{})
	pipeLog := w.files.PipeLog(session)
	w.must(os.Remove(pipeLog))
	w.must(os.MkdirAll(filepath.Join(pipeLog, "in the way"), 0o700))
	if _, err := w.r.Run(w.caseOf(Recover)); err != nil {
		t.Fatal(err)
	}
	i, err := w.r.Inspection(w.leases.record())
	if err != nil {
		t.Fatal(err)
	}
	gone := slices.IndexFunc(i.Facts, func(f api.Fact) bool { return f.Name == table.BrowserGone })
	if f := i.Facts[gone]; f.Answer != "yes" || !strings.Contains(f.How, ".ledger") {
		t.Errorf("%+v", f)
	}
	// A process that it left on the directory counts as ever.
	w.process()
	for _, one := range w.witnesses(nil)(nil) {
		for _, f := range one.Facts(t.Context(), Closed{Profile: profile, Path: w.path, Lock: w.lock, Problem: errFault}, &api.Inspection{}) {
			if f.Name == table.BrowserGone && (f.Answer != table.No || f.How != errFault.Error()) {
				t.Errorf("with a process: %+v", f)
			}
		}
	}
}

// TestNothingIsLetGoWithoutItsInspection: what cannot be kept is tried again.
func TestNothingIsLetGoWithoutItsInspection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open(fakechrome.Script{})
	folder := filepath.Join(w.data, "inspections")
	w.must(os.WriteFile(folder, nil, 0o600))
	if _, err := w.r.Run(w.caseOf(Recover)); err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("recovered, %v", err)
	}
	if state := w.leases.record().State; state != lease.Inspected {
		t.Errorf("%s, want %s", state, lease.Inspected)
	}
	w.must(os.Remove(folder))
	w.goesOn()
	i, err := w.r.Inspection(w.leases.record())
	if r := w.leases.record(); err != nil || len(i.Facts) == 0 || i.Decision != r.Decision || r.State == lease.Inspected {
		t.Errorf("%s, by an inspection that says %q, %v", r.State, i.Decision, err)
	}
}

// TestInspectionsAreKept: there is none, or one that cannot be read, or cannot be kept.
func TestInspectionsAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if i, err := w.r.Inspection(lease.Record{ProfileID: "shop.018"}); err != nil || i.Facts == nil || i.Reasons == nil || len(i.Facts) > 0 {
		t.Errorf("of none: %+v, %v", i, err)
	}
	folder := filepath.Join(w.data, "inspections")
	w.must(os.WriteFile(folder, nil, 0o600))
	if e, err := w.r.Run(w.caseOf(Recover)); err != nil || e.How != "lost (connection_lost), recovered: manual_review" {
		t.Errorf("an inspection that cannot be kept ends the recovery: %+v, %v", e, err)
	}
	w.must(os.Remove(folder))
	w.must(os.Mkdir(folder, 0o700))
	w.must(os.WriteFile(filepath.Join(folder, "shop=2E018.json"), []byte("{"), 0o600))
	if i, err := w.r.Inspection(lease.Record{ProfileID: "shop.018"}); err != nil || len(i.Facts) > 0 || i.Decision != "" || len(i.Reasons) != 1 || !strings.Contains(i.Reasons[0], "cannot be believed") {
		t.Errorf("a damaged or forged one: %+v, %v", i, err)
	}
}

// TestAnInspectionIsOfItsRecovery: what an earlier one found stands beside no other incident, neither in
// the words of this version nor in those of an older one, which did not say of which recovery they are.
func TestAnInspectionIsOfItsRecovery(t *testing.T) {
	t.Parallel()
	type step = func(lease.Record) (lease.Record, error)
	granted := func(r lease.Record) (lease.Record, error) {
		return r.Grant(lease.Request{SessionID: "ses_2", LauncherID: launcher, TaskID: "task_102"}, time.Now())
	}
	suspected := func(r lease.Record) (lease.Record, error) {
		return r.Suspect(api.ReasonLeaseLost, lease.Sealed{}, time.Now())
	}
	fenced := func(r lease.Record) (lease.Record, error) { return r.Quarantine(0, time.Now()) }
	abandoned := func(r lease.Record) (lease.Record, error) {
		return r.Abandon([]string{"its home did not come back"}, lease.Sealed{}, time.Now())
	}
	reviewed := func(decision string) step {
		return func(r lease.Record) (lease.Record, error) {
			return r.Reviewed(lease.Review{Decision: decision, Reviewer: "ana", TokenSeen: r.Token}, 0, time.Now())
		}
	}
	byHand := func(r lease.Record) (lease.Record, error) {
		return r.Grant(lease.Request{SessionID: "ses_hand", LauncherID: launcher, ByHand: &lease.ByHand{Holder: "ana"}}, time.Now())
	}
	handedBack := func(r lease.Record) (lease.Record, error) {
		return r.Release("released", "", lease.Sealed{}, time.Now())
	}
	distrusted := func(r lease.Record) (lease.Record, error) {
		return r.Distrust(lease.ReasonRolledBack, 0, 0, time.Now())
	}
	elsewhere := func(r lease.Record) (lease.Record, error) { r.Home = "launcher-2"; return r, nil }
	decidedAgain := func(r lease.Record) (lease.Record, error) {
		r, err := r.Inspect(lease.Sealed{}, time.Now())
		if err != nil {
			return r, err
		}
		return r.Decide(lease.Verdict{Decision: lease.DecisionManualReview, Reasons: []string{"another"}, Version: table.Version}, time.Now())
	}
	for name, tt := range map[string]struct {
		steps []step
		shown bool
	}{
		"in its review":                             {nil, true},
		"kept in review":                            {[]step{reviewed(lease.ReviewKeep)}, true},
		"while a person has the profile by hand":    {[]step{byHand}, true},
		"handed back":                               {[]step{byHand, handedBack}, true},
		"approved":                                  {[]step{reviewed(lease.ReviewApprove)}, true},
		"the home changed during the review":        {[]step{elsewhere}, true},
		"the next session":                          {[]step{reviewed(lease.ReviewApprove), granted}, true},
		"the next session is suspected":             {[]step{reviewed(lease.ReviewApprove), granted, suspected}, false},
		"the next session is quarantined":           {[]step{reviewed(lease.ReviewApprove), granted, suspected, fenced}, false},
		"the next session is abandoned":             {[]step{reviewed(lease.ReviewApprove), granted, suspected, fenced, abandoned}, false},
		"an abandoned one is approved":              {[]step{reviewed(lease.ReviewApprove), granted, suspected, fenced, abandoned, reviewed(lease.ReviewApprove)}, false},
		"the next session is decided elsewhere":     {[]step{reviewed(lease.ReviewApprove), granted, suspected, fenced, decidedAgain}, false},
		"a person loses the profile":                {[]step{byHand, suspected, fenced, abandoned}, false},
		"the profile is distrusted after a session": {[]step{reviewed(lease.ReviewApprove), distrusted, abandoned}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.caseOf(Recover)
			c.File.Unseen = true
			if _, err := w.r.Run(c); err != nil {
				t.Fatal(err)
			}
			if r := w.leases.record(); r.State != lease.ManualReview {
				t.Fatalf("%s, want a review", r.State)
			}
			w.restate(tt.steps...)
			want := tt.shown
			if i, err := w.r.Inspection(w.leases.record()); err != nil || len(i.Facts) > 0 != want || i.Decision != "" != want || len(i.Reasons) > 0 != want || len(i.Against) > 0 != want {
				t.Errorf("%d facts, decision %q, %v: want it shown: %t", len(i.Facts), i.Decision, err, want)
			}
		})
	}
}

// TestABundleThatCannotBeRead: what was seen of the pages is open then, and a person decides.
func TestABundleThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := Closed{Profile: profile, Path: w.path, Lock: w.lock, File: w.file()}
	c.File.Evidence.EvidenceID = "ev_gone"
	var found table.Inspection
	for _, one := range w.witnesses(nil)(nil) {
		found = append(found, one.Facts(t.Context(), c, &api.Inspection{})...)
	}
	for name, want := range map[string]table.Answer{table.PagesLookedAt: table.No, table.CodeAsked: table.Unknown, table.ScreenshotKnown: table.Unknown, table.StateChanged: table.Unknown} {
		if got := found.Answer(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
