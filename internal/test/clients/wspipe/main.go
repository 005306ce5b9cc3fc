// Command wspipe is used in place of a Chrome binary. It speaks CDP on the descriptors
// 3 and 4, as Chrome does with --remote-debugging-pipe, and forwards it over a
// websocket. So test suites of CDP clients that start their browser themselves run
// unchanged on a browser that somebody else started.
//
// With WSPIPE_SIDECAR (such as 127.0.0.1:9333) each start opens a session of that
// sidecar, with a profile for each --user-data-dir. Without it, each start runs a
// Chrome of its own on a debugging port, with the arguments that the sidecar gives to
// Chrome. WSPIPE_CHROME names the binary. Both ways use those of the client's arguments
// that the sidecar allows. A start without --remote-debugging-pipe is passed to Chrome
// as it is.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"leasehold/launcher/chrome"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wspipe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	binary := os.Getenv("WSPIPE_CHROME")
	if !slices.Contains(args, "--remote-debugging-pipe") {
		return syscall.Exec(binary, append([]string{binary}, args...), os.Environ())
	}
	i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--user-data-dir=") })
	if i < 0 {
		return errors.New("no --user-data-dir given")
	}
	dir := strings.TrimPrefix(args[i], "--user-data-dir=")
	args = allowed(args)
	if sidecar := os.Getenv("WSPIPE_SIDECAR"); sidecar != "" {
		q := url.Values{
			"worker": {"wspipe"}, "task": {"suite"}, "create": {"true"}, "headless": {"true"}, "wait": {"60s"},
			// A test suite also kills its browsers.
			"on_drop": {"release"},
		}
		if len(args) > 0 {
			q.Set("chrome_args", strings.Join(args, ","))
		}
		return forward(fmt.Sprintf("ws://%s/devtools/browser/%x?%s", sidecar, sha256.Sum256([]byte(dir)), q.Encode()))
	}
	return onPort(binary, dir, args)
}

// allowed keeps the arguments that the sidecar allows. Those with a comma cannot be
// passed in a query.
func allowed(args []string) []string {
	return slices.DeleteFunc(args, func(arg string) bool {
		_, _, err := chrome.Arguments(chrome.Options{ProfileDir: "/", ExtraArgs: []string{arg}}, os.Geteuid())
		return err != nil || strings.Contains(arg, ",")
	})
}

// onPort starts Chrome on a debugging port, and forwards messages until either side
// ends.
func onPort(binary, dir string, extra []string) error {
	args, _, err := chrome.Arguments(chrome.Options{ProfileDir: dir, Headless: true, ExtraArgs: extra}, os.Geteuid())
	if err != nil {
		return err
	}
	args = chrome.OnPort(args)
	// An earlier start may have left this file.
	active := filepath.Join(dir, "DevToolsActivePort")
	if err := os.Remove(active); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	cmd := exec.Command(binary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt) // the process may have ended
		_ = cmd.Wait()                       // its exit status is not that of the client
	}()
	for range 600 {
		b, err := os.ReadFile(active)
		if port, path, ok := strings.Cut(string(b), "\n"); err == nil && ok {
			return forward("ws://127.0.0.1:" + port + strings.TrimSpace(path))
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("chrome opened no debugging port in 30 s")
}

// forward copies messages both ways, and returns when either side has ended.
func forward(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dialer := ws.Dialer{OnStatusError: func(_ int, reason []byte, _ io.Reader) {
		fmt.Fprintf(os.Stderr, "wspipe: refused: %s\n", reason)
	}}
	conn, buffered, _, err := dialer.Dial(ctx, address)
	if err != nil {
		return err
	}
	from := io.Reader(conn)
	if buffered != nil {
		from = buffered
	}
	commands, events := os.NewFile(3, "commands"), os.NewFile(4, "events")
	down := make(chan error, 1)
	go func() {
		defer close(down)
		// wsutil answers pings and the close handshake.
		in := struct {
			io.Reader
			io.Writer
		}{from, conn}
		for {
			msg, _, err := wsutil.ReadServerData(in)
			if err == nil {
				_, err = events.Write(append(msg, 0))
			}
			if err != nil {
				_ = events.Close()
				down <- err
				return
			}
		}
	}()
	up := make(chan struct{})
	go func() {
		defer close(up)
		for r := bufio.NewReader(commands); ; {
			msg, err := r.ReadBytes(0)
			if err != nil {
				break
			}
			if wsutil.WriteClientText(conn, bytes.TrimSuffix(msg, []byte{0})) != nil {
				return // the reader returns the cause
			}
		}
		// The client closed its pipe.
		_ = ws.WriteFrame(conn, ws.MaskFrame(ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))))
	}()
	select {
	case err = <-down:
	case <-up:
		select {
		case err = <-down:
		case <-time.After(10 * time.Second):
		}
	}
	var closed wsutil.ClosedError
	if errors.As(err, &closed) && closed.Code == ws.StatusNormalClosure || errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, conn.Close())
}
