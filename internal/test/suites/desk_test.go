package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"leasehold/internal/test/suites/standin/ask"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted opens browsers that are nothing but channels.
type scripted struct {
	opened  chan opening
	refusal error
}

type opening struct {
	profile string
	args    []string
	ended   chan struct{} // the test ends the browser by it
	stopped chan struct{}
}

func (s *scripted) open(_ context.Context, profile string, args []string, _ bool) (*browser, error) {
	if s.refusal != nil {
		return nil, s.refusal
	}
	o := opening{profile: profile, args: args, ended: make(chan struct{}), stopped: make(chan struct{})}
	s.opened <- o
	return &browser{host: "127.0.0.1:9", ended: o.ended, stop: func() { close(o.stopped) }}, nil
}

// standIn asks the desk for a browser, as a stand-in does.
func standIn(t *testing.T, d *desk, args ...string) (net.Conn, ask.Answer) {
	t.Helper()
	conn, err := net.Dial("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // some tests close it
	if err := json.NewEncoder(conn).Encode(ask.Request{Args: args}); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var answer ask.Answer
	if err := json.Unmarshal(line, &answer); err != nil {
		t.Fatal(err)
	}
	return conn, answer
}

func newScripted(t *testing.T, s *scripted) *desk {
	t.Helper()
	d, err := newDesk(s, filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

func TestABrowserEndsWithItsStandIn(t *testing.T) {
	s := &scripted{opened: make(chan opening, 1)}
	d := newScripted(t, s)
	conn, answer := standIn(t, d, "--lang=de-DE", "--remote-debugging-port=0", "--no-sandbox", "--user-data-dir=/tmp/a")
	o := <-s.opened
	if answer.Host != "127.0.0.1:9" || answer.Error != "" {
		t.Errorf("answer: %+v", answer)
	}
	if !slices.Equal(o.args, []string{"--lang=de-DE"}) {
		t.Errorf("arguments: %q, want only those that the sidecar allows", o.args)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-o.stopped
}

func TestAStandInEndsWithItsBrowser(t *testing.T) {
	s := &scripted{opened: make(chan opening, 1)}
	d := newScripted(t, s)
	conn, _ := standIn(t, d)
	close((<-s.opened).ended)
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v, want the end", err)
	}
}

func TestAUserDataDirectoryIsOneProfile(t *testing.T) {
	s := &scripted{opened: make(chan opening, 4)}
	d := newScripted(t, s)
	for _, args := range [][]string{{"--user-data-dir=/tmp/a"}, {"--user-data-dir=/tmp/a"}, {}, {}} {
		standIn(t, d, args...)
	}
	first, second, third, fourth := <-s.opened, <-s.opened, <-s.opened, <-s.opened
	if first.profile != second.profile {
		t.Errorf("%q and %q, want one profile for one directory", first.profile, second.profile)
	}
	if third.profile == fourth.profile || third.profile == first.profile {
		t.Errorf("%q and %q, want a fresh one for each without a directory", third.profile, fourth.profile)
	}
}

func TestAStandInIsToldWhyThereIsNoBrowser(t *testing.T) {
	d := newScripted(t, &scripted{refusal: errors.New("the host is full")})
	if _, answer := standIn(t, d); answer.Error != "the host is full" {
		t.Errorf("answer: %+v", answer)
	}
}

func TestACheckoutOfAnotherVersionIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "chrome-remote-interface"), 0o700); err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(dir, "chrome-remote-interface", "package.json")
	p := &place{checkouts: dir, work: t.TempDir()}
	for version, want := range map[string]string{criRepository.version: "", "0.1.0": "want " + criRepository.version} {
		if err := os.WriteFile(manifest, []byte(`{"version":"`+version+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := p.checkout(t.Context(), criRepository)
		if want == "" && (err != nil || got != filepath.Dir(manifest)) {
			t.Errorf("%s: %q %v", version, got, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", version, err, want)
		}
	}
}

func TestWhatCannotBeClonedIsNotPlayed(t *testing.T) {
	p := &place{work: t.TempDir()}
	nowhere := repository{folder: "nowhere", url: filepath.Join(t.TempDir(), "none"), tag: "v1", version: "1"}
	if _, err := p.checkout(t.Context(), nowhere); !errors.Is(err, errNotHere) || !strings.Contains(err.Error(), "SUITES_DIR/nowhere") {
		t.Errorf("%v, want that it is not here, and what to do", err)
	}
}

func TestTestsAreGroupedByTheirFiles(t *testing.T) {
	files, of := byFile([]string{"a.js › one", "b.js › two", "a.js › three › four"})
	if !slices.Equal(files, []string{"a.js", "b.js"}) || len(of["a.js"]) != 2 || len(of["b.js"]) != 1 {
		t.Errorf("%q %q", files, of)
	}
}
