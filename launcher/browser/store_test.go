package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/procfs"
	"leasehold/internal/test/smalldisk"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/sessionfile"
)

// newKeeper is a web site whose pages keep what the path says in local storage when they end, and
// show what they found there. They show it last: whoever sees it may end them at once.
func newKeeper(t *testing.T) *httptest.Server {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<script>
	const found = 'found ' + localStorage.getItem('opened') + ' ' + localStorage.getItem('ended')
	localStorage.setItem('opened', '%[1]s')
	onpagehide = () => localStorage.setItem('ended', '%[1]s')
	document.title = found
</script>`, r.URL.Path)
	}))
	t.Cleanup(web.Close)
	return web
}

// TestWhatPagesStoredIsOnTheDisk: Chrome would write local storage five seconds later, or while it
// ends, if it has the time. Here it has none: it is killed.
func TestWhatPagesStoredIsOnTheDisk(t *testing.T) {
	h, web := newHost(t, Options{}), newKeeper(t)
	processes := func(b *Browser) []procfs.Process {
		t.Helper()
		group, err := b.process.Processes()
		if err != nil {
			t.Fatal(err)
		}
		return group
	}
	// killed closes a browser that is killed before it is asked to end.
	killed := func(b *Browser) {
		t.Helper()
		_, err := b.Close(profile, func(context.Context, sessionfile.Caller, string) error {
			for _, p := range processes(b) {
				_ = unix.Kill(p.PID, unix.SIGKILL)
			}
			<-b.Exited()
			return nil
		}, h.options.Log)
		if err = errors.Join(err, h.lock.Unlock()); err != nil {
			t.Fatal(err)
		}
	}
	b := h.start()
	h.open(b, web.URL+"/first")
	if got := h.titles(b, "found null null"); !slices.Contains(got, "found null null") {
		t.Fatalf("the first page is not among %q", got)
	}
	killed(b)

	b = h.start()
	h.open(b, web.URL+"/second")
	if got := h.titles(b, "found /first /first"); !slices.Contains(got, "found /first /first") {
		t.Errorf("the pages are %q, want one that found what the first stored", got)
	}
	// Whoever stops the process that writes is waited for.
	storage := slices.DeleteFunc(processes(b), func(p procfs.Process) bool {
		line, err := procfs.CommandLine(p.PID)
		return err != nil || !bytes.Contains(line, []byte("storage.mojom.StorageService"))
	})
	if len(storage) != 1 || unix.Kill(storage[0].PID, unix.SIGSTOP) != nil {
		t.Fatalf("no storage among the browser's processes: %v", storage)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := b.process.AwaitStored(short); err == nil {
		t.Error("a storage that is stopped is said to have written")
	}
	if err := unix.Kill(storage[0].PID, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	patient, cancel := context.WithTimeout(t.Context(), testchrome.Patience)
	defer cancel()
	if err := b.process.AwaitStored(patient); err != nil {
		t.Error(err)
	}
	killed(b)
}

// TestSessionCookiesOutliveThePages: Chrome drops them with the last tab of the profile's own
// context, whatever a client has open in one of its own. They are kept after the pages closed.
func TestSessionCookiesOutliveThePages(t *testing.T) {
	h := newHost(t, Options{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "login", Value: "ann"})
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, `<title>signed in</title>`)
	}))
	t.Cleanup(web.Close)
	b := h.start()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.Monitor().LearnContext(t.Context()))
	first, err := b.Monitor().Tabs().Targets(t.Context())
	must(err)
	h.open(b, web.URL)
	h.titles(b, "signed in")
	var made struct{ BrowserContextID string }
	must(b.Mux().Call(t.Context(), "Target.createBrowserContext", nil, &made))
	must(b.Mux().Call(t.Context(), "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": made.BrowserContextID}, nil))
	for _, tab := range first {
		must(b.Mux().Call(t.Context(), "Target.closeTarget", map[string]any{"targetId": tab.TargetID}, nil))
	}
	var kept struct {
		Cookies []struct{ Name, Value string }
	}
	_, err = b.Close(profile, func(ctx context.Context, browser sessionfile.Caller, _ string) error {
		return browser.Call(ctx, "", "Storage.getCookies", nil, &kept)
	}, h.options.Log)
	must(err)
	if len(kept.Cookies) != 1 || kept.Cookies[0].Value != "ann" {
		t.Errorf("the cookies that are kept are %+v", kept.Cookies)
	}
}

// TestAnEndThatWritesNotEverythingIsNoticed: Chrome ends in order all the same.
func TestAnEndThatWritesNotEverythingIsNoticed(t *testing.T) {
	disk := smalldisk.Run(t, "400m")
	if disk == "" {
		return
	}
	temp := os.TempDir()
	in := func(dir string) { // in a process that has only this test
		if err := os.Setenv("TMPDIR", dir); err != nil {
			t.Fatal(err)
		}
	}
	in(disk)
	h := newHost(t, Options{})
	in(temp)
	cookie := map[string]any{"name": "sid", "value": "1", "domain": "shop.example", "path": "/", "expires": time.Now().Add(time.Hour).Unix()}
	set := map[string]any{"cookies": []any{cookie}}
	for _, tt := range []struct {
		name  string
		early func(b *Browser)
		late  func() // when the browser has the cookie
		want  string // in why; empty: everything is stored
	}{
		{name: "everything is stored"},
		{name: "an older cookie database", want: "the database has an older one", early: func(b *Browser) {
			cookie["value"] = "2"
			if _, err := b.askCookies(t.Context()); err != nil { // it opens the database when it needs it
				t.Fatal(err)
			}
			path := filepath.Join(h.path, "Default", "Cookies")
			older, err := os.ReadFile(path)
			if err = errors.Join(err, os.Rename(path, path+".moved"), os.WriteFile(path, older, 0o600)); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "a full disk", want: "the disk is full", late: func() { smalldisk.Fill(t, disk) }},
	} {
		b := h.start()
		if tt.early != nil {
			tt.early(b)
		}
		if err := b.Monitor().Observer().Call(t.Context(), "", "Storage.setCookies", set, nil); err != nil {
			t.Fatal(err)
		}
		if tt.late != nil {
			tt.late()
		}
		method, err := b.Close(profile, nil, h.options.Log)
		var missing *profiledir.NotStoredError
		if errors.As(err, &missing) != (tt.want != "") || missing != nil && !strings.Contains(missing.Why, tt.want) || method.Killed() {
			t.Errorf("%s: closed by %s with %v, want one with %q", tt.name, method, err, tt.want)
		}
		if err := h.lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}
