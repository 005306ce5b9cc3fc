package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/internal/test/s3test"
	"leasehold/lease"
)

// TestManyTabsWhileTheStoreIsAway: a worker with many tabs, one of them with a DOM of
// 100 MB, is lost while S3 cannot be reached. Everything is captured within bounds, and
// the profile is decided on. Later the next launcher stores the bundle as it was
// sealed.
func TestManyTabsWhileTheStoreIsAway(t *testing.T) {
	bucket := s3test.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	t.Setenv("AWS_SESSION_TOKEN", "")
	store := bucket.URL("host-1")
	s, web := start(t, "--evidence-store", store), newSite(t)
	c := dial(t, s.socket("many", "worker=w&task=t"))
	const tabs, heavy = 8, 3
	for i := range tabs {
		page, _ := c.visit(t, fmt.Sprintf("%s/tab-%02d", web.URL, i))
		if i == heavy {
			c.evaluate(t, page, `document.body.append(Object.assign(document.createElement("script"), {type: "application/json", textContent: "x".repeat(100e6)})); 1`)
		}
	}
	s.noted(t, "many", "all pages", tabs, func(e checkpoint.Entry) bool {
		return e.Kind == checkpoint.KindURL && strings.Contains(e.URL, "/tab-")
	})
	held := s.record(t, "many")
	heap := func() float64 {
		t.Helper()
		n, err := strconv.ParseFloat(s.metric(t, "go_memstats_heap_sys_bytes"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := heap()
	bucket.Stop()
	c.drop()
	r := s.until(t, "many", lease.Available, lease.ManualReview)
	if grown := heap() - before; grown > 150<<20 {
		t.Errorf("the launcher took %.0f MiB for the picture of a large page", grown/(1<<20))
	}
	// On a busy host a page may not answer in time, which is for a person.
	silent := r.Decision == "manual_review" && strings.Contains(strings.Join(r.Reasons, "\n"), "did not answer")
	if r.Decision != "release" && !silent || r.EvidenceID == "" {
		t.Errorf("decided without a store: %+v", r)
	}
	sealed := filepath.Join(s.Dir, "evidence-spool", r.EvidenceID, "manifest.json")
	raw, err := os.ReadFile(sealed)
	if err != nil {
		t.Fatalf("the bundle waits in the spool: %v", err)
	}
	m := s.bundle(t, "many")
	if m.LeaseToken != uint64(held.Token) {
		t.Errorf("the bundle's token is %d, the lost worker's %d", m.LeaseToken, held.Token)
	}
	found, pictures := map[string]bool{}, 0
	for i, p := range m.Pages {
		if p.Primary != (i == 0) || i == 0 && !strings.HasSuffix(p.URL, fmt.Sprintf("/tab-%02d", tabs-1)) {
			t.Errorf("page %d is %s, primary: %v", i, p.URL, p.Primary)
		}
		if (p.Screenshot == "") != (p.Missing != "") || (p.DOM == "") != (p.DOMMissing != "") {
			t.Errorf("neither had nor said why not: %+v", p)
		}
		path, ok := strings.CutPrefix(p.URL, web.URL)
		if !ok {
			continue
		}
		found[path] = true
		if p.Title != "page "+url.PathEscape(path) {
			t.Errorf("the title of %s is %q", path, p.Title)
		}
		if p.Screenshot != "" {
			pictures++
		} else {
			t.Logf("%s: %s", path, p.Missing)
		}
		if path == fmt.Sprintf("/tab-%02d", heavy) && p.DOM != "" {
			var dom []byte
			s.part(t, m, p.DOM, &dom)
			if !bytes.Contains(dom, []byte("the page is large")) || !bytes.Contains(dom, []byte(url.PathEscape(path))) {
				t.Errorf("the large page: %.500s", dom)
			}
		}
	}
	if len(found) != tabs || m.LastScreenshot != "screenshot-1.jpg" || pictures < 4 {
		t.Errorf("%d tabs, %d with a picture, the last is %q", len(found), pictures, m.LastScreenshot)
	}
	t.Logf("%d of %d tabs have a picture", pictures, tabs)

	// The launcher is killed, and the next one starts while the store is still
	// unreachable.
	s.kill(t)
	s.launch(t)
	if _, err := os.Stat(sealed); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	bucket.Run()
	eventually(t, "the bundle in the store", func() error {
		if _, err := os.Stat(sealed); err == nil {
			return fmt.Errorf("it is in the spool")
		}
		return nil
	})
	stored, err := os.ReadFile(filepath.Join(bucket.Root, "host-1", "bundles", r.EvidenceID, "manifest.json"))
	if err != nil || !bytes.Equal(stored, raw) {
		t.Errorf("what is stored is not what was sealed: %v", err)
	}
	for _, from := range [][]string{{"--url", s.URL}, {"--store", store}} {
		out, errs, code := s.cli(t, append([]string{"evidence", "verify", "many", "--json"}, from...)...)
		var v struct{ OK bool }
		if code != 0 || json.Unmarshal([]byte(out), &v) != nil || !v.OK {
			t.Errorf("verify %v: %d\n%s%s", from, code, out, errs)
		}
	}
	if again := s.record(t, "many"); again.EvidenceID != r.EvidenceID || again.Token != r.Token {
		t.Errorf("the record changed: %+v", again)
	}
}
