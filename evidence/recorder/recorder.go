// Package recorder makes parts of a bundle of evidence of the latest that happened in a session's
// browser: the commands that workers sent, and what the consoles of pages printed, which it keeps,
// and the requests that pages made, which the ledger keeps. All are bounded, and leave out secrets.
package recorder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"leasehold/evidence/redact"
)

// part is the form of the parts that recorders make.
type part[T any] struct {
	// Total counts everything that happened; Dropped counts what came before
	// Entries.
	Total   int `json:"total"`
	Dropped int `json:"dropped"`
	Entries []T `json:"entries"`
}

func encodePart[T any](total int, entries []T) []byte {
	if entries == nil {
		entries = []T{}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // people read the URLs in it
	e.SetIndent("", " ")
	if err := e.Encode(part[T]{Total: total, Dropped: total - len(entries), Entries: entries}); err != nil {
		// Entries are texts, numbers and times: only a year after 9999 fails.
		return fmt.Appendf(nil, "{\"error\":%q}\n", err.Error())
	}
	return out.Bytes()
}

// How much recorders keep of texts. There are hundreds of each kind, so all are short.
const (
	maxURLBytes  = 500
	maxTextBytes = 300
)

// cleanURL is redact.URL without the fragment, and bounded.
func cleanURL(raw string) string {
	s, _, _ := strings.Cut(redact.URL(raw), "#")
	return redact.Clip(s, maxURLBytes)
}

var (
	urlInText   = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s'"<>]+|(?:data|javascript|blob):[^\s'"<>]+`)
	wordPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// cleanText is a text that the browser made, not the page, with its URLs redacted.
func cleanText(s string) string {
	return redact.Clip(urlInText.ReplaceAllStringFunc(s, cleanURL), maxTextBytes)
}

// cleanWord returns a text that is empty or one plain word of the protocol, and
// redact.Mark for any other.
func cleanWord(s string) string { return cleanMatch(s, wordPattern) }

// cleanID returns a text that is empty or could be an id made by the browser, and
// redact.Mark for any other.
func cleanID(s string) string { return cleanMatch(s, idPattern) }

func cleanMatch(s string, pattern *regexp.Regexp) string {
	if s == "" || pattern.MatchString(s) {
		return s
	}
	return redact.Mark
}
