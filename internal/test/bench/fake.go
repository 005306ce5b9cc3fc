package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

const (
	// fakeArg as the first argument makes this program run as a scripted browser.
	fakeArg = "scripted-browser"
	// The answer to fakeMethod takes fakeWork of processor time, about as much as an
	// evaluate.
	fakeMethod = "Runtime.evaluate"
	fakeWork   = 60 * time.Microsecond
)

// fakeChrome acts as a browser on descriptors 3 and 4. It opens browser sessions and
// answers commands, and has no pages.
func fakeChrome() {
	in, out := bufio.NewReaderSize(os.NewFile(3, "commands"), 64<<10), os.NewFile(4, "events")
	// Unlike Chrome it has no state to keep, so it ends with its launcher.
	launcher := os.Getppid()
	go func() {
		for os.Getppid() == launcher {
			time.Sleep(time.Second)
		}
		os.Exit(1)
	}()
	sessions := 0
	for {
		msg, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var c struct {
			ID        int64  `json:"id"`
			Method    string `json:"method"`
			SessionID string `json:"sessionId"`
		}
		if json.Unmarshal(msg[:len(msg)-1], &c) != nil {
			continue
		}
		result := `{}`
		switch c.Method {
		case "Target.attachToBrowserTarget":
			sessions++
			result = fmt.Sprintf(`{"sessionId":"%032d"}`, sessions)
		case "Target.getTargets":
			result = `{"targetInfos":[]}`
		case fakeMethod:
			for begun := time.Now(); time.Since(begun) < fakeWork; {
			}
			result = `{"result":{"type":"number","value":2,"description":"2"}}`
		}
		answer := fmt.Appendf(nil, `{"id":%d,"result":%s`, c.ID, result)
		if c.SessionID != "" {
			answer = fmt.Appendf(answer, `,"sessionId":"%s"`, c.SessionID)
		}
		if _, err := out.Write(append(answer, '}', 0)); err != nil || c.Method == "Browser.close" {
			return
		}
	}
}
