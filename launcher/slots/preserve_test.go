package slots

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/checkpoint"
	"leasehold/internal/signed"
	"leasehold/internal/test/fakechrome"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
)

// TestAWarmBrowserIsNotKilledWithoutEvidence, nor closed without some for what it did by
// itself. One that is closed in order needs none: its last session has some.
func TestAWarmBrowserIsNotKilledWithoutEvidence(t *testing.T) {
	t.Parallel()
	stubborn := fakechrome.Script{RefusesClose: true, Stubborn: true}
	setting := func(h *host, _ *browser.Browser) { h.table.CoolProfile("p", WarmSetting) }
	stirs := func(h *host, _ *browser.Browser) {
		h.table.Find("p").Note(checkpoint.Entry{Kind: checkpoint.KindRequest, URL: "https://shop.example/"})
	}
	for _, tt := range []struct {
		name   string
		script fakechrome.Script
		cause  func(h *host, b *browser.Browser)
		fails  error // of what stores evidence
		want   string
	}{
		{"in order", fakechrome.Script{}, setting, nil, ""},
		{"it does something", fakechrome.Script{}, stirs, nil, WarmDisturbed},
		{"it crashes", fakechrome.Script{}, func(h *host, b *browser.Browser) { h.kill(b) }, nil, WarmGone},
		{"it has to be killed", stubborn, setting, nil, WarmSetting},
		{"it has to be killed, and nothing can be stored", stubborn, setting, errors.New("the disk is full"), WarmSetting},
		{"it does something, and nothing can be stored", fakechrome.Script{}, stirs, errors.New("the disk is full"), WarmDisturbed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			preserved, alive := "", false
			preserve := func(profile, why, _ string, b *browser.Browser) error {
				mu.Lock()
				defer mu.Unlock()
				preserved += why
				alive = unix.Kill(b.PID(), 0) == nil
				return tt.fails
			}
			h := newHost(t, forAnHour)
			h.table.PreserveBy(preserve)
			if tt.script.Stubborn { // the others get as long as they take
				h.driver = browser.NewDriver(context.Background(), &h.work, browser.Options{
					Binary: fakechrome.Binary(t), Key: testkey.Key, Files: h.files, Root: h.root, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
					CloseTimeouts: chrome.CloseTimeouts{Ask: time.Second, Interrupt: 100 * time.Millisecond},
				})
			}
			path, err := h.root.Create("p")
			if err != nil {
				t.Fatal(err)
			}
			fakechrome.Direct(t, path, tt.script)
			b := h.warm("p")
			tt.cause(h, b)
			if tt.fails == nil {
				h.vacant("p", b)
			} else {
				for changed := h.table.Changed(); h.table.Find("p") != nil; changed = h.table.Changed() {
					<-changed
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if preserved != tt.want || tt.want != "" && tt.want != WarmGone && !alive {
				t.Errorf("evidence of %q, the browser lived: %v; want %q, of a living one", preserved, alive, tt.want)
			}
			if tt.fails == nil {
				return
			}
			if err := unix.Kill(b.PID(), 0); err != nil {
				t.Error("the browser was ended without evidence")
			}
			// Nobody watches it any more.
			if err := unix.Kill(b.PID(), unix.SIGKILL); err != nil {
				t.Error(err)
			}
		})
	}
}

// Why a directory is doubted is said before the note of its browser is removed: a launcher that is killed in between
// has said it, and one that cannot say it leaves the note to the next one.
func TestADoubtIsSaidBeforeTheBrowsersNoteIsRemoved(t *testing.T) {
	t.Parallel()
	for name, sayable := range map[string]bool{"it is said": true, "it cannot be said": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, forAnHour)
			s := h.table.Occupy("p")
			h.start(s, "ses_p")
			noted := func() bool {
				_, is, err := h.root.Running("p")
				if err != nil {
					t.Error(err)
				}
				return is
			}
			_, err := CloseUnused(s.Browser(), s.Lock(), h.root, nil, nil, func(chrome.CloseMethod) error {
				if !noted() {
					t.Error("the browser's note is gone before its directory is doubted")
				}
				if !sayable {
					mark := filepath.Join(profiledir.GuardDir(h.root.Dir()), "p."+string(signed.Mark))
					if err := errors.Join(os.Remove(mark), os.MkdirAll(filepath.Join(mark, "in the way"), 0o700)); err != nil {
						t.Error(err)
					}
				}
				return &profiledir.NotStoredError{Profile: "p", Why: "it is a test"}
			}, zerolog.Nop())
			if lost := new(profiledir.NotStoredError); !errors.As(err, &lost) {
				t.Errorf("it ended with %v", err)
			}
			if noted() == sayable {
				t.Errorf("the browser is noted: %v", !sayable)
			}
			if why, err := h.root.Replaced("p"); sayable && (err != nil || why != "it is a test") {
				t.Errorf("a person is told %q, %v", why, err)
			}
			if err := s.Lock().Unlock(); err != nil {
				t.Error(err)
			}
			s.Vacate()
		})
	}
}
