// Command standin is used in place of a Chrome binary. Started with
// --remote-debugging-port it asks the runner of the suites for a browser, prints its
// address as Chrome does, and lives until that browser ends; the browser ends with it, too.
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
	resp, err := http.Get("http://" + answer.Host + "/json/version")
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
