package slots

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/internal/test/testkey"
	"leasehold/internal/test/testlog"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
)

func TestPlacesAndSpaceAreShown(t *testing.T) {
	h := newHost(t, Options{MaxBrowsers: 3, MinFreeDisk: 5 << 20})
	for name, want := range map[string]float64{"leasehold_browsers_limit": 3, "leasehold_browsers": 0, "leasehold_disk_min_free_bytes": 5 << 20} {
		if got := h.counted(name, ""); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"leasehold_disk_free_bytes", "leasehold_data_disk_free_bytes"} {
		if got := h.counted(name, ""); !(got > 0) {
			t.Errorf("%s is %v", name, got)
		}
	}
	if got := newHost(t, Options{}).counted("leasehold_browsers_limit", ""); !math.IsInf(got, 1) {
		t.Errorf("without a limit: %v, want +Inf", got)
	}
}

// TestAFullDiskStartsNothing, and says so once, and when it is over.
func TestAFullDiskStartsNothing(t *testing.T) {
	const nowhere = "/proc" // nothing can be written there
	data := filepath.Join(t.TempDir(), "data")
	point := func(to string) {
		t.Helper()
		_ = os.Remove(data)
		if err := os.Symlink(to, data); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		room := t.TempDir()
		point(nowhere)
		table := newTable(t, Options{DataDir: data, MinFreeDisk: 1, Log: zerolog.New(&log)})
		s := table.Occupy("p")
		if p := s.TakePlace(&Waiter{}); refused(p) != api.CodeHostFull || p.More["reason"] != "disk" || p.More["disk_min_bytes"] != uint64(1) || p.RetryAfter != api.ShortRetry {
			t.Errorf("%+v", p)
		}
		changed := table.Changed()
		table.work.Go(table.WatchRoom)
		time.Sleep(10 * roomEvery)
		if n := strings.Count(log.String(), "has 0 B left"); n != 1 {
			t.Errorf("it is said %d times: %s", n, log.String())
		}
		select {
		case <-changed:
			t.Error("somebody is woken for nothing")
		default:
		}
		point(room)
		<-changed
		if p := s.TakePlace(&Waiter{}); p != nil || !strings.Contains(log.String(), "browsers can be started again") {
			t.Errorf("%v: %s", p, log.String())
		}
		point(filepath.Join(room, "gone"))
		other := table.Occupy("q")
		if p := other.TakePlace(&Waiter{}); refused(p) != api.CodeHostFull || p.More["reason"] != "files" {
			t.Errorf("a disk that cannot be asked: %+v", p)
		}
	})
}

// TestWhatASessionLacks: what a host is short of is told before anything is granted, by the same
// words to a worker and to /readyz.
func TestWhatASessionLacks(t *testing.T) {
	room, crowded := t.TempDir(), t.TempDir()
	if err := unix.Mount("none", crowded, "tmpfs", 0, "nr_inodes=100"); err != nil {
		t.Fatalf("a file system with few inodes: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(crowded, 0) })
	frozen := t.TempDir()
	if err := unix.Mount("none", frozen, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatalf("a file system that takes nothing: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(frozen, 0) })
	moved := filepath.Join(t.TempDir(), "profiles")
	root, err := profiledir.Open(moved, testkey.Key)
	if err = errors.Join(err, os.Rename(moved, moved+".gone"), os.Mkdir(moved, 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		o            Options
		reason, says string
	}{
		"nothing":                       {Options{DataDir: room, Dirs: []string{room}}, "", ""},
		"inodes":                        {Options{DataDir: crowded}, "disk", "more files"},
		"a file system that is frozen":  {Options{DataDir: room, Dirs: []string{room, frozen}}, "files", "read-only"},
		"a directory":                   {Options{DataDir: room, Dirs: []string{filepath.Join(room, "gone")}}, "files", "gone: no such file"},
		"the profiles' own directory":   {Options{DataDir: room, Root: root}, "files", moved + " is not the directory"},
		"something that others look at": {Options{DataDir: room, Ready: func() error { return errors.New("the key is gone") }}, "files", "the key is gone"},
	} {
		table := newTable(t, tt.o)
		p, got := table.Short(), ""
		if p != nil {
			got, _ = p.More["reason"].(string)
		}
		if got != tt.reason || p != nil && !strings.Contains(p.Detail, tt.says) {
			t.Errorf("%s: %+v, want %q, %q", name, p, tt.reason, tt.says)
		}
		if at := table.Occupy("p").TakePlace(&Waiter{}); (at == nil) != (p == nil) || at != nil && at.Detail != p.Detail {
			t.Errorf("%s: a worker gets %v, /readyz %v", name, at, p)
		}
	}
}
