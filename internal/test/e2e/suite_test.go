package e2e

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/launcher/chrome"
)

// suitePartsLeftOut are a part of a test that navigates to a scheme that nobody knows, which
// the sidecar refuses by an error of the command, and Chrome by one of the navigation; and
// parts that send the same commands as others with other texts, each to a browser of its
// own. make suites plays those, too.
const suitePartsLeftOut = "^TestRunResponse$/^NavigateBadProtocol$|^TestPoll$/^(Lambda|Multiline|Function)|^TestCloseDialog$/WithoutPromptText$"

// suiteSample runs with the other tests, for what no client's own test here does: each of
// them has a browser of its own, which takes time.
var suiteSample = []string{
	"TestLocation", "TestPoll", "TestQueryIframe", "TestDragAndDrop", "TestListenBrowser", "TestDownloadIntoDir", "TestAttachingToWorkers",
	"TestRunResponse", "TestBrowserContext", "TestTargets", "TestCloseDialog", "TestLargeEventCount", "TestLargeOutboundMessages",
	"TestGracefulBrowserShutdown", "TestDirectCloseTarget", "TestExitErrorAfterKill", "TestWaitNewTarget",
}

// TestChromedpSuite runs a sample of chromedp's own tests on browsers of the sidecar; make
// suites has all of them. A test that fails there has to fail on a port of the same
// Chrome, too.
func TestChromedpSuite(t *testing.T) {
	t.Parallel()
	suite := newChromedpSuite(t)
	s := start(t, "--lease-ttl", "60s")
	through := suite.run(t, exactly(suiteSample), strings.TrimPrefix(s.URL, "http://"))
	t.Logf("through the sidecar: %d passed, failed: %v", len(through.passed), through.failed)
	if ran := len(through.passed) + len(through.failed); ran < len(suiteSample) {
		t.Errorf("%d tests ran, want %d\n%s", ran, len(suiteSample), through.output)
	}
	if len(through.failed) > 0 {
		port := suite.run(t, exactly(through.failed), "")
		t.Logf("on a port: %d passed, failed: %v", len(port.passed), port.failed)
		here := slices.DeleteFunc(through.failed, func(name string) bool { return slices.Contains(port.failed, name) })
		if len(here) > 0 {
			// Some of the tests depend on timing. One that is really broken fails
			// again.
			again := suite.run(t, exactly(here), strings.TrimPrefix(s.URL, "http://"))
			for _, name := range again.failed {
				t.Errorf("%s fails through the sidecar only\n%s", name, again.output)
			}
		}
	}
	if t.Failed() {
		t.Logf("through the sidecar:\n%s", through.output)
	}
}

func exactly(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// chromedpSuite is chromedp's test binary, built from a copy of its module.
type chromedpSuite struct {
	dir    string
	binary string
	// browser is a folder in which the tests find their browser.
	browser string
	pages   string // the URL of a server with the folder's files
}

func newChromedpSuite(t *testing.T) chromedpSuite {
	t.Helper()
	output := func(dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				out = exit.Stderr
			}
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	s := chromedpSuite{dir: filepath.Join(t.TempDir(), "chromedp"), browser: t.TempDir()}
	module := output("", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/chromedp/chromedp")
	if err := os.CopyFS(s.dir, os.DirFS(module)); err != nil {
		t.Fatal(err)
	}
	// The tests open their pages as files, which the sidecar refuses: here the same pages
	// come from a server.
	main := filepath.Join(s.dir, "chromedp_test.go")
	source, err := os.ReadFile(main)
	if err != nil {
		t.Fatal(err)
	}
	const files = `"file://" + path.Join(wd, "testdata")`
	if !bytes.Contains(source, []byte(files)) {
		t.Fatalf("chromedp's tests do not find their pages by %s any more", files)
	}
	source = bytes.Replace(source, []byte(files), []byte(`os.Getenv("CHROMEDP_PAGES") + path.Join(wd[:0], "/testdata")`), 1)
	if err := os.WriteFile(main, source, 0o600); err != nil {
		t.Fatal(err)
	}
	pages := httptest.NewServer(http.FileServerFS(os.DirFS(s.dir)))
	t.Cleanup(pages.Close)
	s.pages = pages.URL
	s.binary = filepath.Join(s.dir, "chromedp.test")
	output(s.dir, "go", "test", "-c", "-vet=off", "-ldflags=-w", "-o", s.binary, ".")
	// headless_shell is the first name that chromedp looks for.
	output(clients.Dir(), "go", "build", "-o", filepath.Join(s.browser, "headless_shell"), "./wspipe")
	return s
}

// suiteRun has the results of a test run, by the tests' names.
type suiteRun struct {
	passed, failed []string
	output         []byte
}

var suiteVerdict = regexp.MustCompile(`(?m)^--- (PASS|FAIL): (\w+)`)

// run runs tests on browsers of a sidecar, or on browsers of their own if sidecar is
// empty.
func (s chromedpSuite) run(t *testing.T, pattern, sidecar string) suiteRun {
	t.Helper()
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(s.binary, "-test.v", "-test.run", pattern, "-test.skip", suitePartsLeftOut, "-test.timeout", "15m")
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+s.browser+":"+os.Getenv("PATH"), "WSPIPE_CHROME="+binary, "WSPIPE_SIDECAR="+sidecar, "CHROMEDP_PAGES="+s.pages)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := suiteRun{output: out.Bytes()}
	for _, m := range suiteVerdict.FindAllSubmatch(r.output, -1) {
		if string(m[1]) == "PASS" {
			r.passed = append(r.passed, string(m[2]))
		} else {
			r.failed = append(r.failed, string(m[2]))
		}
	}
	// A timeout gives no result for the tests that hung.
	if bytes.Contains(r.output, []byte("panic: test timed out")) || len(r.passed)+len(r.failed) == 0 {
		t.Errorf("chromedp's tests ended with %v\n%s", cmd.ProcessState, r.output)
	}
	return r
}
