package session

import (
	"fmt"
	"testing"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
)

// TestDownloadsThatAnEndCutsOffAreTold: how many they are is in the session, and the first of them
// are in its journal by name. Those that were finished or cancelled are not, and a browser that
// goes on for other runs cuts off none.
func TestDownloadsThatAnEndCutsOffAreTold(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *room, s *Session) int{
		"released": func(r *room, s *Session) int { return r.release(s).UnfinishedDownloads },
		"lost": func(r *room, s *Session) int {
			r.chromium.kill(s.Browser().PID())
			return r.over(s).UnfinishedDownloads
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, roomOptions{})
			s := r.begin(task("one"))
			const more = 5
			r.download(s, maxNamedDownloads+more)
			if n := end(r, s); n != maxNamedDownloads+more {
				t.Errorf("%d are told, want %d", n, maxNamedDownloads+more)
			}
			told := r.unfinished(s)
			if len(told) != maxNamedDownloads+1 || told[0] != "1 report-2.pdf http://shop.example/2?key=REDACTED" || told[maxNamedDownloads] != fmt.Sprint(more, "  ") {
				t.Errorf("the journal has %q", told)
			}
		})
	}
	t.Run("another run goes on", func(t *testing.T) {
		t.Parallel()
		r := newRoom(t, roomOptions{runs: 2})
		shared := func(m *api.Manifest) { m.RequiresExclusiveProfileLock = new(false) }
		one := r.begin(task("one", shared))
		two, err := r.join(task("two", shared))
		if err != nil {
			t.Fatal(err)
		}
		r.download(one, 1)
		if n, told := r.release(one).UnfinishedDownloads, r.unfinished(one); n != 0 || len(told) > 0 {
			t.Errorf("the first run's end tells %d, %q", n, told)
		}
		if n, told := r.release(two).UnfinishedDownloads, r.unfinished(two); n != 1 || len(told) != 1 {
			t.Errorf("the last run's end tells %d, %q", n, told)
		}
	})
	t.Run("a browser that was to stay warm", func(t *testing.T) {
		t.Parallel()
		r := newRoom(t, roomOptions{warm: true, keep: new(true)})
		s := r.begin(task("one"))
		r.download(s, 1)
		r.release(s)
		if f := r.over(s); f.CloseMethod == "" || f.UnfinishedDownloads != 1 {
			t.Errorf("closed by %q, %d downloads: want a browser that is closed, and one", f.CloseMethod, f.UnfinishedDownloads)
		}
	})
}

// download has the browser begin downloads, of which n are not finished.
func (r *room) download(s *Session, n int) {
	r.t.Helper()
	for i := range n + 2 {
		r.chromium.say(`{"method":"Browser.downloadWillBegin","params":{"frameId":"T0","guid":"g%d","url":"http://shop.example/%d?key=secret","suggestedFilename":"report-%d.pdf"},"sessionId":"B1"}`, i, i, i)
		state := [...]string{"completed", "canceled", "inProgress"}[min(i, 2)]
		r.chromium.say(`{"method":"Browser.downloadProgress","params":{"guid":"g%d","totalBytes":9,"receivedBytes":3,"state":%q},"sessionId":"B1"}`, i, state)
	}
	r.await("the downloads are known", func() bool {
		known := s.Browser().Monitor().Downloads().Unfinished()
		return len(known) == n && known[0].Name == "report-2.pdf"
	})
}

func (r *room) release(s *Session) api.Session {
	r.t.Helper()
	shown, err := s.Release(r.t.Context(), api.Release{Outcome: "succeeded"})
	if err != nil || !shown.Released {
		r.t.Errorf("%+v, %v", shown, err)
	}
	return shown
}

// unfinished are the journal's entries about unfinished downloads: how many each stands for, the
// file's name, and the URL.
func (r *room) unfinished(s *Session) (told []string) {
	r.t.Helper()
	entries, err := checkpoint.Read(r.files.Journal(s.ID()))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Kind == checkpoint.KindUnfinished {
			told = append(told, fmt.Sprint(e.Times(), " ", e.Text, " ", e.URL))
		}
	}
	return told
}
