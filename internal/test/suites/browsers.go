package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"leasehold/internal/test/sides"
	"leasehold/internal/test/suites/standin/ask"
	"leasehold/launcher/chrome"
)

// patience is how long a browser may take to start or to end.
const patience = time.Minute

// browser is one Chromium that a suite drives.
type browser struct {
	host  string          // host:port with Chrome's own layout of URLs
	ended <-chan struct{} // closed when the browser, or its session, has ended
	stop  func()          // ends it, and waits
}

// opener opens browsers: on a port of their own, or through a sidecar. profile stands for
// a user-data directory: the same one finds what an earlier browser left. alone says that
// nobody but the suite may be connected.
type opener interface {
	open(ctx context.Context, profile string, args []string, alone bool) (*browser, error)
}

// port starts each browser on a debugging port, with the arguments that the sidecar gives
// to its browsers.
type port struct{ binary, dir string }

func (p port) open(ctx context.Context, profile string, extra []string, _ bool) (*browser, error) {
	b, err := sides.StartPort(ctx, sides.PortOptions{
		Binary: p.binary, Profile: filepath.Join(p.dir, profile), Args: extra, Start: patience, End: patience / 4,
	})
	if err != nil {
		return nil, err
	}
	return &browser{host: b.Host, ended: b.Ended, stop: b.Stop}, nil
}

// sidecar is a running sidecar.
type sidecar struct{ *sides.Sidecar }

// startSidecar starts a sidecar on free ports, with its files in dir. Sessions may name
// files below the root, and below the temporary directory.
func startSidecar(binary, dir, root string) (*sidecar, error) {
	apart := &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is for the runner
	s, err := sides.StartSidecar(binary, dir, apart, "--lease-ttl", "60s", "--file-root", root+","+os.TempDir())
	if err != nil {
		return nil, err
	}
	return &sidecar{s}, nil
}

// stop drains the sidecar.
func (s *sidecar) stop() error { return s.Stop(2 * patience) }

// open opens a session. A connection of the runner's own, which says nothing, keeps it
// while the suite's connections come and go, as a browser on a port would go on. With alone
// heartbeats do, and then the suite's last connection has to end by a close handshake.
func (s *sidecar) open(ctx context.Context, profile string, args []string, alone bool) (*browser, error) {
	wanted := map[string]any{
		"profile_id": profile, "worker_id": "suites", "task_id": "suite", "create": true, "headless": true, "wait": "60s",
		"dedicated_port": true, "on_close": "keep", "on_drop": "release", "chrome_args": args,
	}
	if alone {
		wanted["heartbeat"] = "explicit"
	}
	body, err := json.Marshal(wanted)
	if err != nil {
		return nil, err
	}
	said, err := s.ask(ctx, http.MethodPost, "/v1/sessions", body)
	if err != nil {
		return nil, err
	}
	var session struct {
		SessionID    string `json:"session_id"`
		Token        uint64 `json:"lease_token"`
		CDPURL       string `json:"cdp_url"`
		DedicatedURL string `json:"dedicated_url"`
	}
	if err := json.Unmarshal(said, &session); err != nil || session.DedicatedURL == "" {
		return nil, fmt.Errorf("no session on a port of its own: %s", said)
	}
	end := func() {
		ending := fmt.Sprintf(`{"lease_token":%d,"outcome":"completed"}`, session.Token)
		_, _ = s.ask(context.WithoutCancel(ctx), http.MethodDelete, "/v1/sessions/"+session.SessionID, []byte(ending)) // it may have ended
	}
	ended := make(chan struct{})
	if alone {
		go func() {
			defer close(ended)
			s.beat(ctx, session.SessionID, session.Token)
		}()
	} else if err := keep(ctx, session.CDPURL, ended); err != nil {
		end()
		return nil, err
	}
	return &browser{host: strings.TrimPrefix(session.DedicatedURL, "http://"), ended: ended, stop: func() {
		end()
		<-ended
	}}, nil
}

