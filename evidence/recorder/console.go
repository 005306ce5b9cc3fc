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

const keptMessages = 100

// ConsoleEvents are the CDP events that Console.See wants, of each target.
var ConsoleEvents = []string{"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}

// Console records the last messages of the pages' consoles. What the browser says
// itself is kept as a short text with redacted URLs. What a page says could be
// anything that was typed into it: of that only the level, the kind of error and
// the place in the page's source are kept. The zero value is ready; its methods
// may be called at the same time.
type Console struct{ ring ring[consoleEvent] }

// consoleEvent is one as it came: a page may print thousands a second, and only
// the last hundred are ever read.
type consoleEvent struct {
	at     time.Time
	token  uint64
	method string
	params json.RawMessage // nil: too long to keep
}

// maxConsoleEvent is the size of the longest parameters that Console reads, in
// bytes; of longer ones it is known only that they came.
const maxConsoleEvent = 16 << 10

// ConsoleEntry is one message in the part.
type ConsoleEntry struct {
	At         time.Time `json:"at"`
	LeaseToken uint64    `json:"lease_token"`
	Level      string    `json:"level"`  // log, warning, error, ...
	Source     string    `json:"source"` // console, exception, or the browser's: network, security, ...
	// Text is what the browser said, or the class of an exception. It is
	// REDACTED for what the page said.
	Text string `json:"text"`
	URL  string `json:"url,omitempty"`
	// Line is one-based; zero where it is not known.
	Line int `json:"line,omitempty"`
}

// browserSources are those of Log.entryAdded whose texts the browser makes.
var browserSources = map[string]bool{
	"network": true, "security": true, "violation": true, "deprecation": true, "intervention": true, "recommendation": true, "rendering": true,
}

// errorClasses are the exceptions of the language itself. A page can name its own
// classes as it likes.
var errorClasses = map[string]bool{
	"Error": true, "TypeError": true, "RangeError": true, "ReferenceError": true, "SyntaxError": true, "EvalError": true,
	"URIError": true, "AggregateError": true, "DOMException": true,
}

// See takes over what one of ConsoleEvents says, and keeps params. Other events,
// and parameters that are not theirs, are passed over.
func (c *Console) See(at time.Time, token uint64, method string, params json.RawMessage) {
	if !slices.Contains(ConsoleEvents, method) {
		return
	}
	if len(params) > maxConsoleEvent {
		params = nil
	}
	c.ring.add(keptMessages, func(kept *consoleEvent) { *kept = consoleEvent{at, token, method, params} })
}

// entry reads an event; false where its parameters are not those of its method.
func (v *consoleEvent) entry() (e ConsoleEntry, ok bool) {
	type place struct {
		URL  string `json:"url"`
		Line *int   `json:"lineNumber"`
	}
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
	var where place
	switch v.method {
	case "Runtime.consoleAPICalled":
		e.Level, e.Source = word(p.Type), "console"
		if len(p.Stack.Frames) > 0 {
			where = p.Stack.Frames[0]
		}
	case "Runtime.exceptionThrown":
		e.Level, e.Source, where = "error", "exception", p.Details.place
		if errorClasses[p.Details.Exception.Class] {
			e.Text = p.Details.Exception.Class
		}
	case "Log.entryAdded":
		e.Level, e.Source, where = word(p.Entry.Level), word(p.Entry.Source), p.Entry.place
		if browserSources[p.Entry.Source] {
			e.Text = browserText(p.Entry.Text)
		}
	}
	if e.URL = bareURL(where.URL); where.Line != nil && where.URL != "" {
		e.Line = *where.Line + 1
	}
	return e, true
}

// Forget begins anew, with nothing recorded.
func (c *Console) Forget() { c.ring.forget() }

// Part returns what was recorded: {"total","dropped","entries"}, oldest first.
func (c *Console) Part() []byte {
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	var entries []ConsoleEntry
	c.ring.each(func(v *consoleEvent) {
		if e, ok := v.entry(); ok {
			entries = append(entries, e)
		}
	})
	return encodeRecorded(c.ring.total, entries)
}
