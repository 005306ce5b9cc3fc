package recorder

import (
	"encoding/json"
	"slices"
	"time"

	"leasehold/evidence/redact"
)

// ConsolePart is the name of the part that Console makes, of kind
// evidence.KindConsole.
const ConsolePart = "console.json"

// keptMessages is how many messages are kept.
const keptMessages = 100

// The events that consoles print.
const (
	consoleAPICalled = "Runtime.consoleAPICalled"
	exceptionThrown  = "Runtime.exceptionThrown"
	entryAdded       = "Log.entryAdded"
)

// ConsoleEvents are the CDP events that Console.See wants, of each target.
var ConsoleEvents = []string{consoleAPICalled, exceptionThrown, entryAdded}

// Console records the last messages of the pages' consoles. What the browser itself says is
// kept as a short text with redacted URLs. What a page says could be anything that was typed
// into it: only the level, the kind of error and the place in the page's source are kept of
// that. The zero value is ready; its methods are safe for concurrent use.
type Console struct{ ring ring[consoleEvent] }

// consoleEvent is an event as it came. A page may print thousands a second, of which
// only the last are ever decoded.
type consoleEvent struct {
	at     time.Time
	token  uint64
	method string
	params json.RawMessage // nil where they were too long to keep
}

// maxConsoleParams is the size of the longest parameters that are kept, in bytes. If they are
// longer, only the time and method are kept.
const maxConsoleParams = 16 << 10

// ConsoleEntry is one message in the part.
type ConsoleEntry struct {
	At         time.Time `json:"at"`
	LeaseToken uint64    `json:"lease_token"`
	Level      string    `json:"level"`  // log, warning, error, ...
	Source     string    `json:"source"` // console, exception, or the browser's: network, security, ...
	// Text is what the browser said, or the class of an exception. For what the page said, it
	// is redact.Mark.
	Text string `json:"text"`
	URL  string `json:"url,omitempty"`
	// Line is one-based; zero if it is not known.
	Line int `json:"line,omitempty"`
}

// browserSources are those sources of Log.entryAdded whose texts the browser makes.
var browserSources = map[string]bool{
	"network": true, "security": true, "violation": true, "deprecation": true, "intervention": true, "recommendation": true, "rendering": true,
}

// errorClasses are the exceptions of the language itself. Only these are kept, since a page can
// give its own classes any name.
var errorClasses = map[string]bool{
	"Error": true, "TypeError": true, "RangeError": true, "ReferenceError": true, "SyntaxError": true, "EvalError": true,
	"URIError": true, "AggregateError": true, "DOMException": true,
}

// See records one of ConsoleEvents, and keeps params. Other events, and parameters
// that do not fit their event, are ignored.
func (c *Console) See(at time.Time, token uint64, method string, params json.RawMessage) {
	if !slices.Contains(ConsoleEvents, method) {
		return
	}
	if len(params) > maxConsoleParams {
		params = nil
	}
	c.ring.add(keptMessages, consoleEvent{at, token, method, params})
}

// Forget drops what was recorded and starts the count again.
func (c *Console) Forget() { c.ring.reset() }

// Part returns what was recorded: {"total","dropped","entries"}, oldest first.
func (c *Console) Part() []byte {
	events, total := c.ring.last()
	var entries []ConsoleEntry
	for _, v := range events {
		if e, ok := v.entry(); ok {
			entries = append(entries, e)
		}
	}
	return encodePart(total, entries)
}

// place is where in a page's source something happened.
type place struct {
	URL  string `json:"url"`
	Line *int   `json:"lineNumber"` // zero-based
}

// entry decodes an event. ok is false if the parameters do not fit it.
func (v consoleEvent) entry() (e ConsoleEntry, ok bool) {
	var p struct {
		Type  string `json:"type"`
		Stack struct {
			Frames []place `json:"callFrames"`
		} `json:"stackTrace"`
		Details struct {
			place
			Exception struct {
				Class string `json:"className"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
		Entry struct {
			place
			Source string `json:"source"`
			Level  string `json:"level"`
			Text   string `json:"text"`
		} `json:"entry"`
	}
	if len(v.params) > 0 && json.Unmarshal(v.params, &p) != nil {
		return e, false
	}
	e = ConsoleEntry{At: v.at.UTC(), LeaseToken: v.token, Text: redact.Mark}
	var at place
	switch v.method {
	case consoleAPICalled:
		e.Level, e.Source = cleanWord(p.Type), "console"
		if len(p.Stack.Frames) > 0 {
			at = p.Stack.Frames[0]
		}
	case exceptionThrown:
		e.Level, e.Source, at = "error", "exception", p.Details.place
		if errorClasses[p.Details.Exception.Class] {
			e.Text = p.Details.Exception.Class
		}
	case entryAdded:
		e.Level, e.Source, at = cleanWord(p.Entry.Level), cleanWord(p.Entry.Source), p.Entry.place
		if browserSources[p.Entry.Source] {
			e.Text = cleanText(p.Entry.Text)
		}
	}
	if e.URL = cleanURL(at.URL); at.Line != nil && at.URL != "" {
		e.Line = *at.Line + 1
	}
	return e, true
}
