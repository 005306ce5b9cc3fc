package session

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/monitor"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/slots"
	"leasehold/lease"
)

func TestWhenAPictureIsDue(t *testing.T) {
	noon := time.Date(2026, 6, 18, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	entry := func(kind checkpoint.Kind, second int) checkpoint.Entry {
		return checkpoint.Entry{Kind: kind, At: at(second), Name: "n"}
	}
	for _, c := range []struct {
		name     string
		interval time.Duration
		last     time.Time
		notes    []checkpoint.Entry
		want     time.Time // zero: none is due
		news     int       // how many of the notes move it
	}{
		{"nothing happened", 30 * time.Second, at(0), nil, time.Time{}, 0},
		{"what shows nothing new", 30 * time.Second, at(0), []checkpoint.Entry{entry(checkpoint.KindConnection, 5), entry(checkpoint.KindStorage, 6), entry(checkpoint.KindPicture, 7)}, time.Time{}, 0},
		{"the first change", 30 * time.Second, time.Time{}, []checkpoint.Entry{entry(checkpoint.KindURL, 5)}, at(6), 1},
		{"a change soon after the last", 30 * time.Second, at(0), []checkpoint.Entry{entry(checkpoint.KindURL, 5)}, at(30), 1},
		{"a change long after the last", 30 * time.Second, at(0), []checkpoint.Entry{entry(checkpoint.KindStep, 50)}, at(51), 1},
		{"many changes are one", 30 * time.Second, at(0), []checkpoint.Entry{entry(checkpoint.KindURL, 5), entry(checkpoint.KindStep, 6), entry(checkpoint.KindRequest, 7), entry(checkpoint.KindForm, 8)}, at(30), 1},
		{"a short interval", 200 * time.Millisecond, at(0), []checkpoint.Entry{entry(checkpoint.KindURL, 5)}, at(5).Add(200 * time.Millisecond), 1},
		{"no rate", 0, at(0), []checkpoint.Entry{entry(checkpoint.KindURL, 5), entry(checkpoint.KindStep, 6)}, time.Time{}, 0},
		{"a checkpoint", 30 * time.Second, at(0), []checkpoint.Entry{entry(checkpoint.KindURL, 5), entry(checkpoint.KindCheckpoint, 6)}, at(1), 2},
		{"a checkpoint without a rate", 0, at(0), []checkpoint.Entry{entry(checkpoint.KindCheckpoint, 6)}, at(1), 1},
		{"the first checkpoint, at once", 0, time.Time{}, []checkpoint.Entry{entry(checkpoint.KindCheckpoint, 6)}, time.Time{}.Add(pictureSpacing), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := demand{interval: c.interval, last: c.last, frames: map[string]bool{}}
			news := 0
			for _, e := range c.notes {
				if d.note(e, false) {
					news++
				}
			}
			got, due := d.due()
			if due != (len(c.notes) > 0 && c.news > 0) || !got.Equal(c.want) || news != c.news {
				t.Errorf("due %v at %v, %d news; want %v, %d", due, got, news, c.want, c.news)
			}
		})
	}
}

// What the journal of a launcher before knows of pictures is what is kept.
func TestPicturesOfAJournal(t *testing.T) {
	var entries []checkpoint.Entry
	for i := range 6 {
		named, err := json.Marshal(evidence.Picture{EvidenceID: fmt.Sprint("pic_", i), Missing: map[bool]string{true: "sensitive"}[i > 1]})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, checkpoint.Entry{Kind: checkpoint.KindPicture, Data: named}, checkpoint.Entry{Kind: checkpoint.KindURL})
	}
	entries = append(entries, checkpoint.Entry{Kind: checkpoint.KindPicture, Data: json.RawMessage(`{}`)}, checkpoint.Entry{Kind: checkpoint.KindPicture})
	got := ""
	for _, p := range PicturesIn(entries) {
		got += p.EvidenceID + " "
	}
	// The newest three show nothing: the newest that does is kept, too.
	if want := "pic_1 pic_3 pic_4 pic_5 "; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
}

// A page is sensitive until it goes elsewhere, when a frame in it is.
func TestFramesOfADemand(t *testing.T) {
	d := demand{frames: map[string]bool{}}
	d.note(checkpoint.Entry{Kind: checkpoint.KindFrame, Target: "a", Sensitive: true}, false)
	d.note(checkpoint.Entry{Kind: checkpoint.KindURL, Target: "b"}, false)
	if !d.frames["a"] || d.frames["b"] {
		t.Errorf("%v", d.frames)
	}
	if d.note(checkpoint.Entry{Kind: checkpoint.KindURL, Target: "a"}, false); !d.frames["a"] {
		t.Errorf("the same document: %v", d.frames)
	}
	if d.note(checkpoint.Entry{Kind: checkpoint.KindURL, Target: "a", Committed: true}, false); d.frames["a"] {
		t.Errorf("%v", d.frames)
	}
}

