package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/internal/test/smalldisk"
	"leasehold/lease"
)

// startOnSmallDisk starts a sidecar whose data directory is a file system of so much, which
// is mounted for that process alone. disk is where others see it.
func startOnSmallDisk(t *testing.T, size string, args ...string) (s *sidecar, disk string) {
	t.Helper()
	s = startThrough(t, "mount -t tmpfs -o size="+size+",mode=700 none $DATA", args...)
	return s, filepath.Join("/proc", fmt.Sprint(s.cmd.Process.Pid), "root", s.Dir)
}

// startThrough starts a sidecar in a mount namespace of its own, in which a command mounted
// something before. $DATA is its data directory.
func startThrough(t *testing.T, mount string, args ...string) *sidecar {
	t.Helper()
	through := filepath.Join(t.TempDir(), "mounted")
	write(t, through, []byte("#!/bin/sh\nDATA=$4 exec unshare -m sh -c '"+mount+" && exec \"$@\"' sh \"$@\"\n"))
	if err := os.Chmod(through, 0o700); err != nil {
		t.Fatal(err)
	}
	return (&sidecar{client: http.DefaultClient, through: through}).begin(t, args...)
}

// TestAFullDiskCostsNoLease: while the disk is full no browser is started, the lease that is
// held is renewed, and its session ends with evidence, in the space that is kept for that. (A session
// that ends before any of that is given back is for a person: its browser may have lost something.)
// When that is used up too, /readyz says what is wrong, and once there is room again
// everything works, in the same process.
func TestAFullDiskCostsNoLease(t *testing.T) {
	t.Parallel()
	s, disk := startOnSmallDisk(t, "160m", "--lease-ttl", "30s", "--min-free-disk", "16MiB", "--disk-reserve", "24MiB")
	var ses struct {
		ID    string      `json:"session_id"`
		Token lease.Token `json:"lease_token"`
	}
	body := map[string]any{"profile_id": "shop", "create": true, "heartbeat": "explicit", "on_close": "keep", "task_id": "t", "worker_id": "w"}
	if code := s.call(t, "POST", "/v1/sessions", body, &ses); code != 201 {
		t.Fatalf("no session: %d", code)
	}
	beat := func() int {
		return s.call(t, "POST", "/v1/sessions/"+ses.ID+"/heartbeat", map[string]any{"lease_token": ses.Token}, nil)
	}
	reserve := func() int64 {
		info, err := os.Stat(filepath.Join(disk, "disk-reserve"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	eventually(t, "some of the space that is kept to be given back", func() error {
		left := reserve()
		if left <= 22<<20 { // as much as the server's disk has to have free
			return nil
		}
		smalldisk.Fill(t, disk) // again, since a browser frees some of it
		return fmt.Errorf("%d bytes of it are left", left)
	})
	for renewals, last := 0, s.record(t, "shop").ExpiresAt; renewals < 2; {
		eventually(t, "another renewal", func() error {
			if code := beat(); code/100 != 2 {
				t.Fatalf("a heartbeat on a full disk: %d", code)
			}
			now := s.record(t, "shop").ExpiresAt
			if !now.After(last) {
				return fmt.Errorf("the lease expires at %v, as before", now)
			}
			last = now
			return nil
		})
		renewals++
	}
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "other", "create": true}, &problem); code != 429 || problem["reason"] != "disk" {
		t.Errorf("another browser on a full disk: %d %v", code, problem)
	}
	if code := s.call(t, "DELETE", "/v1/sessions/"+ses.ID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil); code != 200 {
		t.Fatalf("release on a full disk: %d", code)
	}
	s.screenshot(t, "shop")

	var empty func()
	eventually(t, "the space to be used up, and the server with it", func() error {
		empty = smalldisk.Fill(t, disk) // as whatever fills a disk goes on to
		var why []byte
		if code := s.call(t, "GET", "/readyz", nil, &why); code != 503 || !strings.Contains(string(why), "could not write to") || !strings.Contains(string(why), "make room") {
			return fmt.Errorf("/readyz: %d %s, %d bytes left", code, why, reserve())
		}
		return nil
	})
	pid := s.cmd.Process.Pid
	empty()
	eventually(t, "the sidecar to be ready again", func() error {
		var why []byte
		if code := s.call(t, "GET", "/readyz", nil, &why); code != 200 {
			return fmt.Errorf("/readyz: %d %s", code, why)
		}
		return nil
	})
	eventually(t, "a session", func() error {
		if code := s.call(t, "POST", "/v1/sessions", body, &ses); code != 201 {
			return fmt.Errorf("%d", code)
		}
		return nil
	})
	if ses.Token < 2 {
		t.Errorf("token %d", ses.Token)
	}
	if code := s.call(t, "DELETE", "/v1/sessions/"+ses.ID, map[string]any{"lease_token": ses.Token, "outcome": "succeeded"}, nil); code != 200 || s.cmd.Process.Pid != pid {
		t.Errorf("release: %d", code)
	}
	if got := names(s.events(t, "shop")); !strings.HasPrefix(got, "granted released granted") || !strings.HasSuffix(got, " granted released") {
		t.Errorf("history %s", got)
	}
	eventually(t, "space to be kept again", func() error {
		if left := reserve(); left != 24<<20 {
			return fmt.Errorf("%d bytes", left)
		}
		return nil
	})
	if _, errs, code := s.cli(t, "evidence", "verify", "shop"); code != 0 {
		t.Errorf("verify: exit %d: %s", code, errs)
	}
}
