package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"leasehold/internal/cookiedb"
)

// cuts is how often the power is cut: a few times, or LEASEHOLD_POWERCUTS, which
// `make powercuts` sets.
func cuts(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LEASEHOLD_POWERCUTS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("LEASEHOLD_POWERCUTS=%q: want how many", text)
	}
	return n
}

// TestAReleaseOutlivesAPowerCut: a session stores a cookie and a value in local storage and is
// released. At a random moment after that was acknowledged the power is cut: what the disk has by
// then, without what waits in memory, is copied. Both have to be in the copy. Every other session
// leaves its browser open.
func TestAReleaseOutlivesAPowerCut(t *testing.T) {
	t.Parallel()
	web := newSite(t)
	dir := t.TempDir()
	image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if out, err := exec.Command("mke2fs", "-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0", "-J", "size=8", image, "256m").CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v %s", err, out)
	}
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	s := startThrough(t, "mount -o loop "+image+" "+disk, append([]string{"--profiles-dir", disk, "--min-free-disk", "0"}, warmly...)...)
	took := map[bool]time.Duration{}
	n, lost := cuts(t), 0
	for i := range n {
		warm := i%2 == 1
		var ses two
		if code := s.call(t, "POST", "/v1/sessions", map[string]any{
			"profile_id": "kept", "create": true, "worker_id": "w", "task_id": fmt.Sprint(i), "wait": "60s", "keep_warm": warm,
		}, &ses); code != 201 {
			t.Fatalf("status %d", code)
		}
		c := dial(t, ses.CDPURL)
		session, _ := c.visit(t, web.URL+"/")
		c.evaluate(t, session, fmt.Sprintf("document.cookie = 'kept=round-%[1]d-; max-age=86400'; localStorage.setItem('kept', 'round-%[1]d-')", i))
		var released struct{ Released bool }
		began := time.Now()
		if code := s.call(t, "DELETE", "/v1/sessions/"+ses.SessionID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, &released); code != 200 || !released.Released {
			t.Fatalf("round %d: %d %v", i, code, released)
		}
		took[warm] += time.Since(began)
		time.Sleep(rand.N(500 * time.Millisecond))
		if err := survives(filepath.Join(t.TempDir(), "copy"), image, warm, fmt.Sprintf("round-%d-", i)); err != nil {
			lost++
			t.Errorf("round %d, browser left open: %t: %v", i, warm, err)
		}
		c.drop()
	}
	t.Logf("%d of %d lost something; a release took %v, and %v where the browser stayed open", lost, n, took[false]/time.Duration((n+1)/2), took[true]/time.Duration(max(1, n/2)))
}

// survives tells whether the value is in what a disk has, which is copied first.
func survives(to, image string, warm bool, value string) error {
	script := `set -e
cp --sparse=always "$1" "$2.img"
mkdir "$2.mounted" "$2"
mount -o loop "$2.img" "$2.mounted"
cp -r "$2.mounted/kept/Default/Cookies" "$2.mounted/kept/Default/Local Storage" "$2"
umount "$2.mounted"
rm "$2.img"`
	if out, err := exec.Command("unshare", "-m", "sh", "-c", script, "sh", image, to).CombinedOutput(); err != nil {
		return fmt.Errorf("the copy: %w %s", err, out)
	}
	file, err := os.ReadFile(filepath.Join(to, "Cookies"))
	if err != nil {
		return err
	}
	cookies, err := cookiedb.Read(file)
	if err != nil {
		return err
	}
	if !warm && (len(cookies) != 1 || cookies[0].Value != value) { // those of an open browser are in the jar
		return fmt.Errorf("the cookies are %v, want one %s", cookies, value)
	}
	stored, err := filepath.Glob(filepath.Join(to, "Local Storage", "leveldb", "*"))
	if err != nil {
		return err
	}
	for _, path := range stored {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(value)) {
			return nil
		}
	}
	return fmt.Errorf("local storage (%d files) does not have %s", len(stored), value)
}