// keep connects to a session, and closes ended when that has ended the connection.
func keep(ctx context.Context, url string, ended chan<- struct{}) error {
	conn, early, _, err := ws.Dial(ctx, url)
	if err != nil {
		return err
	}
	from := io.Reader(conn)
	if early != nil {
		from = early
	}
	go func() {
		defer close(ended)
		rw := struct {
			io.Reader
			io.Writer
		}{from, conn}
		for {
			if _, _, err := wsutil.ReadServerData(rw); err != nil {
				_ = conn.Close() // it has ended
				return
			}
		}
	}()
	return nil
}

const (
	// lookEvery is the time between two looks at whether a session has ended, and beatEvery
	// that between two heartbeats.
	lookEvery = 200 * time.Millisecond
	beatEvery = 5 * time.Second
)

// beat sends heartbeats, and returns when the session has ended.
func (s *sidecar) beat(ctx context.Context, id string, token uint64) {
	ctx = context.WithoutCancel(ctx) // the session is ended by stop
	heartbeat := fmt.Appendf(nil, `{"lease_token":%d}`, token)
	for last := time.Now(); ; time.Sleep(lookEvery) {
		var is struct {
			Ended string `json:"ended"`
		}
		said, err := s.ask(ctx, http.MethodGet, "/v1/sessions/"+id, nil)
		if err != nil || json.Unmarshal(said, &is) != nil || is.Ended != "" {
			return
		}
		if time.Since(last) > beatEvery {
			last = time.Now()
			_, _ = s.ask(ctx, http.MethodPost, "/v1/sessions/"+id+"/heartbeat", heartbeat) // the next look tells why it failed
		}
	}
}

func (s *sidecar) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, said)
	}
	return said, err
}

// desk gives browsers to the stand-ins of one side. A browser ends with its stand-in, as
// it would end with its process, and a stand-in with its browser.
type desk struct {
	opener   opener
	socket   string
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	serving  sync.WaitGroup
	profiles atomic.Int64
	// alone says that the suite counts the connections of its browsers.
	alone atomic.Bool
}

func newDesk(o opener, socket string) (*desk, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	d := &desk{opener: o, socket: socket, listener: l}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			d.serving.Go(func() { d.serve(conn) })
		}
	})
	return d, nil
}

// close ends all browsers that were given.
func (d *desk) close() {
	d.cancel()
	_ = d.listener.Close() // the socket goes with the directory
	d.serving.Wait()
}

func (d *desk) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var want ask.Request
	from := bufio.NewReader(conn)
	if err := json.NewDecoder(from).Decode(&want); err != nil {
		return // the stand-in ended
	}
	b, err := d.open(want.Args)
	if err != nil {
		_ = json.NewEncoder(conn).Encode(ask.Answer{Error: err.Error()}) // it shows it, if it is still there
		return
	}
	_ = json.NewEncoder(conn).Encode(ask.Answer{Host: b.host}) // looked at below
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, from)
	}()
	select {
	case <-b.ended:
	case <-gone:
	case <-d.ctx.Done():
	}
	b.stop()
	_ = conn.Close()
	<-gone
}

// open opens a browser for the arguments that a client would start Chrome with.
func (d *desk) open(args []string) (*browser, error) {
	profile := fmt.Sprintf("fresh-%d", d.profiles.Add(1))
	for _, arg := range args {
		if dir, ok := strings.CutPrefix(arg, "--user-data-dir="); ok {
			profile = fmt.Sprintf("%x", sha256.Sum256([]byte(dir)))[:32]
		}
	}
	return d.opener.open(d.ctx, profile, allowed(args), d.alone.Load())
}

// allowed keeps the arguments that the sidecar allows, so that both sides have the same.
func allowed(args []string) []string {
	kept := []string{}
	for _, arg := range args {
		if _, _, err := chrome.Arguments(chrome.Options{ProfileDir: "/", ExtraArgs: []string{arg}}, os.Geteuid()); err == nil {
			kept = append(kept, arg)
		}
	}
	return kept
}