// A session that was adopted knows what its journal was told: a step or a frame
// that is sensitive still is, and is pictured no more than before. It is no news.
func TestPicturesGoOn(t *testing.T) {
	step := func(name string, sensitive bool) checkpoint.Entry {
		return checkpoint.Entry{Kind: checkpoint.KindStep, Name: name, Sensitive: sensitive}
	}
	frame := checkpoint.Entry{Kind: checkpoint.KindFrame, Target: "a", URL: "https://shop.example/checkout/card", Sensitive: true}
	for _, c := range []struct {
		name              string
		entries           []checkpoint.Entry
		sensitive, framed bool
		step              string
	}{
		{name: "nothing"},
		{"a sensitive step", []checkpoint.Entry{step("read", false), step("fill_in", true), {Kind: checkpoint.KindCheckpoint, Name: "c", Safe: true}}, true, false, "fill_in"},
		{"a step whose name is", []checkpoint.Entry{step("pay_invoice", false)}, true, false, "pay_invoice"},
		{"one that is over", []checkpoint.Entry{step("fill_in", true), step("read", false)}, false, false, "read"},
		{"a frame", []checkpoint.Entry{frame, {Kind: checkpoint.KindURL, Target: "a"}}, false, true, ""},
		{"one that is gone", []checkpoint.Entry{frame, {Kind: checkpoint.KindURL, Target: "a", Committed: true}}, false, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, stop := journaled(t, c.entries)
			s.pictures.begin(s.recording.entries())
			d := &s.pictures.demand
			s.pictures.mu.Lock()
			if _, due := d.due(); due || d.sensitive != c.sensitive || d.frames["a"] != c.framed || d.step != c.step {
				t.Errorf("due %v, %+v", due, *d)
			}
			s.pictures.mu.Unlock()
			s.pictures.end()
			stop()
		})
	}
}

