// Package testchrome starts and drives a real Chromium for tests. If it is missing, a
// test fails and is not skipped.
package testchrome

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"leasehold/launcher/chrome"
)

// Patience bounds waits that are over much sooner unless something is broken.
const Patience = time.Minute

// Unhurried bounds the close of a browser that is to end as it is asked to, also on a host that is busier than
// any user would wait for.
var Unhurried = chrome.CloseTimeouts{Ask: Patience, Kill: Patience}

// Options returns options for a headless browser on a fresh profile. With -short the test is skipped.
func Options(t testing.TB) chrome.Options {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a browser: run it without -short")
	}
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// By the name of the default one sidecars would know it as a sidecar's browser, and refuse it.
	temp, err := os.MkdirTemp("", "testchrome-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	return chrome.Options{Binary: binary, ProfileDir: dir, TempDir: temp, Headless: true, OutputFile: filepath.Join(t.TempDir(), "chrome.log")}
}

// Start starts a browser. It is killed when the test ends, if it still runs.
func Start(t testing.TB, o chrome.Options) *chrome.Browser {
	t.Helper()
	b, err := chrome.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	CloseAtEnd(t, b)
	return b
}

// CloseAtEnd kills the browser when the test ends, if it still runs.
func CloseAtEnd(t testing.TB, b *chrome.Browser) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if _, err := b.Close(ctx, nil, chrome.CloseTimeouts{Interrupt: time.Nanosecond}); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("chrome %d (%s) printed:\n%s", b.PID(), b.ExitStatus(), b.OutputTail(4<<10))
		}
	})
}

// Client is a minimal client on a browser's pipe.
type Client struct {
	b      *chrome.Browser
	events *bufio.Reader
	lastID int
}

// NewClient takes the pipe of a browser. The ids of its commands begin after
// firstID.
func NewClient(b *chrome.Browser, firstID int) *Client {
	return &Client{b: b, events: bufio.NewReaderSize(b.Events(), 1<<20), lastID: firstID}
}

// Call sends a command and returns its result. All other messages are dropped.
func (c *Client) Call(method string, params any) (json.RawMessage, error) {
	c.lastID++
	command := map[string]any{"id": c.lastID, "method": method}
	if params != nil {
		command["params"] = params
	}
	b, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(Patience)
	if err := c.b.Commands().SetWriteDeadline(deadline); err != nil {
		return nil, err
	}
	if err := c.b.Events().SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := c.b.Commands().Write(append(b, 0)); err != nil {
		return nil, err
	}
	for {
		message, err := c.events.ReadBytes(0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(message[:len(message)-1], &answer); err != nil || answer.ID != c.lastID {
			continue
		}
		if answer.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, answer.Error)
		}
		return answer.Result, nil
	}
}

// Ask closes the browser over CDP. It is an argument for chrome.Browser.Close.
func (c *Client) Ask(context.Context) error {
	_, err := c.Call("Browser.close", nil)
	return err
}
