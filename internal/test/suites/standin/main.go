// Command standin is used in place of a Chrome binary. Started with
// --remote-debugging-port it asks the runner of the suites for a browser, prints its
// address as Chrome does, and lives until that browser ends; the browser ends with it, too.
// A port that the client names is passed on to the browser's.
// So test suites of CDP clients that start Chrome themselves run unchanged on a browser
// that somebody else started. Any other start is passed to Chrome as it is.
//
// STANDIN_SOCKET names the runner's socket, STANDIN_CHROME the real binary.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"leasehold/internal/test/suites/standin/ask"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--remote-debugging-port") }) {
		binary := os.Getenv("STANDIN_CHROME")
		return syscall.Exec(binary, append([]string{binary}, args...), os.Environ())
	}
	conn, err := net.Dial("unix", os.Getenv("STANDIN_SOCKET"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := json.NewEncoder(conn).Encode(ask.Request{Args: args}); err != nil {
		return err
	}
	from := bufio.NewReader(conn)
	line, err := from.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the runner gave no browser: %w", err)
	}
	var answer ask.Answer
	if err := json.Unmarshal(line, &answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	host := answer.Host
	if number := wanted(args); number != "0" {
		// The client goes to the port that it named, whatever is printed.
		host = "127.0.0.1:" + number
		l, err := net.Listen("tcp", host)
		if err != nil {
			return err
		}
		go relay(l, answer.Host) // ends with the process
	}
	resp, err := http.Get("http://" + host + "/json/version")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var version struct {
		WebSocketDebuggerURL string `json:"webSocketDebuggerUrl"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&version); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "\nDevTools listening on %s\n", version.WebSocketDebuggerURL)
	_, _ = io.Copy(io.Discard, from) // ends with the browser
	return nil
}

// wanted is the debugging port that the arguments name, the last of them; 0 is any.
func wanted(args []string) string {
	number := "0"
	for _, arg := range args {
		if named, ok := strings.CutPrefix(arg, "--remote-debugging-port="); ok {
			number = named
		}
	}
	return number
}

// relay passes what comes in on a port to the browser, byte by byte.
func relay(l net.Listener, host string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", host)
		if err != nil {
			_ = from.Close() // the browser has ended
			continue
		}
		pass := func(to, from net.Conn) {
			_, _ = io.Copy(to, from) // either end may close first
			_ = to.Close()
			_ = from.Close()
		}
		go pass(to, from)
		go pass(from, to)
	}
}
