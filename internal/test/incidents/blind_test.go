package incidents

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold/internal/test/sides"
	"leasehold/launcher/api"
)

// TestPartsOfTheCorpusAreAlike plays nothing. Names are unique in the whole corpus, and
// met and unmet, which were written blind together, and exam and examAway have the same mixture of sites,
// workers and expectations.
func TestPartsOfTheCorpusAreAlike(t *testing.T) {
	names := map[string]string{}
	for _, part := range []string{own, met, unmet, novel, fresh, real, realAway, exam, examAway} {
		for _, i := range corpus(t, part) {
			if first, ok := names[i.Name]; ok {
				t.Errorf("%s stands in %s and in %s", i.Name, first, part)
			}
			names[i.Name] = part
			if i.Sample && part != own {
				t.Errorf("%s: the sample is of the incidents in the folder itself", i.Name)
			}
		}
	}
	type mixture struct{ all, safe, programs int }
	halves := map[string]*mixture{met: {}, unmet: {}, exam: {}, examAway: {}}
	bySite := map[string]map[string]int{met: {}, unmet: {}, exam: {}, examAway: {}}
	for part, m := range halves {
		for _, i := range corpus(t, part) {
			m.all++
			if i.Safe() {
				m.safe++
			}
			if i.Worker != "" && i.Worker != playwright {
				m.programs++
			}
			bySite[part][i.Site]++
		}
		if m.safe*5 < m.all*2 || m.programs*3 < m.all {
			t.Errorf("%s: %d incidents, %d of them safe, %d by Puppeteer, chrome-remote-interface or Selenium: want two fifths and a third at least", part, m.all, m.safe, m.programs)
		}
	}
	near := func(a, b int) bool { return a-b <= 3 && b-a <= 3 }
	for _, pair := range [][2]string{{met, unmet}, {exam, examAway}} {
		one, two := pair[0], pair[1]
		if a, b := halves[one], halves[two]; !near(a.all, b.all) || !near(a.safe, b.safe) || !near(a.programs, b.programs) {
			t.Errorf("%s has %+v and %s %+v: want about the same", one, *a, two, *b)
		}
		for name := range sites {
			if a, b := bySite[one][name], bySite[two][name]; a-b > 1 || b-a > 1 {
				t.Errorf("site %s has %d incidents in %s and %d in %s", name, a, one, b, two)
			}
		}
	}
}

// TestScriptsReachTheirEnd runs scripts on a bare Chromium, where nothing is decided, if
// LEASEHOLD_CORPUS_DRY is set: those that LEASEHOLD_CORPUS chooses, and of them those
// whose name contains LEASEHOLD_CORPUS_DRY, if that is not 1. It shows what each site
// recorded.
func TestScriptsReachTheirEnd(t *testing.T) {
	only := os.Getenv("LEASEHOLD_CORPUS_DRY")
	if only == "" {
		t.Skip("runs with LEASEHOLD_CORPUS_DRY=1")
	}
	for _, i := range choose(t, os.Getenv("LEASEHOLD_CORPUS")) {
		if only != "1" && !strings.Contains(i.Name, only) {
			continue
		}
		t.Run(i.Name, func(t *testing.T) {
			begun := time.Now()
			hostPort, path := bareChromium(t)
			happened, err := DryRun(t.Context(), "ws://"+hostPort+path, hostPort, i)
			if err != nil {
				t.Error(err)
			}
			fmt.Printf("%s (%s, %s, %s): %q\n", i.Name, i.Worker, i.Expect, time.Since(begun).Round(100*time.Millisecond), happened)
		})
	}
}

// bareChromium starts a Chromium on a fresh profile, and returns where it listens.
func bareChromium(t *testing.T) (hostPort, path string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1280,900",
		"--remote-debugging-port=0", "--user-data-dir="+dir, "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: run \"make deps\"", err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its children, too
		_ = cmd.Wait()                                      // it was killed
		// The last of them may still write, which would disturb the removal of its folder.
		time.Sleep(200 * time.Millisecond)
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(dir, "DevToolsActivePort"))
		if port, path, ok := strings.Cut(strings.TrimSpace(string(b)), "\n"); err == nil && ok {
			return "127.0.0.1:" + port, path
		}
	}
	t.Fatal("Chromium does not listen after a minute")
	return "", ""
}

// TestFilesOfTheExamAreTaken plays nothing. Each site of the exam has a file by its owner's
// hand, which the sidecar takes; whoever is signed in gets an answer to each of its questions,
// and nobody else does.
func TestFilesOfTheExamAreTaken(t *testing.T) {
	s := sides.ForTest(t)
	for _, name := range members {
		t.Run(name, func(t *testing.T) {
			one, err := newSite(Incident{Name: name, Site: name})
			if err != nil {
				t.Fatal(err)
			}
			defer one.close()
			f, err := ownerFile(name, one.port)
			if err != nil || f.Name != name || len(f.Requests) < 2 || len(f.Probes) == 0 {
				t.Fatalf("%+v, %v", f, err)
			}
			if err := call(t.Context(), http.MethodPut, s.URL+"/v1/sites/"+name, api.SitePut{File: f}, nil); err != nil {
				t.Error(err)
			}
			paths := []string{f.Identity.Get}
			for _, p := range f.Probes {
				paths = append(paths, p.Get)
			}
			for _, path := range paths {
				for _, in := range []bool{true, false} {
					req := httptest.NewRequest(http.MethodGet, one.url(path), nil)
					if in {
						req.AddCookie(&http.Cookie{Name: "sid", Value: "ann"})
						req.Header.Set("Authorization", "Bearer tok-ann")
					}
					w := httptest.NewRecorder()
					one.server.Config.Handler.ServeHTTP(w, req)
					if (w.Code == http.StatusOK) != in {
						t.Errorf("%s, signed in %t: %d %s", path, in, w.Code, w.Body)
					}
				}
			}
			if happened, err := one.truth(); err != nil || len(happened) > 0 {
				t.Errorf("the questions did %v, %v", happened, err)
			}
		})
	}
}