// journaled is a session that goes on with a journal.
func journaled(t *testing.T, entries []checkpoint.Entry) (s *Session, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	root, err := profiledir.Open(t.TempDir(), testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	table := slots.NewTable(ctx, &work, slots.Options{Root: root, Metrics: prometheus.NewRegistry()})
	files := sessionfile.NewDir(t.TempDir(), testkey.Key)
	h, err := NewRegistry(ctx, &work, Options{PictureInterval: time.Second, Files: files, Slots: table, Metrics: prometheus.NewRegistry(),
		Patience: func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, patience)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s = h.New(api.Manifest{}, lease.Record{SessionID: "ses_1"}, "/p", table.Occupy("p"), "")
	before, err := checkpoint.Open(files.Journal("ses_1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := before.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.recording.open(); err != nil {
		t.Fatal(err)
	}
	return s, func() {
		cancel()
		work.Wait()
		if err := s.recording.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAFrameThatTurnsSensitiveMeanwhile: what Chrome says of a frame while it draws the
// picture is known before the picture counts, however late the monitor processes it.
func TestAFrameThatTurnsSensitiveMeanwhile(t *testing.T) {
	for frame, want := range map[string]string{"https://shop.example/checkout/card": isSensitive, "https://shop.example/news": ""} {
		s, stop := journaled(t, nil)
		var commands, events [2]int
		for _, p := range []*[2]int{&commands, &events} {
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
				t.Fatal(err)
			}
		}
		in, out := os.NewFile(uintptr(commands[0]), "in"), os.NewFile(uintptr(events[1]), "out")
		asked := make(chan struct{}) // the last question
		m := monitor.New(func(entry checkpoint.Entry) {
			if entry.Kind != checkpoint.KindFrame { // the page's own URL, before
				return
			}
			<-asked
			time.Sleep(50 * time.Millisecond) // a slow disk
			if err := s.recording.add(entry); err != nil {
				t.Error(err)
			}
		})
		mux, err := cdpproxy.New(cdpproxy.Pipe{Commands: commands[1], Events: events[0]}, findings.CommandEffect, m.Traffic)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			say := func(format string, args ...any) {
				if _, err := fmt.Fprintf(out, format+"\x00", args...); err != nil {
					t.Error(err)
				}
			}
			for r := bufio.NewReader(in); ; {
				msg, err := r.ReadBytes(0)
				if err != nil {
					return
				}
				var c struct {
					ID                int64
					Method, SessionID string
				}
				if err := json.Unmarshal(msg[:len(msg)-1], &c); err != nil {
					t.Error(err)
					return
				}
				result := "{}"
				switch c.Method {
				case "Target.attachToBrowserTarget":
					say(`{"id":%d,"result":{"sessionId":"B"}}`, c.ID)
					continue
				case "Target.setAutoAttach":
					if c.SessionID == "B" {
						say(`{"method":"Target.attachedToTarget","params":{"sessionId":"S","targetInfo":{"targetId":"T","type":"page","url":"https://shop.example/cart"},"waitingForDebugger":false},"sessionId":"B"}`)
					}
				case "Target.getTargets":
					result = `{"targetInfos":[{"targetId":"T","type":"page","url":"https://shop.example/cart"}]}`
				case "Target.setDiscoverTargets", "Inspector.enable", "Page.enable", "Page.addScriptToEvaluateOnNewDocument", "Runtime.addBinding", "DOMStorage.enable", "Log.enable", "Network.enable", "Browser.setDownloadBehavior", "Runtime.runIfWaitingForDebugger":
				case "Page.captureScreenshot":
					say(`{"method":"Page.frameNavigated","params":{"frame":{"id":"F","parentId":"T","url":%q}},"sessionId":"S"}`, frame)
					result = `{"data":"aGk="}`
				case "Target.getTargetInfo":
					close(asked)
					result = `{"targetInfo":{"url":"https://shop.example/cart"}}`
				case "Page.getFrameTree", "Page.createIsolatedWorld", "Runtime.evaluate":
				default:
					t.Errorf("asked for %s", c.Method)
				}
				say(`{"id":%d,"result":%s,"sessionId":%q}`, c.ID, result, c.SessionID)
			}
		})
		if err := m.Attach(t.Context(), mux); err != nil {
			t.Fatal(err)
		}
		all.Go(func() { m.Watch(t.Context()) })
		if err := m.Tabs().AwaitWatched(t.Context()); err != nil {
			t.Fatal(err)
		}
		url, image, missing := s.pictures.shoot(t.Context(), m)
		if url != "https://shop.example/cart" || missing != want || (string(image) == "hi") != (want == "") {
			t.Errorf("%s: %s %q %q, want %q", frame, url, image, missing, want)
		}
		if err := out.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		<-mux.Done()
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		stop()
	}
}

// TestPicturesOfASession are stored while it lives, for as long as the lease is its own.
// An orderly end removes them; the evidence of a loss, or of a worker that failed, names them.
func TestPicturesOfASession(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"in order", "failed", "lost"} {
		r := newRoom(t, roomOptions{})
		s := r.begin(task("one"))
		w := r.connect(s)
		stored := func() (names []string) {
			all, err := r.archive.Pictures(t.Context(), profile, s.ID())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				names = append(names, p.Checkpoint)
			}
			return names
		}
		checkpointed := func(name string, want func() bool) {
			w.call("Lease.checkpoint", "", map[string]any{"name": name})
			r.await("a picture of "+name, want)
		}
		checkpointed("a", func() bool { return len(stored()) == 1 && r.counted("leasehold_pictures_total", "stored") == 1 })
		r.await("the journal knows it", func() bool { return slices.Contains(r.journal(s), "picture a") })
		if end == "lost" {
			// The fence is shut while the next one is taken: that does not count.
			r.chromium.set(func() {
				r.chromium.at["Page.captureScreenshot"] = func() { s.Fence().Shut(lease.ErrExpired) }
			})
			w.call("Lease.checkpoint", "", map[string]any{"name": "b"})
			r.await("the fence is shut", func() bool { return s.Fence().Check() != nil })
			r.chromium.set(func() { clear(r.chromium.at) })
			s.life.update(func(f *facts) { f.leaseLost = lease.ErrExpired })
		} else if _, err := s.Release(t.Context(), api.Release{Recover: map[string]string{"failed": api.RecoverTouched}[end]}); err != nil {
			t.Fatal("the release:", err)
		}
		f := r.over(s)
		named := r.manifest(f.Evidence.EvidenceID).Pictures
		if end != "in order" {
			if got := stored(); !slices.Equal(got, []string{"a"}) || len(named) != 1 || named[0].Checkpoint != "a" || named[0].Missing != "" {
				t.Errorf("%s: stored %q, named %+v", end, got, named)
			}
		} else {
			r.await("they are removed", func() bool { return len(stored()) == 0 })
			if len(named) != 0 {
				t.Errorf("named: %+v", named)
			}
		}
	}
}
